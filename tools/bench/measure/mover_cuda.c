/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Copies between GPUs and the host memory of each NUMA node. They are queued behind a gate, so that
 * they begin together. */

#include "tools/bench/measure/measure.h"

#include <hwloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench/device_cuda.h"

#define GPU_BYTES_MIN  (UINT64_C(16) << 20)
#define HOST_BYTES_MIN (UINT64_C(1) << 20)
#define SLICE_MAX      (UINT64_C(64) << 20)
#define POISON         UINT64_C(0x5bd1e9955bd1e995)

struct lane {
	CUstream stream;
	CUevent  begin;
	CUevent  end;
};

struct place_gpu {
	struct bench_gpu *gpu;
	struct lane       lanes[MEASURE_LANES];
	CUdeviceptr       source;
	CUdeviceptr       target;
	uint8_t           reaches[CEI_MACHINE_GPUS_MAX];
};

struct node_memory {
	unsigned char *at;              /* memory with one slice per GPU; NULL: none */
	uint64_t       n_bytes;
	int            is_registered;
};

struct mover {
	struct measure_mover_config config;
	struct measure_sizes        sizes;
	struct bench_device        *host;       /* the host device, which fills and verifies host
						 * memory */
	_Atomic uint64_t           *gate;       /* pinned word that all streams wait for */
	uint64_t                    gate_value;
	struct place_gpu            gpus[CEI_MACHINE_GPUS_MAX];
	struct node_memory          nodes[CEI_MACHINE_NODES_MAX];
};

static const struct cei_cuda_calls *calls_of(const struct place_gpu *own)
{
	return &own->gpu->cuda->calls;
}

/* --- opening ------------------------------------------------------------------------ */

static int open_lanes(struct place_gpu *own)
{
	struct bench_gpu *gpu = own->gpu;
	struct lane *lane;
	uint32_t i;
	int r = current(gpu);

	for (i = 0; !r && i < MEASURE_LANES; i++) {
		lane = &own->lanes[i];
		r = check(gpu, calls_of(own)->stream_create(&lane->stream,
							    CU_STREAM_NON_BLOCKING, 0),
			  "cuStreamCreate");
		if (!r)
			r = check(gpu, calls_of(own)->event_create(&lane->begin,
								   CU_EVENT_DEFAULT),
				  "cuEventCreate");
		if (!r)
			r = check(gpu, calls_of(own)->event_create(&lane->end,
								   CU_EVENT_DEFAULT),
				  "cuEventCreate");
	}
	return r;
}

/* Opens peer access. Leaves out a pair that the driver refuses, even if it reported the pair as
 * possible before. */
static int open_peers(struct mover *mover, uint32_t a)
{
	struct place_gpu *own = &mover->gpus[a];
	CUresult result;
	uint32_t b;
	int can, r = current(own->gpu);

	for (b = 0; !r && b < mover->config.n_gpus; b++) {
		can = 0;
		if (a == b)
			continue;
		r = check(own->gpu, calls_of(own)->device_can_access_peer(
			&can, own->gpu->cuda->gpus[a].device, own->gpu->cuda->gpus[b].device),
			"cuDeviceCanAccessPeer");
		if (r || !can)
			continue;
		result = calls_of(own)->ctx_enable_peer(mover->gpus[b].gpu->context, 0);
		own->reaches[b] = result == CUDA_SUCCESS ||
			result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
		if (!own->reaches[b])
			fprintf(stderr, "ceoverlap-bench: GPU %u does not reach GPU %u (CUDA "
				"error %d): left out\n", a, b, (int)result);
	}
	return r;
}

static void free_gpu_memory(struct mover *mover)
{
	struct place_gpu *own;
	uint32_t i;

	for (i = 0; i < mover->config.n_gpus; i++) {
		own = &mover->gpus[i];
		if (!own->gpu || !own->gpu->context || current(own->gpu))
			continue;
		if (own->source)
			(void)calls_of(own)->mem_free(own->source);
		if (own->target)
			(void)calls_of(own)->mem_free(own->target);
		own->source = own->target = 0;
	}
}

static CUresult take_gpu_memory(struct mover *mover, uint64_t n_bytes)
{
	CUresult result = CUDA_SUCCESS;
	struct place_gpu *own;
	uint32_t i;

	for (i = 0; result == CUDA_SUCCESS && i < mover->config.n_gpus; i++) {
		own = &mover->gpus[i];
		result = calls_of(own)->ctx_set(own->gpu->context);
		if (result == CUDA_SUCCESS)
			result = calls_of(own)->mem_alloc(&own->source, n_bytes);
		if (result == CUDA_SUCCESS)
			result = calls_of(own)->mem_alloc(&own->target, n_bytes);
	}
	return result;
}

/* Allocates the same size on all GPUs, filled with random data. */
static int open_gpu_memory(struct mover *mover)
{
	uint64_t n_bytes = mover->config.gpu_bytes_max;
	CUresult result = take_gpu_memory(mover, n_bytes);
	struct place_gpu *own;
	uint32_t i;
	int r = 0;

	while (result == CUDA_ERROR_OUT_OF_MEMORY && n_bytes > GPU_BYTES_MIN) {
		free_gpu_memory(mover);
		n_bytes /= 2;
		result = take_gpu_memory(mover, n_bytes);
	}
	if (result != CUDA_SUCCESS)
		return check(mover->gpus[0].gpu, result, "memory of the GPUs");
	mover->sizes.gpu_bytes = n_bytes;
	for (i = 0; !r && i < mover->config.n_gpus; i++) {
		own = &mover->gpus[i];
		r = bench_device_cuda.fill(own->gpu, (void *)(uintptr_t)own->source, n_bytes,
					   mover->config.seed + i);
		if (!r)
			r = bench_device_cuda.fill(own->gpu, (void *)(uintptr_t)own->target,
						   n_bytes, mover->config.seed + POISON + i);
	}
	return r;
}

/* --- host memory -------------------------------------------------------------------- */

static unsigned char *slice(const struct mover *mover, uint32_t node, uint32_t gpu)
{
	return mover->nodes[node].at + gpu * mover->sizes.host_bytes;
}

static hwloc_obj_t node_object(const struct mover *mover, uint32_t node)
{
	const struct cei_machine *machine = mover->config.machine;

	if (!machine->hwloc || machine->n_nodes < 2)
		return NULL;
	return hwloc_get_numanode_obj_by_os_index(machine->hwloc,
						  machine->nodes[node].os_index);
}

static int take_node_memory(struct mover *mover, uint32_t node, uint64_t n_bytes)
{
	struct node_memory *own = &mover->nodes[node];
	hwloc_obj_t object = node_object(mover, node);
	void *at = NULL;

	if (object)
		own->at = hwloc_alloc_membind(mover->config.machine->hwloc, n_bytes,
					      object->nodeset, HWLOC_MEMBIND_BIND,
					      HWLOC_MEMBIND_BYNODESET | HWLOC_MEMBIND_STRICT);
	else if (!posix_memalign(&at, 4096, n_bytes))
		own->at = at;
	own->n_bytes = n_bytes;
	return own->at ? 0 : CEOV_NONE;
}

static void free_node_memory(struct mover *mover, uint32_t node)
{
	struct node_memory *own = &mover->nodes[node];

	if (own->is_registered && !current(mover->gpus[0].gpu))
		(void)calls_of(&mover->gpus[0])->host_unregister(own->at);
	if (own->at && node_object(mover, node))
		hwloc_free(mover->config.machine->hwloc, own->at, own->n_bytes);
	else
		free(own->at);
	memset(own, 0, sizeof(*own));
}

static int open_node(struct mover *mover, uint32_t node)
{
	struct node_memory *own = &mover->nodes[node];
	uint64_t n_bytes = mover->sizes.host_bytes * mover->config.n_gpus;
	uint32_t i;
	int r;

	if (mover->config.machine->nodes[node].is_gpu_memory)
		return 0;
	if (take_node_memory(mover, node, n_bytes)) {
		fprintf(stderr, "ceoverlap-bench: no memory to be had on NUMA node %u: left "
			"out\n", mover->config.machine->nodes[node].os_index);
		return 0;
	}
	for (i = 0, r = 0; !r && i < mover->config.n_gpus; i++)
		r = bench_fill(mover->host, slice(mover, node, i), mover->sizes.host_bytes,
			       mover->config.seed + 64 * (node + 1) + i);
	if (!r)
		r = current(mover->gpus[0].gpu);
	if (!r)
		r = check(mover->gpus[0].gpu, calls_of(&mover->gpus[0])->host_register(
			own->at, n_bytes, CU_MEMHOSTREGISTER_PORTABLE), "cuMemHostRegister");
	own->is_registered = !r;
	return r;
}

static int open_host_memory(struct mover *mover)
{
	const struct cei_machine *machine = mover->config.machine;
	uint64_t n_bytes = SLICE_MAX;
	uint32_t i;
	int r = bench_device_open(&mover->host, 0, 0);

	while (n_bytes > HOST_BYTES_MIN &&
	       n_bytes * machine->n_nodes * mover->config.n_gpus >
	       mover->config.host_bytes_max)
		n_bytes /= 2;
	mover->sizes.host_bytes = n_bytes;
	for (i = 0; !r && i < machine->n_nodes; i++)
		r = open_node(mover, i);
	return r;
}

static int open_gate(struct mover *mover)
{
	void *at = NULL;
	int r = current(mover->gpus[0].gpu);

	if (!r)
		r = check(mover->gpus[0].gpu, calls_of(&mover->gpus[0])->host_alloc(
			&at, sizeof(*mover->gate), CU_MEMHOSTALLOC_PORTABLE |
			CU_MEMHOSTALLOC_DEVICEMAP), "cuMemHostAlloc");
	if (r)
		return r;
	mover->gate = at;
	atomic_init(mover->gate, 0);
	return 0;
}

static int mover_open(void **ret_private, const struct measure_mover_config *config,
		      struct measure_sizes *ret_sizes)
{
	struct mover *mover = calloc(1, sizeof(*mover));
	void *private = NULL;
	uint32_t i;
	int r = 0;

	if (!mover)
		return cei_raise(config->report, CEOV_ERR_NO_MEMORY, 0, "bench: no memory");
	*ret_private = mover;
	mover->config = *config;
	for (i = 0; !r && i < config->n_gpus; i++) {
		r = bench_device_cuda.open(&private, i);
		mover->gpus[i].gpu = private;
		private = NULL;
		if (!r)
			r = open_lanes(&mover->gpus[i]);
	}
	for (i = 0; !r && i < config->n_gpus; i++)
		r = open_peers(mover, i);
	if (!r)
		r = open_gate(mover);
	if (!r)
		r = open_gpu_memory(mover);
	if (!r)
		r = open_host_memory(mover);
	*ret_sizes = mover->sizes;
	return r;
}

static void close_lanes(struct place_gpu *own)
{
	uint32_t i;

	for (i = 0; i < MEASURE_LANES && own->gpu->context && !current(own->gpu); i++) {
		if (own->lanes[i].stream)
			(void)calls_of(own)->stream_destroy(own->lanes[i].stream);
		if (own->lanes[i].begin)
			(void)calls_of(own)->event_destroy(own->lanes[i].begin);
		if (own->lanes[i].end)
			(void)calls_of(own)->event_destroy(own->lanes[i].end);
	}
}

static void mover_close(void *private)
{
	struct mover *mover = private;
	uint32_t i;

	if (!mover)
		return;
	for (i = 0; i < CEI_MACHINE_NODES_MAX; i++)
		if (mover->nodes[i].at)
			free_node_memory(mover, i);
	if (mover->gate && !current(mover->gpus[0].gpu))
		(void)calls_of(&mover->gpus[0])->host_free((void *)mover->gate);
	free_gpu_memory(mover);
	if (mover->host)
		bench_device_close(mover->host);
	for (i = 0; i < mover->config.n_gpus; i++) {
		if (!mover->gpus[i].gpu)
			continue;
		close_lanes(&mover->gpus[i]);
		bench_device_cuda.close(mover->gpus[i].gpu);
	}
	free(mover);
}

/* --- runs --------------------------------------------------------------------------- */

/* Returns the GPU that makes the copy. */
static uint32_t engine_of(const struct mover *mover, const struct measure_flow *flow)
{
	return cei_machine_is_gpu(mover->config.machine, flow->from) ? flow->from : flow->to;
}

static CUdeviceptr source_of(const struct mover *mover, const struct measure_flow *flow)
{
	uint32_t n_gpus = mover->config.machine->n_gpus;

	if (cei_machine_is_gpu(mover->config.machine, flow->from))
		return mover->gpus[flow->from].source;
	return (CUdeviceptr)(uintptr_t)slice(mover, flow->from - n_gpus, flow->to);
}

static CUdeviceptr target_of(const struct mover *mover, const struct measure_flow *flow)
{
	uint32_t n_gpus = mover->config.machine->n_gpus;

	if (cei_machine_is_gpu(mover->config.machine, flow->to))
		return mover->gpus[flow->to].target +
			flow->slot * (mover->sizes.gpu_bytes / MEASURE_LANES);
	return (CUdeviceptr)(uintptr_t)slice(mover, flow->to - n_gpus, flow->from);
}

/* Returns how much memory a flow may use. Flows that run together get equal parts. */
static uint64_t room_of(const struct mover *mover, const struct measure_flow *flow)
{
	int is_between = cei_machine_is_gpu(mover->config.machine, flow->from) &&
		cei_machine_is_gpu(mover->config.machine, flow->to);
	uint64_t part = mover->sizes.gpu_bytes / MEASURE_LANES;

	if (!is_between)
		return mover->sizes.host_bytes < part ? mover->sizes.host_bytes : part;
	return flow->slot || flow->bytes <= part ? part : mover->sizes.gpu_bytes;
}

static int is_possible(const struct mover *mover, const struct measure_flow *flow)
{
	uint32_t n_gpus = mover->config.machine->n_gpus;
	int from_gpu = cei_machine_is_gpu(mover->config.machine, flow->from);
	int to_gpu = cei_machine_is_gpu(mover->config.machine, flow->to);

	if (!flow->bytes || flow->bytes > room_of(mover, flow) || !flow->n_copies ||
	    flow->n_copies > MEASURE_COPIES_MAX || flow->slot >= MEASURE_LANES)
		return 0;
	if (from_gpu && to_gpu)
		return flow->from < mover->config.n_gpus && flow->to < mover->config.n_gpus &&
			mover->gpus[flow->from].reaches[flow->to];
	if (from_gpu)
		return flow->from < mover->config.n_gpus && mover->nodes[flow->to - n_gpus].at;
	return to_gpu && flow->to < mover->config.n_gpus &&
		mover->nodes[flow->from - n_gpus].at;
}

static int queue(struct mover *mover, const struct measure_flow *flow, struct lane *lane)
{
	struct place_gpu *own = &mover->gpus[engine_of(mover, flow)];
	uint64_t room = room_of(mover, flow), offset = 0;
	CUdeviceptr gate = 0;
	uint32_t i;
	int r = current(own->gpu);

	if (!r)
		r = check(own->gpu, calls_of(own)->host_address(&gate, (void *)mover->gate, 0),
			  "cuMemHostGetDevicePointer");
	if (!r)
		r = check(own->gpu, calls_of(own)->stream_wait_value(
			lane->stream, gate, mover->gate_value, CU_STREAM_WAIT_VALUE_GEQ),
			"cuStreamWaitValue64");
	if (!r)
		r = check(own->gpu, calls_of(own)->event_record(lane->begin, lane->stream),
			  "cuEventRecord");
	for (i = 0; !r && i < flow->n_copies; i++) {
		r = check(own->gpu, calls_of(own)->copy(target_of(mover, flow) + offset,
							source_of(mover, flow) + offset,
							flow->bytes, lane->stream),
			  "cuMemcpyAsync");
		offset += flow->bytes;
		if (offset + flow->bytes > room)
			offset = 0;
	}
	return r ? r : check(own->gpu, calls_of(own)->event_record(lane->end, lane->stream),
			     "cuEventRecord");
}

/* Measures the time from the earliest begin event of the GPU's lanes to this flow's end. A lane's
 * own begin event may be recorded only after copies of another lane, which share the copy engine.
 * All lanes are idle. */
static int take_time(struct mover *mover, struct measure_flow *flow, struct lane *lane,
		     uint32_t n_lanes)
{
	struct place_gpu *own = &mover->gpus[engine_of(mover, flow)];
	float ms, longest = 0;
	uint32_t i;
	int r = current(own->gpu);

	for (i = 0; !r && i < n_lanes; i++) {
		r = check(own->gpu, calls_of(own)->event_elapsed(&ms, own->lanes[i].begin,
								 lane->end),
			  "cuEventElapsedTime");
		if (!r && ms > longest)
			longest = ms;
	}
	flow->us = (double)longest * 1e3;
	return r;
}

static int mover_run(void *private, struct measure_flow *flows, uint32_t n_flows)
{
	struct mover *mover = private;
	uint32_t n_lanes[CEI_MACHINE_GPUS_MAX] = { 0 };
	struct lane *lanes[MEASURE_FLOWS_MAX];
	uint32_t i, engine, n = 0;
	int r = 0, s;

	mover->gate_value++;
	for (i = 0; !r && i < n_flows && i < MEASURE_FLOWS_MAX; i++) {
		engine = is_possible(mover, &flows[i]) ? engine_of(mover, &flows[i]) : 0;
		if (!is_possible(mover, &flows[i]) || n_lanes[engine] == MEASURE_LANES) {
			r = cei_raise(mover->config.report, CEOV_ERR_INVALID, 0, "bench: a "
				      "flow from place %u to place %u that cannot be",
				      flows[i].from, flows[i].to);
			break;
		}
		lanes[i] = &mover->gpus[engine].lanes[n_lanes[engine]++];
		n = i + 1;
		r = queue(mover, &flows[i], lanes[i]);
	}
	/* Opened also after a failure, because queued work waits for the gate. Release order; the
	 * partners are the streams' waits in queue(). */
	atomic_store_explicit(mover->gate, mover->gate_value, memory_order_release);
	for (i = 0; i < n; i++) {
		s = idle(mover->gpus[engine_of(mover, &flows[i])].gpu, lanes[i]->stream);
		r = r ? r : s;
	}
	for (i = 0; !r && i < n; i++)
		r = take_time(mover, &flows[i], lanes[i],
			      n_lanes[engine_of(mover, &flows[i])]);
	return r;
}

static int mover_reaches(void *private, uint32_t from, uint32_t to)
{
	struct mover *mover = private;
	int from_gpu = cei_machine_is_gpu(mover->config.machine, from);
	int to_gpu = cei_machine_is_gpu(mover->config.machine, to);
	uint32_t n_gpus = mover->config.machine->n_gpus;

	if (from_gpu && to_gpu)
		return mover->gpus[from].reaches[to];
	return from_gpu != to_gpu && mover->nodes[(from_gpu ? to : from) - n_gpus].at;
}

/* --- data --------------------------------------------------------------------------- */

/* Fills or verifies memory of a GPU or of the host. */
static int fill(struct mover *mover, uint32_t place, CUdeviceptr at, uint64_t n_bytes,
		uint64_t seed)
{
	void *memory = (void *)(uintptr_t)at;

	if (cei_machine_is_gpu(mover->config.machine, place))
		return bench_device_cuda.fill(mover->gpus[place].gpu, memory, n_bytes, seed);
	return bench_fill(mover->host, memory, n_bytes, seed);
}

static int mover_check(void *private, const struct measure_flow *flow,
		       uint64_t *ret_n_wrong)
{
	struct mover *mover = private;
	struct measure_flow one = *flow;
	uint64_t seed = mover->config.seed + 4096 + 64 * (uint64_t)flow->from + flow->to;
	void *target;
	int r;

	one.n_copies = 1;
	if (!is_possible(mover, &one))
		return cei_raise(mover->config.report, CEOV_ERR_INVALID, 0, "bench: a check "
				 "from place %u to place %u that cannot be", one.from, one.to);
	r = fill(mover, one.from, source_of(mover, &one), one.bytes, seed);
	if (!r)
		r = fill(mover, one.to, target_of(mover, &one), one.bytes, seed ^ POISON);
	if (!r)
		r = mover_run(mover, &one, 1);
	if (r)
		return r;
	target = (void *)(uintptr_t)target_of(mover, &one);
	if (cei_machine_is_gpu(mover->config.machine, one.to))
		return bench_device_cuda.verify(mover->gpus[one.to].gpu, target, one.bytes,
						seed, ret_n_wrong);
	return bench_verify(mover->host, target, one.bytes, seed, ret_n_wrong);
}

const struct measure_mover_ops measure_mover_cuda = {
	.open    = mover_open,
	.close   = mover_close,
	.reaches = mover_reaches,
	.run     = mover_run,
	.check   = mover_check,
};
