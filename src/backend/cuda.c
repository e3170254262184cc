/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * The mover between and within GPUs: copy engines, driven by streams of the driver. What the
 * functions of a lane (struct cei_lane_ops) do:
 *
 *   wait      queues a stream wait for counter >= value
 *   copy      queues one memcpy batch, whose copies have no order
 *   post      is recorded, and given to the driver with the next operation
 *   submit    queues one batch memory operation: the posts, then a write of the submit's
 *             number to a pinned word
 *   reap      reads that word, without a driver call
 *
 * No kernel is run, no blocking stream and never the NULL stream is used, and nothing is allocated,
 * freed or mapped on the data path. This code depends on these facts:
 *
 *  - A stream that waits blocks the operations behind it in its hardware queue. If the
 *    operation that would end the wait is among them, the wait never ends. The driver gives
 *    each stream priority its own queues. So lanes that wait have another priority than
 *    lanes that never wait and small accesses: an abort's store must not be blocked.
 *  - The copies of a memcpy batch have no order. So bytes and their mark are never in one
 *    batch.
 *  - Writes by stream memory operations are fenced: what came before a write on the stream is
 *    visible before its value is.
 *  - The batch call can be told to prefer the copy engines, so single copies use it, too.
 *    Copies within one GPU run as kernels all the same (cuda_bounce.c).
 *  - Streams that wait hold hardware queues, of which there are few (cuda_waits.c).
 *  - A sticky error (a kernel's fault, ECC) ends the CUDA context: then every lane of the GPU
 *    fails, and nothing is tried again.
 *
 * CEOVERLAP_FLAG=write or copy sets how counters in GPU memory are raised. If it is unset, a test
 * decides when a peer is first mapped (cuda_probe.c).
 */

#include <stdio.h>
#include <string.h>

#include "backend/cuda_place.h"

_Static_assert(2 * CEI_LANE_BATCH + 1 < 256, "a submit is one driver call");

static uint32_t live_caps(struct cei_backend *backend)
{
	const struct cei_cuda_backend *own = cei_cuda_backend_of(backend);

	return backend->ops->caps & ~(own->can_gate ? 0u : (uint32_t)CEI_CAP_LANE_WAIT);
}

/* Returns the error by which the GPU is lost, or CUDA_SUCCESS. Any query of a stream tells it, also
 * of one that has no work. */
static CUresult ask_for_fault(struct cei_cuda_backend *own)
{
	struct cei_cuda_hold hold;
	CUresult fault = cei_cuda_fault(own->cuda, own->gpu);

	if (fault != CUDA_SUCCESS || !own->control)
		return fault;
	if (cei_cuda_push(own->cuda, own->gpu, &hold))
		return cei_cuda_fault(own->cuda, own->gpu);
	cei_cuda_note(own->cuda, own->gpu, own->cuda->calls.stream_query(own->control));
	cei_cuda_pop(own->cuda, &hold);
	return cei_cuda_fault(own->cuda, own->gpu);
}

static int lost(struct cei_backend *backend, char ret_text[CEI_LOST_BYTES])
{
	struct cei_cuda_backend *own = cei_cuda_backend_of(backend);
	CUresult fault = ask_for_fault(own);
	const char *name = NULL;

	if (fault == CUDA_SUCCESS)
		return 0;
	if (own->cuda->calls.error_name(fault, &name) != CUDA_SUCCESS || !name)
		name = "unknown CUDA error";
	snprintf(ret_text, CEI_LOST_BYTES, "GPU %u is lost: %s (%d)", own->gpu, name, (int)fault);
	return CEOV_ERR_CUDA;
}

static int open_streams(struct cei_cuda_backend *own)
{
	const struct cei_cuda_calls *calls = &own->cuda->calls;
	int least = 0;
	int greatest = 0;
	CUresult result;

	/* A smaller number means a higher priority. Lanes that wait get the second highest
	 * priority, which applications use least. */
	result = calls->ctx_priorities(&least, &greatest);
	if (result == CUDA_SUCCESS) {
		own->plain_priority = greatest;
		own->gate_priority = greatest < least ? greatest + 1 : least;
		result = calls->stream_create(&own->control, CU_STREAM_NON_BLOCKING,
					      own->plain_priority);
	}
	if (result != CUDA_SUCCESS)
		return cei_cuda_raise(own->cuda, result, own->rank,
				      "GPU %u: creating the control stream", own->gpu);
	return 0;
}

static int open_memory(struct cei_cuda_backend *own)
{
	const struct cei_cuda_calls *calls = &own->cuda->calls;
	CUresult result;
	void *pinned = NULL;
	uint32_t i;

	result = calls->host_alloc(&pinned, sizeof(*own->pinned),
				   CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
	if (result == CUDA_SUCCESS) {
		memset(pinned, 0, sizeof(*own->pinned));
		own->pinned = pinned;
		result = calls->mem_alloc(&own->scratch, CEI_CUDA_SCRATCH_BYTES);
	}
	for (i = 0; i < CEI_CUDA_GROUPS && result == CUDA_SUCCESS; i++)
		result = calls->event_create(&own->group_events[i],
					     CU_EVENT_DISABLE_TIMING);
	if (result != CUDA_SUCCESS)
		return cei_cuda_raise(own->cuda, result, own->rank,
				      "GPU %u: memory for the backend", own->gpu);
	return 0;
}

static int open_gpu(struct cei_cuda_backend *own)
{
	const struct cei_cuda_gpu *gpu = &own->cuda->gpus[own->gpu];
	int r;

	if (!gpu->has_memops)
		return cei_raise(own->cuda->report, CEOV_ERR_VERSION, 0,
				 "GPU %u (%s) has no 64-bit stream memory operations: a "
				 "Volta or newer GPU is needed", own->gpu, gpu->bus_id);
	own->wait_flags = CU_STREAM_WAIT_VALUE_GEQ;
	if (gpu->can_flush)
		own->wait_flags |= CU_STREAM_WAIT_VALUE_FLUSH;
	r = open_streams(own);
	if (!r)
		r = open_memory(own);
	if (!r)
		r = cei_cuda_probe(own);
	return r;
}

static int backend_open(struct cei_backend *backend)
{
	struct cei_cuda_backend *own = cei_cuda_backend_of(backend);
	const struct ceov_member *member = &backend->site->members[backend->member];
	struct cei_cuda_hold hold;
	int r;

	if (!backend->site->cuda)
		return cei_raise(backend->site->report, CEOV_ERR_STATE, 0,
				 "rank %u: its place is GPU %u, but there is no CUDA "
				 "driver", member->rank, backend->place.index);
	own->cuda = backend->site->cuda;
	own->gpu = backend->place.index;
	own->rank = member->rank;
	r = cei_cuda_context(own->cuda, own->gpu, &own->context);
	if (r)
		return r;
	pthread_mutex_init(&own->control_lock, NULL);
	pthread_mutex_init(&own->group_lock, NULL);
	own->is_begun = 1;
	r = cei_cuda_push(own->cuda, own->gpu, &hold);
	if (r)
		return r;
	r = open_gpu(own);
	if (!r)
		r = cei_cuda_waits_open(backend);
	cei_cuda_pop(own->cuda, &hold);
	return r;
}

static int staging_open(struct cei_backend *backend, enum ceov_place_kind kind,
			uint64_t n_bytes, uint64_t *ret_address)
{
	struct cei_cuda_backend *own = cei_cuda_backend_of(backend);
	struct cei_cuda_hold hold;
	CUdeviceptr device = 0;
	void *pinned = NULL;
	CUresult result;
	int r;

	r = cei_cuda_push(own->cuda, own->gpu, &hold);
	if (r)
		return r;
	if (kind == CEOV_PLACE_HOST)
		result = own->cuda->calls.host_alloc(&pinned, n_bytes,
						     CU_MEMHOSTALLOC_PORTABLE |
						     CU_MEMHOSTALLOC_DEVICEMAP);
	else
		result = own->cuda->calls.mem_alloc(&device, n_bytes);
	cei_cuda_pop(own->cuda, &hold);
	if (result != CUDA_SUCCESS)
		return cei_cuda_raise(own->cuda, result, own->rank,
				      "GPU %u: %llu bytes of staging memory", own->gpu,
				      (unsigned long long)n_bytes);
	*ret_address = kind == CEOV_PLACE_HOST ? (uint64_t)(uintptr_t)pinned : device;
	return 0;
}

static void staging_close(struct cei_backend *backend, enum ceov_place_kind kind,
			  uint64_t address)
{
	struct cei_cuda_backend *own = cei_cuda_backend_of(backend);
	struct cei_cuda_hold hold;

	if (!address || cei_cuda_push(own->cuda, own->gpu, &hold))
		return;
	if (kind == CEOV_PLACE_HOST)
		(void)own->cuda->calls.host_free((void *)(uintptr_t)address);
	else
		(void)own->cuda->calls.mem_free(address);
	cei_cuda_pop(own->cuda, &hold);
}

static int reach(struct cei_backend *backend, struct ceov_place place)
{
	struct cei_cuda_backend *own = cei_cuda_backend_of(backend);
	struct cei_cuda_hold hold;
	CUcontext other;
	CUresult result;
	int r, can = 0;

	if (place.kind != CEOV_PLACE_GPU || place.index == own->gpu)
		return 0;
	result = own->cuda->calls.device_can_access_peer(
		&can, own->cuda->gpus[own->gpu].device, own->cuda->gpus[place.index].device);
	if (result == CUDA_SUCCESS && !can)
		return CEOV_ERR_NO_ROUTE;
	r = cei_cuda_context(own->cuda, place.index, &other);
	if (!r)
		r = cei_cuda_push(own->cuda, own->gpu, &hold);
	if (r)
		return r;
	result = own->cuda->calls.ctx_enable_peer(other, 0);
	cei_cuda_pop(own->cuda, &hold);
	if (result == CUDA_SUCCESS || result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
		return 0;
	return cei_cuda_raise(own->cuda, result, own->rank, "GPU %u: peer access to GPU %u",
			      own->gpu, place.index);
}

/* Not popped: the thread keeps it until it ends. */
static int bind(struct cei_backend *backend)
{
	const struct cei_cuda_backend *own = cei_cuda_backend_of(backend);
	CUresult result = own->cuda->calls.ctx_set(own->context);

	return result == CUDA_SUCCESS ? 0
		: cei_cuda_raise(own->cuda, result, own->rank, "GPU %u: making its context that "
				 "of a thread of the network", own->gpu);
}

/* GPUs that order the writes of network interfaces themselves need no flush; see
 * CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING in the driver's manual. */
static int landed(struct cei_backend *backend)
{
	const struct cei_cuda_backend *own = cei_cuda_backend_of(backend);
	CUresult result = CUDA_SUCCESS;

	if (own->cuda->gpus[own->gpu].writes_ordering < CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER)
		result = own->cuda->calls.flush_writes(
			CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
			CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);
	return result == CUDA_SUCCESS ? 0
		: cei_cuda_raise(own->cuda, result, own->rank, "GPU %u: waiting until what a "
				 "network interface wrote there is visible", own->gpu);
}

/* Ignores failures, because no caller could handle them: after a sticky error all calls fail. */
static void close_gpu(struct cei_cuda_backend *own)
{
	const struct cei_cuda_calls *calls = &own->cuda->calls;
	uint32_t i;

	for (i = 0; i < CEI_CUDA_GROUPS; i++)
		if (own->group_events[i])
			(void)calls->event_destroy(own->group_events[i]);
	if (own->control)
		(void)calls->stream_destroy(own->control);
	/* Freeing would wait for the GPU, perhaps for ever. And the GPU may write late to this
	 * memory, which must not belong to anything else by then. */
	if (own->is_lost || own->is_stuck) {
		cei_log(own->cuda->report, CEI_LOG_WARN,
			"GPU %u: an operation never ended; its memory is left to the "
			"driver until the process ends", own->gpu);
		return;
	}
	if (own->scratch)
		(void)calls->mem_free(own->scratch);
	if (own->pinned)
		(void)calls->host_free(own->pinned);
}

static void backend_close(struct cei_backend *backend)
{
	struct cei_cuda_backend *own = cei_cuda_backend_of(backend);
	struct cei_cuda_hold hold;

	if (!own->is_begun)
		return;
	if (!cei_cuda_push(own->cuda, own->gpu, &hold)) {
		close_gpu(own);
		cei_cuda_pop(own->cuda, &hold);
	}
	pthread_mutex_destroy(&own->group_lock);
	pthread_mutex_destroy(&own->control_lock);
	own->is_begun = 0;
}

const struct cei_place_ops cei_backend_cuda = {
	.name          = "cuda",
	.serves        = 1u << CEOV_PLACE_GPU,
	.moves         = CEI_MOVES_HOST_TO_GPU | CEI_MOVES_GPU_TO_HOST | CEI_MOVES_AMONG_GPUS,
	.caps          = CEI_CAP_LANE_WAIT | CEI_CAP_STREAMS | CEI_CAP_DEVICE |
			 CEI_CAP_ORDERED | CEI_CAP_DELIVERED | CEI_CAP_CAPTURE,
	.backend_bytes = sizeof(struct cei_cuda_backend),
	.lanes         = &cei_cuda_lanes,
	.open          = backend_open,
	.close         = backend_close,
	.live_caps     = live_caps,
	.lost          = lost,
	.waits_left    = cei_cuda_waits_left,
	.warm          = cei_cuda_warm,
	.staging_open  = staging_open,
	.staging_close = staging_close,
	.reach         = reach,
	.store         = cei_cuda_store,
	.load          = cei_cuda_load,
	.bind          = bind,
	.landed        = landed,
	.stream_queue  = cei_cuda_stream_queue,
	.event_open    = cei_cuda_event_open,
	.event_close   = cei_cuda_event_close,
	.event_record  = cei_cuda_event_record,
};
