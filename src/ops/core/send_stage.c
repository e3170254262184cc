/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Builds and commits the plans of a send stage. */

#include "ops/core/send_stage.h"

#include <string.h>

#include "ce_engine/objects/context.h"
#include "ce_engine/plan/plan_builder.h"

static int open_plan(struct cei_send_stage *stage, uint32_t half)
{
	ceov_workspace *workspace = stage->workspace;
	struct ceov_plan_options options = { .struct_bytes = sizeof(options) };
	ceov_context *context = workspace->object.context;
	int r;

	options.mark_group_bytes = 1;   /* a mark is raised directly behind its own bytes */
	if (stage->chunk_bytes < context->max_chunk_bytes)
		options.max_chunk_bytes = stage->chunk_bytes;
	r = ceov_plan_create(context, workspace->rank, &options,
			     &stage->plan[half]);
	/* Transfers keep their order, so that a later transfer's mark covers earlier ones. */
	if (r)
		return r;
	cei_plan_keep_order(stage->plan[half]);
	stage->plan[half]->label = stage->label;
	return 0;
}

int cei_send_stage_open(struct cei_send_stage *stage, ceov_workspace *workspace,
			uint64_t floating_bytes)
{
	uint32_t half;
	int r = 0;

	stage->workspace = workspace;
	stage->awaits_start = cei_workspace_has_nodes(workspace);
	if (workspace->n_ranks == 1)
		return 0;
	for (half = 0; !r && half < CEI_OP_HALVES; half++)
		r = open_plan(stage, half);
	if (!r && floating_bytes)
		r = ceov_buffer_float(workspace->object.context, workspace->rank,
				      floating_bytes, &stage->floating);
	return r;
}

void cei_send_stage_follow(struct cei_send_stage *stage)
{
	stage->follows = !stage->awaits_start;
}

static struct ceov_mark mark_of(ceov_signal *signal, uint32_t index)
{
	struct ceov_mark mark = { signal, index, 1 };

	return mark;
}

/* Returns the mark that a transfer awaits if the job raises no mark for it: the run's start mark,
 * or none. */
static struct ceov_mark start_mark(const struct cei_send_stage *stage)
{
	ceov_workspace *workspace = stage->workspace;

	return stage->awaits_start
		? mark_of(workspace->ready, cei_workspace_start(workspace))
		: mark_of(NULL, 0);
}

static int add(struct cei_send_stage *stage, uint32_t half, const struct ceov_transfer *transfer)
{
	int r = ceov_plan_add(stage->plan[half], transfer);

	if (!r && transfer->source_ready.signal)
		r = ceov_plan_expect(stage->plan[half], &transfer->source_ready);
	return r;
}

static struct ceov_spot source_of(const struct cei_send_stage *stage, const struct cei_send *leg,
				  uint64_t half_at)
{
	ceov_workspace *workspace = stage->workspace;
	struct ceov_spot source = { .buffer = workspace->scratch[workspace->rank],
				    .offset_bytes = half_at + leg->source_bytes,
				    .pitch_bytes = leg->source_pitch_bytes };

	if (leg->passes_on) {
		source.offset_bytes = half_at + leg->target_bytes;
		source.pitch_bytes = leg->target_pitch_bytes;
	} else if (stage->floating) {
		source.buffer = stage->floating;
		source.offset_bytes = leg->source_bytes;
	}
	return source;
}

static struct ceov_mark ready_mark(const struct cei_send_stage *stage, const struct cei_send *leg,
				   uint32_t half)
{
	const ceov_workspace *workspace = stage->workspace;

	if (leg->passes_on)
		return mark_of(workspace->arrived[half][workspace->rank], leg->arrives);
	return leg->ready == CEOV_NOBODY ? start_mark(stage)
		: mark_of(workspace->ready, leg->ready);
}

static int send_half(struct cei_send_stage *stage, const struct cei_send *leg, uint32_t half)
{
	struct ceov_transfer transfer = { .struct_bytes = sizeof(transfer) };
	ceov_workspace *workspace = stage->workspace;
	uint64_t half_at = half * workspace->half_bytes;

	transfer.row_bytes = leg->n_bytes;
	transfer.n_rows = leg->n_rows ? leg->n_rows : 1;
	transfer.source = source_of(stage, leg, half_at);
	transfer.target.buffer = workspace->scratch[leg->target];
	transfer.target.offset_bytes = half_at + leg->target_bytes;
	transfer.target.pitch_bytes = leg->target_pitch_bytes;
	transfer.source_ready = ready_mark(stage, leg, half);
	transfer.n_rows_at.buffer = leg->counts;
	transfer.n_rows_at.offset_bytes = leg->counts ? sizeof(uint64_t) *
		(half * workspace->n_ranks + leg->count) : 0;
	if (leg->arrives != CEOV_NOBODY)
		transfer.then = mark_of(workspace->arrived[half][leg->target], leg->arrives);
	return add(stage, half, &transfer);
}

int cei_send_stage_add(struct cei_send_stage *stage, const struct cei_send *leg)
{
	uint32_t half;
	int r = 0;

	if (!leg->n_bytes)
		return 0;
	for (half = 0; !r && half < CEI_OP_HALVES; half++)
		r = send_half(stage, leg, half);
	if (!leg->passes_on) {
		stage->names_floating = stage->floating != NULL;
		stage->awaits_job |= leg->ready != CEOV_NOBODY;
	}
	stage->n_added++;
	return r;
}

/* Adds a transfer without bytes to the plans of both halves: it awaits one mark and raises another.
 * ready NULL: it awaits the start mark, if the stage has one. */
static int add_marks(struct cei_send_stage *stage, const struct ceov_mark *ready,
		     const struct ceov_mark *then)
{
	struct ceov_transfer transfer = { .struct_bytes = sizeof(transfer) };
	uint32_t half;
	int r = 0;

	for (half = 0; !r && half < CEI_OP_HALVES; half++) {
		transfer.source_ready = ready ? ready[half] : start_mark(stage);
		transfer.then = then[half];
		r = add(stage, half, &transfer);
	}
	return r;
}

/* Returns in marks, for each half, the mark that rank `rank` raises in the signal `here` of rank
 * `at`. */
static void here_marks(const ceov_workspace *workspace, uint32_t rank, uint32_t at,
		       struct ceov_mark *marks)
{
	uint32_t half;

	for (half = 0; half < CEI_OP_HALVES; half++)
		marks[half] = mark_of(workspace->here[at],
				      half * workspace->n_ranks + rank);
}

static void sent_marks(const ceov_workspace *workspace, uint32_t sent,
		       struct ceov_mark *marks)
{
	marks[0] = marks[1] = mark_of(workspace->sent, sent);
}

int cei_send_stage_say_present(struct cei_send_stage *stage, uint32_t target)
{
	struct ceov_mark then[CEI_OP_HALVES];

	here_marks(stage->workspace, stage->workspace->rank, target, then);
	/* The mark must not be raised before the run has begun. Without a start mark the launch
	 * has to follow the stream to make sure of that. */
	cei_send_stage_follow(stage);
	return add_marks(stage, NULL, then);
}

int cei_send_stage_await_here(struct cei_send_stage *stage, uint32_t source, uint32_t sent)
{
	struct ceov_mark ready[CEI_OP_HALVES], then[CEI_OP_HALVES];

	here_marks(stage->workspace, source, stage->workspace->rank, ready);
	sent_marks(stage->workspace, sent, then);
	return add_marks(stage, ready, then);
}

int cei_send_stage_say_sent(struct cei_send_stage *stage, uint32_t sent)
{
	struct ceov_mark then[CEI_OP_HALVES];

	sent_marks(stage->workspace, sent, then);
	return add_marks(stage, NULL, then);
}

int cei_send_stage_close(struct cei_send_stage *stage)
{
	uint32_t half;
	int r = 0;

	for (half = 0; !r && half < CEI_OP_HALVES && stage->plan[half]; half++)
		r = ceov_plan_commit(stage->plan[half]);
	return r;
}

void cei_send_stage_fini(struct cei_send_stage *stage)
{
	uint32_t half;

	for (half = 0; half < CEI_OP_HALVES; half++)
		ceov_plan_release(stage->plan[half]);
	(void)ceov_buffer_release(stage->floating);     /* after the plans that use it */
	memset(stage, 0, sizeof(*stage));
}
