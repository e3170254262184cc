/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BENCH_CUDA_H
#define BENCH_CUDA_H

/* Declarations shared by the files of the bench's GPU side: device_cuda.c has memory patterns,
 * streams, raw calls and kernels; work_cuda.c has what measuring operators needs. */

#include "tools/bench/device.h"

#include "base/clock.h"
#include "base/cuda_table.h"
#include "kernels/module.h"

#define SYNC_NS UINT64_C(60000000000)

struct bench_gpu {
	struct cei_report  report;
	struct cei_cuda   *cuda;
	struct cei_module *module;
	uint32_t           gpu;
	CUcontext          context;
	CUstream           streams[BENCH_STREAMS];
	CUevent            begin;
	CUevent            end;
	CUevent            order;
	CUstream           control;     /* for fill and verify, apart from the measured streams */
	CUdeviceptr        counts;      /* indexed by enum count */
	uint64_t          *pinned;      /* the rounds' times */
};

enum count {                            /* 64-bit words in GPU memory */
	N_WRONG, FIRST_WRONG, N_STARTED, STOP, STATUS, DIFFERENCE, LARGEST, N_UNLIKE, COUNTS
};

static inline int check(struct bench_gpu *gpu, CUresult result, const char *what)
{
	if (result == CUDA_SUCCESS)
		return 0;
	return cei_cuda_raise(gpu->cuda, result, CEOV_NOBODY, "bench: %s", what);
}

static inline int current(struct bench_gpu *gpu)
{
	return check(gpu, gpu->cuda->calls.ctx_set(gpu->context), "cuCtxSetCurrent");
}

static inline int idle(struct bench_gpu *gpu, CUstream stream)
{
	int r = current(gpu);

	return r ? r : check(gpu, cei_cuda_idle(gpu->cuda, stream, cei_deadline(SYNC_NS)),
			     "waiting for a stream");
}

static inline int launch(struct bench_gpu *gpu, const char *name, uint32_t n_blocks,
			 CUstream stream, void **arguments)
{
	struct cei_module_launch made = {
		.name = name,
		.n_blocks = n_blocks,
		.n_threads = 256,
		.stream = stream,
		.arguments = arguments,
	};

	return cei_module_launch(gpu->module, &made);
}

static inline int copy_now(struct bench_gpu *gpu, CUdeviceptr target, CUdeviceptr source,
			   uint64_t n_bytes)
{
	int r = check(gpu, gpu->cuda->calls.copy(target, source, n_bytes, gpu->control),
		      "cuMemcpyAsync");

	return r ? r : idle(gpu, gpu->control);
}

/* work_cuda.c implements these calls of device.h. */
int  bench_gpu_allocate(void *private, uint64_t n_bytes, void **ret_at);
void bench_gpu_release(void *private, void *at);
int  bench_gpu_values(void *private, const struct bench_values *values);
int  bench_gpu_compare(void *private, struct bench_compare *compare);
int  bench_gpu_capture_begin(void *private);
int  bench_gpu_capture_end(void *private, void **ret_graph);
int  bench_gpu_graph_launch(void *private, void *graph);
void bench_gpu_graph_drop(void *private, void *graph);

#endif /* BENCH_CUDA_H */
