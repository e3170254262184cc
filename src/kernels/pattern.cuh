/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PATTERN_CUH
#define CEI_PATTERN_CUH

/* Makes words of test data, and distributes them over threads. */

#include <stdint.h>

/* Returns a word whose bits all change from one index to the next (splitmix64's finaliser). */
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

#endif /* CEI_PATTERN_CUH */
