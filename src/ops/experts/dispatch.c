/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Dispatch: copies of tokens go to the ranks of their experts. */

#include <stddef.h>

#include "base/sized.h"
#include "ops/core/operands.h"
#include "ops/experts/layout.h"
#include "ops/kinds.h"

int ceov_moe_dispatch_create(ceov_workspace *workspace, const struct ceov_moe *from,
			     ceov_op **ret_op)
{
	return cei_op_create_from(workspace, &cei_moe_dispatch, from, ret_op);
}

static struct ceov_moe_dispatch_run operands_of(const struct cei_run *run)
{
	struct ceov_moe_dispatch_run taken;

	cei_sized_take(&taken, run->operands, sizeof(taken));
	return taken;
}

static int check_numbers(const ceov_op *op, const struct ceov_moe_dispatch_run *from)
{
	struct cei_report *report = cei_object_report(&op->object);
	int r = cei_experts_check_run(op, from->n_tokens, from->group);

	if (r)
		return r;
	if (from->is_routed < 0 || from->is_routed > 1)
		return cei_raise(report, CEOV_ERR_INVALID, 0, "ceov_moe_dispatch_run: rank %u: "
				 "is_routed is %d, must be 0 or 1", op->workspace->rank,
				 from->is_routed);
	if (!from->group || from->is_routed)
		return 0;
	return cei_raise(report, CEOV_ERR_INVALID, 0, "ceov_moe_dispatch_run: rank %u: is_routed "
			 "is 0 for group %u: the run of group 0 chooses the places of all groups; "
			 "give its routing", op->workspace->rank, from->group);
}

static int take_operands(struct cei_run *run)
{
	const struct ceov_moe_dispatch_run from = operands_of(run);
	const struct cei_op_shape *shape = &run->op->shape;
	uint64_t n_copies = from.n_tokens * shape->experts.top_k;
	uint64_t n_each = cei_experts_each_group(shape);
	uint64_t counts_bytes = shape->experts.n_experts * sizeof(uint32_t);
	int is_given = from.is_routed;
	const struct cei_operand operands[] = {
		{ "tokens", from.tokens, from.n_tokens * cei_experts_row_bytes(shape), 0 },
		{ "experts", from.experts, is_given ? 0 : n_copies * sizeof(int32_t), 0 },
		{ "routing.slots", from.routing.slots, n_copies * sizeof(int32_t), !is_given },
		{ "routing.arrived", from.routing.arrived, counts_bytes, !is_given },
		{ "received", from.received,
		  shape->experts.n_received * cei_experts_row_bytes(shape), 1 },
		{ "ends", from.ends, n_each * sizeof(int32_t), 1 },
		{ "sent", from.sent, from.sent ? counts_bytes : 0, !is_given },
	};
	int r = check_numbers(run->op, &from);

	run->stream = from.stream;
	return r ? r : cei_operands_take(run, operands, 7);
}

static int queue_job(const struct cei_run *run)
{
	struct cei_executor *executor = &run->op->workspace->executor;
	const struct cei_experts_ops *ops = executor->ops->experts;
	const struct ceov_moe_dispatch_run from = operands_of(run);
	struct cei_experts_job job = cei_experts_job(run, from.n_tokens, from.group, &from.routing);
	int r;

	job.experts = from.experts;
	job.tokens = from.tokens;
	job.rows = from.received;
	job.ends = from.ends;
	job.sent = from.sent;
	r = (from.is_routed ? ops->place_again : ops->place)(executor, run->stream, &job);
	if (!r)
		r = ops->pack(executor, run->stream, &job);
	if (!r)
		r = cei_experts_exchange(run);
	if (!r && !from.is_routed)
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
	.run_first_bytes = offsetof(struct ceov_moe_dispatch_run, sent),
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
