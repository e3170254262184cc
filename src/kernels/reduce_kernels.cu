/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * The kernels of reduce-scatter and all-reduce. reduce.h says what they compute.
 *
 * A kernel has few blocks, one on each SM that other kernels leave to it. So each block has to load
 * as fast as one SM can. By Little's law that takes many bytes in flight: 512 threads times 16
 * loads of 16 bytes, all issued before the first addition. If there are few sources, a thread loads
 * several vectors of each.
 *
 * Copy engines write other ranks' data while the kernel runs. So the data is loaded by plain loads,
 * after its mark was acquired and behind a barrier, and never through the read-only path
 * (ld.global.nc), which need not see such writes.
 */

#include <ceoverlap/device.cuh>

#include "kernels/marks.cuh"
#include "kernels/reduce.h"
#include "kernels/vectors.cuh"

#define REDUCE_FLIGHT 16u               /* loads that a thread has in flight */
#define REDUCE_GROUP  8u                /* sources that are loaded together if their number is
					 * not known at compile time */

/* A piece of one part, in vectors of 16 bytes: 8 elements of 2 bytes, or 4 elements of 4 bytes. */
struct reduce_piece {
	uint64_t first_vector;          /* counted from the beginning of the part */
	uint64_t n_vectors;             /* 0: the piece is empty */
};

/* Scales the sums and converts them. A factor of 1 leaves the sums as they are. */
template <class T>
static __device__ __forceinline__ uint4 finish(const struct cei_reduce &reduce,
					       const float *sum)
{
	float scaled[T::n_elements];
	uint32_t i;

#pragma unroll
	for (i = 0; i < T::n_elements; i++)
		scaled[i] = sum[i] * reduce.scale;
	return T::narrow(scaled);
}

/* Returns the vectors of source s from first_vector on: partial sums that were received, or the
 * rank's own operand. */
static __device__ __forceinline__ const uint4 *
source_of(const struct cei_reduce &reduce, const uint4 *own, uint64_t first_vector,
	  uint32_t s)
{
	const char *partials = (const char *)reduce.partials;

	if (s == reduce.own)
		return own + first_vector;
	return (const uint4 *)(partials + s * reduce.partial_stride_bytes) + first_vector;
}

/* Clamps an index, so that loads beyond the end repeat the last vector and need no branch. */
static __device__ __forceinline__ uint64_t within(uint64_t i, uint64_t n)
{
	return i < n ? i : n - 1;
}

/* Sums a piece; the number of sources is known at compile time. */
template <class T, uint32_t N>
static __device__ __forceinline__ void
sum_piece_of(const struct cei_reduce &reduce, const uint4 *own, uint4 *target,
	     const struct reduce_piece &piece)
{
	constexpr uint32_t n_each = REDUCE_FLIGHT / N;
	const uint64_t step = (uint64_t)gridDim.x * blockDim.x;
	const uint4 *sources[N];
	uint4 raw[n_each][N];
	float sum[T::n_elements];
	uint64_t i;
	uint32_t s, v;

#pragma unroll
	for (s = 0; s < N; s++)
		sources[s] = source_of(reduce, own, piece.first_vector, s);
	target += piece.first_vector;
	for (i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < piece.n_vectors;
	     i += n_each * step) {
#pragma unroll
		for (v = 0; v < n_each; v++)
#pragma unroll
			for (s = 0; s < N; s++)
				raw[v][s] = cei_load(sources[s] +
						 within(i + v * step, piece.n_vectors));
#pragma unroll
		for (v = 0; v < n_each; v++) {
#pragma unroll
			for (s = 0; s < N; s++)
				cei_add_vector<T>(raw[v][s], s == 0, sum);
			if (i + v * step < piece.n_vectors)
				target[i + v * step] = finish<T>(reduce, sum);
		}
	}
}

/* Adds the sources from number `group` on, up to REDUCE_GROUP of them, to the sums of two
 * vectors. */
template <class T>
static __device__ __forceinline__ void
add_group(const struct cei_reduce &reduce, const uint4 *own, const uint64_t *at,
	  uint32_t group, float (*sum)[T::n_elements])
{
	uint4 raw[REDUCE_GROUP][2];
	const uint4 *source;
	uint32_t s;

#pragma unroll
	for (s = 0; s < REDUCE_GROUP; s++) {
		if (group + s >= reduce.n_ranks)
			continue;
		source = source_of(reduce, own, 0, group + s);
		raw[s][0] = cei_load(source + at[0]);
		raw[s][1] = cei_load(source + at[1]);
	}
#pragma unroll
	for (s = 0; s < REDUCE_GROUP; s++) {
		if (group + s >= reduce.n_ranks)
			continue;
		cei_add_vector<T>(raw[s][0], group + s == 0, sum[0]);
		cei_add_vector<T>(raw[s][1], group + s == 0, sum[1]);
	}
}

/* Sums a piece from any number of sources. */
template <class T>
static __device__ __forceinline__ void
sum_piece_of_many(const struct cei_reduce &reduce, const uint4 *own, uint4 *target,
		  const struct reduce_piece &piece)
{
	const uint64_t step = (uint64_t)gridDim.x * blockDim.x;
	float sum[2][T::n_elements];
	uint64_t at[2];
	uint64_t i;
	uint32_t group;

	for (i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < piece.n_vectors;
	     i += 2 * step) {
		at[0] = piece.first_vector + i;
		at[1] = piece.first_vector + within(i + step, piece.n_vectors);
		for (group = 0; group < reduce.n_ranks; group += REDUCE_GROUP)
			add_group<T>(reduce, own, at, group, sum);
		target[at[0]] = finish<T>(reduce, sum[0]);
		if (i + step < piece.n_vectors)
			target[at[1]] = finish<T>(reduce, sum[1]);
	}
}

static __device__ __forceinline__ void
copy_piece(const uint4 *source, uint4 *target, const struct reduce_piece &piece)
{
	const uint64_t step = (uint64_t)gridDim.x * blockDim.x;
	uint4 raw[REDUCE_FLIGHT];
	uint64_t i;
	uint32_t v;

	source += piece.first_vector;
	target += piece.first_vector;
	for (i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < piece.n_vectors;
	     i += REDUCE_FLIGHT * step) {
#pragma unroll
		for (v = 0; v < REDUCE_FLIGHT; v++)
			raw[v] = cei_load(source + within(i + v * step, piece.n_vectors));
#pragma unroll
		for (v = 0; v < REDUCE_FLIGHT; v++)
			if (i + v * step < piece.n_vectors)
				target[i + v * step] = raw[v];
	}
}

template <class T, uint32_t N>
static __device__ __forceinline__ void
sum_piece(const struct cei_reduce &reduce, const uint4 *own, uint4 *target,
	  const struct reduce_piece &piece)
{
	if constexpr (N != 0)
		sum_piece_of<T, N>(reduce, own, target, piece);
	else
		sum_piece_of_many<T>(reduce, own, target, piece);
}

/* Returns how many vectors come before a rank's part. */
template <class T>
static __device__ uint64_t part_begin(const struct cei_reduce &reduce, uint32_t rank)
{
	uint64_t n_elements = 0;
	uint32_t r;

	for (r = 0; r < rank; r++)
		n_elements += reduce.counts[r];
	return n_elements / T::n_elements;
}

template <class T>
static __device__ struct reduce_piece
piece_of(const struct cei_reduce &reduce, uint32_t rank, uint32_t p)
{
	const uint64_t count = reduce.counts[rank];
	const uint64_t length = reduce.piece_elements[rank];
	const uint64_t first = p * length;
	struct reduce_piece piece;

	piece.first_vector = first / T::n_elements;
	if (first >= count)
		piece.n_vectors = 0;
	else
		piece.n_vectors = (count - first < length ? count - first : length) /
			T::n_elements;
	return piece;
}

/* Returns the counter that says that a source's piece has arrived. */
static __device__ __forceinline__ uint32_t counter_of(const struct cei_reduce &reduce,
						      uint32_t source, uint32_t piece)
{
	const bool is_cut = !reduce.is_tail_cut ||
		source == (reduce.own + 1) % reduce.n_ranks;

	return source * reduce.n_pieces + (is_cut ? piece : 0);
}

/* Awaits a counter. Called by one thread. If it fails, the poison is visible before this block
 * arrives at any counter. */
static __device__ __forceinline__ bool
await_one(const struct cei_reduce &reduce, const struct ceov_device_signal &signal,
	  uint32_t index, uint64_t value)
{
	const int result = cei_mark_await(signal, index, value, reduce.timeout_ns,
					  reduce.failed);

	if (result != CEOV_DEVICE_REACHED)
		cei_mark_fail({ reduce.status, reduce.failed, reduce.epoch }, result);
	return result == CEOV_DEVICE_REACHED;
}

/*
 * Each thread with is_waiting awaits one counter. All threads of the block learn whether any await
 * failed. The barrier passes on what the awaiting threads acquired, so that all threads may load.
 */
static __device__ __forceinline__ bool
await_all(const struct cei_reduce &reduce, const struct ceov_device_signal &signal,
	  bool is_waiting, uint32_t index, uint64_t value)
{
	return __syncthreads_and(!is_waiting || await_one(reduce, signal, index, value));
}

/* Sums the own part from N sources; N 0 stands for any number. Returns false if an await failed. */
template <class T, uint32_t N>
static __device__ __forceinline__ bool reduce_own(const struct cei_reduce &reduce,
						  uint64_t value)
{
	const uint4 *own = (const uint4 *)reduce.source;
	uint4 *target = (uint4 *)reduce.target +
		(reduce.gathered ? part_begin<T>(reduce, reduce.own) : 0);
	const uint32_t s = threadIdx.x;
	const bool is_waiting = reduce.awaited.counters && s < reduce.n_ranks && s != reduce.own;
	struct reduce_piece piece;
	bool is_good = true;
	uint32_t p;

	for (p = 0; p < reduce.n_pieces; p++) {
		piece = piece_of<T>(reduce, reduce.own, p);
		if (!piece.n_vectors)
			continue;
		is_good = is_good && await_all(reduce, reduce.awaited, is_waiting,
					       counter_of(reduce, s, p), value);
		if (is_good)
			sum_piece<T, N>(reduce, own, target, piece);
		else if (!reduce.epoch)
			return false;
		__syncthreads();
		/* The last thread arrives, because it does not await the next piece in the
		 * meantime. A block without a share of the piece arrives, too, because the
		 * counter expects all blocks. */
		if (reduce.ready.counters && threadIdx.x == blockDim.x - 1)
			ceov_device_arrive(reduce.ready, p, gridDim.x,
					   reduce.arrive_value);
	}
	return is_good;
}

/* Copies the parts that other ranks have summed, in the order in which they arrive. */
template <class T>
static __device__ __forceinline__ bool copy_others(const struct cei_reduce &reduce,
						   uint64_t value)
{
	struct reduce_piece piece;
	uint64_t begin;
	uint32_t i, p, s;

	for (i = 1; i < reduce.n_ranks; i++) {
		s = (reduce.own + reduce.n_ranks - i) % reduce.n_ranks;
		begin = part_begin<T>(reduce, s);
		for (p = 0; p < reduce.n_pieces; p++) {
			piece = piece_of<T>(reduce, s, p);
			if (!piece.n_vectors)
				continue;
			if (!await_all(reduce, reduce.arrived, !threadIdx.x,
				       reduce.first_arrived + counter_of(reduce, s, p),
				       value))
				return false;
			copy_piece((const uint4 *)reduce.gathered + begin,
				   (uint4 *)reduce.target + begin, piece);
		}
	}
	return true;
}

/* Keeps the kernel from ending until everything was sent. Nothing is loaded after that. The threads
 * of one block await a share of the counters each. */
static __device__ __forceinline__ void await_sent(const struct cei_reduce &reduce)
{
	bool is_good = true;
	uint32_t i;

	for (i = threadIdx.x; is_good && i < reduce.n_sent; i += blockDim.x)
		is_good = await_one(reduce, reduce.sent, reduce.sent_index + i,
				    reduce.sent_value);
}

/* Sums the own part in a loop that is compiled for the number of sources. In a loop for all numbers
 * the compiler would keep the addresses of all sources in registers, and have too few of these. */
template <class T>
static __device__ __forceinline__ bool reduce_own_of(const struct cei_reduce &reduce,
						     uint64_t value)
{
	switch (reduce.n_ranks) {
	case 2:
		return reduce_own<T, 2>(reduce, value);
	case 4:
		return reduce_own<T, 4>(reduce, value);
	case 8:
		return reduce_own<T, 8>(reduce, value);
	default:
		return reduce_own<T, 0>(reduce, value);
	}
}

template <class T>
static __device__ __forceinline__ void reduce_all(const struct cei_reduce &reduce)
{
	uint64_t value = reduce.await_value;

	/* *epoch changes only between runs */
	if (reduce.epoch)
		value += *(const volatile uint64_t *)reduce.epoch;
	if (!reduce_own_of<T>(reduce, value))
		return;
	if (reduce.gathered && !copy_others<T>(reduce, value))
		return;
	if (!blockIdx.x)
		await_sent(reduce);
}

extern "C" __global__ void __launch_bounds__(CEI_REDUCE_THREADS, 1)
cei_reduce_bf16(const __grid_constant__ struct cei_reduce reduce)
{
	reduce_all<struct vector_pairs<struct pair_bf16>>(reduce);
}

extern "C" __global__ void __launch_bounds__(CEI_REDUCE_THREADS, 1)
cei_reduce_fp16(const __grid_constant__ struct cei_reduce reduce)
{
	reduce_all<struct vector_pairs<struct pair_fp16>>(reduce);
}

extern "C" __global__ void __launch_bounds__(CEI_REDUCE_THREADS, 1)
cei_reduce_fp32(const __grid_constant__ struct cei_reduce reduce)
{
	reduce_all<struct vector_fp32>(reduce);
}
