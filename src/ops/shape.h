/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_OPS_SHAPE_H
#define CEI_OPS_SHAPE_H

/* The sizes of an operator, as its creator set them. */

#include <stdint.h>

#include <ceoverlap/embedding.h>

/* The most ranks of a group in which operators can be used: operators keep arrays with an entry for
 * each rank, and in a run each rank signals every other rank. */
#define CEI_OP_RANKS_MAX 64u

#define CEI_OP_STAGES_MAX 3u            /* of a run: the most launches that it makes */

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

/* Fields of mixtures of experts: see struct ceov_moe. */
struct cei_experts_shape {
	uint64_t hidden;
	uint32_t n_experts;
	uint32_t top_k;
	uint32_t n_groups;              /* never 0 */
	uint64_t capacity;              /* never 0 */
	uint64_t total_capacity;        /* never 0; UINT64_MAX: no limit */
	uint64_t n_received;            /* never 0 */
};

/* Fields of embeddings, for each rank. The samples of a rank are its `rows`. */
struct cei_embedding_shape {
	enum ceov_pooling pooling;
	uint32_t          n_tables[CEI_OP_RANKS_MAX];
	uint64_t          columns[CEI_OP_RANKS_MAX];    /* sum of its tables' dims */
	uint64_t          elements[CEI_OP_RANKS_MAX];   /* sum of its tables' rows * dims */
	/* The caller's arrays with an entry for each table, which an op has only while it is
	 * created. */
	const uint64_t   *dims;
	const uint64_t   *table_rows;
};

/* Fields of products with an all-to-all or an all-reduce, if columns are divided. If rows are
 * divided, all are 0; an all-to-all then has their numbers in `blocks` of the shape, an all-reduce
 * in `rows`. */
struct cei_a2a_shape {
	int      is_by_columns;
	uint64_t rows[CEI_OP_RANKS_MAX];        /* all-to-all: as in the struct of the kind's
						 * creator */
	uint64_t columns[CEI_OP_RANKS_MAX];
};

/* The fields of all operators, and those of each family of operators. */
struct cei_op_shape {
	const struct cei_op_kind *kind;
	const char              *fault; /* what is wrong with the caller's struct; NULL: nothing */
	enum ceov_dtype          dtype; /* moves: of what is measured */
	uint32_t                 n_ranks;
	uint64_t                 rows[CEI_OP_RANKS_MAX]; /* [rank]; products: rows; sums: elements;
							  * moves: bytes of the rank's largest
							  * block; products with an
							  * all-to-all: see a2a.h; with
							  * an all-reduce whose columns
							  * are divided: all rows */
	/* The sizes of the blocks of an all-to-all, in the unit of rows: the block from rank r
	 * to rank t in [r * n_ranks + t]. An op has a copy of its own. NULL: none. */
	const uint64_t          *blocks;
	struct cei_product_shape product;
	struct cei_sum_shape     sum;
	struct cei_experts_shape experts;       /* rows: the most tokens of a rank */
	struct cei_embedding_shape embedding;
	struct cei_a2a_shape     a2a;
};

/* Return how many rows (or elements, or bytes) these have: all ranks together; all ranks before
 * `rank` together; the rank that has most. */
uint64_t cei_op_all_rows(const struct cei_op_shape *shape);
uint64_t cei_op_rows_before(const struct cei_op_shape *shape, uint32_t rank);
uint64_t cei_op_most_rows(const struct cei_op_shape *shape);

/* For shapes with blocks. They return the size of the block from `source` to `target`; where it
 * begins in what the source sends, whose blocks are in the order of targets; and where it begins in
 * what the target receives, in the order of sources. n_ranks as the target of the second function,
 * or as the source of the third one, gives the size of the whole. */
uint64_t cei_op_block(const struct cei_op_shape *shape, uint32_t source, uint32_t target);
uint64_t cei_op_block_leaves(const struct cei_op_shape *shape, uint32_t source,
			     uint32_t target);
uint64_t cei_op_block_arrives(const struct cei_op_shape *shape, uint32_t source,
			      uint32_t target);

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
