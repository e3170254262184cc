/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_HOST_GEMM_H
#define CEI_HOST_GEMM_H

/* The GEMM of the host's executor. A struct cei_host_gemm is its working memory: operands of one
 * tile for some steps of k, as floats, and the tile's sums. It is used for one job, by one thread
 * at a time. */

#include <stdint.h>

#include "ops/compute/executor.h"

struct cei_host_gemm {
	float   *a;                     /* the tile's rows of A, for some steps of k */
	float   *b;                     /* the tile's part of B for the same steps, in panels of a
					 * few columns */
	float   *sum;                   /* the sums of the tile, row by row */
	float   *row;                   /* scratch for one row of the tile's C */
	uint64_t n_columns;             /* columns of the last tile that was computed */
};

/* Allocates memory for the largest tile that the job can have. After CEOV_ERR_NO_MEMORY call
 * cei_host_gemm_fini(), too. */
int    cei_host_gemm_init(struct cei_host_gemm *gemm, const struct cei_gemm_job *job);
void   cei_host_gemm_fini(struct cei_host_gemm *gemm);

/* Computes a tile in fp32. Each sum adds its products in the order of k, whichever layout B has.
 * The tile must lie within its matrices. */
void   cei_host_gemm_multiply(struct cei_host_gemm *gemm, const struct cei_gemm_job *job,
			      const struct cei_gemm_tile *tile);

/* Returns the sums of row `row` of the last tile: n_columns floats. */
float *cei_host_gemm_sum(const struct cei_host_gemm *gemm, uint64_t row);

/* Returns the address of an element of a matrix. Only elements of C may be written. */
char  *cei_matrix_at(const struct cei_matrix *matrix, uint64_t row, uint64_t column);

#endif /* CEI_HOST_GEMM_H */
