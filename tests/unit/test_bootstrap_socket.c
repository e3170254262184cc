/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Sending and receiving one message: too many descriptors, and connections that end early. */

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "ipc/bootstrap_private.h"

#define WAIT_NS UINT64_C(30000000)

static const struct cei_message joined = { .type = CEI_MESSAGE_JOINED };
static const struct cei_message link_of_7 = { .type = CEI_MESSAGE_LINK, .link = { 1, { 7 } } };
static int ends[2];
static struct cei_received received;

static void set_up(void)
{
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
}

static void tear_down(void)
{
	cei_fd_close(ends[0]);
	cei_fd_close(ends[1]);
}

static uint32_t n_open_fds(void)
{
	DIR *fds = opendir("/proc/self/fd");
	uint32_t n_fds = 0;

	ck_assert_ptr_nonnull(fds);
	while (readdir(fds))
		n_fds++;
	closedir(fds);
	return n_fds;
}

START_TEST(test_message_and_descriptors_arrive_together)
{
	const int fds[2] = { STDIN_FILENO, STDOUT_FILENO };

	ck_assert_int_eq(cei_socket_receive(ends[1], &received), CEOV_NONE);
	ck_assert_int_eq(cei_socket_send(ends[0], &link_of_7, fds, 2), 0);
	ck_assert_int_eq(cei_socket_send(ends[0], &joined, NULL, 0), 0);
	ck_assert_int_eq(cei_socket_receive(ends[1], &received), 0);
	ck_assert_uint_eq(received.message.link.ranks[0], 7);
	ck_assert_uint_eq(received.n_fds, 2);
	ck_assert_int_ne(fcntl(received.fds[1], F_GETFD) & FD_CLOEXEC, 0);
	cei_received_close_fds(&received);
	ck_assert_uint_eq(received.n_fds, 0);
	ck_assert_int_eq(cei_socket_receive(ends[1], &received), 0);
	ck_assert_uint_eq(received.message.type, CEI_MESSAGE_JOINED);
	ck_assert_uint_eq(received.n_fds, 0);
}
END_TEST

START_TEST(test_the_last_word_is_heard_of_one_who_closed_with_messages_unread)
{
	ck_assert_int_eq(cei_socket_send(ends[1], &link_of_7, NULL, 0), 0);
	ck_assert_int_eq(cei_socket_send(ends[0], &joined, NULL, 0), 0);
	close(ends[0]);
	ends[0] = -1;
	ck_assert_int_eq(cei_socket_receive(ends[1], &received), 0);
	ck_assert_uint_eq(received.message.type, CEI_MESSAGE_JOINED);
	ck_assert_int_eq(cei_socket_receive(ends[1], &received), CEOV_ERR_PEER_LOST);
	ck_assert_int_eq(cei_socket_send(ends[1], &link_of_7, NULL, 0), CEOV_ERR_PEER_LOST);
}
END_TEST

START_TEST(test_a_full_socket_is_told_and_waits_no_longer_than_its_deadline)
{
	uint64_t begin_ns;
	int r;

	do
		r = cei_socket_send(ends[0], &link_of_7, NULL, 0);
	while (!r);
	ck_assert_int_eq(r, CEOV_FULL);
	begin_ns = cei_now_ns();
	ck_assert_int_eq(cei_socket_send_by(ends[0], &link_of_7, NULL, 0,
					    cei_deadline(WAIT_NS)), CEOV_ERR_TIMEOUT);
	ck_assert_uint_ge(cei_now_ns() - begin_ns, WAIT_NS);
	while (!cei_socket_receive(ends[1], &received))
		;
	ck_assert_int_eq(cei_socket_send_by(ends[0], &link_of_7, NULL, 0, 0), 0);
}
END_TEST

START_TEST(test_descriptors_without_room_are_none_and_leak_not)
{
	const int fds[2] = { STDIN_FILENO, STDOUT_FILENO };
	uint32_t n_fds = n_open_fds();
	struct rlimit limit, tight;

	ck_assert_int_eq(cei_socket_send(ends[0], &link_of_7, fds, 2), 0);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	tight = limit;
	/* leave room for only one more descriptor */
	tight.rlim_cur = (rlim_t)dup(0) + 1;
	close((int)tight.rlim_cur - 1);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &tight), 0);
	ck_assert_int_eq(cei_socket_receive(ends[1], &received), 0);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert_uint_eq(received.n_fds, 0);
	ck_assert_uint_eq(n_open_fds(), n_fds);
}
END_TEST

static void send_raw(const void *bytes, size_t n_bytes, uint32_t n_fds)
{
	union {
		struct cmsghdr head;
		uint8_t        bytes[CMSG_SPACE(64 * sizeof(int))];
	} control;
	struct iovec part = { .iov_base = (void *)(uintptr_t)bytes, .iov_len = n_bytes };
	struct msghdr header = { .msg_iov = &part, .msg_iovlen = 1 };

	memset(&control, 0, sizeof(control));   /* descriptor 0, n_fds times */
	control.head.cmsg_level = SOL_SOCKET;
	control.head.cmsg_type = SCM_RIGHTS;
	control.head.cmsg_len = CMSG_LEN(n_fds * sizeof(int));
	if (n_fds) {
		header.msg_control = &control;
		header.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
	}
	ck_assert_int_eq(sendmsg(ends[0], &header, 0), (ssize_t)n_bytes);
}

START_TEST(test_nonsense_is_refused_and_its_descriptors_are_closed)
{
	static const uint8_t zeros[3 * CEI_MESSAGE_BYTES_MAX];
	uint8_t bytes[CEI_MESSAGE_BYTES_MAX];
	size_t n_bytes = cei_message_encode(&joined, bytes);
	uint32_t n_fds = n_open_fds();

	send_raw(zeros, 100, 3);
	ck_assert_int_lt(cei_socket_receive(ends[1], &received), 0);
	send_raw(zeros, sizeof(zeros), 0);
	ck_assert_int_eq(cei_socket_receive(ends[1], &received), CEOV_ERR_INVALID);
	send_raw(bytes, n_bytes, 64);           /* longer than any message */
	ck_assert_int_eq(cei_socket_receive(ends[1], &received), 0);
	ck_assert_uint_eq(received.n_fds, 0);
	ck_assert_uint_eq(n_open_fds(), n_fds);
}
END_TEST

START_TEST(test_peer_is_known)
{
	uint32_t uid = UINT32_MAX;
	int pidfd = cei_socket_pidfd(ends[0]);

	ck_assert_int_eq(cei_socket_peer_uid(ends[0], &uid), 0);
	ck_assert_uint_eq(uid, (uint32_t)geteuid());
	cei_fd_close(pidfd);
	ck_assert_int_ne(cei_socket_peer_uid(-1, &uid), 0);
	ck_assert_int_eq(cei_socket_pidfd(-1), -1);
}
END_TEST

static Suite *bootstrap_socket_suite(void)
{
	Suite *suite = suite_create("bootstrap_socket");
	TCase *tcase = tcase_create("bootstrap_socket");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, test_message_and_descriptors_arrive_together);
	tcase_add_test(tcase,
		       test_the_last_word_is_heard_of_one_who_closed_with_messages_unread);
	tcase_add_test(tcase,
		       test_a_full_socket_is_told_and_waits_no_longer_than_its_deadline);
	tcase_add_test(tcase, test_descriptors_without_room_are_none_and_leak_not);
	tcase_add_test(tcase, test_nonsense_is_refused_and_its_descriptors_are_closed);
	tcase_add_test(tcase, test_peer_is_known);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	SRunner *runner = srunner_create(bootstrap_socket_suite());
	int n_failed;

	srunner_run_all(runner, CK_NORMAL);
	n_failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
