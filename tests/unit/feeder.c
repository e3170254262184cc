/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Operands and deliveries for the suites of executors. */

#include "feeder.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ops/compute/dtype.h"

enum ceov_dtype feeder_dtype(uint64_t *random)
{
	return testing_below(random, 2) ? CEOV_BF16 : CEOV_FP16;
}

float feeder_widen(enum ceov_dtype dtype, uint16_t number)
{
	float value;

	cei_dtype_widen(dtype, &value, &number, 1);
	return value;
}

uint16_t feeder_narrow(enum ceov_dtype dtype, float value)
{
	uint16_t number;

	cei_dtype_narrow(dtype, &number, &value, 1);
	return number;
}

uint16_t *feeder_nans(uint64_t n)
{
	uint16_t *made = malloc((n + FEEDER_GUARD) * sizeof(*made));

	ck_assert_ptr_nonnull(made);
	memset(made, 0xff, (n + FEEDER_GUARD) * sizeof(*made));
	return made;
}

void feeder_check_guard(const uint16_t *numbers, uint64_t n)
{
	uint32_t i;

	for (i = 0; i < FEEDER_GUARD; i++)
		if (numbers[n + i] != 0xffff)
			ck_abort_msg("number %u past the end was written", i);
}

void *feeder_numbers(enum ceov_dtype dtype, uint64_t n, int are_whole, uint64_t *random)
{
	const uint64_t n_words = cei_dtype_bytes(dtype) / sizeof(uint16_t);
	uint16_t *made = feeder_nans(n * n_words);
	float value;
	uint64_t i;

	for (i = 0; i < n; i++) {
		value = (float)testing_below(random, 1 << 20) / (1 << 19) - 1;
		if (are_whole)
			value = (float)testing_below(random, 7) - 3;
		else if (dtype == CEOV_FP32)
			value /= (float)(1 + testing_below(random, 100));
		cei_dtype_narrow(dtype, made + i * n_words, &value, 1);
	}
	return made;
}

struct delivery *feeder_add(struct feeder *feeder)
{
	ck_assert_uint_lt(feeder->n, FEEDER_MAX);
	memset(&feeder->list[feeder->n], 0, sizeof(feeder->list[0]));
	return &feeder->list[feeder->n++];
}

static void pause_some(uint64_t *random)
{
	struct timespec pause = { 0, (long)testing_below(random, 300000) };

	if (!testing_below(random, 4))
		nanosleep(&pause, NULL);
}

static void deliver(const struct delivery *delivery, uint64_t value)
{
	if (delivery->n_bytes)
		memcpy(delivery->to, delivery->from, delivery->n_bytes);
	ck_assert_int_eq(ceov_signal_raise(delivery->signal, delivery->index, value), 0);
}

static void *feed(void *arg)
{
	struct feeder *feeder = arg;
	struct delivery swapped;
	uint32_t i, j;

	for (i = 0; i < feeder->n; i++) {
		j = i + (uint32_t)testing_below(&feeder->random, feeder->n - i);
		swapped = feeder->list[i];
		feeder->list[i] = feeder->list[j];
		feeder->list[j] = swapped;
		pause_some(&feeder->random);
		deliver(&feeder->list[i], feeder->value);
	}
	ck_assert_int_eq(ceov_signal_raise(feeder->sent, 1, feeder->value), 0);
	pause_some(&feeder->random);
	/* relaxed: readers have seen the raise that follows */
	atomic_store_explicit(&feeder->is_done, 1, memory_order_relaxed);
	ck_assert_int_eq(ceov_signal_raise(feeder->sent, 2, feeder->value), 0);
	return NULL;
}

void feeder_start(struct feeder *feeder, ceov_signal *sent, uint64_t value)
{
	feeder->sent = sent;
	feeder->value = value;
	/* relaxed: the thread does not exist yet */
	atomic_store_explicit(&feeder->is_done, 0, memory_order_relaxed);
	ck_assert_int_eq(pthread_create(&feeder->thread, NULL, feed, feeder), 0);
}

void feeder_finish(struct feeder *feeder)
{
	/* relaxed: see feed() */
	ck_assert_int_eq(atomic_load_explicit(&feeder->is_done, memory_order_relaxed), 1);
	ck_assert_int_eq(pthread_join(feeder->thread, NULL), 0);
}
