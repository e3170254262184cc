/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The carrier between processes of a node, over real sockets: messages, descriptors beside them,
 * nonsense, and links that do not fit. */

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "carrier_fixture.h"

/* --- messages ------------------------------------------------------------------------ */

START_TEST(test_messages_go_to_the_process_they_are_for)
{
	const struct cei_group_fds fds = { 2, { STDIN_FILENO, STDOUT_FILENO } };
	struct cei_group_message reply = { .type = CEI_GROUP_REPLY, .number = 5 };
	int native_code = 0, i;

	attach_all();
	reply.reply.use = 7;
	reply.reply.id = 1;
	reply.reply.generation = 1;
	reply.reply.n_fds = 2;
	reply.reply.n_bytes = CEI_GROUP_BYTES_MAX;
	reply.reply.bytes[CEI_GROUP_BYTES_MAX - 1] = 9;
	sides[2].peers.keeps_fds = 1;
	ck_assert_int_eq(say(0, 1, CEI_GROUP_BEAT, 3), 0);
	ck_assert_int_eq(say_with(0, 2, &reply, &fds, &native_code), 0);
	turn_all(0);
	turn_all(1);
	turn_all(2);
	ck_assert_uint_eq(sides[0].peers.n_heard, 0);
	ck_assert_uint_eq(sides[1].peers.n_heard, 1);
	ck_assert_uint_eq(sides[1].peers.from, 0);
	ck_assert_uint_eq(sides[1].peers.numbers[0], 3);
	ck_assert_uint_eq(sides[2].peers.n_heard, 1);
	ck_assert_uint_eq(sides[2].peers.from, 0);
	ck_assert_uint_eq(sides[2].peers.last.reply.use, 7);
	ck_assert_uint_eq(sides[2].peers.last.reply.bytes[CEI_GROUP_BYTES_MAX - 1], 9);
	ck_assert_uint_eq(sides[2].peers.n_fds, 2);
	for (i = 0; i < 2; i++) {
		ck_assert_int_eq(fcntl(sides[2].peers.fds[i], F_GETFD), FD_CLOEXEC);
		ck_assert_int_eq(close(sides[2].peers.fds[i]), 0);
	}
}
END_TEST

START_TEST(test_what_is_sent_before_there_are_links_waits)
{
	const struct cei_carrier *carrier = carrier_of(0);

	ck_assert_int_ne(carrier->promises.has_fds && carrier->promises.tells_death &&
			 carrier->promises.is_sure, 0);
	ck_assert_int_eq(say(0, 1, CEI_GROUP_BEAT, 1), CEOV_FULL);
	ck_assert_int_eq(turn(0), 0);
	attach(0);
	ck_assert_uint_eq(sides[0].peers.n_ready, 2);
	ck_assert_uint_ge(sides[0].peers.n_wakes, 1);
	attach(1);
	ck_assert_int_eq(say(0, 1, CEI_GROUP_BEAT, 1), 0);
	turn_all(1);
	ck_assert_uint_eq(sides[1].peers.n_heard, 1);
}
END_TEST

START_TEST(test_a_full_socket_tells_when_it_has_room)
{
	uint32_t n = 0;

	attach_all();
	while (!say(0, 1, CEI_GROUP_BEAT, n + 1))
		ck_assert_uint_lt(n++, HEARD);
	ck_assert_int_eq(say(0, 1, CEI_GROUP_BEAT, 999), CEOV_FULL);
	ck_assert_uint_ge(sides[0].peers.n_wakes, 1);   /* to poll for room */
	ck_assert_int_eq(turn(0), 0);
	ck_assert_int_eq(say(0, 2, CEI_GROUP_BEAT, 1), 0);
	turn_all(1);
	ck_assert_uint_eq(sides[1].peers.n_heard, n);
	ck_assert_int_eq(turn(0), 1);
	ck_assert_uint_eq(sides[0].peers.n_ready, 1);
	ck_assert_uint_eq(sides[0].peers.from, 1);
	ck_assert_int_eq(turn(0), 0);                   /* and polls for it no more */
	ck_assert_int_eq(say(0, 1, CEI_GROUP_BEAT, 999), 0);
}
END_TEST

START_TEST(test_a_turn_hears_one_link_no_longer_than_others_can_wait)
{
	uint32_t i;

	attach_all();
	for (i = 1; i <= 100; i++)
		ck_assert_int_eq(say(0, 1, CEI_GROUP_BEAT, i), 0);
	ck_assert_int_eq(say(2, 1, CEI_GROUP_BEAT, 777), 0);
	ck_assert_int_eq(turn(1), 1);
	ck_assert_uint_eq(sides[1].peers.n_heard, 65);
	ck_assert_uint_eq(sides[1].peers.numbers[64], 777);
	ck_assert_int_eq(turn(1), 1);
	ck_assert_uint_eq(sides[1].peers.n_heard, 101);
	ck_assert_uint_eq(sides[1].peers.numbers[100], 100);
}
END_TEST

START_TEST(test_a_turn_of_a_caller_polls_by_itself)
{
	const struct cei_carrier *carrier = carrier_of(1);

	ck_assert_int_eq(carrier->ops->turn(carrier->state, NULL), 0);
	attach_all();
	ck_assert_int_eq(carrier->ops->turn(carrier->state, NULL), 0);
	ck_assert_int_eq(say(0, 1, CEI_GROUP_BEAT, 1), 0);
	ck_assert_int_eq(carrier->ops->turn(carrier->state, NULL), 1);
	ck_assert_uint_eq(sides[1].peers.n_heard, 1);
}
END_TEST

/* --- descriptors that do not get through ----------------------------------------------- */

START_TEST(test_descriptors_without_room_are_none)
{
	const struct cei_group_fds fds = { 2, { STDIN_FILENO, STDOUT_FILENO } };
	const struct cei_group_message beat = { .type = CEI_GROUP_BEAT, .number = 1 };
	struct rlimit limit, tight;
	uint32_t n;
	int native_code = 0;

	attach_all();
	n = n_open_fds();
	ck_assert_int_eq(say_with(0, 1, &beat, &fds, &native_code), 0);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	tight = limit;
	tight.rlim_cur = (rlim_t)dup(0) + 1;            /* room for one more */
	close((int)tight.rlim_cur - 1);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &tight), 0);
	sides[1].peers.n_fds = 99;
	ck_assert_int_eq(carrier_of(1)->ops->turn(carrier_of(1)->state, NULL), 1);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert_uint_eq(sides[1].peers.n_heard, 1);
	ck_assert_uint_eq(sides[1].peers.n_fds, 0);
	ck_assert_uint_eq(n_open_fds(), n);
	ck_assert_int_eq(say(0, 1, CEI_GROUP_BEAT, 2), 0);
	turn_all(1);
	ck_assert_uint_eq(sides[1].peers.n_heard, 2);
}
END_TEST

START_TEST(test_descriptors_that_cannot_be_sent_end_no_link)
{
	const struct cei_group_fds fds = { 1, { 999 } };
	const struct cei_group_message beat = { .type = CEI_GROUP_BEAT, .number = 1 };
	int native_code = 0;

	attach_all();
	ck_assert_int_eq(say_with(0, 1, &beat, &fds, &native_code), CEOV_ERR_SYSTEM);
	ck_assert_int_eq(native_code, EBADF);
	ck_assert_int_eq(say(0, 1, CEI_GROUP_BEAT, 2), 0);
	turn_all(0);
	turn_all(1);
	ck_assert_uint_eq(sides[1].peers.n_heard, 1);
	ck_assert_uint_eq(sides[0].peers.n_down + sides[1].peers.n_down, 0);
}
END_TEST

/* --- nonsense, and links that do not fit ---------------------------------------------- */

static void send_raw(int fd, const void *bytes, size_t n_bytes, uint32_t n_fds)
{
	union {
		struct cmsghdr head;
		uint8_t        bytes[CMSG_SPACE(64 * sizeof(int))];
	} control;
	struct iovec part = { .iov_base = (void *)(uintptr_t)bytes, .iov_len = n_bytes };
	struct msghdr header = { .msg_iov = &part, .msg_iovlen = 1 };

	memset(&control, 0, sizeof(control));           /* descriptor 0, n_fds times */
	control.head.cmsg_level = SOL_SOCKET;
	control.head.cmsg_type = SCM_RIGHTS;
	control.head.cmsg_len = CMSG_LEN(n_fds * sizeof(int));
	if (n_fds) {
		header.msg_control = &control;
		header.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
	}
	ck_assert_int_eq(sendmsg(fd, &header, 0), (ssize_t)n_bytes);
}

/* Bytes that are no message; too many of them; a type that there is not; too many descriptors. */
enum { ZEROS, LONG, ODD_TYPE, MANY_FDS, N_NONSENSE };

START_TEST(test_nonsense_ends_the_link)
{
	static const uint8_t zeros[3 * CEI_GROUP_MESSAGE_BYTES];
	const struct cei_group_message beat = { .type = CEI_GROUP_BEAT, .number = 1 };
	uint8_t bytes[CEI_GROUP_MESSAGE_BYTES];
	size_t n_bytes = cei_encode(&cei_group_protocol, &beat, bytes);
	int fd = steal(1, 0), is_fine = _i == MANY_FDS;
	uint32_t n;
	char rest[64];

	attach(0);
	n = n_open_fds();
	if (_i == ODD_TYPE)
		bytes[0] = 99;
	if (_i == ZEROS || _i == LONG)
		send_raw(fd, zeros, _i == LONG ? sizeof(zeros) : 100, 3);
	else
		send_raw(fd, bytes, n_bytes, _i == MANY_FDS ? 64 : 0);
	turn_all(0);
	ck_assert_uint_eq(sides[0].peers.n_heard, is_fine ? 1 : 0);
	ck_assert_uint_eq(sides[0].peers.n_fds, 0);
	ck_assert_uint_eq(sides[0].peers.n_down, is_fine ? 0 : 1);
	ck_assert_uint_eq(n_open_fds(), n - (is_fine ? 0 : 1));
	if (!is_fine) {
		testing_log_has(&log_lines, "rank 1", "an invalid message", NULL);
		ck_assert_int_gt(recv(fd, rest, sizeof(rest), MSG_DONTWAIT), 0);
		ck_assert_int_eq(recv(fd, rest, sizeof(rest), MSG_DONTWAIT), 0);
	}
	close(fd);
}
END_TEST

/* A process too few, one twice, a rank of nobody, ranks of two processes. */
START_TEST(test_links_that_do_not_fit_the_roster_are_refused)
{
	struct cei_links *links = &sides[0].links;

	if (_i == 0) {
		close(links->links[1].fd);
		links->n_links = 1;
	} else if (_i == 1) {
		links->links[1].party = links->links[0].party;
	} else if (_i == 2) {
		links->links[1].party.ranks[0] = 4;
	} else {
		links->links[1].party = (struct cei_party){ 2, { 1, 2 } };
	}
	ck_assert_int_eq(cei_unix_attach(sides[0].carrier, &sides[0].peers, links),
			 CEOV_ERR_INVALID);
	ck_assert_uint_eq(links->n_links, 0);
	ck_assert_uint_eq(sides[0].peers.n_ready, 0);
	ck_assert_int_eq(say(0, 1, CEI_GROUP_BEAT, 1), CEOV_FULL);
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_test(tcase, test_messages_go_to_the_process_they_are_for);
	tcase_add_test(tcase, test_what_is_sent_before_there_are_links_waits);
	tcase_add_test(tcase, test_a_full_socket_tells_when_it_has_room);
	tcase_add_test(tcase, test_a_turn_hears_one_link_no_longer_than_others_can_wait);
	tcase_add_test(tcase, test_a_turn_of_a_caller_polls_by_itself);
	tcase_add_test(tcase, test_descriptors_without_room_are_none);
	tcase_add_test(tcase, test_descriptors_that_cannot_be_sent_end_no_link);
	tcase_add_loop_test(tcase, test_nonsense_ends_the_link, ZEROS, N_NONSENSE);
	tcase_add_loop_test(tcase, test_links_that_do_not_fit_the_roster_are_refused, 0, 4);
}

int main(void)
{
	return run_suite("carrier_unix", add_tests);
}
