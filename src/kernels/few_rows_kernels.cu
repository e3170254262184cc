/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * The product of few rows. few_rows.h describes it.
 *
 * A warp computes 8 columns of C: 8 rows of B, which it reads straight into registers, one step of
 * k ahead. All warps of a block share A's part of the step, in shared memory.
 *
 * A tensor core's operands want pairs of neighbours in k from each thread. A thread reads 8
 * neighbours at once instead, and gives them to two products as four pairs. Both operands are read
 * so, and a sum over k may go in any order.
 */

#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/few_rows.h"

/* Elements of k that the four threads of a row read at once, each 8. */
#define FEW_ROWS_WIDE 32u
#define FEW_ROWS_READS (CEI_FEW_ROWS_STEP / FEW_ROWS_WIDE)

/* Elements from one row of A to the next in shared memory. 64 bytes of gap spread the rows that a
 * quarter of a warp reads at once over all banks. */
#define FEW_ROWS_PITCH (CEI_FEW_ROWS_STEP + 32u)

#define FEW_ROWS_PARTS_PITCH (CEI_FEW_ROWS_COLUMNS + 4u)

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define FEW_ROWS_BODY(type, tiles) __trap()     /* the host does not launch it there */
#define FEW_ROWS_CLUSTERS
#else
#define FEW_ROWS_BODY(type, tiles) few_rows<type, tiles>(p)
#define FEW_ROWS_CLUSTERS __cluster_dims__(CEI_FEW_ROWS_CLUSTER, 1, 1)

template <int TILES>                    /* of 16 rows */
union few_rows_shared {
	uint16_t a[2][TILES * 16][FEW_ROWS_PITCH];
	float    parts[TILES * 16][FEW_ROWS_PARTS_PITCH];       /* behind the last step */
};

/* A block's part of k: steps first to end - 1. */
struct few_rows_part {
	uint32_t first;
	uint32_t end;
};

static __device__ __forceinline__ struct few_rows_part few_rows_part(uint32_t k, uint32_t block)
{
	const uint32_t n = (k + CEI_FEW_ROWS_STEP - 1) / CEI_FEW_ROWS_STEP;
	const struct few_rows_part part = { n * block / CEI_FEW_ROWS_CLUSTER,
					    n * (block + 1) / CEI_FEW_ROWS_CLUSTER };

	return part;
}

/* Queues the copies of A's part of a step to shared memory; zeros where A ends. */
template <int TILES>
static __device__ __forceinline__ void few_rows_fetch(const struct cei_few_rows &p,
						      uint16_t (*to)[FEW_ROWS_PITCH],
						      uint32_t step)
{
	const uint32_t vectors = CEI_FEW_ROWS_STEP / 8;
	uint32_t i, row, k, bytes;
	const uint16_t *from;

#pragma unroll
	for (i = threadIdx.x; i < TILES * 16 * vectors; i += CEI_FEW_ROWS_THREADS) {
		row = i / vectors;
		k = step * CEI_FEW_ROWS_STEP + i % vectors * 8;
		bytes = row < p.m && k < p.k ? 16 : 0;
		from = (const uint16_t *)p.a + (bytes ? (uint64_t)row * p.k + k : 0);
		asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n"
			     :: "r"((uint32_t)__cvta_generic_to_shared(
					     &to[row][i % vectors * 8])),
			     "l"(from), "r"(bytes) : "memory");
	}
	asm volatile("cp.async.commit_group;\n" ::: "memory");
}

/* Reads the thread's part of a row of B; zeros where B ends. B is read once, so it does not stay in
 * the caches of SMs. */
static __device__ __forceinline__ void few_rows_read(const struct cei_few_rows &p,
						     const uint16_t *row, uint32_t step,
						     uint4 to[FEW_ROWS_READS])
{
	uint32_t i, k;

#pragma unroll
	for (i = 0; i < FEW_ROWS_READS; i++) {
		k = step * CEI_FEW_ROWS_STEP + i * FEW_ROWS_WIDE + threadIdx.x % 4 * 8;
		to[i] = make_uint4(0, 0, 0, 0);
		if (row && k < p.k)
			asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
				     : "=r"(to[i].x), "=r"(to[i].y), "=r"(to[i].z), "=r"(to[i].w)
				     : "l"(row + k));
	}
}

template <typename T>
static __device__ __forceinline__ void few_rows_multiply(float c[4], const uint32_t a[4],
							 uint32_t b0, uint32_t b1);

template <>
__device__ __forceinline__ void few_rows_multiply<__nv_bfloat16>(float c[4], const uint32_t a[4],
								 uint32_t b0, uint32_t b1)
{
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
		     "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
		     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <>
__device__ __forceinline__ void few_rows_multiply<__half>(float c[4], const uint32_t a[4],
							  uint32_t b0, uint32_t b1)
{
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
		     "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
		     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Multiplies a step's part of A with what the warp has read of B. */
template <typename T, int TILES>
static __device__ __forceinline__ void few_rows_step(float sums[TILES][4],
						     const uint16_t (*a)[FEW_ROWS_PITCH],
						     const uint4 b[FEW_ROWS_READS])
{
	const uint32_t row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 8;
	uint4 low, high;
	uint32_t i;
	int tile;

#pragma unroll
	for (i = 0; i < FEW_ROWS_READS; i++) {
#pragma unroll
		for (tile = 0; tile < TILES; tile++) {
			low = *(const uint4 *)&a[tile * 16 + row][i * FEW_ROWS_WIDE + column];
			high = *(const uint4 *)&a[tile * 16 + row + 8][i * FEW_ROWS_WIDE + column];
			const uint32_t first[4] = { low.x, high.x, low.y, high.y };
			const uint32_t second[4] = { low.z, high.z, low.w, high.w };
			few_rows_multiply<T>(sums[tile], first, b[i].x, b[i].y);
			few_rows_multiply<T>(sums[tile], second, b[i].z, b[i].w);
		}
	}
}

/* Sums the thread's columns over the block's part of k. */
template <typename T, int TILES>
static __device__ __forceinline__ void few_rows_sum(const struct cei_few_rows &p,
						    uint16_t (*a)[TILES * 16][FEW_ROWS_PITCH],
						    struct few_rows_part part,
						    float sums[TILES][4])
{
	const uint32_t column = blockIdx.x / CEI_FEW_ROWS_CLUSTER * CEI_FEW_ROWS_COLUMNS +
		threadIdx.x / 32 * 8 + threadIdx.x % 32 / 4;
	const uint16_t *row = column < p.n ? (const uint16_t *)p.b + (uint64_t)column * p.k : NULL;
	uint4 now[FEW_ROWS_READS], next[FEW_ROWS_READS];
	uint32_t step, i;

	if (part.first == part.end)
		return;
	few_rows_read(p, row, part.first, now);
	few_rows_fetch<TILES>(p, a[0], part.first);
	for (step = part.first; step < part.end; step++) {
		if (step + 1 < part.end) {
			few_rows_read(p, row, step + 1, next);
			few_rows_fetch<TILES>(p, a[(step + 1 - part.first) % 2], step + 1);
			asm volatile("cp.async.wait_group 1;\n" ::: "memory");
		} else {
			asm volatile("cp.async.wait_group 0;\n" ::: "memory");
		}
		__syncthreads();        /* all threads' copies of this step are there */
		few_rows_step<T, TILES>(sums, a[(step - part.first) % 2], now);
		__syncthreads();        /* the copies of the step after the next may begin */
#pragma unroll
		for (i = 0; i < FEW_ROWS_READS; i++)
			now[i] = next[i];
	}
}

static __device__ __forceinline__ void few_rows_round(__nv_bfloat16 *to, float x, float y)
{
	*(__nv_bfloat162 *)to = __floats2bfloat162_rn(x, y);
}

static __device__ __forceinline__ void few_rows_round(__half *to, float x, float y)
{
	*(__half2 *)to = __floats2half2_rn(x, y);
}

/* Adds up the parts of the cluster's blocks, in their order; each block a share of the elements. */
template <typename T, int TILES>
static __device__ __forceinline__ void few_rows_store(const struct cei_few_rows &p,
						      float (*parts)[FEW_ROWS_PARTS_PITCH])
{
	cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
	const uint32_t first = blockIdx.x / CEI_FEW_ROWS_CLUSTER * CEI_FEW_ROWS_COLUMNS;
	const uint32_t pairs = CEI_FEW_ROWS_COLUMNS / 2;
	uint32_t i, block, row, column;
	const float *part;
	float x, y;

	i = cluster.block_rank() * CEI_FEW_ROWS_THREADS + threadIdx.x;
	for (; i < p.m * pairs; i += CEI_FEW_ROWS_CLUSTER * CEI_FEW_ROWS_THREADS) {
		row = i / pairs;
		column = i % pairs * 2;
		if (first + column >= p.n)
			continue;
		for (x = y = 0.0f, block = 0; block < CEI_FEW_ROWS_CLUSTER; block++) {
			part = cluster.map_shared_rank(&parts[row][column], block);
			x += part[0];
			y += part[1];
		}
		few_rows_round((T *)p.c + (uint64_t)row * p.n + first + column, x, y);
	}
}

template <typename T, int TILES>
static __device__ __forceinline__ void few_rows(const struct cei_few_rows &p)
{
	__shared__ __align__(16) union few_rows_shared<TILES> shared;
	cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
	const uint32_t column = threadIdx.x / 32 * 8 + threadIdx.x % 4 * 2;
	const uint32_t row = threadIdx.x % 32 / 4;
	float sums[TILES][4] = {};
	int tile;

	few_rows_sum<T, TILES>(p, shared.a, few_rows_part(p.k, cluster.block_rank()), sums);
#pragma unroll
	for (tile = 0; tile < TILES; tile++) {
		shared.parts[tile * 16 + row][column] = sums[tile][0];
		shared.parts[tile * 16 + row][column + 1] = sums[tile][1];
		shared.parts[tile * 16 + row + 8][column] = sums[tile][2];
		shared.parts[tile * 16 + row + 8][column + 1] = sums[tile][3];
	}
	cluster.sync();                 /* all blocks' parts are there */
	few_rows_store<T, TILES>(p, shared.parts);
	cluster.sync();                 /* no block ends while others read its part */
}

#endif /* __CUDA_ARCH__ */

/* Three blocks share an SM, so that reads of B never cease. */
#define FEW_ROWS_KERNEL(name, type, tiles)                                                    \
	extern "C" __global__ void FEW_ROWS_CLUSTERS                                          \
	__launch_bounds__(CEI_FEW_ROWS_THREADS, 3)                                            \
	cei_few_rows_##name(const __grid_constant__ struct cei_few_rows p)                    \
	{                                                                                     \
		FEW_ROWS_BODY(type, tiles);                                                   \
	}

FEW_ROWS_KERNEL(bf16_16, __nv_bfloat16, 1)
FEW_ROWS_KERNEL(bf16_32, __nv_bfloat16, 2)
FEW_ROWS_KERNEL(bf16_64, __nv_bfloat16, 4)
FEW_ROWS_KERNEL(fp16_16, __half, 1)
FEW_ROWS_KERNEL(fp16_32, __half, 2)
FEW_ROWS_KERNEL(fp16_64, __half, 4)
