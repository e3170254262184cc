/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BENCH_VALUES_H
#define BENCH_VALUES_H

/* Generates bf16 operands from seeds, compares results and computes products on host memory. The
 * GPU implementations take the same arguments. */

#include <stdint.h>

enum bench_values_kind {                /* same values as enum cei_kernel_fill_kind */
	BENCH_VALUES_BF16,
	BENCH_VALUES_FLOAT,
	BENCH_VALUES_ADD
};

struct bench_values {
	void                  *at;
	uint64_t               n;
	uint64_t               seed;
	uint64_t               first;   /* index of the first value in the whole matrix */
	enum bench_values_kind kind;
};

struct bench_compare {
	const void *x;                  /* bf16 */
	const void *y;                  /* bf16, or float */
	uint64_t    n;
	int         y_is_float;
	double      difference;         /* result: largest |x - y|; NaN if any difference is NaN */
	double      largest;            /* result: largest |y| */
	uint64_t    n_unlike;           /* result: values whose bf16 bits differ */
};

/* Computes C = A B^T, or with `adds` C += A B^T. A is m x k and B is n x k, both bf16. With
 * b_is_k_by_n B is k x n, and the product is A B. */
struct bench_product {
	const void *a;
	const void *b;
	void       *c;                  /* m x n */
	uint64_t    m;
	uint64_t    n;
	uint64_t    k;
	int         c_is_float;         /* else bf16, which cannot be added to */
	int         adds;
	int         b_is_k_by_n;
};

void bench_host_values(const struct bench_values *values);
void bench_host_compare(struct bench_compare *compare);
void bench_host_multiply(const struct bench_product *product);  /* c must be float */

#endif /* BENCH_VALUES_H */
