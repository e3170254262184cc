/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_FEEDER_H
#define CEI_FEEDER_H

/*
 * For the suites of executors: operands of any type, and a thread that delivers
 * what a job waits for, in any order and late. Asserts with Check.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include <ceoverlap/ops.h>

#include "testing.h"

#define FEEDER_GUARD 16u                /* numbers behind an array that nobody writes */
#define FEEDER_MAX   64u                /* deliveries */
#define FEEDER_SENT  3u                 /* counters of a signal of what was sent */

/* bf16 or fp16, as products take them. */
enum ceov_dtype feeder_dtype(uint64_t *random);
float    feeder_widen(enum ceov_dtype dtype, uint16_t number);
uint16_t feeder_narrow(enum ceov_dtype dtype, float value);

/* n words that are NaN in bf16 and fp16, and two of them in fp32, to be freed; the guard
 * behind them. */
uint16_t *feeder_nans(uint64_t n);
void      feeder_check_guard(const uint16_t *numbers, uint64_t n);

/* n numbers from -1 to 1, in fp32 such that sums round; or whole ones, whose sums are
 * exact in fp32. The guard behind them. */
void *feeder_numbers(enum ceov_dtype dtype, uint64_t n, int are_whole, uint64_t *random);

struct delivery {                       /* copied, then raised */
	void        *to;
	const void  *from;
	uint64_t     n_bytes;           /* 0: only raised */
	ceov_signal *signal;
	uint32_t     index;
};

struct feeder {
	struct delivery list[FEEDER_MAX];
	uint32_t        n;
	ceov_signal    *sent;
	uint64_t        value;
	uint64_t        random;         /* the state: set by the test */
	_Atomic int     is_done;        /* the last was raised */
	pthread_t       thread;
};

/* One more, to be filled in. */
struct delivery *feeder_add(struct feeder *feeder);

/* Delivers all, and raises counters 1 and 2 of sent last of all. */
void feeder_start(struct feeder *feeder, ceov_signal *sent, uint64_t value);

/* Asserts that all was delivered before the call. */
void feeder_finish(struct feeder *feeder);

#endif /* CEI_FEEDER_H */
