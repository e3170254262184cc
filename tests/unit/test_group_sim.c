/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Schedules 1 to 5000 of group_sim.h. With CEOVERLAP_TEST_SCHEDULES as many as that says, from one
 * on that the seed says. "tests/unit/group_sim NUMBER" repeats a single one and writes its events.
 */

#include <stdlib.h>

#include "group_sim.h"
#include "testing.h"

#define SCHEDULES 5000u
#define PARTS     10            /* of which each is a case */

START_TEST(test_schedules)
{
	const char *text = getenv("CEOVERLAP_TEST_SCHEDULES");
	uint64_t n = text ? strtoull(text, NULL, 10) : testing_share(SCHEDULES);
	uint64_t first = text ? testing_seed() % 1000000 * 1000000 : 0;

	n = (n + PARTS - 1) / PARTS;
	ck_assert_uint_eq(group_sim_run(1 + first + (uint64_t)_i * n, n, 0, stdout), 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("group_sim");
	TCase *all = tcase_create("schedules");

	tcase_set_timeout(all, getenv("CEOVERLAP_TEST_SCHEDULES") ? 1800 : 60);
	tcase_add_loop_test(all, test_schedules, 0, PARTS);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
