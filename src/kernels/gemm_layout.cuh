/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_GEMM_LAYOUT_CUH
#define CEI_GEMM_LAYOUT_CUH

/* The layout of a block's shared memory in the GEMM, and which part of a tile belongs to which
 * group of threads. gemm_kernels.cu describes the roles of warps. */

#include <stdint.h>

#include "kernels/gemm.h"
#include "kernels/gemm_pairs.cuh"
#include "kernels/gemm_sm90.cuh"

namespace cei_gemm_kernels {

#define GROUPS        2u                /* groups of multiplying threads, a warpgroup each */
#define GROUP_THREADS 128u
#define CLAIMER       96u               /* warp 3's first thread */
/* A panel of C in shared memory, and of a k x n B, has rows of 128 bytes. */
#define PANEL_COLUMNS 64u
#define BOX_BYTES     (PANEL_COLUMNS * CEI_GEMM_K_STEP * 2u)    /* of a box of a k x n B */

/* Numbers of the first group's named barriers; those of the second group are one higher. Number 0
 * is used by __syncthreads(). */
enum { BAR_C_FULL = 1, BAR_C_EMPTY = 3 };
#define C_THREADS (GROUP_THREADS + 32u)

template <uint32_t ROWS, uint32_t COLUMNS, bool B_IS_KN> struct layout {
	static constexpr uint32_t rows = ROWS;
	static constexpr uint32_t columns = COLUMNS;
	static constexpr bool b_is_kn = B_IS_KN;        /* true: B is k x n; false: n x k */
	static constexpr uint32_t group_rows = ROWS / GROUPS;
	static constexpr uint32_t blocks = group_rows / 64; /* blocks of 64 rows in a group */
	static constexpr uint32_t panels = COLUMNS / PANEL_COLUMNS;
	static constexpr uint32_t panel_bytes = group_rows * 128;
	static constexpr uint32_t a_bytes = ROWS * 128;
	static constexpr uint32_t b_bytes = COLUMNS * 128;
	static constexpr uint32_t stage_bytes = CEI_GEMM_STAGE_BYTES(ROWS, COLUMNS);
	static constexpr uint32_t stages = CEI_GEMM_STAGES(ROWS, COLUMNS);
	static constexpr uint32_t c_bytes = GROUPS * panels * panel_bytes;
	typedef float sums[blocks][COLUMNS / 2];        /* the accumulators of one thread */
};

struct bars {
	uint64_t full[8];               /* [stage]: its A and B were loaded */
	uint64_t empty[8];              /* [stage]: both blocks have read it */
	uint64_t sum_full[GROUPS][4];   /* [group][panel]: partial sums were loaded */
	uint64_t sum_empty[GROUPS][4];  /* [group][panel]: partial sums were added */
	struct cei_pair_bars pairs;
	uint32_t failed;
};

struct shared {
	uint8_t     *stage;             /* ring of stages; in each A, then B */
	uint8_t     *c;                 /* the tile of C: by group, in it by panel */
	struct bars *bars;
};

struct turn {                           /* a position in a ring of stages */
	uint32_t index;
	uint32_t parity;
};

static __device__ __forceinline__ void turn_next(struct turn *turn, uint32_t n)
{
	if (++turn->index == n) {
		turn->index = 0;
		turn->parity ^= 1;
	}
}

static __device__ __forceinline__ struct cei_gemm_tile
tile_at(const struct cei_gemm &p, uint32_t pair, uint32_t block)
{
	return p.tiles[CEI_GEMM_CLUSTER * pair + block];
}

/* Returns how many rows of the group's half of the tile are stored. */
template <class L>
static __device__ __forceinline__ uint32_t rows_of(const struct cei_gemm_tile &tile,
						   uint32_t group)
{
	const uint32_t before = group * L::group_rows;

	return tile.n_rows <= before ? 0 : min(tile.n_rows - before, L::group_rows);
}

template <class L>
static __device__ __forceinline__ struct shared share_out(uint8_t *raw)
{
	struct shared shared;

	/* Tiles that are swizzled must begin at multiples of 1024 bytes. */
	shared.stage = raw + (1024 - cei_shared(raw) % 1024) % 1024;
	shared.c = shared.stage + L::stages * L::stage_bytes;
	shared.bars = (struct bars *)(shared.c + L::c_bytes);
	return shared;
}

} /* namespace */

#endif /* CEI_GEMM_LAYOUT_CUH */
