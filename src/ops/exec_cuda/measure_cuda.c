/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The measuring functions of a GPU's executor: memory filled with numbers, and time from two
 * events. */

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "kernels/fill.h"
#include "ops/compute/dtype.h"
#include "ops/exec_cuda/execute_cuda.h"

#define FILL_THREADS  256u
#define FILL_PER_SM   8u                /* blocks per SM, enough to keep an SM busy */
#define FILL_SEED     UINT64_C(0x243f6a8885a308d3)

int cei_gpu_measure_open(struct cei_gpu_executor *own)
{
	CUresult result = own->cuda->calls.event_create(&own->times[0], CU_EVENT_DEFAULT);

	if (result == CUDA_SUCCESS)
		result = own->cuda->calls.event_create(&own->times[1], CU_EVENT_DEFAULT);
	return cei_gpu_executor_check(own, result, "events for measuring");
}

void cei_gpu_measure_close(struct cei_gpu_executor *own)
{
	uint32_t i;

	for (i = 0; i < 2; i++)
		if (own->times[i])
			(void)own->cuda->calls.event_destroy(own->times[i]);
}

/* --- operands ------------------------------------------------------------------------------ */

static int fill(struct cei_gpu_executor *own, void *stream,
		const struct cei_fill *told)
{
	struct cei_fill made = *told;
	void *arguments[] = { &made };
	struct cei_module_launch launch = {
		.name = "cei_fill",
		.n_blocks = own->n_sms * FILL_PER_SM,
		.n_threads = FILL_THREADS,
		.stream = stream,
		.arguments = arguments,
	};

	return cei_module_launch(own->module, &launch);
}

static uint32_t kind_of(enum ceov_dtype dtype)
{
	if (dtype == CEOV_FP32)
		return CEI_FILL_FP32;
	return dtype == CEOV_BF16 ? CEI_FILL_BF16 : CEI_FILL_FP16;
}

int cei_gpu_take(struct cei_executor *executor, void *stream, enum ceov_dtype dtype,
		 uint64_t n, void **ret_memory)
{
	struct cei_gpu_executor *own = executor->private;
	struct cei_fill told;
	struct cei_cuda_hold hold;
	CUdeviceptr memory = 0;
	CUresult result;
	int r;

	if (!n) {
		*ret_memory = NULL;
		return 0;
	}
	r = cei_cuda_push(own->cuda, own->gpu, &hold);
	if (r)
		return r;
	result = own->cuda->calls.mem_alloc(&memory, n * cei_dtype_bytes(dtype));
	cei_cuda_pop(own->cuda, &hold);
	if (result == CUDA_ERROR_OUT_OF_MEMORY)
		return cei_raise(own->cuda->report, CEOV_ERR_NO_MEMORY, (int)result,
				 "rank %u: GPU %u: no memory for operands of %" PRIu64
				 " numbers to measure with", own->rank, own->gpu, n);
	r = cei_gpu_executor_check(own, result, "memory for operands to measure with");
	if (r)
		return r;
	memset(&told, 0, sizeof(told));
	told.p = (void *)(uintptr_t)memory;
	told.n = n;
	told.seed = FILL_SEED;
	told.kind = kind_of(dtype);
	r = fill(own, stream, &told);
	if (r)
		cei_gpu_give(executor, told.p);
	else
		*ret_memory = told.p;
	return r;
}

void cei_gpu_give(struct cei_executor *executor, void *memory)
{
	struct cei_gpu_executor *own = executor->private;
	struct cei_cuda_hold hold;

	if (!memory || cei_cuda_push(own->cuda, own->gpu, &hold))
		return;
	(void)own->cuda->calls.mem_free((CUdeviceptr)(uintptr_t)memory);
	cei_cuda_pop(own->cuda, &hold);
}

/* --- times --------------------------------------------------------------------------------- */

int cei_gpu_time_begin(struct cei_executor *executor, void *stream)
{
	struct cei_gpu_executor *own = executor->private;
	struct cei_cuda_hold hold;
	int r = cei_cuda_push(own->cuda, own->gpu, &hold), captures = 0;

	if (r)
		return r;
	r = cei_gpu_is_capturing(own, stream, &captures);
	if (!r && captures)
		r = cei_raise(own->cuda->report, CEOV_ERR_INVALID, 0,
			      "rank %u: GPU %u: nothing can be measured on a stream that is "
			      "being captured; tune before", own->rank, own->gpu);
	if (!r)
		r = cei_gpu_executor_check(
			own, own->cuda->calls.event_record(own->times[0], stream),
			"recording the begin of a measurement");
	cei_cuda_pop(own->cuda, &hold);
	return r;
}

/* Polls until the GPU has reached the end event, or until deadline_ns. */
static CUresult await_end(const struct cei_gpu_executor *own, uint64_t deadline_ns)
{
	struct cei_backoff backoff;
	CUresult result;
	int late;

	cei_backoff_reset(&backoff);
	do {
		late = cei_now_ns() >= deadline_ns;
		result = own->cuda->calls.event_query(own->times[1]);
		if (result == CUDA_ERROR_NOT_READY)
			cei_backoff_step(&backoff);
	} while (result == CUDA_ERROR_NOT_READY && !late);
	return result;
}

int cei_gpu_time_end(struct cei_executor *executor, void *stream, uint64_t timeout_ns,
		     uint64_t *ret_ns)
{
	struct cei_gpu_executor *own = executor->private;
	struct cei_cuda_hold hold;
	CUresult result;
	float ms = 0;
	int r = cei_cuda_push(own->cuda, own->gpu, &hold);

	if (r)
		return r;
	result = own->cuda->calls.event_record(own->times[1], stream);
	if (result == CUDA_SUCCESS)
		result = await_end(own, cei_deadline(timeout_ns));
	if (result == CUDA_SUCCESS)
		result = own->cuda->calls.event_elapsed(&ms, own->times[0], own->times[1]);
	cei_cuda_pop(own->cuda, &hold);
	if (result == CUDA_ERROR_NOT_READY)
		return CEOV_PENDING;
	r = cei_gpu_executor_check(own, result, "measuring");
	if (!r)
		*ret_ns = (uint64_t)((double)ms * 1e6);
	return r;
}
