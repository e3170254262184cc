/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DIRECT_STEPS_CUH
#define CEI_DIRECT_STEPS_CUH

/* Sums in steps: what a block's warps share, which chunks a block has, and the threads that copy
 * chunks. direct_steps_kernels.cu says how warps work together. */

#include "kernels/bulk.cuh"
#include "kernels/direct.cuh"

namespace cei_direct_steps {

enum {                                  /* warps; those before PUSH are adders */
	PUSH = CEI_DIRECT_STEP_ADDERS, STORE, COPY, AWAIT_ADDENDS, AWAIT_SUMS, TELL_ADDENDS,
	TELL_SUMS, WARPS
};

#define LAG          3                  /* PUSH tells of a step when it has stored so many chunks
					 * more, so that it does not wait for the last ones */

static_assert(WARPS * 32 == CEI_DIRECT_STEP_THREADS, "the host launches these warps");

struct bars {
	/* The next four: [step], one arrival. */
	uint64_t pushed[CEI_DIRECT_STEPS_MAX];  /* peers have this rank's addends */
	uint64_t arrived[CEI_DIRECT_STEPS_MAX]; /* this rank has the peers' addends, or failed */
	uint64_t stored[CEI_DIRECT_STEPS_MAX];  /* peers have this rank's sums */
	uint64_t gathered[CEI_DIRECT_STEPS_MAX];        /* this rank has theirs, or failed */
	uint64_t push_full[CEI_DIRECT_PUSH_SLOTS];      /* one arrival, and bytes */
	uint64_t copy_full[CEI_DIRECT_COPY_SLOTS];
	uint64_t sum_full[CEI_DIRECT_SUM_SLOTS];        /* an arrival of each warp of a team */
	uint64_t sum_empty[CEI_DIRECT_SUM_SLOTS];       /* one arrival */
	uint32_t has_failed;                            /* 1: a wait of this block has failed */
};

static_assert(sizeof(struct bars) <= CEI_DIRECT_BARS_BYTES, "slots begin behind the barriers");
static_assert(CEI_DIRECT_STEP_SHARED <= 232448, "an SM of sm_90 has so much for a block");

struct block {                          /* what all warps of a block know */
	const struct cei_direct &direct;
	struct direct_turn       turn;
	struct bars             *bars;
	char                    *slots; /* those of PUSH, then of COPY, then of sums */
};

static __device__ __forceinline__ bool has_failed(const struct block &block)
{
	return *(const volatile uint32_t *)&block.bars->has_failed;
}

/* --- chunks and steps ------------------------------------------------------ */

/* Returns where the block's chunk number `row` begins in each span. */
static __device__ __forceinline__ uint64_t chunk_at(uint32_t row)
{
	return ((uint64_t)row * gridDim.x + blockIdx.x) * CEI_DIRECT_CHUNK;
}

static __device__ __forceinline__ uint32_t chunk_bytes(uint64_t at, uint64_t span_bytes)
{
	return span_bytes - at < CEI_DIRECT_CHUNK ? (uint32_t)(span_bytes - at) : CEI_DIRECT_CHUNK;
}

/* Chunks behind those of the last step belong to it, too. */
static __device__ __forceinline__ uint32_t step_of(const struct cei_direct &direct, uint32_t row)
{
	const uint32_t step = row / direct.step_rows;

	return step < direct.n_steps ? step : direct.n_steps - 1;
}

/* Returns the peer that a block serves first. Blocks of a rank begin with different peers, so that
 * what comes to a peer at a time does not depend on how far each other rank has come. */
static __device__ __forceinline__ uint32_t first_peer(const struct cei_direct &direct)
{
	return behind(direct, 1 + blockIdx.x % (direct.n_ranks - 1));
}

/* Returns the peer that a block serves next; after all, the first one again. */
static __device__ __forceinline__ uint32_t peer_after(const struct cei_direct &direct,
						      uint32_t rank)
{
	rank = rank + 1 < direct.n_ranks ? rank + 1 : 0;
	if (rank != direct.own)
		return rank;
	return rank + 1 < direct.n_ranks ? rank + 1 : 0;
}

/* A walk over the block's chunks of the parts of all peers: of each the first, then the next. It
 * goes by small steps without a division, since one thread has less than a microsecond for a chunk
 * if few SMs are to use all of the links. */
struct walk {
	uint64_t most;                  /* bytes of the largest part of a peer */
	uint64_t at;                    /* where the chunk begins in its part */
	uint32_t step;
	uint32_t rows_left;             /* of the step, with this one */
	uint32_t n_served;              /* peers of this row before this one */
	uint32_t rank;                  /* whose part it is */
	uint32_t n_bytes;               /* of the chunk; 0: there are no more */
};

static __device__ __forceinline__ void next_row(const struct cei_direct &direct, struct walk *walk)
{
	walk->n_served = 0;
	walk->at += (uint64_t)gridDim.x * CEI_DIRECT_CHUNK;
	walk->rows_left--;
	if (walk->rows_left || walk->step + 1 == direct.n_steps)
		return;
	walk->step++;
	walk->rows_left = direct.step_rows;
}

/* Goes on to the first chunk that has bytes, from this one on. */
static __device__ __forceinline__ void seek(const struct cei_direct &direct, struct walk *walk)
{
	uint64_t n_leaves;

#pragma unroll 1
	while (walk->at < walk->most) {
		if (walk->n_served == direct.n_ranks - 1) {
			next_row(direct, walk);
			continue;
		}
		n_leaves = direct.spans[walk->rank].n_leaves;
		if (walk->at < n_leaves) {
			walk->n_bytes = chunk_bytes(walk->at, n_leaves);
			return;
		}
		walk->n_served++;
		walk->rank = peer_after(direct, walk->rank);
	}
	walk->n_bytes = 0;
}

static __device__ __forceinline__ void next(const struct cei_direct &direct, struct walk *walk)
{
	walk->n_served++;
	walk->rank = peer_after(direct, walk->rank);
	seek(direct, walk);
}

static __device__ __forceinline__ struct walk first(const struct cei_direct &direct)
{
	struct walk walk = {};
	uint32_t rank;

	for (rank = 0; rank < direct.n_ranks; rank++)
		if (rank != direct.own && direct.spans[rank].n_leaves > walk.most)
			walk.most = direct.spans[rank].n_leaves;
	walk.at = chunk_at(0);
	walk.rows_left = direct.step_rows;
	walk.rank = first_peer(direct);
	seek(direct, &walk);
	return walk;
}

/* --- PUSH and COPY ----------------------------------------------------------- */

/* A route says from where to where chunks go. `begin` awaits a step before chunks of it are loaded,
 * and returns whether it came. If `tells`, `tell` passes on a step, all of whose chunks have been
 * stored. */
struct push_route {
	static constexpr uint32_t n_slots = CEI_DIRECT_PUSH_SLOTS, ahead = 3;
	static constexpr bool tells = true;

	static __device__ __forceinline__ uint64_t *full(const struct block &block)
	{
		return block.bars->push_full;
	}

	static __device__ __forceinline__ char *slots(const struct block &block)
	{
		return block.slots;
	}

	static __device__ __forceinline__ const char *from(const struct block &block,
							   const struct walk &walk)
	{
		return (const char *)block.direct.source + block.direct.spans[walk.rank].leaves +
			walk.at;
	}

	static __device__ __forceinline__ char *to(const struct block &block,
						   const struct walk &walk)
	{
		return half_of(block.direct, block.turn, walk.rank) +
			block.direct.spans[walk.rank].there + walk.at;
	}

	static __device__ __forceinline__ bool begin(const struct block &, uint32_t)
	{
		return true;
	}

	static __device__ __forceinline__ void tell(const struct block &block, uint32_t step)
	{
		cei_bar_arrive(block.bars->pushed + step);
	}
};

struct copy_route {
	static constexpr uint32_t n_slots = CEI_DIRECT_COPY_SLOTS, ahead = 2;
	static constexpr bool tells = false;

	static __device__ __forceinline__ uint64_t *full(const struct block &block)
	{
		return block.bars->copy_full;
	}

	static __device__ __forceinline__ char *slots(const struct block &block)
	{
		return block.slots + CEI_DIRECT_PUSH_SLOTS * CEI_DIRECT_CHUNK;
	}

	static __device__ __forceinline__ const char *from(const struct block &block,
							   const struct walk &walk)
	{
		return half_of(block.direct, block.turn, block.direct.own) +
			block.direct.gather_at + block.direct.spans[walk.rank].place + walk.at;
	}

	static __device__ __forceinline__ char *to(const struct block &block,
						   const struct walk &walk)
	{
		return (char *)block.direct.target + block.direct.spans[walk.rank].place + walk.at;
	}

	/* Peers have written by other instructions than bulk loads read by, hence the fence. */
	static __device__ __forceinline__ bool begin(const struct block &block, uint32_t step)
	{
		cei_bar_wait(block.bars->gathered + step, 0);
		cei_fence_async();
		return !has_failed(block);
	}
};

/* Which steps PUSH has told of, and which it may tell of soon. */
struct telling {
	uint32_t n_told;
	uint32_t n_due;                 /* the stores of so many steps have begun ... */
	uint32_t due_at;                /* ... when so many stores had */
};

/* Passes on steps whose stores have all been written. */
template <class ROUTE>
static __device__ __forceinline__ void tell_until(const struct block &block,
						  struct telling *telling, uint32_t n_steps)
{
#pragma unroll 1
	for (; telling->n_told < n_steps; telling->n_told++)
		ROUTE::tell(block, telling->n_told);
}

/* Called when n_stored stores have begun, among them all of the first n_steps steps. */
template <class ROUTE>
static __device__ __forceinline__ void note(const struct block &block, struct telling *telling,
					    uint32_t n_steps, uint32_t n_stored)
{
	if (telling->n_due > telling->n_told && n_stored - telling->due_at >= LAG) {
		cei_store_wait_all_but<LAG>();
		tell_until<ROUTE>(block, telling, telling->n_due);
	}
	if (n_steps == telling->n_due)
		return;
	if (telling->n_due > telling->n_told) {         /* a step of few chunks */
		cei_store_wait();
		tell_until<ROUTE>(block, telling, n_steps);
	}
	telling->n_due = n_steps;
	telling->due_at = n_stored;
}

/* Begins to load a chunk. Before that, its slot has to be free: of the stores before it, at least
 * n_slots - ahead - 1 have begun after the one that used the slot. */
template <class ROUTE>
static __device__ __forceinline__ void load_chunk(const struct block &block,
						  const struct walk &walk, uint32_t i)
{
	const uint32_t slot = i % ROUTE::n_slots;

	cei_store_wait_read<(int)(ROUTE::n_slots - ROUTE::ahead - 1)>();
	cei_bar_expect(ROUTE::full(block) + slot, walk.n_bytes);
	cei_bulk_load(ROUTE::slots(block) + slot * CEI_DIRECT_CHUNK, ROUTE::from(block, walk),
		      walk.n_bytes, ROUTE::full(block) + slot);
}

template <class ROUTE>
static __device__ __forceinline__ void store_chunk(const struct block &block,
						   const struct walk &walk, uint32_t i)
{
	const uint32_t slot = i % ROUTE::n_slots;

	cei_bar_wait(ROUTE::full(block) + slot, i / ROUTE::n_slots % 2);
	cei_bulk_store(ROUTE::to(block, walk), ROUTE::slots(block) + slot * CEI_DIRECT_CHUNK,
		       walk.n_bytes);
	cei_store_commit();
}

/* Moves all of the block's chunks; run by one thread. Loads are `ahead` chunks before stores. */
template <class ROUTE>
static __device__ __forceinline__ void move_all(const struct block &block)
{
	const struct cei_direct &direct = block.direct;
	struct walk load = first(direct), store = load;
	struct telling telling = { 0, 0, 0 };
	uint32_t n_loaded = 0, n_stored = 0, n_begun = 0;

	cei_fence_async();      /* what was acquired when the run began, before bulk stores */
	for (;;) {
		for (; load.n_bytes && n_begun <= load.step; n_begun++)
			if (!ROUTE::begin(block, n_begun))
				load.n_bytes = 0;
		if (load.n_bytes) {
			load_chunk<ROUTE>(block, load, n_loaded++);
			next(direct, &load);
			if (load.n_bytes && n_loaded - n_stored <= ROUTE::ahead)
				continue;
		}
		if (n_stored == n_loaded)
			break;
		store_chunk<ROUTE>(block, store, n_stored++);
		next(direct, &store);
		if constexpr (ROUTE::tells)
			note<ROUTE>(block, &telling, store.n_bytes ? store.step : direct.n_steps,
				    n_stored);
	}
	cei_store_wait();
	if constexpr (ROUTE::tells)
		tell_until<ROUTE>(block, &telling, direct.n_steps);
}

} /* namespace */

#endif /* CEI_DIRECT_STEPS_CUH */
