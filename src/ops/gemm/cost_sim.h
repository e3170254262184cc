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

/* Returns the time from the run's begin to its end. Negative: there are too many tiles to
 * simulate, or no kernel has tiles of this shape. */
double cei_cost_sim_ns(const struct cei_cost_sim_args *args);

/* Returns the time of the product alone, if no tile has to wait. Negative: as above. */
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

/* Simulates the pairs of tiles of a piece with n_rows rows. A pair begins when its cluster
 * is free, but not before from_ns. When it is computed, but not before until_ns, it takes
 * more_ns in addition. Returns when the last pair ends. */
double cei_play_piece(struct cei_play *play, uint64_t n_rows, double from_ns, double until_ns,
		      double more_ns);

/* Returns the time of a copy of n_rows rows with so many columns, and of its mark. */
double cei_play_copy_ns(const struct cei_play *play, uint64_t n_rows, uint64_t columns);

#endif /* CEI_COST_SIM_H */
