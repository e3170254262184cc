/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DESK_HOST_H
#define CEI_DESK_HOST_H

/* Where the host's executor multiplies: one tile's operands as floats, and its sums. Of
 * one job and one thread at a time. */

#include <stdint.h>

#include "ops/compute/executor.h"

struct cei_desk {
	float   *a;                     /* the tile's rows of A, some of k */
	float   *b;                     /* panels of a few columns of C, likewise */
	float   *sum;                   /* row by row of the tile */
	float   *row;                   /* room for any row of the tile's C */
	uint64_t n_columns;             /* of the tile that was multiplied last */
};

/* For the largest tile that the job's matrices can hold. NO_MEMORY leaves it half done,
 * for cei_desk_fini(). */
int    cei_desk_init(struct cei_desk *desk, const struct cei_gemm_job *job);
void   cei_desk_fini(struct cei_desk *desk);

/* The tile's product in fp32: each sum adds its products in the order of k, whichever
 * way B lies. The tile lies within its matrices. */
void   cei_desk_multiply(struct cei_desk *desk, const struct cei_gemm_job *job,
			 const struct cei_gemm_tile *tile);

/* A row of the last product, n_columns floats; counted from the tile's first. */
float *cei_desk_sum(const struct cei_desk *desk, uint64_t row);

/* An element's place, to be read, or in a C to be written. */
char  *cei_matrix_at(const struct cei_matrix *matrix, uint64_t row, uint64_t column);

#endif /* CEI_DESK_HOST_H */
