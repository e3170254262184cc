/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CHANNEL_MOVES_CUH
#define CEI_CHANNEL_MOVES_CUH

/* Which chunks a block has, and the warps that move them: PUSH from operands to the peers' rings,
 * COPY from rings to operands. */

#include "kernels/channel_steps.cuh"

namespace cei_channel {

/* --- bytes between operands and slots -------------------------------------------------------- */

static __device__ __forceinline__ uint32_t whole_vectors(uint32_t n)
{
	return n & ~(uint32_t)(sizeof(uint4) - 1);
}

static __device__ __forceinline__ uint32_t up_to_vectors(uint32_t n)
{
	return whole_vectors(n + sizeof(uint4) - 1);
}

/* Copies bytes [from, n) by the warp. */
static __device__ __noinline__ void copy_by_warp(char *to, const char *source, uint32_t from,
						 uint32_t n)
{
	uint32_t at;

	if (!(((uintptr_t)to | (uintptr_t)source | from | n) % sizeof(uint32_t))) {
#pragma unroll 4
		for (at = from + threadIdx.x % 32 * 4; at < n; at += 128)
			*(uint32_t *)(to + at) = *(const volatile uint32_t *)(source + at);
		return;
	}
#pragma unroll 4
	for (at = from + threadIdx.x % 32; at < n; at += 32)
		to[at] = *(const volatile char *)(source + at);
}

/* Begins to load n bytes from an operand into a free slot; `full` tells when they have come. */
static __device__ __forceinline__ void load_slot(char *slot, const char *source, uint32_t n,
						 uint64_t *full)
{
	const uint32_t n_bulk = is_aligned(source) ? whole_vectors(n) : 0;

	if (n_bulk < n) {
		copy_by_warp(slot, source, n_bulk, n);
		cei_fence_async_shared();       /* a bulk store will read it */
		__syncwarp();
	}
	if (!leads())
		return;
	cei_bar_expect(full, n_bulk);
	if (n_bulk)
		cei_bulk_load(slot, source, n_bulk, full);
}

/* Begins to store n bytes of a slot to an operand; the store belongs to the group that is committed
 * next. */
static __device__ __forceinline__ void store_slot(char *target, const char *slot, uint32_t n)
{
	const uint32_t n_bulk = is_aligned(target) ? whole_vectors(n) : 0;

	if (n_bulk && leads())
		cei_bulk_store(target, slot, n_bulk);
	if (n_bulk == n)
		return;
	copy_by_warp(target, slot, n_bulk, n);
	cei_fence_async_shared();       /* a bulk load may overwrite it */
	__syncwarp();
}

/* --- walks ----------------------------------------------------------------------------------- */

/* A chunk of a walk. */
struct chunk {
	uint32_t n_bytes;               /* 0: there are no more */
	uint32_t peer;
	uint32_t i;                     /* how many of the peer came before it in the kernel */
	char    *at;                    /* in the operand; a message's head: NULL */
	uint64_t what;                  /* of the message, and its bytes; heads alone */
	uint64_t bytes;
};

/* Returns how many of a pair's bytes go in steps: none where they go by packets. */
static __device__ __forceinline__ uint64_t in_steps(const struct cei_channel_run &run,
						    uint64_t bytes)
{
	return run.blocks_each && bytes <= run.place.layout.span_max ? 0 : bytes;
}

/* A walk over the lane's chunks of a run with all peers that the block serves: of each the first,
 * then of each the next. It goes by small steps, since one warp has less than a microsecond for a
 * chunk if few SMs are to use all of the links. */
struct run_walk {
	const struct cei_channel_run &run;
	bool                          is_to;
	uint32_t                      lane;
	uint32_t                      first, n_peers;   /* they are first, ... behind the own
							 * rank */
	uint32_t                      start;    /* which of them is served first: blocks of a rank
						 * begin with different peers, so that what comes
						 * to a peer at a time does not depend on how far
						 * each other rank has come */
	uint32_t                      k, row, most;

	__device__ __forceinline__ uint64_t bytes_of(uint32_t rank) const
	{
		return in_steps(run, is_to ? run.parts[rank].to : run.parts[rank].from);
	}

	__device__ __forceinline__ uint32_t peer_at(uint32_t behind) const
	{
		const uint32_t n = run.place.n_ranks, turned = behind + start;
		const uint32_t rank = run.place.own + first +
			(turned < n_peers ? turned : turned - n_peers);

		return rank < n ? rank : rank - n;
	}

	__device__ __forceinline__ void begin()
	{
		most = 0;
		for (uint32_t i = 0; i < n_peers; i++)
			most = max(most, chunks_of(bytes_of(peer_at(i)), run.n_lanes, lane));
	}

	__device__ __forceinline__ struct chunk next()
	{
		struct chunk chunk = {};
		uint64_t bytes, at;
		uint32_t rank;

#pragma unroll 1
		while (row < most) {
			rank = peer_at(k);
			bytes = bytes_of(rank);
			at = chunk_at(bytes, run.n_lanes, row, lane);
			chunk.i = row;
			if (++k == n_peers) {
				k = 0;
				row++;
			}
			if (at >= bytes || lane >= cei_channel_lanes(bytes, run.n_lanes))
				continue;
			chunk.n_bytes = (uint32_t)min(bytes - at, (uint64_t)CEI_CHANNEL_CHUNK);
			chunk.peer = rank;
			chunk.at = is_to ? (char *)run.parts[rank].source + at
				: run.parts[rank].target + at;
			return chunk;
		}
		return chunk;
	}
};

/* A walk over the lane's chunks of all messages with one peer, in one direction. */
struct message_walk {
	const struct cei_channel_messages &messages;
	uint32_t                           peer;
	bool                               is_to;
	uint32_t                           lane;
	uint32_t                           message, row, i;
	bool                               is_begun;    /* the message's head was passed */

	__device__ __forceinline__ bool is_mine(const struct cei_channel_message &one) const
	{
		return one.peer == peer && one.is_receive == !is_to;
	}

	__device__ __forceinline__ struct chunk head_of(const struct cei_channel_message &one)
	{
		struct chunk chunk = {};

		chunk.n_bytes = sizeof(struct cei_channel_head);
		chunk.peer = peer;
		chunk.i = i++;
		chunk.what = one.what;
		chunk.bytes = one.bytes;
		return chunk;
	}

	__device__ __forceinline__ struct chunk next()
	{
		struct chunk chunk = {};
		uint64_t at;

#pragma unroll 1
		for (; message < messages.n; message++, row = 0, is_begun = false) {
			const struct cei_channel_message &one = messages.messages[message];

			if (!is_mine(one))
				continue;
			if (!is_begun && !lane) {
				is_begun = true;
				return head_of(one);
			}
			if (row >= chunks_of(one.bytes, messages.n_lanes, lane))
				continue;
			at = chunk_at(one.bytes, messages.n_lanes, row++, lane);
			chunk.n_bytes = (uint32_t)min(one.bytes - at, (uint64_t)CEI_CHANNEL_CHUNK);
			chunk.peer = peer;
			chunk.i = i++;
			chunk.at = one.memory + at;
			return chunk;
		}
		return chunk;
	}
};

/* --- PUSH: from operands to the peers' rings ------------------------------------------------- */

constexpr uint32_t PUSH_AHEAD = 3;
constexpr uint32_t LAG = 8;             /* stores that can be under way before peers are told of
					 * earlier ones */

static __device__ __forceinline__ char *push_slot(const struct block &block, uint32_t n)
{
	return block.slots + n % CEI_CHANNEL_PUSH_SLOTS * CEI_CHANNEL_CHUNK;
}

/* Begins to load a chunk. Of the stores before it, at least 2 have begun after the one that used
 * the slot. */
static __device__ __forceinline__ void load_chunk(const struct block &block,
						  const struct chunk &chunk, uint32_t n)
{
	uint64_t *full = block.shared->push_full + n % CEI_CHANNEL_PUSH_SLOTS;
	char *slot = push_slot(block, n);

	if (leads())
		cei_store_wait_read<(int)(CEI_CHANNEL_PUSH_SLOTS - PUSH_AHEAD - 1)>();
	__syncwarp();
	if (chunk.at)
		return load_slot(slot, chunk.at, chunk.n_bytes, full);
	if (!leads())
		return;
	((volatile uint64_t *)slot)[0] = chunk.what;
	((volatile uint64_t *)slot)[1] = chunk.bytes;
	cei_fence_async_shared();
	cei_bar_arrive(full);
}

/* The chunks that PUSH has begun to store, up to those that it has told TELL of. */
template <class WALK>
struct telling {
	WALK     walk;
	uint32_t n_told;
};

template <class WALK>
static __device__ __forceinline__ void tell_until(const struct block &block,
						  struct telling<WALK> *telling, uint32_t n)
{
	struct chunk chunk;

#pragma unroll 1
	for (; telling->n_told < n; telling->n_told++) {
		chunk = telling->walk.next();
		if (leads())
			publish(&block.shared->n_stored[0][chunk.peer], chunk.i + 1);
	}
}

/* Returns whether the peer's ring has room for the chunk. Before PUSH waits for that it tells of
 * all that it has stored: else the peer could wait for it. */
template <class WALK>
static __device__ __forceinline__ bool find_room(const struct block &block,
						 const struct chunk &chunk,
						 struct telling<WALK> *telling, uint32_t n_stored)
{
	bool is_good = true;

	__syncwarp();                   /* the leader has noted what it saw */
	if (has_room(block, 0, chunk.peer, chunk.i))
		return true;
	if (leads())
		cei_store_wait();
	__syncwarp();
	tell_until(block, telling, n_stored);
	if (leads())
		is_good = await_room(block, 0, chunk.peer, chunk.i);
	return __all_sync(0xffffffffu, is_good);
}

/* Stores chunk number n, which was loaded, and tells of those whose stores have ended. */
template <class WALK>
static __device__ __forceinline__ void store_chunk(const struct block &block,
						   const struct chunk &chunk, uint32_t n,
						   struct telling<WALK> *telling)
{
	cei_bar_wait(block.shared->push_full + n % CEI_CHANNEL_PUSH_SLOTS,
		     n / CEI_CHANNEL_PUSH_SLOTS % 2);
	if (leads()) {
		cei_bulk_store(slot_there(block, 0, chunk.peer, chunk.i), push_slot(block, n),
			       up_to_vectors(chunk.n_bytes));
		cei_store_commit();
	}
	if (n < LAG)
		return;
	if (leads())
		cei_store_wait_all_but<LAG>();
	tell_until(block, telling, n + 1 - LAG);
}

/* Run by a warp. Loads are PUSH_AHEAD chunks before stores. */
template <class WALK>
static __device__ __forceinline__ void push_all(const struct block &block, const WALK &from)
{
	WALK load = from, store = from;
	struct telling<WALK> telling = { from, 0 };
	struct chunk next = load.next(), chunk;
	uint32_t n_loaded = 0, n_stored = 0;
	bool is_good = true;

	cei_fence_async();      /* what was acquired when the run began, before bulk stores */
	for (;;) {
		if (next.n_bytes && is_good && n_loaded - n_stored <= PUSH_AHEAD) {
			load_chunk(block, next, n_loaded++);
			next = load.next();
			continue;
		}
		if (n_stored == n_loaded)
			break;
		chunk = store.next();
		is_good = is_good && find_room(block, chunk, &telling, n_stored);
		if (is_good)
			store_chunk(block, chunk, n_stored, &telling);
		else            /* the load must end before the block does */
			cei_bar_wait(block.shared->push_full + n_stored % CEI_CHANNEL_PUSH_SLOTS,
				     n_stored / CEI_CHANNEL_PUSH_SLOTS % 2);
		n_stored++;
	}
	if (leads())
		cei_store_wait();
	__syncwarp();
	if (is_good)
		tell_until(block, &telling, n_stored);
}

/* --- COPY: from rings to operands ------------------------------------------------------------ */

constexpr uint32_t COPY_AHEAD = 2;

static __device__ __forceinline__ char *copy_slot(const struct block &block, uint32_t n)
{
	return block.slots +
		(CEI_CHANNEL_PUSH_SLOTS + n % CEI_CHANNEL_COPY_SLOTS) * CEI_CHANNEL_CHUNK;
}

/* Begins to load a chunk that has come. Peers have written by other instructions than bulk loads
 * read by, hence the fence. */
static __device__ __forceinline__ void take_chunk(const struct block &block, uint32_t way,
						  const struct chunk &chunk, uint32_t n)
{
	uint64_t *full = block.shared->copy_full + n % CEI_CHANNEL_COPY_SLOTS;
	const uint32_t n_bytes = up_to_vectors(chunk.n_bytes);

	if (!leads())
		return;
	cei_store_wait_read<(int)(CEI_CHANNEL_COPY_SLOTS - COPY_AHEAD - 1)>();
	cei_fence_async();
	cei_bar_expect(full, n_bytes);
	cei_bulk_load(copy_slot(block, n), slot_here(block, way, chunk.peer, chunk.i), n_bytes,
		      full);
}

/* Compares the head of a message with what this rank receives. */
static __device__ __forceinline__ bool is_right(const struct block &block,
						const struct chunk &chunk, const char *slot)
{
	struct failure failure = block.failure;
	bool is = true;

	if (leads()) {
		failure.note = { *(const struct cei_channel_head *)slot,
				 { chunk.what, chunk.bytes } };
		is = failure.note.found.what == chunk.what &&
			failure.note.found.bytes == chunk.bytes;
		failure.peer = chunk.peer;
		failure.what = chunk.what;
		failure.end = CEI_CHANNEL_DIFFERS;
		if (!is) {
			fail(block.place, failure);
			*(volatile uint32_t *)&block.shared->has_failed = 1;
		}
	}
	return __all_sync(0xffffffffu, is);
}

/* Stores chunk number n, which was taken, to its operand. */
static __device__ __forceinline__ bool place_chunk(const struct block &block, uint32_t way,
						   const struct chunk &chunk, uint32_t n)
{
	const char *slot = copy_slot(block, n);
	bool is_good = true;

	cei_bar_wait(block.shared->copy_full + n % CEI_CHANNEL_COPY_SLOTS,
		     n / CEI_CHANNEL_COPY_SLOTS % 2);
	if (leads())
		publish(&block.shared->n_done[way][chunk.peer], chunk.i + 1);
	if (chunk.at)
		store_slot(chunk.at, slot, chunk.n_bytes);
	else
		is_good = is_right(block, chunk, slot);
	if (leads())
		cei_store_commit();
	return is_good;
}

/* Run by a warp. Chunks are taken as soon as they have come, COPY_AHEAD before they are stored. */
template <class WALK>
static __device__ __forceinline__ void copy_all(const struct block &block, uint32_t way,
						const WALK &from)
{
	WALK load = from, store = from;
	struct chunk next = load.next();
	uint32_t n_taken = 0, n_placed = 0;
	const uint32_t *come;
	bool is_good = true, has_come;

	for (;;) {
		if (next.n_bytes && is_good && n_taken - n_placed <= COPY_AHEAD) {
			come = &block.shared->n_come[way][next.peer];
			has_come = __all_sync(0xffffffffu, seen(come) > next.i);
			if (!has_come && n_taken == n_placed) {
				is_good = await_count_together(block, come, next.i + 1);
				continue;
			}
			if (has_come) {
				__syncwarp();
				take_chunk(block, way, next, n_taken++);
				next = load.next();
				continue;
			}
		}
		if (n_placed == n_taken)
			break;
		is_good = place_chunk(block, way, store.next(), n_placed++) && is_good;
	}
	if (leads())
		cei_store_wait();
}

} /* namespace */

#endif /* CEI_CHANNEL_MOVES_CUH */
