/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_FORECAST_H
#define CEI_FORECAST_H

/*
 * How long an overlapped product takes with a given cut and tile shape: its tiles are
 * played through, cluster by cluster, against the copies that they wait for or start.
 * Pure, and the same for whichever rank asks: it is rank 0 that is played, with peers
 * in step with it.
 */

#include "ops/tuning/chooser.h"

struct cei_forecast_question {
	const struct cei_op_shape *shape;       /* a product's */
	const struct cei_rates    *rates;       /* of a GPU with kernels of our own */
	struct cei_tile_shape      tile;        /* one of theirs */
	uint32_t                   n_pieces;
};

/* From the run's begin to its end. Less than 0: too many tiles to play, or no kernel has
 * such tiles. */
double cei_forecast_ns(const struct cei_forecast_question *question);

/* The product alone, with nothing to wait for. */
double cei_forecast_gemm_ns(const struct cei_forecast_question *question);

#define CEI_FORECASTS_MAX 32u

struct cei_forecast {
	double                ns;
	uint32_t              n_pieces;
	struct cei_tile_shape tile;
};

/* Of each cut from first to last, doubled, with each tile shape that the rates' kernels
 * have: fewest pieces first. Without those that cannot be played. Returns how many. */
uint32_t cei_forecast_all(const struct cei_op_shape *shape, const struct cei_rates *rates,
			  uint32_t first, uint32_t last,
			  struct cei_forecast ret_forecasts[CEI_FORECASTS_MAX]);

/* --- for kinds with a product: struct cei_product_kind --- */

#define CEI_PLAY_CLUSTERS_MAX 256u

struct cei_play {
	const struct cei_op_shape *shape;
	const struct cei_rates    *rates;
	struct cei_tile_shape      tile;
	uint32_t                   n_pieces;
	double                     tile_ns;
	uint32_t                   n_clusters;
	uint64_t                   n_played;    /* pairs so far: whose turn it is */
	double                     free_ns[CEI_PLAY_CLUSTERS_MAX];      /* when each cluster
									 * is */
};

/* The pairs of a piece that may begin at from_ns; each ends no earlier than until_ns and
 * takes more_ns longer. Returns when the last one ends. */
double cei_play_piece(struct cei_play *play, uint64_t n_rows, double from_ns, double until_ns,
		      double more_ns);

/* A copy of so many rows, and its mark. */
double cei_play_copy_ns(const struct cei_play *play, uint64_t n_rows, uint64_t columns);

#endif /* CEI_FORECAST_H */
