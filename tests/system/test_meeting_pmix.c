/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Tests that processes meet by PMIx, under mpirun. This program is both: without an argument the
 * test, with one a process that mpirun starts, and the argument is what it does:
 *
 *   meet     opens the book of the group, three times
 *   lack N   the same within two seconds, but process N does not take part
 *   number   says that it is another process than PMIx does
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/book_open.h"
#include "testing.h"

#define SKIPPED 77

/* --- a process of the job ------------------------------------------------------------ */

static int open_once(struct cei_book_config *config, struct cei_report *report, uint32_t n)
{
	struct cei_book *book = NULL;
	int r = cei_book_open(config, report, &book);
	uint32_t i, n_bytes;

	if (r)
		return r;
	for (i = 0; i < n; i++)
		if (cei_book_roster(book)->process_of[i] != i || cei_book_n_processes(book) != n ||
		    *(const uint32_t *)cei_book_address(book, i, &n_bytes) != i)
			r = 99;
	cei_book_free(book);
	return r;
}

static int run_process(int argc, char **argv)
{
	uint32_t own = (uint32_t)atoi(getenv("PMIX_RANK"));
	uint32_t n = (uint32_t)atoi(getenv("OMPI_COMM_WORLD_SIZE")), i;
	struct cei_book_config config = { .n_group_ranks = n, .n_ranks = 1, .ranks = &own,
					  .n_address = sizeof(own), .address = &own };
	int lacks = argc > 2, r = 0;
	struct cei_report report;

	if (lacks && (uint32_t)atoi(argv[2]) == own) {
		sleep(4);
		return 0;
	}
	if (!strcmp(argv[1], "number")) {
		config.process = own + 1;
		config.n_processes = n + 2;
	}
	cei_report_init(&report, NULL, NULL);
	for (i = 0; i < 3 && !r; i++) {
		config.deadline_ns = cei_deadline((lacks ? 2 : 20) * TESTING_SECOND);
		r = open_once(&config, &report, n);
	}
	cei_report_fini(&report);
	printf("process %u: %d\n", own, r);
	return 0;
}

/* --- the test ------------------------------------------------------------------------ */

static char output[65536];

/* Runs n processes with these arguments; their output is in `output`. mpirun fails where a process
 * has not connected to it and others have. */
static void run(uint32_t n, const char *arguments, int must_end_well)
{
	char self[400], command[700];
	ssize_t n_self = readlink("/proc/self/exe", self, sizeof(self) - 1);
	size_t n_bytes;
	FILE *pipe;

	ck_assert_int_gt(n_self, 0);
	self[n_self] = '\0';
	snprintf(command, sizeof(command), "mpirun -n %u --oversubscribe '%s' %s 2>&1", n, self,
		 arguments);
	pipe = popen(command, "r");
	ck_assert_ptr_nonnull(pipe);
	n_bytes = fread(output, 1, sizeof(output) - 1, pipe);
	output[n_bytes] = '\0';
	if (pclose(pipe) && must_end_well)
		ck_abort_msg("%s: %s", command, output);
}

static uint32_t count(const char *text)
{
	const char *at = output;
	uint32_t n = 0;

	while ((at = strstr(at, text))) {
		n++;
		at += strlen(text);
	}
	return n;
}

static void assert_count(const char *text, uint32_t n)
{
	ck_assert_msg(count(text) == n, "'%s' is there %u times instead of %u in:\n%s", text,
		      count(text), n, output);
}

START_TEST(test_16_processes)
{
	run(16, "meet", 1);
	assert_count(": 0\n", 16);
}
END_TEST

START_TEST(test_a_missing_process_is_named)
{
	run(4, "lack 2", 0);
	assert_count("process 2 missing", 3);
	assert_count(": -10\n", 3);
}
END_TEST

START_TEST(test_other_numbers_are_refused)
{
	run(2, "number", 1);
	assert_count("the call says this is process 1 of 4, pmix says process 0 of 2", 1);
	assert_count(": -1\n", 2);
}
END_TEST

static int has(const char *command)
{
	int status = system(command);

	return WIFEXITED(status) && !WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
	Suite *suite;
	TCase *tcase;

	if (argc > 1)
		return run_process(argc, argv);
#ifndef CEI_TEST_PMIX
	printf("skipped: built without pmix.h (Debian: libpmix-dev)\n");
	return SKIPPED;
#endif
	if (!has("command -v mpirun > /dev/null")) {
		printf("skipped: there is no mpirun (Debian: openmpi-bin)\n");
		return SKIPPED;
	}
	setenv("ASAN_OPTIONS", "detect_leaks=0", 1);    /* PMIx's library has leaks of its own */
	setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
	setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
	suite = suite_create("meeting_pmix");
	tcase = tcase_create("meeting_pmix");
	tcase_add_test(tcase, test_16_processes);
	tcase_add_test(tcase, test_a_missing_process_is_named);
	tcase_add_test(tcase, test_other_numbers_are_refused);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
