/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_GEMM_SM90_CUH
#define CEI_GEMM_SM90_CUH

/* The instructions of sm_90a that the GEMM uses, one function each. See PTX ISA 8.x,
 * chapters "mbarrier", "cp.async.bulk.tensor", "wgmma"; those that other kernels use as well are in
 * bulk.cuh. */

#include <stdint.h>

#include "kernels/bulk.cuh"
#include "kernels/gemm.h"

/* --- barriers in shared memory ------------------------------------------------------ */

/* Waits like cei_bar_wait(), for data that the cluster's other block wrote. It invalidates the SM's
 * L1 cache, so it should be used rarely. */
static __device__ __forceinline__ void cei_bar_wait_cluster(uint64_t *bar, uint32_t parity)
{
	asm volatile("{\n"
		     ".reg .pred done;\n"
		     "again:\n"
		     "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
		     "@done bra out;\n"
		     "bra again;\n"
		     "out:\n"
		     "}\n" :: "r"(cei_shared(bar)), "r"(parity) : "memory");
}

/* Arrives at the barrier with the same address in another block of the cluster. It is not a
 * .release.cluster: that would cost a membar of the whole GPU each time (measured: a third of the
 * GEMM's speed), and a stage that was only read has nothing to release. */
static __device__ __forceinline__ void cei_bar_arrive_at(uint64_t *bar, uint32_t block)
{
	asm volatile("{\n"
		     ".reg .b32 there;\n"
		     "mapa.shared::cluster.u32 there, %0, %1;\n"
		     "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
		     "}\n" :: "r"(cei_shared(bar)), "r"(block) : "memory");
}

/* Stores a word at the same address of another block of the cluster. The barrier `bar` of that
 * block counts an arrival when the word has come. That needs no release, which would cost a
 * membar. */
static __device__ __forceinline__ void cei_word_send(uint32_t *target, uint32_t word,
						     uint64_t *bar, uint32_t block)
{
	asm volatile("{\n"
		     ".reg .b32 bar, there;\n"
		     "mapa.shared::cluster.u32 bar, %0, %3;\n"
		     "mapa.shared::cluster.u32 there, %1, %3;\n"
		     "mbarrier.arrive.expect_tx.shared::cluster.b64 _, [bar], 4;\n"
		     "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32"
		     " [there], %2, [bar];\n"
		     "}\n" :: "r"(cei_shared(bar)), "r"(cei_shared(target)), "r"(word),
			"r"(block) : "memory");
}

static __device__ __forceinline__ uint32_t cei_word_load(const uint32_t *source)
{
	uint32_t word;

	asm volatile("ld.shared.u32 %0, [%1];"
		     : "=r"(word) : "r"(cei_shared(source)) : "memory");
	return word;
}

/* Loads the word at the same address of a block of the cluster. */
static __device__ __forceinline__ uint32_t cei_word_load_at(const uint32_t *source, uint32_t block)
{
	uint32_t word;

	asm volatile("{\n"
		     ".reg .b32 there;\n"
		     "mapa.shared::cluster.u32 there, %1, %2;\n"
		     "ld.shared::cluster.u32 %0, [there];\n"
		     "}\n" : "=r"(word) : "r"(cei_shared(source)), "r"(block) : "memory");
	return word;
}

/* Named barriers: threads that call sync wait for those that call arrive. */
static __device__ __forceinline__ void cei_named_sync(uint32_t id, uint32_t n_threads)
{
	asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(n_threads) : "memory");
}

static __device__ __forceinline__ void cei_named_arrive(uint32_t id, uint32_t n_threads)
{
	asm volatile("bar.arrive %0, %1;" :: "r"(id), "r"(n_threads) : "memory");
}

static __device__ __forceinline__ uint32_t cei_cluster_block()
{
	uint32_t block;

	asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(block));
	return block;
}

static __device__ __forceinline__ void cei_cluster_sync()
{
	asm volatile("barrier.cluster.arrive.release.aligned;\n"
		     "barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* --- tensor copies ------------------------------------------------------------------- */

static __device__ __forceinline__ void cei_map_prefetch(const struct cei_gemm_map *map)
{
	asm volatile("prefetch.tensormap [%0];" :: "l"(map) : "memory");
}

struct cei_box {                        /* the position of a box in a matrix */
	int32_t column;
	int32_t row;
};

static __device__ __forceinline__ void
cei_box_load(void *target, const struct cei_gemm_map *map, struct cei_box at, uint64_t *bar)
{
	asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile"
		     ".mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
		     :: "r"(cei_shared(target)), "l"(map), "r"(at.column), "r"(at.row),
			"r"(cei_shared(bar)) : "memory");
}

/* Loads a box into both blocks of the cluster, at the same address, and counts its bytes at the
 * same barrier in each. */
static __device__ __forceinline__ void
cei_box_load_both(void *target, const struct cei_gemm_map *map, struct cei_box at,
		  uint64_t *bar)
{
	asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile"
		     ".mbarrier::complete_tx::bytes.multicast::cluster"
		     " [%0], [%1, {%2, %3}], [%4], %5;"
		     :: "r"(cei_shared(target)), "l"(map), "r"(at.column), "r"(at.row),
			"r"(cei_shared(bar)), "h"((uint16_t)3) : "memory");
}

static __device__ __forceinline__ void
cei_box_store(const struct cei_gemm_map *map, struct cei_box at, const void *source)
{
	asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"
		     " [%0, {%1, %2}], [%3];"
		     :: "l"(map), "r"(at.column), "r"(at.row), "r"(cei_shared(source))
		     : "memory");
}

/* --- tensor cores --------------------------------------------------------------------- */

/* Returns the descriptor of a K-major operand, in rows of 128 bytes, swizzled by 128 bytes; groups
 * of 8 rows are 1024 bytes apart. Adding 2 to it moves on by 16 columns. */
static __device__ __forceinline__ uint64_t cei_operand(const void *p)
{
	uint64_t address = cei_shared(p);

	return ((address & 0x3ffff) >> 4) | ((uint64_t)1 << 16) |
		((uint64_t)(1024 >> 4) << 32) | ((uint64_t)1 << 62);
}

/* Returns the descriptor of an MN-major operand, in boxes of 64 columns x 64 rows of k. Boxes are
 * 8192 bytes apart, which is the leading offset; groups of 8 rows are 1024 bytes apart. Adding 128
 * to it moves on by 16 rows. */
static __device__ __forceinline__ uint64_t cei_operand_mn(const void *p)
{
	uint64_t address = cei_shared(p);

	return ((address & 0x3ffff) >> 4) | ((uint64_t)(8192 >> 4) << 16) |
		((uint64_t)(1024 >> 4) << 32) | ((uint64_t)1 << 62);
}

static __device__ __forceinline__ void cei_wgmma_fence()
{
	asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ __forceinline__ void cei_wgmma_commit()
{
	asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits until at most N groups of wgmma instructions are in flight. */
template <int N> static __device__ __forceinline__ void cei_wgmma_wait()
{
	asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory");
}

template <int N> static __device__ __forceinline__ void cei_registers_grow()
{
	asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(N));
}

template <int N> static __device__ __forceinline__ void cei_registers_shrink()
{
	asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(N));
}

/* --- 16 x 16 numbers between registers and shared memory ------------------------------- */

struct cei_fragment {                   /* two numbers in each word, as wgmma lays them out */
	uint32_t pair[4];
};

static __device__ __forceinline__ void
cei_fragment_store(uint32_t target, const struct cei_fragment &fragment)
{
	asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
		     :: "r"(target), "r"(fragment.pair[0]), "r"(fragment.pair[1]),
			"r"(fragment.pair[2]), "r"(fragment.pair[3]) : "memory");
}

static __device__ __forceinline__ struct cei_fragment cei_fragment_load(uint32_t source)
{
	struct cei_fragment fragment;

	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
		     : "=r"(fragment.pair[0]), "=r"(fragment.pair[1]),
		       "=r"(fragment.pair[2]), "=r"(fragment.pair[3])
		     : "r"(source) : "memory");
	return fragment;
}

#endif /* CEI_GEMM_SM90_CUH */
