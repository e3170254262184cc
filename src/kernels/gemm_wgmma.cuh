/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_GEMM_WGMMA_CUH
#define CEI_GEMM_WGMMA_CUH

/*
 * The wgmma instruction of a warpgroup: adds A (64 x 16) B^T (N x 16) to sums of 64 rows x N
 * columns. Both operands are in shared memory; A is K-major, B is K-major (B_IS_MN 0) or MN-major
 * (1). The instruction names every accumulator, which no function can pass on; hence the lists.
 */

#include <stdint.h>

/* Types of operands. The numbers select the name of the type in the instruction. */
enum cei_number { CEI_NUMBER_BF16, CEI_NUMBER_FP16 };

#define CEI_D4(d, i)  "+f"(d[(i)]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define CEI_D16(d, i) CEI_D4(d, i), CEI_D4(d, (i) + 4), CEI_D4(d, (i) + 8), CEI_D4(d, (i) + 12)
#define CEI_D64(d, i) CEI_D16(d, i), CEI_D16(d, (i) + 16), CEI_D16(d, (i) + 32), \
		      CEI_D16(d, (i) + 48)

#define CEI_WGMMA_128(type) \
	"{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n" \
	"wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" \
	"%0, %1, %2, %3, %4, %5, %6, %7, " \
	"%8, %9, %10, %11, %12, %13, %14, %15, " \
	"%16, %17, %18, %19, %20, %21, %22, %23, " \
	"%24, %25, %26, %27, %28, %29, %30, %31, " \
	"%32, %33, %34, %35, %36, %37, %38, %39, " \
	"%40, %41, %42, %43, %44, %45, %46, %47, " \
	"%48, %49, %50, %51, %52, %53, %54, %55, " \
	"%56, %57, %58, %59, %60, %61, %62, %63}, " \
	"%64, %65, p, 1, 1, 0, %67;\n}\n"

#define CEI_WGMMA_192(type) \
	"{\n.reg .pred p;\nsetp.ne.b32 p, %98, 0;\n" \
	"wgmma.mma_async.sync.aligned.m64n192k16.f32." type "." type " {" \
	"%0, %1, %2, %3, %4, %5, %6, %7, " \
	"%8, %9, %10, %11, %12, %13, %14, %15, " \
	"%16, %17, %18, %19, %20, %21, %22, %23, " \
	"%24, %25, %26, %27, %28, %29, %30, %31, " \
	"%32, %33, %34, %35, %36, %37, %38, %39, " \
	"%40, %41, %42, %43, %44, %45, %46, %47, " \
	"%48, %49, %50, %51, %52, %53, %54, %55, " \
	"%56, %57, %58, %59, %60, %61, %62, %63, " \
	"%64, %65, %66, %67, %68, %69, %70, %71, " \
	"%72, %73, %74, %75, %76, %77, %78, %79, " \
	"%80, %81, %82, %83, %84, %85, %86, %87, " \
	"%88, %89, %90, %91, %92, %93, %94, %95}, " \
	"%96, %97, p, 1, 1, 0, %99;\n}\n"

#define CEI_WGMMA_256(type) \
	"{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n" \
	"wgmma.mma_async.sync.aligned.m64n256k16.f32." type "." type " {" \
	"%0, %1, %2, %3, %4, %5, %6, %7, " \
	"%8, %9, %10, %11, %12, %13, %14, %15, " \
	"%16, %17, %18, %19, %20, %21, %22, %23, " \
	"%24, %25, %26, %27, %28, %29, %30, %31, " \
	"%32, %33, %34, %35, %36, %37, %38, %39, " \
	"%40, %41, %42, %43, %44, %45, %46, %47, " \
	"%48, %49, %50, %51, %52, %53, %54, %55, " \
	"%56, %57, %58, %59, %60, %61, %62, %63, " \
	"%64, %65, %66, %67, %68, %69, %70, %71, " \
	"%72, %73, %74, %75, %76, %77, %78, %79, " \
	"%80, %81, %82, %83, %84, %85, %86, %87, " \
	"%88, %89, %90, %91, %92, %93, %94, %95, " \
	"%96, %97, %98, %99, %100, %101, %102, %103, " \
	"%104, %105, %106, %107, %108, %109, %110, %111, " \
	"%112, %113, %114, %115, %116, %117, %118, %119, " \
	"%120, %121, %122, %123, %124, %125, %126, %127}, " \
	"%128, %129, p, 1, 1, 0, %131;\n}\n"

template <int COLUMNS, enum cei_number NUMBER, int B_IS_MN> struct cei_wgmma;

template <enum cei_number NUMBER, int B_IS_MN> struct cei_wgmma<128, NUMBER, B_IS_MN> {
	/* keeps 0: the products replace the sums; 1: they are added to the sums. */
	static __device__ __forceinline__ void
	multiply(float (&d)[64], uint64_t a, uint64_t b, int keeps)
	{
		if constexpr (NUMBER == CEI_NUMBER_BF16)
			asm volatile(CEI_WGMMA_128("bf16")
				     : CEI_D64(d, 0)
				     : "l"(a), "l"(b), "r"(keeps), "n"(B_IS_MN));
		else
			asm volatile(CEI_WGMMA_128("f16")
				     : CEI_D64(d, 0)
				     : "l"(a), "l"(b), "r"(keeps), "n"(B_IS_MN));
	}
};

template <enum cei_number NUMBER, int B_IS_MN> struct cei_wgmma<192, NUMBER, B_IS_MN> {
	/* keeps 0: the products replace the sums; 1: they are added to the sums. */
	static __device__ __forceinline__ void
	multiply(float (&d)[96], uint64_t a, uint64_t b, int keeps)
	{
		if constexpr (NUMBER == CEI_NUMBER_BF16)
			asm volatile(CEI_WGMMA_192("bf16")
				     : CEI_D64(d, 0), CEI_D16(d, 64), CEI_D16(d, 80)
				     : "l"(a), "l"(b), "r"(keeps), "n"(B_IS_MN));
		else
			asm volatile(CEI_WGMMA_192("f16")
				     : CEI_D64(d, 0), CEI_D16(d, 64), CEI_D16(d, 80)
				     : "l"(a), "l"(b), "r"(keeps), "n"(B_IS_MN));
	}
};

template <enum cei_number NUMBER, int B_IS_MN> struct cei_wgmma<256, NUMBER, B_IS_MN> {
	/* keeps 0: the products replace the sums; 1: they are added to the sums. */
	static __device__ __forceinline__ void
	multiply(float (&d)[128], uint64_t a, uint64_t b, int keeps)
	{
		if constexpr (NUMBER == CEI_NUMBER_BF16)
			asm volatile(CEI_WGMMA_256("bf16")
				     : CEI_D64(d, 0), CEI_D64(d, 64)
				     : "l"(a), "l"(b), "r"(keeps), "n"(B_IS_MN));
		else
			asm volatile(CEI_WGMMA_256("f16")
				     : CEI_D64(d, 0), CEI_D64(d, 64)
				     : "l"(a), "l"(b), "r"(keeps), "n"(B_IS_MN));
	}
};

#endif /* CEI_GEMM_WGMMA_CUH */
