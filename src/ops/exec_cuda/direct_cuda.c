/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Queues the kernels that store to peers' memory: kernels/direct.h. */

#include <stdio.h>
#include <string.h>

#include "ce_engine/objects/context.h"
#include "ce_engine/objects/signal.h"
#include "ops/compute/direct.h"
#include "ops/compute/dtype.h"
#include "ops/exec_cuda/execute_cuda.h"

#define KERNEL_NAME_BYTES 32u

int cei_gpu_peer_counter(const struct cei_gpu_executor *own, ceov_signal *signal,
			 uint32_t index, uint64_t **ret_counter)
{
	struct ceov_mark mark = { signal, index, 0 };
	struct cei_counter counter;
	int r = cei_signal_resolve(&mark, cei_context_member(own->context, own->rank),
				   "a peer's counter", &counter);

	if (r)
		return r;
	if (!counter.address)
		return cei_raise(own->cuda->report, CEOV_ERR_NO_ROUTE, 0,
				 "rank %u: GPU %u does not reach a signal of a peer", own->rank,
				 own->gpu);
	*ret_counter = (uint64_t *)(uintptr_t)counter.address;
	return 0;
}

static int fill_peer(const struct cei_gpu_executor *own, const struct cei_direct_job *job,
		     uint32_t rank, struct cei_direct_peer *peer)
{
	uint32_t half;
	int r = 0;

	peer->scratch = job->scratch[rank];
	if (rank == job->own)
		return 0;
	for (half = 0; !r && half < CEI_DIRECT_HALVES; half++)
		r = cei_gpu_peer_counter(own, job->arrived[half][rank], 0, &peer->arrived[half]);
	if (!r && job->words.epoch)
		r = cei_gpu_peer_counter(own, job->done[rank], job->own, &peer->done);
	return r;
}

static int fill_marks(const struct cei_gpu_executor *own, const struct cei_direct_job *job,
		      struct cei_direct *direct)
{
	uint32_t half;
	int r = 0;

	for (half = 0; !r && half < CEI_DIRECT_HALVES; half++)
		r = cei_gpu_signal(own, job->arrived[half][job->own], &direct->arrived[half]);
	if (!r && job->words.epoch)
		r = cei_gpu_signal(own, job->done[job->own], &direct->done);
	direct->value = job->marks.value;
	direct->timeout_ns = job->marks.timeout_ns;
	direct->status = (uint32_t *)own->status;
	direct->failed = cei_gpu_word(own, CEI_GPU_WORD_FAILED);
	direct->epoch = job->words.epoch;
	direct->last_use = job->words.last_use;
	direct->n_ended = job->words.n_ended;
	return r;
}

static int fill(const struct cei_gpu_executor *own, const struct cei_direct_job *job,
		struct cei_direct *direct)
{
	uint32_t rank;
	int r = 0;

	memset(direct, 0, sizeof(*direct));
	direct->source = job->source;
	direct->target = job->target;
	memcpy(direct->spans, job->spans, sizeof(direct->spans));
	direct->half_bytes = job->half_bytes;
	direct->gather_at = job->gather_at;
	direct->n_ranks = job->n_ranks;
	direct->own = job->own;
	direct->gathers = job->gathers;
	direct->half = job->half;
	direct->second = job->second;
	direct->scale = job->scale;
	direct->each = job->each;
	direct->n_steps = job->n_steps;
	direct->step_rows = job->step_rows;
	direct->steps_first = job->steps_first;
	for (rank = 0; !r && rank < job->n_ranks; rank++)
		r = fill_peer(own, job, rank, &direct->peers[rank]);
	return r ? r : fill_marks(own, job, direct);
}

static void name_kernel(char name[KERNEL_NAME_BYTES], const struct cei_direct_job *job)
{
	snprintf(name, KERNEL_NAME_BYTES, "cei_direct_%s%s", job->n_steps ? "steps_" : "",
		 job->is_sum ? cei_dtype_name(job->dtype) : "copy");
}

int cei_gpu_direct_open(struct cei_gpu_executor *own)
{
	static const enum ceov_dtype dtypes[] = { CEOV_BF16, CEOV_FP16, CEOV_FP32 };
	struct cei_direct_job job = { .is_sum = 1, .n_steps = 1 };
	char name[KERNEL_NAME_BYTES];
	void *function = NULL;
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
		job.dtype = dtypes[i];
		name_kernel(name, &job);
		r = cei_module_find(own->module, name, &function);
		if (!r)
			r = cei_gpu_executor_check(
				own, own->cuda->calls.function_set(
					     function,
					     CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
					     CEI_DIRECT_STEP_SHARED),
				"allowing a kernel its shared memory");
	}
	return r;
}

static int by_counters(struct cei_gpu_executor *own, void *stream,
		       const struct cei_direct_job *job)
{
	char name[KERNEL_NAME_BYTES];
	struct cei_direct direct;
	void *arguments[] = { &direct };
	struct cei_module_launch launch = {
		.name = name,
		.n_blocks = job->n_blocks,
		.n_threads = job->n_steps ? CEI_DIRECT_STEP_THREADS : CEI_DIRECT_THREADS,
		.shared_bytes = job->n_steps ? CEI_DIRECT_STEP_SHARED : 0,
		.stream = stream,
		.arguments = arguments,
	};
	int r = fill(own, job, &direct);

	_Static_assert(sizeof(direct) <= 4096, "all drivers take kernel parameters of 4 KiB");
	name_kernel(name, job);
	return r ? r : cei_module_launch(own->module, &launch);
}

int cei_gpu_direct(struct cei_executor *executor, void *stream,
		   const struct cei_direct_job *job)
{
	struct cei_gpu_executor *own = executor->private;
	int r = cei_gpu_check_waiting(own, job->n_blocks, "a direct kernel");

	if (r)
		return r;
	return job->is_ll ? cei_gpu_direct_ll(own, stream, job) : by_counters(own, stream, job);
}
