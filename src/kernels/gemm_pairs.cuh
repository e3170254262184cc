/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_GEMM_PAIRS_CUH
#define CEI_GEMM_PAIRS_CUH

/*
 * Decides which pair of tiles a cluster of the GEMM works on next.
 *
 *   claimed NULL   cluster c of n takes pairs c, c + n, c + 2n, ...
 *   else           clusters claim pairs, in the list's order
 *
 * The first rule costs nothing. It is right if nothing that tiles await depends on other
 * tiles. It is wrong if peers' GEMMs await what this one computes: a cluster that finds no
 * SM, because another kernel has it, leaves its pairs undone, while the clusters that run
 * fill their SMs with tiles that wait for peers, which wait for those pairs. In that case
 * clusters claim pairs: those that run do all of them, and a cluster that comes later finds
 * none left. A claim may be made early: a pair that is claimed after a waiting one stands
 * behind it in the list, where there are only tiles that nobody else awaits (tiles.h).
 *
 *   warp 3 of block 0   claims, tells both blocks   --told-->    all others
 *                                                   <--taken--
 *
 * The next pair is claimed when the loading thread is CEI_PAIR_LEAD steps from the end of
 * the present one, just in time for it. Earlier would spoil the list's order: clusters that
 * claimed two pairs at the start worked on every other pair first, pieces were complete one
 * wave later, and GEMM + reduce-scatter took 22 to 50 us longer (measured).
 *
 * In a launch n_pairs claims get a pair, and each cluster makes one more claim that gets
 * none. So *claimed counts n_pairs + n_clusters claims and wraps to 0, ready for the next
 * launch or replay.
 */

#include <stdint.h>

#include "kernels/gemm.h"
#include "kernels/gemm_sm90.cuh"

#define CEI_PAIR_SLOTS 2u

/* In steps of CEI_GEMM_K_STEP, about 0.8 us each: a claim and its distribution take 2 to 3. */
#define CEI_PAIR_LEAD 8u

/* Arrivals that release a slot: the loading thread, two storing and eight multiplying
 * warps. */
#define CEI_PAIR_TAKERS 11u

struct cei_pair_bars {
	uint64_t told[CEI_PAIR_SLOTS];
	uint64_t taken[CEI_PAIR_SLOTS]; /* those of block 0 are used, for both blocks */
	uint64_t due;                   /* in block 0: the time has come to claim the next pair */
	uint32_t pair[CEI_PAIR_SLOTS];
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

/* Claims the next pair. Returns n_pairs or more if there are no more. */
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

/* Called by one thread of block 0: distributes claimed pairs to both blocks, beginning with
 * first; the last number that it distributes says that there are no more. */
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

/* Called by the loading threads at every step of a pair: signals when it is time to claim
 * the next pair. */
static __device__ __forceinline__ void
cei_pair_look_ahead(const struct cei_gemm &p, struct cei_pair_bars *bars, uint32_t step)
{
	const uint32_t due = p.n_steps > CEI_PAIR_LEAD ? p.n_steps - CEI_PAIR_LEAD : 0;

	if (p.claimed && step == due && !cei_cluster_block())
		cei_bar_arrive(&bars->due);
}

/*
 * Returns the next pair to work on, in the same order for every taker of both blocks;
 * n_pairs or more: there are no more. *n counts the taker's calls, from 0. WARP: called by
 * a whole warp, else by one thread.
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
