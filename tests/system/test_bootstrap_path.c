/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests the path of a group's socket: which processes can keep others from using it, and which
 * cannot. */

#include "bootstrap_fixture.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/datagram.h"
#include "net/store_path.h"
#include "net/store_wire.h"

static void listen_for_two(uint32_t number)
{
	struct party party;

	party_open(&party, 2, number);
	need(!party_barrier(&party, 20000));
	party_close(&party);
}

static char lock_path[sizeof(path) + 8];

static void name_lock(void)
{
	snprintf(lock_path, sizeof(lock_path), "%s.lock", path);
}

/* Any user who can read a directory can lock it. */
START_TEST(test_a_lock_on_the_directory_disturbs_nobody)
{
	int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(flock(fd, LOCK_EX | LOCK_NB), 0);
	start(listen_for_two, 0);
	start(listen_for_two, 1);
	assert_all_end_well();
	ck_assert(is_directory_empty());
	close(fd);
}
END_TEST

START_TEST(test_a_lock_that_was_left_behind_serves_and_goes)
{
	name_lock();
	close(open(lock_path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600));
	ck_assert_int_eq(access(lock_path, F_OK), 0);
	start(listen_for_two, 0);
	start(listen_for_two, 1);
	assert_all_end_well();
	ck_assert(is_directory_empty());
}
END_TEST

static void find_odd_lock(uint32_t number)
{
	uint64_t begin_ns = cei_now_ns();
	uint32_t n_fds = n_open_fds();
	struct party party;

	party_init(&party, 2);
	party_hold(&party, number);
	need(party_open_by(&party, 20000) < 0);
	need(cei_now_ns() - begin_ns < 10000 * NS_PER_MS);
	need(says(&party, "the group's lock has to be a file") ||
	     says(&party, "whose lock cannot be opened there"));
	cei_report_fini(&party.report);
	need(n_open_fds() == n_fds);
}

START_TEST(test_a_lock_that_is_no_file_of_ours_is_refused_at_once)
{
	static const char elsewhere[] = "/dev/null";

	name_lock();
	ck_assert_int_eq(mkfifo(lock_path, 0600), 0);
	assert_ends_well(start(find_odd_lock, 0));
	ck_assert_int_eq(unlink(lock_path), 0);
	ck_assert_int_eq(symlink(elsewhere, lock_path), 0);
	assert_ends_well(start(find_odd_lock, 0));
	ck_assert_int_eq(unlink(lock_path), 0);
	if (geteuid())
		return;
	close(open(lock_path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666));
	ck_assert_int_eq(chown(lock_path, 65534, 65534), 0);
	assert_ends_well(start(find_odd_lock, 0));
	ck_assert_int_eq(unlink(lock_path), 0);
}
END_TEST

static void find_held_lock(uint32_t number)
{
	struct party party;

	party_init(&party, 2);
	party_hold(&party, number);
	need(party_open_by(&party, 200) == CEOV_ERR_TIMEOUT);
	need(says(&party, "is it stopped"));
	cei_report_fini(&party.report);
}

START_TEST(test_a_lock_that_stays_held_is_named)
{
	int fd;

	name_lock();
	fd = open(lock_path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
	ck_assert_int_eq(flock(fd, LOCK_EX | LOCK_NB), 0);
	assert_ends_well(start(find_held_lock, 0));
	ck_assert_int_eq(unlink(lock_path), 0);
	close(fd);
}
END_TEST

/* --- processes that do not join -------------------------------------------- */

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

/* A connection that sends nothing is closed. Otherwise many of them would keep everybody else
 * out. */
START_TEST(test_who_does_not_speak_is_closed)
{
	struct pollfd silent = { .events = POLLIN };
	char byte;

	start(listen_for_two, 0);
	silent.fd = connect_raw();
	ck_assert_int_eq(poll(&silent, 1, (int)PATIENCE_MS / 2), 1);
	ck_assert_int_eq(recv(silent.fd, &byte, 1, MSG_DONTWAIT), 0);
	close(silent.fd);
	start(listen_for_two, 1);
	assert_all_end_well();
}
END_TEST

static void count_line(void *log_arg, const char *line)
{
	(void)log_arg;
	(void)line;
	/* relaxed: read when this process has ended */
	atomic_fetch_add_explicit(&shared->rounds[0], 1, memory_order_relaxed);
}

static void listen_and_count(uint32_t number)
{
	struct party party;

	party_init(&party, 2);
	party.report.log = count_line;
	party_hold(&party, number);
	need(!party_open_by(&party, PATIENCE_MS));
	need(!party_barrier(&party, 20000));
	party_close(&party);
}

static void say_wrong_count(void)
{
	const struct cei_store_message hello = {
		.type = CEI_STORE_HELLO, .hello = { 5, { 1, { 1 } }, 0, "" },
	};
	uint8_t bytes[CEI_STORE_SMALL_BYTES];
	size_t n_bytes = cei_encode(&cei_store_protocol, &hello, bytes);
	int fd = connect_raw();

	ck_assert_int_eq(send(fd, bytes, n_bytes, MSG_NOSIGNAL), (ssize_t)n_bytes);
	ck_assert_int_gt(recv(fd, bytes, sizeof(bytes), 0), 0);         /* rank 0 sends the reason
									 * for its refusal */
	close(fd);
}

START_TEST(test_many_refusals_are_few_lines)
{
	int i;

	start(listen_and_count, 0);
	for (i = 0; i < 300; i++)
		say_wrong_count();
	start(listen_for_two, 1);
	assert_all_end_well();
	/* lines about the first one, about how many more came, and about rank 1 leaving */
	ck_assert_uint_ge(shared->rounds[0], 2);
	ck_assert_uint_le(shared->rounds[0], 11);
}
END_TEST

/* --- a first process that lies ---------------------------------------------- */

static const struct lie {
	struct cei_party links[2];
	uint32_t         n_links;
	uint32_t         n_fds;         /* beside each */
	int              says_done;
	int              error;
	const char      *words;
} lies[] = {
	{ { { 1, { 0 } } }, 1, 0, 0, CEOV_ERR_SYSTEM, "ulimit -n" },
	{ { { 1, { 0 } } }, 1, 3, 0, CEOV_ERR_INVALID, "makes no sense" },
	{ { { 1, { 1 } } }, 1, 1, 0, CEOV_ERR_INVALID, "makes no sense" },
	{ { { 1, { 3 } } }, 1, 1, 0, CEOV_ERR_INVALID, "makes no sense" },
	{ { { 2, { 0, 0 } } }, 1, 1, 0, CEOV_ERR_INVALID, "makes no sense" },
	{ { { 1, { 0 } }, { 2, { 2, 0 } } }, 2, 1, 0, CEOV_ERR_INVALID, "makes no sense" },
	{ { { 1, { 0 } } }, 1, 1, 1, CEOV_ERR_INVALID, "left ranks out" },
	{ { { 1, { 0 } } }, 1, 2, 0, CEOV_ERR_PEER_LOST, "rank 0 has ended" },
};
#define N_LIES (sizeof(lies) / sizeof(lies[0]))

static void send_store(int fd, const struct cei_store_message *message, uint32_t n_fds)
{
	uint8_t bytes[CEI_STORE_SMALL_BYTES];
	int fds[3] = { STDIN_FILENO, STDIN_FILENO, STDIN_FILENO };
	const struct cei_datagram datagram = {
		bytes, cei_encode(&cei_store_protocol, message, bytes), fds, n_fds,
	};

	ck_assert_int_eq(cei_datagram_send(fd, &datagram), 0);
}

static void hear_lie(uint32_t number)
{
	uint32_t n_fds = n_open_fds();
	struct party party;

	party_init(&party, 3);
	party_hold(&party, 1);
	need(party_open_by(&party, PATIENCE_MS) == lies[number].error);
	need(says(&party, lies[number].words) && says(&party, path));
	cei_report_fini(&party.report);
	need(n_open_fds() == n_fds);
}

START_TEST(test_a_first_process_that_lies_gives_no_links)
{
	const struct cei_store_message joined = { .type = CEI_STORE_JOINED };
	const struct lie *lie = &lies[_i];
	struct cei_store_message link = { .type = CEI_STORE_LINK };
	struct cei_report report;
	struct cei_store_path at;
	uint32_t i;
	int fd;

	cei_report_init(&report, NULL, NULL);
	ck_assert_int_eq(cei_store_path_open(&at, &report, path, UINT64_MAX), 0);
	start(hear_lie, (uint32_t)_i);
	while ((fd = accept(at.fd, NULL, NULL)) < 0)
		pause_ms(1);
	send_store(fd, &joined, 0);
	for (i = 0; i < lie->n_links; i++) {
		link.link = lie->links[i];
		send_store(fd, &link, lie->n_fds);
	}
	if (lie->says_done)
		send_store(fd, &joined, 0);
	shutdown(fd, SHUT_WR);
	assert_all_end_well();
	close(fd);
	cei_store_path_close(&at, &report);
	cei_report_fini(&report);
}
END_TEST

START_TEST(test_a_rank_is_not_said_twice)
{
	const struct cei_store_message hello = {
		.type = CEI_STORE_HELLO, .hello = { 2, { 2, { 1, 1 } }, 0, "" },
	};
	uint8_t byte;
	int fd;

	start(listen_for_two, 0);
	fd = connect_raw();
	send_store(fd, &hello, 0);
	ck_assert_int_eq(recv(fd, &byte, 1, 0), 0);
	close(fd);
	start(listen_for_two, 1);
	assert_all_end_well();
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_loop_test(tcase, test_a_first_process_that_lies_gives_no_links, 0, N_LIES);
	tcase_add_test(tcase, test_a_rank_is_not_said_twice);
	tcase_add_test(tcase, test_a_lock_on_the_directory_disturbs_nobody);
	tcase_add_test(tcase, test_a_lock_that_was_left_behind_serves_and_goes);
	tcase_add_test(tcase, test_a_lock_that_is_no_file_of_ours_is_refused_at_once);
	tcase_add_test(tcase, test_who_does_not_speak_is_closed);
	tcase_add_test(tcase, test_many_refusals_are_few_lines);
	tcase_add_test(tcase, test_a_lock_that_stays_held_is_named);
}

int main(void)
{
	return run_suite("bootstrap_path", add_tests);
}
