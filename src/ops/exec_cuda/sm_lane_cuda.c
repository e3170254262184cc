/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The GPU's lane that SMs carry out: a stream, and the kernel of kernels/sm_lane.h on it. */

#include "ops/compute/sm_lane.h"

#include <string.h>

#include "ops/exec_cuda/execute_cuda.h"

static const char kernel[] = "cei_sm_lane";

static int make(struct cei_gpu_executor *own)
{
	const struct cei_cuda_calls *calls = &own->cuda->calls;
	int least = 0, greatest = 0, r;
	void *function = NULL;
	CUresult result;

	r = cei_module_find(own->module, kernel, &function);
	if (r)
		return r;
	result = calls->function_set(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
				     (int)CEI_SM_LANE_SHARED_BYTES);
	if (result == CUDA_SUCCESS)
		result = calls->ctx_priorities(&least, &greatest);
	if (result == CUDA_SUCCESS && !own->lane_begun)
		result = calls->event_create(&own->lane_begun, CU_EVENT_DISABLE_TIMING);
	if (result == CUDA_SUCCESS && !own->lane_ended)
		result = calls->event_create(&own->lane_ended, CU_EVENT_DISABLE_TIMING);
	if (result == CUDA_SUCCESS)
		result = calls->stream_create(&own->lane, CU_STREAM_NON_BLOCKING, greatest);
	return cei_gpu_executor_check(own, result, "a stream for a lane of SMs");
}

static int lane_open(struct cei_executor *executor)
{
	struct cei_gpu_executor *own = executor->private;
	struct cei_cuda_hold hold;
	int r;

	if (own->lane)
		return 0;
	r = cei_cuda_push(own->cuda, own->gpu, &hold);
	if (r)
		return r;
	r = make(own);
	cei_cuda_pop(own->cuda, &hold);
	return r;
}

void cei_gpu_sm_lane_close(struct cei_gpu_executor *own)
{
	const struct cei_cuda_calls *calls = &own->cuda->calls;

	if (own->lane)
		(void)calls->stream_destroy(own->lane);
	if (own->lane_ended)
		(void)calls->event_destroy(own->lane_ended);
	if (own->lane_begun)
		(void)calls->event_destroy(own->lane_begun);
}

/* Orders the work that will be queued on `to` behind the work that is on `from` now. */
static int go_on(struct cei_gpu_executor *own, CUevent event, CUstream from, CUstream to)
{
	const struct cei_cuda_calls *calls = &own->cuda->calls;
	struct cei_cuda_hold hold;
	CUresult result;
	int r = cei_cuda_push(own->cuda, own->gpu, &hold);

	if (r)
		return r;
	result = calls->event_record(event, from);
	if (result == CUDA_SUCCESS)
		result = calls->stream_wait_event(to, event, 0);
	cei_cuda_pop(own->cuda, &hold);
	return cei_gpu_executor_check(own, result, "ordering a lane of SMs and a stream");
}

static int lane_begin(struct cei_executor *executor, void *stream, uint32_t n_blocks)
{
	struct cei_gpu_executor *own = executor->private;

	own->lane_blocks = n_blocks;
	return go_on(own, own->lane_begun, stream, own->lane);
}

static int lane_end(struct cei_executor *executor, void *stream)
{
	struct cei_gpu_executor *own = executor->private;

	own->lane_blocks = 0;
	return go_on(own, own->lane_ended, own->lane, stream);
}

static int lane_carry(struct cei_executor *executor, const struct cei_sm_lane_job *job)
{
	struct cei_gpu_executor *own = executor->private;
	struct cei_sm_lane lane;
	void *arguments[] = { &lane };
	struct cei_module_launch launch = {
		.name = kernel,
		.n_blocks = job->n_blocks,
		.n_threads = CEI_SM_LANE_THREADS,
		.shared_bytes = CEI_SM_LANE_SHARED_BYTES,
		.stream = own->lane,
		.arguments = arguments,
	};
	int r;

	memset(&lane, 0, sizeof(lane));
	r = cei_gpu_signal(own, job->marks.ready, &lane.ready);
	if (r)
		return r;
	lane.steps = job->steps;
	lane.n_steps = job->n_steps;
	lane.n_arrived = job->n_arrived;
	lane.floating = (uint64_t)(uintptr_t)job->floating;
	lane.epoch = job->marks.epoch;
	lane.gate_value = job->marks.epoch ? 1 : job->marks.value;
	lane.value = job->marks.value;
	lane.timeout_ns = job->marks.timeout_ns;
	lane.status = (uint32_t *)own->status;
	lane.failed = cei_gpu_word(own, CEI_GPU_WORD_FAILED);
	return cei_module_launch(own->module, &launch);
}

const struct cei_sm_lane_ops cei_gpu_sm_lane = {
	lane_open, lane_begin, lane_end, lane_carry
};
