/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Queues the kernels that make calls of a channel between GPUs. */

#include "ops/channel/gpu_cuda.h"

#include <stdlib.h>
#include <string.h>

#include "backend/place.h"
#include "ce_engine/objects/buffer.h"
#include "ce_engine/objects/context.h"
#include "topology/machine.h"

_Static_assert(sizeof(struct cei_channel_run) <= 4096 &&
	       sizeof(struct cei_channel_messages) <= 4096,
	       "all drivers take kernel parameters of 4 KiB");

int cei_gpu_channel_check(const ceov_channel *channel, CUresult result, const char *what)
{
	struct cei_gpu_channel *own = channel->gpu;

	if (result == CUDA_SUCCESS)
		return 0;
	return cei_cuda_raise(own->cuda, result, channel->rank, "rank %u: GPU %u: channel '%s': %s",
			      channel->rank, own->gpu, channel->name, what);
}

/* --- opening and closing --------------------------------------------------------------------- */

static int check_gpu(const ceov_channel *channel)
{
	const struct cei_gpu_channel *own = channel->gpu;
	const struct cei_cuda_gpu *gpu = &own->cuda->gpus[own->gpu];

	if (gpu->capability_major == 9 && !gpu->capability_minor)
		return 0;
	return cei_raise(cei_channel_report(channel), CEOV_ERR_INVALID, 0,
			 "ceov_channel_create: rank %u: GPU %u is an sm_%d%d, but channels have "
			 "kernels for sm_90 alone; use operators", channel->rank, own->gpu,
			 gpu->capability_major, gpu->capability_minor);
}

/* Finds the kernels once, since the names of all of the library's are searched for it. Those of
 * steps and messages take more shared memory than kernels have without asking. */
static int find_kernels(ceov_channel *channel)
{
	struct cei_gpu_channel *own = channel->gpu;
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < CEI_GPU_KERNELS; i++) {
		r = cei_module_find(own->module, cei_gpu_kernel_names[i], &own->functions[i]);
		if (!r && i >= CEI_GPU_STEPS)
			r = cei_gpu_channel_check(channel, own->cuda->calls.function_set(
				own->functions[i], CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
				CEI_CHANNEL_SHARED), "allowing shared memory");
	}
	return r;
}

static int open_status(ceov_channel *channel)
{
	struct cei_gpu_channel *own = channel->gpu;
	void *status = NULL;
	CUresult result = own->cuda->calls.host_alloc(&status, sizeof(*own->status),
						      CU_MEMHOSTALLOC_PORTABLE |
						      CU_MEMHOSTALLOC_DEVICEMAP);

	if (result != CUDA_SUCCESS)
		return cei_gpu_channel_check(channel, result, "memory for a status");
	own->status = memset(status, 0, sizeof(*own->status));
	return 0;
}

static int open_in_context(ceov_channel *channel)
{
	struct cei_gpu_channel *own = channel->gpu;
	int r = cei_module_open(own->cuda, own->gpu, &cei_kernels, &own->module);

	if (!r)
		r = find_kernels(channel);
	if (!r)
		r = open_status(channel);
	if (!r)
		r = cei_gpu_order_open(&own->calls, own->cuda, own->gpu, channel->rank,
				       "this channel");
	if (!r)
		r = cei_gpu_order_open(&own->messages_order, own->cuda, own->gpu, channel->rank,
				       "messages of this channel");
	return r;
}

int cei_gpu_channel_open(ceov_channel *channel, uint32_t gpu)
{
	struct cei_gpu_channel *own = calloc(1, sizeof(*own));
	struct cei_cuda_hold hold;
	int r;

	if (!own)
		return cei_raise(cei_channel_report(channel), CEOV_ERR_NO_MEMORY, 0,
				 "ceov_channel_create: no memory for a channel of a GPU");
	channel->gpu = own;
	own->cuda = channel->object.context->site.cuda;
	own->gpu = gpu;
	r = check_gpu(channel);
	if (!r)
		r = cei_cuda_push(own->cuda, gpu, &hold);
	if (r)
		return r;
	r = open_in_context(channel);
	cei_cuda_pop(own->cuda, &hold);
	own->place.status = own->status;
	own->place.timeout_ns = channel->deadline_ns;
	own->place.n_ranks = channel->n_ranks;
	own->place.own = channel->rank;
	return r;
}

void cei_gpu_channel_close(ceov_channel *channel)
{
	struct cei_gpu_channel *own = channel->gpu;
	struct cei_cuda_hold hold;

	if (!own)
		return;
	cei_module_close(own->module);
	/* The push fails only after a sticky CUDA error; then all is gone already. */
	if (!cei_cuda_push(own->cuda, own->gpu, &hold)) {
		cei_gpu_order_close(&own->messages_order);
		cei_gpu_order_close(&own->calls);
		if (own->status)
			(void)own->cuda->calls.host_free(own->status);
		cei_cuda_pop(own->cuda, &hold);
	}
	channel->gpu = NULL;
	free(own);
}

/* --- memory that peers know ------------------------------------------------------------------ */

static uint64_t address_of(const ceov_channel *channel, uint32_t rank)
{
	return (uint64_t)(uintptr_t)cei_buffer_address(channel->buffers[rank], channel->rank);
}

static int store(const ceov_channel *channel, uint64_t to, const void *bytes, uint64_t n)
{
	struct cei_backend *backend = cei_context_backend(channel->object.context, channel->rank);

	return backend->ops->store(backend, to, bytes, n);
}

/* Of all but rings, whose bytes nobody reads before they were written. */
int cei_gpu_channel_clear(ceov_channel *channel)
{
	uint64_t n, ring_bytes = channel->ring_bytes;
	void *zeros;
	int r;

	(void)cei_gpu_layout(ring_bytes, channel->n_ranks, &channel->gpu->place.layout);
	n = channel->gpu->place.layout.ring_at[0];
	zeros = calloc(1, n);
	if (!zeros)
		return cei_raise(cei_channel_report(channel), CEOV_ERR_NO_MEMORY, 0,
				 "ceov_channel_create: no memory for zeros");
	r = store(channel, address_of(channel, channel->rank), zeros, n);
	free(zeros);
	return r;
}

/* Returns why packets might not arrive whole at the rank's memory, or NULL. A process that does not
 * see a GPU does not know how it is linked. */
static const char *link_fault(const ceov_channel *channel, uint32_t rank)
{
	const struct cei_machine *machine = channel->object.context->works.topology->machine;
	uint32_t gpu = channel->buffers[rank]->region->gpu;

	if (channel->buffers[rank]->region->kind != CEOV_PLACE_GPU)
		return "is on the host";
	if (gpu == channel->gpu->gpu)
		return NULL;
	if (gpu == CEOV_NOBODY)
		return "is on a GPU that this process does not see: let it see all GPUs of the "
			"group (CUDA_VISIBLE_DEVICES)";
	return machine && cei_machine_nvlinks_all(machine, channel->gpu->gpu) ? NULL
		: "is on a GPU without NVLink to this rank's";
}

int cei_gpu_channel_connect(ceov_channel *channel)
{
	struct cei_gpu_channel *own = channel->gpu;
	const char *fault;
	uint32_t rank;

	for (rank = 0; rank < channel->n_ranks; rank++) {
		fault = link_fault(channel, rank);
		if (fault)
			return cei_raise(cei_channel_report(channel), CEOV_ERR_INVALID, 0,
					 "ceov_channel_connect: '%s' of rank %u: rank %u %s; "
					 "or use operators", channel->name, channel->rank, rank,
					 fault);
		own->place.memory[rank] = (char *)(uintptr_t)address_of(channel, rank);
	}
	own->run.place = own->place;
	own->messages.place = own->place;
	return 0;
}

/* --- calls ----------------------------------------------------------------------------------- */

/* What a call queues. */
struct work {
	struct cei_gpu_launch   how;
	void                   *parameters;
	const struct cei_calls *own;            /* messages; NULL: a collective */
};

CUresult cei_gpu_channel_launch(const ceov_channel *channel, const struct cei_gpu_launch *how,
				void *parameters, CUstream stream)
{
	const struct cei_gpu_channel *own = channel->gpu;

	if (!how->n_blocks)
		return CUDA_SUCCESS;
	return own->cuda->calls.launch(own->functions[how->kernel], how->n_blocks, 1, 1,
				       how->n_threads, 1, 1, how->shared_bytes, stream,
				       &parameters, NULL);
}

static int queue_kernel(ceov_channel *channel, void *stream, const struct work *work)
{
	return cei_gpu_channel_check(channel, cei_gpu_channel_launch(channel, &work->how,
								     work->parameters, stream),
				     "launching a kernel");
}

/* Queues copies of messages to itself. */
static int queue_own(ceov_channel *channel, void *stream, const struct cei_calls *calls)
{
	const struct cei_cuda_calls *cuda = &channel->gpu->cuda->calls;
	struct cei_gpu_own own = { .next_send = 0 };
	CUresult result = CUDA_SUCCESS;

	while (result == CUDA_SUCCESS && cei_gpu_next_own(calls, channel->rank, &own) > 0)
		if (own.bytes)
			result = cuda->copy((CUdeviceptr)(uintptr_t)own.receive.target,
					    (CUdeviceptr)(uintptr_t)own.send.source, own.bytes,
					    stream);
	return cei_gpu_channel_check(channel, result, "a message to itself");
}

/* Queues work behind the last one of the order. The GPU's context is current. */
static int queue(ceov_channel *channel, struct cei_gpu_order *order, void *stream,
		 struct work *work)
{
	int r = cei_gpu_order_follow(order, stream);

	if (!r)
		r = queue_kernel(channel, stream, work);
	if (!r && work->own)
		r = queue_own(channel, stream, work->own);
	return r ? r : cei_gpu_order_mark(order, stream);
}

static int queue_in_context(ceov_channel *channel, struct cei_gpu_order *order, void *stream,
			    struct work *work)
{
	struct cei_gpu_channel *own = channel->gpu;
	struct cei_cuda_hold hold;
	int r = cei_cuda_push(own->cuda, own->gpu, &hold);

	if (r)
		return r;
	r = queue(channel, order, stream, work);
	cei_cuda_pop(own->cuda, &hold);
	return r;
}

int cei_gpu_channel_run(ceov_channel *channel, void *stream)
{
	struct cei_gpu_channel *own = channel->gpu;
	struct work work = { .parameters = &own->run };

	cei_gpu_make_run(&channel->call, &own->run, &work.how);
	return queue_in_context(channel, &own->calls, stream, &work);
}

int cei_gpu_channel_messages(ceov_channel *channel, const struct cei_calls *calls, void *stream)
{
	struct cei_gpu_channel *own = channel->gpu;
	struct work work = { .parameters = &own->messages, .own = calls };

	cei_gpu_make_messages(calls, &own->messages, &work.how);
	return queue_in_context(channel, &own->messages_order, stream, &work);
}

/* --- the end --------------------------------------------------------------------------------- */

const struct cei_channel_status *cei_gpu_channel_status(const ceov_channel *channel)
{
	const struct cei_channel_status *status = channel->gpu->status;

	/* acquire: pairs with the fence in fail() of channel.cuh; the rest is complete then */
	return __atomic_load_n(&status->end, __ATOMIC_ACQUIRE) ? status : NULL;
}

/* Stores the poison that this rank's kernels would store: peers may wait, while none of them runs.
 * Errors are of the GPU, which then ends all that its context does. */
static void poison_peers(ceov_channel *channel, enum cei_channel_end end)
{
	uint64_t poison = (uint64_t)end | (uint64_t)channel->rank << 8, at;
	uint32_t rank;

	for (rank = 0; rank < channel->n_ranks; rank++) {
		at = (uint64_t)(uintptr_t)channel->gpu->place.memory[rank] +
			offsetof(struct cei_channel_memory, words.poison) +
			channel->rank * sizeof(poison);
		if (rank != channel->rank && channel->gpu->place.memory[rank])
			(void)store(channel, at, &poison, sizeof(poison));
	}
}

void cei_gpu_channel_end(ceov_channel *channel, int error)
{
	struct cei_channel_status *status = channel->gpu->status;

	/* release: pairs with nothing: kernels that read it read nothing else */
	__atomic_store_n(&status->abort, 1, __ATOMIC_RELEASE);
	if (cei_gpu_channel_status(channel))
		return;                 /* kernels have found a failure, which peers know */
	poison_peers(channel, error == CEOV_ERR_STATE ? CEI_CHANNEL_RELEASED
		     : CEI_CHANNEL_ABORTED);
}

int cei_gpu_channel_idle(ceov_channel *channel)
{
	struct cei_gpu_channel *own = channel->gpu;
	struct cei_cuda_hold hold;
	CUresult calls, messages;
	int r = cei_cuda_push(own->cuda, own->gpu, &hold);

	if (r)
		return 0;               /* the context is dead, and so are its kernels */
	calls = own->cuda->calls.event_query(own->calls.mark);
	messages = own->cuda->calls.event_query(own->messages_order.mark);
	cei_cuda_pop(own->cuda, &hold);
	return calls == CUDA_ERROR_NOT_READY || messages == CUDA_ERROR_NOT_READY ? CEOV_PENDING
		: 0;
}
