/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Runs of few bytes, which travel together with the number of their run. channel.h says what they
 * do.
 *
 * With so few bytes a run is all latency, so what it waits for is one way across the link. The
 * first vectors that leave are loaded while the run's number is. The last warp of block 0 sends and
 * checks heads meanwhile, and warps meet at the end alone.
 */

#include "kernels/channel_packets.cuh"

namespace cei_channel {

constexpr uint32_t HEADS = 32;          /* threads of the warp for heads */

static __device__ __forceinline__ uint32_t n_movers()
{
	return blockDim.x - HEADS;
}

static __device__ __forceinline__ uint32_t first_byte()
{
	return (blockIdx.x * n_movers() + threadIdx.x) * (uint32_t)sizeof(uint4);
}

static __device__ __forceinline__ uint32_t byte_step()
{
	return gridDim.x * n_movers() * (uint32_t)sizeof(uint4);
}

/* Whether addresses and sizes are multiples of 16, and sums plain ones, is known when the kernel is
 * compiled: T::is_plain. */
template <class T>
static __device__ __forceinline__ uint4 load(const char *from, uint64_t n_left)
{
	if constexpr (T::is_plain)
		return cei_load((const uint4 *)from);
	else
		return load_vector(from, n_left);
}

template <class T>
static __device__ __forceinline__ void store(char *to, const uint4 &v, uint64_t n_left)
{
	if constexpr (T::is_plain)
		*(uint4 *)to = v;
	else
		store_vector(to, v, n_left);
}

/* --- sending --------------------------------------------------------------------------------- */

/* Loads what leaves for each peer `at` bytes behind where that begins. */
template <class T, uint32_t RANKS>
static __device__ __forceinline__ void load_leaving(const struct cei_channel_run &run, uint32_t at,
						    uint4 (&leaving)[RANKS])
{
#pragma unroll
	for (uint32_t rank = 0; rank < RANKS; rank++)
		if (is_peer(run.place, rank) && at < run.parts[rank].to)
			leaving[rank] = load<T>(run.parts[rank].source + at,
						run.parts[rank].to - at);
}

template <uint32_t RANKS>
static __device__ __forceinline__ void store_leaving(const struct packets &packets, uint32_t at,
						     const uint4 (&leaving)[RANKS])
{
	const struct cei_channel_run &run = packets.run;
	char *mail;

#pragma unroll
	for (uint32_t rank = 0; rank < RANKS; rank++) {
		if (!is_peer(run.place, rank) || at >= run.parts[rank].to)
			continue;
		mail = mail_of(packets, rank, run.place.own) + at;
		send_vector(packets, mail, leaving[rank]);
	}
}

/* Sends all that this block sends, unless the channel has ended. Returns whether it has not. */
template <class T, uint32_t RANKS>
static __device__ __forceinline__ bool send_all(const struct packets &packets)
{
	const struct cei_channel_run &run = packets.run;
	uint4 leaving[RANKS];
	uint32_t at = first_byte();
	uint64_t most = 0;

	load_leaving<T>(run, at, leaving);
	if (packets.number > CEI_CHANNEL_NO_RUN)
		return false;
	store_leaving(packets, at, leaving);
#pragma unroll
	for (uint32_t rank = 0; rank < RANKS; rank++)
		if (is_peer(run.place, rank))
			most = max(most, run.parts[rank].to);
	for (at += byte_step(); at < most; at += byte_step()) {
		load_leaving<T>(run, at, leaving);
		store_leaving(packets, at, leaving);
	}
	return true;
}

/* --- receiving ------------------------------------------------------------------------------- */

/* Looks once for the packets of the ranks in *missing, one bit each, and takes out those whose
 * vector has come. */
template <uint32_t RANKS>
static __device__ __forceinline__ void poll(const struct packets &packets, uint32_t at,
					    uint32_t *missing, uint4 (&come)[RANKS])
{
	const struct cei_channel_place &place = packets.run.place;
	struct vector_pair pairs[RANKS];
	uint32_t rank;

#pragma unroll
	for (rank = 0; rank < RANKS; rank++)
		if (*missing & 1u << rank)
			pairs[rank] = load_pair(packets, mail_of(packets, place.own, rank) + at);
#pragma unroll
	for (rank = 0; rank < RANKS; rank++)
		if (*missing & 1u << rank && take_pair(packets, pairs[rank], &come[rank]))
			*missing &= ~(1u << rank);
}

/* Awaits the vectors of the ranks in `missing`. Returns whether those of all lanes of the warp have
 * come. Called by whole warps. */
template <uint32_t RANKS>
static __device__ __forceinline__ bool receive(const struct packets &packets, uint32_t at,
					       uint32_t missing, uint4 (&come)[RANKS])
{
	struct looks looks = {};
	uint32_t i;

	for (;;) {
#pragma unroll 1
		for (i = 0; missing && i < POLLS; i++)
			poll(packets, at, &missing, come);
		if (!__any_sync(0xffffffffu, missing))
			return true;
		if (!still_waits(packets.run, packets.number, missing, &looks))
			return false;
	}
}

/* --- runs ------------------------------------------------------------------------------------ */

template <class T, uint32_t RANKS>
static __device__ __forceinline__ bool copy_packets(const struct packets &packets)
{
	const struct cei_channel_run &run = packets.run;
	uint64_t most = 0, i;
	uint32_t rank, missing, at;
	uint4 come[RANKS];

	if (!send_all<T, RANKS>(packets))
		return false;
	copy_own(run, threadIdx.x, n_movers());
#pragma unroll
	for (rank = 0; rank < RANKS; rank++)
		if (is_peer(run.place, rank))
			most = max(most, run.parts[rank].from);
	for (i = 0; i < most; i += byte_step()) {
		at = first_byte() + (uint32_t)i;
		missing = 0;
#pragma unroll
		for (rank = 0; rank < RANKS; rank++)
			if (is_peer(run.place, rank) && at < run.parts[rank].from)
				missing |= 1u << rank;
		if (!receive(packets, at, missing, come))
			return false;
#pragma unroll
		for (rank = 0; rank < RANKS; rank++)
			if (is_peer(run.place, rank) && at < run.parts[rank].from)
				store<T>(run.parts[rank].target + at, come[rank],
					 run.parts[rank].from - at);
	}
	return true;
}

static __device__ __forceinline__ uint4 pick(bool is_first, const uint4 &first, const uint4 &other)
{
	return make_uint4(is_first ? first.x : other.x, is_first ? first.y : other.y,
			  is_first ? first.z : other.z, is_first ? first.w : other.w);
}

/* Adds up vectors of all ranks in their order. */
template <class T, uint32_t RANKS>
static __device__ __forceinline__ uint4 sum_of(const struct cei_channel_run &run, const uint4 &own,
					       const uint4 (&come)[RANKS])
{
	float sum[T::n_elements];

#pragma unroll
	for (uint32_t rank = 0; rank < RANKS; rank++)
		if (rank < run.place.n_ranks)
			take_addend<T>(T::is_plain ? (uint32_t)CEOV_SUM : run.reduction,
				       pick(rank == run.place.own, own, come[rank]), rank == 0,
				       sum);
	return T::is_plain ? finish_scaled<T>(run, sum) : finish<T>(run, sum);
}

/* The own addends are loaded while those of the peers are awaited. */
template <class T, uint32_t RANKS>
static __device__ __forceinline__ bool add_packets(const struct packets &packets)
{
	const struct cei_channel_run &run = packets.run;
	const struct cei_channel_part &part = run.parts[run.place.own];
	const uint32_t peers = ((1u << run.place.n_ranks) - 1) & ~(1u << run.place.own);
	uint4 own, come[RANKS];
	uint32_t at;
	uint64_t i;

	if (!send_all<T, RANKS>(packets))
		return false;
	for (i = 0; i < part.from; i += byte_step()) {
		at = first_byte() + (uint32_t)i;
		if (at < part.from)
			own = load<T>(part.source + at, part.from - at);
		if (!receive(packets, at, at < part.from ? peers : 0, come))
			return false;
		if (at < part.from)
			store<T>(part.target + at, sum_of<T, RANKS>(run, own, come),
				 part.from - at);
	}
	return true;
}

template <class T, uint32_t RANKS>
static __device__ __forceinline__ bool move(const struct packets &packets)
{
	if constexpr (T::is_moves)
		return copy_packets<T, RANKS>(packets);
	else
		return add_packets<T, RANKS>(packets);
}

/* Sends and checks heads; run by the last warp of each block. */
static __device__ __forceinline__ bool do_heads(const struct packets &packets)
{
	if (packets.number > CEI_CHANNEL_NO_RUN)
		return false;
	if (!blockIdx.x) {
		send_heads(packets.run, packets.number);
		if (!check_heads(packets.run, packets.number))
			return false;
	}
	if (number_of(packets.run) == packets.number)
		return true;
	fail_unordered(packets.run, packets.number);    /* the run before was under way still */
	return false;
}

template <class T>
static __device__ __forceinline__ bool move_all(const struct packets &packets)
{
	if (packets.run.place.n_ranks <= 2)
		return move<T, 2>(packets);
	if (packets.run.place.n_ranks <= 4)
		return move<T, 4>(packets);
	return move<T, CEI_CHANNEL_RANKS_MAX>(packets);
}

template <class V> struct plain : V { static constexpr bool is_plain = true; };
template <class V> struct other : V { static constexpr bool is_plain = false; };

template <class V>
static __device__ __forceinline__ void run_packets(const struct cei_channel_run &run)
{
	const struct packets packets = { run, __shfl_sync(0xffffffffu, number_of(run), 0) };
	bool is_good;

	if (threadIdx.x >= n_movers())
		is_good = do_heads(packets);
	else if (run.is_plain)
		is_good = move_all<plain<V>>(packets);
	else
		is_good = move_all<other<V>>(packets);
	if (__syncthreads_and(is_good) && !threadIdx.x)
		end_run(run, packets.number);
}

} /* namespace */

extern "C" __global__ void __launch_bounds__(CEI_CHANNEL_PACKET_THREADS, 1)
cei_channel_packets_copy(const __grid_constant__ struct cei_channel_run run)
{
	cei_channel::run_packets<cei_channel::no_numbers>(run);
}

extern "C" __global__ void __launch_bounds__(CEI_CHANNEL_PACKET_THREADS, 1)
cei_channel_packets_bf16(const __grid_constant__ struct cei_channel_run run)
{
	cei_channel::run_packets<cei_channel::numbers<vector_pairs<pair_bf16>>>(run);
}

extern "C" __global__ void __launch_bounds__(CEI_CHANNEL_PACKET_THREADS, 1)
cei_channel_packets_fp16(const __grid_constant__ struct cei_channel_run run)
{
	cei_channel::run_packets<cei_channel::numbers<vector_pairs<pair_fp16>>>(run);
}

extern "C" __global__ void __launch_bounds__(CEI_CHANNEL_PACKET_THREADS, 1)
cei_channel_packets_fp32(const __grid_constant__ struct cei_channel_run run)
{
	cei_channel::run_packets<cei_channel::numbers<vector_fp32>>(run);
}
