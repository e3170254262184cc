/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * A user's own GEMM between two collectives, C = A B^T in bf16: tiles wait for the piece
 * of A that they read and arrive at the piece of C that they belong to, so that an
 * all-gather of A goes on in front of the kernel and an all-to-all of C behind it, both
 * by copy engines, while it runs.
 *
 * It is meant to be read: nothing is staged, so it is far from what the GPU can do.
 * ceov_ag_gemm_run() and ceov_gemm_rs_run() of <ceoverlap/ops.h> are the fast ones.
 *
 * Row-major: A is rows x k, B n x k, C rows x n; 32-byte aligned; rows of a piece and n
 * multiples of 64, k of 16. Each rank's rows are cut into n_pieces pieces, numbered
 * rank * n_pieces + piece: the counters of <ceoverlap/collective.h>. Needs sm_80 (wmma
 * of bf16).
 */

#include <cuda_bf16.h>
#include <mma.h>

#include <ceoverlap/device.cuh>

using namespace nvcuda;

static constexpr uint32_t TILE = 64;            /* rows and columns */
static constexpr uint32_t THREADS = 128;        /* 4 warps, 16 rows of the tile each */

struct tile {
	uint32_t row, column;                   /* the first of C's; the row is A's, too */
	uint32_t piece;
	uint32_t is_own;                        /* own rows of A are in place: no waiting */
};

struct gemm {
	const __nv_bfloat16 *a;                 /* gathered: written while the kernel runs,
						 * so it must not be __restrict__: such
						 * loads may pass by what arrives */
	const __nv_bfloat16 *b;
	__nv_bfloat16       *c;
	uint32_t             k, n;
	const struct tile   *tiles;             /* in the order in which pieces come, lest a
						 * block waits while its next tile could
						 * run: own rows first, then piece 0 of
						 * rank - 1, rank - 2, ..., then piece 1 */
	uint32_t             n_tiles;
	uint32_t             tiles_per_piece;   /* rows of a piece / 64 * n / 64 */
	ceov_device_signal   arrived;           /* of the all-gather; all zero: A is here */
	ceov_device_signal   ready;             /* of the all-to-all; all zero: C stays */
	uint64_t             value;             /* the launch's base + 1 */
	uint64_t             timeout_ns;        /* of each wait */
	int                 *status;            /* 0; see gemm_tiles() */
};

/* One warp: 16 rows of the tile, all its columns, into shared memory. */
static __device__ void multiply(const struct gemm &g, const struct tile &tile, float *sums)
{
	const uint32_t row = threadIdx.x / 32 * 16;
	const __nv_bfloat16 *a_rows = g.a + (size_t)(tile.row + row) * g.k;
	const __nv_bfloat16 *b_rows = g.b + (size_t)tile.column * g.k;
	wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> a;
	wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::col_major> b;
	wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[TILE / 16];

	for (uint32_t i = 0; i < TILE / 16; i++)
		wmma::fill_fragment(sum[i], 0.0f);
	for (uint32_t k = 0; k < g.k; k += 16) {
		wmma::load_matrix_sync(a, a_rows + k, g.k);
		for (uint32_t i = 0; i < TILE / 16; i++) {
			wmma::load_matrix_sync(b, b_rows + i * 16 * (size_t)g.k + k, g.k);
			wmma::mma_sync(sum[i], a, b, sum[i]);
		}
	}
	for (uint32_t i = 0; i < TILE / 16; i++)
		wmma::store_matrix_sync(sums + row * TILE + i * 16, sum[i], TILE,
					wmma::mem_row_major);
}

/*
 * Blocks of 128 threads, no more than the GPU holds at once. They take tiles in the
 * list's order.
 *
 * *status != 0 (a ceov_device_result): a wait failed, its block left and its tiles have
 * not arrived. C is undefined; after a timeout abort the launches that wait for it, and
 * after either renew the signals (ceov_abort(), ceov_signal_renew()).
 */
extern "C" __global__ void __launch_bounds__(THREADS) gemm_tiles(const struct gemm g)
{
	__shared__ __align__(32) float sums[TILE * TILE];
	__shared__ int left;

	for (uint32_t i = blockIdx.x; i < g.n_tiles; i += gridDim.x) {
		const struct tile tile = g.tiles[i];

		if (threadIdx.x == 0)
			left = tile.is_own || !g.arrived.counters ? CEOV_DEVICE_REACHED :
				ceov_device_await(g.arrived, tile.piece, g.value, g.timeout_ns);
		__syncthreads();                /* what one has seen, all may load */
		if (left) {
			if (threadIdx.x == 0)
				*g.status = left;
			return;
		}
		multiply(g, tile, sums);
		__syncthreads();
		for (uint32_t at = threadIdx.x; at < TILE * TILE; at += THREADS)
			g.c[(size_t)(tile.row + at / TILE) * g.n + tile.column + at % TILE] =
				__float2bfloat16(sums[at]);
		__syncthreads();                /* the whole tile is stored */
		if (threadIdx.x == 0 && g.ready.counters)
			ceov_device_arrive(g.ready, tile.piece, g.tiles_per_piece, g.value);
	}
}
