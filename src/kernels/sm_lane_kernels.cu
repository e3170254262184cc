/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * The kernel that carries out a lane; sm_lane.h says what it does.
 *
 * One thread of a block loads chunks into a ring of stages in shared memory, another one stores
 * them at the targets. Both walk through the same chunks in the same order. Bulk copies do the
 * moving, so two threads keep all stages of an SM under way. A third one counts the block for steps
 * that have been stored: a fence for the whole system takes some us, in which the others go on.
 */

#include <ceoverlap/device.cuh>

#include "kernels/bulk.cuh"
#include "kernels/marks.cuh"
#include "kernels/sm_lane.h"

namespace cei_sm_lane_kernel {

/* Stores that may be unread by the copy unit when the next one is begun. Their stages are not free
 * yet, so there must be fewer of them than stages. */
constexpr int UNREAD = 4;

/* Stores that may be under way to a peer while the step before them is counted. A step is counted
 * only when its last store has arrived; that takes a few us, which further stores fill. */
constexpr int BEHIND = 4;

struct bars {
	uint64_t full[CEI_SM_LANE_STAGES];
	uint64_t empty[CEI_SM_LANE_STAGES];
	uint32_t skipped[CEI_SM_LANE_STAGES];   /* 1: nothing was loaded, and nothing is stored */
	uint32_t has_failed;                    /* 1: an await of this block has failed */
	uint32_t n_stored;                      /* steps whose stores have all arrived */
};

struct shared {
	uint8_t     *stages;
	struct bars *bars;
};

/* A position in the ring. */
struct turn {
	uint32_t stage;
	uint32_t parity;
};

static __device__ __forceinline__ void advance(struct turn *turn)
{
	if (++turn->stage < CEI_SM_LANE_STAGES)
		return;
	turn->stage = 0;
	turn->parity ^= 1;
}

/* A chunk of a step: within one row. */
struct chunk {
	uint64_t source;
	uint64_t target;
	uint32_t n_bytes;
};

static __device__ __forceinline__ uint64_t chunks_of_row(const struct cei_sm_lane_step &step)
{
	return (step.row_bytes + CEI_SM_LANE_CHUNK_BYTES - 1) / CEI_SM_LANE_CHUNK_BYTES;
}

static __device__ __forceinline__ struct chunk
chunk_at(const struct cei_sm_lane &lane, const struct cei_sm_lane_step &step, uint64_t i)
{
	const uint64_t n = chunks_of_row(step), row = i / n;
	const uint64_t at = (i - row * n) * CEI_SM_LANE_CHUNK_BYTES, left = step.row_bytes - at;
	struct chunk chunk;

	chunk.source = step.source + row * step.source_pitch_bytes + at +
		(step.is_floating ? lane.floating : 0);
	chunk.target = step.target + row * step.target_pitch_bytes + at;
	chunk.n_bytes = left < CEI_SM_LANE_CHUNK_BYTES ? (uint32_t)left : CEI_SM_LANE_CHUNK_BYTES;
	return chunk;
}

/* --- the thread that loads -------------------------------------------------------------- */

/* Awaits the step's gate. The fence orders what it announces before the bulk copies, which go by
 * another path (proxy). */
static __device__ __forceinline__ bool await_gate(const struct cei_sm_lane &lane, uint32_t gate)
{
	int result;

	if (gate == CEI_SM_LANE_NO_GATE)
		return true;
	result = cei_mark_await(lane.ready, gate, lane.gate_value, lane.timeout_ns, lane.failed);
	cei_fence_async();
	if (result == CEOV_DEVICE_REACHED)
		return true;
	cei_mark_fail({ lane.status, lane.failed, (uint64_t *)lane.epoch }, result);
	return false;
}

/* Returns whether a run before this one has failed. */
static __device__ __forceinline__ bool is_failed(const struct cei_sm_lane &lane)
{
	if (lane.epoch)
		return *(const volatile uint64_t *)lane.epoch >= CEOV_VALUE_LIMIT;
	return *(const volatile uint32_t *)lane.failed != 0;
}

/* Loads the block's chunks of all steps. After a failure it still goes through them, and marks them
 * as skipped, so that the thread that stores does not wait for ever. */
static __device__ void load_all(const struct cei_sm_lane &lane, const struct shared &shared)
{
	bool is_good = !is_failed(lane);
	struct turn turn = { 0, 1 };    /* all stages are empty at first */

	for (uint32_t s = 0; s < lane.n_steps; s++) {
		const struct cei_sm_lane_step step = lane.steps[s];
		const uint64_t n = chunks_of_row(step) * step.n_rows;

		if (is_good && blockIdx.x < n)
			is_good = await_gate(lane, step.gate);
		for (uint64_t i = blockIdx.x; i < n; i += gridDim.x, advance(&turn)) {
			const struct chunk chunk = chunk_at(lane, step, i);
			uint64_t *full = &shared.bars->full[turn.stage];

			cei_bar_wait(&shared.bars->empty[turn.stage], turn.parity);
			shared.bars->skipped[turn.stage] = !is_good;
			if (!is_good) {
				*(volatile uint32_t *)&shared.bars->has_failed = 1;
				cei_bar_arrive(full);
				continue;
			}
			cei_bar_expect(full, chunk.n_bytes);
			cei_bulk_load(shared.stages + turn.stage * CEI_SM_LANE_CHUNK_BYTES,
				      (const void *)chunk.source, chunk.n_bytes, full);
		}
	}
}

/* --- the thread that stores ------------------------------------------------------------- */

struct storing {
	struct turn turn;               /* the next stage to be stored */
	struct turn unread;             /* the first one whose store may not be read */
	int         n_unread;
	uint32_t    n_told;             /* steps that the thread that counts knows of */
	uint32_t    n_done;             /* steps of which all chunks were given to the copy unit */
	int         n_behind;           /* stores begun since the last of these steps ended */
};

/* Tells the thread that counts of the steps that are done. Their stores have arrived. */
static __device__ __forceinline__ void tell_done(struct bars *bars, struct storing *storing)
{
	storing->n_told = storing->n_done;
	asm volatile("st.release.cta.shared::cta.u32 [%0], %1;"
		     :: "r"(cei_shared(&bars->n_stored)), "r"(storing->n_done) : "memory");
}

static __device__ __forceinline__ void finish_done(struct bars *bars, struct storing *storing)
{
	if (storing->n_told == storing->n_done)
		return;
	cei_store_wait();
	tell_done(bars, storing);
}

/* Gives back stages until at most N stores are unread. */
template <int N>
static __device__ __forceinline__ void give_back(struct bars *bars, struct storing *storing)
{
	if (storing->n_unread <= N)
		return;
	cei_store_wait_read<N>();
	for (; storing->n_unread > N; storing->n_unread--, advance(&storing->unread))
		cei_bar_arrive(&bars->empty[storing->unread.stage]);
}

/* Stores a chunk when it has come. A chunk that was skipped makes an empty group, so that groups
 * and stages stay in step. */
static __device__ __forceinline__ void store_chunk(const struct shared &shared,
						   const struct chunk &chunk,
						   struct storing *storing)
{
	const uint32_t stage = storing->turn.stage;

	cei_bar_wait(&shared.bars->full[stage], storing->turn.parity);
	if (!*(const volatile uint32_t *)&shared.bars->skipped[stage])
		cei_bulk_store((void *)chunk.target,
			       shared.stages + stage * CEI_SM_LANE_CHUNK_BYTES, chunk.n_bytes);
	cei_store_commit();
	advance(&storing->turn);
	storing->n_unread++;
	storing->n_behind++;
}

static __device__ void store_all(const struct cei_sm_lane &lane, const struct shared &shared)
{
	struct storing storing = { { 0, 0 }, { 0, 0 }, 0, 0, 0, 0 };

	for (uint32_t s = 0; s < lane.n_steps; s++) {
		const struct cei_sm_lane_step step = lane.steps[s];
		const uint64_t n = chunks_of_row(step) * step.n_rows;

		for (uint64_t i = blockIdx.x; i < n; i += gridDim.x) {
			/* While nothing has come, nothing is under way behind a done step. */
			if (!cei_bar_is_over(&shared.bars->full[storing.turn.stage],
					     storing.turn.parity)) {
				give_back<0>(shared.bars, &storing);
				finish_done(shared.bars, &storing);
			}
			store_chunk(shared, chunk_at(lane, step, i), &storing);
			give_back<UNREAD>(shared.bars, &storing);
			if (storing.n_told < storing.n_done && storing.n_behind == BEHIND) {
				cei_store_wait_all_but<BEHIND>();
				tell_done(shared.bars, &storing);
			}
		}
		finish_done(shared.bars, &storing);     /* of the step before this one */
		storing.n_done = s + 1;
		storing.n_behind = 0;
	}
	finish_done(shared.bars, &storing);
}

/* --- the thread that counts ------------------------------------------------------------- */

/* Counts the block for a step whose bytes have all been stored. The block that comes last raises
 * the counter. The fence and the atomic operation release this block's bytes, and acquire those of
 * the blocks before it, and any poison that they have stored; the raise publishes all. */
static __device__ __forceinline__ void count_step(const struct cei_sm_lane &lane, uint32_t s)
{
	uint64_t *counter = lane.steps[s].counter;
	const uint32_t last = gridDim.x - 1;
	uint64_t value = lane.value;
	uint32_t n_before;

	cei_fence_async();
	asm volatile("fence.acq_rel.sys;" ::: "memory");
	asm volatile("atom.acq_rel.gpu.inc.u32 %0, [%1], %2;"
		     : "=r"(n_before) : "l"(lane.n_arrived + s), "r"(last) : "memory");
	if (n_before != last || !counter)
		return;
	/* The load is an instruction of its own: nvcc 13.0 made one load of this and of the
	 * parameter, from an address that it chose, and took the parameter's for a global one. */
	if (lane.epoch)
		value = ceov_device_load(lane.epoch);
	ceov_device_raise(counter, value);
}

static __device__ void count_all(const struct cei_sm_lane &lane, const struct bars *bars)
{
	uint32_t s, n_stored = 0;

	for (s = 0; s < lane.n_steps; s++) {
		while (n_stored <= s)
			asm volatile("ld.acquire.cta.shared::cta.u32 %0, [%1];"
				     : "=r"(n_stored) : "r"(cei_shared(&bars->n_stored))
				     : "memory");
		if (lane.epoch || !*(const volatile uint32_t *)&bars->has_failed)
			count_step(lane, s);
	}
}

/* --- the kernel --------------------------------------------------------------------------- */

static __device__ __forceinline__ void run(const struct cei_sm_lane &lane)
{
#if __CUDA_ARCH__ >= 900
	extern __shared__ __align__(128) uint8_t raw[];
	const struct shared shared = {
		raw, (struct bars *)(raw + CEI_SM_LANE_STAGES * CEI_SM_LANE_CHUNK_BYTES)
	};

	static_assert(sizeof(struct bars) <= 1024, "the barriers fit behind the stages");
	static_assert(UNREAD < CEI_SM_LANE_STAGES, "some stages are free to be loaded");
	if (threadIdx.x == 0) {
		for (uint32_t i = 0; i < CEI_SM_LANE_STAGES; i++) {
			cei_bar_init(&shared.bars->full[i], 1);
			cei_bar_init(&shared.bars->empty[i], 1);
		}
		shared.bars->has_failed = 0;
		shared.bars->n_stored = 0;
		cei_bar_init_fence();
	}
	__syncthreads();
	if (threadIdx.x == 0)
		load_all(lane, shared);
	else if (threadIdx.x == 32)
		store_all(lane, shared);
	else if (threadIdx.x == 64)
		count_all(lane, shared.bars);
#else
	__trap();
#endif
}

} /* namespace */

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define CEI_SM_LANE_CLUSTERED
#else
#define CEI_SM_LANE_CLUSTERED __cluster_dims__(CEI_SM_LANE_CLUSTER, 1, 1)
#endif

extern "C" __global__ void CEI_SM_LANE_CLUSTERED __launch_bounds__(CEI_SM_LANE_THREADS, 1)
cei_sm_lane(const __grid_constant__ struct cei_sm_lane lane)
{
	cei_sm_lane_kernel::run(lane);
}
