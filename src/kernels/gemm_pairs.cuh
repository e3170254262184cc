/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_GEMM_PAIRS_CUH
#define CEI_GEMM_PAIRS_CUH

/*
 * Decides which pair of tiles a cluster of the GEMM works on next. The list of pairs is dealt out
 * in n_columns columns: column c has pairs c, c + n_columns, c + 2 * n_columns, ...
 *
 *   claimed is NULL   cluster c has column c; there are as many columns as clusters
 *   else              clusters claim columns, from 0 on
 *
 * The first rule costs nothing. It is right if nothing that tiles await depends on other tiles. It
 * can hang if peers' GEMMs await what this GEMM computes: a cluster that finds no SM, because
 * another kernel occupies it or the stream has only a part of the GPU, leaves its pairs undone;
 * the clusters that do run wait for peers, and the peers wait for those pairs. So clusters claim
 * columns in that case: those that run do all of them, and a cluster that starts later finds none
 * left.
 *
 * With as many columns as clusters each cluster has one, as a rule, and takes one pair after
 * another without asking. It stops in front of pair n_free, from which on pairs may await sums of
 * peers, and claims once more. If there is no column left, all pairs are in the hands of clusters
 * that run, and it goes on. Else it does the claimed column up to the same pair first. Then its
 * further pairs, of all its columns, follow in the list's order. So before a pair awaits anything,
 * all pairs in front of it in the list have been done or have a cluster that runs and takes them
 * in that order, which is what lists are made for (tiles.h). For the first pair of each column
 * that is so without asking, since columns are claimed from 0 on.
 *
 * With as many columns as pairs each free cluster takes the next pair of the list. That divides
 * the work best where few clusters run, but costs 3 to 15 % of a short product (measured).
 *
 *   warp 3 of block 0   claims, tells both blocks   --told-->    all others
 *                                                   <--taken--
 *
 * A claim that follows a pair is made when the loading thread is CEI_PAIR_LEAD steps before the
 * end of that pair, which is just in time. Earlier claims would take columns from clusters that
 * are about to start, or spoil the list's order: if clusters claimed two pairs at the start, they
 * worked on every other pair first, pieces were complete one wave later, and GEMM + reduce-scatter
 * took 22 to 50 us longer (measured).
 *
 * In a launch n_columns claims get a column, and each cluster makes one more claim, which gets
 * none. So *claimed counts n_columns + n_clusters claims and then wraps to 0, ready for the next
 * launch or replay.
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
					 * block 0's are used, as are all further members but
					 * pair */
	uint64_t due[CEI_PAIR_SLOTS];   /* [turn % slots]: it is time to claim behind the pair of
					 * that turn */
	uint32_t pair[CEI_PAIR_SLOTS];  /* [slot]: the number of a pair */
	uint32_t first;                 /* the number of the cluster's first pair */
	uint8_t  kept[CEI_GEMM_CLUSTERS_MAX];   /* claimed columns with pairs that are left, in
						 * ascending order */
};

/* Called by one thread of each block; the cluster's barrier must follow. */
static __device__ __forceinline__ void cei_pairs_init(struct cei_pair_bars *bars)
{
	for (uint32_t i = 0; i < CEI_PAIR_SLOTS; i++) {
		cei_bar_init(&bars->told[i], 1);
		cei_bar_init(&bars->taken[i], CEI_PAIR_TAKERS * CEI_GEMM_CLUSTER);
		cei_bar_init(&bars->due[i], 1);
	}
}

/* Claims the next column and returns its number; n_columns or more: there are no more. */
static __device__ __forceinline__ uint32_t cei_pair_claim(const struct cei_gemm &p)
{
	const uint32_t last = p.n_columns + gridDim.x / CEI_GEMM_CLUSTER - 1;
	uint32_t column;

	/* relaxed: clusters exchange nothing but this number. Its partners are the claims
	 * of other clusters; launches follow each other, which orders everything else. */
	asm volatile("atom.relaxed.gpu.inc.u32 %0, [%1], %2;"
		     : "=r"(column) : "l"(p.claimed), "r"(last) : "memory");
	return column;
}

/* Claims the cluster's first column, whose number it returns, and sets its first pair. Called by
 * the thread that claims; the cluster's barrier must follow. */
static __device__ __forceinline__ uint32_t cei_pair_claim_first(const struct cei_gemm &p,
								struct cei_pair_bars *bars)
{
	const uint32_t column = cei_pair_claim(p);

	bars->first = column < p.n_columns ? column : p.n_pairs;
	return column;
}

/* What the thread that claims knows of the pairs that it has told. A turn is a pair's number in the
 * order in which the cluster takes its pairs; turn 0 is the first pair, which is not told. */
struct cei_pair_teller {
	uint32_t turn;                  /* of the next pair to be told */
	uint32_t n_due;                 /* turns for which `due` was awaited */
};

/* Awaits that it is time to claim behind the pairs of all turns before n. The turns are awaited one
 * by one, because a barrier knows only whether the number of its phase is even. */
static __device__ __forceinline__ void cei_pair_await_due(struct cei_pair_bars *bars,
							  struct cei_pair_teller *teller,
							  uint32_t n)
{
	for (; teller->n_due < n; teller->n_due++)
		cei_bar_wait(&bars->due[teller->n_due % CEI_PAIR_SLOTS],
			     teller->n_due / CEI_PAIR_SLOTS % 2);
}

/* Tells both blocks the number of their next pair. Not before the pair two turns earlier nears its
 * end, so that no barrier of `due` is a phase ahead of this thread. */
static __device__ __forceinline__ void cei_pair_tell(struct cei_pair_bars *bars,
						     struct cei_pair_teller *teller, uint32_t pair)
{
	const uint32_t told = teller->turn - 1, slot = told % CEI_PAIR_SLOTS;

	cei_pair_await_due(bars, teller, told);
	cei_bar_wait(&bars->taken[slot], (told / CEI_PAIR_SLOTS + 1) % 2);
	for (uint32_t block = 0; block < CEI_GEMM_CLUSTER; block++)
		cei_word_send(&bars->pair[slot], pair, &bars->told[slot], block);
	teller->turn++;
}

/* Run by one thread of block 0, which has claimed the column `first`: claims further ones, and
 * tells both blocks the numbers of their pairs but the first. The last number is n_pairs. */
static __device__ __forceinline__ void
cei_pairs_tell(const struct cei_gemm &p, struct cei_pair_bars *bars, uint32_t first)
{
	/* the first pair that may be told only when all columns are claimed */
	const uint32_t limit = p.n_free > p.n_columns ? p.n_free : p.n_columns;
	struct cei_pair_teller teller = { 1, 0 };
	uint32_t n_kept = 0, column = first, pair = first + p.n_columns, round, i;

	if (first >= p.n_columns)
		return;
	do {
		for (; pair < p.n_pairs && pair < limit; pair += p.n_columns)
			cei_pair_tell(bars, &teller, pair);
		if (pair < p.n_pairs)
			bars->kept[n_kept++] = (uint8_t)column;
		cei_pair_await_due(bars, &teller, teller.turn);
		pair = column = cei_pair_claim(p);
	} while (column < p.n_columns);
	for (round = limit - limit % p.n_columns; n_kept && round < p.n_pairs;
	     round += p.n_columns)
		for (i = 0; i < n_kept; i++) {
			pair = round + bars->kept[i];
			if (pair >= limit && pair < p.n_pairs)
				cei_pair_tell(bars, &teller, pair);
		}
	cei_pair_tell(bars, &teller, p.n_pairs);
}

/* Called by the loading thread of each block at every step of a pair. turn: of that pair. Signals
 * when it is time to claim behind the pair. */
static __device__ __forceinline__ void
cei_pair_look_ahead(const struct cei_gemm &p, struct cei_pair_bars *bars, uint32_t turn,
		    uint32_t step)
{
	const uint32_t due = p.n_steps > CEI_PAIR_LEAD ? p.n_steps - CEI_PAIR_LEAD : 0;

	if (p.claimed && step == due && !cei_cluster_block())
		cei_bar_arrive(&bars->due[turn % CEI_PAIR_SLOTS]);
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
	const uint32_t turn = (*n)++, told = turn - 1, slot = told % CEI_PAIR_SLOTS;
	uint32_t pair;

	if (!p.claimed)
		return (blockIdx.x + turn * gridDim.x) / CEI_GEMM_CLUSTER;
	if (!turn)
		return cei_word_load_at(&bars->first, 0);
	cei_bar_wait_cluster(&bars->told[slot], told / CEI_PAIR_SLOTS % 2);
	pair = cei_word_load(&bars->pair[slot]);
	if (WARP)
		__syncwarp();
	if (!WARP || threadIdx.x % 32 == 0)
		cei_bar_arrive_at(&bars->taken[slot], 0);
	return pair;
}

#endif /* CEI_GEMM_PAIRS_CUH */
