/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_EXPERTS_LAYOUT_H
#define CEI_EXPERTS_LAYOUT_H

/*
 * What dispatch and combine share. One half of scratch holds the blocks that leave, [target], and
 * then those that arrive, [source] (compute/experts.h). The numbers of rows that are sent lie in
 * host memory of the op, a set for each half.
 */

#include "ops/compute/experts.h"
#include "ops/core/run.h"

/* Functions of struct cei_op_kind. */
const struct ceov_op_tuning *cei_experts_shape(struct cei_op_shape *shape, const void *from,
					       uint32_t n_ranks);
const char *cei_experts_fault(const struct cei_op_shape *shape);
uint64_t cei_experts_row_bytes(const struct cei_op_shape *shape);
uint64_t cei_experts_scratch_bytes(const struct cei_op_shape *shape);
uint32_t cei_experts_pieces(const struct cei_op_shape *shape);
void     cei_experts_choose(const struct cei_choose_args *args, struct cei_choice *choice);
void     cei_experts_explain(const struct cei_choose_args *args, struct cei_choice *choice);
int      cei_experts_build(ceov_op *op);

/* The experts of each rank in each group. */
uint32_t cei_experts_each_group(const struct cei_op_shape *shape);

/* Raises CEOV_ERR_INVALID if a run has more tokens than the shape, or a group that it lacks. */
int  cei_experts_check_run(const ceov_op *op, uint64_t n_tokens, uint32_t group);

/* A job with the fields that both operators share; n_tokens and group are the run's. */
struct cei_experts_job cei_experts_job(const struct cei_run *run, uint64_t n_tokens,
				       uint32_t group, const struct ceov_moe_routing *routing);

/* Lets all blocks leave, and makes the stream wait until those of all peers have come. */
int  cei_experts_exchange(const struct cei_run *run);

#endif /* CEI_EXPERTS_LAYOUT_H */
