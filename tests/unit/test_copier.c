/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests what copies for rails between slots and a member's memory, with host memory in place of a
 * GPU's: order, many copies, copies that fail, and units that there are not. */

#include <check.h>
#include <sched.h>
#include <string.h>

#include "backend/copier.h"
#include "backend/host.h"
#include "base/clock.h"
#include "testing.h"

#define BYTES (UINT64_C(1) << 20)

static const struct cei_place_ops *const movers[] = { &cei_backend_host, NULL };

static struct testing_log lines;
static struct cei_report report;
static struct cei_site site;
static struct cei_copier copier;
static uint8_t source[BYTES], target[BYTES];

static void set_up(void)
{
	testing_log_init(&lines);
	cei_report_init(&report, testing_log_line, &lines);
	memset(&site, 0, sizeof(site));
	site.report = &report;
	site.n_ranks = site.n_members = 1;
	site.movers = movers;
	cei_copier_init(&copier, &site);
}

static void tear_down(void)
{
	cei_copier_fini(&copier);
	cei_report_fini(&report);
}

static uint64_t address(const uint8_t *at)
{
	return (uint64_t)(uintptr_t)at;
}

static int await(void *line, uint64_t n)
{
	uint64_t deadline_ns = cei_deadline(TESTING_PATIENCE), n_ended = 0;
	int r = 0;

	while (!r && n_ended < n && cei_now_ns() < deadline_ns) {
		r = cei_copier_ops.reap(line, &n_ended);
		sched_yield();
	}
	ck_assert_msg(r || n_ended == n, "%llu copies ended", (unsigned long long)n_ended);
	return r;
}

START_TEST(test_copies_end_in_order_with_their_bytes)
{
	uint32_t direction, i, round;
	uint64_t n = 0;
	void *line;

	for (direction = 0; direction < CEI_FAR_LINES; direction++, n = 0) {
		ck_assert_int_eq(cei_copier_ops.line_open(&copier, 0, direction, &line), 0);
		for (round = 0; round < 100; round++) {
			testing_fill(source, BYTES, testing_seed() + round);
			for (i = 0; i < 8; i++, n++)
				ck_assert_int_eq(cei_copier_ops.copy(
					line, address(target) + i * BYTES / 8,
					address(source) + i * BYTES / 8, BYTES / 8), 0);
			ck_assert_int_eq(await(line, n), 0);
			ck_assert_mem_eq(source, target, BYTES);
		}
		cei_copier_ops.line_close(line);
	}
}
END_TEST

START_TEST(test_memory_for_slots)
{
	void *memory, *line;

	ck_assert_int_eq(cei_copier_ops.memory_open(&copier, 0, BYTES, &memory), 0);
	ck_assert_int_eq(cei_copier_ops.line_open(&copier, 0, CEI_FAR_LINE_OUT, &line), 0);
	testing_fill(source, BYTES, testing_seed());
	ck_assert_int_eq(cei_copier_ops.copy(line, address(memory), address(source), BYTES), 0);
	ck_assert_int_eq(await(line, 1), 0);
	ck_assert_mem_eq(memory, source, BYTES);
	cei_copier_ops.line_close(line);
	cei_copier_ops.memory_close(&copier, 0, memory);
}
END_TEST

/* The third copy fails: the error stays, and nothing of the line moves any more. */
START_TEST(test_a_copy_that_fails_breaks_the_line)
{
	const struct cei_host_script script = { .copy_fail_at = 3 };
	void *line, *first;
	uint32_t i;

	ck_assert_int_eq(cei_copier_ops.line_open(&copier, 0, CEI_FAR_LINE_OUT, &first), 0);
	cei_host_set_script(&copier.backends[0], &script);
	ck_assert_int_eq(cei_copier_ops.line_open(&copier, 0, CEI_FAR_LINE_OUT, &line), 0);
	for (i = 0; i < 3; i++)
		if (cei_copier_ops.copy(line, address(target), address(source), BYTES))
			break;
	ck_assert_int_lt(await(line, 3), 0);
	memset(target, 0x55, BYTES);
	ck_assert_int_lt(cei_copier_ops.copy(line, address(target), address(source), BYTES), 0);
	ck_assert_int_lt(await(line, 4), 0);
	ck_assert_uint_eq(target[0], 0x55);
	ck_assert_uint_eq(target[BYTES - 1], 0x55);
	cei_copier_ops.line_close(line);
	cei_copier_ops.line_close(first);
}
END_TEST

START_TEST(test_units_that_do_not_exist_are_refused)
{
	void *line;

	ck_assert_int_eq(cei_copier_ops.line_open(&copier, 1, CEI_FAR_LINE_IN, &line),
			 CEOV_ERR_NO_ROUTE);
	ck_assert_int_eq(cei_copier_ops.memory_open(&copier, CEI_MEMBERS_MAX + 7, 4096, &line),
			 CEOV_ERR_NO_ROUTE);
	site.members[0].place.kind = CEOV_PLACE_GPU;
	ck_assert_int_eq(cei_copier_ops.line_open(&copier, 0, CEI_FAR_LINE_IN, &line),
			 CEOV_ERR_NO_ROUTE);
	testing_log_has(&lines, "error", "nothing copies between host memory and memory of member",
			NULL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("copier");
	TCase *tcase = tcase_create("copier");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, test_copies_end_in_order_with_their_bytes);
	tcase_add_test(tcase, test_memory_for_slots);
	tcase_add_test(tcase, test_a_copy_that_fails_breaks_the_line);
	tcase_add_test(tcase, test_units_that_do_not_exist_are_refused);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
