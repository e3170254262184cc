/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_OPS_SHAPE_H
#define CEI_OPS_SHAPE_H

/* The sizes of an operator, as its creator set them. */

#include <stdint.h>

#include <ceoverlap/ops.h>

/* The most ranks of a group in which operators can be used: operators keep arrays with an entry for
 * each rank, and in a run each rank signals every other rank. */
#define CEI_OP_RANKS_MAX 64u

/* Limits of rows and columns, and of elements. Below them all sizes in bytes fit 64 bits. */
#define CEI_EXTENT_MAX   (UINT64_C(1) << 31)
#define CEI_ELEMENTS_MAX (UINT64_C(1) << 48)

struct cei_op_kind;                     /* kind.h */

/* Fields of operators with a product. For all other operators they are 0. */
struct cei_product_shape {
	uint32_t n_products;
	uint64_t k;
	uint64_t n[CEOV_OP_GEMMS_MAX];
	int      b_is_k_by_n;           /* see struct ceov_ag_gemm */
};

/* Fields of sums: see struct ceov_reduce. */
struct cei_sum_shape {
	uint64_t stride;                /* reduce-scatter only: elements from the beginning of one
					 * rank's part to that of the next; 0: no gaps between
					 * parts */
	float    scale;                 /* never 0 */
	uint32_t by_node;               /* 0 or 1 */
};

/* Fields of moves. */
struct cei_move_shape {
	const uint64_t *blocks;         /* all-to-all: n_ranks * n_ranks sizes, as in struct
					 * ceov_move; all-gather: NULL */
};

/* The fields of all operators, and those of each family of operators. */
struct cei_op_shape {
	const struct cei_op_kind *kind;
	const char              *fault; /* what is wrong with the caller's struct; NULL: nothing */
	enum ceov_dtype          dtype; /* not used for moves */
	uint32_t                 n_ranks;
	uint64_t                 rows[CEI_OP_RANKS_MAX]; /* [rank]; products: rows; sums: elements;
							  * moves: bytes of the rank's largest
							  * block */
	struct cei_product_shape product;
	struct cei_sum_shape     sum;
	struct cei_move_shape    move;
};

/* Return how many rows (or elements, or bytes) these have: all ranks together; all ranks before
 * `rank` together; the rank that has most. */
uint64_t cei_op_all_rows(const struct cei_op_shape *shape);
uint64_t cei_op_rows_before(const struct cei_op_shape *shape, uint32_t rank);
uint64_t cei_op_most_rows(const struct cei_op_shape *shape);

/* Returns a message if the sum of all rows is above max, if all ranks have 0, or if some rank's
 * number is no multiple of step (1 or 8); else NULL. */
const char *cei_op_rows_fault(const struct cei_op_shape *shape, uint64_t max, uint32_t step);

/* Returns a message if dtype is no value of enum ceov_dtype, else NULL. */
const char *cei_op_dtype_fault(const struct cei_op_shape *shape);

/* Returns why *_create() and *_scratch_bytes() refuse the shape, or NULL. */
const char *cei_op_shape_fault(const struct cei_op_shape *shape);

/* Copies the numbers of rows from the caller's struct. If rows is NULL, or n_ranks is 0 or above
 * CEI_OP_RANKS_MAX, n_ranks of the shape stays 0, and cei_op_shape_fault() refuses the shape. */
void cei_op_take_rows(struct cei_op_shape *shape, const uint64_t *rows, uint32_t n_ranks);

#endif /* CEI_OPS_SHAPE_H */
