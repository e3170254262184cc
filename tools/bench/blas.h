/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BENCH_BLAS_H
#define BENCH_BLAS_H

/* Opens cuBLAS at run time and computes bf16 products with it, as frameworks do. */

#include "tools/bench/bench.h"
#include "tools/bench/values.h"

struct bench_blas;

/* Opens cuBLAS; path NULL: searches for it. CEOV_NONE: not available, and *ret_why says why.
 * Products are queued on the main stream. Nothing is allocated after this call, so that they can be
 * captured. */
int  bench_blas_open(struct bench_rank *rank, const char *path,
		     struct bench_blas **ret_blas, const char **ret_why);
void bench_blas_close(struct bench_blas *blas);
int  bench_blas_multiply(struct bench_blas *blas, const struct bench_product *product);

#endif /* BENCH_BLAS_H */
