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

#include <ceoverlap/ceoverlap.h>

#include "base/datagram.h"

#define ROOM_BYTES 64u
#define ROOM_FDS   3u

static int ends[2];
static char came[ROOM_BYTES];
static int came_fds[ROOM_FDS];
static struct cei_datagram received;

static int say(int fd, const char *text, int *fds, uint32_t n_fds)
{
	struct cei_datagram datagram = { (void *)(uintptr_t)text, strlen(text) + 1, fds, n_fds };

	return cei_datagram_send(fd, &datagram);
}

static int hear(int fd)
{
	received = (struct cei_datagram){ came, sizeof(came), came_fds, ROOM_FDS };
	return cei_datagram_receive(fd, &received);
}

static void set_up(void)
{
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
}

static void tear_down(void)
{
	if (ends[0] >= 0)
		close(ends[0]);
	close(ends[1]);
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
	int fds[2] = { STDIN_FILENO, STDOUT_FILENO };

	ck_assert_int_eq(hear(ends[1]), CEOV_NONE);
	ck_assert_int_eq(say(ends[0], "seven", fds, 2), 0);
	ck_assert_int_eq(say(ends[0], "eight", NULL, 0), 0);
	ck_assert_int_eq(hear(ends[1]), 0);
	ck_assert_str_eq(came, "seven");
	ck_assert_uint_eq(received.n_bytes, sizeof("seven"));
	ck_assert_uint_eq(received.n_fds, 2);
	ck_assert_int_ne(fcntl(received.fds[1], F_GETFD) & FD_CLOEXEC, 0);
	cei_datagram_close_fds(&received);
	ck_assert_uint_eq(received.n_fds, 0);
	ck_assert_int_eq(hear(ends[1]), 0);
	ck_assert_str_eq(came, "eight");
	ck_assert_uint_eq(received.n_fds, 0);
}
END_TEST

START_TEST(test_the_last_word_is_heard_of_one_who_closed_with_messages_unread)
{
	ck_assert_int_eq(say(ends[1], "unread", NULL, 0), 0);
	ck_assert_int_eq(say(ends[0], "last", NULL, 0), 0);
	close(ends[0]);
	ends[0] = -1;
	ck_assert_int_eq(hear(ends[1]), 0);
	ck_assert_str_eq(came, "last");
	ck_assert_int_eq(hear(ends[1]), CEOV_ERR_PEER_LOST);
	ck_assert_int_eq(say(ends[1], "late", NULL, 0), CEOV_ERR_PEER_LOST);
}
END_TEST

START_TEST(test_a_full_socket_is_told_and_takes_more_later)
{
	int r;

	do
		r = say(ends[0], "more", NULL, 0);
	while (!r);
	ck_assert_int_eq(r, CEOV_FULL);
	while (!hear(ends[1]))
		;
	ck_assert_int_eq(say(ends[0], "more", NULL, 0), 0);
}
END_TEST

START_TEST(test_descriptors_without_room_are_none_and_leak_not)
{
	int fds[2] = { STDIN_FILENO, STDOUT_FILENO };
	uint32_t n_fds = n_open_fds();
	struct rlimit limit, tight;

	ck_assert_int_eq(say(ends[0], "two", fds, 2), 0);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	tight = limit;
	/* leave room for only one more descriptor */
	tight.rlim_cur = (rlim_t)dup(0) + 1;
	close((int)tight.rlim_cur - 1);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &tight), 0);
	ck_assert_int_eq(hear(ends[1]), 0);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert_uint_eq(received.n_fds, 0);
	ck_assert_uint_eq(n_open_fds(), n_fds);
}
END_TEST

START_TEST(test_what_has_no_room_is_refused_and_its_descriptors_are_closed)
{
	char longer[ROOM_BYTES + 2];
	int fds[CEI_DATAGRAM_FDS_MAX] = { STDIN_FILENO };
	uint32_t n_fds = n_open_fds();

	memset(longer, 'a', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	ck_assert_int_eq(say(ends[0], longer, fds, ROOM_FDS), 0);
	ck_assert_int_eq(hear(ends[1]), CEOV_ERR_INVALID);
	ck_assert_int_eq(say(ends[0], "many", fds, CEI_DATAGRAM_FDS_MAX), 0);
	ck_assert_int_eq(hear(ends[1]), 0);
	ck_assert_uint_eq(received.n_fds, 0);
	ck_assert_int_eq(say(ends[0], "more", fds, CEI_DATAGRAM_FDS_MAX + 1), CEOV_ERR_SYSTEM);
	ck_assert_uint_eq(n_open_fds(), n_fds);
}
END_TEST

START_TEST(test_peer_is_known)
{
	uint32_t uid = UINT32_MAX;
	int pidfd = cei_peer_pidfd(ends[0]);

	ck_assert_int_eq(cei_peer_uid(ends[0], &uid), 0);
	ck_assert_uint_eq(uid, (uint32_t)geteuid());
	if (pidfd >= 0)
		close(pidfd);
	ck_assert_int_ne(cei_peer_uid(-1, &uid), 0);
	ck_assert_int_eq(cei_peer_pidfd(-1), -1);
}
END_TEST

static Suite *datagram_suite(void)
{
	Suite *suite = suite_create("datagram");
	TCase *tcase = tcase_create("datagram");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, test_message_and_descriptors_arrive_together);
	tcase_add_test(tcase,
		       test_the_last_word_is_heard_of_one_who_closed_with_messages_unread);
	tcase_add_test(tcase, test_a_full_socket_is_told_and_takes_more_later);
	tcase_add_test(tcase, test_descriptors_without_room_are_none_and_leak_not);
	tcase_add_test(tcase,
		       test_what_has_no_room_is_refused_and_its_descriptors_are_closed);
	tcase_add_test(tcase, test_peer_is_known);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	SRunner *runner = srunner_create(datagram_suite());
	int n_failed;

	srunner_run_all(runner, CK_NORMAL);
	n_failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
