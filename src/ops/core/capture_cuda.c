/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Queues runs that graphs can hold; capture_cuda.h says how they differ from launches. */

#include "ops/core/capture_cuda.h"

#include <stdlib.h>
#include <string.h>

#include "backend/place.h"
#include "ce_engine/exec/lower.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/signal.h"
#include "kernels/begin.h"
#include "ops/core/graphs_cuda.h"
#include "ops/core/op.h"
#include "ops/exec_cuda/execute_cuda.h"

/* A spare graph has so many kernels and as many copies: where the driver's memory for graphs was
 * measured, graphs of 12 and of 48 nodes took the same. */
#define SPARE_PAIRS 8u

enum word {
	WORD_EPOCH, WORD_LAST_USE, WORD_ENDED = WORD_LAST_USE + CEI_OP_HALVES, WORDS
};

struct cei_capture {
	ceov_workspace          *workspace;
	struct cei_gpu_executor *gpu;           /* the workspace's executor */
	CUdeviceptr              words;         /* the words of enum word in GPU memory */
	CUevent                  begun;         /* orders the lane behind the caller's stream */
	CUstream                 lane;          /* carries copies, gates and marks of all runs */
	CUevent                  sent;          /* orders the caller's stream behind the lane */
	CUstream                 beside;        /* used in place of the legacy stream, and as the
						 * stream on which graphs are captured */
	struct cei_graphs        graphs;        /* of repeated runs */
};

static CUdeviceptr word_at(const struct cei_capture *capture, uint32_t index)
{
	return capture->words + index * sizeof(uint64_t);
}

uint64_t *cei_capture_epoch(const struct cei_capture *capture)
{
	return (uint64_t *)(uintptr_t)word_at(capture, WORD_EPOCH);
}

struct cei_direct_words cei_capture_words(const struct cei_capture *capture)
{
	const struct cei_direct_words words = {
		.epoch = cei_capture_epoch(capture),
		.last_use = (uint64_t *)(uintptr_t)word_at(capture, WORD_LAST_USE),
		.n_ended = (uint32_t *)(uintptr_t)word_at(capture, WORD_ENDED),
	};

	return words;
}

/* --- opening and closing --------------------------------------------------------------- */

static int open_words(struct cei_capture *capture)
{
	const ceov_workspace *workspace = capture->workspace;
	ceov_context *context = workspace->object.context;
	struct cei_backend *backend = cei_context_backend(context, workspace->rank);
	const uint64_t zeros[WORDS] = { 0 };
	CUresult result;

	result = capture->gpu->cuda->calls.mem_alloc(&capture->words, sizeof(zeros));
	if (result != CUDA_SUCCESS)
		return cei_gpu_executor_check(capture->gpu, result, "memory for a number");
	return backend->ops->store(backend, capture->words, zeros, sizeof(zeros));
}

/* Opens the only lane. If two lanes took turns, gates and marks of one could overlap with copies of
 * the other. But then each GPU has two copies in flight, and when all GPUs do, the two together get
 * little more than half of a link's rate (measured on 8 H200; docs/internals/operators.md). */
static int open_lane(struct cei_capture *capture)
{
	const struct cei_cuda_calls *calls = &capture->gpu->cuda->calls;
	int least = 0, greatest = 0;
	CUresult result;

	result = calls->ctx_priorities(&least, &greatest);
	if (result == CUDA_SUCCESS)
		result = calls->event_create(&capture->begun, CU_EVENT_DISABLE_TIMING);
	if (result == CUDA_SUCCESS)
		result = calls->event_create(&capture->sent, CU_EVENT_DISABLE_TIMING);
	if (result == CUDA_SUCCESS)
		result = calls->stream_create(&capture->lane, CU_STREAM_NON_BLOCKING,
					      greatest);
	if (result == CUDA_SUCCESS)
		result = calls->stream_create(&capture->beside, CU_STREAM_NON_BLOCKING, least);
	return cei_gpu_executor_check(capture->gpu, result, "streams for captured runs");
}

static int queue_moved(void *arg, const struct cei_run *run);
static int queue_spare(void *arg, const struct cei_run *run);

static void open_graphs(struct cei_capture *capture)
{
	struct cei_graphs *graphs = &capture->graphs;

	graphs->gpu = capture->gpu;
	graphs->beside = capture->beside;
	graphs->queue = queue_moved;
	graphs->queue_arg = capture;
	/* If another rank shares the GPU, its kernels may be waiting for this very run, and making
	 * a graph may wait for them: other users of the driver's memory for graphs may have taken
	 * what the spare ones gave back. */
	graphs->makes_none = cei_site_n_on_gpu(&capture->workspace->object.context->site,
					       capture->gpu->gpu) > 1;
	if (!graphs->makes_none)
		cei_graphs_reserve(graphs, queue_spare);
}

int cei_capture_open(ceov_workspace *workspace, struct cei_capture **ret_capture)
{
	struct cei_capture *capture = calloc(1, sizeof(*capture));
	struct cei_cuda_hold hold;
	int r;

	if (!capture)
		return cei_raise(cei_object_report(&workspace->object), CEOV_ERR_NO_MEMORY, 0,
				 "workspace '%s': no memory", workspace->name);
	capture->workspace = workspace;
	capture->gpu = workspace->executor.private;
	r = cei_cuda_push(capture->gpu->cuda, capture->gpu->gpu, &hold);
	if (r)
		goto fail;
	r = open_words(capture);
	if (!r)
		r = open_lane(capture);
	if (!r)
		open_graphs(capture);
	cei_cuda_pop(capture->gpu->cuda, &hold);
	if (r)
		goto fail;
	*ret_capture = capture;
	return 0;
fail:
	cei_capture_close(capture);
	return r;
}

void cei_capture_close(struct cei_capture *capture)
{
	const struct cei_cuda_calls *calls;
	struct cei_cuda_hold hold;

	if (!capture)
		return;
	/* The push fails only after a sticky CUDA error; then the memory is gone already. */
	if (!cei_cuda_push(capture->gpu->cuda, capture->gpu->gpu, &hold)) {
		calls = &capture->gpu->cuda->calls;
		cei_graphs_close(&capture->graphs);
		if (capture->beside)
			(void)calls->stream_destroy(capture->beside);
		if (capture->lane)
			(void)calls->stream_destroy(capture->lane);
		if (capture->sent)
			(void)calls->event_destroy(capture->sent);
		if (capture->begun)
			(void)calls->event_destroy(capture->begun);
		if (capture->words)
			(void)calls->mem_free(capture->words);
		cei_cuda_pop(capture->gpu->cuda, &hold);
	}
	free(capture);
}

/* --- a run ------------------------------------------------------------------------------- */

static int fill_begin(const struct cei_capture *capture, struct cei_op_begin *begin)
{
	const ceov_workspace *workspace = capture->workspace;
	struct ceov_device_signal ready;
	uint32_t i;
	int r = cei_gpu_signal(capture->gpu, workspace->ready, &ready);

	if (r)
		return r;
	begin->epoch = cei_capture_epoch(capture);
	begin->last_use = (uint64_t *)(uintptr_t)word_at(capture, WORD_LAST_USE);
	begin->gates = ready.counters;
	begin->n_gates = workspace->ready->n_counters;
	begin->n_ranks = workspace->n_ranks;
	begin->own = workspace->rank;
	begin->timeout_ns = workspace->deadline_ns;
	begin->status = (uint32_t *)capture->gpu->status;
	r = cei_gpu_signal(capture->gpu, workspace->met[workspace->rank], &begin->done);
	for (i = 0; !r && i < workspace->n_ranks; i++)
		if (i != workspace->rank)
			r = cei_gpu_peer_counter(capture->gpu, workspace->met[i], workspace->rank,
						 &begin->peer_done[i]);
	return r;
}

/* Orders the work that will be queued on `to` behind the work that is on `from` now. `what` names
 * the action in an error message. */
static int go_on(const struct cei_capture *capture, CUevent event, CUstream from, CUstream to,
		 const char *what)
{
	const struct cei_cuda_calls *calls = &capture->gpu->cuda->calls;
	struct cei_cuda_hold hold;
	CUresult result;
	int r = cei_cuda_push(capture->gpu->cuda, capture->gpu->gpu, &hold);

	if (r)
		return r;
	result = calls->event_record(event, from);
	if (result == CUDA_SUCCESS)
		result = calls->stream_wait_event(to, event, 0);
	cei_cuda_pop(capture->gpu->cuda, &hold);
	return cei_gpu_executor_check(capture->gpu, result, what);
}

/* Queues cei_op_begin, and the lane behind it. */
static int launch_begin(const struct cei_capture *capture, void *stream,
			struct cei_op_begin *told)
{
	void *arguments[] = { told };
	const struct cei_module_launch launch = {
		.name = "cei_op_begin",
		.n_blocks = 1,
		.n_threads = CEI_BEGIN_THREADS,
		.stream = stream,
		.arguments = arguments,
	};
	int r = cei_module_launch(capture->gpu->module, &launch);

	return r ? r : go_on(capture, capture->begun, stream, capture->lane, "beginning a run");
}

static int begin(const struct cei_capture *capture, void *stream, uint32_t half)
{
	struct cei_op_begin told;
	int r;

	memset(&told, 0, sizeof(told));
	told.half = half;
	r = fill_begin(capture, &told);
	return r ? r : launch_begin(capture, stream, &told);
}

/* Queues a stage's transfers on the lane. The plan gets base 0, because the gates (the `ready`
 * counters) only go from 0 to 1 in each run. A gate that is open stays open until the run ends; the
 * lane waits at each gate once. */
static int send_stage(struct cei_capture *capture, const struct cei_send_stage *stage,
		      uint32_t half, const void *floating)
{
	const ceov_workspace *workspace = capture->workspace;
	const struct cei_stream_run run = {
		.plan = stage->plan[half],
		.backend = cei_context_backend(workspace->object.context, workspace->rank),
		.stream = capture->lane,
		.floating = (uint64_t)(uintptr_t)floating,
		.value_at = word_at(capture, WORD_EPOCH),
	};

	return run.plan ? cei_lower_to_stream(&run) : 0;
}

/* Queues either the stages that await marks of the job (awaits_job), or all others. Stages that
 * await the job are queued behind it: otherwise a gate could get ahead of the kernel that opens it
 * in a queue of the hardware, and block it. The others are queued before the job, so that they
 * begin at once. */
static int send_stages(struct cei_capture *capture, const struct cei_run *run,
		       int awaits_job)
{
	const struct cei_send_stage *stage;
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < run->op->kind->n_stages; i++) {
		stage = &run->op->stages[i];
		if (stage->awaits_job == awaits_job)
			r = send_stage(capture, stage, run->half, run->floating[i]);
	}
	return r;
}

static int send_and_compute(struct cei_capture *capture, const struct cei_run *run)
{
	int r = send_stages(capture, run, 0);

	if (!r)
		r = run->op->kind->job(run);
	return r ? r : send_stages(capture, run, 1);
}

static int queue(struct cei_capture *capture, const struct cei_run *run)
{
	int r, ended;

	if (cei_selector_is_direct(run->op->choice.mode) && !cei_op_has_sm_lane(run->op))
		return run->op->kind->job(run);
	r = begin(capture, run->stream, run->half);
	if (r)
		return r;
	r = cei_op_has_sm_lane(run->op) ? run->op->kind->job(run)
		: send_and_compute(capture, run);
	/* The stream waits for the lane even after a failure: otherwise a capture could not
	 * be ended, and memory could be freed while copies are under way. */
	ended = go_on(capture, capture->sent, capture->lane, run->stream, "ending a run");
	return r ? r : ended;
}

static int queue_moved(void *arg, const struct cei_run *run)
{
	return queue(arg, run);
}

/* Queues for a spare graph, which is never launched, what a run has: kernels on its stream, and
 * copies on the lane. */
static int queue_spare(void *arg, const struct cei_run *run)
{
	const struct cei_capture *capture = arg;
	struct cei_op_begin told;
	uint32_t i;
	int r = 0, ended;

	memset(&told, 0, sizeof(told));
	for (i = 0; !r && i < SPARE_PAIRS; i++) {
		r = launch_begin(capture, run->stream, &told);
		if (!r)
			r = cei_gpu_executor_check(capture->gpu, capture->gpu->cuda->calls.copy(
				word_at(capture, WORD_LAST_USE), word_at(capture, WORD_EPOCH),
				sizeof(uint64_t), capture->lane), "a copy of a spare graph");
	}
	ended = go_on(capture, capture->sent, capture->lane, run->stream, "ending a spare graph");
	return r ? r : ended;
}

/* --- all runs ----------------------------------------------------------------------------- */

/* Queues a run of the legacy stream on the stream `beside`, ordered behind and before the legacy
 * stream's work. The legacy stream itself cannot wait for values in memory, as gates may
 * require. */
static int queue_beside(struct cei_capture *capture, const struct cei_run *run)
{
	static const char what[] = "going on beside the legacy stream";
	struct cei_run moved = *run;
	int r = go_on(capture, capture->begun, run->stream, capture->beside, what), back;

	if (r)
		return r;
	moved.stream = capture->beside;
	r = queue(capture, &moved);
	back = go_on(capture, capture->sent, capture->beside, run->stream, what);
	return r ? r : back;
}

int cei_capture_run(struct cei_capture *capture, const struct cei_run *run)
{
	void *dropped;
	int is_queued, r = cei_graphs_run(&capture->graphs, run, &dropped, &is_queued);

	if (!r && !is_queued)
		r = run->stream == CU_STREAM_LEGACY ? queue_beside(capture, run)
			: queue(capture, run);
	cei_graphs_drop(&capture->graphs, dropped);     /* last, because peers wait for the run */
	return r;
}

void cei_capture_forget(struct cei_capture *capture, const ceov_op *op)
{
	if (capture)
		cei_graphs_forget(&capture->graphs, op);
}

uint32_t cei_capture_n_graphs(const struct cei_capture *capture)
{
	return cei_graphs_n(&capture->graphs);
}
