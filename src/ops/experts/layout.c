/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Sizes, places and transfers of dispatch and combine. */

#include "ops/experts/layout.h"

#include <inttypes.h>
#include <stddef.h>

#include "base/sized.h"
#include "ops/compute/dtype.h"
#include "ops/compute/tiles.h"
#include "ops/kinds.h"

#define HIDDEN_STEP        8u
#define EXPERTS_MAX        65536u

/* A slot is an int32_t, and numbers the rows of all blocks. */
#define SLOTS_MAX ((uint64_t)INT32_MAX)

/* --- shapes ---------------------------------------------------------------- */

static uint32_t n_local(const struct cei_op_shape *shape)
{
	return shape->experts.n_experts / shape->n_ranks;
}

uint32_t cei_experts_each_group(const struct cei_op_shape *shape)
{
	return n_local(shape) / shape->experts.n_groups;
}

/* As many rows as one rank can send to another in a run: a token goes to a rank once for each of
 * its experts there, in the run's group. */
static uint64_t most_rows(const struct ceov_moe *moe, uint32_t n_groups, uint32_t n_ranks)
{
	uint32_t n_each = n_ranks ? moe->n_experts / n_ranks / n_groups : 0;

	return moe->n_tokens * (moe->top_k < n_each ? moe->top_k : n_each);
}

static void take_sizes(struct cei_experts_shape *shape, const struct ceov_moe *moe,
		       uint32_t n_ranks)
{
	shape->hidden = moe->hidden;
	shape->n_experts = moe->n_experts;
	shape->top_k = moe->top_k;
	shape->n_groups = moe->n_groups ? moe->n_groups : 1;
	shape->capacity = moe->capacity ? moe->capacity
		: most_rows(moe, shape->n_groups, n_ranks);
	shape->total_capacity = moe->total_capacity ? moe->total_capacity
		: UINT64_MAX;
	shape->n_received = moe->n_received ? moe->n_received : n_ranks * shape->capacity;
}

const struct ceov_op_tuning *cei_experts_shape(struct cei_op_shape *shape, const void *from,
					       uint32_t n_ranks)
{
	uint64_t rows[CEI_OP_RANKS_MAX];
	struct ceov_moe moe;
	uint32_t i;

	shape->fault = cei_sized_fault(from, offsetof(struct ceov_moe, total_capacity),
				       sizeof(moe));
	if (shape->fault)
		return NULL;
	cei_sized_take(&moe, from, sizeof(moe));
	if (moe.n_tokens > SLOTS_MAX || moe.top_k > CEOV_MOE_TOP_K_MAX) {
		shape->fault = "there are 2^31 tokens or more, or top_k is above 64";
		return NULL;
	}
	shape->dtype = moe.dtype;
	take_sizes(&shape->experts, &moe, n_ranks);
	for (i = 0; i < CEI_OP_RANKS_MAX; i++)
		rows[i] = moe.n_tokens;
	cei_op_take_rows(shape, rows, n_ranks);
	return moe.tuning;
}

uint64_t cei_experts_row_bytes(const struct cei_op_shape *shape)
{
	return shape->experts.hidden * cei_dtype_bytes(shape->dtype);
}

/* Below the limit all sizes in bytes fit 64 bits. */
static int is_too_large(const struct cei_op_shape *shape)
{
	const struct cei_experts_shape *experts = &shape->experts;
	uint64_t most = CEI_ELEMENTS_MAX / experts->hidden;

	return shape->n_ranks * experts->capacity > most || experts->n_received > most ||
		shape->rows[0] > most;
}

const char *cei_experts_fault(const struct cei_op_shape *shape)
{
	const struct cei_experts_shape *experts = &shape->experts;
	const char *fault = cei_op_dtype_fault(shape);

	if (fault)
		return fault;
	if (!experts->hidden || experts->hidden % HIDDEN_STEP || experts->hidden > CEI_EXTENT_MAX)
		return "hidden must be a multiple of 8, and at most 2^31";
	if (!experts->n_experts || experts->n_experts > EXPERTS_MAX ||
	    experts->n_experts % shape->n_ranks)
		return "n_experts must be a multiple of the number of ranks, and at most 65536";
	if (n_local(shape) % experts->n_groups)
		return "n_groups must divide the experts of a rank";
	if (!experts->top_k || experts->top_k > experts->n_experts)
		return "top_k must be 1 to n_experts";
	if (!shape->rows[0])
		return "n_tokens must not be 0";
	if (experts->capacity > SLOTS_MAX / shape->n_ranks / experts->n_groups ||
	    experts->n_received > SLOTS_MAX)
		return "n_groups * n_ranks * capacity and n_received must be below 2^31";
	return is_too_large(shape) ? "hidden times the rows of all blocks is above 2^48" : NULL;
}

static uint32_t header_rows(const struct cei_op_shape *shape)
{
	uint64_t bytes = n_local(shape) * sizeof(uint32_t);

	return (uint32_t)cei_ceiling(bytes, cei_experts_row_bytes(shape));
}

static uint64_t block_bytes(const struct cei_op_shape *shape)
{
	return (header_rows(shape) + shape->experts.capacity) * cei_experts_row_bytes(shape);
}

uint64_t cei_experts_scratch_bytes(const struct cei_op_shape *shape)
{
	return 2 * shape->n_ranks * block_bytes(shape);
}

uint64_t ceov_moe_dispatch_scratch_bytes(const struct ceov_moe *from, uint32_t n_ranks)
{
	return cei_op_scratch_bytes(&cei_moe_dispatch, from, n_ranks);
}

uint64_t ceov_moe_combine_scratch_bytes(const struct ceov_moe *from, uint32_t n_ranks)
{
	return cei_op_scratch_bytes(&cei_moe_combine, from, n_ranks);
}

/* --- the choice ------------------------------------------------------------ */

uint32_t cei_experts_pieces(const struct cei_op_shape *shape)
{
	(void)shape;
	return 1;
}

void cei_experts_choose(const struct cei_choose_args *args, struct cei_choice *choice)
{
	choice->n_pieces = 1;
	choice->copy_ns = cei_selector_copy_ns(args, 1);
}

void cei_experts_explain(const struct cei_choose_args *args, struct cei_choice *choice)
{
	cei_choice_say(choice, "one block for each rank, of as many rows as a run counts, at most "
		       "%" PRIu64 "\n", args->shape->experts.capacity);
}

/* --- transfers ------------------------------------------------------------- */

static int send_block(ceov_op *op, uint32_t target)
{
	const struct cei_op_shape *shape = &op->shape;
	uint64_t row = cei_experts_row_bytes(shape);
	uint32_t rank = op->workspace->rank;
	const struct cei_send leg = {
		.target = target,
		.source_bytes = target * block_bytes(shape),
		.target_bytes = (shape->n_ranks + rank) * block_bytes(shape),
		.n_bytes = row,
		.n_rows = header_rows(shape) + shape->experts.capacity,
		.source_pitch_bytes = row,
		.target_pitch_bytes = row,
		.counts = op->counts_buffer,
		.count = target,
		.ready = target,
		.arrives = rank,
	};

	return cei_send_stage_add(&op->stages[0], &leg);
}

/* Every rank sends each peer a block, of 0 rows at least, whose mark says that it has begun the
 * run. */
int cei_experts_build(ceov_op *op)
{
	struct cei_send_stage *stage = &op->stages[0];
	int r = cei_op_make_counts(op);

	if (!r)
		r = cei_send_stage_open(stage, op->workspace, 0);
	return r || op->shape.n_ranks == 1 ? r : cei_op_send_all(op, stage, send_block);
}

/* --- runs ------------------------------------------------------------------ */

int cei_experts_check_run(const ceov_op *op, uint64_t n_tokens, uint32_t group)
{
	struct cei_report *report = cei_object_report(&op->object);

	if (n_tokens > op->shape.rows[0])
		return cei_raise(report, CEOV_ERR_INVALID, 0, "%s: rank %u: %" PRIu64 " tokens, "
				 "and the operator was created for %" PRIu64, op->kind->run_call,
				 op->workspace->rank, n_tokens, op->shape.rows[0]);
	if (group < op->shape.experts.n_groups)
		return 0;
	return cei_raise(report, CEOV_ERR_INVALID, 0, "%s: rank %u: group %u, and the operator was "
			 "created for %u", op->kind->run_call, op->workspace->rank, group,
			 op->shape.experts.n_groups);
}

struct cei_experts_job cei_experts_job(const struct cei_run *run, uint64_t n_tokens,
				       uint32_t group, const struct ceov_moe_routing *routing)
{
	const struct cei_op_shape *shape = &run->op->shape;
	char *scratch = cei_run_scratch(run);

	return (struct cei_experts_job){
		.dtype = shape->dtype,
		.n_ranks = shape->n_ranks,
		.own = run->op->workspace->rank,
		.n_local = n_local(shape),
		.n_groups = shape->experts.n_groups,
		.group = group,
		.top_k = shape->experts.top_k,
		.n_header_rows = header_rows(shape),
		.n_tokens = n_tokens,
		.capacity = shape->experts.capacity,
		.total_capacity = shape->experts.total_capacity,
		.n_received = shape->experts.n_received,
		.row_bytes = cei_experts_row_bytes(shape),
		.leaving = scratch,
		.arriving = scratch + shape->n_ranks * block_bytes(shape),
		.n_rows = run->op->counts + run->half * shape->n_ranks,
		.slots = routing->slots,
		.arrived = routing->arrived,
	};
}

int cei_experts_exchange(const struct cei_run *run)
{
	ceov_workspace *workspace = run->op->workspace;
	uint32_t n_ranks = workspace->n_ranks, i, peer;
	int r = 0;

	for (i = 1; !r && i < n_ranks; i++)
		r = cei_run_raise(run, workspace->ready, (workspace->rank + i) % n_ranks);
	for (i = 1; !r && i < n_ranks; i++) {
		peer = (workspace->rank + n_ranks - i) % n_ranks;
		r = cei_run_await(run, cei_run_arrived(run), peer, 1);
	}
	return r;
}
