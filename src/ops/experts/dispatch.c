/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Dispatch: copies of tokens go to the ranks of their experts. */

#include "ops/core/operands.h"
#include "ops/experts/layout.h"
#include "ops/kinds.h"

int ceov_moe_dispatch_create(ceov_workspace *workspace, const struct ceov_moe *from,
			     ceov_op **ret_op)
{
	return cei_op_create_from(workspace, &cei_moe_dispatch, from, ret_op);
}

static int take_operands(struct cei_run *run)
{
	const struct ceov_moe_dispatch_run *from = run->operands;
	const struct cei_op_shape *shape = &run->op->shape;
	uint64_t n_copies = from->n_tokens * shape->experts.top_k;
	uint64_t n_local = cei_experts_local(shape);
	int is_given = from->is_routed;
	const struct cei_operand operands[] = {
		{ "tokens", from->tokens, from->n_tokens * cei_experts_row_bytes(shape), 0 },
		{ "experts", from->experts, is_given ? 0 : n_copies * sizeof(int32_t), 0 },
		{ "routing.slots", from->routing.slots, n_copies * sizeof(int32_t), !is_given },
		{ "routing.arrived", from->routing.arrived,
		  shape->experts.n_experts * sizeof(uint32_t), !is_given },
		{ "received", from->received,
		  shape->experts.n_received * cei_experts_row_bytes(shape), 1 },
		{ "ends", from->ends, n_local * sizeof(int32_t), 1 },
	};
	int r = cei_experts_check_tokens(run->op, from->n_tokens);

	run->stream = from->stream;
	if (!r && (from->is_routed < 0 || from->is_routed > 1))
		r = cei_raise(cei_object_report(&run->op->object), CEOV_ERR_INVALID, 0,
			      "ceov_moe_dispatch_run: rank %u: is_routed is %d, must be 0 or 1",
			      run->op->workspace->rank, from->is_routed);
	return r ? r : cei_operands_check(run->op, operands, 6);
}

static int queue_job(const struct cei_run *run)
{
	struct cei_executor *executor = &run->op->workspace->executor;
	const struct cei_experts_ops *ops = executor->ops->experts;
	const struct ceov_moe_dispatch_run *from = run->operands;
	struct cei_experts_job job = cei_experts_job(run, from->n_tokens, &from->routing);
	int r;

	job.experts = from->experts;
	job.tokens = from->tokens;
	job.rows = from->received;
	job.ends = from->ends;
	r = (from->is_routed ? ops->place_again : ops->place)(executor, run->stream, &job);
	if (!r)
		r = ops->pack(executor, run->stream, &job);
	if (!r)
		r = cei_experts_exchange(run);
	if (!r && !from->is_routed)
		r = ops->receive(executor, run->stream, &job);
	return r ? r : ops->sort(executor, run->stream, &job);
}

int ceov_moe_dispatch_run(ceov_op *op, const struct ceov_moe_dispatch_run *run)
{
	return cei_op_run(op, cei_moe_dispatch.run_call, run);
}

const struct cei_op_kind cei_moe_dispatch = {
	.name = "ceov_moe_dispatch",
	.key = "moe_dispatch",
	.run_call = "ceov_moe_dispatch_run",
	.run_bytes = sizeof(struct ceov_moe_dispatch_run),
	.n_stages = 1,
	.shape = cei_experts_shape,
	.fault = cei_experts_fault,
	.lacks = cei_experts_lacks,
	.row_bytes = cei_experts_row_bytes,
	.scratch_bytes = cei_experts_scratch_bytes,
	.pieces = cei_experts_pieces,
	.choose = cei_experts_choose,
	.explain = cei_experts_explain,
	.build = cei_experts_build,
	.take = take_operands,
	.job = queue_job,
};
