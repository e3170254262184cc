/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Queues the copies of pools, and the memory operations by which streams wait without an SM. */

#include <stdlib.h>

#include "ce_engine/objects/buffer.h"
#include "ops/channel/gpu_cuda.h"
#include "ops/pool/pool.h"

/* A call's: that it is reached, two waits for each peer, and that it has ended. */
#define OPS_MAX (2 * CEI_CHANNEL_RANKS_MAX)

struct cei_pool_gpu {
	CUstream               copies[CEI_CHANNEL_RANKS_MAX];   /* [peer] */
	CUstream               kernels;
	CUdeviceptr            desks[CEI_CHANNEL_RANKS_MAX];    /* [rank], as this GPU sees them */
	struct cei_channel_run run;
};

/* --- opening and closing --------------------------------------------------------------------- */

static int open_streams(ceov_pool *pool)
{
	const struct cei_cuda_calls *cuda = &pool->channel->gpu->cuda->calls;
	int least = 0, greatest = 0;
	uint32_t rank;
	CUresult result = cuda->ctx_priorities(&least, &greatest);

	for (rank = 0; result == CUDA_SUCCESS && rank < pool->channel->n_ranks; rank++)
		if (rank != pool->channel->rank)
			result = cuda->stream_create(&pool->gpu->copies[rank],
						     CU_STREAM_NON_BLOCKING, greatest);
	if (result == CUDA_SUCCESS)
		result = cuda->stream_create(&pool->gpu->kernels, CU_STREAM_NON_BLOCKING,
					     greatest);
	return cei_gpu_channel_check(pool->channel, result, "the pool's streams");
}

void cei_pool_gpu_close(ceov_pool *pool)
{
	const struct cei_gpu_channel *own = pool->channel->gpu;
	struct cei_cuda_hold hold;
	uint32_t rank;

	/* The push fails only after a sticky CUDA error; then all is gone already. */
	if (pool->gpu && !cei_cuda_push(own->cuda, own->gpu, &hold)) {
		for (rank = 0; rank < CEI_CHANNEL_RANKS_MAX; rank++)
			if (pool->gpu->copies[rank])
				(void)own->cuda->calls.stream_destroy(pool->gpu->copies[rank]);
		if (pool->gpu->kernels)
			(void)own->cuda->calls.stream_destroy(pool->gpu->kernels);
		cei_cuda_pop(own->cuda, &hold);
	}
	free(pool->gpu);
	pool->gpu = NULL;
}

int cei_pool_gpu_open(ceov_pool *pool)
{
	const struct cei_gpu_channel *own = pool->channel->gpu;
	struct cei_cuda_hold hold;
	uint32_t rank;
	int r;

	pool->gpu = calloc(1, sizeof(*pool->gpu));
	if (!pool->gpu)
		return cei_raise(cei_channel_report(pool->channel), CEOV_ERR_NO_MEMORY, 0,
				 "ceov_pool_connect: no memory for streams");
	for (rank = 0; rank < pool->channel->n_ranks; rank++)
		pool->gpu->desks[rank] = (CUdeviceptr)(uintptr_t)
			cei_buffer_address(pool->desk_buffers[rank], pool->channel->rank);
	pool->waits = cei_cuda_loads_lazily();
	r = cei_cuda_push(own->cuda, own->gpu, &hold);
	if (r) {
		cei_pool_gpu_close(pool);
		return r;
	}
	r = open_streams(pool);
	cei_cuda_pop(own->cuda, &hold);
	if (r)
		cei_pool_gpu_close(pool);
	return r;
}

static int is_idle(const ceov_pool *pool, CUstream stream)
{
	return !stream || pool->channel->gpu->cuda->calls.stream_query(stream) !=
		CUDA_ERROR_NOT_READY;
}

int cei_pool_gpu_is_idle(const ceov_pool *pool)
{
	const struct cei_gpu_channel *own = pool->channel->gpu;
	struct cei_cuda_hold hold;
	uint32_t rank;
	int r;

	if (!pool->gpu || cei_cuda_push(own->cuda, own->gpu, &hold))
		return 1;               /* the context is dead, and so is what it did */
	r = is_idle(pool, pool->gpu->kernels);
	for (rank = 0; r && rank < pool->channel->n_ranks; rank++)
		r = is_idle(pool, pool->gpu->copies[rank]);
	cei_cuda_pop(own->cuda, &hold);
	return r;
}

/* --- the caller's stream ---------------------------------------------------------------------- */

int cei_pool_gpu_is_capturing(const ceov_pool *pool, void *stream)
{
	const struct cei_gpu_channel *own = pool->channel->gpu;
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	struct cei_cuda_hold hold;
	CUresult result;

	if (cei_cuda_push(own->cuda, own->gpu, &hold))
		return 0;               /* what is queued next fails, too */
	result = own->cuda->calls.stream_is_capturing(stream, &status);
	cei_cuda_pop(own->cuda, &hold);
	return result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

struct ops {
	uint32_t                 n;
	CUstreamBatchMemOpParams at[OPS_MAX];
};

static void add_write(struct ops *ops, CUdeviceptr word, uint64_t number)
{
	CUstreamBatchMemOpParams *op = &ops->at[ops->n++];

	op->writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
	op->writeValue.address = word;
	op->writeValue.value64 = number;
	op->writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
}

static void add_wait(struct ops *ops, CUdeviceptr word, uint64_t number)
{
	CUstreamBatchMemOpParams *op = &ops->at[ops->n++];

	op->waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
	op->waitValue.address = word;
	op->waitValue.value64 = number;
	op->waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
}

static CUdeviceptr sent_at(const ceov_pool *pool, uint32_t from, uint32_t to)
{
	return pool->gpu->desks[from] + offsetof(struct cei_pool_desk, sent) +
		to * sizeof(struct cei_pool_word);
}

/* Queues what there is, of which nothing is left then. A write comes behind all that its stream has
 * done before, which the whole system sees then. */
static CUresult queue_ops(const ceov_pool *pool, CUstream stream, struct ops *ops)
{
	const uint32_t n = ops->n;

	ops->n = 0;
	return pool->channel->gpu->cuda->calls.stream_batch(stream, n, ops->at, 0);
}

static void add_waits(const ceov_pool *pool, struct ops *ops, uint64_t number)
{
	const uint32_t rank = pool->channel->rank;
	uint32_t peer;

	for (peer = 0; peer < pool->channel->n_ranks; peer++) {
		if (peer == rank)
			continue;
		add_wait(ops, sent_at(pool, peer, rank), number);
		add_wait(ops, sent_at(pool, rank, peer), number);
	}
}

/* Copies what stays at this rank, unless it lies in its place, behind what ops have so far: peers
 * do not wait for it. */
static CUresult copy_own(const ceov_pool *pool, CUstream stream, struct ops *ops)
{
	const struct cei_call *call = &pool->channel->call;
	const struct cei_call_part *own = &call->parts[call->rank];
	const char *from = (const char *)call->call.source + own->source_at;
	char *to = (char *)call->call.target + own->target_at;
	CUresult result;

	if (!own->from || from == to)
		return CUDA_SUCCESS;
	result = queue_ops(pool, stream, ops);
	if (result == CUDA_SUCCESS)
		result = pool->channel->gpu->cuda->calls.copy((CUdeviceptr)(uintptr_t)to,
							      (CUdeviceptr)(uintptr_t)from,
							      own->from, stream);
	return result;
}

static CUresult queue_waits(const ceov_pool *pool, CUstream stream, uint64_t number)
{
	const CUdeviceptr desk = pool->gpu->desks[pool->channel->rank];
	struct ops ops = { .n = 0 };
	CUresult result;

	add_write(&ops, desk + offsetof(struct cei_pool_desk, reached), number);
	result = copy_own(pool, stream, &ops);
	if (result != CUDA_SUCCESS)
		return result;
	add_waits(pool, &ops, number);
	add_write(&ops, desk + offsetof(struct cei_pool_desk, ended), number);
	return queue_ops(pool, stream, &ops);
}

static int queue_call(ceov_pool *pool, CUstream stream, uint64_t number)
{
	struct cei_gpu_channel *own = pool->channel->gpu;
	int r = cei_gpu_order_follow(&own->calls, stream);

	if (!r)
		r = cei_gpu_channel_check(pool->channel, queue_waits(pool, stream, number),
					  "a call by copy engines");
	return r ? r : cei_gpu_order_mark(&own->calls, stream);
}

int cei_pool_gpu_wait(ceov_pool *pool, void *stream, uint64_t number)
{
	const struct cei_gpu_channel *own = pool->channel->gpu;
	struct cei_cuda_hold hold;
	int r = cei_cuda_push(own->cuda, own->gpu, &hold);

	if (r)
		return r;
	r = queue_call(pool, stream, number);
	cei_cuda_pop(own->cuda, &hold);
	return r;
}

/* --- the thread's streams --------------------------------------------------------------------- */

static CUresult queue_copy(ceov_pool *pool, const struct cei_pool_copy *copy)
{
	CUstream stream = pool->gpu->copies[copy->peer];
	struct ops ops = { .n = 0 };
	CUresult result = CUDA_SUCCESS;

	if (copy->bytes)
		result = pool->channel->gpu->cuda->calls.copy(
			(CUdeviceptr)(uintptr_t)copy->to, (CUdeviceptr)(uintptr_t)copy->from,
			copy->bytes, stream);
	add_write(&ops, sent_at(pool, pool->channel->rank, copy->peer), pool->number);
	return result == CUDA_SUCCESS ? queue_ops(pool, stream, &ops) : result;
}

int cei_pool_gpu_copy(ceov_pool *pool, const struct cei_pool_copy *copy)
{
	const struct cei_gpu_channel *own = pool->channel->gpu;
	struct cei_cuda_hold hold;
	CUresult result;
	int r = cei_cuda_push(own->cuda, own->gpu, &hold);

	if (r)
		return r;
	result = queue_copy(pool, copy);
	cei_cuda_pop(own->cuda, &hold);
	return cei_gpu_channel_check(pool->channel, result, "a copy to a pool");
}

static CUresult queue_kernel(ceov_pool *pool, const struct cei_gpu_launch *how)
{
	CUresult result = cei_gpu_channel_launch(pool->channel, how, &pool->gpu->run,
						 pool->gpu->kernels);
	struct ops ops = { .n = 0 };
	uint32_t peer;

	/* The caller's stream waits for these; peers whose targets lie in no pool write none. */
	for (peer = 0; peer < pool->channel->n_ranks; peer++) {
		if (peer == pool->channel->rank)
			continue;
		add_write(&ops, sent_at(pool, pool->channel->rank, peer), pool->number);
		add_write(&ops, sent_at(pool, peer, pool->channel->rank), pool->number);
	}
	return result == CUDA_SUCCESS ? queue_ops(pool, pool->gpu->kernels, &ops) : result;
}

int cei_pool_gpu_kernel(ceov_pool *pool, const struct cei_pool_task *task)
{
	const struct cei_gpu_channel *own = pool->channel->gpu;
	struct cei_gpu_launch how;
	struct cei_cuda_hold hold;
	CUresult result;
	int r;

	pool->gpu->run.place = own->place;
	cei_gpu_make_run(&task->call, &pool->gpu->run, &how);
	r = cei_cuda_push(own->cuda, own->gpu, &hold);
	if (r)
		return r;
	result = queue_kernel(pool, &how);
	cei_cuda_pop(own->cuda, &hold);
	return cei_gpu_channel_check(pool->channel, result, "the kernel of a call that looked for "
				     "targets in pools");
}
