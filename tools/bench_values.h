/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BENCH_VALUES_H
#define BENCH_VALUES_H

/* bf16 operands generated from seeds, comparison of results, and products: the
 * implementation on host memory, and the arguments that GPUs get, too. */

#include <stdint.h>

enum bench_values_kind {                /* as enum cei_kernel_fill_kind */
	BENCH_VALUES_BF16,
	BENCH_VALUES_FLOAT,
	BENCH_VALUES_ADD
};

struct bench_values {
	void                  *at;
	uint64_t               n;
	uint64_t               seed;
	uint64_t               first;   /* number of the first value */
	enum bench_values_kind kind;
};

struct bench_compare {
	const void *x;                  /* bf16 */
	const void *y;                  /* bf16, or float */
	uint64_t    n;
	int         y_is_float;
	double      difference;         /* out: largest |x - y|; NaN where there is one */
	double      largest;            /* out: largest |y| */
	uint64_t    n_unlike;           /* number of values that differ in any bit, as bf16 */
};

/* C = A B^T, or C += A B^T. A is m x k, B n x k, both bf16. With b_is_k_by_n A B. */
struct bench_product {
	const void *a;
	const void *b;
	void       *c;                  /* m x n */
	uint64_t    m;
	uint64_t    n;
	uint64_t    k;
	int         c_is_float;         /* c is float; else bf16, which cannot accumulate */
	int         adds;
	int         b_is_k_by_n;
};

void bench_host_values(const struct bench_values *values);
void bench_host_compare(struct bench_compare *compare);
void bench_host_multiply(const struct bench_product *product);  /* c is float */

#endif /* BENCH_VALUES_H */
