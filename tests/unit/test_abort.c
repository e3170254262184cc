/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests which signals an abort takes with it: those of plans in flight that hang together with the
 * aborted ones, before a gate opens. */

#include <check.h>
#include <pthread.h>
#include <unistd.h>

#include "ce_engine/objects/abort.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/signal.h"
#include "loopback.h"

#define CHAIN 3u                        /* plans: each waits for the mark of the one before */

struct chain {
	struct loopback loops[CHAIN];   /* of one context; only the plans differ from loopbacks */
	ceov_ticket     tickets[CHAIN];
};

/* Gives the loop a plan of one transfer that waits for the signal. */
static void replan(struct loopback *loop, ceov_signal *awaited)
{
	struct ceov_transfer transfer = testing_transfer(loop->source, loop->target, 64);

	ceov_plan_release(loop->plan);
	loop->plan = testing_plan(loop->context, 0);
	transfer.source_ready = testing_mark(awaited, 0, 1);
	transfer.then = testing_mark(loop->arrived, 0, 1);
	testing_add(loop->plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(loop->plan), 0);
}

/* Nobody raises what the first plan waits for. */
static void open_chain(struct chain *chain)
{
	uint32_t i;

	loopback_open(&chain->loops[0], 1, 0);
	for (i = 1; i < CHAIN; i++) {
		loopback_open_beside(&chain->loops[i], &chain->loops[0]);
		replan(&chain->loops[i], chain->loops[i - 1].arrived);
	}
}

static void launch_chain(struct chain *chain, enum loopback_gate gate)
{
	uint32_t i;

	for (i = 0; i < CHAIN; i++)
		chain->tickets[i] = loopback_launch(&chain->loops[i], 0, gate);
	usleep(500);                    /* lanes come to their gates, mostly */
}

/* Asserts that the signal's waiters are not told that the bytes are there. */
static void assert_ends_aborted(const struct chain *chain, uint32_t i, uint32_t round)
{
	int r = ceov_signal_wait(chain->loops[i].arrived, 0, 1, TESTING_PATIENCE);

	if (r != CEOV_ERR_ABORTED)
		ck_abort_msg("round %u, plan %u: %s", round, i, ceov_strerror(r));
}

START_TEST(test_plans_that_share_a_signal_are_aborted_first)
{
	struct chain chain;
	uint32_t round, i, n = testing_share(100);

	for (round = 0; round < n; round++) {
		open_chain(&chain);
		launch_chain(&chain, _i ? GATED : POLLED);
		i = round % CHAIN;
		ck_assert_int_eq(ceov_abort(chain.loops[i].context, chain.tickets[i]), 0);
		for (i = CHAIN; i-- > 0;)
			assert_ends_aborted(&chain, i, round);
		for (i = 0; i < CHAIN; i++)
			ck_assert_int_eq(loopback_wait(&chain.loops[i], chain.tickets[i]),
					 CEOV_ERR_ABORTED);
		loopback_close(&chain.loops[0]);
	}
}
END_TEST

/* Two plans wait gated for one counter, which nobody raises; one of them has a deadline. */
START_TEST(test_a_deadline_takes_other_plans_signals_along)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch), .deadline_ns = TESTING_MS };
	struct loopback loop, other;
	ceov_ticket ticket, second;
	uint32_t round, n = testing_share(50);

	for (round = 0; round < n; round++) {
		loopback_open(&loop, 1, 0);
		loopback_open_beside(&other, &loop);
		replan(&other, loop.ready);
		launch.producer_stream = loop.context;
		second = loopback_launch(&other, 0, GATED);
		ck_assert_int_eq(ceov_launch(loop.plan, &launch, &ticket), 0);
		ck_assert_int_lt(ceov_signal_wait(other.arrived, 0, 1, TESTING_PATIENCE), 0);
		ck_assert_int_eq(loopback_wait(&loop, ticket), CEOV_ERR_TIMEOUT);
		ck_assert_int_lt(loopback_wait(&other, second), 0);
		loopback_close(&loop);
	}
}
END_TEST

START_TEST(test_plans_without_a_launch_in_flight_are_left_alone)
{
	struct chain chain;
	uint32_t i;

	open_chain(&chain);
	chain.tickets[0] = loopback_launch(&chain.loops[0], 0, POLLED);
	ck_assert_int_eq(ceov_abort(chain.loops[0].context, chain.tickets[0]), 0);
	ck_assert_int_eq(loopback_wait(&chain.loops[0], chain.tickets[0]), CEOV_ERR_ABORTED);
	for (i = 1; i < CHAIN; i++)
		ck_assert_int_eq(ceov_signal_wait(chain.loops[i].arrived, 0, 1, 0), CEOV_PENDING);
	loopback_close(&chain.loops[0]);
}
END_TEST

/* A signal that no plan names, and one of a plan in flight. */
START_TEST(test_an_abort_of_signals_takes_plans_along)
{
	struct chain chain;

	open_chain(&chain);
	chain.tickets[1] = loopback_launch(&chain.loops[1], 0, POLLED);
	cei_abort_unlocked(&chain.loops[2].free, 1, CEOV_ERR_PEER_LOST, 1);
	ck_assert_int_eq(ceov_signal_wait(chain.loops[1].arrived, 0, 1, 0), CEOV_PENDING);
	cei_abort_unlocked(&chain.loops[0].arrived, 1, CEOV_ERR_PEER_LOST, 1);
	ck_assert_int_eq(cei_signal_aborted(chain.loops[1].arrived), CEOV_ERR_PEER_LOST);
	ck_assert_int_eq(cei_signal_aborted(chain.loops[2].arrived), 0);
	ck_assert_int_eq(loopback_wait(&chain.loops[1], chain.tickets[1]), CEOV_ERR_PEER_LOST);
	loopback_close(&chain.loops[0]);
}
END_TEST

START_TEST(test_an_abort_of_no_signals_does_nothing)
{
	cei_abort_unlocked(NULL, 0, CEOV_ERR_ABORTED, CEOV_NOBODY);
}
END_TEST

struct holder {
	ceov_context   *context;
	pthread_mutex_t done;           /* held until the abort has returned */
	_Atomic int     has_lock;
};

/* Holds the context's lock, as a call does that the driver holds up. */
static void *hold_lock(void *arg)
{
	struct holder *holder = arg;

	pthread_mutex_lock(&holder->context->lock);
	holder->has_lock = 1;
	pthread_mutex_lock(&holder->done);
	pthread_mutex_unlock(&holder->done);
	pthread_mutex_unlock(&holder->context->lock);
	return NULL;
}

START_TEST(test_an_abort_does_not_wait_for_the_lock_for_ever)
{
	struct holder holder = { .done = PTHREAD_MUTEX_INITIALIZER };
	struct loopback loop;
	pthread_t thread;

	loopback_open(&loop, 1, 0);
	holder.context = loop.context;
	pthread_mutex_lock(&holder.done);
	ck_assert_int_eq(pthread_create(&thread, NULL, hold_lock, &holder), 0);
	while (!holder.has_lock)
		usleep(100);
	cei_abort_unlocked(&loop.ready, 1, CEOV_ERR_TIMEOUT, 1);
	ck_assert_int_eq(ceov_signal_wait(loop.ready, 0, 1, 0), CEOV_ERR_TIMEOUT);
	pthread_mutex_unlock(&holder.done);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	loopback_close(&loop);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("abort");
	TCase *all = tcase_create("all");

	tcase_set_timeout(all, 60);
	tcase_add_loop_test(all, test_plans_that_share_a_signal_are_aborted_first, 0, 2);
	tcase_add_test(all, test_a_deadline_takes_other_plans_signals_along);
	tcase_add_test(all, test_plans_without_a_launch_in_flight_are_left_alone);
	tcase_add_test(all, test_an_abort_of_signals_takes_plans_along);
	tcase_add_test(all, test_an_abort_of_no_signals_does_nothing);
	tcase_add_test(all, test_an_abort_does_not_wait_for_the_lock_for_ever);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
