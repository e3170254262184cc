/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Kernels that hold SMs, write patterns and check them, for tools and tests.
 * kernels.h has their contracts. */

#include <ceoverlap/device.cuh>

#include "kernels/kernels.h"

/* Words whose bits all change from one index to the next (splitmix64's finaliser). */
static __device__ __forceinline__ uint64_t pattern(uint64_t seed, uint64_t index)
{
	uint64_t word = (seed + index + 1) * 0x9e3779b97f4a7c15ull;

	word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9ull;
	word = (word ^ word >> 27) * 0x94d049bb133111ebull;
	return word ^ word >> 31;
}

static __device__ __forceinline__ uint64_t thread_index()
{
	return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

static __device__ __forceinline__ uint64_t n_threads()
{
	return (uint64_t)gridDim.x * blockDim.x;
}

static __device__ void report(uint64_t n_wrong, uint64_t first,
			      unsigned long long *ret_n_wrong,
			      unsigned long long *ret_first)
{
	if (!n_wrong)
		return;
	atomicAdd(ret_n_wrong, (unsigned long long)n_wrong);
	atomicMin(ret_first, (unsigned long long)first);
}

/* Until the host raises the word or the time is over. */
extern "C" __global__ void cei_kernel_spin(const uint32_t *stop_word, uint64_t timeout_ns,
					   uint32_t *n_started)
{
	const uint64_t start = ceov_device_now_ns();
	uint32_t stop = 0;

	if (!threadIdx.x)
		atomicAdd(n_started, 1u);
	/* One thread decides: all must leave in the same turn. */
	do {
		if (threadIdx.x)
			continue;
		__nanosleep(2000);
		asm volatile("ld.acquire.sys.u32 %0, [%1];"
			     : "=r"(stop) : "l"(stop_word) : "memory");
		if (ceov_device_now_ns() - start >= timeout_ns)
			stop = 1;
	} while (!__syncthreads_or(stop != 0));
}

extern "C" __global__ void cei_kernel_fill(uint64_t *p, uint64_t n_words, uint64_t seed)
{
	uint64_t i;

	for (i = thread_index(); i < n_words; i += n_threads())
		p[i] = pattern(seed, i);
}

extern "C" __global__ void cei_kernel_verify(const uint64_t *p, uint64_t n_words,
					     uint64_t seed, unsigned long long *n_wrong,
					     unsigned long long *first_wrong)
{
	uint64_t wrong = 0;
	uint64_t first = UINT64_MAX;
	uint64_t i;

	for (i = thread_index(); i < n_words; i += n_threads()) {
		if (p[i] == pattern(seed, i))
			continue;
		first = wrong ? first : i;
		wrong++;
	}
	report(wrong, first, n_wrong, first_wrong);
}

extern "C" __global__ void cei_kernel_fill_rows(struct cei_kernel_rows rows)
{
	const uint64_t n_words = rows.n_rows * rows.row_words;
	uint64_t i;

	for (i = thread_index(); i < n_words; i += n_threads())
		rows.p[i / rows.row_words * rows.pitch_words + i % rows.row_words] =
			pattern(rows.seed, i);
}

extern "C" __global__ void cei_kernel_verify_rows(struct cei_kernel_rows rows)
{
	const uint64_t n_words = rows.n_rows * rows.row_words;
	uint64_t wrong = 0;
	uint64_t first = UINT64_MAX;
	uint64_t i;

	for (i = thread_index(); i < n_words; i += n_threads()) {
		if (rows.p[i / rows.row_words * rows.pitch_words + i % rows.row_words] ==
		    pattern(rows.seed, i))
			continue;
		first = wrong ? first : i;
		wrong++;
	}
	report(wrong, first, rows.n_wrong, rows.first_wrong);
}

/* The litmus: whoever has seen the mark must see every word behind it. */
extern "C" __global__ void cei_kernel_consume(struct cei_kernel_consume consume)
{
	__shared__ int status;
	uint64_t wrong = 0;
	uint64_t first = UINT64_MAX;
	uint64_t i;

	if (!threadIdx.x) {
		status = ceov_device_await(consume.signal, consume.index, consume.value,
					   consume.timeout_ns);
		atomicMax(consume.ret_status, (uint32_t)status);
	}
	__syncthreads();
	if (status != CEOV_DEVICE_REACHED)
		return;
	for (i = thread_index(); i < consume.n_words; i += n_threads()) {
		if (consume.p[i] == pattern(consume.seed, i))
			continue;
		first = wrong ? first : i;
		wrong++;
	}
	report(wrong, first, consume.n_wrong, consume.first_wrong);
}
