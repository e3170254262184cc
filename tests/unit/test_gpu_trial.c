/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests how the program is run that tests direct access to the memory of GPUs. Shell scripts stand
 * in for it: they pass, fail, crash, hang, or say something else. */

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ceoverlap/ceoverlap.h>

#include "base/clock.h"
#include "net/gpu_trial.h"
#include "testing.h"

static char script[512];
static struct cei_gpu_trial_result result;

/* Runs a script with this text; returns what cei_gpu_trial_run() returns. */
static int run(const char *text, const char *nic, uint64_t timeout_ns)
{
	struct cei_gpu_trial trial = { .program = script, .gpu = 5, .nic = nic };
	FILE *file;

	testing_path("trial.sh", script, sizeof(script));
	file = fopen(script, "w");
	ck_assert_ptr_nonnull(file);
	fprintf(file, "#!/bin/sh\n%s\n", text);
	fclose(file);
	ck_assert_int_eq(chmod(script, 0700), 0);
	trial.deadline_ns = cei_deadline(timeout_ns);
	return cei_gpu_trial_run(&trial, &result);
}

static void assert_no_child_is_left(void)
{
	ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
	ck_assert_int_eq(errno, ECHILD);
}

START_TEST(test_a_trial_passes)
{
	ck_assert_int_eq(run("echo passed 12000000000 3.5e9", NULL, TESTING_PATIENCE), 0);
	ck_assert(result.direct_bytes_per_s == 12e9 && result.staged_bytes_per_s == 3.5e9);
	assert_no_child_is_left();
}
END_TEST

START_TEST(test_it_is_told_the_gpu_and_the_interface)
{
	ck_assert_int_eq(run("[ \"$*\" = '--gpu 5' ] && echo passed 1 2", NULL,
			     TESTING_PATIENCE), 0);
	ck_assert_int_eq(run("[ \"$*\" = '--gpu 5 --nic mlx5_0:1' ] && echo passed 1 2",
			     "mlx5_0:1", TESTING_PATIENCE), 0);
}
END_TEST

static const struct {
	const char *text;
	const char *why;
} failures[] = {
	{ "echo failed: wrong bytes came; exit 1", "its test failed: wrong bytes came" },
	{ "kill -SEGV $$", "its test ended without a result" },
	{ "echo passed 12", "its test ended without a result" },
	{ "printf 'passed 12 13'", "its test ended without a result" },     /* cut off */
	{ "head -c 100000 /dev/urandom", "its test did not end in time" },  /* too much */
	{ "sleep 1000", "its test did not end in time" },
	{ "trap '' TERM INT PIPE; while :; do sleep 0.05; done", "its test did not end in time" },
};

START_TEST(test_trials_that_do_not_pass)
{
	uint64_t begin_ns = cei_now_ns();

	ck_assert_int_eq(run(failures[_i].text, NULL, 500 * TESTING_MS), CEOV_NONE);
	ck_assert_str_eq(result.why, failures[_i].why);
	ck_assert_uint_lt(cei_now_ns() - begin_ns, TESTING_PATIENCE);
	assert_no_child_is_left();
}
END_TEST

/* A program that closes its output and stays is ended, and what it said counts. */
START_TEST(test_a_program_that_stays)
{
	ck_assert_int_eq(run("echo passed 1 2; exec >&- 2>&-; exec sleep 1000", NULL,
			     TESTING_PATIENCE), 0);
	assert_no_child_is_left();
}
END_TEST

START_TEST(test_a_program_that_is_missing)
{
	struct cei_gpu_trial trial = { .program = "/nonexistent/trial",
				       .deadline_ns = cei_deadline(TESTING_PATIENCE) };

	ck_assert_int_eq(cei_gpu_trial_run(&trial, &result), CEOV_NONE);
	ck_assert_ptr_nonnull(strstr(result.why, "/nonexistent/trial cannot be run: No such file"));
}
END_TEST

/* An application that ignores SIGCHLD, or takes the status of all children, hides the program's
 * status; its line still counts. And it runs with the default actions. */
START_TEST(test_signals_of_the_application)
{
	sigset_t all;

	signal(SIGCHLD, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	sigfillset(&all);
	ck_assert_int_eq(pthread_sigmask(SIG_BLOCK, &all, NULL), 0);
	ck_assert_int_eq(run("(kill -TERM $$) ; sleep 0.2; echo passed 1 2", NULL,
			     TESTING_PATIENCE), CEOV_NONE);
	ck_assert_int_eq(run("echo passed 1 2", NULL, TESTING_PATIENCE), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gpu_trial");
	TCase *tcase = tcase_create("trial");

	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, test_a_trial_passes);
	tcase_add_test(tcase, test_it_is_told_the_gpu_and_the_interface);
	tcase_add_loop_test(tcase, test_trials_that_do_not_pass, 0,
			    (int)(sizeof(failures) / sizeof(failures[0])));
	tcase_add_test(tcase, test_a_program_that_stays);
	tcase_add_test(tcase, test_a_program_that_is_missing);
	tcase_add_test(tcase, test_signals_of_the_application);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
