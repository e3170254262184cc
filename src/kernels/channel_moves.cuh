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

/* Copies bytes [from, n), fewer than a vector, by one thread. */
static __device__ __noinline__ void copy_rest(char *to, const char *source, uint32_t from,
					      uint32_t n)
{
#pragma unroll 1
	for (; from < n; from++)
		to[from] = *(const volatile char *)(source + from);
}

/* Begins to load n bytes from an aligned operand into a free slot, by one thread; `full` tells when
 * they have come. */
static __device__ __forceinline__ void load_slot(char *slot, const char *source, uint32_t n,
						 uint64_t *full)
{
	const uint32_t n_bulk = whole_vectors(n);

	if (n_bulk < n) {
		copy_rest(slot, source, n_bulk, n);
		cei_fence_async_shared();       /* a bulk store will read it */
	}
	cei_bar_expect(full, n_bulk);
	if (n_bulk)
		cei_bulk_load(slot, source, n_bulk, full);
}

/* The same from any operand, by a warp. */
static __device__ __forceinline__ void load_slot_by_warp(char *slot, const char *source, uint32_t n,
							 uint64_t *full)
{
	copy_by_warp(slot, source, 0, n);
	cei_fence_async_shared();               /* a bulk store will read it */
	__syncwarp();
	if (leads())
		cei_bar_arrive(full);
}

/* Begins to store n bytes of a slot to an aligned operand, by one thread; the store belongs to the
 * group that is committed next. */
static __device__ __forceinline__ void store_slot(char *target, const char *slot, uint32_t n)
{
	const uint32_t n_bulk = whole_vectors(n);

	if (n_bulk)
		cei_bulk_store(target, slot, n_bulk);
	if (n_bulk == n)
		return;
	copy_rest(target, slot, n_bulk, n);
	cei_fence_async_shared();               /* a bulk load may overwrite it */
}

/* The same to any operand, by a warp. */
static __device__ __forceinline__ void store_slot_by_warp(char *target, const char *slot,
							  uint32_t n)
{
	copy_by_warp(target, slot, 0, n);
	cei_fence_async_shared();               /* a bulk load may overwrite it */
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

/* Bulk copies move aligned operands alone. */
static __device__ __forceinline__ bool needs_warp(const struct chunk &chunk)
{
	return chunk.facts >> 30 & 1;
}

static __device__ __forceinline__ bool is_head(const struct chunk &chunk)
{
	return chunk.facts >> 31;
}

/* Returns chunk i of a peer, of whose operand n_left bytes begin at `at`. */
static __device__ __forceinline__ struct chunk chunk_with(char *at, uint64_t n_left, uint32_t peer,
							  uint32_t i)
{
	return { at, nullptr, i, (uint32_t)min(n_left, (uint64_t)CEI_CHANNEL_CHUNK) | peer << 16 |
		 (uint32_t)!is_aligned(at) << 30 };
}

/* Returns how many of a pair's bytes go in steps: none where they go by packets or lines. */
static __device__ __forceinline__ uint64_t in_steps(const struct cei_channel_run &run,
						    uint64_t bytes)
{
	return run.blocks_each && bytes <= run.place.layout.line_span ? 0 : bytes;
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
		return chunk_with((is_to ? (char *)run.parts[rank].source :
				   run.parts[rank].target) + at, bytes - at, rank, row);
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
			return { (char *)(uintptr_t)k, nullptr, place,
				 (uint32_t)sizeof(struct cei_channel_head) | peer << 16 |
				 1u << 31 };
		const struct cei_channel_message &one = messages.messages[k];

		row = place - before - !lane;
		at = chunk_at(one.bytes, messages.n_lanes, row, lane);
		return chunk_with(one.memory + at, one.bytes - at, peer, place);
	}

	__device__ __forceinline__ struct cei_channel_head head_of(const struct chunk &chunk) const
	{
		const struct cei_channel_message &one = messages.messages[(uintptr_t)chunk.at];

		return { one.what, one.bytes };
	}
};

/* The chunks of a walk, in its order. A warp has less than a microsecond for a chunk if few SMs are
 * to use all of the links, and each instruction of a thread that others wait for takes several
 * cycles. So its lanes find and describe some chunks together, which its first lane then moves. The
 * last LISTED chunks are kept. */
template <class WALK>
struct list {
	const WALK  &walk;
	struct chunk *chunks;           /* in shared memory */
	uint32_t      way;              /* the ring is of this way */
	uint32_t      n_places;
	uint32_t      n_passed;         /* places */
	uint32_t      n;                /* chunks that were found */
};

constexpr uint32_t LOOKED_AT = 16;      /* places, at once */

/* Whether there may be chunks behind those that were found. */
template <class WALK>
static __device__ __forceinline__ bool has_more(const struct list<WALK> &list)
{
	return list.n_passed < list.n_places;
}

/* Looks at the next places. Called by a whole warp. */
template <class WALK>
static __device__ __forceinline__ void find_chunks(const struct block &block,
						   struct list<WALK> *list)
{
	const uint32_t lane = threadIdx.x % 32, place = list->n_passed + lane;
	struct chunk chunk = {};
	uint32_t found;

	if (lane < LOOKED_AT && place < list->n_places)
		chunk = list->walk.chunk_in(place);
	found = __ballot_sync(0xffffffffu, chunk.facts != 0);
	if (chunk.facts) {
		chunk.slot = list->walk.is_to ?
			slot_there(block, list->way, peer_of(chunk), chunk.i) :
			slot_here(block, list->way, peer_of(chunk), chunk.i);
		list->chunks[(list->n + __popc(found & ((1u << lane) - 1))) % LISTED] = chunk;
	}
	__syncwarp();
	list->n += __popc(found);
	list->n_passed += LOOKED_AT;
}

template <class WALK>
static __device__ __forceinline__ const struct chunk &chunk_of(const struct list<WALK> &list,
							       uint32_t n)
{
	return list.chunks[n % LISTED];
}

/* What the first lane of PUSH or COPY needs to go on. */
enum need { NEEDS_CHUNKS, NEEDS_WARP, NEEDS_NOTHING };

/* --- PUSH: from operands to the peers' rings ------------------------------------------------- */

constexpr uint32_t PUSH_AHEAD = 3;
constexpr uint32_t LAG = 4;             /* stores that can be under way before peers are told of
					 * earlier ones */
constexpr uint32_t TOLD_TOGETHER = 2;   /* chunks */

/* A list keeps all chunks between the last that is told of and the last that is loaded, also when
 * the next ones are found. */
static_assert(PUSH_AHEAD + 2 + LAG + TOLD_TOGETHER + LOOKED_AT <= LISTED, "no chunk is forgotten");

struct push {                           /* of PUSH's first lane */
	uint32_t n_loaded;              /* chunks whose loads have begun */
	uint32_t n_stored;
	uint32_t n_told;
	bool     is_good;
};

static __device__ __forceinline__ char *push_slot(const struct block &block, uint32_t n)
{
	return block.slots + n % CEI_CHANNEL_PUSH_SLOTS * CEI_CHANNEL_CHUNK;
}

static __device__ __forceinline__ uint64_t *push_full(const struct block &block, uint32_t n)
{
	return block.shared->push_full + n % CEI_CHANNEL_PUSH_SLOTS;
}

/* Puts the head of a message into a slot. */
static __device__ __forceinline__ void load_head(char *slot, const struct cei_channel_head &head,
						 uint64_t *full)
{
	((volatile uint64_t *)slot)[0] = head.what;
	((volatile uint64_t *)slot)[1] = head.bytes;
	cei_fence_async_shared();               /* a bulk store will read it */
	cei_bar_arrive(full);
}

/* Begins to load chunk number n. Of the stores before it, at least 2 have begun after the one that
 * used the slot. Returns false if the warp has to. */
template <class WALK>
static __device__ __forceinline__ bool load_chunk(const struct block &block,
						  const struct list<WALK> &list, uint32_t n)
{
	const struct chunk chunk = chunk_of(list, n);

	cei_store_wait_read<(int)(CEI_CHANNEL_PUSH_SLOTS - PUSH_AHEAD - 1)>();
	if (needs_warp(chunk))
		return false;
	if (is_head(chunk))
		load_head(push_slot(block, n), list.walk.head_of(chunk), push_full(block, n));
	else
		load_slot(push_slot(block, n), chunk.at, bytes_of(chunk), push_full(block, n));
	return true;
}

/* Tells TELL of stores up to number n, which have ended. */
template <class WALK>
static __device__ __forceinline__ void tell_until(const struct block &block,
						  const struct list<WALK> &list, struct push *push,
						  uint32_t n)
{
#pragma unroll 1
	for (; push->n_told < n; push->n_told++) {
		const struct chunk &chunk = chunk_of(list, push->n_told);

		publish(&block.shared->n_stored[peer_of(chunk)], chunk.i + 1);
	}
}

/* Returns whether the peer's ring has room for the next chunk. Before PUSH waits for that it tells
 * of all that it has stored: else the peer could wait for it. */
template <class WALK>
static __device__ __forceinline__ bool find_room(const struct block &block,
						 const struct list<WALK> &list, struct push *push)
{
	const struct chunk &chunk = chunk_of(list, push->n_stored);

	if (has_room(block, 0, peer_of(chunk), chunk.i))
		return true;
	cei_store_wait();
	tell_until(block, list, push, push->n_stored);
	return await_room(block, 0, peer_of(chunk), chunk.i);
}

static __device__ __forceinline__ void await_loaded(const struct block &block, uint32_t n)
{
	cei_bar_wait(push_full(block, n), n / CEI_CHANNEL_PUSH_SLOTS % 2);
}

/* Stores the next chunk, which is being loaded. Behind a failure its load has to end all the same
 * before the block does. */
template <class WALK>
static __device__ __forceinline__ void store_chunk(const struct block &block,
						   const struct list<WALK> &list, struct push *push)
{
	const uint32_t n = push->n_stored;
	const struct chunk &chunk = chunk_of(list, n);

	push->is_good = push->is_good && find_room(block, list, push);
	await_loaded(block, n);
	push->n_stored++;
	if (!push->is_good)
		return;
	cei_bulk_store(chunk.slot, push_slot(block, n), up_to_vectors(bytes_of(chunk)));
	cei_store_commit();
	if (push->n_stored % TOLD_TOGETHER || push->n_stored <= LAG)
		return;
	cei_store_wait_all_but<LAG>();
	tell_until(block, list, push, push->n_stored - LAG);
}

/* Run by one thread: moves the chunks of the list. Loads are PUSH_AHEAD chunks before stores. */
template <class WALK>
static __device__ __forceinline__ enum need push_some(const struct block &block,
						      const struct list<WALK> &list,
						      struct push *push)
{
#pragma unroll 1
	for (;;) {
		if (push->is_good && push->n_loaded - push->n_stored <= PUSH_AHEAD) {
			if (push->n_loaded == list.n && has_more(list))
				return NEEDS_CHUNKS;
			if (push->n_loaded < list.n) {
				if (!load_chunk(block, list, push->n_loaded))
					return NEEDS_WARP;
				push->n_loaded++;
				continue;
			}
		}
		if (push->n_stored == push->n_loaded)
			return NEEDS_NOTHING;
		store_chunk(block, list, push);
	}
}

/* Loads the next chunk by the warp. */
template <class WALK>
static __device__ __forceinline__ void load_by_warp(const struct block &block,
						    const struct list<WALK> &list,
						    struct push *push)
{
	const uint32_t n = __shfl_sync(0xffffffffu, push->n_loaded, 0);
	const struct chunk &chunk = chunk_of(list, n);

	__syncwarp();                           /* behind the leader's wait for the slot */
	load_slot_by_warp(push_slot(block, n), chunk.at, bytes_of(chunk), push_full(block, n));
	push->n_loaded++;                       /* the leader's is the one that counts */
}

/* Run by a warp. */
template <class WALK>
static __device__ __forceinline__ void push_all(const struct block &block, const WALK &walk)
{
	struct list<WALK> list = { walk, block.shared->pushed, 0, walk.n_places(), 0, 0 };
	struct push push = { 0, 0, 0, true };
	uint32_t need = NEEDS_CHUNKS;

	cei_fence_async();      /* what was acquired when the run began, before bulk stores */
#pragma unroll 1
	while (need != NEEDS_NOTHING) {
		if (need == NEEDS_CHUNKS)
			find_chunks(block, &list);
		else
			load_by_warp(block, list, &push);
		if (leads())
			need = push_some(block, list, &push);
		need = __shfl_sync(0xffffffffu, need, 0);
	}
	if (!leads())
		return;
	cei_store_wait();
	if (push.is_good)
		tell_until(block, list, &push, push.n_stored);
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

static_assert(copy_alone::ahead + 2 + LOOKED_AT <= LISTED, "no chunk is forgotten");

struct copy {                           /* of COPY's first lane */
	uint32_t n_taken;               /* chunks whose loads have begun */
	uint32_t n_placed;
	bool     is_good;
};

template <class COPY>
static __device__ __forceinline__ char *copy_slot(const struct block &block, uint32_t n)
{
	return block.slots + (CEI_CHANNEL_PUSH_SLOTS + n % COPY::n_slots) * CEI_CHANNEL_CHUNK;
}

template <class COPY>
static __device__ __forceinline__ const uint32_t *come_of(const struct block &block,
							  const struct chunk &chunk)
{
	return &block.shared->n_come[COPY::way][peer_of(chunk)];
}

/* Begins to load chunk number n, which has come. */
template <class COPY>
static __device__ __forceinline__ void take_chunk(const struct block &block,
						  const struct chunk &chunk, uint32_t n)
{
	uint64_t *full = block.shared->copy_full + n % COPY::n_slots;
	const uint32_t n_bytes = up_to_vectors(bytes_of(chunk));

	cei_store_wait_read<(int)(COPY::n_slots - COPY::ahead - 1)>();
	cei_bar_expect(full, n_bytes);
	cei_bulk_load(copy_slot<COPY>(block, n), chunk.slot, n_bytes, full);
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
	fail_message(block.place, block.shared, peer, { found, expected });
	return false;
}

/* Awaits the load of chunk number n, whose slot in the ring is then needed no more. */
template <class COPY>
static __device__ __forceinline__ void await_taken(const struct block &block,
						   const struct chunk &chunk, uint32_t n)
{
	cei_bar_wait(block.shared->copy_full + n % COPY::n_slots, n / COPY::n_slots % 2);
	if (leads())
		publish(&block.shared->n_done[COPY::way][peer_of(chunk)], chunk.i + 1);
}

/* Stores the next chunk, which was taken, to its operand. Returns false if the warp has to. */
template <class COPY, class WALK>
static __device__ __forceinline__ bool place_chunk(const struct block &block,
						   const struct list<WALK> &list, struct copy *copy)
{
	const struct chunk chunk = chunk_of(list, copy->n_placed);
	const char *slot = copy_slot<COPY>(block, copy->n_placed);

	if (needs_warp(chunk))
		return false;
	await_taken<COPY>(block, chunk, copy->n_placed);
	if (is_head(chunk))
		copy->is_good = is_right(block, peer_of(chunk), list.walk.head_of(chunk), slot) &&
			copy->is_good;
	else
		store_slot(chunk.at, slot, bytes_of(chunk));
	cei_store_commit();
	copy->n_placed++;
	return true;
}

/* Run by one thread: moves the chunks of the list. They are taken as soon as they have come, some
 * before the first is stored. */
template <class COPY, class WALK>
static __device__ __forceinline__ enum need copy_some(const struct block &block,
						      const struct list<WALK> &list,
						      struct copy *copy)
{
#pragma unroll 1
	for (;;) {
		if (copy->is_good && copy->n_taken - copy->n_placed <= COPY::ahead) {
			if (copy->n_taken == list.n && has_more(list))
				return NEEDS_CHUNKS;
			if (copy->n_taken < list.n) {
				const struct chunk chunk = chunk_of(list, copy->n_taken);

				if (chunk.i < seen(come_of<COPY>(block, chunk))) {
					take_chunk<COPY>(block, chunk, copy->n_taken++);
					continue;
				}
				if (copy->n_taken == copy->n_placed) {
					copy->is_good = await_count(block,
								    come_of<COPY>(block, chunk),
								    chunk.i + 1);
					continue;
				}
			}
		}
		if (copy->n_placed == copy->n_taken)
			return NEEDS_NOTHING;
		if (!place_chunk<COPY>(block, list, copy))
			return NEEDS_WARP;
	}
}

/* Stores the next chunk by the warp. */
template <class COPY, class WALK>
static __device__ __forceinline__ void place_by_warp(const struct block &block,
						     const struct list<WALK> &list,
						     struct copy *copy)
{
	const uint32_t n = __shfl_sync(0xffffffffu, copy->n_placed, 0);
	const struct chunk &chunk = chunk_of(list, n);

	await_taken<COPY>(block, chunk, n);
	store_slot_by_warp(chunk.at, copy_slot<COPY>(block, n), bytes_of(chunk));
	if (leads())
		cei_store_commit();
	copy->n_placed++;                       /* the leader's is the one that counts */
}

/* Run by a warp. */
template <class COPY, class WALK>
static __device__ __forceinline__ void copy_all(const struct block &block, const WALK &walk)
{
	struct list<WALK> list = { walk, block.shared->copied, COPY::way, walk.n_places(), 0, 0 };
	struct copy copy = { 0, 0, true };
	uint32_t need = NEEDS_CHUNKS;

#pragma unroll 1
	while (need != NEEDS_NOTHING) {
		if (need == NEEDS_CHUNKS)
			find_chunks(block, &list);
		else
			place_by_warp<COPY>(block, list, &copy);
		if (leads())
			need = copy_some<COPY>(block, list, &copy);
		need = __shfl_sync(0xffffffffu, need, 0);
	}
	if (leads())
		cei_store_wait();
}

} /* namespace */

#endif /* CEI_CHANNEL_MOVES_CUH */
