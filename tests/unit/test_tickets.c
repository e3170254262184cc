/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests numbers of launches, their slots, and results that are asked for late. */

#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "ce_engine/objects/tickets.h"
#include "testing.h"

static struct cei_tickets *tickets;

static void set_up(void)
{
	tickets = calloc(1, sizeof(*tickets));
	ck_assert_ptr_nonnull(tickets);
	cei_tickets_init(tickets);
}

static void tear_down(void)
{
	cei_tickets_fini(tickets);
	free(tickets);
}

struct flight {
	uint64_t                number;
	struct cei_ticket_slot *slot;
};

/* Makes an address that serves only as a plan's identity. */
static struct ceov_plan *plan_of(uint32_t i)
{
	return (struct ceov_plan *)(uintptr_t)(1000 + i);
}

static struct flight begin(uint32_t plan)
{
	struct flight flight = { 0, NULL };

	ck_assert_int_eq(cei_tickets_take(tickets, plan_of(plan), &flight.number,
					  &flight.slot), 0);
	return flight;
}

static void end(const struct flight *flight, int result)
{
	cei_tickets_publish(tickets, flight->slot, result);
}

/* Makes that many launches begin and end, one after the other. */
static void pass(uint32_t n, int result)
{
	struct flight flight;

	while (n--) {
		flight = begin(0);
		end(&flight, result);
	}
}

/* Returns the result of cei_tickets_wait() without waiting; 100: the result is not known. */
static int state_of(uint64_t number)
{
	int result = 0;
	int r = cei_tickets_wait(tickets, number, 0, &result);

	return r ? 100 + r : result;
}

#define UNKNOWN (100 + CEOV_NONE)
#define NEVER   (100 + CEOV_ERR_INVALID)

START_TEST(test_numbers_rise_past_a_launch_that_lasts)
{
	struct flight lasting, flight;
	uint64_t last;
	uint32_t i;

	pass(7, 0);
	lasting = begin(1);
	last = lasting.number;
	for (i = 0; i < 5 * CEI_TICKETS; i++) {
		flight = begin(2);
		ck_assert_uint_gt(flight.number, last);
		ck_assert_uint_le(flight.number, last + 2);
		ck_assert_ptr_ne(flight.slot, lasting.slot);
		last = flight.number;
		end(&flight, 0);
	}
	ck_assert_int_eq(state_of(lasting.number), CEOV_PENDING);
	ck_assert_ptr_eq(cei_tickets_plan(tickets, lasting.number), plan_of(1));
	end(&lasting, CEOV_ERR_TIMEOUT);
	ck_assert_int_eq(state_of(lasting.number), CEOV_ERR_TIMEOUT);
	ck_assert_ptr_null(cei_tickets_plan(tickets, lasting.number));
	/* The last number whose slot this launch occupied was skipped, so it was never issued,
	 * unlike the number before it. */
	ck_assert_int_eq(state_of(lasting.number + 5 * CEI_TICKETS), NEVER);
	ck_assert_int_eq(state_of(lasting.number + 5 * CEI_TICKETS - 1), 0);
}
END_TEST

START_TEST(test_as_many_as_there_are_slots)
{
	static struct flight flights[CEI_TICKETS];
	struct flight more = { 0, NULL };
	uint32_t i;

	pass(100, 0);
	for (i = 0; i < CEI_TICKETS; i++)
		flights[i] = begin(i);
	ck_assert_int_eq(cei_tickets_take(tickets, plan_of(0), &more.number, &more.slot),
			 CEOV_FULL);
	end(&flights[1234], 0);
	more = begin(7);
	ck_assert_ptr_eq(more.slot, flights[1234].slot);
	ck_assert_ptr_eq(cei_tickets_plan(tickets, more.number), plan_of(7));
	ck_assert_int_eq(cei_tickets_take(tickets, plan_of(0), &more.number, &more.slot),
			 CEOV_FULL);
	for (i = 0; i < CEI_TICKETS; i++)
		ck_assert_int_eq(state_of(flights[i].number), i == 1234 ? 0 : CEOV_PENDING);
}
END_TEST

START_TEST(test_results_are_kept_for_who_asks_late)
{
	struct flight good = begin(0), failed = begin(0);

	end(&good, 0);
	end(&failed, CEOV_ERR_PEER_LOST);
	pass(20 * CEI_TICKETS, 0);
	ck_assert_int_eq(state_of(good.number), 0);
	ck_assert_int_eq(state_of(failed.number), CEOV_ERR_PEER_LOST);
	pass(CEI_FAILURES_MAX - 1, CEOV_ERR_ABORTED);
	ck_assert_int_eq(state_of(good.number), 0);
	ck_assert_int_eq(state_of(failed.number), CEOV_ERR_PEER_LOST);
	pass(1, CEOV_ERR_ABORTED);
	ck_assert_int_eq(state_of(failed.number), UNKNOWN);
	ck_assert_int_eq(state_of(good.number), UNKNOWN);
	ck_assert_int_eq(state_of(failed.number + 1), 0);
}
END_TEST

START_TEST(test_numbers_that_were_never_issued)
{
	struct flight flight;

	ck_assert_int_eq(state_of(0), NEVER);
	ck_assert_int_eq(state_of(1), NEVER);
	ck_assert_int_eq(state_of(UINT64_MAX), NEVER);
	flight = begin(0);
	cei_tickets_give_back(tickets, flight.slot);
	ck_assert_int_eq(state_of(flight.number), NEVER);
	ck_assert_ptr_null(cei_tickets_plan(tickets, flight.number));
	pass(CEI_TICKETS, 0);
	ck_assert_int_eq(state_of(flight.number), NEVER);
	ck_assert_int_eq(state_of(flight.number + 1), 0);
	ck_assert_int_eq(state_of(flight.number + CEI_TICKETS), 0);
	ck_assert_int_eq(state_of(flight.number + CEI_TICKETS + 1), NEVER);
}
END_TEST

START_TEST(test_a_short_wait_is_short)
{
	struct flight flight = begin(0);
	uint64_t before, best = UINT64_MAX, spent;
	int i, result = 0;

	for (i = 0; i < 20; i++) {
		before = cei_now_ns();
		ck_assert_int_eq(cei_tickets_wait(tickets, flight.number, 1000, &result), 0);
		spent = cei_now_ns() - before;
		ck_assert_int_eq(result, CEOV_PENDING);
		ck_assert_uint_ge(spent, 1000);
		if (spent < best)
			best = spent;
	}
	ck_assert_uint_lt(best, CEI_BACKOFF_YIELD_NS / 2);
}
END_TEST

/* --- threads ------------------------------------------------------------- */

struct sleeper {
	uint64_t number;
	int      result;
};

static void *sleep_for(void *arg)
{
	struct sleeper *sleeper = arg;

	if (cei_tickets_wait(tickets, sleeper->number, TESTING_PATIENCE, &sleeper->result))
		sleeper->result = UNKNOWN;
	return NULL;
}

static void until_asleep(struct cei_ticket_slot *slot)
{
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);

	while (!atomic_load(&slot->n_waiters)) {
		ck_assert_uint_lt(cei_now_ns(), deadline);
		sched_yield();
	}
	usleep(20000);
}

/* A launch ends and a long one reuses its slot before a thread that waits for the first launch has
 * woken up. */
START_TEST(test_a_sleeper_does_not_sleep_for_a_newer_launch)
{
	struct flight flight = begin(0), next;
	struct sleeper sleeper = { flight.number, 1000 };
	uint64_t before;
	pthread_t thread;
	uint32_t i;

	ck_assert_int_eq(pthread_create(&thread, NULL, sleep_for, &sleeper), 0);
	until_asleep(flight.slot);
	for (i = 1; i < CEI_TICKETS; i++)       /* keep all other slots in use */
		begin(0);
	before = cei_now_ns();
	end(&flight, CEOV_ERR_STALE);
	next = begin(0);
	ck_assert_ptr_eq(next.slot, flight.slot);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_int_eq(sleeper.result, CEOV_ERR_STALE);
	ck_assert_uint_lt(cei_now_ns() - before, TESTING_PATIENCE / 2);
}
END_TEST

#define RACE_THREADS 3u
#define RACE_ROUNDS  20000u

static _Atomic uint64_t newest;

static void *wait_for_newest(void *arg)
{
	uint64_t number, *n_wrong = arg;
	int result = 0;

	while ((number = atomic_load(&newest)) != UINT64_MAX) {
		if (!number)
			continue;
		result = 0;
		if (cei_tickets_wait(tickets, number, TESTING_PATIENCE, &result) ||
		    result != (number % 7 ? 0 : -(int)(1 + number % 13)))
			++*n_wrong;
	}
	return NULL;
}

/* Launches end quickly in few slots, because all others are in use. Each waiting thread gets its
 * own launch's result. */
START_TEST(test_waiters_against_slots_that_change_hands)
{
	uint64_t n_wrong[RACE_THREADS] = { 0 };
	pthread_t threads[RACE_THREADS];
	struct flight flight;
	uint32_t i;

	for (i = 0; i < CEI_TICKETS - 2; i++)
		begin(0);
	for (i = 0; i < RACE_THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, wait_for_newest,
						&n_wrong[i]), 0);
	for (i = 0; i < RACE_ROUNDS; i++) {
		flight = begin(0);
		atomic_store(&newest, flight.number);
		if (i % 64 == 0)
			sched_yield();
		end(&flight, flight.number % 7 ? 0 : -(int)(1 + flight.number % 13));
	}
	atomic_store(&newest, UINT64_MAX);
	for (i = 0; i < RACE_THREADS; i++) {
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
		ck_assert_uint_eq(n_wrong[i], 0);
	}
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("tickets");
	TCase *all = tcase_create("tickets");

	tcase_add_checked_fixture(all, set_up, tear_down);
	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_numbers_rise_past_a_launch_that_lasts);
	tcase_add_test(all, test_as_many_as_there_are_slots);
	tcase_add_test(all, test_results_are_kept_for_who_asks_late);
	tcase_add_test(all, test_numbers_that_were_never_issued);
	tcase_add_test(all, test_a_short_wait_is_short);
	tcase_add_test(all, test_a_sleeper_does_not_sleep_for_a_newer_launch);
	tcase_add_test(all, test_waiters_against_slots_that_change_hands);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
