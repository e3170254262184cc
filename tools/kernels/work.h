/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_WORK_H
#define CEI_WORK_H

/*
 * The parameters of the kernels of tools and tests, for the host that launches them and the
 * device code. Plain C.
 *
 *   cei_kernel_raise         (struct cei_kernel_raise)         n * n_tiles blocks
 *   cei_kernel_await         (struct cei_kernel_await)         one block
 *   cei_kernel_pingpong      (struct cei_kernel_pingpong)      one block, one thread
 *   cei_kernel_spin          (stop_word, timeout_ns, n_started) any grid
 *   cei_kernel_fill          (p, n_words, seed)                any grid
 *   cei_kernel_verify        (p, n_words, seed, n_wrong, first_wrong)  any grid
 *   cei_kernel_fill_rows     (struct cei_kernel_rows)          any grid
 *   cei_kernel_verify_rows   (struct cei_kernel_rows)          any grid
 *   cei_kernel_consume       (struct cei_kernel_consume)       blocks that fit at once
 *   cei_kernel_arrive        (struct cei_kernel_arrive)        any grid
 *   cei_kernel_produce       (struct cei_kernel_produce)       any grid
 *   cei_kernel_produce_rounds (struct cei_kernel_rounds)       blocks that fit at once
 *   cei_kernel_consume_rounds (struct cei_kernel_rounds)       blocks that fit at once
 *   cei_kernel_compare_bf16  (struct cei_kernel_compare_bf16)  any grid
 *   cei_kernel_reference     (struct cei_kernel_reference)     any grid
 *   cei_kernel_compare_near  (struct cei_kernel_near)          any grid
 *
 * Word i of the pattern is a hash of seed + i; in rows with gaps i does not count the gaps.
 * Kernels add to *n_wrong and lower *first_wrong: begin with 0 and UINT64_MAX. A status is
 * an enum ceov_device_result, of which the largest of all awaits is kept: begin with 0.
 *
 * n_wrong, first_wrong, n_started and all statuses but pingpong's must be in GPU memory,
 * because GPUs do no atomics on host memory. stop_word must be there, too: blocks that poll
 * host memory slow all copies of their GPU (590 us for 64 KiB, measured with one poller per
 * SM).
 */

#include <stdint.h>

#include <ceoverlap/ceoverlap.h>
#include <ceoverlap/ops.h>

struct cei_module_image;                /* kernels/module.h */

/* These kernels, for cei_module_open(). */
extern const struct cei_module_image cei_work_kernels;

struct cei_kernel_raise {
	struct ceov_device_signal signal;
	uint32_t                  first;        /* counters first to first + n - 1 */
	uint32_t                  n;
	uint32_t                  n_tiles;      /* blocks that arrive at each */
	uint64_t                  value;
};

struct cei_kernel_await {
	struct ceov_device_signal signal;
	uint32_t                  first;
	uint32_t                  n;
	uint64_t                  value;
	uint64_t                  timeout_ns;   /* of each */
	uint32_t                 *ret_status;
};

/* One kernel raises first_value + i and then awaits it from the other; the peer's kernel
 * (is_second) awaits first. */
struct cei_kernel_pingpong {
	struct ceov_device_signal raise_signal;
	struct ceov_device_signal await_signal;
	uint32_t                  raise_index;
	uint32_t                  await_index;
	uint64_t                  first_value;
	uint32_t                  n_rounds;
	uint32_t                  is_second;
	uint64_t                  timeout_ns;   /* of each await */
	uint64_t                 *ret_ns;       /* n_rounds times by %globaltimer, which may tick
						 * in microseconds */
	uint32_t                 *ret_status;   /* not 0: it ended early */
};

struct cei_kernel_rows {
	uint64_t           *p;
	uint64_t            n_rows;
	uint64_t            row_words;
	uint64_t            pitch_words;
	uint64_t            seed;
	unsigned long long *n_wrong;            /* used by verify only */
	unsigned long long *first_wrong;        /* index of the first wrong word, not counting
						 * gaps */
};

/* Every block awaits the mark, then checks its part of the words. */
struct cei_kernel_consume {
	struct ceov_device_signal signal;
	uint32_t                  index;
	uint64_t                  value;
	uint64_t                  timeout_ns;
	const uint64_t           *p;
	uint64_t                  n_words;
	uint64_t                  seed;
	unsigned long long       *n_wrong;
	unsigned long long       *first_wrong;
	uint32_t                 *ret_status;
};

/* Makes n_arrivals of the n_tiles arrivals after which the counter is raised. */
struct cei_kernel_arrive {
	struct ceov_device_signal signal;
	uint32_t                  index;
	uint32_t                  n_tiles;
	uint32_t                  n_arrivals;
	uint64_t                  value;
};

/* A producer like those of operators: stores pieces tile by tile, and arrives after each
 * tile. Pieces have different numbers of tiles. */
struct cei_kernel_produce {
	struct ceov_device_signal signal;
	uint64_t                 *p;            /* n_pieces * n_words */
	uint64_t                  n_words;      /* words of each piece */
	uint64_t                  seed;         /* seed of the pattern, which runs on over all
						 * pieces */
	uint32_t                  n_pieces;     /* piece i raises counter i */
	uint32_t                  n_tiles;      /* piece i has n_tiles + i tiles */
	uint64_t                  value;
};

/*
 * A producer and a consumer kernel, each of which runs for n_rounds rounds and uses the
 * slots in turn. Round r uses slot s = r % n_slots for the t-th time, t = r / n_slots
 * counted from 0:
 *
 *   producer   awaits counter s of await_signal at t     (whoever had it is done),
 *              stores the round's pattern, arrives at counter s of raise_signal: t + 1
 *   consumer   awaits counter s of await_signal at t + 1 (the bytes are there),
 *              checks them, arrives at counter s of raise_signal: t + 1
 *
 * Both add first_value to every value. A block ends early if an await does not return
 * REACHED.
 */
struct cei_kernel_rounds {
	struct ceov_device_signal await_signal;
	struct ceov_device_signal raise_signal;
	uint64_t                 *p;            /* n_slots * slot_words */
	uint64_t                  slot_words;
	uint32_t                  n_slots;
	uint32_t                  n_rounds;
	uint64_t                  first_value;
	uint64_t                  seed;         /* round r's: seed + r * slot_words */
	uint64_t                  timeout_ns;   /* of each await */
	unsigned long long       *n_wrong;      /* consumer only */
	unsigned long long       *first_wrong;  /* likewise; r * slot_words + word */
	uint32_t                 *ret_status;
};

/* The results are in GPU memory and must begin with 0. ret_n_unlike is added to. The others
 * are raised to the largest value, as float bits, which order as integers do; a NaN is
 * larger than all. */
struct cei_kernel_compare_bf16 {
	const void         *x;                  /* bf16 */
	const void         *y;                  /* bf16, or float */
	uint64_t            n;
	uint32_t            y_is_float;
	uint32_t           *ret_difference;     /* |x - y| */
	uint32_t           *ret_largest;        /* |y| */
	unsigned long long *ret_n_unlike;       /* how many numbers differ in any bit, as bf16 */
};

/*
 * Computes what results of operators are compared with, one thread for each element,
 * directly from the definition; and how far off a result may be. For each element, row by
 * row of n:
 *
 *   sum   = A B^T, or A's own number where b is NULL
 *   slack = rounding * |sum| + accumulation * (the sum of its products' sizes)
 *
 * sum is multiplied by scale, and slack by |scale|, before they are stored, or added to
 * what is there. Rows have no gaps and begin at multiples of 16 bytes.
 */
struct cei_kernel_reference {
	const void *a;                          /* n_rows x k; without b: n_rows x n */
	const void *b;                          /* n x k or k x n, not fp32; or NULL */
	uint64_t    n_rows;
	uint64_t    n;
	uint64_t    k;                          /* a multiple of 8 */
	double     *sum;                        /* n_rows x n, as is slack */
	float      *slack;
	uint32_t    dtype;                      /* enum ceov_dtype: of a and b */
	uint32_t    adds;                       /* 1: adds to what sum and slack hold */
	uint32_t    b_is_k_by_n;                /* 1: k x n */
	float       rounding;
	float       accumulation;
	float       scale;                      /* 1: none */
};

/* A result is wrong where |x - sum| > slack + least + rounding * (|sum| + slack), or
 * where it is a NaN. */
struct cei_kernel_near {
	const void         *x;
	const double       *sum;
	const float        *slack;
	uint64_t            n;
	uint32_t            dtype;              /* of x */
	float               rounding;
	float               least;
	unsigned long long *n_wrong;
	unsigned long long *first_wrong;
};

#endif /* CEI_WORK_H */
