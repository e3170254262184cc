/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_OPS_SHAPE_H
#define CEI_OPS_SHAPE_H

/* The sizes of an operator, as its creator gave them. */

#include <stdint.h>

#include <ceoverlap/ops.h>

#include "base/site.h"

/* Sizes whose products, in bytes, still fit 64 bits. */
#define CEI_EXTENT_MAX   (UINT64_C(1) << 31)
#define CEI_ELEMENTS_MAX (UINT64_C(1) << 48)

struct cei_op_kind;                     /* kind.h */

/* Of products alone; zeros in others. */
struct cei_product_shape {
	uint32_t n_products;
	uint64_t k;
	uint64_t n[CEOV_OP_GEMMS_MAX];
	int      b_is_k_by_n;           /* see struct ceov_ag_gemm */
};

/* Of sums alone: see struct ceov_reduce. */
struct cei_sum_shape {
	uint64_t stride;                /* of a reduce-scatter */
	float    scale;                 /* never 0 */
};

/* Of an all-to-all alone. */
struct cei_move_shape {
	const uint64_t *blocks;         /* n_ranks * n_ranks, as in struct ceov_move; NULL in
					 * others */
};

/* What all have, and what each family has besides. */
struct cei_op_shape {
	const struct cei_op_kind *kind;
	const char              *fault; /* of the caller's struct; NULL: none */
	enum ceov_dtype          dtype; /* of moves: none */
	uint32_t                 n_ranks;
	uint64_t                 rows[CEI_RANKS_MAX];   /* of products; of sums elements; of
							 * moves bytes, each rank's largest
							 * block */
	struct cei_product_shape product;
	struct cei_sum_shape     sum;
	struct cei_move_shape    move;
};

/* Rows, or elements, of all ranks, and of those before one. */
uint64_t cei_op_all_rows(const struct cei_op_shape *shape);
uint64_t cei_op_rows_before(const struct cei_op_shape *shape, uint32_t rank);
uint64_t cei_op_most_rows(const struct cei_op_shape *shape);

/* What is refused of rows, or NULL: all together above max, none at all, or one that is no
 * multiple of step, which is 1 or 8. */
const char *cei_op_rows_fault(const struct cei_op_shape *shape, uint64_t max, uint32_t step);

/* NULL, or that dtype is none of the enum. */
const char *cei_op_dtype_fault(const struct cei_op_shape *shape);

/* What create and *_scratch_bytes refuse, or NULL. */
const char *cei_op_shape_fault(const struct cei_op_shape *shape);

/* Rows from the caller's struct. n_ranks above CEI_RANKS_MAX and rows NULL: a fault of
 * the shape, which then has no rank. */
void cei_op_take_rows(struct cei_op_shape *shape, const uint64_t *rows, uint32_t n_ranks);

#endif /* CEI_OPS_SHAPE_H */
