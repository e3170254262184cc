/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CHANNEL_STEPS_CUH
#define CEI_CHANNEL_STEPS_CUH

/* Runs of any number of bytes, and messages: what a block's warps share, their counters, and the
 * warps that wait for peers and tell them. channel_steps_kernels.cu says how warps work
 * together. */

#include "kernels/bulk.cuh"
#include "kernels/channel_packets.cuh"

namespace cei_channel {

enum {                                  /* warps; those before PUSH are adders */
	PUSH = CEI_CHANNEL_ADDERS, STORE, COPY, AWAIT, AWAIT_SUMS, TELL, TELL_SUMS, CREDIT, WARPS
};

static_assert(WARPS * 32 == CEI_CHANNEL_STEP_THREADS, "the host launches these warps");

constexpr uint32_t WAYS = 2;            /* rings that a kernel uses: of moves or messages, of
					 * sums */
constexpr uint32_t IDLE_NS = 20;        /* between looks at shared memory */

constexpr uint32_t LISTED = 32;         /* chunks that a list keeps */

/* A chunk in a list, with all that is needed to move it. */
struct chunk {
	char    *at;                    /* in the operand; of a message's head: its number */
	char    *slot;                  /* in the ring */
	uint32_t i;                     /* how many of the peer came before it in the kernel */
	uint32_t facts;                 /* bytes | peer << 16 | needs_warp << 30 | is_head << 31;
					 * 0: there is none */
};

struct shared {
	uint64_t push_full[CEI_CHANNEL_PUSH_SLOTS];     /* one arrival, and bytes */
	uint64_t copy_full[CEI_CHANNEL_COPY_SLOTS + CEI_CHANNEL_SUM_SLOTS];
	uint64_t sum_full[CEI_CHANNEL_SUM_SLOTS];       /* an arrival of each warp of a team */
	uint64_t sum_empty[CEI_CHANNEL_SUM_SLOTS];      /* one arrival */

	/* Set when the block begins: chunks of the lane before this kernel, and in it.
	 * [way][peer] */
	uint64_t sent_before[WAYS][CEI_CHANNEL_RANKS_MAX];
	uint64_t taken_before[WAYS][CEI_CHANNEL_RANKS_MAX];
	uint32_t room[WAYS][CEI_CHANNEL_RANKS_MAX];     /* chunks of this kernel for which the peer
							 * has room, as far as who stores them
							 * knows */
	uint32_t n_out[WAYS][CEI_CHANNEL_RANKS_MAX];
	uint32_t n_in[WAYS][CEI_CHANNEL_RANKS_MAX];

	/* Counted up from 0. */
	uint32_t n_stored[CEI_CHANNEL_RANKS_MAX];       /* PUSH has written them at the peer */
	uint32_t n_come[WAYS][CEI_CHANNEL_RANKS_MAX];   /* have come from the peer */
	uint32_t n_done[WAYS][CEI_CHANNEL_RANKS_MAX];   /* COPY needs them no more */
	uint32_t n_added;               /* rows of sums; adders need their addends no more */
	uint32_t n_sent;                /* rows of sums; STORE has written them at all peers */
	uint32_t has_failed;

	/* Of sums, set when the block begins. */
	struct cei_channel_part own;    /* of the run's parts */
	uint32_t n_rows;                /* chunks of it that the lane has */
	uint32_t addends_at[CEI_CHANNEL_RANKS_MAX];     /* [peer]: where the lane's ring begins in
							 * the channel's memory at this rank */
	char    *sums_there[CEI_CHANNEL_RANKS_MAX];     /* [peer]: where it begins there */

	uint64_t number;                /* of the run; 0: messages */
	uint64_t what;                  /* of the run */
	struct chunk pushed[LISTED];    /* lists of PUSH and of COPY */
	struct chunk copied[LISTED];
};

static_assert(sizeof(struct shared) <= CEI_CHANNEL_BARS_BYTES, "slots begin behind it");
static_assert(CEI_CHANNEL_SHARED <= 232448, "an SM of sm_90 has so much for a block");

struct block {                          /* what all warps of a block know */
	const struct cei_channel_place &place;
	struct shared                  *shared;
	char                           *slots;  /* those of PUSH, then of COPY, then of sums */
	uint32_t                        lane;   /* of the pairs that the block serves */
	uint32_t                        ring;   /* enum cei_channel_ring of way 0 */
};

static __device__ __forceinline__ uint32_t ring_of(const struct block &block, uint32_t way)
{
	return way ? (uint32_t)CEI_CHANNEL_SUMS : block.ring;
}

static __device__ __forceinline__ bool leads()
{
	return threadIdx.x % 32 == 0;
}

/* --- counters in shared memory --------------------------------------------------------------- */

static __device__ __forceinline__ uint32_t seen(const uint32_t *counter)
{
	uint32_t value;

	asm volatile("ld.acquire.cta.shared::cta.u32 %0, [%1];"
		     : "=r"(value) : "r"(cei_shared(counter)) : "memory");
	return value;
}

static __device__ __forceinline__ void publish(uint32_t *counter, uint32_t value)
{
	asm volatile("st.release.cta.shared::cta.u32 [%0], %1;"
		     :: "r"(cei_shared(counter)), "r"(value) : "memory");
}

static __device__ __forceinline__ bool has_failed(const struct block &block)
{
	return *(const volatile uint32_t *)&block.shared->has_failed;
}

/* Awaits a counter of the block. Returns whether it was reached; false: a wait of the block has
 * failed. */
static __device__ __forceinline__ bool await_count(const struct block &block,
						   const uint32_t *counter, uint32_t count)
{
#pragma unroll 1
	while (seen(counter) < count) {
		if (has_failed(block))
			return false;
		__nanosleep(IDLE_NS);
	}
	return true;
}

/* --- chunks and rings ------------------------------------------------------------------------ */

/* Returns how many chunks of a pair's bytes the block's lane has. */
static __device__ __forceinline__ uint32_t chunks_of(uint64_t bytes, uint32_t n_lanes,
						     uint32_t lane)
{
	const uint32_t lanes = cei_channel_lanes(bytes, n_lanes);
	/* No operand has 2^32 chunks, and a division of 64 bits takes long. */
	const uint32_t n = (uint32_t)((bytes + CEI_CHANNEL_CHUNK - 1) / CEI_CHANNEL_CHUNK);

	return lane < lanes && lane < n ? (n - lane + lanes - 1) / lanes : 0;
}

/* Returns where the lane's chunk number `row` begins in the pair's bytes. */
static __device__ __forceinline__ uint64_t chunk_at(uint64_t bytes, uint32_t n_lanes, uint32_t row,
						    uint32_t lane)
{
	return ((uint64_t)row * cei_channel_lanes(bytes, n_lanes) + lane) * CEI_CHANNEL_CHUNK;
}

/* Returns the slot of chunk i of all times, in the ring at `reader` of what `writer` sends. */
static __device__ __forceinline__ char *slot_of(const struct block &block, uint32_t way,
						uint32_t reader, uint32_t writer, uint64_t i)
{
	const struct cei_channel_layout &layout = block.place.layout;
	const uint32_t ring = ring_of(block, way), n_slots = layout.n_slots[ring];
	const uint32_t lane = cei_channel_index(writer, reader) * layout.n_lanes[ring] + block.lane;

	return block.place.memory[reader] + layout.ring_at[ring] +
		((uint64_t)lane * n_slots + (i & (n_slots - 1))) * CEI_CHANNEL_CHUNK;
}

static __device__ __forceinline__ char *slot_there(const struct block &block, uint32_t way,
						   uint32_t peer, uint32_t i)
{
	return slot_of(block, way, peer, block.place.own,
		       block.shared->sent_before[way][peer] + i);
}

static __device__ __forceinline__ char *slot_here(const struct block &block, uint32_t way,
						  uint32_t peer, uint32_t i)
{
	return slot_of(block, way, block.place.own, peer,
		       block.shared->taken_before[way][peer] + i);
}

/* --- waits for peers ------------------------------------------------------------------------- */

/* One look at failures. Returns whether the wait goes on; if not, the block is told. What the looks
 * need lies in memory while they last, which a wait that is over at once must not pay for. */
static __device__ __noinline__ bool look_around(const struct cei_channel_place &place,
						struct shared *shared, enum cei_channel_wait wait,
						uint32_t peer, struct looks *looks)
{
	struct failure failure = {};

	failure.run = shared->number;
	failure.what = shared->what;
	failure.wait = wait;
	failure.peer = peer;
	if (!*(const volatile uint32_t *)&shared->has_failed && goes_on(place, failure, looks))
		return true;
	*(volatile uint32_t *)&shared->has_failed = 1;
	return false;
}

/* Awaits that a counter of this rank is at least `least`, with looks at failures. Returns its
 * value, acquired, or 0: the run has failed, which the block is told. Called by one thread.
 * wait_and_peer: enum cei_channel_wait << 8 | the peer that raises the counter. */
static __device__ __noinline__ uint64_t await_counter(const struct cei_channel_place &place,
						      struct shared *shared,
						      const uint64_t *counter, uint64_t least,
						      uint32_t wait_and_peer)
{
	struct looks looks = {};
	uint64_t value;
	uint32_t i;

	for (i = 1; (value = ceov_device_load(counter)) < least; i++)
		if (i % POLLS == 0 &&
		    !look_around(place, shared, (enum cei_channel_wait)(wait_and_peer >> 8),
				 wait_and_peer & 255, &looks))
			return 0;
	return value;
}

static __device__ __forceinline__ bool has_room(const struct block &block, uint32_t way,
						uint32_t peer, uint32_t i)
{
	return i < block.shared->room[way][peer];
}

/* Returns for how many chunks of this kernel the peer has room when it has given back `credit` of
 * all times. */
static __device__ __forceinline__ uint32_t room_with(uint64_t credit, uint64_t sent_before,
						     uint32_t n_slots)
{
	const uint64_t until = credit + n_slots;

	return until > sent_before ? (uint32_t)min(until - sent_before, (uint64_t)UINT32_MAX) : 0;
}

/* Awaits that the peer's ring has room for chunk i. Called by the one thread that stores chunks of
 * this way. */
static __device__ __forceinline__ bool await_room(const struct block &block, uint32_t way,
						  uint32_t peer, uint32_t i)
{
	const struct cei_channel_words &words = memory_of(block.place, block.place.own)->words;
	const uint32_t ring = ring_of(block, way), n_slots = block.place.layout.n_slots[ring];
	const uint64_t *credit = &words.credit[ring][peer][block.lane];
	const uint64_t before = block.shared->sent_before[way][peer];
	const uint64_t value = await_counter(block.place, block.shared, credit,
					     before + i + 1 - n_slots,
					     CEI_CHANNEL_FOR_ROOM << 8 | peer);

	if (!value)
		return false;
	block.shared->room[way][peer] = room_with(value, before, n_slots);
	cei_fence_async();              /* the peer has read: before bulk stores */
	return true;
}

/* Run by a warp: awaits the chunks of all peers, one lane each, and publishes how many have come.
 * copies: bulk loads read them, and peers have written by other instructions than these read by,
 * hence the fence. It stands here because it takes as long as a part of a chunk does, and one
 * serves all that have come. */
static __device__ __forceinline__ void await_all(const struct block &block, uint32_t way,
						 bool copies)
{
	const struct cei_channel_words &words = memory_of(block.place, block.place.own)->words;
	const uint32_t peer = threadIdx.x % 32;
	const uint64_t *arrived;
	uint64_t before, value;
	uint32_t come = 0, n;

	if (!is_peer(block.place, peer))
		return;
	arrived = &words.arrived[ring_of(block, way)][peer][block.lane];
	n = block.shared->n_in[way][peer];
	before = block.shared->taken_before[way][peer];
#pragma unroll 1
	while (come < n) {
		value = await_counter(block.place, block.shared, arrived, before + come + 1,
				      CEI_CHANNEL_FOR_BYTES << 8 | peer);
		if (!value)
			return;
		come = value - before < n ? (uint32_t)(value - before) : n;
		if (copies)
			cei_fence_async();
		publish(&block.shared->n_come[way][peer], come);
	}
}

/* Run by a lane of a warp: passes a counter of the block on to a counter of the peer, which is
 * `before` ahead, until that many have been passed on. */
static __device__ __forceinline__ void pass_on(const struct block &block, const uint32_t *counter,
					       uint32_t n, uint64_t *to, uint64_t before)
{
	uint32_t told = 0, now;

#pragma unroll 1
	while (told < n) {
		now = seen(counter);
		if (now <= told) {      /* STORE may tell of fewer rows than it told of early */
			if (has_failed(block))
				return;
			__nanosleep(IDLE_NS);
			continue;
		}
		/* Who counts has awaited the ends of bulk copies, and so has seen them; a peer
		 * sees them only behind a release, without which two H200s took wrong bytes. It
		 * waits for all that the SM has under way, 6 us while links are busy. */
		release_stores();
		store_counter(to, before + now);
		told = now;
	}
}

/* Run by a warp: tells peers which chunks have been stored there, one lane each. Rows of sums go to
 * all peers. */
static __device__ __forceinline__ void tell_all(const struct block &block, uint32_t way)
{
	const uint32_t peer = threadIdx.x % 32;
	struct shared *shared = block.shared;
	struct cei_channel_words *words;

	if (!is_peer(block.place, peer))
		return;
	words = &memory_of(block.place, peer)->words;
	pass_on(block, way ? &shared->n_sent : &shared->n_stored[peer], shared->n_out[way][peer],
		&words->arrived[ring_of(block, way)][block.place.own][block.lane],
		shared->sent_before[way][peer]);
}

/* Run by a warp: tells peers which of their chunks this rank needs no more, one lane for each of
 * them and each way. adds: the first way is that of addends, whose rows come from all peers. */
static __device__ __forceinline__ void give_credit(const struct block &block, bool adds)
{
	const uint32_t peer = threadIdx.x % 32 % CEI_CHANNEL_RANKS_MAX;
	const uint32_t way = threadIdx.x % 32 / CEI_CHANNEL_RANKS_MAX;
	struct shared *shared = block.shared;
	struct cei_channel_words *words;

	if (way >= WAYS || !is_peer(block.place, peer))
		return;
	words = &memory_of(block.place, peer)->words;
	pass_on(block, !way && adds ? &shared->n_added : &shared->n_done[way][peer],
		shared->n_in[way][peer],
		&words->credit[ring_of(block, way)][block.place.own][block.lane],
		shared->taken_before[way][peer]);
}

} /* namespace */

#endif /* CEI_CHANNEL_STEPS_CUH */
