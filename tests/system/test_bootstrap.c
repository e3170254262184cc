/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests how a group forms: which processes join, which are refused, and what is left behind. */

#include "bootstrap_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/store_wire.h"

#define STRANGERS 100

static int connect_raw(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	uint64_t deadline_ns = cei_deadline(PATIENCE_MS * NS_PER_MS);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(fd, 0);
	strcpy(address.sun_path, path);
	while (connect(fd, (struct sockaddr *)&address, sizeof(address))) {
		ck_assert_uint_lt(cei_now_ns(), deadline_ns);
		pause_ms(1);
	}
	return fd;
}

/* --- forming a group ------------------------------------------------------- */

static void come_and_go(uint32_t number)
{
	uint32_t n_fds = n_open_fds();
	struct party party;

	pause_ms(number % 3 * 15);
	party_open(&party, 4, number);
	need(n_open_fds() > n_fds);
	need(!party_barrier(&party, 20000));
	need(access(path, F_OK) && errno == ENOENT);
	party_close(&party);
	need(n_open_fds() == n_fds);
}

START_TEST(test_all_meet_and_leave_nothing_behind)
{
	uint32_t rank;

	for (rank = 4; rank-- > 0;)
		start(come_and_go, rank);
	assert_all_end_well();
	ck_assert(is_directory_empty());
}
END_TEST

static void be_alone(uint32_t number)
{
	struct party party;
	uint32_t n_fds = n_open_fds();

	(void)number;
	party_init(&party, 2);
	party_hold(&party, 0);
	party_hold(&party, 1);
	need(!party_open_by(&party, 1000));
	need(!party_barrier(&party, 0));
	need(!party_barrier(&party, 0));
	party_close(&party);
	need(n_open_fds() == n_fds);
}

START_TEST(test_one_process_with_all_ranks_meets_nobody)
{
	start(be_alone, 0);
	assert_all_end_well();
}
END_TEST

static void hold_two(uint32_t number)
{
	struct party party;

	party_init(&party, 4);
	party_hold(&party, number);
	party_hold(&party, 3 - number);
	need(!party_open_by(&party, 20000));
	need(!party_barrier(&party, 20000));
	if (!number) {
		need(wait_gone(0, 1) && wait_gone(0, 2));
		need(shared->seen[0][1].n_gone == 1);
		need(shared->seen[0][2].n_gone == 1);
		need(shared->seen[0][2].departed);
	}
	party_close(&party);
}

START_TEST(test_a_process_holds_several_ranks)
{
	start(hold_two, 0);
	start(hold_two, 1);
	assert_all_end_well();
}
END_TEST

/* Ranks 0 and 3 are on one node, ranks 1 and 2 on another, each with a socket of its own. */
static void meet_on_a_node(uint32_t number)
{
	static const uint64_t nodes[] = { 5, 6, 6, 5 };
	struct cei_links links;
	struct party party;

	if (nodes[number] == 6)
		strcat(path, "6");
	party_init(&party, 4);
	party.site.nodes = nodes;
	party_hold(&party, number);
	need(!cei_node_meet(&party.site, path, cei_deadline(PATIENCE_MS * NS_PER_MS), &links));
	need(links.n_links == 1 && links.links[0].party.ranks[0] == 3 - number);
	cei_links_close(&links);
	party_close(&party);
}

START_TEST(test_ranks_of_a_node_wait_for_no_other_node)
{
	uint32_t rank;

	for (rank = 0; rank < 4; rank++)
		start(meet_on_a_node, rank);
	assert_all_end_well();
	ck_assert(is_directory_empty());
}
END_TEST

static void come_to_the_wrong_node(uint32_t number)
{
	static const uint64_t nodes[2][3] = { { 5, 5, 6 }, { 6, 5, 6 } };
	struct party party;

	party_init(&party, 3);
	party.site.nodes = nodes[number];
	party_hold(&party, number ? 2 : 0);
	if (number) {
		/* this process believes that rank 0, which listens, is on its node */
		need(party_open_by(&party, 20000) == CEOV_ERR_INVALID);
		need(says(&party, "rank 2 is of another node"));
	} else {
		need(party_open_by(&party, 500) == CEOV_ERR_TIMEOUT);
		need(says(&party, "rank 1 missing"));
	}
	party_close(&party);
}

START_TEST(test_a_rank_of_another_node_is_refused)
{
	start(come_to_the_wrong_node, 0);
	start(come_to_the_wrong_node, 1);
	assert_all_end_well();
}
END_TEST

static void come_three_times(uint32_t number)
{
	uint32_t n_fds = n_open_fds();
	struct party party;
	int i;

	for (i = 0; i < 3; i++) {
		party_open(&party, 16, number);
		need(!party_barrier(&party, 20000));
		party_close(&party);
		need(n_open_fds() == n_fds);
	}
}

START_TEST(test_sixteen_processes_meet_again_and_again)
{
	uint32_t rank;

	for (rank = 0; rank < 16; rank++)
		start(come_three_times, rank);
	assert_all_end_well();
	ck_assert(is_directory_empty());
}
END_TEST

static void miss_rank_2(uint32_t number)
{
	uint64_t begin_ns = cei_now_ns();
	uint32_t n_fds = n_open_fds();
	struct party party;

	party_init(&party, 4);
	party_hold(&party, number);
	need(party_open_by(&party, 400) == CEOV_ERR_TIMEOUT);
	need(cei_now_ns() - begin_ns < 3000 * NS_PER_MS);
	need(says(&party, "2, 3"));
	need(number || party.failure.rank == 2);
	need(!party.peers);
	need(n_open_fds() == n_fds);
	cei_report_fini(&party.report);
}

START_TEST(test_missing_ranks_are_named_to_all_who_came)
{
	start(miss_rank_2, 0);
	start(miss_rank_2, 1);
	assert_all_end_well();
	ck_assert(is_directory_empty());
}
END_TEST

static void miss_rank_0(uint32_t number)
{
	struct party party;

	party_init(&party, 2);
	party_hold(&party, number);
	need(party_open_by(&party, 100) == CEOV_ERR_TIMEOUT);
	need(party.failure.rank == 0);
	need(says(&party, path));
	cei_report_fini(&party.report);
}

START_TEST(test_rank_0_that_does_not_come_is_named)
{
	start(miss_rank_0, 1);
	assert_all_end_well();
}
END_TEST

/* --- refusals ------------------------------------------------------------ */

static void be_refused(struct party *party, int error)
{
	need(party_open_by(party, 20000) == error);
	cei_report_fini(&party->report);
	step_done(0);
}

static void say_wrong_count(uint32_t number)
{
	struct party party;

	party_init(&party, 5);
	party_hold(&party, number);
	be_refused(&party, CEOV_ERR_INVALID);
	need(says(&party, "5 ranks") && says(&party, "rank 0 says 2"));
}

static void listen_for_two(uint32_t number)
{
	struct party party;

	party_open(&party, 2, number);
	need(!party_barrier(&party, 20000));
	party_close(&party);
}

static void come_after_refusals(uint32_t number)
{
	need(step_reached(0, 1));
	listen_for_two(number);
}

START_TEST(test_wrong_number_of_ranks_is_refused_with_both_numbers)
{
	start(listen_for_two, 0);
	start(say_wrong_count, 1);
	start(come_after_refusals, 1);
	assert_all_end_well();
}
END_TEST

static void listen_for_three(uint32_t number)
{
	struct party party;

	party_open(&party, 3, number);
	need(!party_barrier(&party, 20000));
	party_close(&party);
}

static void take_rank_1_twice(uint32_t number)
{
	struct party party;

	party_init(&party, 3);
	party_hold(&party, number);
	pause_ms(200);          /* the other process has joined by then */
	be_refused(&party, CEOV_ERR_STATE);
	need(says(&party, "have rank 1"));
}

static void come_last(uint32_t number)
{
	need(step_reached(0, 1));
	listen_for_three(number);
}

START_TEST(test_rank_that_is_taken_is_refused)
{
	start(listen_for_three, 0);
	start(listen_for_three, 1);
	start(take_rank_1_twice, 1);
	start(come_last, 2);
	assert_all_end_well();
}
END_TEST

static void give_bad_arguments(uint32_t number)
{
	struct party party;

	(void)number;
	party_init(&party, 2);
	party_hold(&party, 2);
	need(party_open_by(&party, 100) == CEOV_ERR_INVALID);
	need(says(&party, "out of range"));
	party_init(&party, 3);
	party_hold(&party, 1);
	party_hold(&party, 1);
	need(party_open_by(&party, 100) == CEOV_ERR_INVALID);
	need(says(&party, "twice"));
	party_init(&party, 65);
	party_hold(&party, 1);
	need(party_open_by(&party, 100) == CEOV_ERR_INVALID);
	party_init(&party, 2);
	party_hold(&party, 0);
	path[0] = 0;
	need(party_open_by(&party, 100) == CEOV_ERR_INVALID);
	need(says(&party, "no path"));
	memset(path, 'a', sizeof(path) - 1);
}

static void give_long_path(uint32_t number)
{
	static char long_path[200];
	struct cei_links links;
	struct party party;

	memset(long_path, 'a', sizeof(long_path) - 1);
	party_init(&party, 2);
	party_hold(&party, number);
	need(cei_node_meet(&party.site, long_path, cei_deadline(NS_PER_MS), &links) ==
	     CEOV_ERR_INVALID);
	cei_report_take(&party.report, &party.failure);
	need(says(&party, "too long"));
}

START_TEST(test_bad_arguments_are_refused)
{
	start(give_bad_arguments, 0);
	start(give_long_path, 0);
	start(give_long_path, 1);
	assert_all_end_well();
}
END_TEST

/* Sends these bytes to rank 0. Returns 1 with rank 0's answer, or 0 if it closed the connection. */
static int ask_raw(const uint8_t *bytes, size_t n_bytes, struct cei_store_message *ret_message)
{
	uint8_t answer[CEI_STORE_SMALL_BYTES];
	ssize_t n;
	int fd = connect_raw();

	ck_assert_int_eq(send(fd, bytes, n_bytes, MSG_NOSIGNAL), (ssize_t)n_bytes);
	n = recv(fd, answer, CEI_STORE_HEAD_BYTES + 4 + CEI_STORE_TEXT_BYTES, MSG_WAITALL);
	close(fd);
	if (n <= 0)
		return 0;
	ck_assert_int_eq(cei_decode(&cei_store_protocol, answer, (size_t)n, ret_message), 0);
	return 1;
}

START_TEST(test_other_version_is_refused_with_both_versions)
{
	struct cei_store_message message = {
		.type = CEI_STORE_HELLO, .hello = { 2, { 1, { 64 } }, 0, "" },
	};
	uint8_t bytes[CEI_STORE_SMALL_BYTES];
	char version[24];
	size_t n_bytes;

	start(listen_for_two, 0);
	n_bytes = cei_encode(&cei_store_protocol, &message, bytes);
	bytes[4] = 77;
	ck_assert(ask_raw(bytes, n_bytes, &message));
	ck_assert_uint_eq(message.type, CEI_STORE_REFUSE);
	ck_assert_int_eq(message.refuse.error, CEOV_ERR_VERSION);
	ck_assert_ptr_nonnull(strstr(message.refuse.text, "version 77"));
	snprintf(version, sizeof(version), "version %u", CEI_STORE_VERSION);
	ck_assert_ptr_nonnull(strstr(message.refuse.text, version));
	bytes[4] = CEI_STORE_VERSION;
	ck_assert(ask_raw(bytes, n_bytes, &message));
	ck_assert_int_eq(message.refuse.error, CEOV_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(message.refuse.text, "rank 64 is out of range"));
	start(listen_for_two, 1);
	assert_all_end_well();
}
END_TEST

START_TEST(test_garbage_and_silence_disturb_nobody)
{
	static const char noise[4000] = "GET / HTTP/1.1\r\n\r\n";
	struct cei_store_message message = { .type = CEI_STORE_LINK, .link = { 1, { 1 } } };
	uint8_t bytes[CEI_STORE_SMALL_BYTES];
	int fds[STRANGERS];
	uint64_t begin_ns;
	int i;

	start(listen_for_two, 0);
	for (i = 0; i < STRANGERS; i++) {
		fds[i] = connect_raw();
		if (i % 4 == 1)
			send(fds[i], noise, 1 + (size_t)i, MSG_NOSIGNAL);
		if (i % 4 == 2)
			send(fds[i], noise, sizeof(noise), MSG_NOSIGNAL);
		if (i % 4 == 3)
			shutdown(fds[i], SHUT_RDWR);
	}
	ck_assert(!ask_raw(bytes, cei_encode(&cei_store_protocol, &message, bytes), &message));
	begin_ns = cei_now_ns();
	start(listen_for_two, 1);
	assert_all_end_well();
	ck_assert_uint_lt(cei_now_ns() - begin_ns, 5000 * NS_PER_MS);
	for (i = 0; i < STRANGERS; i++)
		close(fds[i]);
}
END_TEST

static void be_second_group(uint32_t number)
{
	uint32_t n_fds = n_open_fds();
	struct party party;

	party_init(&party, 2);
	party_hold(&party, number);
	need(party_open_by(&party, 20000) == CEOV_ERR_STATE);
	need(says(&party, "another group") && says(&party, path));
	cei_report_fini(&party.report);
	need(n_open_fds() == n_fds);
}

START_TEST(test_second_group_on_a_path_is_told_and_the_first_goes_on)
{
	struct stat stat;

	start(listen_for_two, 0);
	close(connect_raw());
	ck_assert_int_eq(lstat(path, &stat), 0);
	ck_assert_uint_eq(stat.st_mode & 0777, 0600);
	assert_ends_well(start(be_second_group, 0));
	start(listen_for_two, 1);
	assert_all_end_well();
	ck_assert(is_directory_empty());
}
END_TEST

static void race_for_path(uint32_t number)
{
	struct party party;
	int r;

	party_init(&party, 2);
	party_hold(&party, number);
	step_done(0);
	need(step_reached(0, 4));
	r = party_open_by(&party, 1000);
	need(r == CEOV_ERR_STATE || r == CEOV_ERR_TIMEOUT);
	if (r == CEOV_ERR_TIMEOUT)
		step_done(1);
	cei_report_fini(&party.report);
}

START_TEST(test_of_groups_that_start_at_once_one_gets_the_path)
{
	int i;

	for (i = 0; i < 4; i++)
		start(race_for_path, 0);
	assert_all_end_well();
	ck_assert_uint_eq(shared->steps[1], 1);
	ck_assert(is_directory_empty());
}
END_TEST

START_TEST(test_stale_socket_is_removed)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	strcpy(address.sun_path, path);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	close(fd);
	ck_assert_int_eq(access(path, F_OK), 0);
	start(listen_for_two, 1);
	pause_ms(50);
	start(listen_for_two, 0);
	assert_all_end_well();
	ck_assert(is_directory_empty());
}
END_TEST

static void find_no_socket(uint32_t number)
{
	struct party party;

	party_init(&party, 2);
	party_hold(&party, number);
	need(party_open_by(&party, 1000) == CEOV_ERR_STATE);
	need(says(&party, "no socket"));
	cei_report_fini(&party.report);
}

START_TEST(test_a_file_that_is_no_socket_is_not_touched)
{
	int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);

	ck_assert_int_eq(write(fd, "data", 4), 4);
	start(find_no_socket, 0);
	assert_all_end_well();
	ck_assert_int_eq(lseek(fd, 0, SEEK_END), 4);
	close(fd);
	ck_assert_int_eq(access(path, F_OK), 0);
}
END_TEST

static void find_other_user(uint32_t number)
{
	struct party party;

	party_init(&party, 2);
	party_hold(&party, number);
	need(party_open_by(&party, 20000) == CEOV_ERR_STATE);
	need(says(&party, "user 65534 listens there"));
	cei_report_fini(&party.report);
}

static void listen_as_nobody(uint32_t number)
{
	struct party party;

	need(!setuid(65534));
	party_init(&party, 2);
	party_hold(&party, number);
	need(party_open_by(&party, 1000) == CEOV_ERR_TIMEOUT);
	cei_report_fini(&party.report);
}

/* Only root can run this test: the socket's mode stops all other users. */
START_TEST(test_other_user_is_refused)
{
	if (geteuid())
		return;
	ck_assert_int_eq(chmod(directory, 0777), 0);
	start(listen_as_nobody, 0);
	start(find_other_user, 1);
	assert_all_end_well();
}
END_TEST

/* --- the suite ----------------------------------------------------------- */

static void add_tests(TCase *tcase)
{
	tcase_add_test(tcase, test_all_meet_and_leave_nothing_behind);
	tcase_add_test(tcase, test_one_process_with_all_ranks_meets_nobody);
	tcase_add_test(tcase, test_a_process_holds_several_ranks);
	tcase_add_test(tcase, test_ranks_of_a_node_wait_for_no_other_node);
	tcase_add_test(tcase, test_a_rank_of_another_node_is_refused);
	tcase_add_test(tcase, test_sixteen_processes_meet_again_and_again);
	tcase_add_test(tcase, test_missing_ranks_are_named_to_all_who_came);
	tcase_add_test(tcase, test_rank_0_that_does_not_come_is_named);
	tcase_add_test(tcase, test_wrong_number_of_ranks_is_refused_with_both_numbers);
	tcase_add_test(tcase, test_rank_that_is_taken_is_refused);
	tcase_add_test(tcase, test_bad_arguments_are_refused);
	tcase_add_test(tcase, test_other_version_is_refused_with_both_versions);
	tcase_add_test(tcase, test_garbage_and_silence_disturb_nobody);
	tcase_add_test(tcase, test_second_group_on_a_path_is_told_and_the_first_goes_on);
	tcase_add_test(tcase, test_of_groups_that_start_at_once_one_gets_the_path);
	tcase_add_test(tcase, test_stale_socket_is_removed);
	tcase_add_test(tcase, test_a_file_that_is_no_socket_is_not_touched);
	tcase_add_test(tcase, test_other_user_is_refused);
}

int main(void)
{
	return run_suite("bootstrap", add_tests);
}
