/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * The executor of a GPU, which queues kernels on the caller's stream. Products are computed by our
 * own kernel (gemm_cuda.c) if it supports the shape, else by cuBLAS (gemm_blas_cuda.c).
 *
 * A kernel that fails writes a word of pinned memory, which the host checks between runs.
 */

#include "ops/exec_cuda/execute_cuda.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/place.h"
#include "base/clock.h"
#include "ce_engine/objects/context.h"
#include "kernels/begin.h"
#include "kernels/reduce.h"
#include "ops/compute/dtype.h"
#include "ops/compute/sm_lane.h"

#define KERNEL_NAME_BYTES 32u

static struct cei_gpu_executor *own_of(const struct cei_executor *executor)
{
	return executor->private;
}

int cei_gpu_executor_check(const struct cei_gpu_executor *own, CUresult result,
			   const char *what)
{
	if (result == CUDA_SUCCESS)
		return 0;
	return cei_cuda_raise(own->cuda, result, own->rank, "rank %u: GPU %u: %s", own->rank,
			      own->gpu, what);
}

int cei_gpu_check_waiting(const struct cei_gpu_executor *own, uint32_t n_blocks,
			  const char *kernel)
{
	if (n_blocks + own->lane_blocks <= own->n_sms)
		return 0;
	return cei_raise(own->cuda->report, CEOV_ERR_INVALID, 0,
			 "rank %u: GPU %u: %s would wait for peers on %u SMs, and the transfers of "
			 "its run need %u more, but the workspace has %u; set fewer in the tuning",
			 own->rank, own->gpu, kernel, n_blocks, own->lane_blocks, own->n_sms);
}

/* --- opening and closing --------------------------------------------------------------- */

static int open_attributes(struct cei_gpu_executor *own, uint64_t n_sms_max)
{
	const struct cei_cuda_gpu *gpu = &own->cuda->gpus[own->gpu];
	CUresult result;
	int n_sms = 0;

	result = own->cuda->calls.device_attribute(
		&n_sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, gpu->device);
	own->n_sms = (uint32_t)n_sms;
	if (n_sms_max && n_sms_max < own->n_sms)
		own->n_sms = (uint32_t)n_sms_max;
	own->has_kernels = gpu->capability_major == 9 && gpu->capability_minor == 0;
	return cei_gpu_executor_check(own, result, "counting its SMs");
}

static int open_objects(struct cei_gpu_executor *own)
{
	const struct cei_cuda_calls *calls = &own->cuda->calls;
	void *status = NULL;
	CUresult result;

	result = calls->host_alloc(&status, sizeof(*own->status),
				   CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
	if (result != CUDA_SUCCESS)
		return cei_gpu_executor_check(own, result, "memory for a status");
	own->status = status;
	atomic_store_explicit(own->status, 0, memory_order_relaxed); /* no other thread or
								       * kernel knows it yet */
	return cei_gpu_order_open(&own->order, own->cuda, own->gpu, own->rank,
				  "this workspace, or of one that it follows,");
}

/* Writes the machine's name for stored tunings, for example "NVIDIA_H200-132sm". */
static int name_machine(const struct cei_gpu_executor *own, char machine[CEI_MACHINE_BYTES])
{
	char name[CEI_MACHINE_BYTES - 16] = "";
	CUresult result = own->cuda->calls.device_name(name, (int)sizeof(name),
						       own->cuda->gpus[own->gpu].device);
	size_t i;

	if (result != CUDA_SUCCESS)
		return cei_gpu_executor_check(own, result, "reading its name");
	name[sizeof(name) - 1] = 0;
	for (i = 0; name[i]; i++)
		if (isspace((unsigned char)name[i]))
			name[i] = '_';
	snprintf(machine, CEI_MACHINE_BYTES, "%s-%usm", name, own->n_sms);
	return 0;
}

/* Opens cuBLAS. Without cuBLAS the executor supports only the shapes of our own kernels. */
static int open_blas(struct cei_gpu_executor *own)
{
	int r = cei_blas_open(own->cuda, own->gpu, &own->blas, &own->no_blas);

	if (!r)
		own->no_blas = NULL;
	if (r != CEOV_NONE)
		return r;
	cei_log(own->cuda->report, CEI_LOG_INFO,
		"rank %u: GPU %u: cuBLAS cannot be used: %s", own->rank, own->gpu,
		own->no_blas);
	return 0;
}

static int open_words(struct cei_gpu_executor *own)
{
	struct cei_backend *backend = cei_context_backend(own->context, own->rank);
	const uint32_t zeros[CEI_GPU_WORDS] = { 0 };
	CUresult result = own->cuda->calls.mem_alloc(&own->words, sizeof(zeros));

	if (result != CUDA_SUCCESS)
		return cei_gpu_executor_check(own, result, "memory for words");
	return backend->ops->store(backend, own->words, zeros, sizeof(zeros));
}

uint32_t *cei_gpu_word(const struct cei_gpu_executor *own, enum cei_gpu_word word)
{
	return (uint32_t *)(uintptr_t)own->words + word;
}

uint32_t cei_gpu_sms(const struct cei_gpu_executor *own, void *stream)
{
	uint32_t n = cei_cuda_stream_sms(own->cuda, own->gpu, stream);

	return n && n < own->n_sms ? n : own->n_sms;
}

static int open_all(struct cei_gpu_executor *own, uint64_t n_sms_max)
{
	int r = cei_module_open(own->cuda, own->gpu, &cei_kernels, &own->module);

	if (!r)
		r = open_attributes(own, n_sms_max);
	if (!r)
		r = open_objects(own);
	if (!r)
		r = open_words(own);
	if (!r)
		r = cei_gpu_measure_open(own);
	if (!r && own->has_kernels)
		r = cei_gpu_gemm_open(own);
	if (!r && own->has_kernels)
		r = cei_gpu_direct_open(own);
	return r ? r : open_blas(own);
}

static int gpu_open(struct cei_executor *executor)
{
	const struct cei_site *site = &executor->context->site;
	struct cei_gpu_executor *own = calloc(1, sizeof(*own));
	uint32_t member = cei_context_member(executor->context, executor->rank);
	struct cei_cuda_hold hold;
	int r;

	if (!own)
		return cei_raise(site->report, CEOV_ERR_NO_MEMORY, 0,
				 "rank %u: no memory for an executor", executor->rank);
	executor->private = own;
	own->context = executor->context;
	own->cuda = site->cuda;
	own->rank = executor->rank;
	own->gpu = site->members[member].place.index;
	if (executor->leader)
		own->order.leader = own_of(executor->leader)->order.leader;
	r = cei_cuda_push(own->cuda, own->gpu, &hold);
	if (r)
		return r;
	r = open_all(own, executor->n_sms);
	executor->n_sms = own->n_sms;
	/* Where a process has only a part of the GPU, fewer clusters fit than it has SMs for. */
	if (own->n_clusters && own->n_clusters < own->n_sms / CEI_GEMM_CLUSTER)
		executor->n_sms = own->n_clusters * CEI_GEMM_CLUSTER;
	executor->lacks = own->no_blas;
	if (!r)
		r = name_machine(own, executor->machine);
	cei_cuda_pop(own->cuda, &hold);
	return r;
}

static void gpu_close(struct cei_executor *executor)
{
	struct cei_gpu_executor *own = own_of(executor);
	struct cei_cuda_hold hold;

	if (!own)
		return;
	cei_blas_close(own->blas);
	cei_module_close(own->module);
	/* The push fails only after a sticky CUDA error; then the memory is gone already. */
	if (own->cuda && !cei_cuda_push(own->cuda, own->gpu, &hold)) {
		cei_gpu_measure_close(own);
		cei_gpu_sm_lane_close(own);
		cei_gpu_order_close(&own->order);
		if (own->words)
			(void)own->cuda->calls.mem_free(own->words);
		if (own->status)
			(void)own->cuda->calls.host_free(own->status);
		cei_cuda_pop(own->cuda, &hold);
	}
	free(own);
	executor->private = NULL;
}

/* --- lists in GPU memory ------------------------------------------------------------------ */

static int gpu_hold(struct cei_executor *executor, const void *list, uint64_t n_bytes,
		    void **ret_held)
{
	struct cei_gpu_executor *own = own_of(executor);
	struct cei_backend *backend = cei_context_backend(own->context, own->rank);
	struct cei_cuda_hold hold;
	CUdeviceptr memory = 0;
	CUresult result;
	int r = cei_cuda_push(own->cuda, own->gpu, &hold);

	if (r)
		return r;
	result = own->cuda->calls.mem_alloc(&memory, n_bytes ? n_bytes : 1);
	r = cei_gpu_executor_check(own, result, "memory for a list");
	if (!r && n_bytes && list)
		r = backend->ops->store(backend, memory, list, n_bytes);
	if (r && memory)
		(void)own->cuda->calls.mem_free(memory);
	cei_cuda_pop(own->cuda, &hold);
	if (!r)
		*ret_held = (void *)(uintptr_t)memory;
	return r;
}

static void gpu_drop(struct cei_executor *executor, void *held)
{
	struct cei_gpu_executor *own = own_of(executor);
	struct cei_cuda_hold hold;

	if (!held || cei_cuda_push(own->cuda, own->gpu, &hold))
		return;
	(void)own->cuda->calls.mem_free((CUdeviceptr)(uintptr_t)held);
	cei_cuda_pop(own->cuda, &hold);
}

static int gpu_is_fit(const struct cei_executor *executor, struct cei_tile_shape shape)
{
	const struct cei_gpu_executor *own = own_of(executor);

	return cei_gpu_gemm_has(own, shape) || own->blas;
}

static uint32_t gpu_pair(const struct cei_executor *executor, struct cei_tile_shape shape)
{
	return cei_gpu_gemm_has(own_of(executor), shape) ? CEI_GEMM_CLUSTER : 1;
}

/* --- jobs ---------------------------------------------------------------------------------- */

int cei_gpu_signal(const struct cei_gpu_executor *own, ceov_signal *signal,
		   struct ceov_device_signal *ret_view)
{
	if (signal)
		return ceov_signal_for_device(signal, own->rank, ret_view);
	memset(ret_view, 0, sizeof(*ret_view));
	return 0;
}

/* Loads the kernels of cuBLAS that the job needs. Our own kernels were loaded with their module. */
static int gpu_load(struct cei_executor *executor, const struct cei_gemm_job *job)
{
	struct cei_gpu_executor *own = own_of(executor);

	if (cei_gpu_gemm_has(own, job->shape) || !own->blas)
		return 0;
	return cei_gpu_load_blas(own, job);
}

/* Returns whether the product can also store A. Our kernel stores gathered rows in boxes of half a
 * tile's rows, so every tile must have no rows, half of its rows, or all. */
static int gpu_keeps(const struct cei_executor *executor, const struct cei_gemm_job *job)
{
	return cei_gpu_gemm_has(own_of(executor), job->shape) && job->tiles->has_whole_halves;
}

static int gpu_gemm(struct cei_executor *executor, void *stream,
		    const struct cei_gemm_job *job)
{
	struct cei_gpu_executor *own = own_of(executor);

	if (cei_gpu_gemm_has(own, job->shape))
		return cei_gpu_gemm(own, stream, job);
	return cei_gpu_gemm_by_blas(own, stream, job);
}

static int fill_marks(const struct cei_gpu_executor *own, const struct cei_reduce_job *job,
		      struct cei_reduce *sum)
{
	int r = cei_gpu_signal(own, job->marks.awaited, &sum->awaited);

	if (!r)
		r = cei_gpu_signal(own, job->marks.ready, &sum->ready);
	if (!r)
		r = cei_gpu_signal(own, job->arrived, &sum->arrived);
	if (!r)
		r = cei_gpu_signal(own, job->marks.sent, &sum->sent);
	sum->first_arrived = job->first_arrived;
	sum->sent_index = job->marks.sent_index;
	sum->n_sent = job->marks.n_sent;
	sum->epoch = job->marks.epoch;
	sum->await_value = job->marks.epoch ? 0 : job->marks.value;
	sum->arrive_value = job->marks.epoch ? 1 : job->marks.value;
	sum->sent_value = job->marks.value;
	sum->timeout_ns = job->marks.timeout_ns;
	sum->status = (uint32_t *)own->status;
	sum->failed = cei_gpu_word(own, CEI_GPU_WORD_FAILED);
	return r;
}

int cei_gpu_reduce(struct cei_gpu_executor *own, void *stream,
		   const struct cei_reduce_job *job)
{
	/* blocks of a sum wait for peers' blocks, so all of them have to run at the same time */
	uint32_t n_sms = cei_gpu_sms(own, stream);
	char name[KERNEL_NAME_BYTES];
	struct cei_reduce sum;
	void *arguments[] = { &sum };
	struct cei_module_launch launch = {
		.name = name,
		.n_blocks = n_sms < job->n_blocks ? n_sms : job->n_blocks,
		.n_threads = CEI_REDUCE_THREADS,
		.stream = stream,
		.arguments = arguments,
	};
	int r;

	snprintf(name, sizeof(name), "cei_reduce_%s", cei_dtype_name(job->dtype));
	memset(&sum, 0, sizeof(sum));
	sum.source = job->source;
	sum.target = job->target;
	sum.partials = job->partials;
	sum.gathered = job->gathered;
	sum.partial_stride_bytes = job->partial_stride_bytes;
	memcpy(sum.counts, job->counts, job->n_ranks * sizeof(sum.counts[0]));
	memcpy(sum.piece_elements, job->piece_elements,
	       job->n_ranks * sizeof(sum.piece_elements[0]));
	sum.n_ranks = job->n_ranks;
	sum.own = job->own;
	sum.n_pieces = job->n_pieces;
	sum.is_tail_cut = job->is_tail_cut;
	sum.scale = job->scale;
	r = fill_marks(own, job, &sum);
	if (!r && (job->marks.awaited || job->arrived))
		r = cei_gpu_check_waiting(own, launch.n_blocks, name);
	return r ? r : cei_module_launch(own->module, &launch);
}

static int gpu_reduce(struct cei_executor *executor, void *stream,
		      const struct cei_reduce_job *job)
{
	return cei_gpu_reduce(own_of(executor), stream, job);
}

static int gpu_copy(struct cei_executor *executor, void *stream, void *target,
		    const void *source, uint64_t n_bytes)
{
	struct cei_gpu_executor *own = own_of(executor);
	struct cei_cuda_hold hold;
	CUresult result;
	int r = n_bytes ? cei_cuda_push(own->cuda, own->gpu, &hold) : 0;

	if (r || !n_bytes)
		return r;
	result = own->cuda->calls.copy((CUdeviceptr)(uintptr_t)target,
				       (CUdeviceptr)(uintptr_t)source, n_bytes, stream);
	cei_cuda_pop(own->cuda, &hold);
	return cei_gpu_executor_check(own, result, "copying on the caller's stream");
}

int cei_gpu_await(struct cei_gpu_executor *own, void *stream,
		  const struct cei_job_marks *marks, const struct cei_counters *counters)
{
	struct cei_op_await await;
	void *arguments[] = { &await };
	struct cei_module_launch launch = {
		.name = "cei_op_await",
		.n_blocks = 1,
		.n_threads = 1,
		.stream = stream,
		.arguments = arguments,
	};
	int r;

	memset(&await, 0, sizeof(await));
	await.index = counters->first;
	await.n = counters->n;
	await.epoch = marks->epoch;
	await.value = marks->epoch ? 0 : marks->value;
	await.timeout_ns = marks->timeout_ns;
	await.status = (uint32_t *)own->status;
	await.failed = cei_gpu_word(own, CEI_GPU_WORD_FAILED);
	r = cei_gpu_signal(own, counters->signal, &await.signal);
	return r ? r : cei_module_launch(own->module, &launch);
}

int cei_gpu_raise(struct cei_gpu_executor *own, void *stream, const struct cei_job_marks *marks,
		  const struct cei_counters *counters)
{
	struct cei_op_raise raise;
	void *arguments[] = { &raise };
	struct cei_module_launch launch = {
		.name = "cei_op_raise",
		.n_blocks = 1,
		.n_threads = 1,
		.stream = stream,
		.arguments = arguments,
	};
	int r;

	memset(&raise, 0, sizeof(raise));
	raise.index = counters->first;
	raise.n = counters->n;
	raise.epoch = marks->epoch;
	raise.value = marks->epoch ? 1 : marks->value;
	raise.failed = cei_gpu_word(own, CEI_GPU_WORD_FAILED);
	r = cei_gpu_signal(own, counters->signal, &raise.signal);
	return r ? r : cei_module_launch(own->module, &launch);
}

static int gpu_await(struct cei_executor *executor, void *stream,
		     const struct cei_job_marks *marks, const struct cei_counters *counters)
{
	return cei_gpu_await(own_of(executor), stream, marks, counters);
}

/* --- captures ------------------------------------------------------------------------------ */

/* Returns in *ret_is whether the stream is being captured. If so, the graph determines the order of
 * its work, and events recorded outside the graph must not be used. */
int cei_gpu_is_capturing(const struct cei_gpu_executor *own, void *stream, int *ret_is)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUresult result = own->cuda->calls.stream_is_capturing(stream, &status);

	*ret_is = status != CU_STREAM_CAPTURE_STATUS_NONE;
	return cei_gpu_executor_check(own, result, "asking whether a stream is captured");
}

static int gpu_is_capturing(struct cei_executor *executor, void *stream, int *ret_is)
{
	struct cei_gpu_executor *own = own_of(executor);
	struct cei_cuda_hold hold;
	int r = cei_cuda_push(own->cuda, own->gpu, &hold);

	if (r)
		return r;
	r = cei_gpu_is_capturing(own, stream, ret_is);
	cei_cuda_pop(own->cuda, &hold);
	return r;
}

/* Raises what a kernel has written to the status word. */
static int raise_status(const struct cei_gpu_executor *own, uint32_t status)
{
	const char *fault = cei_gpu_experts_fault(status);

	if (!fault)
		fault = cei_gpu_embedding_fault(status);
	if (fault)
		return cei_raise(own->cuda->report, CEOV_ERR_INVALID, 0,
				 "rank %u: GPU %u: %s", own->rank, own->gpu, fault);
	return cei_raise(own->cuda->report,
			 status == CEI_GPU_TIMEOUT ? CEOV_ERR_TIMEOUT : CEOV_ERR_ABORTED, 0,
			 "rank %u: GPU %u: a kernel left early: %s", own->rank, own->gpu,
			 status == CEI_GPU_TIMEOUT ?
				 "what it waits for did not come within the deadline" :
				 "what it waits for was aborted");
}

static int gpu_status(struct cei_executor *executor)
{
	struct cei_gpu_executor *own = own_of(executor);
	/* acquire: pairs with the kernel's store of the word, and the fence before that store */
	uint32_t status = atomic_load_explicit(own->status, memory_order_acquire);

	if (status && !own->error)
		own->error = raise_status(own, status);
	return own->error;
}

static int in_order(struct cei_gpu_executor *own, CUstream stream,
		    int (*step)(struct cei_gpu_order *order, CUstream stream))
{
	struct cei_cuda_hold hold;
	int r = cei_cuda_push(own->cuda, own->gpu, &hold);

	if (r)
		return r;
	r = step(&own->order, stream);
	cei_cuda_pop(own->cuda, &hold);
	return r;
}

static int gpu_mark_stream(struct cei_executor *executor, void *stream)
{
	return in_order(own_of(executor), stream, cei_gpu_order_mark);
}

static int gpu_follow_mark(struct cei_executor *executor, void *stream)
{
	return in_order(own_of(executor), stream, cei_gpu_order_follow);
}

static int gpu_idle(struct cei_executor *executor, uint64_t timeout_ns)
{
	struct cei_gpu_executor *own = own_of(executor);
	uint64_t deadline_ns = cei_deadline(timeout_ns);
	struct cei_backoff backoff;
	struct cei_cuda_hold hold;
	CUresult result;
	int r = cei_cuda_push(own->cuda, own->gpu, &hold), late;

	if (r)
		return r;
	cei_backoff_reset(&backoff);
	do {
		late = cei_now_ns() >= deadline_ns;
		result = own->cuda->calls.event_query(own->order.mark);
		if (result == CUDA_ERROR_NOT_READY)
			cei_backoff_step(&backoff);
	} while (result == CUDA_ERROR_NOT_READY && !late);
	cei_cuda_pop(own->cuda, &hold);
	if (result == CUDA_ERROR_NOT_READY)
		return CEOV_PENDING;
	return cei_gpu_executor_check(own, result, "waiting for a run");
}

const struct cei_executor_ops cei_executor_cuda = {
	.name = "cuda",
	.open = gpu_open,
	.close = gpu_close,
	.is_fit = gpu_is_fit,
	.pair = gpu_pair,
	.hold = gpu_hold,
	.drop = gpu_drop,
	.load = gpu_load,
	.keeps = gpu_keeps,
	.gemm = gpu_gemm,
	.reduce = gpu_reduce,
	.direct = cei_gpu_direct,
	.copy = gpu_copy,
	.copy_rows = cei_gpu_copy_rows,
	.experts = &cei_gpu_experts,
	.embedding = &cei_gpu_embedding,
	.sm_lane = &cei_gpu_sm_lane,
	.await = gpu_await,
	.is_capturing = gpu_is_capturing,
	.mark_stream = gpu_mark_stream,
	.follow_mark = gpu_follow_mark,
	.fork = cei_gpu_fork,
	.join = cei_gpu_join,
	.end_fork = cei_gpu_end_fork,
	.status = gpu_status,
	.idle = gpu_idle,
	.take = cei_gpu_take,
	.give = cei_gpu_give,
	.time_begin = cei_gpu_time_begin,
	.time_end = cei_gpu_time_end,
};
