/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * The kernels that move bytes to peers by themselves. direct.h says what they do.
 *
 * Bytes are stored, not loaded, across the link: a store needs no answer, so what a run waits for
 * is one way of the bytes and one of the counter behind them. Loads of several ranks' data are
 * issued before the first of them is used, because with few bytes the time is all latency. With
 * many bytes, few SMs come to the links' rate only if each thread has several vectors of each rank
 * in flight: EACH, a template parameter, is their number.
 */

#include "kernels/direct.cuh"

/* The vectors of a span that a thread has: EACH from here on, CEI_DIRECT_THREADS apart, and as many
 * each step() behind them. Distances that the compiler knows take no registers. */
template <uint32_t EACH>
static __device__ __forceinline__ uint64_t first_vector()
{
	return (uint64_t)blockIdx.x * EACH * CEI_DIRECT_THREADS + threadIdx.x;
}

template <uint32_t EACH>
static __device__ __forceinline__ uint64_t step()
{
	return (uint64_t)gridDim.x * EACH * CEI_DIRECT_THREADS;
}

/* Of how many ranks a thread has EACH vectors in flight, the own one among them or not. If EACH is
 * not 1, the host has made sure that all ranks are among them. */
template <uint32_t EACH> struct direct_group {
	static constexpr uint32_t all = EACH == 1 ? CEI_DIRECT_FLIGHT / 2
		: CEI_DIRECT_FLIGHT / EACH;
	static constexpr uint32_t others = EACH == 1 ? all : all - 1;
};

/* Returns how many of the vectors from vector i on lie in n_bytes; many count as UINT32_MAX. */
static __device__ __forceinline__ uint32_t n_within(uint64_t i, uint64_t n_bytes)
{
	const uint64_t n = n_bytes / sizeof(uint4);

	if (i >= n)
		return 0;
	return n - i < UINT32_MAX ? (uint32_t)(n - i) : UINT32_MAX;
}

/* Loads EACH vectors from vector i on, but none that lies behind n_bytes. */
template <uint32_t EACH>
static __device__ __forceinline__ void direct_load(const uint4 *from, uint64_t i, uint64_t n_bytes,
						   uint4 (&raw)[EACH])
{
	const uint32_t n = n_within(i, n_bytes);

	from += i;
#pragma unroll
	for (uint32_t e = 0; e < EACH; e++)
		if (e * CEI_DIRECT_THREADS < n)
			raw[e] = cei_load(from + e * CEI_DIRECT_THREADS);
}

template <uint32_t EACH>
static __device__ __forceinline__ void direct_store(uint4 *to, uint64_t i, uint64_t n_bytes,
						    const uint4 (&raw)[EACH])
{
	const uint32_t n = n_within(i, n_bytes);

	to += i;
#pragma unroll
	for (uint32_t e = 0; e < EACH; e++)
		if (e * CEI_DIRECT_THREADS < n)
			to[e * CEI_DIRECT_THREADS] = raw[e];
}

/* --- counters ------------------------------------------------------------ */

/* Raises the block's counter of a step, which begins with counter `first`, at each peer; one thread
 * does so for each. The barrier before it puts the stores of all threads before the fence. A
 * captured run that has failed raises poison, at both halves since peers may be at another one.
 *
 * In the first step of a captured run one block also tells peers how many runs of this rank have
 * ended, as cei_op_begin does: all before this one, because the stream is in order. Nobody waits
 * for that before the next run, so it comes behind what peers do wait for. */
static __device__ __forceinline__ void
raise_peers(const struct cei_direct &direct, const struct direct_turn &turn, uint32_t first)
{
	const uint32_t index = first + direct.own * gridDim.x + blockIdx.x;
	const struct cei_direct_peer &peer = direct.peers[threadIdx.x % CEI_DIRECT_RANKS_MAX];
	uint32_t half;

	__syncthreads();
	if (!is_peer(direct, threadIdx.x))
		return;
	release_stores();
	if (turn.is_good)
		store_counter(peer.arrived[turn.half] + index, turn.number);
	for (half = 0; !turn.is_good && direct.epoch && half < CEI_DIRECT_HALVES; half++)
		store_counter(peer.arrived[half] + index, CEOV_VALUE_LIMIT);
	if (direct.epoch && !first && !blockIdx.x)
		store_counter(peer.done, turn.is_good ? turn.number - 1 : CEOV_VALUE_LIMIT);
}

/* Awaits the block's counter of each peer, and tells all threads in turn->is_good whether all came.
 * The barrier passes on what the awaiting threads acquired, so that all threads may load. */
static __device__ __forceinline__ void
await_peers(const struct cei_direct &direct, struct direct_turn *turn, uint32_t first)
{
	const uint32_t index = first + threadIdx.x * gridDim.x + blockIdx.x;
	bool is_good = turn->is_good;

	if (is_good && is_peer(direct, threadIdx.x))
		is_good = await_counter(direct, direct.arrived[turn->half], index, turn->number,
					0);
	turn->is_good = __syncthreads_and(is_good);
}

/* --- bytes --------------------------------------------------------------- */

/* What a thread has loaded of the spans of a group of peers. */
template <uint32_t EACH> struct direct_loaded {
	uint4 raw[direct_group<EACH>::others][EACH];
};

/* Loads, from vector i on, what goes to the group of peers that begins with the one `group` ranks
 * behind this one. */
template <uint32_t EACH>
static __device__ __forceinline__ void
load_peers(const struct cei_direct &direct, uint64_t i, uint32_t group,
	   struct direct_loaded<EACH> *loaded)
{
	uint32_t k, peer;

#pragma unroll
	for (k = 0; k < direct_group<EACH>::others; k++) {
		if (group + k >= direct.n_ranks)
			continue;
		peer = behind(direct, group + k);
		direct_load(vectors_at(direct.source, direct.spans[peer].leaves), i,
			    direct.spans[peer].n_leaves, loaded->raw[k]);
	}
}

template <uint32_t EACH>
static __device__ __forceinline__ void
store_peers(const struct cei_direct &direct, const struct direct_turn &turn, uint64_t i,
	    uint32_t group, const struct direct_loaded<EACH> &loaded)
{
	uint32_t k, peer;

#pragma unroll
	for (k = 0; k < direct_group<EACH>::others; k++) {
		if (group + k >= direct.n_ranks)
			continue;
		peer = behind(direct, group + k);
		direct_store(vectors_to(half_of(direct, turn, peer), direct.spans[peer].there), i,
			     direct.spans[peer].n_leaves, loaded.raw[k]);
	}
}

/* Begins a run. The first vectors for the first group of peers are loaded before the run's number
 * and counters are: source does not depend on them, and both then take the time of one. */
template <uint32_t EACH>
static __device__ __forceinline__ struct direct_turn begin_run(const struct cei_direct &direct,
							       struct direct_loaded<EACH> *loaded)
{
	load_peers(direct, first_vector<EACH>(), 1, loaded);
	return begin_turn(direct);
}

/* Stores each peer's span of source to the peer's half. The first vectors are loaded. */
template <uint32_t EACH>
static __device__ __forceinline__ void push(const struct cei_direct &direct,
					    const struct direct_turn &turn,
					    struct direct_loaded<EACH> *loaded)
{
	constexpr uint32_t n_group = direct_group<EACH>::others;
	uint64_t i = first_vector<EACH>(), most = 0;
	bool is_loaded = true;
	uint32_t group, k;

	for (k = 1; k < direct.n_ranks; k++)
		most = max((unsigned long long)most,
			   (unsigned long long)direct.spans[behind(direct, k)].n_leaves);
	for (; i * sizeof(uint4) < most; i += step<EACH>())
		for (group = 1; group < direct.n_ranks && (EACH == 1 || group == 1);
		     group += n_group) {
			if (!is_loaded)
				load_peers(direct, i, group, loaded);
			is_loaded = false;
			store_peers(direct, turn, i, group, *loaded);
		}
}

/* Copies what stays at this rank, unless it is in its place already. */
template <uint32_t EACH>
static __device__ __forceinline__ void copy_own(const struct cei_direct &direct)
{
	const struct cei_direct_span &span = direct.spans[direct.own];
	const uint4 *from = vectors_at(direct.source, span.leaves);
	uint4 *to = vectors_to(direct.target, span.place), raw[EACH];
	uint64_t i;

	if (from == to)
		return;
	for (i = first_vector<EACH>(); i * sizeof(uint4) < span.n_here; i += step<EACH>()) {
		direct_load(from, i, span.n_here, raw);
		direct_store(to, i, span.n_here, raw);
	}
}

/* Where copy_others() finds what has come from a rank: what it sent, or its sums. */
static __device__ __forceinline__ struct cei_direct_span
arrival_of(const struct cei_direct &direct, uint32_t rank, bool is_gathered)
{
	struct cei_direct_span span = direct.spans[rank];

	if (is_gathered) {
		span.here = direct.gather_at + span.place;
		span.n_here = span.n_leaves;    /* the rank's part, which was sent to it */
	}
	return span;
}

/* Copies what has come from other ranks to target. */
template <uint32_t EACH>
static __device__ __forceinline__ void
copy_others(const struct cei_direct &direct, const struct direct_turn &turn, bool is_gathered)
{
	constexpr uint32_t n_group = direct_group<EACH>::others;
	const char *half = half_of(direct, turn, direct.own);
	struct cei_direct_span span;
	uint4 raw[n_group][EACH];
	uint32_t group, k;
	uint64_t i, most = 0;

	for (k = 1; k < direct.n_ranks; k++) {
		span = arrival_of(direct, behind(direct, k), is_gathered);
		most = max((unsigned long long)most, (unsigned long long)span.n_here);
	}
	for (i = first_vector<EACH>(); i * sizeof(uint4) < most; i += step<EACH>())
		for (group = 1; group < direct.n_ranks && (EACH == 1 || group == 1);
		     group += n_group) {
#pragma unroll
			for (k = 0; k < n_group; k++) {
				if (group + k >= direct.n_ranks)
					continue;
				span = arrival_of(direct, behind(direct, group + k),
						  is_gathered);
				direct_load(vectors_at(half, span.here), i, span.n_here, raw[k]);
			}
#pragma unroll
			for (k = 0; k < n_group; k++) {
				if (group + k >= direct.n_ranks)
					continue;
				span = arrival_of(direct, behind(direct, group + k),
						  is_gathered);
				direct_store(vectors_to(direct.target, span.place), i, span.n_here,
					     raw[k]);
			}
		}
}

/* --- sums ---------------------------------------------------------------- */

/* Loads N vectors of the own part from each rank of a group. */
template <uint32_t GROUP, uint32_t N>
static __device__ __forceinline__ void
load_group(const struct cei_direct &direct, const char *half, uint64_t i, uint32_t group,
	   uint4 (&raw)[GROUP][N])
{
	const uint64_t n_bytes = direct.spans[direct.own].n_here;
	uint32_t k, rank;

#pragma unroll
	for (k = 0; k < GROUP; k++) {
		rank = group + k;
		if (rank < direct.n_ranks)
			direct_load(rank == direct.own
				    ? vectors_at(direct.source, direct.spans[rank].leaves)
				    : vectors_at(half, direct.spans[rank].here),
				    i, n_bytes, raw[k]);
	}
}

/* Adds up N vectors of the own part from all ranks, in their order, one vector after the other,
 * since the sums of all would take too many registers; then all ranks are one group. Vectors behind
 * the end are not loaded, and their sums not used. */
template <class T, uint32_t GROUP, uint32_t N>
static __device__ __forceinline__ void sum_vectors(const struct cei_direct &direct,
						   const char *half, uint64_t i, uint4 (&sums)[N])
{
	uint4 raw[GROUP][N];
	float sum[T::n_elements];
	uint32_t group, k, v;

	for (group = 0; group < direct.n_ranks && (N == 1 || !group); group += GROUP) {
		load_group<GROUP, N>(direct, half, i, group, raw);
#pragma unroll
		for (v = 0; v < N; v++) {
#pragma unroll
			for (k = 0; k < GROUP; k++)
				if (group + k < direct.n_ranks)
					cei_add_vector<T>(raw[k][v], group + k == 0, sum);
			if (N > 1)
				sums[v] = finish_sum<T>(direct.scale, sum);
		}
	}
	if (N == 1)
		sums[0] = finish_sum<T>(direct.scale, sum);
}

/* Sums the own part into target, and to the peers if they gather the sums. Of EACH vectors half are
 * in flight: with both the rank's own and the sums they would take too many registers. */
template <class T, uint32_t EACH>
static __device__ __forceinline__ void sum_own(const struct cei_direct &direct,
					       const struct direct_turn &turn)
{
	constexpr uint32_t n = EACH > 1 ? EACH / 2 : 1;
	const struct cei_direct_span &span = direct.spans[direct.own];
	const char *half = half_of(direct, turn, direct.own);
	uint4 sums[n];
	uint32_t k, part;
	uint64_t first, i;

	for (first = first_vector<EACH>(); first * sizeof(uint4) < span.n_here;
	     first += step<EACH>())
		for (part = 0; part < EACH / n; part++) {
			i = first + part * n * CEI_DIRECT_THREADS;
			sum_vectors<T, direct_group<EACH>::all>(direct, half, i, sums);
			for (k = 1; direct.gathers && k < direct.n_ranks; k++)
				direct_store(vectors_to(half_of(direct, turn, behind(direct, k)),
							direct.gather_at + span.place),
					     i, span.n_here, sums);
			direct_store(vectors_to(direct.target, span.place), i, span.n_here, sums);
		}
}

/* --- runs ---------------------------------------------------------------- */

template <class T, uint32_t EACH>
static __device__ __forceinline__ void reduce_run(const struct cei_direct &direct)
{
	struct direct_loaded<EACH> loaded;
	struct direct_turn turn = begin_run(direct, &loaded);

	if (turn.is_good)
		push(direct, turn, &loaded);
	raise_peers(direct, turn, 0);
	await_peers(direct, &turn, 0);
	if (turn.is_good)
		sum_own<T, EACH>(direct, turn);
	if (direct.gathers) {
		raise_peers(direct, turn, direct.second);
		await_peers(direct, &turn, direct.second);
		if (turn.is_good)
			copy_others<EACH>(direct, turn, true);
	}
	end_turn(direct, turn);
}

template <uint32_t EACH>
static __device__ __forceinline__ void copy_run(const struct cei_direct &direct)
{
	struct direct_loaded<EACH> loaded;
	struct direct_turn turn = begin_run(direct, &loaded);

	if (turn.is_good)
		push(direct, turn, &loaded);
	raise_peers(direct, turn, 0);
	if (turn.is_good)
		copy_own<EACH>(direct);
	await_peers(direct, &turn, 0);
	if (turn.is_good)
		copy_others<EACH>(direct, turn, false);
	end_turn(direct, turn);
}

template <class T>
static __device__ __forceinline__ void reduce_directly(const struct cei_direct &direct)
{
	switch (direct.each) {
	case 8:
		return reduce_run<T, 8>(direct);
	case 4:
		return reduce_run<T, 4>(direct);
	default:
		return reduce_run<T, 1>(direct);
	}
}

/* --- the kernels --------------------------------------------------------- */

extern "C" __global__ void __launch_bounds__(CEI_DIRECT_THREADS, 1)
cei_direct_copy(const __grid_constant__ struct cei_direct direct)
{
	switch (direct.each) {
	case 8:
		return copy_run<8>(direct);
	case 4:
		return copy_run<4>(direct);
	default:
		return copy_run<1>(direct);
	}
}

extern "C" __global__ void __launch_bounds__(CEI_DIRECT_THREADS, 1)
cei_direct_bf16(const __grid_constant__ struct cei_direct direct)
{
	reduce_directly<struct vector_pairs<struct pair_bf16>>(direct);
}

extern "C" __global__ void __launch_bounds__(CEI_DIRECT_THREADS, 1)
cei_direct_fp16(const __grid_constant__ struct cei_direct direct)
{
	reduce_directly<struct vector_pairs<struct pair_fp16>>(direct);
}

extern "C" __global__ void __launch_bounds__(CEI_DIRECT_THREADS, 1)
cei_direct_fp32(const __grid_constant__ struct cei_direct direct)
{
	reduce_directly<struct vector_fp32>(direct);
}
