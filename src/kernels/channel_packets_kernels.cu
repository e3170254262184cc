/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Runs of few bytes, which travel together with the number of their run. channel.h says what they
 * do.
 *
 * With so few bytes a run is all latency, so what it waits for is one way across the link. The
 * first units that leave are loaded while the run's number is. The last warp of block 0 sends and
 * checks heads meanwhile, and warps meet at the end alone.
 *
 * In the following WAY is how units travel, and T the type of numbers.
 */

#include "kernels/channel_packets.cuh"

namespace cei_channel {

constexpr uint32_t HEADS = 32;          /* threads of the warp for heads */

static __device__ __forceinline__ uint32_t n_movers()
{
	return blockDim.x - HEADS;
}

template <class WAY>
static __device__ __forceinline__ struct unit first_unit()
{
	return WAY::unit_of(blockIdx.x * n_movers() + threadIdx.x);
}

template <class WAY>
static __device__ __forceinline__ uint32_t unit_step()
{
	return WAY::step(gridDim.x * n_movers());
}

/* Returns the unit that comes n behind this one. */
template <class WAY>
static __device__ __forceinline__ struct unit behind(const struct unit &unit, uint32_t n)
{
	const uint32_t step = n * unit_step<WAY>();

	return { unit.first + step, unit.at + step };
}

/* The units of all ranks that a thread has in flight. */
template <uint32_t N, uint32_t RANKS>
struct flight {
	uint4 v[N][RANKS];
};

/* The bit of a rank's unit in a set. */
template <uint32_t RANKS>
static __device__ __forceinline__ uint32_t bit(uint32_t k, uint32_t rank)
{
	return 1u << (k * RANKS + rank);
}

/* --- sending --------------------------------------------------------------------------------- */

/* Loads what leaves for each peer. */
template <class WAY, class T, uint32_t N, uint32_t RANKS>
static __device__ __forceinline__ void load_leaving(const struct cei_channel_run &run,
						    const struct unit &from,
						    struct flight<N, RANKS> *leaving)
{
#pragma unroll
	for (uint32_t k = 0; k < N; k++)
#pragma unroll
		for (uint32_t rank = 0; rank < RANKS; rank++) {
			const struct cei_channel_part &part = run.parts[rank];
			const struct unit unit = behind<WAY>(from, k);

			if (is_peer(run.place, rank) && unit.first < part.to)
				leaving->v[k][rank] =
					load_unit<WAY, T::is_plain>(part.source + unit.at,
								    bytes_of<WAY>(unit, part.to));
		}
}

template <class WAY, uint32_t N, uint32_t RANKS>
static __device__ __forceinline__ void store_leaving(const struct packets &packets,
						     const struct unit &from,
						     const struct flight<N, RANKS> &leaving)
{
	const struct cei_channel_run &run = packets.run;

#pragma unroll
	for (uint32_t k = 0; k < N; k++)
#pragma unroll
		for (uint32_t rank = 0; rank < RANKS; rank++) {
			const struct unit unit = behind<WAY>(from, k);

			if (is_peer(run.place, rank) && unit.first < run.parts[rank].to)
				WAY::send(packets, rank, unit, leaving.v[k][rank]);
		}
}

/* Finds the run's number, the same in all lanes of a warp. */
static __device__ __forceinline__ void find_number(struct packets *packets)
{
	packets->number = __shfl_sync(0xffffffffu, number_of(packets->run), 0);
}

/* Finds the run's number, and sends all that this block sends, unless the channel has ended.
 * Returns whether it has not. The first units are on their way when the number is asked for, so
 * there is one wait for both. */
template <class WAY, class T, uint32_t RANKS>
static __device__ __forceinline__ bool send_all(struct packets *packets)
{
	constexpr uint32_t n = WAY::template n_together<RANKS>;
	const struct cei_channel_run &run = packets->run;
	struct unit unit = first_unit<WAY>();
	struct flight<n, RANKS> leaving;
	uint64_t most = 0;

	load_leaving<WAY, T>(run, unit, &leaving);
	find_number(packets);
	if (packets->number > CEI_CHANNEL_NO_RUN)
		return false;
	store_leaving<WAY>(*packets, unit, leaving);
#pragma unroll
	for (uint32_t rank = 0; rank < RANKS; rank++)
		if (is_peer(run.place, rank))
			most = max(most, run.parts[rank].to);
#pragma unroll 1
	for (unit = behind<WAY>(unit, n); unit.first < most; unit = behind<WAY>(unit, n)) {
		load_leaving<WAY, T>(run, unit, &leaving);
		store_leaving<WAY>(*packets, unit, leaving);
	}
	return true;
}

/* --- receiving ------------------------------------------------------------------------------- */

/* Looks once for the units in *missing, and takes out those that have come. */
template <class WAY, uint32_t N, uint32_t RANKS>
static __device__ __forceinline__ void poll(const struct packets &packets, const struct unit &from,
					    uint32_t *missing, struct flight<N, RANKS> *come)
{
	typename WAY::found found[N][RANKS];
	uint32_t k, rank;

#pragma unroll
	for (k = 0; k < N; k++)
#pragma unroll
		for (rank = 0; rank < RANKS; rank++)
			if (*missing & bit<RANKS>(k, rank))
				found[k][rank] = WAY::load(packets, rank, behind<WAY>(from, k));
#pragma unroll
	for (k = 0; k < N; k++)
#pragma unroll
		for (rank = 0; rank < RANKS; rank++)
			if (*missing & bit<RANKS>(k, rank) &&
			    WAY::has_come(packets, found[k][rank], &come->v[k][rank]))
				*missing &= ~bit<RANKS>(k, rank);
}

/* The ranks of which something is in the set. */
template <uint32_t N, uint32_t RANKS>
static __device__ __forceinline__ uint32_t ranks_in(uint32_t set)
{
	uint32_t ranks = 0;

#pragma unroll
	for (uint32_t k = 0; k < N; k++)
		ranks |= set >> k * RANKS & ((1u << RANKS) - 1);
	return ranks;
}

/* Awaits the units in `missing`, which is the same in all lanes if WAY::is_by_warp. Returns whether
 * those of all lanes of the warp have come. Called by whole warps. */
template <class WAY, uint32_t N, uint32_t RANKS>
static __device__ __forceinline__ bool receive(const struct packets &packets,
					       const struct unit &from, uint32_t missing,
					       struct flight<N, RANKS> *come)
{
	struct looks looks = {};
	uint32_t i;

	for (;;) {
#pragma unroll 1
		for (i = 0; missing && i < POLLS; i++)
			poll<WAY>(packets, from, &missing, come);
		if (!__any_sync(0xffffffffu, missing))
			return true;
		if (!still_waits(packets.run, packets.number, ranks_in<N, RANKS>(missing), &looks))
			return false;
	}
}

/* --- runs ------------------------------------------------------------------------------------ */

/* Returns which units from this one on come from peers: of a move, or of a sum. */
template <class WAY, uint32_t N, uint32_t RANKS>
static __device__ __forceinline__ uint32_t coming(const struct cei_channel_run &run,
						  const struct unit &from, bool is_sum)
{
	uint32_t set = 0;

#pragma unroll
	for (uint32_t k = 0; k < N; k++)
#pragma unroll
		for (uint32_t rank = 0; rank < RANKS; rank++)
			if (is_peer(run.place, rank) &&
			    behind<WAY>(from, k).first <
			    run.parts[is_sum ? run.place.own : rank].from)
				set |= bit<RANKS>(k, rank);
	return set;
}

/* Takes what comes from each peer into its part of the target. */
template <class WAY, class T, uint32_t RANKS>
static __device__ __forceinline__ bool take_units(const struct packets &packets)
{
	constexpr uint32_t n = WAY::template n_together<RANKS>;
	const struct cei_channel_run &run = packets.run;
	struct unit from = first_unit<WAY>();
	struct flight<n, RANKS> come;
	uint32_t rank, k, set;
	uint64_t most = 0, i;

#pragma unroll
	for (rank = 0; rank < RANKS; rank++)
		if (is_peer(run.place, rank))
			most = max(most, run.parts[rank].from);
#pragma unroll 1
	for (i = 0; i < most; i += n * unit_step<WAY>(), from = behind<WAY>(from, n)) {
		set = coming<WAY, n, RANKS>(run, from, false);
		if (!receive<WAY>(packets, from, set, &come))
			return false;
#pragma unroll
		for (k = 0; k < n; k++)
#pragma unroll
			for (rank = 0; rank < RANKS; rank++)
				if (set & bit<RANKS>(k, rank)) {
					const struct cei_channel_part &part = run.parts[rank];
					const struct unit unit = behind<WAY>(from, k);

					store_unit<WAY, T::is_plain>(
						part.target + unit.at, come.v[k][rank],
						bytes_of<WAY>(unit, part.from));
				}
	}
	return true;
}

template <class WAY, class T, uint32_t RANKS>
static __device__ __forceinline__ bool copy_units(struct packets *packets)
{
	if (!send_all<WAY, T, RANKS>(packets))
		return false;
	copy_own(packets->run, threadIdx.x, n_movers());
	return take_units<WAY, T, RANKS>(*packets);
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

/* Stores a sum to the target and, if they are gathered, to all peers. */
template <class WAY, class T, uint32_t RANKS>
static __device__ __forceinline__ void give_sum(const struct packets &packets,
						const struct unit &unit, const uint4 &sum)
{
	const struct cei_channel_run &run = packets.run;
	const struct cei_channel_part &part = run.parts[run.place.own];
	const struct packets gathered = { run, packets.number, 1 };

	if (WAY::is_by_warp && run.gathers) {
#pragma unroll
		for (uint32_t rank = 0; rank < RANKS; rank++)
			if (is_peer(run.place, rank))
				WAY::send(gathered, rank, unit, sum);
	}
	store_unit<WAY, T::is_plain>(part.target + unit.at, sum, bytes_of<WAY>(unit, part.from));
}

/* The own addends are loaded while those of the peers are awaited. */
template <class WAY, class T, uint32_t RANKS>
static __device__ __forceinline__ bool add_units(const struct packets &packets)
{
	constexpr uint32_t n = WAY::template n_together<RANKS>;
	const struct cei_channel_run &run = packets.run;
	const struct cei_channel_part &part = run.parts[run.place.own];
	struct unit from = first_unit<WAY>();
	struct flight<n, RANKS> come;
	uint4 own[n];
	uint64_t i;
	uint32_t k;

#pragma unroll 1
	for (i = 0; i < part.from; i += n * unit_step<WAY>(), from = behind<WAY>(from, n)) {
#pragma unroll
		for (k = 0; k < n; k++) {
			const struct unit unit = behind<WAY>(from, k);

			if (unit.first < part.from)
				own[k] = load_unit<WAY, T::is_plain>(
					part.source + unit.at, bytes_of<WAY>(unit, part.from));
		}
		if (!receive<WAY>(packets, from, coming<WAY, n, RANKS>(run, from, true), &come))
			return false;
#pragma unroll
		for (k = 0; k < n; k++) {
			const struct unit unit = behind<WAY>(from, k);

			if (unit.first < part.from)
				give_sum<WAY, T, RANKS>(packets, unit,
							sum_of<T, RANKS>(run, own[k], come.v[k]));
		}
	}
	return true;
}

/* In one step, or in two: each rank adds up a block, and all get the sums of all blocks. */
template <class WAY, class T, uint32_t RANKS>
static __device__ __forceinline__ bool sum_units(struct packets *packets)
{
	if (!send_all<WAY, T, RANKS>(packets) || !add_units<WAY, T, RANKS>(*packets))
		return false;
	if (!WAY::is_by_warp || !packets->run.gathers)
		return true;
	return take_units<WAY, T, RANKS>({ packets->run, packets->number, 1 });
}

template <class WAY, class T, uint32_t RANKS>
static __device__ __forceinline__ bool move(struct packets *packets)
{
	if constexpr (T::is_moves)
		return copy_units<WAY, T, RANKS>(packets);
	else
		return sum_units<WAY, T, RANKS>(packets);
}

/* Sends and checks heads; run by the last warp of each block. */
static __device__ __forceinline__ bool do_heads(const struct packets &packets)
{
	if (packets.number > CEI_CHANNEL_NO_RUN)
		return false;
	if (blockIdx.x)
		return true;
	send_heads(packets.run, packets.number);
	return check_heads(packets.run, packets.number);
}

/* The number that the block's warp for heads has found. */
static __device__ __forceinline__ uint64_t *block_number()
{
	extern __shared__ __align__(128) char memory[];

	return (uint64_t *)memory;
}

/* Each warp has asked for the run's number by itself, so that none waits for another one. They
 * differ if the run before was under way still. Returns whether all of the block is good, to all of
 * its threads. */
static __device__ __forceinline__ bool meet(const struct packets &packets, bool is_good)
{
	__syncthreads();                        /* behind the store of the number */
	if (is_good && packets.number != *(volatile uint64_t *)block_number()) {
		fail_unordered(packets.run, packets.number);
		is_good = false;
	}
	return __syncthreads_and(is_good);
}

/* Sets the number, as send_all() does. */
template <class WAY, class T>
static __device__ __forceinline__ bool move_all(struct packets *packets)
{
	if (packets->run.place.n_ranks <= 2)
		return move<WAY, T, 2>(packets);
	if (packets->run.place.n_ranks <= 4)
		return move<WAY, T, 4>(packets);
	return move<WAY, T, CEI_CHANNEL_RANKS_MAX>(packets);
}

template <class V> struct plain : V { static constexpr bool is_plain = true; };
template <class V> struct other : V { static constexpr bool is_plain = false; };

template <class WAY, class V>
static __device__ __forceinline__ void run_units(const struct cei_channel_run &run)
{
	struct packets packets = { run, 0, 0 };
	bool is_good;

	if (threadIdx.x >= n_movers()) {
		find_number(&packets);
		if (threadIdx.x == n_movers())
			*(volatile uint64_t *)block_number() = packets.number;
		is_good = do_heads(packets);
	} else if (run.is_plain) {
		is_good = move_all<WAY, plain<V>>(&packets);
	} else {
		is_good = move_all<WAY, other<V>>(&packets);
	}
	if (meet(packets, is_good) && !threadIdx.x)
		end_run(run, packets.number);
}

} /* namespace */

extern "C" __global__ void __launch_bounds__(CEI_CHANNEL_PACKET_THREADS, 1)
cei_channel_packets_copy(const __grid_constant__ struct cei_channel_run run)
{
	using namespace cei_channel;
	run_units<as_packets, no_numbers>(run);
}

extern "C" __global__ void __launch_bounds__(CEI_CHANNEL_PACKET_THREADS, 1)
cei_channel_packets_bf16(const __grid_constant__ struct cei_channel_run run)
{
	using namespace cei_channel;
	run_units<as_packets, numbers<vector_pairs<pair_bf16>>>(run);
}

extern "C" __global__ void __launch_bounds__(CEI_CHANNEL_PACKET_THREADS, 1)
cei_channel_packets_fp16(const __grid_constant__ struct cei_channel_run run)
{
	using namespace cei_channel;
	run_units<as_packets, numbers<vector_pairs<pair_fp16>>>(run);
}

extern "C" __global__ void __launch_bounds__(CEI_CHANNEL_PACKET_THREADS, 1)
cei_channel_packets_fp32(const __grid_constant__ struct cei_channel_run run)
{
	using namespace cei_channel;
	run_units<as_packets, numbers<vector_fp32>>(run);
}

extern "C" __global__ void __launch_bounds__(CEI_CHANNEL_PACKET_THREADS, 1)
cei_channel_lines_copy(const __grid_constant__ struct cei_channel_run run)
{
	using namespace cei_channel;
	run_units<as_lines, no_numbers>(run);
}

extern "C" __global__ void __launch_bounds__(CEI_CHANNEL_PACKET_THREADS, 1)
cei_channel_lines_bf16(const __grid_constant__ struct cei_channel_run run)
{
	using namespace cei_channel;
	run_units<as_lines, numbers<vector_pairs<pair_bf16>>>(run);
}

extern "C" __global__ void __launch_bounds__(CEI_CHANNEL_PACKET_THREADS, 1)
cei_channel_lines_fp16(const __grid_constant__ struct cei_channel_run run)
{
	using namespace cei_channel;
	run_units<as_lines, numbers<vector_pairs<pair_fp16>>>(run);
}

extern "C" __global__ void __launch_bounds__(CEI_CHANNEL_PACKET_THREADS, 1)
cei_channel_lines_fp32(const __grid_constant__ struct cei_channel_run run)
{
	using namespace cei_channel;
	run_units<as_lines, numbers<vector_fp32>>(run);
}
