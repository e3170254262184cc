/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Combine: what experts made of the copies of a token comes back to it, and is added up. */

#include <stddef.h>

#include "base/sized.h"
#include "ops/core/operands.h"
#include "ops/experts/layout.h"
#include "ops/kinds.h"

int ceov_moe_combine_create(ceov_workspace *workspace, const struct ceov_moe *from,
			    ceov_op **ret_op)
{
	return cei_op_create_from(workspace, &cei_moe_combine, from, ret_op);
}

static struct ceov_moe_combine_run operands_of(const struct cei_run *run)
{
	struct ceov_moe_combine_run taken;

	cei_sized_take(&taken, run->operands, sizeof(taken));
	return taken;
}

static int take_operands(struct cei_run *run)
{
	const struct ceov_moe_combine_run from = operands_of(run);
	const struct cei_op_shape *shape = &run->op->shape;
	uint64_t n_copies = from.n_tokens * shape->experts.top_k;
	const struct cei_operand operands[] = {
		{ "sums", from.sums, from.n_tokens * cei_experts_row_bytes(shape), 1 },
		{ "rows", from.rows, shape->experts.n_received * cei_experts_row_bytes(shape), 0 },
		{ "weights", from.weights, from.weights ? n_copies * sizeof(float) : 0, 0 },
		{ "routing.slots", from.routing.slots, n_copies * sizeof(int32_t), 0 },
		{ "routing.arrived", from.routing.arrived,
		  shape->experts.n_experts * sizeof(uint32_t), 0 },
	};
	int r = cei_experts_check_run(run->op, from.n_tokens, from.group);

	run->stream = from.stream;
	return r ? r : cei_operands_take(run, operands, 5);
}

static int queue_job(const struct cei_run *run)
{
	struct cei_executor *executor = &run->op->workspace->executor;
	const struct cei_experts_ops *ops = executor->ops->experts;
	const struct ceov_moe_combine_run from = operands_of(run);
	struct cei_experts_job job = cei_experts_job(run, from.n_tokens, from.group, &from.routing);
	int r;

	job.rows = (void *)(uintptr_t)from.rows;        /* give_back() only reads them */
	job.weights = from.weights;
	job.sums = from.sums;
	r = ops->give_back(executor, run->stream, &job);
	if (!r)
		r = cei_experts_exchange(run);
	return r ? r : ops->add_up(executor, run->stream, &job);
}

int ceov_moe_combine_run(ceov_op *op, const struct ceov_moe_combine_run *run)
{
	return cei_op_run(op, cei_moe_combine.run_call, run);
}

const struct cei_op_kind cei_moe_combine = {
	.name = "ceov_moe_combine",
	.key = "moe_combine",
	.run_call = "ceov_moe_combine_run",
	.run_bytes = sizeof(struct ceov_moe_combine_run),
	.run_first_bytes = offsetof(struct ceov_moe_combine_run, group),
	.n_stages = 1,
	.is_counted = 1,
	.shape = cei_experts_shape,
	.fault = cei_experts_fault,
	.row_bytes = cei_experts_row_bytes,
	.scratch_bytes = cei_experts_scratch_bytes,
	.pieces = cei_experts_pieces,
	.choose = cei_experts_choose,
	.explain = cei_experts_explain,
	.build = cei_experts_build,
	.take = take_operands,
	.job = queue_job,
};
