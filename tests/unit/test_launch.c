/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Launches that end well: order, bases, tickets, many at a time. Those that fail are
 * in test_launch_fails.c. */

#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"
#include "ce_engine/tickets.h"
#include "way.h"

START_TEST(test_a_base_never_falls)
{
	struct way way;

	way_open(&way, 1, 0);
	ck_assert_int_eq(ceov_signal_raise(way.ready, 0, 100), 0);
	ck_assert_int_eq(ceov_signal_raise(way.free, 0, 100), 0);
	ck_assert_int_eq(way_wait(&way, way_launch(&way, 5, 0)), 0);
	ck_assert_int_eq(way_try(&way, 4, 0, NULL), CEOV_ERR_INVALID);
	testing_log_has(&way.log, "base falls from 5 to 4", NULL, NULL);
	ck_assert_int_eq(way_wait(&way, way_launch(&way, 5, 0)), 0);
	ck_assert_int_eq(way_wait(&way, way_launch(&way, 9, 0)), 0);
	way_close(&way);
}
END_TEST

START_TEST(test_values_stay_below_the_limit)
{
	struct ceov_transfer transfer;
	struct way way;

	way_open(&way, 1, 0);
	ck_assert_int_eq(way_try(&way, CEOV_VALUE_LIMIT, 0, NULL), CEOV_ERR_INVALID);
	ck_assert_int_eq(way_try(&way, CEOV_VALUE_LIMIT - 1, 0, NULL), CEOV_ERR_INVALID);
	ceov_plan_release(way.plan);
	way.plan = testing_plan(way.context, 0);
	transfer = testing_transfer(way.source, way.target, 64);
	transfer.then = testing_mark(way.arrived, 0, CEOV_VALUE_LIMIT - 10);
	ck_assert_int_eq(ceov_plan_add(way.plan, &transfer), 0);
	ck_assert_int_eq(ceov_plan_commit(way.plan), 0);
	ck_assert_int_eq(way_try(&way, 10, 0, NULL), CEOV_ERR_INVALID);
	ck_assert_int_eq(way_wait(&way, way_launch(&way, 9, 0)), 0);
	ck_assert_int_eq(ceov_signal_wait(way.arrived, 0, CEOV_VALUE_LIMIT - 1, 0), 0);
	way_close(&way);
}
END_TEST

START_TEST(test_launches_in_flight_are_bounded)
{
	ceov_ticket tickets[1000];
	uint32_t n = 0, i;
	struct way way;
	int r;

	way_open(&way, 1, 0);
	while (!(r = way_try(&way, n, n % 2, &tickets[n])))
		ck_assert_uint_lt(++n, 1000);
	ck_assert_int_eq(r, CEOV_FULL);
	ck_assert_uint_ge(n, 8);
	ck_assert_int_eq(ceov_signal_raise(way.free, 0, n), 0);
	ck_assert_int_eq(ceov_signal_raise(way.ready, 0, n), 0);
	for (i = 0; i < n; i++) {
		ck_assert_int_eq(way_wait(&way, tickets[i]), 0);
		if (i)
			ck_assert_uint_gt(tickets[i].number, tickets[i - 1].number);
	}
	ck_assert_int_eq(way_try(&way, n, 0, &tickets[0]), 0);
	way_close(&way);
}
END_TEST

/* Results of others, and how long they are kept: test_tickets.c. */
START_TEST(test_strange_tickets_are_refused)
{
	ceov_ticket first, ticket = { 0 };
	struct way way;
	uint32_t k;

	way_open(&way, 1, 0);
	ck_assert_int_eq(ceov_wait(way.context, ticket, 0), CEOV_ERR_INVALID);
	ticket.number = UINT64_MAX;
	ck_assert_int_eq(ceov_wait(way.context, ticket, 0), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_abort(way.context, ticket), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_signal_raise(way.ready, 0, 10000), 0);
	ck_assert_int_eq(ceov_signal_raise(way.free, 0, 10000), 0);
	first = way_launch(&way, 0, 0);
	ck_assert_int_eq(way_wait(&way, first), 0);
	ck_assert_int_eq(ceov_abort(way.context, first), CEOV_NONE);
	ticket.number = first.number + 1;
	ck_assert_int_eq(ceov_wait(way.context, ticket, 0), CEOV_ERR_INVALID);
	testing_log_has(&way.log, "was never issued", NULL, NULL);
	for (k = 0; k < 5000; k++)
		ck_assert_int_eq(way_wait(&way, way_launch(&way, k, 0)), 0);
	ck_assert_int_eq(ceov_wait(way.context, first, 0), 0);
	ck_assert_int_eq(ceov_abort(way.context, first), CEOV_NONE);
	way_close(&way);
}
END_TEST

/* One launch waits for its mark while thousands of others come and go. */
START_TEST(test_a_launch_that_lasts_holds_up_no_other)
{
	struct way slow, fast;
	ceov_ticket lasting;
	uint32_t k;

	way_open(&slow, 1, 0);
	way_open_beside(&fast, &slow);
	lasting = way_launch(&slow, 0, 0);
	way_ready(&fast, 1);
	for (k = 0; k < CEI_TICKETS + 100; k++)
		ck_assert_int_eq(way_wait(&fast, way_launch(&fast, 0, 0)), 0);
	ck_assert_int_eq(ceov_wait(slow.context, lasting, 0), CEOV_PENDING);
	way_ready(&slow, 1);
	ck_assert_int_eq(way_wait(&slow, lasting), 0);
	way_close(&slow);
}
END_TEST

START_TEST(test_a_short_wait_for_a_launch_is_short)
{
	uint64_t before, spent, best = UINT64_MAX;
	ceov_ticket ticket;
	struct way way;
	int i;

	way_open(&way, 1, 0);
	ticket = way_launch(&way, 0, 0);
	for (i = 0; i < 20; i++) {
		before = cei_now_ns();
		ck_assert_int_eq(ceov_wait(way.context, ticket, 100000), CEOV_PENDING);
		spent = cei_now_ns() - before;
		if (spent < best)
			best = spent;
	}
	ck_assert_uint_ge(best, 100000);
	ck_assert_uint_lt(best, CEI_BACKOFF_YIELD_NS / 2);
	way_close(&way);
}
END_TEST

/* --- order --------------------------------------------------------------- */

struct observer {
	ceov_signal     *signal;
	uint32_t         n_counters;
	_Atomic uint32_t must_stop;
	uint32_t         n_falls;
};

static void *observe(void *arg)
{
	struct observer *observer = arg;
	uint64_t seen, last[16] = { 0 };
	uint32_t i;

	while (!atomic_load(&observer->must_stop)) {
		for (i = 0; i < observer->n_counters; i++) {
			if (ceov_signal_value(observer->signal, i, &seen))
				observer->n_falls += 1000;
			observer->n_falls += seen < last[i];
			last[i] = seen;
		}
	}
	return NULL;
}

/* Up to `ahead` launches at a time; triggers: 0 polled, 1 gated, 2 mixed at random. */
static void run_ahead(int trigger, uint32_t n_transfers, uint32_t ahead, uint32_t n)
{
	uint64_t random = testing_seed();
	ceov_ticket tickets[64];
	struct observer observer;
	pthread_t thread;
	struct way way;
	uint32_t i, k;

	way_open(&way, n_transfers, 1000);
	observer = (struct observer){ way.arrived, n_transfers, 0, 0 };
	ck_assert_int_eq(pthread_create(&thread, NULL, observe, &observer), 0);
	for (k = 0; k < n; k++) {
		if (k >= ahead)
			ck_assert_int_eq(way_wait(&way, tickets[(k - ahead) % 64]), 0);
		tickets[k % 64] = way_launch(&way, k, trigger == 2
					     ? testing_below(&random, 3) == 0 : trigger);
		for (i = 0; i < n_transfers; i++)
			ck_assert_int_eq(ceov_signal_raise(way.free, i, k), 0);
		for (i = n_transfers; i-- > 0;)
			ck_assert_int_eq(ceov_signal_raise(way.ready, i, k + 1), 0);
	}
	for (k = n > ahead ? n - ahead : 0; k < n; k++)
		ck_assert_int_eq(way_wait(&way, tickets[k % 64]), 0);
	for (i = 0; i < n_transfers; i++)
		ck_assert_int_eq(ceov_signal_wait(way.arrived, i, n, 0), 0);
	atomic_store(&observer.must_stop, 1);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_uint_eq(observer.n_falls, 0);
	way_close(&way);
}

START_TEST(test_marks_rise_over_polled_launches)
{
	run_ahead(0, 5, 20, 1000);
}
END_TEST

START_TEST(test_marks_rise_over_gated_launches)
{
	run_ahead(1, 5, 20, 1000);
}
END_TEST

START_TEST(test_marks_rise_over_mixed_launches)
{
	run_ahead(2, 5, 20, 1000);
	run_ahead(2, 1, 2, 1000);
}
END_TEST

/* One producer: the second launch's mark is raised only after the first arrived. */
START_TEST(test_gated_launches_of_one_producer_keep_their_order)
{
	struct ceov_transfer transfer;
	ceov_signal *ready_too;
	ceov_ticket first, second;
	ceov_plan *one, *too;
	struct way way;

	way_open(&way, 1, 0);
	one = way.plan;
	ready_too = testing_signal(way.context, 0, 1);
	too = testing_plan(way.context, 0);
	transfer = testing_transfer(way.source, testing_buffer(way.context, 1, 4096), 64);
	transfer.source_ready = testing_mark(ready_too, 0, 1);
	testing_add(too, &transfer);
	ck_assert_int_eq(ceov_plan_commit(too), 0);
	first = way_launch(&way, 1, 1);         /* target_free: not yet at 1 */
	way.plan = too;
	second = way_launch(&way, 0, 1);
	usleep(20000);
	ck_assert_int_eq(ceov_signal_raise(way.free, 0, 1), 0);
	ck_assert_int_eq(ceov_signal_raise(way.ready, 0, 2), 0);
	ck_assert_int_eq(ceov_signal_wait(way.arrived, 0, 2, 2 * TESTING_SECOND), 0);
	ck_assert_int_eq(ceov_signal_raise(ready_too, 0, 1), 0);
	ck_assert_int_eq(way_wait(&way, first), 0);
	ck_assert_int_eq(way_wait(&way, second), 0);
	way.plan = one;
	way_close(&way);
}
END_TEST

/* Transfer 0 waits for transfer 1 and all their marks are of one signal. */
START_TEST(test_a_gated_plan_may_wait_for_its_own_marks)
{
	struct ceov_transfer transfer;
	ceov_signal *chain;
	struct way way;

	way_open(&way, 1, 0);
	ceov_plan_release(way.plan);
	way.plan = testing_plan(way.context, 0);
	chain = testing_signal(way.context, 0, 3);
	transfer = testing_transfer(way.source, way.target, 64);
	transfer.source_ready = testing_mark(chain, 1, 1);
	transfer.then = testing_mark(chain, 2, 1);
	ck_assert_int_eq(ceov_plan_add(way.plan, &transfer), 0);
	transfer.source_ready = testing_mark(chain, 0, 1);
	transfer.then = testing_mark(chain, 1, 1);
	transfer.target.offset_bytes = 64;
	testing_add(way.plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(way.plan), 0);
	ck_assert_int_eq(ceov_signal_raise(chain, 0, 1), 0);
	ck_assert_int_eq(ceov_wait(way.context, way_launch(&way, 0, 1),
				   3 * TESTING_SECOND), 0);
	ck_assert_int_eq(ceov_signal_wait(chain, 2, 1, 0), 0);
	way_close(&way);
}
END_TEST

/* --- many ---------------------------------------------------------------- */

struct worker {
	struct way way;
	pthread_t  thread;
	uint64_t   random;
	uint32_t   n_launches;
};

static void *work(void *arg)
{
	struct worker *worker = arg;
	struct way *way = &worker->way;
	ceov_ticket ticket;
	uint32_t k;

	for (k = 0; k < worker->n_launches; k++) {
		testing_fill(ceov_buffer_base(way->source, 0), 256, k);
		ticket = way_launch(way, k, testing_below(&worker->random, 2) == 0);
		if (testing_below(&worker->random, 8) == 0)
			sched_yield();
		ck_assert_int_eq(ceov_signal_raise(way->ready, 0, k + 1), 0);
		if (testing_below(&worker->random, 2))
			ck_assert_int_eq(way_wait(way, ticket), 0);
		ck_assert_int_eq(ceov_signal_wait(way->arrived, 0, k + 1,
						  TESTING_PATIENCE), 0);
		ck_assert_uint_eq(testing_check(ceov_buffer_base(way->target, 1), 256, k),
				  256);
		ck_assert_int_eq(way_wait(way, ticket), 0);
		ck_assert_int_eq(ceov_signal_raise(way->free, 0, k + 1), 0);
	}
	return NULL;
}

START_TEST(test_threads_launch_thousands_on_several_plans)
{
	struct worker workers[4];
	uint64_t random = testing_seed();
	uint32_t i;

	way_open(&workers[0].way, 1, 0);
	for (i = 0; i < 4; i++) {
		if (i)
			way_open_beside(&workers[i].way, &workers[0].way);
		workers[i].random = testing_random(&random);
		workers[i].n_launches = 2500;
		ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, work,
						&workers[i]), 0);
	}
	for (i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_join(workers[i].thread, NULL), 0);
	way_close(&workers[0].way);
}
END_TEST

/* Several threads, one plan whose marks are reached always. */
static void *launch_many(void *arg)
{
	struct way *way = arg;
	ceov_ticket ticket;
	uint32_t k;
	int r;

	for (k = 0; k < 2000; k++) {
		while ((r = way_try(way, 0, 0, &ticket)) == CEOV_FULL)
			sched_yield();
		ck_assert_int_eq(r, 0);
		if (k % 7 == 0)
			ck_assert_int_eq(way_wait(way, ticket), 0);
	}
	ck_assert_int_eq(way_wait(way, ticket), 0);
	return NULL;
}

START_TEST(test_threads_launch_one_plan)
{
	pthread_t threads[4];
	struct way way;
	uint32_t i;

	way_open(&way, 1, 0);
	ck_assert_int_eq(ceov_signal_raise(way.ready, 0, 1), 0);
	for (i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, launch_many, &way), 0);
	for (i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	ceov_plan_release(way.plan);
	way_close(&way);
}
END_TEST

START_TEST(test_chunks_add_up_and_raise_once)
{
	struct ceov_plan_options options = { .struct_bytes = sizeof(options),
					     .max_chunk_bytes = 1000, .mark_group_bytes = 5000 };
	struct ceov_transfer transfer;
	struct way way;
	uint32_t k;

	way_open(&way, 1, 0);
	ceov_plan_release(way.plan);
	ck_assert_int_eq(ceov_plan_create(way.context, 0, &options, &way.plan), 0);
	transfer = testing_transfer(way.source, way.target, WAY_BYTES);
	transfer.source_ready = testing_mark(way.ready, 0, 1);
	transfer.then = testing_mark(way.arrived, 0, 1);
	testing_add(way.plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(way.plan), 0);
	for (k = 0; k < 50; k++) {
		testing_fill(ceov_buffer_base(way.source, 0), WAY_BYTES, k);
		way_launch(&way, k, k % 2);
		ck_assert_int_eq(ceov_signal_raise(way.ready, 0, k + 1), 0);
		ck_assert_int_eq(ceov_signal_wait(way.arrived, 0, k + 1,
						  TESTING_PATIENCE), 0);
		ck_assert_uint_eq(testing_check(ceov_buffer_base(way.target, 1), WAY_BYTES,
						k), WAY_BYTES);
	}
	way_close(&way);
}
END_TEST

START_TEST(test_release_waits_for_launches_in_flight)
{
	struct way way;

	way_open(&way, 1, 0);
	way_launch(&way, 0, 0);
	way_launch(&way, 0, 1);
	ck_assert_int_eq(ceov_signal_raise(way.ready, 0, 1), 0);
	ceov_plan_release(way.plan);
	ck_assert_int_eq(ceov_signal_wait(way.arrived, 0, 1, 0), 0);
	ck_assert_int_eq(ceov_buffer_release(way.source), 0);
	ck_assert_int_eq(ceov_buffer_release(way.target), 0);
	way_close(&way);
}
END_TEST

static int becomes_idle(const ceov_plan *plan)
{
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);
	int r;

	while ((r = ceov_plan_idle(plan)) == CEOV_PENDING && cei_now_ns() < deadline)
		sched_yield();
	return r;
}

START_TEST(test_a_plan_tells_whether_its_release_waits)
{
	struct way way;

	ck_assert_int_eq(ceov_plan_idle(NULL), CEOV_ERR_INVALID);
	way_open(&way, 1, 0);
	ck_assert_int_eq(ceov_plan_idle(way.plan), 0);
	way_launch(&way, 0, 0);
	ck_assert_int_eq(ceov_plan_idle(way.plan), CEOV_PENDING);
	ck_assert_int_eq(ceov_signal_raise(way.ready, 0, 1), 0);
	ck_assert_int_eq(becomes_idle(way.plan), 0);
	ck_assert_int_eq(ceov_signal_wait(way.arrived, 0, 1, 0), 0);
	way_close(&way);
}
END_TEST

START_TEST(test_a_caller_turns_launches)
{
	ceov_ticket tickets[20];
	struct way way;
	uint32_t k;

	way_open_with(&way, 3, 1000, 1);
	for (k = 0; k < 20; k++) {
		way_free(&way, k);
		tickets[k] = way_launch(&way, k, k % 5 == 4);
	}
	ck_assert_int_eq(ceov_wait(way.context, tickets[0], 0), CEOV_PENDING);
	way_ready(&way, 20);
	while (ceov_turn(way.context) == CEOV_PENDING)
		;
	for (k = 0; k < 20; k++)
		ck_assert_int_eq(ceov_wait(way.context, tickets[k], 0), 0);
	way_launch(&way, 20, 1);        /* and closes with it in flight */
	ck_assert_int_eq(ceov_turn(way.context), CEOV_PENDING);
	way_close(&way);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("launch");
	TCase *all = tcase_create("launch");

	tcase_set_timeout(all, 100);
	tcase_add_test(all, test_a_base_never_falls);
	tcase_add_test(all, test_values_stay_below_the_limit);
	tcase_add_test(all, test_launches_in_flight_are_bounded);
	tcase_add_test(all, test_strange_tickets_are_refused);
	tcase_add_test(all, test_a_launch_that_lasts_holds_up_no_other);
	tcase_add_test(all, test_a_short_wait_for_a_launch_is_short);
	tcase_add_test(all, test_marks_rise_over_polled_launches);
	tcase_add_test(all, test_marks_rise_over_gated_launches);
	tcase_add_test(all, test_marks_rise_over_mixed_launches);
	tcase_add_test(all, test_gated_launches_of_one_producer_keep_their_order);
	tcase_add_test(all, test_a_gated_plan_may_wait_for_its_own_marks);
	tcase_add_test(all, test_threads_launch_thousands_on_several_plans);
	tcase_add_test(all, test_threads_launch_one_plan);
	tcase_add_test(all, test_chunks_add_up_and_raise_once);
	tcase_add_test(all, test_release_waits_for_launches_in_flight);
	tcase_add_test(all, test_a_plan_tells_whether_its_release_waits);
	tcase_add_test(all, test_a_caller_turns_launches);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
