/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_VECTORS_CUH
#define CEI_VECTORS_CUH

/* Vectors of 16 bytes, loaded, as floats and back: 8 elements of 2 bytes, or 4 elements of 4
 * bytes. */

#include <stdint.h>

/* Converts two 16-bit elements in one word; the first element is in the low half. Both types need
 * sm_80. */
struct pair_bf16 {
	static __device__ __forceinline__ void widen(uint32_t pair, float &low, float &high)
	{
		low = __uint_as_float(pair << 16);
		high = __uint_as_float(pair & 0xffff0000u);
	}

	static __device__ __forceinline__ uint32_t narrow(float low, float high)
	{
		uint32_t pair;

		asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
		return pair;
	}
};

struct pair_fp16 {
	static __device__ __forceinline__ void widen(uint32_t pair, float &low, float &high)
	{
		asm("{.reg .f16 a, b;\n"
		    " mov.b32 {a, b}, %2;\n"
		    " cvt.f32.f16 %0, a;\n"
		    " cvt.f32.f16 %1, b;}" : "=f"(low), "=f"(high) : "r"(pair));
	}

	static __device__ __forceinline__ uint32_t narrow(float low, float high)
	{
		uint32_t pair;

		asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
		return pair;
	}
};

/* What sums need to know of a type: elements in a vector, and how to convert them to floats. This
 * is the common part of the two 16-bit types above. */
template <class PAIR>
struct vector_pairs {
	static constexpr uint32_t n_elements = 8;

	static __device__ __forceinline__ void widen(const uint4 &v, float *wide)
	{
		PAIR::widen(v.x, wide[0], wide[1]);
		PAIR::widen(v.y, wide[2], wide[3]);
		PAIR::widen(v.z, wide[4], wide[5]);
		PAIR::widen(v.w, wide[6], wide[7]);
	}

	static __device__ __forceinline__ uint4 narrow(const float *wide)
	{
		return make_uint4(PAIR::narrow(wide[0], wide[1]),
				  PAIR::narrow(wide[2], wide[3]),
				  PAIR::narrow(wide[4], wide[5]),
				  PAIR::narrow(wide[6], wide[7]));
	}
};

struct vector_fp32 {
	static constexpr uint32_t n_elements = 4;

	static __device__ __forceinline__ void widen(const uint4 &v, float *wide)
	{
		wide[0] = __uint_as_float(v.x);
		wide[1] = __uint_as_float(v.y);
		wide[2] = __uint_as_float(v.z);
		wide[3] = __uint_as_float(v.w);
	}

	static __device__ __forceinline__ uint4 narrow(const float *wide)
	{
		return make_uint4(__float_as_uint(wide[0]), __float_as_uint(wide[1]),
				  __float_as_uint(wide[2]), __float_as_uint(wide[3]));
	}
};

/* Loads a vector that is read only once, and by this block only: L1 is bypassed. The asm is
 * volatile and has a clobber, so that the load stays behind the barrier before it. */
static __device__ __forceinline__ uint4 cei_load(const uint4 *p)
{
	uint4 v;

	asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
		     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
	return v;
}

static __device__ __forceinline__ uint2 cei_load_word(const uint2 *p)
{
	uint2 v;

	asm volatile("ld.global.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
		     : "=r"(v.x), "=r"(v.y) : "l"(p) : "memory");
	return v;
}

/* Adds one vector of a source to the sum. The first source sets the sum, because adding -0 to 0
 * would lose the sign. */
template <class T>
static __device__ __forceinline__ void cei_add_vector(const uint4 &v, bool is_first, float *sum)
{
	float wide[T::n_elements];
	uint32_t i;

	T::widen(v, wide);
#pragma unroll
	for (i = 0; i < T::n_elements; i++)
		sum[i] = is_first ? wide[i] : sum[i] + wide[i];
}

#endif /* CEI_VECTORS_CUH */
