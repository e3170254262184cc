/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* After an abort counters are poisoned, even if others raise them meanwhile: otherwise a
 * thread that waits for a later value would wait for ever. */

#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

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

/* Somebody raises a counter of an aborted signal again and again while a lane still has chunks of
 * the launch, which come back one by one. The poison is written once more when the launch ends,
 * since nobody looks later. */
START_TEST(test_poison_stays_when_the_launch_has_ended)
{
	const struct ceov_plan_options options = {
		.struct_bytes = sizeof(options), .max_chunk_bytes = 64, .mark_group_bytes = 64 };
	struct ceov_transfer transfer;
	_Atomic uint64_t *word;
	ceov_context *context;
	ceov_ticket ticket;
	ceov_signal *then;
	ceov_plan *plan;

	ck_assert_int_eq(setenv("CEOVERLAP_HOST_COPY_DELAY_NS", "5000000", 1), 0);
	context = testing_open_turned(1, NULL);
	then = testing_signal(context, 0, 1);
	word = cei_signal_word(then, 0);
	transfer = testing_transfer(testing_buffer(context, 0, 256),
				    testing_buffer(context, 0, 256), 256);
	transfer.then = testing_mark(then, 0, 1);
	ck_assert_int_eq(ceov_plan_create(context, 0, &options, &plan), 0);
	testing_add(plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	ck_assert_int_eq(ceov_launch(plan, NULL, &ticket), 0);
	ck_assert_int_eq(ceov_turn(context), CEOV_PENDING);
	ck_assert_int_eq(ceov_abort(context, ticket), 0);
	while (ceov_wait(context, ticket, 0) == CEOV_PENDING) {
		atomic_store(word, 1);
		(void)ceov_turn(context);
	}
	ck_assert_uint_eq(atomic_load(word), CEOV_VALUE_LIMIT);
	ck_assert_int_eq(ceov_wait(context, ticket, 0), CEOV_ERR_ABORTED);
	ceov_close(context);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("poison");
	TCase *all = tcase_create("all");

	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_no_raise_covers_an_abort);
	tcase_add_test(all, test_poison_stays_when_the_launch_has_ended);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
