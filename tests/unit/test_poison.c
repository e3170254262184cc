/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* After an abort counters are poisoned, even if others raise them meanwhile: otherwise a
 * thread that waits for a later value would wait for ever. */

#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "ce_engine/objects/abort.h"
#include "ce_engine/objects/signal.h"
#include "testing.h"

#define ROUNDS   UINT64_C(100000)
#define TRIES_NS TESTING_SECOND         /* no new round begins after this time */

struct fight {
	ceov_signal     *signal;
	_Atomic uint64_t round;         /* the newest round that began; 0: none */
	_Atomic uint64_t aborted;       /* the newest round whose abort is complete */
	_Atomic int      is_over;
};

/* Thread function: aborts in each round after a random delay. */
static void *abort_rounds(void *arg)
{
	struct fight *fight = arg;
	uint64_t random = testing_seed(), done = 0, round, i;

	while (!atomic_load(&fight->is_over)) {
		round = atomic_load(&fight->round);
		if (round == done) {
			sched_yield();
			continue;
		}
		for (i = testing_below(&random, 40); i; i--)
			cei_relax();
		cei_abort_unlocked(&fight->signal, 1, CEOV_ERR_ABORTED, CEOV_NOBODY);
		done = round;
		atomic_store(&fight->aborted, done);
	}
	return NULL;
}

/* Raises until a raise reports the abort, which must then be complete, or soon be. */
static void fight_once(struct fight *fight, uint64_t round)
{
	uint64_t value = 0, k = 0;

	atomic_store(&fight->round, round);
	while (!ceov_signal_raise(fight->signal, 0, ++k))
		;
	while (atomic_load(&fight->aborted) != round)
		sched_yield();
	ck_assert_int_eq(ceov_signal_value(fight->signal, 0, &value), 0);
	ck_assert_msg(value == CEOV_VALUE_LIMIT, "round %llu: the abort is covered by %llu",
		      (unsigned long long)round, (unsigned long long)value);
	ck_assert_int_eq(ceov_signal_renew(fight->signal), 0);
}

START_TEST(test_no_raise_covers_an_abort)
{
	ceov_context *context = testing_open(1, NULL);
	struct fight fight = { .signal = testing_signal(context, 0, 1) };
	uint64_t deadline = cei_deadline(TRIES_NS), round;
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, abort_rounds, &fight), 0);
	for (round = 1; round <= ROUNDS && cei_now_ns() < deadline; round++)
		fight_once(&fight, round);
	atomic_store(&fight.is_over, 1);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ceov_close(context);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("poison");
	TCase *all = tcase_create("all");

	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_no_raise_covers_an_abort);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
