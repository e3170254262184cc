/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Checks the arguments of a run, makes its launches, and queues its job. */

#include "ops/core/run.h"

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/ranges.h"
#include "base/sized.h"
#include "ce_engine/objects/context.h"
#include "ops/core/capture_cuda.h"

#define LEGACY_STREAM ((const void *)(uintptr_t)1)      /* CU_STREAM_LEGACY */

/* --- checks ---------------------------------------------------------------- */

static int check_call(const ceov_op *op, const char *run_call, const void *operands)
{
	int r = cei_object_check(op, &cei_op_type, "ceov_*_run");
	uint32_t first_bytes;
	const char *fault;

	if (r)
		return r;
	if (strcmp(op->kind->run_call, run_call))
		return cei_raise(cei_object_report(&op->object), CEOV_ERR_INVALID, 0,
				 "ceov_*_run: the op is a %s, which has another run call",
				 op->kind->name);
	first_bytes = op->kind->run_first_bytes;
	fault = cei_sized_fault(operands, first_bytes ? first_bytes : op->kind->run_bytes,
				op->kind->run_bytes);
	if (!fault)
		return 0;
	return cei_raise(cei_object_report(&op->object), CEOV_ERR_INVALID, 0, "%s_run: %s",
			 op->kind->name, fault);
}

/* Only capturable workspaces take runs on the legacy stream, which queue them on another one. In
 * others the stream itself may have to wait for marks or raise them, which the legacy stream cannot
 * do. */
int cei_op_check_stream(const ceov_op *op, const void *stream)
{
	if (op->workspace->is_host || (stream && stream != LEGACY_STREAM))
		return 0;
	if (stream && !op->kind->is_local && op->workspace->capture)
		return 0;
	if (stream && op->kind->is_local)
		return cei_raise(cei_object_report(&op->object), CEOV_ERR_INVALID, 0,
				 "%s: rank %u: the legacy stream can neither raise marks nor wait "
				 "for them; create a stream", op->kind->name, op->workspace->rank);
	if (stream)
		return cei_raise(cei_object_report(&op->object), CEOV_ERR_INVALID, 0,
				 "%s: rank %u: the legacy stream takes runs of capturable "
				 "workspaces only", op->kind->name, op->workspace->rank);
	return cei_raise(cei_object_report(&op->object), CEOV_ERR_INVALID, 0,
			 "%s: rank %u: the NULL stream cannot be used", op->kind->name,
			 op->workspace->rank);
}

int cei_run_take(struct cei_run *run, const char *run_call)
{
	ceov_op *op = run->op;
	int r = check_call(op, run_call, run->operands);

	if (r)
		return r;
	run->operands_bytes = op->kind->run_bytes;
	r = op->kind->take(run);
	return r ? r : cei_op_check_stream(op, run->stream);
}

/* --- what a run's job needs ------------------------------------------------ */

struct cei_job_marks cei_run_marks(const struct cei_run *run, ceov_signal *awaited,
				   ceov_signal *ready)
{
	const ceov_workspace *workspace = run->op->workspace;
	struct cei_job_marks marks = { .awaited = awaited, .ready = ready };

	if (workspace->capture)
		marks.epoch = cei_capture_epoch(workspace->capture);
	else if (workspace->n_ranks > 1 && run->op->n_sent) {
		marks.sent = workspace->sent;
		marks.n_sent = run->op->n_sent;
	}
	marks.value = run->number;
	marks.timeout_ns = workspace->deadline_ns;
	return marks;
}

ceov_signal *cei_run_arrived(const struct cei_run *run)
{
	const ceov_workspace *workspace = run->op->workspace;

	return workspace->arrived[run->half][workspace->rank];
}

char *cei_run_scratch(const struct cei_run *run)
{
	return cei_workspace_half(run->op->workspace, run->half);
}

int cei_run_await(const struct cei_run *run, ceov_signal *signal, uint32_t first,
		  uint32_t n)
{
	struct cei_executor *executor = &run->op->workspace->executor;
	struct cei_job_marks marks = cei_run_marks(run, NULL, NULL);
	struct cei_counters counters = { signal, first, n };

	return executor->ops->await(executor, run->stream, &marks, &counters);
}

int cei_run_await_sent(const struct cei_run *run)
{
	struct cei_job_marks marks = cei_run_marks(run, NULL, NULL);

	if (!marks.n_sent)
		return 0;
	return cei_run_await(run, marks.sent, marks.sent_index, marks.n_sent);
}

static int raise_marks(const struct cei_run *run, const struct ceov_mark *marks, uint32_t n)
{
	const ceov_workspace *workspace = run->op->workspace;
	uint32_t i;
	int r = 0;

	if (!workspace->is_host)
		return ceov_stream_raise(workspace->object.context, workspace->rank, run->stream,
					 marks, n, 0);
	for (i = 0; !r && i < n; i++)
		r = ceov_signal_raise(marks[i].signal, marks[i].index, marks[i].value);
	return r;
}

/* In captured runs the counters are gates and rise to 1. */
int cei_run_raise(const struct cei_run *run, ceov_signal *signal, uint32_t index)
{
	const struct ceov_mark mark = { signal, index,
					run->op->workspace->capture ? 1 : run->number };

	return raise_marks(run, &mark, 1);
}

/* --- launches -------------------------------------------------------------- */

/* Launches a plan. Waits while the engine's inbox or the context's tickets are full, which all
 * plans of the context share. */
static int launch_when_room(const ceov_workspace *workspace, ceov_plan *plan,
			    const struct ceov_launch *launch, ceov_ticket *ret_ticket)
{
	uint64_t deadline = cei_deadline(workspace->deadline_ns);
	struct cei_backoff backoff;
	int r;

	cei_backoff_reset(&backoff);
	while ((r = ceov_launch(plan, launch, ret_ticket)) == CEOV_FULL) {
		if (cei_now_ns() >= deadline)
			return cei_raise(cei_object_report(&workspace->object), CEOV_ERR_TIMEOUT, 0,
					 "workspace '%s': rank %u: no room for a launch within "
					 "the deadline", workspace->name, workspace->rank);
		cei_backoff_step(&backoff);
	}
	return r;
}

static int launch_phase(const struct cei_run *run, uint32_t i, ceov_ticket *ret_ticket)
{
	const ceov_workspace *workspace = run->op->workspace;
	const struct cei_send_stage *stage = &run->op->stages[i];
	struct ceov_launch launch = { .struct_bytes = sizeof(launch) };

	launch.base = run->number - 1;
	launch.deadline_ns = workspace->deadline_ns;
	launch.after_stream = stage->follows && !workspace->is_host ? run->stream : NULL;
	launch.floating = stage->names_floating ? run->floating[i] : NULL;
	return launch_when_room(workspace, stage->plan[run->half], &launch, ret_ticket);
}

/* Has the stream wait until all ranks have come to the run. Each first tells all others, so none
 * waits for another one in a circle. */
static int meet(const struct cei_run *run)
{
	const ceov_workspace *workspace = run->op->workspace;
	struct ceov_mark marks[CEI_OP_RANKS_MAX];
	uint32_t i, n = workspace->n_ranks;
	int r;

	for (i = 0; i < n; i++)
		marks[i] = (struct ceov_mark){ workspace->met[i], workspace->rank, run->number };
	r = raise_marks(run, marks, n);
	return r ? r : cei_run_await(run, workspace->met[workspace->rank], 0, workspace->n_ranks);
}

/* Raises the run's start mark from the stream, if a stage awaits it. It comes before the launches,
 * so that the stream can raise the mark while the host makes them. */
static int raise_start(const struct cei_run *run)
{
	const ceov_op *op = run->op;
	uint32_t i;

	for (i = 0; i < op->kind->n_stages; i++)
		if (op->stages[i].awaits_start)
			return cei_run_raise(run, op->workspace->ready,
					     cei_workspace_start(op->workspace));
	return 0;
}

static int launch_phases(const struct cei_run *run)
{
	struct cei_inflight inflight = { .n = 0 };
	const ceov_op *op = run->op;
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < op->kind->n_stages; i++) {
		if (!op->stages[i].plan[run->half])
			continue;
		r = launch_phase(run, i, &inflight.tickets[inflight.n]);
		inflight.n += !r;
	}
	if (inflight.n)                 /* also if a later launch failed: these must still end */
		cei_workspace_add_flight(op->workspace, &inflight);
	return r;
}

/* --- the run --------------------------------------------------------------- */

/* Refuses a stream that is being captured, unless the workspace is capturable. The engine's copies
 * would not become a part of the graph, so kernels of a replay would wait for copies that nobody
 * makes. */
static int check_capture(const struct cei_run *run)
{
	ceov_workspace *workspace = run->op->workspace;
	struct cei_executor *executor = &workspace->executor;
	int captures = 0, r = 0;

	if (!cei_workspace_is_capturable(workspace))
		r = executor->ops->is_capturing(executor, run->stream, &captures);
	if (r || !captures)
		return r;
	return cei_raise(cei_object_report(&workspace->object), CEOV_ERR_INVALID, 0,
			 "%s: rank %u: the stream is being captured, but the engine launches runs "
			 "of workspace '%s': it has operators of experts, or some rank is on the "
			 "host, on another node, or behind a daemon without is_capturable",
			 run->op->kind->name, workspace->rank, workspace->name);
}

/* Begins a run: checks the workspace, and orders the stream behind the last run's stream. May be
 * called again. */
static int begin(struct cei_run *run)
{
	ceov_workspace *workspace = run->op->workspace;
	struct cei_executor *executor = &workspace->executor;
	int r = cei_workspace_look(workspace);

	if (r)
		return cei_raise(cei_object_report(&workspace->object), r, 0,
				 "%s: a run of workspace '%s' of rank %u has failed (%s); "
				 "release the workspace", run->op->kind->name,
				 workspace->name, workspace->rank, ceov_strerror(r));
	return executor->ops->follow_mark(executor, run->stream);
}

/* Gives the run its number, and so its half of scratch. */
static void count(struct cei_run *run)
{
	ceov_workspace *workspace = run->op->workspace;

	if (run->op->kind->is_local) {
		/* relaxed: only the number counts; see number_of() (gemm_marks.c) */
		run->number = 1 + atomic_fetch_add_explicit(&run->op->marks.n_runs, 1,
							    memory_order_relaxed);
		return;
	}
	run->number = ++workspace->n_runs;
	run->half = (uint32_t)(run->number % CEI_OP_HALVES);
}

/* Queues the run. From here on peers rely on this rank, so an error ends their runs, too. That of a
 * local run does so as well: what is behind its marks would wait for ever. */
static int issue(const struct cei_run *run)
{
	ceov_workspace *workspace = run->op->workspace;
	struct cei_executor *executor = &workspace->executor;
	int marked, r;

	if (run->op->kind->is_local) {
		r = run->op->kind->job(run);
	} else if (workspace->capture) {
		r = cei_capture_run(workspace->capture, run);
	} else if (cei_op_has_sm_lane(run->op)) {
		r = run->op->kind->job(run);
	} else {
		r = run->op->meets ? meet(run) : 0;
		if (!r)
			r = raise_start(run);
		if (!r)
			r = launch_phases(run);
		if (!r)
			r = run->op->kind->job(run);
	}
	/* Work that was queued before an error must still end before memory is freed. */
	marked = executor->ops->mark_stream(executor, run->stream);
	r = r ? r : marked;
	return !r || r == CEI_RUN_REFUSED ? r : cei_workspace_fail(workspace, r);
}

static int queue(struct cei_run *run)
{
	int r = begin(run);

	if (r)
		return r;
	count(run);
	return issue(run);
}

/* Makes a step of a run. On a GPU no run of a workspace that follows this one, or that this one
 * follows, may be queued at the same time: it would not know this run as the one before it. */
static int in_turn(struct cei_run *run, int (*step)(struct cei_run *run))
{
	ceov_workspace *workspace = run->op->workspace;
	int r;

	if (!workspace->is_host)
		pthread_mutex_lock(&workspace->leader->turn);
	r = step(run);
	if (!workspace->is_host)
		pthread_mutex_unlock(&workspace->leader->turn);
	return r;
}

/* Has ranks compare an op before its first run. What would have the run refused at this rank comes
 * before, since peers would wait for the run of an op on which they have agreed. While this rank
 * waits for peers, runs of other ops can be made. */
static int compare(struct cei_run *run)
{
	ceov_workspace *workspace = run->op->workspace;
	int r;

	pthread_mutex_lock(&workspace->lock);
	r = check_capture(run);
	if (!r)
		r = in_turn(run, begin);
	pthread_mutex_unlock(&workspace->lock);
	return r ? r : cei_agree_check(run->op);
}

static int make(struct cei_run *run)
{
	ceov_workspace *workspace = run->op->workspace;
	int landed, r = cei_agree_is_due(run->op) ? compare(run) : 0;

	if (r)
		return r;
	pthread_mutex_lock(&workspace->lock);
	r = check_capture(run);
	if (!r)
		r = cei_workspace_make_room(workspace);
	if (!r)
		r = in_turn(run, queue);
	/* A run on the host has ended when it returns, so nothing may use the caller's memory any
	 * more. */
	landed = workspace->is_host ? cei_workspace_land(workspace) : 0;
	pthread_mutex_unlock(&workspace->lock);
	if (!r || r == CEI_RUN_REFUSED)
		r = landed || !r ? landed : CEOV_ERR_INVALID;
	return r;
}

int cei_run_make(struct cei_run *run)
{
	struct cei_ranges *ranges = run->op->workspace->object.context->site.ranges;
	int r;

	cei_range_begin(ranges, run->op->kind->name, run->op->workspace->n_ranks);
	r = make(run);
	cei_range_end(ranges);
	return r;
}

int cei_op_run(ceov_op *op, const char *run_call, const void *operands)
{
	struct cei_run run = { .op = op, .operands = operands };
	int r = cei_run_take(&run, run_call);

	return r ? r : cei_run_make(&run);
}
