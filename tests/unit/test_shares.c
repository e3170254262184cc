/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Start-time fair queueing on one lane. */

#include <check.h>

#include "ce_engine/sched/lineup.h"
#include "testing.h"

#define NOW   UINT64_C(1000000000)
#define TAKES 1000u                     /* ns of each job */

/* Serves n jobs to the flow that starts least; returns how many the first one got. */
static uint32_t play(struct cei_shares *shares, uint64_t starts[2], const uint64_t services[2],
		     uint32_t n)
{
	struct cei_shares_use use = { .credit = 1000000 };
	uint32_t i, who, first = 0;

	for (i = 0; i < n; i++) {
		who = starts[1] < starts[0];
		use.service = services[who];
		cei_shares_serve(shares, &starts[who], &use);
		first += !who;
	}
	return first;
}

START_TEST(test_flows_go_by_their_weights)
{
	const uint64_t services[] = { 100, 300 };
	struct cei_shares shares = { 0 };
	uint64_t starts[2] = { 0 };

	ck_assert_uint_eq(play(&shares, starts, services, 400), 300);
}
END_TEST

START_TEST(test_a_flow_that_was_away_starts_at_the_clock)
{
	const uint64_t services[] = { 100, 100 };
	struct cei_shares shares = { 0 };
	uint64_t before, starts[2] = { 0, UINT64_MAX };

	ck_assert_uint_eq(play(&shares, starts, services, 1000), 1000);
	starts[1] = 0;
	cei_shares_begin(&shares, &starts[1]);
	ck_assert_uint_eq(starts[1], 999 * 100);
	ck_assert_uint_eq(play(&shares, starts, services, 100), 50);
	before = starts[0];             /* it is ahead, and stays there */
	cei_shares_begin(&shares, &starts[0]);
	ck_assert_uint_eq(starts[0], before);
}
END_TEST

START_TEST(test_what_can_be_caught_up_with_is_bounded)
{
	struct cei_shares shares = { 0 };
	const struct cei_shares_use job = { .service = 100, .credit = 1000 };
	uint64_t a = 0, b = 0;
	uint32_t i;

	for (i = 0; i < 1000; i++)
		cei_shares_serve(&shares, &a, &job);
	cei_shares_serve(&shares, &b, &job);
	ck_assert_uint_eq(b, a - 2 * job.credit + job.service);
}
END_TEST

START_TEST(test_urgent_jobs_lead_by_their_credit_at_most)
{
	struct cei_shares shares = { 0 };
	const struct cei_shares_use job = { .service = 100, .credit = 1000, .is_urgent = 1 };
	uint64_t a = 0;
	uint32_t i;

	for (i = 0; i < 1000; i++)
		cei_shares_serve(&shares, &a, &job);
	ck_assert_uint_ge(a, job.credit);
	ck_assert_uint_le(a, job.credit + job.service);
	ck_assert_uint_eq(shares.clock, 0);
}
END_TEST

/* The lane waits for jobs that never go, or go after wait_ns; returns how much of its time it has
 * waited, in parts of 1000. */
static uint64_t play_hold(uint64_t wait_ns)
{
	const uint64_t period = 1000 * TAKES;
	struct cei_shares shares = { 0 };
	uint64_t now, since = 0, waited = 0;

	for (now = NOW; now < NOW + period; now += TAKES / 100) {
		if (!since)
			since = now;
		if (now - since < wait_ns && cei_shares_hold(&shares, TAKES, now)) {
			waited += TAKES / 100;
			continue;
		}
		cei_shares_go_on(&shares, now);
		since = 0;
		now += TAKES;
	}
	return waited * 1000 / period;
}

START_TEST(test_a_lane_waits_for_a_part_of_its_time)
{
	const uint64_t most = 1000 / CEI_SHARES_HOLD_PART + CEI_SHARES_HOLD_MOST + 2;

	ck_assert_uint_le(play_hold(TAKES / 50), 20);
	ck_assert_uint_ge(play_hold(TAKES / 50), 19);
	ck_assert_uint_le(play_hold(TAKES / 2), most);
	ck_assert_uint_ge(play_hold(TAKES / 2), most / 2);
	ck_assert_uint_le(play_hold(UINT64_MAX), most);
}
END_TEST

START_TEST(test_a_wait_for_a_dropped_job_costs_little)
{
	struct cei_shares shares = { 0 };

	ck_assert(cei_shares_hold(&shares, TAKES, NOW));
	cei_shares_go_on(&shares, NOW + TESTING_SECOND);
	ck_assert(cei_shares_hold(&shares, TAKES, NOW + TESTING_SECOND + 1000 * TAKES));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("shares");
	TCase *tests = tcase_create("lane");

	tcase_add_test(tests, test_flows_go_by_their_weights);
	tcase_add_test(tests, test_a_flow_that_was_away_starts_at_the_clock);
	tcase_add_test(tests, test_what_can_be_caught_up_with_is_bounded);
	tcase_add_test(tests, test_urgent_jobs_lead_by_their_credit_at_most);
	tcase_add_test(tests, test_a_lane_waits_for_a_part_of_its_time);
	tcase_add_test(tests, test_a_wait_for_a_dropped_job_costs_little);
	suite_add_tcase(suite, tests);
	return testing_run(suite);
}
