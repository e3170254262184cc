/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_OPS_SHAPE_H
#define CEI_OPS_SHAPE_H

/* The sizes of an operator, as its creator set them. */

#include <stdint.h>

#include <ceoverlap/ops.h>

/* Ranks of a group that operators work on: what they keep for each rank is in arrays, and a run
 * signals every other rank. */
#define CEI_OP_RANKS_MAX 64u

/* limits of rows and columns, and of elements: below them all sizes in bytes fit 64 bits */
#define CEI_EXTENT_MAX   (UINT64_C(1) << 31)
#define CEI_ELEMENTS_MAX (UINT64_C(1) << 48)

struct cei_op_kind;                     /* kind.h */

/* The fields of operators with a product; 0 in all others. */
struct cei_product_shape {
	uint32_t n_products;
	uint64_t k;
	uint64_t n[CEOV_OP_GEMMS_MAX];
	int      b_is_k_by_n;           /* see struct ceov_ag_gemm */
};

/* Only for sums: see struct ceov_reduce. */
struct cei_sum_shape {
	uint64_t stride;                /* reduce-scatter only: elements between the begins of two
					 * ranks' parts; 0: parts have no gaps */
	float    scale;                 /* never 0 */
};

/* Only for all-to-all. */
struct cei_move_shape {
	const uint64_t *blocks;         /* all_to_all: n_ranks * n_ranks sizes, as in struct
					 * ceov_move; all_gather: NULL */
};

/* Fields of all operators, and of each family. */
struct cei_op_shape {
	const struct cei_op_kind *kind;
	const char              *fault; /* what is wrong with the caller's struct; NULL: nothing */
	enum ceov_dtype          dtype; /* not used for moves */
	uint32_t                 n_ranks;
	uint64_t                 rows[CEI_OP_RANKS_MAX]; /* products: rows; sums: elements;
							  * moves: bytes of each rank's
							  * largest block */
	struct cei_product_shape product;
	struct cei_sum_shape     sum;
	struct cei_move_shape    move;
};

/* Return how many rows (or elements, or bytes) all ranks have together, the ranks before
 * `rank` have together, and the rank that has most has. */
uint64_t cei_op_all_rows(const struct cei_op_shape *shape);
uint64_t cei_op_rows_before(const struct cei_op_shape *shape, uint32_t rank);
uint64_t cei_op_most_rows(const struct cei_op_shape *shape);

/* Returns a message if the sum of all rows is above max, all are 0, or one is no multiple
 * of step (1 or 8); else NULL. */
const char *cei_op_rows_fault(const struct cei_op_shape *shape, uint64_t max, uint32_t step);

/* Returns a message if dtype is none of enum ceov_dtype, else NULL. */
const char *cei_op_dtype_fault(const struct cei_op_shape *shape);

/* Returns why *_create() and *_scratch_bytes() refuse the shape, or NULL. */
const char *cei_op_shape_fault(const struct cei_op_shape *shape);

/* Copies rows from the caller's struct. If rows is NULL, or n_ranks is 0 or above
 * CEI_OP_RANKS_MAX, the shape stays without ranks, and cei_op_shape_fault() refuses it. */
void cei_op_take_rows(struct cei_op_shape *shape, const uint64_t *rows, uint32_t n_ranks);

#endif /* CEI_OPS_SHAPE_H */
