/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_A2A_H
#define CEI_A2A_H

/*
 * What a GEMM + all-to-all and an all-to-all + GEMM share: their shapes. A GEMM + all-reduce whose
 * columns are divided uses the sizes of columns and their sums, too. The blocks that ranks
 * send each other are either rows, as many as shape->blocks says for each pair of ranks, or, where
 * columns are divided, rows and columns of which each depends on one of the two ranks (struct
 * cei_a2a_shape). What the cost model reads of the shape (rows, n and k) are the sizes of the
 * largest blocks, so all ranks choose the same, unless their k or n differ (ops.h, WORDS).
 */

#include <stdint.h>

#include <ceoverlap/ops.h>

#include "ops/shape.h"

struct cei_choice;                      /* selector.h */
struct cei_choose_args;

/* What the caller's struct says, of either kind: either rows_of, or rows and columns. */
struct cei_a2a_from {
	enum ceov_dtype dtype;
	const uint64_t *rows_of;
	const uint64_t *rows;
	const uint64_t *columns;
	uint64_t        k;
	uint64_t        n;
	int             b_is_k_by_n;
};

/* Takes it into the shape. shape->rows is left for the kind to fill. Sets shape->fault if the wrong
 * arrays are given. Returns 0 if there is nothing to fill, because n_ranks or the arrays are not
 * valid. */
int cei_a2a_take(struct cei_op_shape *shape, const struct cei_a2a_from *from,
		      uint32_t n_ranks);

/* Returns why the blocks are refused, or the product, or NULL. */
const char *cei_a2a_fault(const struct cei_op_shape *shape);

/* Returns the sum of the first n numbers, and the largest of n. */
uint64_t cei_a2a_sum(const uint64_t *numbers, uint32_t n);
uint64_t cei_a2a_most(const uint64_t *numbers, uint32_t n);

/* The function `explain` of both kinds. */
void cei_a2a_explain(const struct cei_choose_args *args, struct cei_choice *choice);

#endif /* CEI_A2A_H */
