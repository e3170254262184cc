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

/* --- lists of chunks ------------------------------------------------------------------------- */

static __device__ __forceinline__ uint32_t bytes_of(const struct chunk &chunk)
{
	return chunk.facts & 0xffff;
}

static __device__ __forceinline__ uint32_t peer_of(const struct chunk &chunk)
{
	return chunk.facts >> 16 & 15;
}

static __device__ __forceinline__ bool is_head(const struct chunk &chunk)
{
	return chunk.facts >> 31;
}

static __device__ __forceinline__ uint32_t facts_of(uint64_t n_left, uint32_t peer)
{
	return (uint32_t)min(n_left, (uint64_t)CEI_CHANNEL_CHUNK) | peer << 16;
}

/* Returns how many of a pair's bytes go in steps: none where they go by packets. */
static __device__ __forceinline__ uint64_t in_steps(const struct cei_channel_run &run,
						    uint64_t bytes)
{
	return run.blocks_each && bytes <= run.place.layout.span_max ? 0 : bytes;
}

/* The lane's chunks of a run with all peers that the block serves: of each peer the first, then of
 * each the next. A place in this order may have no chunk. */
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

	__device__ __forceinline__ uint64_t bytes_with(uint32_t rank) const
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

	/* Returns how many places there are. */
	__device__ __forceinline__ uint32_t n_places() const
	{
		uint32_t most = 0;

		for (uint32_t i = 0; i < n_peers; i++)
			most = max(most, chunks_of(bytes_with(peer_at(i)), run.n_lanes, lane));
		return most * n_peers;
	}

	__device__ __forceinline__ struct chunk chunk_in(uint32_t place) const
	{
		const uint32_t row = n_peers == 1 ? place : place / n_peers;
		const uint32_t rank = peer_at(place - row * n_peers);
		const uint64_t bytes = bytes_with(rank);
		const uint64_t at = chunk_at(bytes, run.n_lanes, row, lane);

		if (row >= chunks_of(bytes, run.n_lanes, lane))
			return {};
		return { (is_to ? (char *)run.parts[rank].source : run.parts[rank].target) + at,
			 row, facts_of(bytes - at, rank) };
	}

	/* Runs have their heads elsewhere. */
	__device__ __forceinline__ struct cei_channel_head head_of(const struct chunk &) const
	{
		return {};
	}
};

/* The lane's chunks of all messages with one peer, in one direction. */
struct message_walk {
	const struct cei_channel_messages &messages;
	uint32_t                           peer;
	bool                               is_to;
	uint32_t                           lane;

	/* How many chunks of a message the lane has; with the head, which lane 0 has. */
	__device__ __forceinline__ uint32_t chunks_with(const struct cei_channel_message &one) const
	{
		if (one.peer != peer || one.is_receive == is_to)
			return 0;
		return !lane + chunks_of(one.bytes, messages.n_lanes, lane);
	}

	__device__ __forceinline__ uint32_t n_places() const
	{
		uint32_t n = 0, k;

#pragma unroll 1
		for (k = 0; k < messages.n; k++)
			n += chunks_with(messages.messages[k]);
		return n;
	}

	__device__ __forceinline__ struct chunk chunk_in(uint32_t place) const
	{
		uint32_t before = 0, k = 0, n = 0, row;
		uint64_t at;

#pragma unroll 1
		for (; k < messages.n; k++, before += n) {
			n = chunks_with(messages.messages[k]);
			if (place < before + n)
				break;
		}
		if (k == messages.n)
			return {};
		if (!lane && place == before)
			return { (char *)(uintptr_t)k, place,
				 (uint32_t)sizeof(struct cei_channel_head) | peer << 16 |
				 1u << 31 };
		const struct cei_channel_message &one = messages.messages[k];

		row = place - before - !lane;
		at = chunk_at(one.bytes, messages.n_lanes, row, lane);
		return { one.memory + at, place, facts_of(one.bytes - at, peer) };
	}

	__device__ __forceinline__ struct cei_channel_head head_of(const struct chunk &chunk) const
	{
		const struct cei_channel_message &one = messages.messages[(uintptr_t)chunk.at];

		return { one.what, one.bytes };
	}
};

/* The chunks of a walk, in its order. One warp has less than a microsecond for a chunk if few SMs
 * are to use all of the links, so its lanes find one each of the next 32. The last LISTED of them
 * are kept. */
template <class WALK>
struct list {
	const WALK  &walk;
	struct chunk *chunks;           /* in shared memory */
	uint32_t      n_places;
	uint32_t      n_passed;         /* places */
	uint32_t      n;                /* chunks that were found */
};

/* Finds out whether there is a chunk number n; all before it were found. Called by a whole warp. */
template <class WALK>
static __device__ __forceinline__ bool has_chunk(struct list<WALK> *list, uint32_t n)
{
	const uint32_t lane = threadIdx.x % 32;
	struct chunk chunk;
	uint32_t found;

#pragma unroll 1
	while (n == list->n && list->n_passed < list->n_places) {
		chunk = {};
		if (list->n_passed + lane < list->n_places)
			chunk = list->walk.chunk_in(list->n_passed + lane);
		found = __ballot_sync(0xffffffffu, chunk.facts != 0);
		if (chunk.facts)
			list->chunks[(list->n + __popc(found & ((1u << lane) - 1))) % LISTED] =
				chunk;
		__syncwarp();
		list->n += __popc(found);
		list->n_passed += 32;
	}
	return n < list->n;
}

template <class WALK>
static __device__ __forceinline__ const struct chunk &chunk_of(const struct list<WALK> &list,
							       uint32_t n)
{
	return list.chunks[n % LISTED];
}

/* --- PUSH: from operands to the peers' rings ------------------------------------------------- */

constexpr uint32_t PUSH_AHEAD = 3;
constexpr uint32_t LAG = 8;             /* stores that can be under way before peers are told of
					 * earlier ones */

/* A list keeps all chunks between the last that is told of and the last that is loaded, also when
 * the next 32 are found. */
static_assert(PUSH_AHEAD + LAG + 2 + 32 <= LISTED, "no chunk is forgotten");

static __device__ __forceinline__ char *push_slot(const struct block &block, uint32_t n)
{
	return block.slots + n % CEI_CHANNEL_PUSH_SLOTS * CEI_CHANNEL_CHUNK;
}

/* Begins to load chunk number n. Of the stores before it, at least 2 have begun after the one that
 * used the slot. */
template <class WALK>
static __device__ __forceinline__ void load_chunk(const struct block &block,
						  const struct list<WALK> &list, uint32_t n)
{
	const struct chunk chunk = chunk_of(list, n);
	uint64_t *full = block.shared->push_full + n % CEI_CHANNEL_PUSH_SLOTS;
	char *slot = push_slot(block, n);
	struct cei_channel_head head;

	if (leads())
		cei_store_wait_read<(int)(CEI_CHANNEL_PUSH_SLOTS - PUSH_AHEAD - 1)>();
	__syncwarp();
	if (!is_head(chunk))
		return load_slot(slot, chunk.at, bytes_of(chunk), full);
	if (!leads())
		return;
	head = list.walk.head_of(chunk);
	((volatile uint64_t *)slot)[0] = head.what;
	((volatile uint64_t *)slot)[1] = head.bytes;
	cei_fence_async_shared();
	cei_bar_arrive(full);
}

/* Tells TELL of stores up to number n, which have ended. */
template <class WALK>
static __device__ __forceinline__ void tell_until(const struct block &block,
						  const struct list<WALK> &list, uint32_t *n_told,
						  uint32_t n)
{
#pragma unroll 1
	for (; *n_told < n; ++*n_told) {
		const struct chunk chunk = chunk_of(list, *n_told);

		if (leads())
			publish(&block.shared->n_stored[0][peer_of(chunk)], chunk.i + 1);
	}
}

/* Returns whether the peer's ring has room for the chunk. Before PUSH waits for that it tells of
 * all that it has stored: else the peer could wait for it. */
template <class WALK>
static __device__ __forceinline__ bool find_room(const struct block &block,
						 const struct list<WALK> &list, uint32_t *n_told,
						 uint32_t n_stored)
{
	const struct chunk chunk = chunk_of(list, n_stored);
	bool is_good = true;

	__syncwarp();                   /* the leader has noted what it saw */
	if (has_room(block, 0, peer_of(chunk), chunk.i))
		return true;
	if (leads())
		cei_store_wait();
	__syncwarp();
	tell_until(block, list, n_told, n_stored);
	if (leads())
		is_good = await_room(block, 0, peer_of(chunk), chunk.i);
	return __all_sync(0xffffffffu, is_good);
}

static __device__ __forceinline__ void await_loaded(const struct block &block, uint32_t n)
{
	cei_bar_wait(block.shared->push_full + n % CEI_CHANNEL_PUSH_SLOTS,
		     n / CEI_CHANNEL_PUSH_SLOTS % 2);
}

/* Stores chunk number n, which is being loaded. */
template <class WALK>
static __device__ __forceinline__ void store_chunk(const struct block &block,
						   const struct list<WALK> &list, uint32_t n)
{
	const struct chunk chunk = chunk_of(list, n);
	char *there = slot_there(block, 0, peer_of(chunk), chunk.i);

	await_loaded(block, n);
	if (!leads())
		return;
	cei_bulk_store(there, push_slot(block, n), up_to_vectors(bytes_of(chunk)));
	cei_store_commit();
	cei_store_wait_all_but<LAG>();
}

/* Run by a warp. Loads are PUSH_AHEAD chunks before stores. */
template <class WALK>
static __device__ __forceinline__ void push_all(const struct block &block, const WALK &walk)
{
	struct list<WALK> list = { walk, block.shared->pushed, walk.n_places(), 0, 0 };
	uint32_t n_loaded = 0, n_stored = 0, n_told = 0;
	bool is_good = true;

	cei_fence_async();      /* what was acquired when the run began, before bulk stores */
	for (;;) {
		if (is_good && n_loaded - n_stored <= PUSH_AHEAD && has_chunk(&list, n_loaded)) {
			load_chunk(block, list, n_loaded++);
			continue;
		}
		if (n_stored == n_loaded)
			break;
		is_good = is_good && find_room(block, list, &n_told, n_stored);
		if (is_good)
			store_chunk(block, list, n_stored);
		else            /* the load must end before the block does */
			await_loaded(block, n_stored);
		n_stored++;
		if (is_good && n_stored > LAG)
			tell_until(block, list, &n_told, n_stored - LAG);
	}
	if (leads())
		cei_store_wait();
	__syncwarp();
	if (is_good)
		tell_until(block, list, &n_told, n_stored);
}

/* --- COPY: from rings to operands ------------------------------------------------------------ */

/* COPY beside sums, and without them, when it has their slots, too, which lie behind its own. */
struct copy_beside_sums {
	static constexpr uint32_t way = 1, n_slots = CEI_CHANNEL_COPY_SLOTS, ahead = 2;
};

struct copy_alone {
	static constexpr uint32_t way = 0, n_slots = CEI_CHANNEL_COPY_SLOTS + CEI_CHANNEL_SUM_SLOTS;
	static constexpr uint32_t ahead = 5;
};

template <class COPY>
static __device__ __forceinline__ char *copy_slot(const struct block &block, uint32_t n)
{
	return block.slots + (CEI_CHANNEL_PUSH_SLOTS + n % COPY::n_slots) * CEI_CHANNEL_CHUNK;
}

/* Whether a chunk has come. Peers have written by other instructions than bulk loads read by, hence
 * the fence, which costs a part of a chunk's time, so one serves all that have come. */
static __device__ __forceinline__ bool has_come(const struct block &block, uint32_t way,
						const struct chunk &chunk)
{
	uint32_t *known = &block.shared->n_seen[peer_of(chunk)], now;

	__syncwarp();                   /* the leader has noted what it saw */
	if (chunk.i < *(volatile uint32_t *)known)
		return true;
	now = seen(&block.shared->n_come[way][peer_of(chunk)]);
	now = __shfl_sync(0xffffffffu, now, 0);
	if (chunk.i >= now)
		return false;
	if (leads()) {
		*(volatile uint32_t *)known = now;
		cei_fence_async();
	}
	return true;
}

/* Begins to load chunk number n, which has come. */
template <class COPY>
static __device__ __forceinline__ void take_chunk(const struct block &block,
						  const struct chunk &chunk, uint32_t n)
{
	uint64_t *full = block.shared->copy_full + n % COPY::n_slots;
	const uint32_t n_bytes = up_to_vectors(bytes_of(chunk));
	const char *here = slot_here(block, COPY::way, peer_of(chunk), chunk.i);

	if (!leads())
		return;
	cei_store_wait_read<(int)(COPY::n_slots - COPY::ahead - 1)>();
	cei_bar_expect(full, n_bytes);
	cei_bulk_load(copy_slot<COPY>(block, n), here, n_bytes, full);
}

/* The head of a message of `peer` is not what this rank receives. */
static __device__ __noinline__ void fail_message(const struct cei_channel_place &place,
						 struct shared *shared, uint32_t peer,
						 struct cei_channel_note note)
{
	struct failure failure = {};

	failure.note = note;
	failure.peer = peer;
	failure.what = note.expected.what;
	failure.end = CEI_CHANNEL_DIFFERS;
	fail(place, failure);
	*(volatile uint32_t *)&shared->has_failed = 1;
}

/* Compares the head of a message of `peer` with what this rank receives. */
static __device__ __forceinline__ bool is_right(const struct block &block, uint32_t peer,
						const struct cei_channel_head &expected,
						const char *slot)
{
	const struct cei_channel_head found = *(const struct cei_channel_head *)slot;

	if (found.what == expected.what && found.bytes == expected.bytes)
		return true;
	if (leads())
		fail_message(block.place, block.shared, peer, { found, expected });
	return false;
}

/* Stores chunk number n, which was taken, to its operand. */
template <class COPY, class WALK>
static __device__ __forceinline__ bool place_chunk(const struct block &block,
						   const struct list<WALK> &list, uint32_t n)
{
	const struct chunk chunk = chunk_of(list, n);
	const char *slot = copy_slot<COPY>(block, n);
	bool is_good = true;

	cei_bar_wait(block.shared->copy_full + n % COPY::n_slots, n / COPY::n_slots % 2);
	if (leads())
		publish(&block.shared->n_done[COPY::way][peer_of(chunk)], chunk.i + 1);
	if (!is_head(chunk))
		store_slot(chunk.at, slot, bytes_of(chunk));
	else
		is_good = is_right(block, peer_of(chunk), list.walk.head_of(chunk), slot);
	if (leads())
		cei_store_commit();
	__syncwarp();
	return is_good;
}

/* Run by a warp. Chunks are taken as soon as they have come, some before the first is stored. */
template <class COPY, class WALK>
static __device__ __forceinline__ void copy_all(const struct block &block, const WALK &walk)
{
	struct list<WALK> list = { walk, block.shared->copied, walk.n_places(), 0, 0 };
	uint32_t n_taken = 0, n_placed = 0;
	bool is_good = true;

	for (;;) {
		if (is_good && n_taken - n_placed <= COPY::ahead && has_chunk(&list, n_taken)) {
			const struct chunk chunk = chunk_of(list, n_taken);

			if (has_come(block, COPY::way, chunk)) {
				take_chunk<COPY>(block, chunk, n_taken++);
				continue;
			}
			if (n_taken == n_placed) {
				is_good = await_count_together(
					block,
					&block.shared->n_come[COPY::way][peer_of(chunk)],
					chunk.i + 1);
				continue;
			}
		}
		if (n_placed == n_taken)
			break;
		is_good = place_chunk<COPY>(block, list, n_placed++) && is_good;
	}
	if (leads())
		cei_store_wait();
}

} /* namespace */

#endif /* CEI_CHANNEL_MOVES_CUH */
