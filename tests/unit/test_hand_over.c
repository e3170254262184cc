/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Bytes pass from a thread to a lane to another thread, ordered by marks alone: all launches are
 * made before the threads that write and read start, so nothing else orders their accesses. If one
 * of the releases or acquires were missing, ThreadSanitizer would report a race here
 * (docs/internals/fences.md). The threads do not assert, because Check would order them.
 */

#include <check.h>
#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "ce_engine/objects/signal.h"
#include "loopback.h"

#define ROUNDS    6u                    /* fewer than a plan may have in flight */
#define PRODUCERS 2u

struct work {
	struct loopback loop;
	ceov_ticket tickets[ROUNDS];
	uint32_t    n_producers;        /* 1: the producer raises the mark; more: each producer
					 * arrives at it */
	uint64_t    seed;
};

struct part {
	struct work *work;
	uint32_t     index;
	int          r;                 /* the first call that failed */
	uint32_t     n_wrong;           /* number of shares with wrong data */
};

static uint64_t seed_of(const struct work *work, uint32_t round, uint32_t index)
{
	return work->seed + round * PRODUCERS + index;
}

/* Writes this producer's share of the source when the launch that last read it has ended. */
static void *produce(void *arg)
{
	struct part *part = arg;
	struct work *work = part->work;
	uint64_t n_bytes = LOOPBACK_BYTES / work->n_producers;
	char *share = (char *)ceov_buffer_base(work->loop.source, 0) + part->index * n_bytes;
	uint32_t k;

	for (k = 0; !part->r && k < ROUNDS; k++) {
		if (k)
			part->r = loopback_wait(&work->loop, work->tickets[k - 1]);
		testing_fill(share, n_bytes, seed_of(work, k, part->index));
		if (!part->r && work->n_producers == 1)
			part->r = ceov_signal_raise(work->loop.ready, 0, k + 1);
		else if (!part->r)
			part->r = ceov_signal_arrive(work->loop.ready, 0, work->n_producers,
						     k + 1);
	}
	return NULL;
}

static void *consume(void *arg)
{
	struct part *part = arg;
	struct work *work = part->work;
	uint64_t n_bytes = LOOPBACK_BYTES / work->n_producers;
	const char *target = ceov_buffer_base(work->loop.target, 1);
	uint32_t i, k;

	for (k = 0; !part->r && k < ROUNDS; k++) {
		part->r = ceov_signal_wait(work->loop.arrived, 0, k + 1, TESTING_PATIENCE);
		for (i = 0; i < work->n_producers; i++)
			part->n_wrong += testing_check(target + i * n_bytes, n_bytes,
						       seed_of(work, k, i)) != n_bytes;
		if (!part->r)
			part->r = ceov_signal_raise(work->loop.free, 0, k + 1);
	}
	return NULL;
}

static void start(pthread_t *thread, void *(*main_of)(void *), struct part *part)
{
	ck_assert_int_eq(pthread_create(thread, NULL, main_of, part), 0);
}

static void end(pthread_t thread, const struct part *part)
{
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_int_eq(part->r, 0);
	ck_assert_uint_eq(part->n_wrong, 0);
}

/* With one producer, the thread writes all bytes and raises the mark; with two, each thread writes
 * half of them and arrives. */
START_TEST(test_marks_alone_order_bytes)
{
	struct work work = { .n_producers = (uint32_t)_i, .seed = testing_seed() };
	struct part parts[PRODUCERS + 1] = { { .work = &work } };
	pthread_t threads[PRODUCERS + 1];
	uint32_t i;

	loopback_open(&work.loop, 1, 0);
	for (i = 0; i < ROUNDS; i++)
		work.tickets[i] = loopback_launch(&work.loop, i, POLLED);
	for (i = 0; i <= work.n_producers; i++) {
		parts[i] = (struct part){ .work = &work, .index = i };
		start(&threads[i], i < work.n_producers ? produce : consume, &parts[i]);
	}
	for (i = 0; i <= work.n_producers; i++)
		end(threads[i], &parts[i]);
	ck_assert_int_eq(loopback_wait(&work.loop, work.tickets[ROUNDS - 1]), 0);
	loopback_close(&work.loop);
}
END_TEST

/* Returns NULL if the name does not appear in time, or is incomplete. */
static void *await_name(void *arg)
{
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);
	struct cei_signal_text text;

	do
		text = cei_signal_text(arg);
	while (!strchr(text.text, '\'') && cei_now_ns() < deadline);
	return strcmp(text.text, "signal 'a name' of rank 0") ? NULL : arg;
}

START_TEST(test_a_signal_is_named_at_once)
{
	ceov_context *context = testing_open(1, NULL);
	ceov_signal *signal = testing_signal(context, 0, 1);
	void *seen = NULL;
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, await_name, signal), 0);
	ck_assert_int_eq(ceov_signal_share(signal, "a name"), 0);
	ck_assert_int_eq(pthread_join(thread, &seen), 0);
	ck_assert_ptr_eq(seen, signal);
	ceov_close(context);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("hand_over");
	TCase *all = tcase_create("all");

	tcase_set_timeout(all, 60);
	tcase_add_loop_test(all, test_marks_alone_order_bytes, 1, PRODUCERS + 1);
	tcase_add_test(all, test_a_signal_is_named_at_once);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
