/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Makes the plans of an op's stages into lists for a lane that SMs carry out, and queues runs. */

#include "ops/core/sm_lane.h"

#include <stdlib.h>
#include <string.h>

#include "ce_engine/objects/context.h"
#include "ce_engine/objects/plan.h"
#include "ops/compute/sm_lane.h"
#include "ops/core/direct.h"

#define ALIGN_BYTES 16u                 /* of what bulk copies move */

/* --- lists ----------------------------------------------------------------- */

static int refuse(const ceov_op *op, const char *fault)
{
	return cei_raise(cei_object_report(&op->object), CEOV_ERR_INVALID, 0,
			 "%s_create: rank %u: SMs cannot make its transfers (%s); choose another "
			 "mode in the tuning", op->kind->name, op->workspace->rank, fault);
}

static int refuse_memory(const ceov_op *op)
{
	return cei_raise(cei_object_report(&op->object), CEOV_ERR_NO_MEMORY, 0,
			 "%s_create: rank %u: no memory for a list of transfers", op->kind->name,
			 op->workspace->rank);
}

static const char *step_fault(const ceov_op *op, const struct cei_step *step)
{
	const struct cei_piece *piece = &step->piece;
	uint64_t all = piece->source | piece->target | piece->row_bytes;

	if (piece->n_rows > 1)
		all |= piece->source_pitch_bytes | piece->target_pitch_bytes;
	if (all % ALIGN_BYTES)
		return "a transfer is no multiple of 16 bytes";
	if (step->source_ready.signal && step->source_ready.signal != op->workspace->ready)
		return "a transfer awaits a mark of another rank";
	if (step->target_free.signal || step->count || step->then.word)
		return "a transfer has marks or counts that only engines know";
	if (!piece->target || (step->then.signal && !step->then.address))
		return "a peer's memory cannot be addressed";
	return NULL;
}

static struct cei_sm_lane_step step_of(const struct cei_step *from)
{
	const struct cei_piece *piece = &from->piece;
	int is_whole = piece->n_rows == 1 || (piece->source_pitch_bytes == piece->row_bytes &&
					      piece->target_pitch_bytes == piece->row_bytes);
	struct cei_sm_lane_step step = {
		.source = piece->source,
		.target = piece->target,
		.row_bytes = is_whole ? piece->row_bytes * piece->n_rows : piece->row_bytes,
		.n_rows = is_whole ? 1 : piece->n_rows,
		.source_pitch_bytes = piece->source_pitch_bytes,
		.target_pitch_bytes = piece->target_pitch_bytes,
		.gate = from->source_ready.signal ? from->source_ready.index
			: CEI_SM_LANE_NO_GATE,
		.is_floating = (uint32_t)from->is_floating,
	};

	if (from->then.signal)
		step.counter = (uint64_t *)(uintptr_t)from->then.address;
	return step;
}

/* Fills the list with the steps that move bytes. Returns what is wrong with one, or NULL. */
static const char *fill(const ceov_op *op, const ceov_plan *plan, struct cei_sm_lane_step *steps,
			uint32_t *ret_n)
{
	uint32_t i, n = 0;
	const char *fault;

	if (!plan->steps)
		return "a daemon carries out its plan";
	for (i = 0; i < plan->program.n_transfers; i++) {
		if (!plan->steps[i].piece.n_rows)
			continue;
		fault = step_fault(op, &plan->steps[i]);
		if (fault)
			return fault;
		steps[n++] = step_of(&plan->steps[i]);
	}
	*ret_n = n;
	return NULL;
}

/* Gives the executor copies of the list, and of as many zeros. */
static int hold(ceov_op *op, const struct cei_sm_lane_step *steps, struct cei_carried *carried)
{
	struct cei_executor *executor = &op->workspace->executor;
	uint32_t *zeros = calloc(carried->n_steps, sizeof(*zeros));
	int r;

	if (!zeros)
		return refuse_memory(op);
	r = executor->ops->hold(executor, steps, carried->n_steps * sizeof(*steps),
				&carried->steps);
	if (!r)
		r = executor->ops->hold(executor, zeros, carried->n_steps * sizeof(*zeros),
					&carried->n_arrived);
	free(zeros);
	return r;
}

static int make_list(ceov_op *op, const ceov_plan *plan, struct cei_carried *carried)
{
	struct cei_sm_lane_step *steps = calloc(plan->program.n_transfers + 1, sizeof(*steps));
	const char *fault;
	int r = 0;

	if (!steps)
		return refuse_memory(op);
	fault = fill(op, plan, steps, &carried->n_steps);
	if (fault)
		r = refuse(op, fault);
	else if (carried->n_steps)
		r = hold(op, steps, carried);
	free(steps);
	return r;
}

int cei_sm_lane_build(ceov_op *op)
{
	struct cei_executor *executor = &op->workspace->executor;
	const ceov_plan *plan;
	uint32_t i, half;
	int r;

	if (!cei_op_has_sm_lane(op))
		return 0;
	r = cei_direct_build(op);
	if (r)
		return r;
	pthread_mutex_lock(&op->workspace->lock);
	r = executor->ops->sm_lane->open(executor);
	pthread_mutex_unlock(&op->workspace->lock);
	for (i = 0; i < op->kind->n_stages; i++) {
		for (half = 0; !r && half < CEI_OP_HALVES; half++) {
			plan = op->stages[i].plan[half];
			if (plan)
				r = make_list(op, plan, &op->carried[i][half]);
		}
	}
	return r;
}

void cei_sm_lane_fini(ceov_op *op)
{
	struct cei_executor *executor = &op->workspace->executor;
	uint32_t i, half;

	for (i = 0; i < op->kind->n_stages; i++) {
		for (half = 0; half < CEI_OP_HALVES; half++) {
			executor->ops->drop(executor, op->carried[i][half].steps);
			executor->ops->drop(executor, op->carried[i][half].n_arrived);
		}
	}
	memset(op->carried, 0, sizeof(op->carried));
}

/* --- runs ------------------------------------------------------------------ */

static int carry(const struct cei_run *run, uint32_t i)
{
	ceov_workspace *workspace = run->op->workspace;
	const struct cei_carried *carried = &run->op->carried[i][run->half];
	const struct cei_sm_lane_job job = {
		.steps = carried->steps,
		.n_arrived = carried->n_arrived,
		.n_steps = carried->n_steps,
		.n_blocks = run->op->choice.n_reduce_blocks,
		.floating = run->floating[i],
		.marks = cei_run_marks(run, NULL, workspace->ready),
	};

	if (!job.n_steps)
		return 0;
	return workspace->executor.ops->sm_lane->carry(&workspace->executor, &job);
}

/* Queues either the stages that await marks of the product, or all others. The former are queued
 * behind the product: in a queue of the hardware their kernel, which waits, could otherwise stand
 * before it. */
static int carry_stages(const struct cei_run *run, int awaits_job)
{
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < run->op->kind->n_stages; i++)
		if (run->op->stages[i].awaits_job == awaits_job)
			r = carry(run, i);
	return r;
}

int cei_sm_lane_run(const struct cei_run *run, int (*compute)(const struct cei_run *run),
		    int (*finish)(const struct cei_run *run))
{
	struct cei_executor *executor = &run->op->workspace->executor;
	const struct cei_sm_lane_ops *lane = executor->ops->sm_lane;
	int r = lane->begin(executor, run->stream, run->op->choice.n_reduce_blocks), ended;

	if (r)
		return r;
	r = carry_stages(run, 0);
	if (!r)
		r = compute(run);
	if (!r)
		r = carry_stages(run, 1);
	if (!r && finish)
		r = finish(run);
	/* Even after a failure: otherwise a capture could not be ended, and memory could be freed
	 * while the lane uses it. */
	ended = lane->end(executor, run->stream);
	return r ? r : ended;
}
