/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests which signals an abort takes with it: those of plans in flight that hang together with the
 * aborted ones, before a gate opens. */

#include <check.h>
#include <pthread.h>
#include <unistd.h>

#include "ce_engine/objects/abort.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/plan.h"
#include "ce_engine/objects/signal.h"
#include "ce_engine/peer_events.h"
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

/* Nobody raises what the first plan waits for. is_turned: without an engine's thread, so that only
 * the abort itself aborts anything. */
static void open_chain(struct chain *chain, int is_turned)
{
	uint32_t i;

	if (is_turned)
		loopback_open_turned(&chain->loops[0], 1, 0);
	else
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
		open_chain(&chain, 0);
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

	open_chain(&chain, 0);
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

	open_chain(&chain, 1);
	chain.tickets[1] = loopback_launch(&chain.loops[1], 0, POLLED);
	cei_abort_unlocked(&chain.loops[2].free, 1, CEOV_ERR_PEER_LOST, 1);
	ck_assert_int_eq(ceov_signal_wait(chain.loops[1].arrived, 0, 1, 0), CEOV_PENDING);
	cei_abort_unlocked(&chain.loops[0].arrived, 1, CEOV_ERR_PEER_LOST, 1);
	ck_assert_int_eq(cei_signal_aborted(chain.loops[1].arrived), CEOV_ERR_PEER_LOST);
	ck_assert_int_eq(cei_signal_aborted(chain.loops[2].arrived), 0);
	while (ceov_wait(chain.loops[1].context, chain.tickets[1], 0) == CEOV_PENDING)
		ck_assert_int_ge(ceov_turn(chain.loops[1].context), 0);
	loopback_close(&chain.loops[0]);
}
END_TEST

/* Another process has aborted what the first plan waits for, and before this one's engine sees that
 * an abort of something else begins here: each plan keeps its own error and the rank to blame. */
START_TEST(test_each_plan_has_the_error_of_its_own_signal)
{
	struct loopback loop, other;
	ceov_ticket ticket, second;
	uint32_t rank;

	loopback_open_turned(&loop, 1, 0);
	loopback_open_beside(&other, &loop);
	ticket = loopback_launch(&loop, 0, POLLED);
	second = loopback_launch(&other, 0, POLLED);
	(void)cei_signal_raise_abort(loop.ready, CEOV_ERR_PEER_LOST, 1);
	ck_assert_int_eq(ceov_abort(loop.context, second), 0);
	ck_assert_int_eq(cei_signal_blame(loop.arrived, &rank), CEOV_ERR_PEER_LOST);
	ck_assert_uint_eq(rank, 1);
	ck_assert_int_eq(cei_signal_blame(other.arrived, &rank), CEOV_ERR_ABORTED);
	ck_assert_uint_eq(rank, CEOV_NOBODY);
	while (ceov_wait(loop.context, ticket, 0) == CEOV_PENDING ||
	       ceov_wait(loop.context, second, 0) == CEOV_PENDING)
		ck_assert_int_ge(ceov_turn(loop.context), 0);
	ck_assert_int_eq(ceov_wait(loop.context, ticket, 0), CEOV_ERR_PEER_LOST);
	ck_assert_int_eq(ceov_wait(loop.context, second, 0), CEOV_ERR_ABORTED);
	loopback_close(&loop);
}
END_TEST

START_TEST(test_an_abort_of_no_signals_does_nothing)
{
	cei_abort_unlocked(NULL, 0, CEOV_ERR_ABORTED, CEOV_NOBODY);
}
END_TEST

/* A thread that holds a lock, as a call does that the driver holds up. */
struct holder {
	pthread_mutex_t *lock;
	pthread_mutex_t  done;          /* held until the abort has returned */
	_Atomic int      has_lock;
	pthread_t        thread;
};

static void *hold_lock(void *arg)
{
	struct holder *holder = arg;

	pthread_mutex_lock(holder->lock);
	holder->has_lock = 1;
	pthread_mutex_lock(&holder->done);
	pthread_mutex_unlock(&holder->done);
	pthread_mutex_unlock(holder->lock);
	return NULL;
}

static void begin_holding(struct holder *holder, pthread_mutex_t *lock)
{
	holder->lock = lock;
	holder->has_lock = 0;
	pthread_mutex_init(&holder->done, NULL);
	pthread_mutex_lock(&holder->done);
	ck_assert_int_eq(pthread_create(&holder->thread, NULL, hold_lock, holder), 0);
	while (!holder->has_lock)
		usleep(100);
}

static void end_holding(struct holder *holder)
{
	pthread_mutex_unlock(&holder->done);
	ck_assert_int_eq(pthread_join(holder->thread, NULL), 0);
	pthread_mutex_destroy(&holder->done);
}

START_TEST(test_an_abort_does_not_wait_for_the_context_for_ever)
{
	struct holder holder;
	struct loopback loop;

	loopback_open(&loop, 1, 0);
	begin_holding(&holder, &loop.context->lock);
	cei_abort_unlocked(&loop.ready, 1, CEOV_ERR_TIMEOUT, 1);
	ck_assert_int_eq(ceov_signal_wait(loop.ready, 0, 1, 0), CEOV_ERR_TIMEOUT);
	end_holding(&holder);
	loopback_close(&loop);
}
END_TEST

/* Of several plans some locks are held; those whose locks are free are still taken along. */
START_TEST(test_an_abort_does_not_wait_for_plans_for_ever)
{
	struct holder holders[2];
	struct loopback loop, other;
	ceov_plan *idle, *more;
	ceov_ticket ticket;

	loopback_open_turned(&loop, 1, 0);
	idle = testing_plan(loop.context, 0);
	more = testing_plan(loop.context, 0);
	loopback_open_beside(&other, &loop);
	replan(&other, loop.ready);
	ticket = loopback_launch(&other, 0, POLLED);
	begin_holding(&holders[0], &idle->lock);
	begin_holding(&holders[1], &more->lock);
	cei_abort_unlocked(&loop.ready, 1, CEOV_ERR_TIMEOUT, 1);
	ck_assert_int_eq(ceov_signal_wait(loop.ready, 0, 1, 0), CEOV_ERR_TIMEOUT);
	ck_assert_int_eq(cei_signal_aborted(other.arrived), CEOV_ERR_TIMEOUT);
	end_holding(&holders[0]);
	end_holding(&holders[1]);
	while (ceov_wait(loop.context, ticket, 0) == CEOV_PENDING)
		ck_assert_int_ge(ceov_turn(loop.context), 0);
	loopback_close(&loop);
}
END_TEST

/* As the call above, for an engine whose launch is late while a thread holds another plan. */
START_TEST(test_a_deadline_does_not_wait_for_plans_for_ever)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch), .deadline_ns = TESTING_MS };
	struct holder holder;
	struct loopback loop;
	ceov_ticket ticket;
	ceov_plan *idle;

	loopback_open(&loop, 1, 0);
	idle = testing_plan(loop.context, 0);
	begin_holding(&holder, &idle->lock);
	ck_assert_int_eq(ceov_launch(loop.plan, &launch, &ticket), 0);
	ck_assert_int_eq(loopback_wait(&loop, ticket), CEOV_ERR_TIMEOUT);
	ck_assert_int_eq(ceov_signal_wait(loop.arrived, 0, 1, TESTING_PATIENCE),
			 CEOV_ERR_TIMEOUT);
	end_holding(&holder);
	loopback_close(&loop);
}
END_TEST

/* A peer that is lost aborts all signals that it shares, and what is in flight with one of them. */
START_TEST(test_a_lost_peer_takes_plans_along)
{
	struct loopback loop, other;
	ceov_ticket ticket;

	loopback_open_turned(&loop, 1, 0);
	loopback_open_beside(&other, &loop);
	ck_assert_int_eq(ceov_signal_share(loop.ready, "ready"), 0);
	ticket = loopback_launch(&loop, 0, POLLED);
	cei_peer_gone(loop.context, 1, 0);
	ck_assert_int_eq(cei_signal_aborted(loop.ready), CEOV_ERR_PEER_LOST);
	ck_assert_int_eq(cei_signal_aborted(loop.arrived), CEOV_ERR_PEER_LOST);
	ck_assert_int_eq(cei_signal_aborted(other.arrived), 0);
	while (ceov_wait(loop.context, ticket, 0) == CEOV_PENDING)
		ck_assert_int_ge(ceov_turn(loop.context), 0);
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
	tcase_add_test(all, test_each_plan_has_the_error_of_its_own_signal);
	tcase_add_test(all, test_an_abort_of_no_signals_does_nothing);
	tcase_add_test(all, test_an_abort_does_not_wait_for_the_context_for_ever);
	tcase_add_test(all, test_an_abort_does_not_wait_for_plans_for_ever);
	tcase_add_test(all, test_a_deadline_does_not_wait_for_plans_for_ever);
	tcase_add_test(all, test_a_lost_peer_takes_plans_along);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
