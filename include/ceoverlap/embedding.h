/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEOVERLAP_EMBEDDING_H
#define CEOVERLAP_EMBEDDING_H

/*
 * Embedding bags + all-to-all, as recommendation models (DLRM) have them: tables are distributed
 * over the ranks, each of which looks up bags of its own tables for the batch of all ranks; pooled
 * vectors go to the rank that has the sample. What ops.h says of all operators holds here, too.
 *
 *   forward    bags of the own tables -> pooled [own samples][all columns]
 *   backward   grads [own samples][all columns] -> of the own tables, for all samples, the
 *              gradient of each bag and of each row that was looked up
 *
 * BATCH    The samples of all ranks are numbered in the order of ranks: rank r has the next
 *          samples[r]; 0 is allowed, and nothing has to be divisible.
 * TABLES   All tables are numbered in the order of ranks: rank r has the next n_local[r]; 0 is
 *          allowed. The columns of pooled vectors are those of table 0, then of table 1, and so on,
 *          dims[t] of each. Where all dims are equal, a row is [all tables][dim].
 * BAGS     A bag is the indices of one table for one sample. Bag t * (samples of all ranks) + s is
 *          that of the rank's own table t, counted from 0, and sample s. It has indices[offsets[i]]
 *          to indices[offsets[i + 1] - 1] and may be empty; then its vector is 0.
 * ORDER    Sums are made in fp32 in the order of a bag's indices and rounded once: the same bags
 *          give the same bits.
 * CHECKS   Offsets that fall, or reach past n_indices, and indices that are no row of their table
 *          are found before anything is looked up, and end the run with CEOV_ERR_INVALID. In
 *          workspaces that are not capturable, a forward run then ends at all ranks: what was
 *          looked up is not sent. In capturable ones, where the engine takes no part, peers get
 *          undefined vectors, and their runs end once this rank has seen the error
 *          (ceov_workspace_status(), or its next run).
 */

#include <ceoverlap/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

enum ceov_pooling {
	CEOV_POOL_SUM = 1,
	CEOV_POOL_MEAN = 2              /* the sum divided by the number of indices */
};

/* The same at all ranks. */
struct ceov_embedding {
	size_t                       struct_bytes;
	enum ceov_dtype              dtype;     /* of tables, pooled vectors and gradients */
	enum ceov_pooling            pooling;
	const uint64_t              *samples;   /* [n_ranks] */
	const uint32_t              *n_local;   /* [n_ranks]: tables of each rank; their sum is 1 to
						 * 65536 */
	const uint64_t              *dims;      /* [all tables]: columns, multiples of 8; their sum
						 * is at most 2^28 */
	const uint64_t              *rows;      /* [all tables]: rows, at least 1 */
	const struct ceov_op_tuning *tuning;    /* n_pieces: into how many pieces a rank cuts what
						 * it sends to another one; a mode of
						 * CEOV_MODE_SEQUENCE looks up everything before
						 * anything is sent. An unequal cut is refused.
						 * NULL: the library chooses */
};

#define CEOV_EMBEDDING_INIT CEOV_SIZED(struct ceov_embedding)

/* The bags of the own tables for the samples of all ranks. All memory is of the rank's place. */
struct ceov_embedding_bags {
	uint64_t       n_indices;       /* how many indices there is room for; offsets may reach
					 * less far */
	const int64_t *indices;         /* [n_indices], rows of tables */
	const int64_t *offsets;         /* [n_local * all samples + 1]; rank without tables: not
					 * read */
	const float   *weights;         /* [n_indices], by which rows are multiplied. NULL: all are
					 * 1. Must be NULL if means are made */
};

/* 0: the create function would refuse these arguments. */
uint64_t ceov_embedding_a2a_scratch_bytes(const struct ceov_embedding *shape, uint32_t n_ranks);

/* Creates the op for embedding bags + all-to-all of this shape, in a workspace that is
 * connected. It is released by ceov_op_release(). */
int  ceov_embedding_a2a_create(ceov_workspace *workspace, const struct ceov_embedding *shape,
			       ceov_op **ret_op);

struct ceov_embedding_a2a_run {
	size_t                     struct_bytes;
	void                      *stream;      /* as in struct ceov_ag_gemm_run */
	const void                *tables;      /* the own tables one behind the other, without
						 * gaps, each [rows][dim] */
	struct ceov_embedding_bags bags;
	void                      *pooled;      /* [own samples][all columns] */
};

#define CEOV_EMBEDDING_A2A_RUN_INIT CEOV_SIZED(struct ceov_embedding_a2a_run)

/* Makes one run of the op, in the order of run->stream. */
int  ceov_embedding_a2a_run(ceov_op *op, const struct ceov_embedding_a2a_run *run);

/*
 * The backward makes two forms of a table's gradient, of which the caller takes one or both.
 * Neither is as large as the table, as a dense gradient would be:
 *
 *   bag_grads  the gradients of pooled vectors as they come, in the order of all samples: for
 *              optimizers that are fused with the look-up of rows
 *   row_grads  the values of a sparse gradient, whose indices are the bags': row_grads[i] is the
 *              gradient of the row indices[i], the bag's gradient times the index's weight, or
 *              divided by the number of indices. Rows that occur several times are not added up;
 *              whoever does so chooses the order. Each value is written once, so the bits are the
 *              same in every run
 *
 * Gradients of weights are the caller's.
 */
uint64_t ceov_embedding_backward_scratch_bytes(const struct ceov_embedding *shape,
					       uint32_t n_ranks);

/* Creates the op for the backward of embedding bags + all-to-all of this shape, in a workspace that
 * is connected. It is released by ceov_op_release(). */
int  ceov_embedding_backward_create(ceov_workspace *workspace, const struct ceov_embedding *shape,
				    ceov_op **ret_op);

struct ceov_embedding_backward_run {
	size_t                     struct_bytes;
	void                      *stream;
	const void                *grads;       /* [own samples][all columns] */
	struct ceov_embedding_bags bags;        /* those of the forward run. indices are not read,
						 * and without row_grads nothing is */
	void                      *bag_grads;   /* [all samples][own columns]; NULL: not wanted */
	void                      *row_grads;   /* [n_indices][largest own dim]: a row has as many
						 * columns as its table, the rest and rows of
						 * indices in no bag are not written; NULL: not
						 * wanted. Ranks without tables give neither, and
						 * those whose bags have offsets and no index
						 * may do so */
};

#define CEOV_EMBEDDING_BACKWARD_RUN_INIT CEOV_SIZED(struct ceov_embedding_backward_run)

/* Makes one run of the op, in the order of run->stream. */
int  ceov_embedding_backward_run(ceov_op *op, const struct ceov_embedding_backward_run *run);

#ifdef __cplusplus
}
#endif

#endif /* CEOVERLAP_EMBEDDING_H */
