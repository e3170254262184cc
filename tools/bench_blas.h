/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BENCH_BLAS_H
#define BENCH_BLAS_H

/* cuBLAS, opened at run time: bf16 products as frameworks compute them. */

#include "bench.h"
#include "bench_values.h"

struct bench_blas;

/* CEOV_NONE: not there, and *ret_why says why. path NULL: searched. It works on the
 * main stream, and allocates nothing after this: its calls can be captured. */
int  bench_blas_open(struct bench_rank *rank, const char *path,
		     struct bench_blas **ret_blas, const char **ret_why);
void bench_blas_close(struct bench_blas *blas);
int  bench_blas_multiply(struct bench_blas *blas, const struct bench_product *product);

#endif /* BENCH_BLAS_H */
