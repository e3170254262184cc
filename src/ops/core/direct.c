/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Finds out whether ranks can store to each other's scratch, and fills jobs that do so. */

#include "ops/core/direct.h"

#include <string.h>

#include "ce_engine/objects/buffer.h"
#include "ce_engine/objects/context.h"
#include "ops/core/capture_cuda.h"

/* Counters of sums in steps are the third set of `arrived` (workspace.h). Else only sums of several
 * nodes have counters there, and in a group of several nodes no mode is direct. */
#define STEPS_SET 2u

_Static_assert(2 * CEI_DIRECT_STEP_BLOCKS_MAX <= (CEI_OP_STAGES_MAX - STEPS_SET) *
	       CEI_OP_PIECES_MAX, "the third set has counters for addends and sums of all blocks");
_Static_assert(CEI_DIRECT_STEPS_MAX < CEI_DIRECT_STEP_VALUES, "runs have values of their own");

/* Returns the address at which this rank's job reaches a rank's scratch; NULL: it does not. */
static char *scratch_of(const ceov_workspace *workspace, uint32_t rank)
{
	return ceov_buffer_base(workspace->scratch[rank], workspace->rank);
}

static enum ceov_place_kind place_of(const ceov_workspace *workspace, uint32_t rank)
{
	return workspace->scratch[rank]->region->kind;
}

static const char *fault_with(const ceov_workspace *workspace, uint32_t peer)
{
	if (!cei_site_is_local(&workspace->object.context->site, peer))
		return "that rank is on another node";
	if (place_of(workspace, peer) != place_of(workspace, workspace->rank))
		return "only one of them is on a GPU";
	if (!scratch_of(workspace, peer))
		return "this rank cannot address the scratch of that one";
	return NULL;
}

int cei_direct_build(ceov_op *op)
{
	const ceov_workspace *workspace = op->workspace;
	const char *fault;
	uint32_t peer;

	if (workspace->n_ranks > CEI_DIRECT_RANKS_MAX)
		return cei_raise(cei_object_report(&op->object), CEOV_ERR_INVALID, 0,
				 "%s_create: rank %u: %u ranks, and direct modes are for at most "
				 "%u", op->kind->name, workspace->rank, workspace->n_ranks,
				 CEI_DIRECT_RANKS_MAX);
	for (peer = 0; peer < workspace->n_ranks; peer++) {
		fault = fault_with(workspace, peer);
		if (fault)
			return cei_raise(cei_object_report(&op->object), CEOV_ERR_INVALID, 0,
					 "%s_create: rank %u cannot store to rank %u directly: "
					 "%s; choose another mode in the tuning", op->kind->name,
					 workspace->rank, peer, fault);
	}
	return 0;
}

void cei_direct_span_whole(uint64_t n_bytes, uint32_t own, uint32_t rank,
			   struct cei_direct_span *span)
{
	span->n_leaves = span->n_here = n_bytes;
	span->there = own * n_bytes;
	span->here = rank * n_bytes;
}

void cei_direct_job(const struct cei_run *run, struct cei_direct_job *ret_job)
{
	const ceov_op *op = run->op;
	const ceov_workspace *workspace = op->workspace;
	struct cei_direct_job *job = ret_job;
	uint32_t rank, half;

	job->half_bytes = workspace->half_bytes;
	job->n_ranks = workspace->n_ranks;
	job->own = workspace->rank;
	job->half = run->half;
	job->second = workspace->n_ranks * CEI_DIRECT_BLOCKS_MAX;
	job->n_blocks = op->choice.n_reduce_blocks;
	job->each = op->choice.direct_each;
	job->is_ll = op->choice.direct_ll;
	job->n_steps = op->choice.direct_steps;
	job->step_rows = op->choice.direct_step_rows;
	job->steps_first = STEPS_SET * workspace->n_ranks * CEI_OP_PIECES_MAX;
	for (rank = 0; rank < workspace->n_ranks; rank++)
		job->scratch[rank] = scratch_of(workspace, rank);
	for (half = 0; half < CEI_DIRECT_HALVES; half++)
		job->arrived[half] = workspace->arrived[half];
	job->done = workspace->met;
	job->marks = cei_run_marks(run, NULL, NULL);
	if (workspace->capture)
		job->words = cei_capture_words(workspace->capture);
}

_Static_assert(CEI_DIRECT_HALVES == CEI_OP_HALVES, "a run uses one of these halves");
_Static_assert(2 * CEI_DIRECT_BLOCKS_MAX <= CEI_OP_STAGES_MAX * CEI_OP_PIECES_MAX,
	       "`arrived` has counters for both steps of all blocks");
