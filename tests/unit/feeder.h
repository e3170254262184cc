/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_FEEDER_H
#define CEI_FEEDER_H

/*
 * Helpers of the executors' suites: operands of any type, and a thread that delivers what a job
 * waits for, in any order and late. Asserts with Check.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include <ceoverlap/ops.h>

#include "testing.h"

#define FEEDER_GUARD 16u                /* numbers behind each array that must stay untouched */
#define FEEDER_MAX   64u                /* largest number of deliveries */
#define FEEDER_SENT  3u                 /* counters of the signal `sent`, which tells what was
					 * sent */

/* Chooses bf16 or fp16, the types of products, at random. */
enum ceov_dtype feeder_dtype(uint64_t *random);
float    feeder_widen(enum ceov_dtype dtype, uint16_t number);
uint16_t feeder_narrow(enum ceov_dtype dtype, float value);

/* Allocates n 16-bit words that are NaN as bf16 and fp16, and in pairs as fp32, followed by
 * the guard. The caller frees them. */
uint16_t *feeder_nans(uint64_t n);
void      feeder_check_guard(const uint16_t *numbers, uint64_t n);

/* Allocates n numbers from -1 to 1, for which fp32 sums round, or whole numbers, whose sums are
 * exact in fp32. The guard follows them. */
void *feeder_numbers(enum ceov_dtype dtype, uint64_t n, int are_whole, uint64_t *random);

struct delivery {                       /* bytes are copied, then a mark is raised */
	void        *to;
	const void  *from;
	uint64_t     n_bytes;           /* 0: only the mark is raised */
	ceov_signal *signal;
	uint32_t     index;
};

struct feeder {
	struct delivery list[FEEDER_MAX];
	uint32_t        n;
	ceov_signal    *sent;
	uint64_t        value;
	uint64_t        random;         /* state of the random numbers, seeded by the test */
	_Atomic int     is_done;        /* the last delivery was made */
	pthread_t       thread;
};

/* Adds a delivery, which the caller fills in. */
struct delivery *feeder_add(struct feeder *feeder);

/* Starts a thread that makes all deliveries, and then raises counters 1 and 2 of sent. */
void feeder_start(struct feeder *feeder, ceov_signal *sent, uint64_t value);

/* Asserts that all deliveries were made before this call. */
void feeder_finish(struct feeder *feeder);

#endif /* CEI_FEEDER_H */
