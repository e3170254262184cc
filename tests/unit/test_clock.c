/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests how a thread that polls backs off: which steps may sleep, and what they remember. */

#include <sched.h>
#include <time.h>

#include "base/clock.h"
#include "testing.h"

#define WAIT_NS UINT64_C(60000000)

/* The backoff's yields, which take as long as a test says. */
static struct {
	long     takes_ns;
	uint32_t n;
} yields;

/* In place of the C library's. */
int sched_yield(void)
{
	struct timespec pause = { 0, yields.takes_ns };

	yields.n++;
	return yields.takes_ns ? nanosleep(&pause, NULL) : 0;
}

static uint32_t step_for(struct cei_backoff *backoff, uint64_t wait_ns)
{
	uint64_t end = cei_deadline(wait_ns);
	uint32_t n = 0;

	for (; cei_now_ns() < end; n++)
		cei_backoff_step(backoff);
	return n;
}

START_TEST(test_spins_before_it_reads_the_clock)
{
	struct cei_backoff backoff;
	uint32_t i;

	cei_backoff_reset(&backoff);
	for (i = 0; i < CEI_BACKOFF_SPINS; i++)
		cei_backoff_step(&backoff);
	ck_assert_uint_eq(backoff.since_ns, 0);
	cei_backoff_step(&backoff);
	ck_assert_uint_ne(backoff.since_ns, 0);
	ck_assert_uint_eq(backoff.sleep_takes_ns, CEI_BACKOFF_SLEEP_TAKES_NS);
}
END_TEST

/* Where a yield takes long, who spins yields no more than who waits for the first sleep. */
START_TEST(test_stops_to_spin_where_yields_take_long)
{
	struct cei_backoff backoff;
	uint32_t i;

	yields.takes_ns = 2 * (long)CEI_BACKOFF_YIELD_LONG_NS;
	cei_backoff_reset(&backoff);
	for (i = 0; i < CEI_BACKOFF_SPINS_A_YIELD; i++)
		cei_backoff_step(&backoff);
	ck_assert_uint_eq(yields.n, 1);
	ck_assert_uint_eq(backoff.since_ns, 0);
	cei_backoff_step(&backoff);
	ck_assert_uint_ne(backoff.since_ns, 0);
}
END_TEST

/* The time may pass before the first sleep, where others have the processor. */
START_TEST(test_measures_its_sleeps)
{
	uint64_t deadline_ns = cei_deadline(TESTING_PATIENCE);
	struct cei_backoff backoff;

	cei_backoff_reset(&backoff);
	while (backoff.sleep_takes_ns == CEI_BACKOFF_SLEEP_TAKES_NS && cei_now_ns() < deadline_ns)
		step_for(&backoff, WAIT_NS);
	ck_assert_uint_ne(backoff.sleep_takes_ns, CEI_BACKOFF_SLEEP_TAKES_NS);
	ck_assert_uint_ge(backoff.sleep_takes_ns, CEI_BACKOFF_SLEEP_MIN_NS);
}
END_TEST

START_TEST(test_keeps_what_it_measured)
{
	struct cei_backoff backoff;
	uint64_t takes_ns;

	cei_backoff_reset(&backoff);
	step_for(&backoff, WAIT_NS);
	takes_ns = backoff.sleep_takes_ns;
	cei_backoff_again(&backoff);
	ck_assert_uint_eq(backoff.sleep_takes_ns, takes_ns);
	ck_assert_uint_eq(backoff.since_ns, 0);
	cei_backoff_reset(&backoff);
	ck_assert_uint_eq(backoff.sleep_takes_ns, CEI_BACKOFF_SLEEP_TAKES_NS);
}
END_TEST

/* A measured sleep is never longer than its share of the time waited, so a thread whose sleeps
 * take long yields instead. */
START_TEST(test_does_not_sleep_too_early)
{
	struct cei_backoff backoff;

	cei_backoff_reset(&backoff);
	backoff.sleep_takes_ns = 10 * WAIT_NS / CEI_BACKOFF_LATE;
	step_for(&backoff, WAIT_NS);
	ck_assert_uint_eq(backoff.sleep_takes_ns, 10 * WAIT_NS / CEI_BACKOFF_LATE);
}
END_TEST

/* Who has waited for seconds sleeps for a millisecond each time. */
START_TEST(test_sleeps_longer_in_a_long_wait)
{
	struct cei_backoff backoff;

	cei_backoff_reset(&backoff);
	backoff.n_spins = CEI_BACKOFF_SPINS;
	backoff.since_ns = cei_now_ns() - 10 * TESTING_SECOND;
	ck_assert_uint_le(step_for(&backoff, WAIT_NS), WAIT_NS / CEI_BACKOFF_SLEEP_LONG_NS + 1);
	ck_assert_uint_ne(backoff.sleep_takes_ns, CEI_BACKOFF_SLEEP_TAKES_NS);
}
END_TEST

START_TEST(test_yield_never_sleeps)
{
	uint64_t end = cei_deadline(WAIT_NS);
	struct cei_backoff backoff;

	cei_backoff_reset(&backoff);
	while (cei_now_ns() < end)
		cei_backoff_yield(&backoff);
	ck_assert_uint_eq(backoff.since_ns, 0);
	ck_assert_uint_eq(backoff.sleep_takes_ns, CEI_BACKOFF_SLEEP_TAKES_NS);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("clock");
	TCase *all = tcase_create("backoff");

	tcase_add_test(all, test_spins_before_it_reads_the_clock);
	tcase_add_test(all, test_stops_to_spin_where_yields_take_long);
	tcase_add_test(all, test_measures_its_sleeps);
	tcase_add_test(all, test_keeps_what_it_measured);
	tcase_add_test(all, test_does_not_sleep_too_early);
	tcase_add_test(all, test_sleeps_longer_in_a_long_wait);
	tcase_add_test(all, test_yield_never_sleeps);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
