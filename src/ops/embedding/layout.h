/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_EMBEDDING_LAYOUT_H
#define CEI_EMBEDDING_LAYOUT_H

/*
 * What embedding + all-to-all and its backward share: shapes, sizes, and the tables of an op. The
 * fields of struct cei_embedding_shape are sums over the tables of a rank; the samples are `rows`
 * of the shape.
 */

#include "ops/compute/embedding.h"
#include "ops/core/run.h"

/* Functions of struct cei_op_kind. */
const struct ceov_op_tuning *cei_embedding_shape(struct cei_op_shape *shape, const void *from,
						 uint32_t n_ranks);
const char *cei_embedding_fault(const struct cei_op_shape *shape);
uint64_t cei_embedding_row_bytes(const struct cei_op_shape *shape);     /* of the rank whose tables
									 * have most columns */
void     cei_embedding_choose(const struct cei_choose_args *args, struct cei_choice *choice);
void     cei_embedding_explain(const struct cei_choose_args *args, struct cei_choice *choice);
void     cei_embedding_fini(ceov_op *op);

/* Return the bytes of a sample's vectors of the tables of a rank; of all ranks before it; of all
 * tables, which is a row of the caller's result or gradients; and of all tables of a rank. */
uint64_t cei_embedding_width(const struct cei_op_shape *shape, uint32_t rank);
uint64_t cei_embedding_widths_before(const struct cei_op_shape *shape, uint32_t rank);
uint64_t cei_embedding_pitch(const struct cei_op_shape *shape);
uint64_t cei_embedding_table_bytes(const struct cei_op_shape *shape, uint32_t rank);

/* Lists the rank's own tables in the op. The caller's arrays, to which the shape points, must still
 * be there; afterwards the op does not need them. */
int  cei_embedding_make_tables(ceov_op *op);

/* Raises CEOV_ERR_INVALID if the numbers of a run's bags cannot be, or there are weights for
 * means. */
int  cei_embedding_check_bags(const ceov_op *op, const struct ceov_embedding_bags *bags);

/* Returns how many bytes the offsets of the rank's bags have; 0: it has no tables. */
uint64_t cei_embedding_offsets_bytes(const ceov_op *op);

/* Returns a job with the fields that both operators share. */
struct cei_embedding_job cei_embedding_job(const struct cei_run *run,
					   const struct ceov_embedding_bags *bags);

#endif /* CEI_EMBEDDING_LAYOUT_H */
