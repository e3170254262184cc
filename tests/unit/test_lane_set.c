/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Sets of lanes, also at word boundaries, against a plain array of flags. */

#include <string.h>

#include "base/lane_set.h"
#include "testing.h"

#define CHANGES 20000u

static void check_same(const struct cei_lane_set *set, const char *flags)
{
	uint32_t i, next = cei_lane_set_next(set, 0);

	ck_assert_int_eq(cei_lane_set_is_empty(set), next == CEI_NO_LANE);
	for (i = 0; i < CEI_LANES_MAX; i++) {
		if (!flags[i])
			continue;
		ck_assert_uint_eq(next, i);
		next = cei_lane_set_next(set, i + 1);
	}
	ck_assert_uint_eq(next, CEI_NO_LANE);
}

START_TEST(test_every_lane_by_itself)
{
	struct cei_lane_set set = { 0 };
	uint32_t lane, from, n_wrong;

	for (lane = 0; lane < CEI_LANES_MAX; lane++) {
		cei_lane_set_add(&set, lane);
		cei_lane_set_add(&set, lane);
		n_wrong = 0;            /* an assertion for each would take seconds */
		for (from = 0; from <= CEI_LANES_MAX; from++)
			n_wrong += cei_lane_set_next(&set, from) !=
				(from <= lane ? lane : CEI_NO_LANE);
		ck_assert_uint_eq(n_wrong, 0);
		cei_lane_set_remove(&set, lane);
		ck_assert(cei_lane_set_is_empty(&set));
		cei_lane_set_remove(&set, lane);
		ck_assert_uint_eq(cei_lane_set_next(&set, 0), CEI_NO_LANE);
	}
}
END_TEST

START_TEST(test_random_changes)
{
	char flags[CEI_LANES_MAX] = { 0 };
	struct cei_lane_set set = { 0 };
	uint64_t seed = testing_seed();
	uint32_t i, lane;

	for (i = 0; i < CHANGES; i++) {
		lane = (uint32_t)testing_below(&seed, CEI_LANES_MAX);
		flags[lane] = testing_below(&seed, 4) == 0;     /* so that words become empty */
		if (flags[lane])
			cei_lane_set_add(&set, lane);
		else
			cei_lane_set_remove(&set, lane);
		if (i % 16 == 0)
			check_same(&set, flags);
	}
	for (lane = 0; lane < CEI_LANES_MAX; lane++)
		cei_lane_set_add(&set, lane);
	memset(flags, 1, sizeof(flags));
	check_same(&set, flags);
}
END_TEST

/* A loop removes the members that it meets, as the scheduler's does. */
START_TEST(test_a_loop_may_remove_what_it_met)
{
	struct cei_lane_set set = { 0 };
	uint32_t lane, n = 0;

	for (lane = 0; lane < CEI_LANES_MAX; lane += 7)
		cei_lane_set_add(&set, lane);
	for (lane = cei_lane_set_next(&set, 0); lane != CEI_NO_LANE;
	     lane = cei_lane_set_next(&set, lane + 1)) {
		ck_assert_uint_eq(lane, 7 * n++);
		cei_lane_set_remove(&set, lane);
	}
	ck_assert_uint_eq(n, (CEI_LANES_MAX + 6) / 7);
	ck_assert(cei_lane_set_is_empty(&set));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("lane set");
	TCase *cases = tcase_create("lane set");

	tcase_add_test(cases, test_every_lane_by_itself);
	tcase_add_test(cases, test_random_changes);
	tcase_add_test(cases, test_a_loop_may_remove_what_it_met);
	suite_add_tcase(suite, cases);
	return testing_run(suite);
}
