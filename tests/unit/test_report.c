/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests log lines: repeated lines are counted instead of written, and lines raised under a lock are
 * written after it is released. */

#include <check.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ceoverlap/version.h>

#include "base/repeats.h"
#include "base/report.h"
#include "testing.h"

/* --- the version --------------------------------------------------------- */

START_TEST(test_the_version_as_a_number)
{
	uint32_t major, minor, patch;

	ck_assert_int_eq(sscanf(CEOV_VERSION, "%" SCNu32 ".%" SCNu32 ".%" SCNu32, &major, &minor,
				&patch), 3);
	ck_assert_uint_eq(CEOV_VERSION_NUMBER, major * 10000 + minor * 100 + patch);
	ck_assert_uint_eq(ceov_version_number(), CEOV_VERSION_NUMBER);
	ck_assert_str_eq(ceov_version(), CEOV_VERSION);
}
END_TEST

/* --- which lines are written --------------------------------------------- */

static struct cei_repeats repeats;
static uint64_t n_held;                 /* number of held-back lines that the last line reported */
static struct cei_repeat gone;

static int pass(const char *format, int code, const char *text, uint64_t now_ns)
{
	struct cei_repeat line = { .format = format, .code = code };

	snprintf(line.text, sizeof(line.text), "%s", text);
	return cei_repeats_pass(&repeats, &line, now_ns, &n_held, &gone);
}

START_TEST(test_lines_that_go_on_are_counted)
{
	static const char format[] = "lane %u";
	uint64_t now = 5 * TESTING_SECOND, n_passed = 0;
	uint32_t i;

	memset(&repeats, 0, sizeof(repeats));
	for (i = 0; i < CEI_REPEATS_LINES; i++) {
		ck_assert_int_eq(pass(format, -4, "lane 0", now), 1);
		ck_assert_uint_eq(n_held, 0);
	}
	for (i = 1; i <= 1000; i++)
		ck_assert_int_eq(pass(format, -4, "lane 0", now + i), 0);
	ck_assert_int_eq(pass(format, -4, "lane 0", now + CEI_REPEATS_WHILE_NS), 1);
	ck_assert_uint_eq(n_held, 1000);
	ck_assert_int_eq(pass(format, -4, "lane 0", now + CEI_REPEATS_WHILE_NS), 0);
	/* One line every millisecond for an hour. */
	for (i = 0; i < 3600000; i++)
		n_passed += pass(format, -4, "lane 0", now + i * TESTING_MS) == 1;
	ck_assert_uint_gt(n_passed, 3600000 * TESTING_MS / CEI_REPEATS_WHILE_MAX_NS / 2);
	ck_assert_uint_lt(n_passed, 100);
	/* then one line after a long silence */
	now += 10 * 3600 * TESTING_SECOND;
	ck_assert_int_eq(pass(format, -4, "lane 0", now), 1);
	ck_assert_int_eq(pass(format, -4, "lane 0", now + 2 * CEI_REPEATS_WHILE_MAX_NS), 1);
	ck_assert_int_eq(pass(format, -4, "lane 0", now + 2 * CEI_REPEATS_WHILE_MAX_NS +
			      CEI_REPEATS_WHILE_NS), 1);
}
END_TEST

START_TEST(test_different_lines_of_a_kind_are_bounded)
{
	static const char format[] = "launch %u", other[] = "launch %u is another line";
	char text[32];
	uint32_t i, n = 0;

	memset(&repeats, 0, sizeof(repeats));
	for (i = 0; i < 500; i++) {
		snprintf(text, sizeof(text), "launch %u", i);
		n += (uint32_t)pass(format, -4, text, 1000 + i);
	}
	ck_assert_uint_eq(n, CEI_REPEATS_LINES);
	/* Lines of other kinds (another error, another place) are counted separately. */
	ck_assert_int_eq(pass(format, -5, "launch 1", 2000), 1);
	ck_assert_int_eq(pass(other, -4, "launch 1", 2000), 1);
	ck_assert_int_eq(pass(format, -4, "launch 500", 2000 + CEI_REPEATS_WHILE_NS), 1);
	ck_assert_uint_eq(n_held, 500 - CEI_REPEATS_LINES);
}
END_TEST

/* More kinds than are remembered: a forgotten kind's count is reported. */
START_TEST(test_no_count_is_lost)
{
	static const char formats[CEI_REPEATS_KINDS + 1];
	uint32_t i, k;

	memset(&repeats, 0, sizeof(repeats));
	for (i = 0; i < CEI_REPEATS_KINDS; i++) {
		for (k = 0; k < CEI_REPEATS_LINES; k++)
			ck_assert_int_eq(pass(&formats[i], -1, "text", 100 + i), 1);
		ck_assert_int_eq(pass(&formats[i], -1, "text", 100 + i), 0);
		ck_assert_uint_eq(gone.n_held, 0);
	}
	ck_assert_int_eq(pass(&formats[0], -1, "text", 200), 0);
	ck_assert_int_eq(pass(&formats[i], -1, "text", 201), 1);
	ck_assert_ptr_eq(gone.format, &formats[1]);
	ck_assert_uint_eq(gone.n_held, 1);
	ck_assert_str_eq(gone.text, "text");
}
END_TEST

/* --- reports ------------------------------------------------------------- */

static struct cei_report report;
static struct testing_log log_of;

static void set_up(void)
{
	ck_assert_int_eq(setenv("CEOVERLAP_LOG", "warn", 1), 0);
	testing_log_init(&log_of);
	cei_report_init(&report, testing_log_line, &log_of);
}

static void fail_often(uint32_t n)
{
	while (n--)
		ck_assert_int_eq(cei_raise(&report, CEOV_ERR_SYSTEM, 0, "lane %d fails", 3),
				 CEOV_ERR_SYSTEM);
}

START_TEST(test_a_flood_becomes_some_lines_and_a_count)
{
	fail_often(5000);
	ck_assert_uint_le(log_of.n_lines, CEI_REPEATS_LINES + 5);       /* 5 more, for slow
									 * machines */
	testing_log_has(&log_of, "error: lane 3 fails", NULL, NULL);
	testing_log_clear(&log_of);
	fail_often(1);
	cei_report_fini(&report);
	testing_log_has(&log_of, "more lines were like this one: lane 3 fails", NULL, NULL);
}
END_TEST

START_TEST(test_warnings_are_counted_too)
{
	uint32_t i;

	for (i = 0; i < 1000; i++)
		cei_log(&report, CEI_LOG_WARN, "a stranger, number %u", i);
	ck_assert_uint_le(log_of.n_lines, CEI_REPEATS_LINES + 5);
	testing_log_has(&log_of, "warning: a stranger, number 7", NULL, NULL);
	cei_report_fini(&report);
	testing_log_has(&log_of, "warning: ", "more lines were like this one", NULL);
}
END_TEST

/* --- locks --------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t n_under_lock, n_told;

static void tell_if_locked(void *log_arg, const char *line)
{
	(void)log_arg;
	(void)line;
	n_told++;
	if (pthread_mutex_trylock(&lock))
		n_under_lock++;
	else
		pthread_mutex_unlock(&lock);
}

static void fail_under_lock(uint32_t n)
{
	struct cei_report_hold hold, inner;
	uint32_t i;

	cei_report_hold_begin(&report, &hold);
	pthread_mutex_lock(&lock);
	for (i = 0; i < n; i++) {
		cei_report_hold_begin(&report, &inner);
		(void)cei_raise(&report, CEOV_ERR_STATE, 0, "number %u", i);
		cei_report_hold_end(&report, &inner);
	}
	ck_assert_uint_eq(n_told, 0);
	pthread_mutex_unlock(&lock);
	cei_report_hold_end(&report, &hold);
	ck_assert_uint_eq(n_under_lock, 0);
}

START_TEST(test_lines_wait_until_the_lock_is_free)
{
	report.log = tell_if_locked;
	fail_under_lock(3);
	ck_assert_uint_eq(n_told, 3);
	(void)cei_raise(&report, CEOV_ERR_STATE, 0, "at once");
	ck_assert_uint_eq(n_told, 4);
	cei_report_fini(&report);
}
END_TEST

START_TEST(test_too_many_lines_under_a_lock_are_counted)
{
	report.log = tell_if_locked;
	fail_under_lock(CEI_HOLD_LINES + 2);
	ck_assert_uint_eq(n_told, CEI_HOLD_LINES + 1);
	cei_report_fini(&report);
}
END_TEST

static void *fail_elsewhere(void *arg)
{
	(void)cei_raise(arg, CEOV_ERR_STATE, 0, "of another thread");
	return NULL;
}

START_TEST(test_other_threads_lines_do_not_wait)
{
	struct cei_report_hold hold;
	pthread_t thread;

	cei_report_hold_begin(&report, &hold);
	ck_assert_int_eq(pthread_create(&thread, NULL, fail_elsewhere, &report), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	testing_log_has(&log_of, "of another thread", NULL, NULL);
	cei_report_hold_end(&report, &hold);
	cei_report_fini(&report);
}
END_TEST

/* --- the library's own locks ---------------------------------------------- */

static ceov_context *context;
static ceov_plan *plan;
static uint32_t n_calls;

/* A log function that calls the library, which is forbidden but ends well here. */
static void call_back(void *log_arg, const char *line)
{
	(void)log_arg;
	(void)line;
	if (context && plan && n_calls++ < 3) {
		(void)ceov_launch(plan, NULL, NULL);
		(void)ceov_signal_release(testing_signal(context, 0, 1));
	}
}

START_TEST(test_calls_hold_no_lock_while_they_log)
{
	struct ceov_member members[1];
	struct ceov_config config = testing_config(members, 1, NULL);
	struct ceov_launch launch = { .struct_bytes = sizeof(launch), .base = 9 };
	struct ceov_transfer transfer = testing_transfer(NULL, NULL, 0);

	config.log = call_back;
	config.progress_by_caller = 1;
	ck_assert_int_eq(ceov_open(&config, &context), 0);
	plan = testing_plan(context, 0);
	transfer.then = testing_mark(testing_signal(context, 0, 1), 0, 1);
	testing_add(plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	ck_assert_int_eq(ceov_launch(plan, &launch, NULL), 0);
	launch.base = 3;
	ck_assert_int_eq(ceov_launch(plan, &launch, NULL), CEOV_ERR_INVALID);
	ck_assert_uint_gt(n_calls, 0);
	while (ceov_turn(context) == CEOV_PENDING)
		;
	plan = NULL;                    /* from here on the log function must not call back */
	ceov_close(context);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("report");
	TCase *all = tcase_create("report");

	tcase_add_checked_fixture(all, set_up, NULL);
	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_the_version_as_a_number);
	tcase_add_test(all, test_lines_that_go_on_are_counted);
	tcase_add_test(all, test_different_lines_of_a_kind_are_bounded);
	tcase_add_test(all, test_no_count_is_lost);
	tcase_add_test(all, test_a_flood_becomes_some_lines_and_a_count);
	tcase_add_test(all, test_warnings_are_counted_too);
	tcase_add_test(all, test_lines_wait_until_the_lock_is_free);
	tcase_add_test(all, test_too_many_lines_under_a_lock_are_counted);
	tcase_add_test(all, test_other_threads_lines_do_not_wait);
	tcase_add_test(all, test_calls_hold_no_lock_while_they_log);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
