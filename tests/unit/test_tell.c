/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests what a context tells of itself when it opens, at level info. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "testing.h"

static struct testing_log told;         /* of the last context */

/* Opens and closes a context of two ranks whose lines go to `told`. */
static void open_one(const char *level)
{
	testing_log_init(&told);
	setenv("CEOVERLAP_LOG", level, 1);
	ceov_close(testing_open(2, &told));
	unsetenv("CEOVERLAP_LOG");
}

/* How many lines have both texts. */
static uint32_t count(const char *text, const char *and_text)
{
	uint32_t i, n = 0;

	for (i = 0; i < told.n_lines; i++)
		n += strstr(told.lines[i], text) && strstr(told.lines[i], and_text);
	return n;
}

START_TEST(test_each_thing_is_told_once)
{
	char process[40];

	setenv("CEOVERLAP_ROUTES", "direct", 1);
	setenv("CEOVERLAP_SCHEDULER", "fifo", 1);
	open_one("info");
	unsetenv("CEOVERLAP_ROUTES");
	unsetenv("CEOVERLAP_SCHEDULER");
	snprintf(process, sizeof(process), "in process %ld on ", (long)getpid());
	ck_assert_uint_eq(count("[rank 0]: info: ceoverlap ", process), 1);
	ck_assert_uint_eq(count(ceov_version(), process), 1);
	ck_assert_uint_eq(count("info: rank 0 of 2 is on host memory", "copies by host"), 1);
	ck_assert_uint_eq(count("info: rank 1 of 2 is on host memory", "copies by host"), 1);
	ck_assert_uint_eq(count("info: group: ranks: 2, processes: 1, nodes: 1;",
				"on this node: 2"), 1);
	ck_assert_uint_eq(count("info: machine", ""), 1);
	ck_assert_uint_eq(count("info: transfers by a thread for each rank",
				"paths: direct;"), 1);
	ck_assert_uint_eq(count("order: as they come, class normal", "deadline "), 1);
	ck_assert_uint_eq(count("environment: CEOVERLAP_ROUTES=direct", ""), 1);
	ck_assert_uint_eq(count("environment: CEOVERLAP_SCHEDULER=fifo", ""), 1);
	ck_assert_uint_eq(count("environment: CEOVERLAP_LOG=info", ""), 1);
	ck_assert_uint_eq(told.n_lines, 6 + count("info: environment: CEOVERLAP_", "="));
}
END_TEST

START_TEST(test_nothing_is_told_at_other_levels)
{
	open_one("warn");
	ck_assert_uint_eq(told.n_lines, 0);
}
END_TEST

START_TEST(test_values_cannot_break_lines)
{
	char value[600];

	memset(value, 'x', sizeof(value) - 1);
	value[sizeof(value) - 1] = '\0';
	memcpy(value, "a\nb\033[1m", 7);
	setenv("CEOVERLAP_MACHINE_CACHE", value, 1);
	open_one("info");
	unsetenv("CEOVERLAP_MACHINE_CACHE");
	ck_assert_uint_eq(count("environment: CEOVERLAP_MACHINE_CACHE=a?b?[1mx", "xxx"), 1);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("tell");
	TCase *all = tcase_create("all");

	tcase_add_test(all, test_each_thing_is_told_once);
	tcase_add_test(all, test_nothing_is_told_at_other_levels);
	tcase_add_test(all, test_values_cannot_break_lines);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
