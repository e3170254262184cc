/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Says what ranks send to each other where sums are made without copy engines. */

#include "ops/reduce/direct_sum.h"

#include <string.h>

#include "ops/core/direct.h"
#include "ops/kinds.h"
#include "ops/reduce/parts.h"
#include "ops/tuning/direct_choice.h"

static uint64_t all_bytes(const struct cei_op_shape *shape)
{
	return cei_sum_bytes(shape, cei_op_all_rows(shape));
}

const char *cei_direct_sum_fault(const struct cei_op_shape *shape, enum ceov_op_mode mode)
{
	if (mode == CEOV_MODE_TWO_SHOT && shape->kind != &cei_all_reduce)
		return "tuning->mode: only an all-reduce has two steps";
	if (mode == CEOV_MODE_DIRECT && shape->kind == &cei_all_reduce &&
	    all_bytes(shape) > CEI_DIRECT_ONE_SHOT_MAX)
		return "tuning->mode: an all-reduce of more than 1 MiB is not made in one step; "
			"take CEOV_MODE_TWO_SHOT";
	return cei_direct_ranks_fault(shape);
}

uint64_t cei_direct_sum_scratch(const struct cei_op_shape *shape)
{
	uint64_t n_bytes = all_bytes(shape);

	return n_bytes <= CEI_DIRECT_ONE_SHOT_MAX ? shape->n_ranks * n_bytes : 0;
}

/* Returns whether every rank sends its whole operand to all. */
static int is_one_shot(const struct cei_op_shape *shape, enum ceov_op_mode mode)
{
	return shape->kind == &cei_all_reduce && mode == CEOV_MODE_DIRECT;
}

uint64_t cei_direct_sum_span(const struct cei_op_shape *shape, enum ceov_op_mode mode)
{
	return is_one_shot(shape, mode) ? all_bytes(shape) : cei_sum_slot_bytes(shape);
}

int cei_direct_sum_all_send(const struct cei_op_shape *shape, enum ceov_op_mode mode)
{
	uint32_t rank;

	for (rank = 0; !is_one_shot(shape, mode) && rank < shape->n_ranks; rank++)
		if (!shape->rows[rank])
			return 0;
	return 1;
}

/* Fills what this rank and another one exchange if each rank sends to another one that one's part.
 * In an all-reduce all parts are in target; in a reduce-scatter the own part begins there. */
static void fill_part(const struct cei_op_shape *shape, uint32_t own, uint32_t rank,
		      struct cei_direct_span *span)
{
	uint64_t n_own = cei_sum_bytes(shape, shape->rows[own]);

	span->leaves = cei_sum_bytes(shape, cei_sum_part_at(shape, rank));
	span->n_leaves = cei_sum_bytes(shape, shape->rows[rank]);
	span->there = own * span->n_leaves;
	span->here = rank * n_own;
	span->n_here = n_own;
	if (shape->kind == &cei_all_reduce)
		span->place = cei_sum_bytes(shape, cei_op_rows_before(shape, rank));
}

int cei_direct_sum_job(const struct cei_run *run)
{
	const struct ceov_reduce_run *operands = run->operands;
	const ceov_op *op = run->op;
	const struct cei_op_shape *shape = &op->shape;
	struct cei_executor *executor = &op->workspace->executor;
	int is_whole = is_one_shot(shape, op->choice.mode);
	struct cei_direct_job job;
	uint32_t rank, own = op->workspace->rank;

	memset(&job, 0, sizeof(job));
	cei_direct_job(run, &job);
	job.is_sum = 1;
	job.dtype = shape->dtype;
	job.scale = shape->sum.scale;
	job.source = operands->source;
	job.target = operands->target;
	for (rank = 0; rank < shape->n_ranks; rank++)
		if (is_whole)
			cei_direct_span_whole(all_bytes(shape), own, rank, &job.spans[rank]);
		else
			fill_part(shape, own, rank, &job.spans[rank]);
	job.gathers = op->choice.mode == CEOV_MODE_TWO_SHOT;
	job.gather_at = cei_sum_gather_at(shape);
	return executor->ops->direct(executor, run->stream, &job);
}
