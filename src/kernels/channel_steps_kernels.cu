/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Runs of any number of bytes, and messages. channel.h says what they do, and how rings are
 * counted.
 *
 * A block keeps links busy while it adds, because each of its warps has one task:
 *
 *   adders      wait for the peers' addends, and add up chunks into slots in shared memory; in
 *               moves they copy what stays at this rank
 *   PUSH        copies what peers get from operands to their rings
 *   STORE       copies sums from the slots to the target and, if they are gathered, to the peers'
 *               rings of sums
 *   COPY        copies what has come, or sums that have, from rings to the target
 *   AWAIT, AWAIT_SUMS   await the peers' counters of chunks that have come, one lane each
 *   TELL, TELL_SUMS     raise these counters at the peers when PUSH, or STORE, has stored chunks.
 *               In block 0 TELL_SUMS sends heads and checks those of peers before
 *   CREDIT      tells peers which of their chunks adders or COPY need no more
 *
 * Warps tell each other by counters in shared memory, which only rise. PUSH, STORE, COPY and the
 * adders are warps of their own because each may wait for a peer while another one has to go on:
 * with PUSH and STORE in one, ranks could wait for each other in a circle.
 *
 * WHEN A WAIT FAILS, its warp sets has_failed, at which all other warps come to their end. Adders
 * and STORE then go through their rounds without moving anything.
 */

#include "kernels/channel_sums.cuh"

namespace cei_channel {

/* --- blocks ---------------------------------------------------------------------------------- */

static __device__ __forceinline__ void init_bars(struct shared *shared)
{
	uint32_t i;

	for (i = 0; i < CEI_CHANNEL_PUSH_SLOTS; i++)
		cei_bar_init(shared->push_full + i, 1);
	for (i = 0; i < CEI_CHANNEL_COPY_SLOTS + CEI_CHANNEL_SUM_SLOTS; i++)
		cei_bar_init(shared->copy_full + i, 1);
	for (i = 0; i < CEI_CHANNEL_SUM_SLOTS; i++) {
		cei_bar_init(shared->sum_full + i, TEAM_THREADS / 32);
		cei_bar_init(shared->sum_empty + i, 1);
	}
	cei_bar_init_fence();
}

static __device__ __forceinline__ void init_names(struct shared *shared, uint64_t number,
						  uint64_t what)
{
	shared->number = number;
	shared->what = what;
	shared->has_failed = 0;
	shared->n_added = shared->n_sent = 0;
}

/* Run by one thread for each way and peer: sets what the block counts. */
static __device__ __forceinline__ void init_counts(const struct block &block, uint32_t way,
						   uint32_t peer, uint32_t n_out, uint32_t n_in)
{
	const struct cei_channel_memory *memory = memory_of(block.place, block.place.own);
	const uint32_t ring = ring_of(block, way);
	const uint64_t sent = memory->state.sent[ring][peer][block.lane];
	struct shared *shared = block.shared;

	shared->sent_before[way][peer] = sent;
	shared->taken_before[way][peer] = memory->state.taken[ring][peer][block.lane];
	shared->room[way][peer] = room_with(0, sent, block.place.layout.n_slots[ring]);
	shared->n_out[way][peer] = n_out;
	shared->n_in[way][peer] = n_in;
	shared->n_stored[peer] = 0;
	shared->n_come[way][peer] = 0;
	shared->n_done[way][peer] = 0;
}

/* The same thread, at the end of a block that has not failed. */
static __device__ __forceinline__ void keep_counts(const struct block &block, uint32_t way,
						   uint32_t peer)
{
	struct cei_channel_state *state = state_of(block.place);
	const uint32_t ring = ring_of(block, way), lane = block.lane;
	const struct shared *shared = block.shared;

	if (shared->n_out[way][peer])
		state->sent[ring][peer][lane] = shared->sent_before[way][peer] +
			shared->n_out[way][peer];
	if (shared->n_in[way][peer])
		state->taken[ring][peer][lane] = shared->taken_before[way][peer] +
			shared->n_in[way][peer];
}

constexpr uint32_t COUNTERS = WAYS * CEI_CHANNEL_RANKS_MAX;

static __device__ __forceinline__ struct block block_of(const struct cei_channel_place &place,
							uint32_t lane, enum cei_channel_ring first)
{
	extern __shared__ __align__(128) char memory[];
	struct block block = { place, (struct shared *)memory, memory + CEI_CHANNEL_BARS_BYTES,
			       lane, (uint32_t)first };

	return block;
}

/* --- runs ------------------------------------------------------------------------------------ */

/* The peers that a block serves. */
struct service {
	uint32_t first, n_peers;        /* they are first, ... behind the own rank */
	uint32_t lane;
};

static __device__ __forceinline__ struct service service_of(const struct cei_channel_run &run)
{
	if (!run.blocks_each)
		return { 1, run.place.n_ranks - 1, blockIdx.x };
	return { 1 + blockIdx.x / run.blocks_each, 1, blockIdx.x % run.blocks_each };
}

static __device__ __forceinline__ struct run_walk walk_of(const struct cei_channel_run &run,
							  bool is_to)
{
	const struct service service = service_of(run);

	return { run, is_to, service.lane, service.first, service.n_peers,
		 service.lane % service.n_peers };
}

static __device__ __forceinline__ bool is_served(const struct cei_channel_run &run, uint32_t peer)
{
	const struct service service = service_of(run);
	const uint32_t n = run.place.n_ranks;
	const uint32_t behind = peer > run.place.own ? peer - run.place.own
		: peer + n - run.place.own;

	return is_peer(run.place, peer) && behind >= service.first &&
		behind < service.first + service.n_peers;
}

template <bool IS_SUM>
static __device__ __forceinline__ void count_run(const struct cei_channel_run &run,
						 const struct block &block, uint32_t thread)
{
	const uint32_t way = thread / CEI_CHANNEL_RANKS_MAX, peer = thread % CEI_CHANNEL_RANKS_MAX;
	const uint64_t own = run.parts[run.place.own].from;
	uint64_t out, in;
	bool is_used = is_served(run, peer);

	if (way) {
		is_used = is_used && IS_SUM && run.gathers;
		out = own;
		in = run.parts[peer].from;
	} else {
		out = in_steps(run, run.parts[peer].to);
		in = IS_SUM ? own : in_steps(run, run.parts[peer].from);
	}
	init_counts(block, way, peer, is_used ? chunks_of(out, run.n_lanes, block.lane) : 0,
		    is_used ? chunks_of(in, run.n_lanes, block.lane) : 0);
	if (IS_SUM && !way && is_used) {
		block.shared->addends_at[peer] = (uint32_t)
			(slot_of(block, 0, run.place.own, peer, 0) -
			 run.place.memory[run.place.own]);
		block.shared->sums_there[peer] = slot_of(block, 1, peer, run.place.own, 0);
	}
}

/* The tasks that messages and runs share. */
static __device__ __forceinline__ void do_counters(const struct block &block, bool adds)
{
	switch (threadIdx.x / 32) {
	case AWAIT:
		return await_all(block, 0, !adds);
	case AWAIT_SUMS:
		return await_all(block, 1, true);
	case TELL:
		return tell_all(block, 0);
	case TELL_SUMS:
		return tell_all(block, 1);
	case CREDIT:
		return give_credit(block, adds);
	}
}

/* Moves what goes between the block's peer and this rank together with the number of the run. */
template <class WAY>
static __device__ __forceinline__ bool move_units(const struct packets &packets, uint32_t peer,
						  const struct movers &movers, bool is_to)
{
	if (!is_to)
		return take_part<WAY>(packets, peer, movers);
	send_part<WAY>(packets, peer, movers);
	return true;
}

/* Moves the bytes of the pair in one direction, unless they go in steps. */
static __device__ __forceinline__ bool move_few(const struct packets &packets, uint32_t peer,
						const struct movers &movers, bool is_to)
{
	const struct cei_channel_layout &layout = packets.run.place.layout;
	const struct cei_channel_part &part = packets.run.parts[peer];
	const uint64_t bytes = is_to ? part.to : part.from;

	if (bytes <= layout.span_max)
		return move_units<as_packets>(packets, peer, movers, is_to);
	if (bytes <= layout.line_span)
		return move_units<as_lines>(packets, peer, movers, is_to);
	return true;
}

/* Run by the adders, which have nothing to add up in moves. */
static __device__ __forceinline__ void move_rest(const struct cei_channel_run &run,
						 const struct block &block, uint64_t number)
{
	constexpr uint32_t n = CEI_CHANNEL_ADDERS * 32;
	const struct packets packets = { run, number, 0 };
	const struct movers movers = { run.blocks_each * n, block.lane * n + threadIdx.x };
	const uint32_t behind = run.place.own + service_of(run).first;
	const uint32_t peer = behind < run.place.n_ranks ? behind : behind - run.place.n_ranks;

	(void)move_few(packets, peer, movers, true);
	copy_own(run, threadIdx.x, n);
	if (!move_few(packets, peer, movers, false))
		*(volatile uint32_t *)&block.shared->has_failed = 1;
}

template <class T>
static __device__ __forceinline__ void do_sum(const struct cei_channel_run &run,
					      const struct block &block)
{
	const uint32_t warp = threadIdx.x / 32;
	const struct sums sums = { run, block };

	if (warp < PUSH)
		add_sums<T>(sums);
	else if (warp == STORE)
		store_all(sums);
	else if (warp == COPY && run.gathers)
		copy_all<copy_beside_sums>(block, walk_of(run, false));
}

template <class T>
static __device__ __forceinline__ void do_task(const struct cei_channel_run &run,
					       const struct block &block, uint64_t number)
{
	const uint32_t warp = threadIdx.x / 32;

	if (warp == PUSH)
		push_all(block, walk_of(run, true));
	else if (warp == TELL_SUMS && !blockIdx.x && !check_heads(run, number))
		*(volatile uint32_t *)&block.shared->has_failed = 1;
	else if constexpr (!T::is_moves)
		do_sum<T>(run, block);
	else if (warp < PUSH)
		move_rest(run, block, number);
	else if (warp == COPY)
		copy_all<copy_alone>(block, walk_of(run, false));
	do_counters(block, !T::is_moves);
}

/* Finds the run's number, which all of the block then have, and tells peers what the run is.
 * Returns whether the run may begin. */
static __device__ __forceinline__ bool name_run(const struct cei_channel_run &run,
						const struct block &block)
{
	const uint64_t number = number_of(run);
	const bool is_good = number <= CEI_CHANNEL_NO_RUN;

	if (is_good && !blockIdx.x)
		send_heads(run, number);
	if (leads())
		init_names(block.shared, number, run.what);
	return is_good;
}

/* What a block begins with. Each warp waits for one thing at most. Returns whether the run may
 * begin, the same in all threads. */
template <bool IS_SUM>
static __device__ __forceinline__ bool begin_run(const struct cei_channel_run &run,
						 const struct block &block)
{
	const struct cei_channel_part &own = run.parts[run.place.own];
	bool is_good = true;

	if (threadIdx.x < COUNTERS)
		count_run<IS_SUM>(run, block, threadIdx.x);
	if (threadIdx.x == STORE * 32)
		init_bars(block.shared);
	if (threadIdx.x == COPY * 32) {
		block.shared->own = own;
		block.shared->n_rows = chunks_of(own.from, run.n_lanes, block.lane);
	}
	if (threadIdx.x / 32 == TELL_SUMS)
		is_good = name_run(run, block);
	return __syncthreads_and(is_good);
}

template <class T>
static __device__ __forceinline__ void run_steps(const struct cei_channel_run &run)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
	const struct block block = block_of(run.place, service_of(run).lane, CEI_CHANNEL_MOVES);
	bool is_good = begin_run<!T::is_moves>(run, block);

	if (is_good)
		do_task<T>(run, block, block.shared->number);
	__syncthreads();
	is_good = is_good && !has_failed(block);
	if (is_good && threadIdx.x < COUNTERS)
		keep_counts(block, threadIdx.x / CEI_CHANNEL_RANKS_MAX,
			    threadIdx.x % CEI_CHANNEL_RANKS_MAX);
	__syncthreads();
	if (is_good && !threadIdx.x)
		end_run(run, block.shared->number);
#else
	__trap();
#endif
}

/* --- messages -------------------------------------------------------------------------------- */

struct message_service {
	uint32_t peer;
	uint32_t lane;
};

static __device__ __forceinline__ struct message_service
message_service_of(const struct cei_channel_messages &messages)
{
	return { messages.served[blockIdx.x / messages.blocks_each],
		 blockIdx.x % messages.blocks_each };
}

static __device__ __forceinline__ struct message_walk
walk_of(const struct cei_channel_messages &messages, bool is_to)
{
	const struct message_service service = message_service_of(messages);

	return { messages, service.peer, is_to, service.lane };
}

static __device__ __forceinline__ void init_messages(const struct cei_channel_messages &messages,
						     const struct block &block, uint32_t thread)
{
	const uint32_t way = thread / CEI_CHANNEL_RANKS_MAX, peer = thread % CEI_CHANNEL_RANKS_MAX;
	const bool is_used = !way && peer == message_service_of(messages).peer;

	init_counts(block, way, peer, is_used ? walk_of(messages, true).n_places() : 0,
		    is_used ? walk_of(messages, false).n_places() : 0);
}

static __device__ __forceinline__ void run_messages(const struct cei_channel_messages &messages)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
	const struct block block = block_of(messages.place, message_service_of(messages).lane,
					    CEI_CHANNEL_MESSAGES);
	const uint32_t warp = threadIdx.x / 32;
	bool is_good = !has_ended(messages.place);

	if (threadIdx.x < COUNTERS)
		init_messages(messages, block, threadIdx.x);
	if (threadIdx.x == COUNTERS) {
		init_bars(block.shared);
		init_names(block.shared, 0, CEOV_SEND);
	}
	is_good = __syncthreads_and(is_good);
	if (is_good && warp == PUSH)
		push_all(block, walk_of(messages, true));
	else if (is_good && warp == COPY)
		copy_all<copy_alone>(block, walk_of(messages, false));
	else if (is_good)
		do_counters(block, false);
	__syncthreads();
	if (is_good && !has_failed(block) && threadIdx.x < COUNTERS)
		keep_counts(block, threadIdx.x / CEI_CHANNEL_RANKS_MAX,
			    threadIdx.x % CEI_CHANNEL_RANKS_MAX);
#else
	__trap();
#endif
}

} /* namespace */

/* On older GPUs the kernels only trap, and the host does not launch them. */
extern "C" __global__ void __launch_bounds__(CEI_CHANNEL_STEP_THREADS, 1)
cei_channel_steps_copy(const __grid_constant__ struct cei_channel_run run)
{
	cei_channel::run_steps<cei_channel::no_numbers>(run);
}

extern "C" __global__ void __launch_bounds__(CEI_CHANNEL_STEP_THREADS, 1)
cei_channel_steps_bf16(const __grid_constant__ struct cei_channel_run run)
{
	cei_channel::run_steps<cei_channel::numbers<vector_pairs<pair_bf16>>>(run);
}

extern "C" __global__ void __launch_bounds__(CEI_CHANNEL_STEP_THREADS, 1)
cei_channel_steps_fp16(const __grid_constant__ struct cei_channel_run run)
{
	cei_channel::run_steps<cei_channel::numbers<vector_pairs<pair_fp16>>>(run);
}

extern "C" __global__ void __launch_bounds__(CEI_CHANNEL_STEP_THREADS, 1)
cei_channel_steps_fp32(const __grid_constant__ struct cei_channel_run run)
{
	cei_channel::run_steps<cei_channel::numbers<vector_fp32>>(run);
}

extern "C" __global__ void __launch_bounds__(CEI_CHANNEL_STEP_THREADS, 1)
cei_channel_messages(const __grid_constant__ struct cei_channel_messages messages)
{
	cei_channel::run_messages(messages);
}
