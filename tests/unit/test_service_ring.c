/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests the rings of a daemon's clients, both ends in one thread: order, room, results that are
 * kept, the loss of a daemon and a new one, bells, and entries that no client writes. */

#include "ipc/service_ring.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/report.h"
#include "testing.h"
#include "unit/service_rig.h"

#define N_RINGS   3u
#define TICKETS   CEI_SERVICE_TICKETS
#define ENTRIES   CEI_SERVICE_ENTRIES
#define ALL_RINGS (TICKETS / ENTRIES)   /* as many as hold a launch for each ticket */

static struct service_rig rig;
static uint64_t state;

static void set_up(void)
{
	state = testing_seed();
	service_rig_init(&rig);
	service_rig_attach(&rig, N_RINGS);
}

static void tear_down(void)
{
	service_rig_fini(&rig);
}

static int random_result(void)
{
	return -(int)testing_below(&state, 1 - CEI_ERROR_LOWEST);
}

/* --- launches ----------------------------------------------------------------------- */

/* Takes the next launch of a ring, which must be this one. */
static void take_equal(uint32_t ring, const struct cei_service_launch *wanted)
{
	struct cei_service_launch launch;

	ck_assert_int_eq(cei_service_take(&rig.readers[ring], &launch), 0);
	cei_service_took(&rig.readers[ring]);
	ck_assert_uint_eq(launch.slot, wanted->slot);
	ck_assert_uint_eq(launch.generation, wanted->generation);
	ck_assert_uint_eq(launch.number, wanted->number);
	ck_assert_uint_eq(launch.base, wanted->base);
	ck_assert_uint_eq(launch.deadline_ns, wanted->deadline_ns);
	service_rig_end(&rig, launch.number, 0);
}

START_TEST(test_launches_come_in_the_order_of_their_ring)
{
	static struct cei_service_launch put[N_RINGS][ENTRIES];
	uint64_t n_put[N_RINGS] = { 0 }, n_taken[N_RINGS] = { 0 }, number = 0;
	struct cei_service_launch launch;
	uint32_t i, ring;

	for (i = 0; i < 20 * ENTRIES; i++) {
		ring = (uint32_t)testing_below(&state, N_RINGS);
		if (testing_below(&state, 2) && n_put[ring] - n_taken[ring] < ENTRIES) {
			launch = service_launch(&state);
			ck_assert_int_eq(cei_service_put(&rig.launcher, ring, &launch), 0);
			ck_assert_uint_eq(launch.number, ++number);
			put[ring][n_put[ring]++ % ENTRIES] = launch;
		} else if (n_taken[ring] < n_put[ring]) {
			take_equal(ring, &put[ring][n_taken[ring]++ % ENTRIES]);
		} else {
			ck_assert_int_eq(cei_service_take(&rig.readers[ring], &launch),
					 CEOV_NONE);
		}
	}
}
END_TEST

START_TEST(test_an_entry_stays_until_it_was_taken)
{
	uint64_t number = service_rig_put(&rig, 0);
	struct cei_service_launch launch;

	ck_assert_int_eq(cei_service_take(&rig.readers[0], &launch), 0);
	ck_assert_int_eq(cei_service_take(&rig.readers[0], &launch), 0);
	ck_assert_uint_eq(launch.number, number);
	cei_service_took(&rig.readers[0]);
	ck_assert_int_eq(cei_service_take(&rig.readers[0], &launch), CEOV_NONE);
}
END_TEST

START_TEST(test_a_full_ring_takes_nothing)
{
	struct cei_service_launch launch = { 0 };
	uint32_t lap, i;

	for (lap = 0; lap < 3; lap++) {
		for (i = 0; i < ENTRIES; i++)
			service_rig_put(&rig, 1);
		ck_assert_int_eq(cei_service_put(&rig.launcher, 1, &launch), CEOV_FULL);
		for (i = 0; i < ENTRIES; i++) {
			service_rig_end(&rig, service_rig_take(&rig, 1), 0);
			service_rig_put(&rig, 1);
			ck_assert_int_eq(cei_service_put(&rig.launcher, 1, &launch), CEOV_FULL);
		}
		service_rig_end(&rig, service_rig_put(&rig, 0), 0);     /* another has room */
		service_rig_take(&rig, 0);
		for (i = 0; i < ENTRIES; i++)
			service_rig_end(&rig, service_rig_take(&rig, 1), 0);
		ck_assert_int_eq(cei_service_take(&rig.readers[1], &launch), CEOV_NONE);
	}
}
END_TEST

START_TEST(test_there_is_no_such_ring)
{
	struct cei_service_launch launch = { 0 };

	ck_assert_int_eq(cei_service_put(&rig.launcher, N_RINGS, &launch), CEOV_ERR_INVALID);
	ck_assert_uint_eq(service_rig_put(&rig, 0), 1);
}
END_TEST

/* As many launches in flight as there are tickets: their slots are skipped, and only those. */
START_TEST(test_tickets_in_flight_are_skipped)
{
	struct cei_service_launch launch = { 0 };
	uint64_t number, i, low, high;

	service_rig_detach(&rig);
	service_rig_attach(&rig, ALL_RINGS);
	for (i = 0; i < TICKETS; i++)
		service_rig_put(&rig, (uint32_t)(i % ALL_RINGS));
	for (i = 0; i < TICKETS; i++)
		service_rig_take(&rig, (uint32_t)(i % ALL_RINGS));
	ck_assert_int_eq(cei_service_put(&rig.launcher, 0, &launch), CEOV_FULL);
	low = 1 + testing_below(&state, TICKETS / 2);
	high = low + 1 + testing_below(&state, TICKETS / 2 - 1);
	service_rig_end(&rig, high, CEOV_ERR_TIMEOUT);
	service_rig_end(&rig, low, 0);
	number = service_rig_put(&rig, 0);
	ck_assert_uint_eq(number, low + TICKETS);
	ck_assert_uint_eq(service_rig_put(&rig, 1), high + TICKETS);
	ck_assert_int_eq(cei_service_put(&rig.launcher, 0, &launch), CEOV_FULL);
	ck_assert_int_eq(service_rig_result(&rig, number), CEOV_PENDING);
	ck_assert_int_eq(service_rig_result(&rig, low), 0);
	ck_assert_int_eq(service_rig_result(&rig, high), CEOV_ERR_TIMEOUT);
}
END_TEST

START_TEST(test_a_long_launch_delays_no_other)
{
	uint64_t first = service_rig_put(&rig, 0), last = 0;
	uint32_t i;

	service_rig_take(&rig, 0);
	for (i = 0; i < 3 * TICKETS; i++) {
		last = service_rig_put(&rig, i % N_RINGS);
		ck_assert_uint_ne(last % TICKETS, first % TICKETS);
		service_rig_end(&rig, service_rig_take(&rig, i % N_RINGS), 0);
	}
	ck_assert_int_eq(service_rig_result(&rig, first), CEOV_PENDING);
	service_rig_end(&rig, first, CEOV_ERR_UNCERTAIN);
	ck_assert_int_eq(service_rig_result(&rig, first), CEOV_ERR_UNCERTAIN);
	ck_assert_int_eq(service_rig_result(&rig, last), 0);
}
END_TEST

/* --- results ------------------------------------------------------------------------ */

/* One launch that ends with the result. */
static uint64_t run_one(int result)
{
	uint64_t number = service_rig_put(&rig, 0);

	ck_assert_uint_eq(service_rig_take(&rig, 0), number);
	service_rig_end(&rig, number, result);
	return number;
}

START_TEST(test_every_result_comes_back)
{
	int result;

	for (result = 0; result >= CEI_ERROR_LOWEST; result--)
		ck_assert_int_eq(service_rig_result(&rig, run_one(result)), result);
}
END_TEST

static int result_of(uint64_t number)
{
	return -1 - (int)(number % (uint64_t)-CEI_ERROR_LOWEST);
}

/* Failures are kept while their slots are not used again, and as many more as is promised. */
START_TEST(test_as_many_failures_are_kept_as_promised)
{
	uint64_t n = TICKETS + CEI_SERVICE_FAILURES, i;

	for (i = 1; i <= n; i++)
		ck_assert_uint_eq(run_one(result_of(i)), i);
	for (i = 1; i <= n; i++)
		ck_assert_int_eq(service_rig_result(&rig, i), result_of(i));
	ck_assert_uint_eq(run_one(0), n + 1);
	ck_assert_int_eq(service_rig_result(&rig, 1), CEOV_NONE);
	for (i = 2; i <= n; i++)
		ck_assert_int_eq(service_rig_result(&rig, i), result_of(i));
	for (i = 0; i < 2 * TICKETS; i++)       /* what succeeds pushes no failure out */
		run_one(0);
	for (i = n - CEI_SERVICE_FAILURES + 1; i <= n; i++)
		ck_assert_int_eq(service_rig_result(&rig, i), result_of(i));
}
END_TEST

/* Failures whose launches ended late are kept after those of newer ones: which are forgotten is no
 * matter of their numbers, and none of them may look like a success. */
START_TEST(test_a_forgotten_failure_is_no_success)
{
	uint64_t first = service_rig_put(&rig, 0), i, n = 2 * TICKETS + CEI_SERVICE_FAILURES;
	int r;

	service_rig_take(&rig, 0);
	for (i = 0; i < TICKETS + 10; i++)
		run_one(CEOV_ERR_TIMEOUT);
	service_rig_end(&rig, first, CEOV_ERR_ABORTED);
	while (run_one(CEOV_ERR_TIMEOUT) < n)
		;
	for (i = 1; i <= n; i++) {
		r = service_rig_result(&rig, i);
		ck_assert_msg(r == CEOV_NONE || r == (i == 1 ? CEOV_ERR_ABORTED :
						      CEOV_ERR_TIMEOUT) ||
			      (!r && i == 1 + TICKETS),
			      "launch %llu has the result %d", (unsigned long long)i, r);
	}
}
END_TEST

#define N_RANDOM (6 * TICKETS)

/* Launches that end in any order, also over a loss: what is answered is right, or nothing. */
START_TEST(test_results_of_any_order)
{
	static int results[2 * N_RANDOM];
	uint64_t flying[64], number, last = 0;
	uint32_t n_flying = 0, i, k;
	int r;

	for (i = 0; i < N_RANDOM; i++) {
		if (n_flying < 64) {
			last = flying[n_flying++] = service_rig_put(&rig, 0);
			ck_assert_uint_eq(service_rig_take(&rig, 0), last);
			results[last] = CEOV_ERR_DAEMON_LOST;   /* if it does not end */
		}
		if (testing_below(&state, 40)) {
			k = (uint32_t)testing_below(&state, n_flying);
			number = flying[k];
			flying[k] = flying[--n_flying];
			results[number] = testing_below(&state, 2) ? random_result() : 0;
			service_rig_end(&rig, number, results[number]);
		}
		if (!testing_below(&state, N_RANDOM / 4)) {
			service_rig_detach(&rig);
			service_rig_attach(&rig, N_RINGS);
			n_flying = 0;
		}
	}
	service_rig_detach(&rig);
	for (number = 1; number <= last; number++) {
		r = service_rig_result(&rig, number);
		ck_assert(r == results[number] || r == CEOV_NONE);
		ck_assert(number + CEI_SERVICE_FAILURES / 2 < last || r != CEOV_NONE);
	}
}
END_TEST

/* --- waiting ------------------------------------------------------------------------ */

START_TEST(test_a_timeout_passes)
{
	static const uint64_t timeouts[] = { 0, 1000, TESTING_MS, 35 * TESTING_MS };
	uint64_t number = service_rig_put(&rig, 0), begin;
	int result;
	uint32_t i;

	for (i = 0; i < 4; i++) {
		result = 0;
		begin = cei_now_ns();
		ck_assert_int_eq(cei_service_wait(&rig.launcher, number, timeouts[i], &result), 0);
		ck_assert_int_eq(result, CEOV_PENDING);
		ck_assert_uint_ge(cei_now_ns() - begin, timeouts[i]);
	}
	ck_assert_uint_eq(atomic_load(&rig.down->n_waiters), 0);
}
END_TEST

/* With a timeout that never passes: a wait for them would not end. */
START_TEST(test_what_is_not_in_flight_is_not_waited_for)
{
	uint64_t failed = run_one(CEOV_ERR_TIMEOUT), ended = run_one(0);
	uint64_t lost = service_rig_put(&rig, 0);
	int result = 1;

	ck_assert_int_eq(cei_service_wait(&rig.launcher, 0, CEI_FOREVER, &result),
			 CEOV_ERR_INVALID);
	ck_assert_int_eq(cei_service_wait(&rig.launcher, lost + 1, CEI_FOREVER, &result),
			 CEOV_ERR_INVALID);
	ck_assert_int_eq(result, 1);
	service_rig_detach(&rig);
	service_rig_attach(&rig, N_RINGS);
	ck_assert_int_eq(cei_service_wait(&rig.launcher, ended, CEI_FOREVER, &result), 0);
	ck_assert_int_eq(result, 0);
	ck_assert_int_eq(cei_service_wait(&rig.launcher, failed, CEI_FOREVER, &result), 0);
	ck_assert_int_eq(result, CEOV_ERR_TIMEOUT);
	ck_assert_int_eq(cei_service_wait(&rig.launcher, lost, CEI_FOREVER, &result), 0);
	ck_assert_int_eq(result, CEOV_ERR_DAEMON_LOST);
}
END_TEST

START_TEST(test_a_lost_daemon)
{
	struct cei_service_launch launch = { 0 };
	uint64_t ended = run_one(0), lost = service_rig_put(&rig, 0);
	int result;

	cei_service_launcher_lose(&rig.launcher);
	ck_assert_int_eq(cei_service_put(&rig.launcher, 0, &launch), CEOV_ERR_DAEMON_LOST);
	ck_assert_int_eq(service_rig_result(&rig, ended), 0);
	ck_assert_int_eq(cei_service_wait(&rig.launcher, lost, CEI_FOREVER, &result), 0);
	ck_assert_int_eq(result, CEOV_ERR_DAEMON_LOST);
	service_rig_detach(&rig);
	cei_service_launcher_detach(&rig.launcher);     /* again, without one */
	ck_assert_int_eq(cei_service_put(&rig.launcher, 0, &launch), CEOV_ERR_DAEMON_LOST);
	ck_assert_int_eq(service_rig_result(&rig, lost), CEOV_ERR_DAEMON_LOST);
	service_rig_attach(&rig, 1);
	ck_assert_uint_eq(service_rig_put(&rig, 0), lost + 1);  /* numbers go on */
	ck_assert_uint_eq(service_rig_take(&rig, 0), lost + 1);
	ck_assert_int_eq(service_rig_result(&rig, lost + 1), CEOV_PENDING);
	ck_assert_int_eq(cei_service_put(&rig.launcher, 1, &launch), CEOV_ERR_INVALID);
}
END_TEST

START_TEST(test_there_was_no_daemon_yet)
{
	struct cei_service_launch launch = { 0 };
	struct service_rig other;
	int result;

	service_rig_init(&other);
	ck_assert_int_eq(cei_service_put(&other.launcher, 0, &launch), CEOV_ERR_DAEMON_LOST);
	ck_assert_int_eq(cei_service_wait(&other.launcher, 1, CEI_FOREVER, &result),
			 CEOV_ERR_INVALID);
	cei_service_launcher_detach(&other.launcher);
	service_rig_fini(&other);
}
END_TEST

/* --- bells -------------------------------------------------------------------------- */

START_TEST(test_bells_ring_for_who_sleeps)
{
	service_rig_put(&rig, 0);
	ck_assert_uint_eq(service_bell_count(rig.bells[0]), 0);
	cei_service_doze(&rig.readers[1], 1);
	service_rig_put(&rig, 0);
	ck_assert_uint_eq(service_bell_count(rig.bells[0]), 0);
	service_rig_put(&rig, 1);
	service_rig_put(&rig, 1);
	ck_assert_uint_eq(service_bell_count(rig.bells[0]), 0);
	ck_assert_uint_eq(service_bell_count(rig.bells[1]), 2);
	cei_service_doze(&rig.readers[1], 0);
	service_rig_put(&rig, 1);
	ck_assert_uint_eq(service_bell_count(rig.bells[1]), 0);
}
END_TEST

/* --- what no client writes ---------------------------------------------------------- */

static struct cei_service_entry *next_entry(void)
{
	return &rig.down->rings[0].entries[rig.readers[0].n_taken % ENTRIES];
}

static int take(void)
{
	struct cei_service_launch launch;

	return cei_service_take(&rig.readers[0], &launch);
}

START_TEST(test_turns_that_jump_are_refused)
{
	static const uint64_t before[] = { 0, 1, ENTRIES - 2, ENTRIES - 1, ENTRIES, 3 * ENTRIES };
	uint64_t right, turn;
	uint32_t i, k, n;

	for (i = 0; i < sizeof(before) / sizeof(before[0]); i++) {
		while (rig.readers[0].n_taken < before[i])
			run_one(0);
		service_rig_put(&rig, 0);
		right = before[i] + 1;
		for (k = 0, n = 0; k < 3 * ENTRIES; k++) {
			turn = right + k - 3 * ENTRIES / 2;
			atomic_store(&next_entry()->turn, turn);
			n += !take();
		}
		ck_assert_uint_eq(n, 1);        /* the right one */
		atomic_store(&next_entry()->turn, right + ENTRIES);
		ck_assert_int_eq(take(), CEOV_ERR_INVALID);
		atomic_store(&next_entry()->turn, UINT64_MAX);
		ck_assert_int_eq(take(), CEOV_ERR_INVALID);
		atomic_store(&next_entry()->turn, right - ENTRIES);
		ck_assert_int_eq(take(), right < ENTRIES ? CEOV_ERR_INVALID : CEOV_NONE);
		atomic_store(&next_entry()->turn, 0);
		ck_assert_int_eq(take(), right <= ENTRIES ? CEOV_NONE : CEOV_ERR_INVALID);
		atomic_store(&next_entry()->turn, right);
		service_rig_end(&rig, service_rig_take(&rig, 0), 0);
	}
}
END_TEST

START_TEST(test_numbers_have_limits)
{
	static const uint64_t wrong[] = { 0, UINT64_C(1) << 56, UINT64_MAX };
	uint32_t i;

	service_rig_put(&rig, 0);
	for (i = 0; i < 3; i++) {
		atomic_store(&next_entry()->number, wrong[i]);
		ck_assert_int_eq(take(), CEOV_ERR_INVALID);
	}
	atomic_store(&next_entry()->number, (UINT64_C(1) << 56) - 1);
	ck_assert_int_eq(take(), 0);
	ck_assert_uint_eq(service_rig_take(&rig, 0), (UINT64_C(1) << 56) - 1);
	service_rig_end(&rig, (UINT64_C(1) << 56) - 1, CEI_ERROR_LOWEST);
}
END_TEST

START_TEST(test_fields_to_come_are_zero)
{
	uint32_t i;

	service_rig_put(&rig, 0);
	for (i = 0; i < 3; i++) {
		atomic_store(&next_entry()->zero[i], UINT64_C(1) << testing_below(&state, 64));
		ck_assert_int_eq(take(), CEOV_ERR_INVALID);
		atomic_store(&next_entry()->zero[i], 0);
	}
	ck_assert_int_eq(take(), 0);
}
END_TEST

/* Sanitizers check the accesses. Each entry is read whatever the others hold. */
START_TEST(test_random_entries_do_no_harm)
{
	uint64_t *words = (uint64_t *)rig.down->rings;
	struct cei_service_launch launch;
	uint32_t i, k;
	int r;

	for (i = 0; i < 200 * ENTRIES; i++) {
		for (k = 0; k < sizeof(struct cei_service_entry) / 8; k++)
			((uint64_t *)next_entry())[k] = testing_below(&state, 2) *
				testing_random(&state) >> testing_below(&state, 64);
		if (testing_below(&state, 8))
			atomic_store(&next_entry()->turn, rig.readers[0].n_taken + 1);
		if (testing_below(&state, 8))
			memset(next_entry()->zero, 0, sizeof(next_entry()->zero));
		r = cei_service_take(&rig.readers[0], &launch);
		ck_assert(!r || r == CEOV_NONE || r == CEOV_ERR_INVALID);
		if (!r) {
			ck_assert(launch.number && launch.number < UINT64_C(1) << 56);
			cei_service_end(rig.up, rig.down, launch.number, random_result());
		}
		cei_service_took(&rig.readers[0]);
	}
	memset(words, 0, sizeof(struct cei_service_ring));
}
END_TEST

static void add_hostile(TCase *tcase)
{
	tcase_add_test(tcase, test_turns_that_jump_are_refused);
	tcase_add_test(tcase, test_numbers_have_limits);
	tcase_add_test(tcase, test_fields_to_come_are_zero);
	tcase_add_test(tcase, test_random_entries_do_no_harm);
}

int main(void)
{
	Suite *suite = suite_create("service_ring");
	TCase *tcase = tcase_create("service_ring");

	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, test_launches_come_in_the_order_of_their_ring);
	tcase_add_test(tcase, test_an_entry_stays_until_it_was_taken);
	tcase_add_test(tcase, test_a_full_ring_takes_nothing);
	tcase_add_test(tcase, test_there_is_no_such_ring);
	tcase_add_test(tcase, test_tickets_in_flight_are_skipped);
	tcase_add_test(tcase, test_a_long_launch_delays_no_other);
	tcase_add_test(tcase, test_every_result_comes_back);
	tcase_add_test(tcase, test_as_many_failures_are_kept_as_promised);
	tcase_add_test(tcase, test_a_forgotten_failure_is_no_success);
	tcase_add_test(tcase, test_results_of_any_order);
	tcase_add_test(tcase, test_a_timeout_passes);
	tcase_add_test(tcase, test_what_is_not_in_flight_is_not_waited_for);
	tcase_add_test(tcase, test_a_lost_daemon);
	tcase_add_test(tcase, test_there_was_no_daemon_yet);
	tcase_add_test(tcase, test_bells_ring_for_who_sleeps);
	add_hostile(tcase);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
