/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_COST_SIM_H
#define CEI_COST_SIM_H

/*
 * Predicts how long an overlapped product takes with a given cut and tile shape, by
 * simulating its tiles, cluster by cluster, against the copies that they wait for or start.
 * A pure function with the same result on all ranks: it simulates rank 0, with peers at the
 * same pace.
 */

#include "ops/tuning/selector.h"

struct cei_cost_sim_args {
	const struct cei_op_shape *shape;       /* a product's */
	const struct cei_rates    *rates;       /* of a GPU with our own kernels */
	struct cei_tile_shape      tile;        /* one of their tile shapes */
	uint32_t                   n_pieces;
};

/* The time from the run's begin to its end. Negative: too many tiles to simulate, or no
 * kernel has such tiles. */
double cei_cost_sim_ns(const struct cei_cost_sim_args *args);

/* The time of the product alone, without waits. */
double cei_cost_sim_gemm_ns(const struct cei_cost_sim_args *args);

#define CEI_COST_SIMS_MAX 32u

struct cei_cost_sim {
	double                ns;
	uint32_t              n_pieces;
	struct cei_tile_shape tile;
};

/* Simulates each number of pieces from first to last, doubling, with each tile shape of the
 * rates' kernels, fewest pieces first. Leaves out those that cannot be simulated. Returns
 * how many. */
uint32_t cei_cost_sim_all(const struct cei_op_shape *shape, const struct cei_rates *rates,
			  uint32_t first, uint32_t last,
			  struct cei_cost_sim ret_forecasts[CEI_COST_SIMS_MAX]);

/* --- for kinds with a product: struct cei_product_kind --- */

#define CEI_PLAY_CLUSTERS_MAX 256u

struct cei_play {
	const struct cei_op_shape *shape;
	const struct cei_rates    *rates;
	struct cei_tile_shape      tile;
	uint32_t                   n_pieces;
	double                     tile_ns;
	uint32_t                   n_clusters;
	uint64_t                   n_played;    /* pairs so far, which determines the next
						 * cluster */
	double                     free_ns[CEI_PLAY_CLUSTERS_MAX];      /* when each cluster is
									 * free */
};

/* Simulates the pairs of a piece that may begin at from_ns; each ends no earlier than
 * until_ns, and takes more_ns longer. Returns when the last one ends. */
double cei_play_piece(struct cei_play *play, uint64_t n_rows, double from_ns, double until_ns,
		      double more_ns);

/* The time of a copy of so many rows, and its mark. */
double cei_play_copy_ns(const struct cei_play *play, uint64_t n_rows, uint64_t columns);

#endif /* CEI_COST_SIM_H */
