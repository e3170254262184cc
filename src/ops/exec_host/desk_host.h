/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DESK_HOST_H
#define CEI_DESK_HOST_H

/* The GEMM of the host's executor: one tile's operands as floats, and its sums. For one job
 * and one thread at a time. */

#include <stdint.h>

#include "ops/compute/executor.h"

struct cei_desk {
	float   *a;                     /* the tile's rows of A, some of k */
	float   *b;                     /* panels of a few columns of C, likewise */
	float   *sum;                   /* row by row of the tile */
	float   *row;                   /* scratch for one row of the tile's C */
	uint64_t n_columns;             /* of the last tile */
};

/* Allocates for the job's largest possible tile. After NO_MEMORY call cei_desk_fini(), too. */
int    cei_desk_init(struct cei_desk *desk, const struct cei_gemm_job *job);
void   cei_desk_fini(struct cei_desk *desk);

/* Computes the tile in fp32: each sum adds products in the order of k, for either layout of
 * B. The tile must lie within its matrices. */
void   cei_desk_multiply(struct cei_desk *desk, const struct cei_gemm_job *job,
			 const struct cei_gemm_tile *tile);

/* Row `row` of the last tile, n_columns floats. */
float *cei_desk_sum(const struct cei_desk *desk, uint64_t row);

/* The address of an element, to be read, or written in C. */
char  *cei_matrix_at(const struct cei_matrix *matrix, uint64_t row, uint64_t column);

#endif /* CEI_DESK_HOST_H */
