/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The kernel that fills operands of operators with numbers. fill.h describes the numbers. */

#include "kernels/fill.h"
#include "kernels/pattern.cuh"

/* Returns the sum of four 16-bit parts of a hash, shifted and scaled into (-1, 1): at most
 * 18 bits, bell-shaped about 0. */
static __device__ __forceinline__ float bell(uint64_t seed, uint64_t index)
{
	const uint64_t word = pattern(seed, index);
	const int sum = (int)(word & 0xffff) + (int)(word >> 16 & 0xffff) +
		(int)(word >> 32 & 0xffff) + (int)(word >> 48);

	return (float)(sum - 131070) / 131072.0f;
}

/* Returns the bits of the number, cut off to bf16 and not rounded, so that it stays below 1. A
 * function of tools/bench/values.c makes the same bits on the host. */
static __device__ __forceinline__ uint32_t bell_bits(uint64_t seed, uint64_t index)
{
	return __float_as_uint(bell(seed, index)) & 0xffff0000u;
}

/* Returns the number rounded towards 0 to fp16, so that it stays below 1. */
static __device__ __forceinline__ uint16_t bell_fp16(uint64_t seed, uint64_t index)
{
	uint16_t number;

	asm("cvt.rz.f16.f32 %0, %1;" : "=h"(number) : "f"(bell(seed, index)));
	return number;
}

extern "C" __global__ void cei_fill(struct cei_fill fill)
{
	uint32_t bits;
	uint64_t i;

	for (i = thread_index(); i < fill.n; i += n_threads()) {
		bits = bell_bits(fill.seed, fill.first + i);
		if (fill.kind == CEI_FILL_BF16)
			((uint16_t *)fill.p)[i] = (uint16_t)(bits >> 16);
		else if (fill.kind == CEI_FILL_FP16)
			((uint16_t *)fill.p)[i] = bell_fp16(fill.seed, fill.first + i);
		else if (fill.kind == CEI_FILL_FP32)
			((float *)fill.p)[i] = 0.7f * bell(fill.seed, fill.first + i);
		else if (fill.kind == CEI_FILL_FLOAT)
			((float *)fill.p)[i] = __uint_as_float(bits);
		else
			((float *)fill.p)[i] += __uint_as_float(bits);
	}
}
