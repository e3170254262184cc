/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_GEMM_SUMS_CUH
#define CEI_GEMM_SUMS_CUH

/* What the multiplying warps do after the products: they add peers' partial sums, which were loaded
 * into the place of C in shared memory, and write the rounded C there for the storing warps. */

#include <stdint.h>

#include <cuda_fp16.h>

#include "kernels/gemm_layout.cuh"
#include "kernels/gemm_sm90.cuh"
#include "kernels/gemm_wgmma.cuh"

namespace cei_gemm_kernels {

template <enum cei_number NUMBER>
static __device__ __forceinline__ uint32_t pack(float low, float high)
{
	uint32_t pair;

	if constexpr (NUMBER == CEI_NUMBER_BF16)
		asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
	else
		asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
	return pair;
}

template <enum cei_number NUMBER>
static __device__ __forceinline__ float2 unpack(uint32_t pair)
{
	if constexpr (NUMBER == CEI_NUMBER_BF16)
		return make_float2(__uint_as_float(pair << 16),
				   __uint_as_float(pair & 0xffff0000u));
	else
		return __half22float2(*(const __half2 *)&pair);
}

/* Returns the address of the 16-byte row that the calling lane has of fragment (block,
 * column16). */
template <class L>
static __device__ __forceinline__ uint32_t fragment_at(uint32_t c, uint32_t block,
						       uint32_t column16)
{
	const uint32_t lane = threadIdx.x % 32;
	const uint32_t row = block * 64 + threadIdx.x % GROUP_THREADS / 32 * 16 + lane % 16;
	const uint32_t part = column16 % 4 * 2 + lane / 16;

	return c + column16 / 4 * L::panel_bytes + row * 128 + (part ^ row % 8) * 16;
}

template <enum cei_number NUMBER>
static __device__ __forceinline__ void add(float *sums, const struct cei_fragment &fragment)
{
#pragma unroll
	for (uint32_t i = 0; i < 4; i++) {
		const float2 two = unpack<NUMBER>(fragment.pair[i]);

		sums[2 * i] += two.x;
		sums[2 * i + 1] += two.y;
	}
}

template <class L, enum cei_number NUMBER>
static __device__ __forceinline__ void
add_sums(typename L::sums &sums,
	 const struct shared &shared, uint32_t n, uint32_t *parity)
{
	const uint32_t group = threadIdx.x / GROUP_THREADS - 1;
	const uint32_t c = cei_shared(shared.c + group * L::panels * L::panel_bytes);

	for (uint32_t source = 0; source < n; source++) {
#pragma unroll
		for (uint32_t panel = 0; panel < L::panels; panel++) {
			cei_bar_wait(&shared.bars->sum_full[group][panel], *parity);
#pragma unroll
			for (uint32_t i = 0; i < L::blocks * 4; i++) {
				const uint32_t column16 = panel * 4 + i % 4;

				add<NUMBER>(&sums[i / 4][column16 * 8],
					    cei_fragment_load(fragment_at<L>(
						    c, i / 4, column16)));
			}
			cei_fence_async_shared();       /* the sums of the next source will be
							 * loaded into this place */
			cei_bar_arrive(&shared.bars->sum_empty[group][panel]);
		}
		*parity ^= 1;
	}
}

template <class L, enum cei_number NUMBER>
static __device__ __forceinline__ void
write_tile(const typename L::sums &sums,
	   const struct shared &shared)
{
	const uint32_t group = threadIdx.x / GROUP_THREADS - 1;
	const uint32_t c = cei_shared(shared.c + group * L::panels * L::panel_bytes);

#pragma unroll
	for (uint32_t block = 0; block < L::blocks; block++) {
#pragma unroll
		for (uint32_t column16 = 0; column16 < L::columns / 16; column16++) {
			const float *from = &sums[block][column16 * 8];
			const struct cei_fragment fragment = { {
				pack<NUMBER>(from[0], from[1]), pack<NUMBER>(from[2], from[3]),
				pack<NUMBER>(from[4], from[5]), pack<NUMBER>(from[6], from[7]),
			} };

			cei_fragment_store(fragment_at<L>(c, block, column16),
					   fragment);
		}
	}
	cei_fence_async_shared();
}

} /* namespace */

#endif /* CEI_GEMM_SUMS_CUH */
