/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The bench's GPU side: memory patterns, streams, events, kernels, and the raw
 * driver calls that ours are compared with. */

#include "tools/bench/device_cuda.h"

#include <stdlib.h>
#include <string.h>

#include "tools/kernels/work.h"

#define KERNEL_NS   UINT64_C(20000000000)
#define RAW_BATCH   64u
#define ROUNDS_MAX  100000u

static int open_streams(struct bench_gpu *gpu)
{
	const struct cei_cuda_calls *calls = &gpu->cuda->calls;
	int least = 0, greatest = 0, r;
	uint32_t i;

	/* The streams of the raw loops get the same priority as the library's lanes. */
	r = check(gpu, calls->ctx_priorities(&least, &greatest),
		  "cuCtxGetStreamPriorityRange");
	for (i = 0; !r && i < BENCH_STREAMS; i++)
		r = check(gpu, calls->stream_create(&gpu->streams[i], CU_STREAM_NON_BLOCKING,
						    i == BENCH_STREAM_COPY ? greatest : 0),
			  "cuStreamCreate");
	if (!r)
		r = check(gpu, calls->stream_create(&gpu->control, CU_STREAM_NON_BLOCKING, 0),
			  "cuStreamCreate");
	if (!r)
		r = check(gpu, calls->event_create(&gpu->begin, CU_EVENT_DEFAULT),
			  "cuEventCreate");
	if (!r)
		r = check(gpu, calls->event_create(&gpu->end, CU_EVENT_DEFAULT),
			  "cuEventCreate");
	if (!r)
		r = check(gpu, calls->event_create(&gpu->order, CU_EVENT_DISABLE_TIMING),
			  "cuEventCreate");
	if (!r)
		r = check(gpu, calls->mem_alloc(&gpu->counts, COUNTS * sizeof(uint64_t)),
			  "cuMemAlloc");
	if (!r)
		r = check(gpu, calls->host_alloc((void **)&gpu->pinned,
						 ROUNDS_MAX * sizeof(uint64_t),
						 CU_MEMHOSTALLOC_PORTABLE |
						 CU_MEMHOSTALLOC_DEVICEMAP), "cuMemHostAlloc");
	return r;
}

static int gpu_open(void **ret_private, uint32_t ordinal)
{
	struct bench_gpu *gpu = calloc(1, sizeof(*gpu));
	const char *why = "";
	int r;

	if (!gpu)
		return CEOV_ERR_NO_MEMORY;
	cei_report_init(&gpu->report, NULL, NULL);
	gpu->gpu = ordinal;
	r = cei_cuda_open(&gpu->report, &gpu->cuda, &why);
	if (r > 0)
		r = cei_raise(&gpu->report, CEOV_ERR_INVALID, 0, "bench: no GPU: %s", why);
	if (!r)
		r = cei_cuda_context(gpu->cuda, ordinal, &gpu->context);
	if (!r)
		r = current(gpu);
	if (!r)
		r = open_streams(gpu);
	if (!r)
		r = cei_module_open(gpu->cuda, ordinal, &cei_work_kernels, &gpu->module);
	*ret_private = gpu;
	return r;
}

static void gpu_close(void *private)
{
	struct bench_gpu *gpu = private;
	const struct cei_cuda_calls *calls;
	uint32_t i;

	if (gpu->cuda) {
		calls = &gpu->cuda->calls;
		(void)current(gpu);
		cei_module_close(gpu->module);
		for (i = 0; i < BENCH_STREAMS; i++)
			if (gpu->streams[i])
				(void)calls->stream_destroy(gpu->streams[i]);
		if (gpu->control)
			(void)calls->stream_destroy(gpu->control);
		if (gpu->begin)
			(void)calls->event_destroy(gpu->begin);
		if (gpu->end)
			(void)calls->event_destroy(gpu->end);
		if (gpu->order)
			(void)calls->event_destroy(gpu->order);
		if (gpu->counts)
			(void)calls->mem_free(gpu->counts);
		if (gpu->pinned)
			(void)calls->host_free(gpu->pinned);
		cei_cuda_close(gpu->cuda);
	}
	cei_report_fini(&gpu->report);
	free(gpu);
}

/* --- patterns ------------------------------------------------------------ */

static int gpu_fill(void *private, void *at, uint64_t n_bytes, uint64_t seed)
{
	struct bench_gpu *gpu = private;
	uint64_t n_words = n_bytes / 8;
	void *arguments[] = { &at, &n_words, &seed };
	int r = current(gpu);

	if (!r)
		r = launch(gpu, "cei_kernel_fill", 512, gpu->control, arguments);
	return r ? r : idle(gpu, gpu->control);
}

static int gpu_verify(void *private, const void *at, uint64_t n_bytes,
		     uint64_t seed, uint64_t *ret_n_wrong)
{
	struct bench_gpu *gpu = private;
	uint64_t n_words = n_bytes / 8, counts[2] = { 0, UINT64_MAX };
	CUdeviceptr wrong = gpu->counts, first = gpu->counts + 8;
	void *arguments[] = { &at, &n_words, &seed, &wrong, &first };
	int r = current(gpu);

	if (!r)
		r = copy_now(gpu, gpu->counts, (CUdeviceptr)(uintptr_t)counts,
			     sizeof(counts));
	if (!r)
		r = launch(gpu, "cei_kernel_verify", 512, gpu->control, arguments);
	if (!r)
		r = copy_now(gpu, (CUdeviceptr)(uintptr_t)counts, gpu->counts,
			     sizeof(counts));
	*ret_n_wrong = counts[N_WRONG];
	return r;
}

/* --- streams and time ---------------------------------------------------- */

static void *gpu_stream(void *private, enum bench_stream which)
{
	struct bench_gpu *gpu = private;

	(void)current(gpu);             /* makes the rank's GPU current, as NCCL expects */
	return gpu->streams[which];
}

static int gpu_sync(void *private, enum bench_stream which)
{
	struct bench_gpu *gpu = private;

	return idle(gpu, gpu->streams[which]);
}

static int gpu_follow(void *private, enum bench_stream later,
		     enum bench_stream earlier)
{
	struct bench_gpu *gpu = private;
	const struct cei_cuda_calls *calls = &gpu->cuda->calls;
	int r = current(gpu);

	if (!r)
		r = check(gpu, calls->event_record(gpu->order, gpu->streams[earlier]),
			  "cuEventRecord");
	return r ? r : check(gpu, calls->stream_wait_event(gpu->streams[later], gpu->order,
							   0), "cuStreamWaitEvent");
}

static int gpu_time_begin(void *private)
{
	struct bench_gpu *gpu = private;
	int r = current(gpu);

	return r ? r : check(gpu, gpu->cuda->calls.event_record(
		gpu->begin, gpu->streams[BENCH_STREAM_MAIN]), "cuEventRecord");
}

static int gpu_time_end(void *private)
{
	struct bench_gpu *gpu = private;
	int r = current(gpu);

	return r ? r : check(gpu, gpu->cuda->calls.event_record(
		gpu->end, gpu->streams[BENCH_STREAM_MAIN]), "cuEventRecord");
}

static int gpu_time_us(void *private, double *ret_us)
{
	struct bench_gpu *gpu = private;
	float ms = 0;
	int r = idle(gpu, gpu->streams[BENCH_STREAM_MAIN]);

	if (!r)
		r = check(gpu, gpu->cuda->calls.event_elapsed(&ms, gpu->begin, gpu->end),
			  "cuEventElapsedTime");
	*ret_us = (double)ms * 1e3;
	return r;
}

/* --- raw driver calls ---------------------------------------------------- */

static CUresult copy_rows(struct bench_gpu *gpu, CUstream stream,
			  const struct bench_copy *copy)
{
	CUDA_MEMCPY2D rows;

	memset(&rows, 0, sizeof(rows));
	rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
	rows.srcDevice = (CUdeviceptr)(uintptr_t)copy->source;
	rows.dstDevice = (CUdeviceptr)(uintptr_t)copy->target;
	rows.srcPitch = rows.dstPitch = copy->pitch_bytes;
	rows.WidthInBytes = copy->row_bytes;
	rows.Height = copy->n_rows;
	return gpu->cuda->calls.copy_2d(&rows, stream);
}

static CUresult copy_batch(struct bench_gpu *gpu, CUstream stream,
			   const struct bench_copy *copies, uint32_t n)
{
	CUdeviceptr targets[RAW_BATCH], sources[RAW_BATCH];
	size_t sizes[RAW_BATCH], first = 0;
	CUmemcpyAttributes attributes;
	uint32_t i;

	memset(&attributes, 0, sizeof(attributes));
	attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
	attributes.flags = CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE;
	for (i = 0; i < n; i++) {
		targets[i] = (CUdeviceptr)(uintptr_t)copies[i].target;
		sources[i] = (CUdeviceptr)(uintptr_t)copies[i].source;
		sizes[i] = copies[i].row_bytes;
	}
	return gpu->cuda->calls.copy_batch(targets, sources, sizes, n, &attributes, &first,
					   1, stream);
}

static int gpu_copies(void *private, enum bench_stream which,
		     const struct bench_copy *copies, uint32_t n)
{
	struct bench_gpu *gpu = private;
	const struct cei_cuda_calls *calls = &gpu->cuda->calls;
	CUstream stream = gpu->streams[which];
	uint32_t i;
	int r = current(gpu);

	if (!r && n > 1 && n <= RAW_BATCH && calls->copy_batch && copies[0].n_rows == 1)
		return check(gpu, copy_batch(gpu, stream, copies, n), "cuMemcpyBatchAsync");
	for (i = 0; !r && i < n; i++)
		r = check(gpu, copies[i].n_rows > 1 ? copy_rows(gpu, stream, &copies[i])
			  : calls->copy((CUdeviceptr)(uintptr_t)copies[i].target,
					(CUdeviceptr)(uintptr_t)copies[i].source,
					copies[i].row_bytes, stream), "cuMemcpyAsync");
	return r;
}

static CUresult one_memop(struct bench_gpu *gpu, CUstream stream, CUdeviceptr flag,
			  int is_wait, uint64_t value)
{
	const struct cei_cuda_calls *calls = &gpu->cuda->calls;

	return is_wait ? calls->stream_wait_value(stream, flag, value,
						  CU_STREAM_WAIT_VALUE_GEQ)
		: calls->stream_write_value(stream, flag, value, 0);
}

static int batch_memops(struct bench_gpu *gpu, enum bench_stream which,
			void *const *flags, uint32_t n, uint64_t value)
{
	CUstreamBatchMemOpParams ops[RAW_BATCH];
	int is_wait = value >> 63 & 1;
	uint32_t i;
	int r = current(gpu);

	memset(ops, 0, sizeof(ops));
	value &= ~(UINT64_C(1) << 63);
	if (!r && n == 1)
		return check(gpu, one_memop(gpu, gpu->streams[which],
					    (CUdeviceptr)(uintptr_t)flags[0], is_wait,
					    value), "stream memory operation");
	for (i = 0; i < n && i < RAW_BATCH; i++) {
		if (is_wait) {
			ops[i].operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
			ops[i].waitValue.address = (CUdeviceptr)(uintptr_t)flags[i];
			ops[i].waitValue.value64 = value;
			ops[i].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
		} else {
			ops[i].operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
			ops[i].writeValue.address = (CUdeviceptr)(uintptr_t)flags[i];
			ops[i].writeValue.value64 = value;
		}
	}
	return r ? r : check(gpu, gpu->cuda->calls.stream_batch(gpu->streams[which], i, ops,
								0), "cuStreamBatchMemOp");
}

static int gpu_flags(void *private, enum bench_stream which, void *const *flags,
		    uint32_t n, uint64_t value)
{
	struct bench_gpu *gpu = private;

	return batch_memops(gpu, which, flags, n, value);
}

static int gpu_waits(void *private, enum bench_stream which, void *const *flags,
		    uint32_t n, uint64_t value)
{
	struct bench_gpu *gpu = private;

	return batch_memops(gpu, which, flags, n, value | UINT64_C(1) << 63);
}

/* --- kernels ------------------------------------------------------------- */

static int gpu_pingpong_start(void *private, const struct bench_pingpong *game)
{
	struct bench_gpu *gpu = private;
	struct cei_kernel_pingpong pingpong;
	uint64_t zero = 0;
	void *arguments[] = { &pingpong };
	struct cei_module_launch made = {
		.name = "cei_kernel_pingpong",
		.n_blocks = 1,
		.n_threads = 1,
		.stream = gpu->streams[BENCH_STREAM_MAIN],
		.arguments = arguments,
	};
	int r = current(gpu);

	memset(&pingpong, 0, sizeof(pingpong));
	pingpong.raise_signal = game->raised;
	pingpong.await_signal = game->awaited;
	pingpong.first_value = game->first_value;
	pingpong.n_rounds = game->n_rounds;
	pingpong.timeout_ns = KERNEL_NS;
	pingpong.ret_ns = gpu->pinned;
	pingpong.ret_status = (uint32_t *)(uintptr_t)(gpu->counts +
						      STATUS * sizeof(uint64_t));
	if (!r)
		r = copy_now(gpu, gpu->counts + STATUS * sizeof(uint64_t),
			     (CUdeviceptr)(uintptr_t)&zero, sizeof(zero));
	return r ? r : cei_module_launch(gpu->module, &made);
}

static int gpu_pingpong_wait(void *private, uint32_t n_rounds, double *ret_us)
{
	struct bench_gpu *gpu = private;
	uint64_t status = 0;
	uint32_t i;
	int r = gpu_sync(gpu, BENCH_STREAM_MAIN);

	if (!r)
		r = copy_now(gpu, (CUdeviceptr)(uintptr_t)&status,
			     gpu->counts + STATUS * sizeof(uint64_t), sizeof(status));
	if (!r && (uint32_t)status)
		r = cei_raise(&gpu->report, CEOV_ERR_TIMEOUT, (int)status,
			      "bench: the ping-pong kernel left early");
	for (i = 0; i < n_rounds; i++)
		ret_us[i] = (double)gpu->pinned[i] / 1e3;
	return r;
}

static uint32_t gpu_n_sms(void *private)
{
	struct bench_gpu *gpu = private;
	int n_sms = 0, r = current(gpu);

	if (!r)
		r = check(gpu, gpu->cuda->calls.device_attribute(
			&n_sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
			gpu->cuda->gpus[gpu->gpu].device), "cuDeviceGetAttribute");
	return r ? 0 : (uint32_t)n_sms;
}

/* Starts a kernel that fills every SM with 2048 threads. Its stop word is in the GPU's
 * memory, because polling host memory would slow down all copies of that GPU. */
static int gpu_spin_start(void *private)
{
	struct bench_gpu *gpu = private;
	CUdeviceptr stop = gpu->counts + STOP * sizeof(uint64_t);
	CUdeviceptr n_started = gpu->counts + N_STARTED * sizeof(uint64_t);
	uint64_t timeout = KERNEL_NS, zeros[2] = { 0, 0 }, started = 0;
	void *arguments[] = { &stop, &timeout, &n_started };
	struct cei_module_launch made = {
		.name = "cei_kernel_spin",
		.n_threads = 1024,
		.stream = gpu->streams[BENCH_STREAM_MAIN],
		.arguments = arguments,
	};
	uint64_t deadline = cei_deadline(SYNC_NS);
	int r = current(gpu);

	if (!r)
		r = copy_now(gpu, n_started, (CUdeviceptr)(uintptr_t)zeros, sizeof(zeros));
	made.n_blocks = 2 * gpu_n_sms(gpu);
	if (!r)
		r = cei_module_launch(gpu->module, &made);
	while (!r && (uint32_t)started < made.n_blocks) {
		r = copy_now(gpu, (CUdeviceptr)(uintptr_t)&started, n_started,
			     sizeof(started));
		if (!r && cei_now_ns() > deadline)
			r = cei_raise(&gpu->report, CEOV_ERR_TIMEOUT, 0,
				      "bench: the spin kernel holds %u blocks of %u",
				      (uint32_t)started, made.n_blocks);
	}
	return r;
}

static int gpu_spin_stop(void *private)
{
	struct bench_gpu *gpu = private;
	uint64_t one = 1;
	int r = current(gpu);

	if (!r)
		r = copy_now(gpu, gpu->counts + STOP * sizeof(uint64_t),
			     (CUdeviceptr)(uintptr_t)&one, sizeof(one));
	return r ? r : gpu_sync(gpu, BENCH_STREAM_MAIN);
}

/* --- counting GPUs ------------------------------------------------------- */

/* Returns whether all GPUs support NVLink multicast, which NCCL needs for NVLS. */
static int has_multicast(const struct cei_cuda *cuda)
{
	int value = 0;

	return !cuda->calls.device_attribute(&value, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED,
					     cuda->gpus[0].device) && value;
}

static uint32_t gpu_count(char *ret_machine, size_t n_bytes)
{
	struct cei_report report;
	struct cei_cuda *cuda;
	const char *why = "";
	uint32_t n = 0;

	cei_report_init(&report, NULL, NULL);
	snprintf(ret_machine, n_bytes, "no GPU");
	if (!cei_cuda_open(&report, &cuda, &why)) {
		n = cei_cuda_n_gpus(cuda);
		snprintf(ret_machine, n_bytes, "%u GPUs of compute capability %d.%d, "
			 "driver %d.%d%s", n, cuda->gpus[0].capability_major,
			 cuda->gpus[0].capability_minor, cuda->version / 1000,
			 cuda->version % 1000 / 10,
			 has_multicast(cuda) ? "" : ", no NVLink multicast");
		cei_cuda_close(cuda);
	} else {
		snprintf(ret_machine, n_bytes, "%s", why);
	}
	cei_report_fini(&report);
	return n;
}

const struct bench_device_ops bench_device_cuda = {
	.open           = gpu_open,
	.close          = gpu_close,
	.fill           = gpu_fill,
	.verify         = gpu_verify,
	.stream         = gpu_stream,
	.sync           = gpu_sync,
	.follow         = gpu_follow,
	.time_begin     = gpu_time_begin,
	.time_end       = gpu_time_end,
	.time_us        = gpu_time_us,
	.copies         = gpu_copies,
	.flags          = gpu_flags,
	.waits          = gpu_waits,
	.pingpong_start = gpu_pingpong_start,
	.pingpong_wait  = gpu_pingpong_wait,
	.n_sms          = gpu_n_sms,
	.spin_start     = gpu_spin_start,
	.spin_stop      = gpu_spin_stop,
	.allocate       = bench_gpu_allocate,
	.release        = bench_gpu_release,
	.values         = bench_gpu_values,
	.compare        = bench_gpu_compare,
	.capture_begin  = bench_gpu_capture_begin,
	.capture_end    = bench_gpu_capture_end,
	.graph_launch   = bench_gpu_graph_launch,
	.graph_drop     = bench_gpu_graph_drop,
	.count          = gpu_count,
};
