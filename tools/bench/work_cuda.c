/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* GPU work for measuring operators: memory, bf16 values, comparison of results, graphs. */

#include "tools/bench/device_cuda.h"

#include <string.h>

#include "kernels/fill.h"
#include "tools/bench/values.h"
#include "tools/kernels/work.h"

#define N_BLOCKS 1024u

int bench_gpu_allocate(void *private, uint64_t n_bytes, void **ret_at)
{
	struct bench_gpu *gpu = private;
	CUdeviceptr at = 0;
	int r = current(gpu);

	if (!r)
		r = check(gpu, gpu->cuda->calls.mem_alloc(&at, n_bytes ? n_bytes : 256),
			  "cuMemAlloc");
	if (!r)
		*ret_at = (void *)(uintptr_t)at;
	return r;
}

void bench_gpu_release(void *private, void *at)
{
	struct bench_gpu *gpu = private;

	if (at && !current(gpu))
		(void)check(gpu, gpu->cuda->calls.mem_free((CUdeviceptr)(uintptr_t)at),
			    "cuMemFree");
}

int bench_gpu_values(void *private, const struct bench_values *values)
{
	struct bench_gpu *gpu = private;
	struct cei_fill fill;
	void *arguments[] = { &fill };
	int r;

	memset(&fill, 0, sizeof(fill));
	fill.p = values->at;
	fill.n = values->n;
	fill.seed = values->seed;
	fill.first = values->first;
	fill.kind = values->kind == BENCH_VALUES_BF16 ? CEI_FILL_BF16
		: values->kind == BENCH_VALUES_FLOAT ? CEI_FILL_FLOAT : CEI_FILL_ADD;
	r = launch(gpu, "cei_fill", N_BLOCKS, gpu->control, arguments);
	return r ? r : idle(gpu, gpu->control);
}

/* Returns the float whose bits a kernel stored in a word of the counts. */
static double to_double(uint64_t word)
{
	uint32_t bits = (uint32_t)word;
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

int bench_gpu_compare(void *private, struct bench_compare *compare)
{
	struct bench_gpu *gpu = private;
	CUdeviceptr at = gpu->counts + DIFFERENCE * sizeof(uint64_t);
	uint64_t found[3] = { 0, 0, 0 };
	struct cei_kernel_compare_bf16 question;
	void *arguments[] = { &question };
	int r = current(gpu);

	memset(&question, 0, sizeof(question));
	question.x = compare->x;
	question.y = compare->y;
	question.n = compare->n;
	question.y_is_float = compare->y_is_float != 0;
	question.ret_difference = (uint32_t *)(uintptr_t)at;
	question.ret_largest = (uint32_t *)(uintptr_t)(at + sizeof(uint64_t));
	question.ret_n_unlike = (unsigned long long *)(uintptr_t)(at + 2 * sizeof(uint64_t));
	if (!r)
		r = copy_now(gpu, at, (CUdeviceptr)(uintptr_t)found, sizeof(found));
	if (!r)
		r = launch(gpu, "cei_kernel_compare_bf16", N_BLOCKS, gpu->control,
			   arguments);
	if (!r)
		r = copy_now(gpu, (CUdeviceptr)(uintptr_t)found, at, sizeof(found));
	compare->difference = to_double(found[0]);
	compare->largest = to_double(found[1]);
	compare->n_unlike = found[2];
	return r;
}

/* --- graphs -------------------------------------------------------------- */

/* Captures in thread-local mode, because the library's other threads may call the driver
 * meanwhile. */
int bench_gpu_capture_begin(void *private)
{
	struct bench_gpu *gpu = private;
	int r = current(gpu);

	return r ? r : check(gpu, gpu->cuda->calls.capture_begin(
		gpu->streams[BENCH_STREAM_MAIN], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
		"cuStreamBeginCapture");
}

int bench_gpu_capture_end(void *private, void **ret_graph)
{
	struct bench_gpu *gpu = private;
	const struct cei_cuda_calls *calls = &gpu->cuda->calls;
	CUgraphExec executable = NULL;
	CUgraph graph = NULL;
	CUresult result = calls->capture_end(gpu->streams[BENCH_STREAM_MAIN], &graph);
	int r;

	if (!ret_graph) {               /* the call that failed was reported already */
		if (graph)
			(void)calls->graph_destroy(graph);
		return 0;
	}
	r = check(gpu, result, "cuStreamEndCapture");
	if (!r)
		r = check(gpu, calls->graph_instantiate(&executable, graph, 0),
			  "cuGraphInstantiateWithFlags");
	if (graph)
		(void)calls->graph_destroy(graph);
	if (!r)
		*ret_graph = executable;
	return r;
}

int bench_gpu_graph_launch(void *private, void *graph)
{
	struct bench_gpu *gpu = private;
	int r = current(gpu);

	return r ? r : check(gpu, gpu->cuda->calls.graph_launch(
		graph, gpu->streams[BENCH_STREAM_MAIN]), "cuGraphLaunch");
}

void bench_gpu_graph_drop(void *private, void *graph)
{
	struct bench_gpu *gpu = private;

	if (graph && !current(gpu))
		(void)check(gpu, gpu->cuda->calls.graph_exec_destroy(graph),
			    "cuGraphExecDestroy");
}
