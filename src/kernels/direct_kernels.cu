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

#include <ceoverlap/device.cuh>

#include "kernels/direct.h"
#include "kernels/marks.cuh"
#include "kernels/vectors.cuh"

#define DIRECT_POLLS 256u               /* looks at a counter before the clock and the abort word
						 * are read, too */

/* What the blocks of a run find out before it begins. */
struct direct_turn {
	uint64_t number;                /* of the run, or poison */
	uint32_t half;
	bool     is_good;               /* false: the run or one before it has failed; the same in
					 * all threads of the block */
};

/* Returns the rank that is k ranks behind this one; k is below n_ranks. Ranks serve different peers
 * at the same time. */
static __device__ __forceinline__ uint32_t behind(const struct cei_direct &direct, uint32_t k)
{
	const uint32_t rank = direct.own + k;

	return rank < direct.n_ranks ? rank : rank - direct.n_ranks;
}

static __device__ __forceinline__ bool is_peer(const struct cei_direct &direct, uint32_t rank)
{
	return rank < direct.n_ranks && rank != direct.own;
}

static __device__ __forceinline__ char *half_of(const struct cei_direct &direct,
						const struct direct_turn &turn, uint32_t rank)
{
	return direct.peers[rank].scratch + turn.half * direct.half_bytes;
}

static __device__ __forceinline__ const uint4 *vectors_at(const void *base, uint64_t at)
{
	return (const uint4 *)((const char *)base + at);
}

static __device__ __forceinline__ uint4 *vectors_to(void *base, uint64_t at)
{
	return (uint4 *)((char *)base + at);
}

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

static __device__ __forceinline__ bool is_reached(uint64_t seen, uint64_t value)
{
	return seen >= value && seen < CEOV_VALUE_LIMIT;
}

/* Awaits a counter that had the value `seen` before. Called by one thread. Where it is reached
 * soon, the abort word is not read: another access would cost a run of few bytes a part of its
 * time. Nobody but a peer's run of this number raises the counter to its value, and then its bytes
 * are there; whether something was aborted meanwhile the host finds. */
static __device__ __forceinline__ bool
await_counter(const struct cei_direct &direct, const struct ceov_device_signal &signal,
	      uint32_t index, uint64_t value, uint64_t seen)
{
	uint32_t i;
	int result;

	for (i = 0; i < DIRECT_POLLS && seen < value; i++)
		seen = ceov_device_load(signal.counters + index);
	if (is_reached(seen, value))
		return true;
	result = cei_mark_await(signal, index, value, direct.timeout_ns, direct.failed);
	if (result != CEOV_DEVICE_REACHED)
		cei_mark_fail({ direct.status, direct.failed, direct.epoch }, result);
	return result == CEOV_DEVICE_REACHED;
}

/* Orders all stores of the block, which a barrier has put before this, ahead of the counters that
 * this thread stores next. One fence does so for several counters, each of which would otherwise
 * wait for the one before it to arrive. */
static __device__ __forceinline__ void release_stores()
{
	asm volatile("fence.acq_rel.sys;" ::: "memory");
}

static __device__ __forceinline__ void store_counter(uint64_t *counter, uint64_t value)
{
	asm volatile("st.relaxed.sys.u64 [%0], %1;" :: "l"(counter), "l"(value) : "memory");
}

/* Finds the run's number and half. In a captured run it waits until peers have ended the last run
 * that used the half; one thread waits for each peer. As a rule they have, and all four words are
 * loaded at the same time. Other runs need no such wait while all runs before them were good.
 * Behind one that has failed a peer may still read the half, so nothing is stored there. */
static __device__ __forceinline__ struct direct_turn begin_turn(const struct cei_direct &direct)
{
	struct direct_turn turn = { direct.value, direct.half, true };
	uint64_t first, other, least, done = 0;
	bool is_good = true;

	if (!direct.epoch) {
		is_good = !*(const volatile uint32_t *)direct.failed;
		turn.is_good = __syncthreads_and(is_good);
		return turn;
	}
	/* The words change only when all blocks of a run have ended; poison may come any time. */
	turn.number = *(const volatile uint64_t *)direct.epoch + 1;
	first = ((const volatile uint64_t *)direct.last_use)[0];
	other = ((const volatile uint64_t *)direct.last_use)[1];
	if (is_peer(direct, threadIdx.x))
		done = ceov_device_load(direct.done.counters + threadIdx.x);
	turn.half = first <= other ? 0 : 1;
	least = first <= other ? first : other;
	if (turn.number > CEOV_VALUE_LIMIT)
		is_good = false;
	else if (is_peer(direct, threadIdx.x))
		is_good = await_counter(direct, direct.done, threadIdx.x, least, done);
	turn.is_good = __syncthreads_and(is_good);
	return turn;
}

/* Raises the block's counter of a step, which begins with counter `first`, at each peer; one thread
 * does so for each. The barrier before it puts the stores of all threads before the fence. A
 * captured run that has failed raises poison, at both halves since peers may be at another one.
 *
 * In the first step of a captured run one block also tells peers how many runs of this rank have
 * ended, as cei_op_begin does: all before this one, because the stream is in order. Nobody waits
 * for that before the run after the next one, so it comes behind what peers do wait for. */
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

/* Ends a captured run: the last block that comes here advances the run's number, unless it was
 * poisoned. The count acquires the poison that another block may have stored before. */
static __device__ __forceinline__ void end_turn(const struct cei_direct &direct,
						const struct direct_turn &turn)
{
	const uint32_t last = gridDim.x - 1;
	uint32_t n_before;

	__syncthreads();
	if (!direct.epoch || threadIdx.x)
		return;
	asm volatile("atom.acq_rel.gpu.inc.u32 %0, [%1], %2;"
		     : "=r"(n_before) : "l"(direct.n_ended), "r"(last) : "memory");
	if (n_before != last || *(const volatile uint64_t *)direct.epoch >= CEOV_VALUE_LIMIT)
		return;
	direct.last_use[turn.half] = turn.number;
	*direct.epoch = turn.number;
}

/* --- bytes --------------------------------------------------------------- */

/* Stores each peer's span of source to the peer's half. */
template <uint32_t EACH>
static __device__ __forceinline__ void push(const struct cei_direct &direct,
					    const struct direct_turn &turn)
{
	constexpr uint32_t n_group = direct_group<EACH>::others;
	uint4 raw[n_group][EACH];
	uint32_t group, k, peer;
	uint64_t i, most = 0;

	for (k = 1; k < direct.n_ranks; k++)
		most = max((unsigned long long)most,
			   (unsigned long long)direct.spans[behind(direct, k)].n_leaves);
	for (i = first_vector<EACH>(); i * sizeof(uint4) < most; i += step<EACH>())
		for (group = 1; group < direct.n_ranks && (EACH == 1 || group == 1);
		     group += n_group) {
#pragma unroll
			for (k = 0; k < n_group; k++) {
				if (group + k >= direct.n_ranks)
					continue;
				peer = behind(direct, group + k);
				direct_load(vectors_at(direct.source, direct.spans[peer].leaves),
					    i, direct.spans[peer].n_leaves, raw[k]);
			}
#pragma unroll
			for (k = 0; k < n_group; k++) {
				if (group + k >= direct.n_ranks)
					continue;
				peer = behind(direct, group + k);
				direct_store(vectors_to(half_of(direct, turn, peer),
							direct.spans[peer].there),
					     i, direct.spans[peer].n_leaves, raw[k]);
			}
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

template <class T>
static __device__ __forceinline__ uint4 finish_sum(const struct cei_direct &direct, float *sum)
{
#pragma unroll
	for (uint32_t e = 0; e < T::n_elements; e++)
		sum[e] *= direct.scale;
	return T::narrow(sum);
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
				sums[v] = finish_sum<T>(direct, sum);
		}
	}
	if (N == 1)
		sums[0] = finish_sum<T>(direct, sum);
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
	struct direct_turn turn = begin_turn(direct);

	if (turn.is_good)
		push<EACH>(direct, turn);
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
	struct direct_turn turn = begin_turn(direct);

	if (turn.is_good)
		push<EACH>(direct, turn);
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
