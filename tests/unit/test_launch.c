/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests launches that succeed: order, bases, tickets, many at a time. Failures are in
 * test_launch_fails.c. */

#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"
#include "ce_engine/engine/engine.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/tickets.h"
#include "loopback.h"

START_TEST(test_a_base_never_falls)
{
	struct loopback loop;

	loopback_open(&loop, 1, 0);
	ck_assert_int_eq(ceov_signal_raise(loop.ready, 0, 100), 0);
	ck_assert_int_eq(ceov_signal_raise(loop.free, 0, 100), 0);
	ck_assert_int_eq(loopback_wait(&loop, loopback_launch(&loop, 5, POLLED)), 0);
	ck_assert_int_eq(loopback_try(&loop, 4, POLLED, NULL), CEOV_ERR_INVALID);
	testing_log_has(&loop.log, "base falls from 5 to 4", NULL, NULL);
	ck_assert_int_eq(loopback_wait(&loop, loopback_launch(&loop, 5, POLLED)), 0);
	ck_assert_int_eq(loopback_wait(&loop, loopback_launch(&loop, 9, POLLED)), 0);
	loopback_close(&loop);
}
END_TEST

START_TEST(test_values_stay_below_the_limit)
{
	struct ceov_transfer transfer;
	struct loopback loop;

	loopback_open(&loop, 1, 0);
	ck_assert_int_eq(loopback_try(&loop, CEOV_VALUE_LIMIT, POLLED, NULL), CEOV_ERR_INVALID);
	ck_assert_int_eq(loopback_try(&loop, CEOV_VALUE_LIMIT - 1, POLLED, NULL), CEOV_ERR_INVALID);
	ceov_plan_release(loop.plan);
	loop.plan = testing_plan(loop.context, 0);
	transfer = testing_transfer(loop.source, loop.target, 64);
	transfer.then = testing_mark(loop.arrived, 0, CEOV_VALUE_LIMIT - 10);
	ck_assert_int_eq(ceov_plan_add(loop.plan, &transfer), 0);
	ck_assert_int_eq(ceov_plan_commit(loop.plan), 0);
	ck_assert_int_eq(loopback_try(&loop, 10, POLLED, NULL), CEOV_ERR_INVALID);
	ck_assert_int_eq(loopback_wait(&loop, loopback_launch(&loop, 9, POLLED)), 0);
	ck_assert_int_eq(ceov_signal_wait(loop.arrived, 0, CEOV_VALUE_LIMIT - 1, 0), 0);
	loopback_close(&loop);
}
END_TEST

START_TEST(test_launches_in_flight_are_bounded)
{
	ceov_ticket tickets[1000];
	uint32_t n = 0, i;
	struct loopback loop;
	int r;

	loopback_open(&loop, 1, 0);
	while (!(r = loopback_try(&loop, n, n % 2, &tickets[n])))
		ck_assert_uint_lt(++n, 1000);
	ck_assert_int_eq(r, CEOV_FULL);
	ck_assert_uint_ge(n, 8);
	ck_assert_int_eq(ceov_signal_raise(loop.free, 0, n), 0);
	ck_assert_int_eq(ceov_signal_raise(loop.ready, 0, n), 0);
	for (i = 0; i < n; i++) {
		ck_assert_int_eq(loopback_wait(&loop, tickets[i]), 0);
		if (i)
			ck_assert_uint_gt(tickets[i].number, tickets[i - 1].number);
	}
	ck_assert_int_eq(loopback_try(&loop, n, POLLED, &tickets[0]), 0);
	loopback_close(&loop);
}
END_TEST

/* Tickets of other contexts and how long results are kept: test_tickets.c. */
START_TEST(test_strange_tickets_are_refused)
{
	ceov_ticket first, ticket = { 0 };
	struct loopback loop;
	uint32_t k;

	loopback_open(&loop, 1, 0);
	ck_assert_int_eq(ceov_wait(loop.context, ticket, 0), CEOV_ERR_INVALID);
	ticket.number = UINT64_MAX;
	ck_assert_int_eq(ceov_wait(loop.context, ticket, 0), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_abort(loop.context, ticket), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_signal_raise(loop.ready, 0, 10000), 0);
	ck_assert_int_eq(ceov_signal_raise(loop.free, 0, 10000), 0);
	first = loopback_launch(&loop, 0, POLLED);
	ck_assert_int_eq(loopback_wait(&loop, first), 0);
	ck_assert_int_eq(ceov_abort(loop.context, first), CEOV_NONE);
	ticket.number = first.number + 1;
	ck_assert_int_eq(ceov_wait(loop.context, ticket, 0), CEOV_ERR_INVALID);
	testing_log_has(&loop.log, "was never issued", NULL, NULL);
	for (k = 0; k < 5000; k++)
		ck_assert_int_eq(loopback_wait(&loop, loopback_launch(&loop, k, POLLED)), 0);
	ck_assert_int_eq(ceov_wait(loop.context, first, 0), 0);
	ck_assert_int_eq(ceov_abort(loop.context, first), CEOV_NONE);
	loopback_close(&loop);
}
END_TEST

/* One launch waits for its mark while thousands of others begin and end. */
START_TEST(test_a_launch_that_lasts_holds_up_no_other)
{
	struct loopback slow, fast;
	ceov_ticket lasting;
	uint32_t k;

	loopback_open(&slow, 1, 0);
	loopback_open_beside(&fast, &slow);
	lasting = loopback_launch(&slow, 0, POLLED);
	loopback_ready(&fast, 1);
	for (k = 0; k < CEI_TICKETS + 100; k++)
		ck_assert_int_eq(loopback_wait(&fast, loopback_launch(&fast, 0, POLLED)), 0);
	ck_assert_int_eq(ceov_wait(slow.context, lasting, 0), CEOV_PENDING);
	loopback_ready(&slow, 1);
	ck_assert_int_eq(loopback_wait(&slow, lasting), 0);
	loopback_close(&slow);
}
END_TEST

START_TEST(test_a_short_wait_for_a_launch_is_short)
{
	uint64_t before, spent, best = UINT64_MAX;
	ceov_ticket ticket;
	struct loopback loop;
	int i;

	loopback_open(&loop, 1, 0);
	ticket = loopback_launch(&loop, 0, POLLED);
	for (i = 0; i < 20; i++) {
		before = cei_now_ns();
		ck_assert_int_eq(ceov_wait(loop.context, ticket, 100000), CEOV_PENDING);
		spent = cei_now_ns() - before;
		if (spent < best)
			best = spent;
	}
	ck_assert_uint_ge(best, 100000);
	ck_assert_uint_lt(best, CEI_BACKOFF_YIELD_NS / 2);
	loopback_close(&loop);
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

/* Keeps up to `ahead` launches in flight. trigger: 0 polled, 1 gated, 2 a random mixture. */
static void run_ahead(int trigger, uint32_t n_transfers, uint32_t ahead, uint32_t n)
{
	uint64_t random = testing_seed();
	ceov_ticket tickets[64];
	struct observer observer;
	pthread_t thread;
	struct loopback loop;
	uint32_t i, k;

	loopback_open(&loop, n_transfers, 1000);
	observer = (struct observer){ loop.arrived, n_transfers, 0, 0 };
	ck_assert_int_eq(pthread_create(&thread, NULL, observe, &observer), 0);
	for (k = 0; k < n; k++) {
		if (k >= ahead)
			ck_assert_int_eq(loopback_wait(&loop, tickets[(k - ahead) % 64]), 0);
		tickets[k % 64] = loopback_launch(&loop, k, trigger == 2
						  ? testing_below(&random, 3) == 0 : trigger);
		for (i = 0; i < n_transfers; i++)
			ck_assert_int_eq(ceov_signal_raise(loop.free, i, k), 0);
		for (i = n_transfers; i-- > 0;)
			ck_assert_int_eq(ceov_signal_raise(loop.ready, i, k + 1), 0);
	}
	for (k = n > ahead ? n - ahead : 0; k < n; k++)
		ck_assert_int_eq(loopback_wait(&loop, tickets[k % 64]), 0);
	for (i = 0; i < n_transfers; i++)
		ck_assert_int_eq(ceov_signal_wait(loop.arrived, i, n, 0), 0);
	atomic_store(&observer.must_stop, 1);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_uint_eq(observer.n_falls, 0);
	loopback_close(&loop);
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

/* Both launches have the same producer, which raises the second launch's mark only after the first
 * has arrived. */
START_TEST(test_gated_launches_of_one_producer_keep_their_order)
{
	struct ceov_transfer transfer;
	ceov_signal *ready_too;
	ceov_ticket first, second;
	ceov_plan *one, *too;
	struct loopback loop;

	loopback_open(&loop, 1, 0);
	one = loop.plan;
	ready_too = testing_signal(loop.context, 0, 1);
	too = testing_plan(loop.context, 0);
	transfer = testing_transfer(loop.source, testing_buffer(loop.context, 1, 4096), 64);
	transfer.source_ready = testing_mark(ready_too, 0, 1);
	testing_add(too, &transfer);
	ck_assert_int_eq(ceov_plan_commit(too), 0);
	first = loopback_launch(&loop, 1, GATED); /* target_free is not at 1 yet */
	loop.plan = too;
	second = loopback_launch(&loop, 0, GATED);
	usleep(20000);
	ck_assert_int_eq(ceov_signal_raise(loop.free, 0, 1), 0);
	ck_assert_int_eq(ceov_signal_raise(loop.ready, 0, 2), 0);
	ck_assert_int_eq(ceov_signal_wait(loop.arrived, 0, 2, 2 * TESTING_SECOND), 0);
	ck_assert_int_eq(ceov_signal_raise(ready_too, 0, 1), 0);
	ck_assert_int_eq(loopback_wait(&loop, first), 0);
	ck_assert_int_eq(loopback_wait(&loop, second), 0);
	loop.plan = one;
	loopback_close(&loop);
}
END_TEST

/* Transfer 0 waits for transfer 1, and all their marks are counters of one signal. */
START_TEST(test_a_gated_plan_may_wait_for_its_own_marks)
{
	struct ceov_transfer transfer;
	ceov_signal *chain;
	struct loopback loop;

	loopback_open(&loop, 1, 0);
	ceov_plan_release(loop.plan);
	loop.plan = testing_plan(loop.context, 0);
	chain = testing_signal(loop.context, 0, 3);
	transfer = testing_transfer(loop.source, loop.target, 64);
	transfer.source_ready = testing_mark(chain, 1, 1);
	transfer.then = testing_mark(chain, 2, 1);
	ck_assert_int_eq(ceov_plan_add(loop.plan, &transfer), 0);
	transfer.source_ready = testing_mark(chain, 0, 1);
	transfer.then = testing_mark(chain, 1, 1);
	transfer.target.offset_bytes = 64;
	testing_add(loop.plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(loop.plan), 0);
	ck_assert_int_eq(ceov_signal_raise(chain, 0, 1), 0);
	ck_assert_int_eq(ceov_wait(loop.context, loopback_launch(&loop, 0, GATED),
				   3 * TESTING_SECOND), 0);
	ck_assert_int_eq(ceov_signal_wait(chain, 2, 1, 0), 0);
	loopback_close(&loop);
}
END_TEST

/* --- many launches ------------------------------------------------------- */

struct worker {
	struct loopback loop;
	pthread_t  thread;
	uint64_t   random;
	uint32_t   n_launches;
};

static void *work(void *arg)
{
	struct worker *worker = arg;
	struct loopback *loop = &worker->loop;
	ceov_ticket ticket;
	uint32_t k;

	for (k = 0; k < worker->n_launches; k++) {
		testing_fill(ceov_buffer_base(loop->source, 0), 256, k);
		ticket = loopback_launch(loop, k, testing_below(&worker->random, 2) == 0);
		if (testing_below(&worker->random, 8) == 0)
			sched_yield();
		ck_assert_int_eq(ceov_signal_raise(loop->ready, 0, k + 1), 0);
		if (testing_below(&worker->random, 2))
			ck_assert_int_eq(loopback_wait(loop, ticket), 0);
		ck_assert_int_eq(ceov_signal_wait(loop->arrived, 0, k + 1,
						  TESTING_PATIENCE), 0);
		ck_assert_uint_eq(testing_check(ceov_buffer_base(loop->target, 1), 256, k),
				  256);
		ck_assert_int_eq(loopback_wait(loop, ticket), 0);
		ck_assert_int_eq(ceov_signal_raise(loop->free, 0, k + 1), 0);
	}
	return NULL;
}

START_TEST(test_threads_launch_thousands_on_several_plans)
{
	struct worker workers[4];
	uint64_t random = testing_seed();
	uint32_t i;

	loopback_open(&workers[0].loop, 1, 0);
	for (i = 0; i < 4; i++) {
		if (i)
			loopback_open_beside(&workers[i].loop, &workers[0].loop);
		workers[i].random = testing_random(&random);
		workers[i].n_launches = 2500;
		ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, work,
						&workers[i]), 0);
	}
	for (i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_join(workers[i].thread, NULL), 0);
	loopback_close(&workers[0].loop);
}
END_TEST

/* Launches a plan from several threads at once; its marks are always reached. */
static void *launch_many(void *arg)
{
	struct loopback *loop = arg;
	ceov_ticket ticket;
	uint32_t k;
	int r;

	for (k = 0; k < 2000; k++) {
		while ((r = loopback_try(loop, 0, POLLED, &ticket)) == CEOV_FULL)
			sched_yield();
		ck_assert_int_eq(r, 0);
		if (k % 7 == 0)
			ck_assert_int_eq(loopback_wait(loop, ticket), 0);
	}
	ck_assert_int_eq(loopback_wait(loop, ticket), 0);
	return NULL;
}

START_TEST(test_threads_launch_one_plan)
{
	pthread_t threads[4];
	struct loopback loop;
	uint32_t i;

	loopback_open(&loop, 1, 0);
	ck_assert_int_eq(ceov_signal_raise(loop.ready, 0, 1), 0);
	for (i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, launch_many, &loop), 0);
	for (i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	ceov_plan_release(loop.plan);
	loopback_close(&loop);
}
END_TEST

START_TEST(test_chunks_add_up_and_raise_once)
{
	struct ceov_plan_options options = { .struct_bytes = sizeof(options),
					     .max_chunk_bytes = 1000, .mark_group_bytes = 5000 };
	struct ceov_transfer transfer;
	struct loopback loop;
	uint32_t k;

	loopback_open(&loop, 1, 0);
	ceov_plan_release(loop.plan);
	ck_assert_int_eq(ceov_plan_create(loop.context, 0, &options, &loop.plan), 0);
	transfer = testing_transfer(loop.source, loop.target, LOOPBACK_BYTES);
	transfer.source_ready = testing_mark(loop.ready, 0, 1);
	transfer.then = testing_mark(loop.arrived, 0, 1);
	testing_add(loop.plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(loop.plan), 0);
	for (k = 0; k < 50; k++) {
		testing_fill(ceov_buffer_base(loop.source, 0), LOOPBACK_BYTES, k);
		loopback_launch(&loop, k, k % 2);
		ck_assert_int_eq(ceov_signal_raise(loop.ready, 0, k + 1), 0);
		ck_assert_int_eq(ceov_signal_wait(loop.arrived, 0, k + 1,
						  TESTING_PATIENCE), 0);
		ck_assert_uint_eq(testing_check(ceov_buffer_base(loop.target, 1), LOOPBACK_BYTES,
						k), LOOPBACK_BYTES);
	}
	loopback_close(&loop);
}
END_TEST

START_TEST(test_release_waits_for_launches_in_flight)
{
	struct loopback loop;

	loopback_open(&loop, 1, 0);
	loopback_launch(&loop, 0, POLLED);
	loopback_launch(&loop, 0, GATED);
	ck_assert_int_eq(ceov_signal_raise(loop.ready, 0, 1), 0);
	ceov_plan_release(loop.plan);
	ck_assert_int_eq(ceov_signal_wait(loop.arrived, 0, 1, 0), 0);
	ck_assert_int_eq(ceov_buffer_release(loop.source), 0);
	ck_assert_int_eq(ceov_buffer_release(loop.target), 0);
	loopback_close(&loop);
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
	struct loopback loop;

	ck_assert_int_eq(ceov_plan_idle(NULL), CEOV_ERR_INVALID);
	loopback_open(&loop, 1, 0);
	ck_assert_int_eq(ceov_plan_idle(loop.plan), 0);
	loopback_launch(&loop, 0, POLLED);
	ck_assert_int_eq(ceov_plan_idle(loop.plan), CEOV_PENDING);
	ck_assert_int_eq(ceov_signal_raise(loop.ready, 0, 1), 0);
	ck_assert_int_eq(becomes_idle(loop.plan), 0);
	ck_assert_int_eq(ceov_signal_wait(loop.arrived, 0, 1, 0), 0);
	loopback_close(&loop);
}
END_TEST

START_TEST(test_a_caller_turns_launches)
{
	ceov_ticket tickets[20];
	struct loopback loop;
	uint32_t k;

	loopback_open_turned(&loop, 3, 1000);
	for (k = 0; k < 20; k++) {
		loopback_free(&loop, k);
		tickets[k] = loopback_launch(&loop, k, k % 5 == 4);
	}
	ck_assert_int_eq(ceov_wait(loop.context, tickets[0], 0), CEOV_PENDING);
	loopback_ready(&loop, 20);
	while (ceov_turn(loop.context) == CEOV_PENDING)
		;
	for (k = 0; k < 20; k++)
		ck_assert_int_eq(ceov_wait(loop.context, tickets[k], 0), 0);
	loopback_launch(&loop, 20, GATED); /* the context closes with this launch in flight */
	ck_assert_int_eq(ceov_turn(loop.context), CEOV_PENDING);
	loopback_close(&loop);
}
END_TEST

/* A lane starts its thread with its first launch. That fails once; afterwards the lane works. */
START_TEST(test_a_thread_that_is_refused_fails_one_launch)
{
	struct loopback loop;
	uint64_t k;

	loopback_open(&loop, 1, 0);
	testing_refuse_threads(1);
	loopback_ready(&loop, 1);
	ck_assert_int_eq(loopback_wait(&loop, loopback_launch(&loop, 0, POLLED)), CEOV_ERR_SYSTEM);
	testing_log_has(&loop.log, "cannot start its worker", NULL, NULL);
	testing_refuse_threads(0);
	while (ceov_signal_renew(loop.ready) == CEOV_PENDING)
		usleep(1000);
	ck_assert_int_eq(ceov_signal_renew(loop.arrived), 0);
	ck_assert_int_eq(ceov_signal_renew(loop.free), 0);
	for (k = 0; k < 3; k++) {
		testing_fill(ceov_buffer_base(loop.source, 0), LOOPBACK_BYTES, k);
		loopback_ready(&loop, k + 1);
		loopback_free(&loop, k);
		ck_assert_int_eq(loopback_wait(&loop, loopback_launch(&loop, k, POLLED)), 0);
		ck_assert_uint_eq(testing_check(ceov_buffer_base(loop.target, 1), LOOPBACK_BYTES,
						k), LOOPBACK_BYTES);
	}
	loopback_close(&loop);
}
END_TEST

static ceov_plan *one_copy(ceov_context *context)
{
	struct ceov_transfer transfer = testing_transfer(testing_buffer(context, 0, 64),
							 testing_buffer(context, 0, 64), 64);
	ceov_plan *plan = testing_plan(context, 0);

	transfer.then = testing_mark(testing_signal(context, 0, 1), 0, 1);
	testing_add(plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	return plan;
}

static void launch_at(ceov_plan *plan, uint64_t base)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch), .base = base };

	ck_assert_int_eq(ceov_launch(plan, &launch, NULL), 0);
}

/* How many batches the lanes of rank 0 have got. */
static uint64_t n_batches(const ceov_context *context)
{
	const struct cei_lanes *lanes = &context->engines[0]->lanes;
	uint64_t n = 0;
	uint32_t i;

	for (i = 0; i < cei_lanes_n(lanes); i++)
		n += lanes->states[i]->lane.n_submitted;
	return n;
}

/* The marks of a batch have no order, and two launches of a plan raise the same counters. */
START_TEST(test_two_launches_of_a_plan_share_no_batch)
{
	ceov_context *context = testing_open_turned(1, NULL);
	ceov_plan *plan = one_copy(context), *other = one_copy(context);

	launch_at(plan, 0);
	launch_at(other, 0);
	(void)ceov_turn(context);
	ck_assert_uint_eq(n_batches(context), 1);
	launch_at(plan, 1);
	launch_at(plan, 2);
	(void)ceov_turn(context);
	ck_assert_uint_eq(n_batches(context), 3);
	ceov_close(context);
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
	tcase_add_test(all, test_two_launches_of_a_plan_share_no_batch);
	tcase_add_test(all, test_a_thread_that_is_refused_fails_one_launch);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
