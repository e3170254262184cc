/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Branches of a graph that begin within a run: events of the capture. A fork is a CUevent. */

#include "ops/exec_cuda/execute_cuda.h"

static int make_event(const struct cei_gpu_executor *own, void **fork)
{
	CUevent event = NULL;
	CUresult result;

	if (*fork)
		return 0;
	result = own->cuda->calls.event_create(&event, CU_EVENT_DISABLE_TIMING);
	*fork = event;
	return cei_gpu_executor_check(own, result, "an event for a graph");
}

int cei_gpu_fork(struct cei_executor *executor, void *stream, void **fork)
{
	struct cei_gpu_executor *own = executor->private;
	struct cei_cuda_hold hold;
	int r = cei_cuda_push(own->cuda, own->gpu, &hold);

	if (r)
		return r;
	r = make_event(own, fork);
	if (!r)
		r = cei_gpu_executor_check(own, own->cuda->calls.event_record(*fork, stream),
					   "recording where branches of a graph begin");
	cei_cuda_pop(own->cuda, &hold);
	return r;
}

int cei_gpu_join(struct cei_executor *executor, void *stream, void *fork)
{
	struct cei_gpu_executor *own = executor->private;
	struct cei_cuda_hold hold;
	CUresult result;
	int r = cei_cuda_push(own->cuda, own->gpu, &hold);

	if (r)
		return r;
	result = own->cuda->calls.stream_wait_event(stream, fork, 0);
	cei_cuda_pop(own->cuda, &hold);
	return cei_gpu_executor_check(own, result, "beginning a branch of a graph (the run was "
				      "captured, so its marks can be awaited in that graph only)");
}

void cei_gpu_end_fork(struct cei_executor *executor, void *fork)
{
	struct cei_gpu_executor *own = executor->private;
	struct cei_cuda_hold hold;

	/* The push fails only after a sticky CUDA error; then the event is gone already. */
	if (!fork || cei_cuda_push(own->cuda, own->gpu, &hold))
		return;
	(void)own->cuda->calls.event_destroy(fork);
	cei_cuda_pop(own->cuda, &hold);
}
