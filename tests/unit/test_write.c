/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests writing to the caller's descriptors: all text arrives, and if nobody reads, the call fails
 * without a signal. */

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <sys/socket.h>

#include "base/write.h"
#include "testing.h"

#define TEXT "a line that somebody wanted\n"

static struct testing_log lines;
static struct cei_report report;

static void set_up(void)
{
	testing_log_init(&lines);
	cei_report_init(&report, testing_log_line, &lines);
	ck_assert_ptr_ne(signal(SIGPIPE, SIG_DFL), SIG_ERR);
}

static void tear_down(void)
{
	cei_report_fini(&report);
}

/* Opens a descriptor whose other end is closed. */
static int open_unread(int is_socket)
{
	int fds[2];

	ck_assert_int_eq(is_socket ? socketpair(AF_UNIX, SOCK_STREAM, 0, fds) : pipe(fds), 0);
	close(fds[0]);
	return fds[1];
}

static int sigpipe_is_pending(void)
{
	sigset_t set;

	ck_assert_int_eq(sigpending(&set), 0);
	return sigismember(&set, SIGPIPE);
}

static int sigpipe_is_blocked(void)
{
	sigset_t set;

	ck_assert_int_eq(pthread_sigmask(SIG_BLOCK, NULL, &set), 0);
	return sigismember(&set, SIGPIPE);
}

/* Reads more text than a pipe holds, so that the writer needs several writes. */
static void *read_all(void *arg)
{
	static char taken[1 << 18];
	int *fd = arg;
	size_t n_bytes = 0;
	ssize_t n;

	while ((n = read(*fd, taken + n_bytes, sizeof(taken) - n_bytes)) > 0)
		n_bytes += (size_t)n;
	ck_assert_uint_eq(n_bytes, sizeof(taken) - 1);
	for (n_bytes = 0; n_bytes < sizeof(taken) - 1; n_bytes++)
		ck_assert_int_eq(taken[n_bytes], 'a' + (int)(n_bytes % 26));
	return NULL;
}

START_TEST(test_all_of_a_long_text_arrives)
{
	static char text[1 << 18];
	pthread_t reader;
	int fds[2];
	size_t i;

	for (i = 0; i < sizeof(text) - 1; i++)
		text[i] = (char)('a' + i % 26);
	ck_assert_int_eq(pipe(fds), 0);
	ck_assert_int_eq(pthread_create(&reader, NULL, read_all, &fds[0]), 0);
	ck_assert_int_eq(cei_write(&report, fds[1], text, "ceov_plan_explain"), 0);
	close(fds[1]);
	ck_assert_int_eq(pthread_join(reader, NULL), 0);
	close(fds[0]);
}
END_TEST

/* _i: 0 a pipe, 1 a socket */
START_TEST(test_where_nobody_reads_is_an_error_and_no_signal)
{
	struct ceov_failure failure;
	int fd = open_unread(_i);

	ck_assert_int_eq(cei_write(&report, fd, TEXT, "ceov_plan_explain"), CEOV_ERR_SYSTEM);
	ck_assert_int_eq(cei_report_take(&report, &failure), 0);
	ck_assert_int_eq(failure.native_code, EPIPE);
	testing_log_has(&lines, "ceov_plan_explain", "cannot write", "Broken pipe");
	ck_assert_int_eq(sigpipe_is_pending(), 0);
	ck_assert_int_eq(sigpipe_is_blocked(), 0);
	close(fd);
}
END_TEST

/* A SIGPIPE that the application has blocked and that is pending stays so. */
START_TEST(test_a_signal_of_the_application_stays_pending)
{
	int fd = open_unread(0);
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGPIPE);
	ck_assert_int_eq(pthread_sigmask(SIG_BLOCK, &set, NULL), 0);
	ck_assert_int_eq(pthread_kill(pthread_self(), SIGPIPE), 0);
	ck_assert_int_eq(cei_write(&report, fd, TEXT, "ceov_plan_explain"), CEOV_ERR_SYSTEM);
	ck_assert_int_eq(sigpipe_is_pending(), 1);
	ck_assert_int_eq(sigpipe_is_blocked(), 1);
	close(fd);
}
END_TEST

static volatile sig_atomic_t n_handled;

static void count_signal(int number)
{
	(void)number;
	n_handled++;
}

START_TEST(test_a_handler_of_the_application_is_not_called)
{
	int fd = open_unread(0);

	ck_assert_ptr_ne(signal(SIGPIPE, count_signal), SIG_ERR);
	ck_assert_int_eq(cei_write(&report, fd, TEXT, "ceov_plan_explain"), CEOV_ERR_SYSTEM);
	ck_assert_int_eq(n_handled, 0);
	(void)!write(fd, TEXT, 1);      /* consume the application's pending signal */
	ck_assert_int_eq(n_handled, 1);
	close(fd);
}
END_TEST

/* Log lines go to stderr if the application has no log function. */
START_TEST(test_a_log_that_nobody_reads_ends_no_process)
{
	struct cei_report plain;
	int fd = open_unread(0);

	ck_assert_int_eq(dup2(fd, STDERR_FILENO), STDERR_FILENO);
	cei_report_init(&plain, NULL, NULL);
	ck_assert_int_eq(cei_raise(&plain, CEOV_ERR_STATE, 0, TEXT), CEOV_ERR_STATE);
	ck_assert_int_eq(sigpipe_is_pending(), 0);
	cei_report_fini(&plain);
	close(fd);
}
END_TEST

START_TEST(test_a_descriptor_that_is_none_is_an_error)
{
	struct ceov_failure failure;

	ck_assert_int_eq(cei_write(&report, -1, TEXT, "ceov_op_explain"), CEOV_ERR_SYSTEM);
	ck_assert_int_eq(cei_report_take(&report, &failure), 0);
	ck_assert_int_eq(failure.native_code, EBADF);
	testing_log_has(&lines, "ceov_op_explain", "descriptor -1", NULL);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("write");
	TCase *all = tcase_create("write");

	tcase_add_checked_fixture(all, set_up, tear_down);
	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_all_of_a_long_text_arrives);
	tcase_add_loop_test(all, test_where_nobody_reads_is_an_error_and_no_signal, 0, 2);
	tcase_add_test(all, test_a_signal_of_the_application_stays_pending);
	tcase_add_test(all, test_a_handler_of_the_application_is_not_called);
	tcase_add_test(all, test_a_log_that_nobody_reads_ends_no_process);
	tcase_add_test(all, test_a_descriptor_that_is_none_is_an_error);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
