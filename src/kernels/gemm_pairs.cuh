/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_GEMM_PAIRS_CUH
#define CEI_GEMM_PAIRS_CUH

/*
 * Decides which pair of tiles a cluster of the GEMM works on next.
 *
 *   claimed is NULL   cluster c of n takes pairs c, c + n, c + 2n, ...
 *   else              clusters claim pairs, in the list's order
 *
 * The first rule costs nothing. It is right if nothing that tiles await depends on other tiles. It
 * can hang if peers' GEMMs await what this GEMM computes: a cluster that finds no SM, because
 * another kernel occupies it, leaves its pairs undone; the clusters that do run wait for peers, and
 * the peers wait for those pairs. So clusters claim pairs in that case: those that run do all of
 * them, and a cluster that starts later finds none left. A claim may come early, even before a pair
 * that must still wait has been computed: what that pair waits for does not depend on any pair
 * behind it, at whichever rank (tiles.h).
 *
 *   warp 3 of block 0   claims, tells both blocks   --told-->    all others
 *                                                   <--taken--
 *
 * The next pair is claimed when the loading thread is CEI_PAIR_LEAD steps before the end of the
 * present pair, which is just in time. Earlier claims would spoil the list's order: if clusters
 * claimed two pairs at the start, they worked on every other pair first, pieces were complete one
 * wave later, and GEMM + reduce-scatter took 22 to 50 us longer (measured).
 *
 * In a launch n_pairs claims get a pair, and each cluster makes one more claim, which gets none. So
 * *claimed counts n_pairs + n_clusters claims and then wraps to 0, ready for the next launch or
 * replay.
 */

#include <stdint.h>

#include "kernels/gemm.h"
#include "kernels/gemm_sm90.cuh"

#define CEI_PAIR_SLOTS 2u

/* In steps of CEI_GEMM_K_STEP, which take about 0.8 us each. A claim and telling it to all threads
 * take 2 to 3 us. */
#define CEI_PAIR_LEAD 8u

/* How many arrivals release a slot: the loading thread's, those of two storing warps, and those of
 * eight multiplying warps. */
#define CEI_PAIR_TAKERS 11u

struct cei_pair_bars {
	uint64_t told[CEI_PAIR_SLOTS];  /* [slot]: its number of a pair has come */
	uint64_t taken[CEI_PAIR_SLOTS]; /* [slot]: all takers of both blocks have read it; only
					 * block 0's are used */
	uint64_t due;                   /* block 0's is used: it is time to claim the next pair */
	uint32_t pair[CEI_PAIR_SLOTS];  /* [slot]: the number of a pair */
};

/* Called by one thread of each block; the cluster's barrier must follow. */
static __device__ __forceinline__ void cei_pairs_init(struct cei_pair_bars *bars)
{
	for (uint32_t i = 0; i < CEI_PAIR_SLOTS; i++) {
		cei_bar_init(&bars->told[i], 1);
		cei_bar_init(&bars->taken[i], CEI_PAIR_TAKERS * CEI_GEMM_CLUSTER);
	}
	cei_bar_init(&bars->due, 1);
}

/* Claims the next pair and returns its number; n_pairs or more: there are no more. */
static __device__ __forceinline__ uint32_t cei_pair_claim(const struct cei_gemm &p)
{
	const uint32_t last = p.n_pairs + gridDim.x / CEI_GEMM_CLUSTER - 1;
	uint32_t pair;

	/* relaxed: clusters exchange nothing but this number. Its partners are the claims
	 * of other clusters; launches follow each other, which orders everything else. */
	asm volatile("atom.relaxed.gpu.inc.u32 %0, [%1], %2;"
		     : "=r"(pair) : "l"(p.claimed), "r"(last) : "memory");
	return pair;
}

/* Run by one thread of block 0: claims pairs and tells both blocks their numbers, beginning with
 * first. The last number that it tells is n_pairs or more. */
static __device__ __forceinline__ void
cei_pairs_tell(const struct cei_gemm &p, struct cei_pair_bars *bars, uint32_t first)
{
	uint32_t pair = first;

	for (uint32_t n = 0; ; n++) {
		const uint32_t slot = n % CEI_PAIR_SLOTS;

		cei_bar_wait(&bars->taken[slot], (n / CEI_PAIR_SLOTS + 1) % 2);
		if (n) {
			cei_bar_wait(&bars->due, (n - 1) % 2);
			pair = cei_pair_claim(p);
		}
		for (uint32_t block = 0; block < CEI_GEMM_CLUSTER; block++)
			cei_word_send(&bars->pair[slot], pair, &bars->told[slot], block);
		if (pair >= p.n_pairs)
			return;
	}
}

/* Called by the loading thread of each block at every step of a pair. Signals when it is time to
 * claim the next pair. */
static __device__ __forceinline__ void
cei_pair_look_ahead(const struct cei_gemm &p, struct cei_pair_bars *bars, uint32_t step)
{
	const uint32_t due = p.n_steps > CEI_PAIR_LEAD ? p.n_steps - CEI_PAIR_LEAD : 0;

	if (p.claimed && step == due && !cei_cluster_block())
		cei_bar_arrive(&bars->due);
}

/*
 * Returns the number of the next pair to work on; n_pairs or more: there are no more. All takers of
 * both blocks get the same numbers in the same order. *n counts the taker's calls, from 0. WARP:
 * true if a whole warp makes the call, false if one thread does.
 */
template <bool WARP>
static __device__ __forceinline__ uint32_t
cei_pair_next(const struct cei_gemm &p, struct cei_pair_bars *bars, uint32_t *n)
{
	const uint32_t turn = (*n)++;
	const uint32_t slot = turn % CEI_PAIR_SLOTS;
	uint32_t pair;

	if (!p.claimed)
		return (blockIdx.x + turn * gridDim.x) / CEI_GEMM_CLUSTER;
	cei_bar_wait_cluster(&bars->told[slot], turn / CEI_PAIR_SLOTS % 2);
	pair = cei_word_load(&bars->pair[slot]);
	if (WARP)
		__syncwarp();
	if (!WARP || threadIdx.x % 32 == 0)
		cei_bar_arrive_at(&bars->taken[slot], 0);
	return pair;
}

#endif /* CEI_GEMM_PAIRS_CUH */
