/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * The kernels of embedding bags. embedding.h says what each does.
 *
 * A bag is worked on by a few neighbouring threads, as many as its longest row has vectors, at most
 * a warp; so short rows do not leave lanes idle. Each of them reads the bag's indices, which the
 * others read at the same time, and has FLIGHT rows under way before it adds them up in order. The
 * threads of a bag exchange nothing.
 */

#include "kernels/embedding.h"
#include "kernels/marks.cuh"
#include "kernels/pattern.cuh"
#include "kernels/vectors.cuh"

#define EMBEDDING_FLIGHT 4u             /* rows of a bag, or bags that are checked, that a thread
					 * has in flight */

static __device__ __forceinline__ bool embedding_has_failed(const struct cei_embedding_work &work)
{
	return *(const volatile uint32_t *)work.failed != 0;
}

/* --- checks ------------------------------------------------------------------- */

static __device__ __forceinline__ void embedding_refuse(const struct cei_embedding_work &work)
{
	for (uint32_t i = 0; i < work.n_verdicts; i++)
		*(volatile uint64_t *)&work.verdicts[i] = CEI_EMBEDDING_REFUSED;
}

/* Where the indices of a bag lie. */
struct embedding_span {
	int64_t begin, end;
};

/* Returns whether the indices of a bag from `at` on, of which a lane has a share, are rows of its
 * table. A negative index is above all rows when it is taken for an unsigned number. */
static __device__ __forceinline__ bool embedding_has_rows(const struct cei_embedding_work &work,
							  int64_t at, int64_t end, uint64_t n_rows)
{
	bool is_good = true;

	for (; at < end; at += CEI_EMBEDDING_CHECK_LANES)
		is_good = is_good && (uint64_t)work.indices[at] < n_rows;
	return is_good;
}

/* Returns what is wrong with a bag and the three that lie one to three steps behind it, as far as a
 * lane's share of their indices tells; 0: nothing. Their offsets are loaded at the same time, and
 * so are their first indices: most bags have no more than there are lanes. */
static __device__ __forceinline__ int embedding_fault(const struct cei_embedding_work &work,
						      uint64_t bag, uint64_t step, uint32_t lane)
{
	const uint64_t n_bags = work.n_tables * work.n_samples;
	struct embedding_span spans[EMBEDDING_FLIGHT];
	uint64_t indices[EMBEDDING_FLIGHT], n_rows;
	int fault = 0;

#pragma unroll
	for (uint32_t i = 0; i < EMBEDDING_FLIGHT; i++) {
		spans[i] = { 0, 0 };
		if (bag + i * step < n_bags)
			spans[i] = { work.offsets[bag + i * step],
				     work.offsets[bag + i * step + 1] };
	}
#pragma unroll
	for (uint32_t i = 0; i < EMBEDDING_FLIGHT; i++) {
		if (spans[i].begin < 0 || spans[i].end < spans[i].begin ||
		    (uint64_t)spans[i].end > work.n_indices) {
			fault = CEI_EMBEDDING_NO_BAG;
			spans[i] = { 0, 0 };
		}
		indices[i] = 0;         /* a row of every table */
		if (work.indices && spans[i].begin + lane < spans[i].end)
			indices[i] = (uint64_t)work.indices[spans[i].begin + lane];
	}
#pragma unroll
	for (uint32_t i = 0; i < EMBEDDING_FLIGHT; i++) {
		if (bag + i * step >= n_bags || !work.indices)
			continue;
		n_rows = work.tables[(bag + i * step) / work.n_samples].n_rows;
		if (indices[i] >= n_rows ||
		    !embedding_has_rows(work, spans[i].begin + lane + CEI_EMBEDDING_CHECK_LANES,
					spans[i].end, n_rows))
			fault = fault ? fault : CEI_EMBEDDING_NO_ROW;
	}
	return fault;
}

extern "C" __global__ void __launch_bounds__(CEI_EMBEDDING_THREADS)
cei_embedding_check(const __grid_constant__ struct cei_embedding_work work)
{
	const uint64_t n_bags = work.n_tables * work.n_samples;
	const uint64_t step = n_threads() / CEI_EMBEDDING_CHECK_LANES;
	const uint32_t lane = (uint32_t)(thread_index() % CEI_EMBEDDING_CHECK_LANES);
	int fault = 0;

	if (embedding_has_failed(work)) {
		embedding_refuse(work);
		return;
	}
	for (uint64_t bag = thread_index() / CEI_EMBEDDING_CHECK_LANES; !fault && bag < n_bags;
	     bag += EMBEDDING_FLIGHT * step)
		fault = embedding_fault(work, bag, step, lane);
	if (!fault)
		return;
	cei_mark_fail({ work.status, work.failed, NULL }, fault);
	embedding_refuse(work);
}

/* --- bags --------------------------------------------------------------------- */

/* A bag of the part, and where its vectors lie. */
struct embedding_bag {
	int64_t      begin, end;        /* of its indices */
	const uint4 *rows;              /* of its table */
	uint64_t     n_vectors;         /* of a row */
	uint4       *vectors;           /* of its sample and table */
};

/* Finds the i-th bag of the part: all samples of a table, then those of the next one. */
static __device__ __forceinline__ struct embedding_bag
embedding_bag_of(const struct cei_embedding_work &work, uint64_t i)
{
	const uint64_t table = i / work.n, sample = i % work.n;
	const struct cei_embedding_table &its = work.tables[table];
	const int64_t *offsets = work.offsets + table * work.n_samples + work.first + sample;

	return { offsets[0], offsets[1], (const uint4 *)work.rows + its.first, its.n_vectors,
		 (uint4 *)(work.vectors + sample * work.pitch_bytes) + its.column };
}

/* Adds a row's vector to a sum. Products and sums are rounded one by one, as on the host: an fma
 * would make other bits. */
template <class T>
static __device__ __forceinline__ void embedding_add(float *sum, const uint4 &vector, float weight)
{
	float wide[T::n_elements];

	T::widen(vector, wide);
#pragma unroll
	for (uint32_t i = 0; i < T::n_elements; i++)
		sum[i] = __fadd_rn(sum[i], __fmul_rn(weight, wide[i]));
}

/* Adds up vector v of the rows of a bag. */
template <class T>
static __device__ __forceinline__ void embedding_sum(const struct cei_embedding_work &work,
						     const struct embedding_bag &bag, uint64_t v,
						     float *sum)
{
	uint4 raw[EMBEDDING_FLIGHT];

#pragma unroll
	for (uint32_t i = 0; i < T::n_elements; i++)
		sum[i] = 0;
	for (int64_t at = bag.begin; at < bag.end; at += EMBEDDING_FLIGHT) {
#pragma unroll
		for (uint32_t i = 0; i < EMBEDDING_FLIGHT; i++)
			if (at + i < bag.end)
				raw[i] = bag.rows[(uint64_t)work.indices[at + i] * bag.n_vectors +
						  v];
#pragma unroll
		for (uint32_t i = 0; i < EMBEDDING_FLIGHT; i++)
			if (at + i < bag.end)
				embedding_add<T>(sum, raw[i],
						 work.weights ? work.weights[at + i] : 1);
	}
}

template <class T>
static __device__ __forceinline__ void embedding_pool(const struct cei_embedding_work &work,
						      const struct embedding_bag &bag, uint64_t v)
{
	const float n = (float)(bag.end - bag.begin);
	float sum[T::n_elements];

	embedding_sum<T>(work, bag, v, sum);
	if (work.is_mean && bag.end > bag.begin) {
#pragma unroll
		for (uint32_t i = 0; i < T::n_elements; i++)
			sum[i] = __fdiv_rn(sum[i], n);
	}
	bag.vectors[v] = T::narrow(sum);
}

/* Makes vector v of the gradients of the bag's rows. */
template <class T>
static __device__ __forceinline__ void embedding_spread_bag(const struct cei_embedding_work &work,
							    const struct embedding_bag &bag,
							    uint64_t v)
{
	const float n = (float)(bag.end - bag.begin);
	float gradient[T::n_elements], scaled[T::n_elements];

	T::widen(bag.vectors[v], gradient);
	if (work.is_mean && bag.end > bag.begin) {
#pragma unroll
		for (uint32_t i = 0; i < T::n_elements; i++)
			gradient[i] = __fdiv_rn(gradient[i], n);
	}
	for (int64_t at = bag.begin; at < bag.end; at++) {
		const float weight = work.weights ? work.weights[at] : 1;

#pragma unroll
		for (uint32_t i = 0; i < T::n_elements; i++)
			scaled[i] = __fmul_rn(weight, gradient[i]);
		((uint4 *)work.row_grads)[(uint64_t)at * work.most_vectors + v] =
			T::narrow(scaled);
	}
}

/* What a kernel does with one vector of a bag. */
template <class T> struct embedding_pooling {
	static __device__ __forceinline__ void use(const struct cei_embedding_work &work,
						   const struct embedding_bag &bag, uint64_t v)
	{
		embedding_pool<T>(work, bag, v);
	}
};

template <class T> struct embedding_spreading {
	static __device__ __forceinline__ void use(const struct cei_embedding_work &work,
						   const struct embedding_bag &bag, uint64_t v)
	{
		embedding_spread_bag<T>(work, bag, v);
	}
};

template <class USE>
static __device__ __forceinline__ void embedding_each_bag(const struct cei_embedding_work &work)
{
	const uint64_t n_bags = work.n_tables * work.n, step = n_threads() / work.n_lanes;
	const uint32_t lane = (uint32_t)(thread_index() % work.n_lanes);

	if (embedding_has_failed(work))
		return;
	for (uint64_t i = thread_index() / work.n_lanes; i < n_bags; i += step) {
		const struct embedding_bag bag = embedding_bag_of(work, i);

		for (uint64_t v = lane; v < bag.n_vectors; v += work.n_lanes)
			USE::use(work, bag, v);
	}
}

extern "C" __global__ void __launch_bounds__(CEI_EMBEDDING_THREADS)
cei_embedding_look_up_bf16(const __grid_constant__ struct cei_embedding_work work)
{
	embedding_each_bag<embedding_pooling<struct vector_pairs<struct pair_bf16>>>(work);
}

extern "C" __global__ void __launch_bounds__(CEI_EMBEDDING_THREADS)
cei_embedding_look_up_fp16(const __grid_constant__ struct cei_embedding_work work)
{
	embedding_each_bag<embedding_pooling<struct vector_pairs<struct pair_fp16>>>(work);
}

extern "C" __global__ void __launch_bounds__(CEI_EMBEDDING_THREADS)
cei_embedding_look_up_fp32(const __grid_constant__ struct cei_embedding_work work)
{
	embedding_each_bag<embedding_pooling<struct vector_fp32>>(work);
}

extern "C" __global__ void __launch_bounds__(CEI_EMBEDDING_THREADS)
cei_embedding_spread_bf16(const __grid_constant__ struct cei_embedding_work work)
{
	embedding_each_bag<embedding_spreading<struct vector_pairs<struct pair_bf16>>>(work);
}

extern "C" __global__ void __launch_bounds__(CEI_EMBEDDING_THREADS)
cei_embedding_spread_fp16(const __grid_constant__ struct cei_embedding_work work)
{
	embedding_each_bag<embedding_spreading<struct vector_pairs<struct pair_fp16>>>(work);
}

extern "C" __global__ void __launch_bounds__(CEI_EMBEDDING_THREADS)
cei_embedding_spread_fp32(const __grid_constant__ struct cei_embedding_work work)
{
	embedding_each_bag<embedding_spreading<struct vector_fp32>>(work);
}
