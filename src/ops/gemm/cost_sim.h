/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_COST_SIM_H
#define CEI_COST_SIM_H

/*
 * Predicts how long an overlapped product takes with a given number of pieces and tile shape. It
 * simulates the tiles, cluster by cluster, and the copies that they wait for or start. All ranks
 * get the same result, because it depends only on the arguments: rank 0 is simulated, and its peers
 * are assumed to be equally fast.
 */

#include "ops/tuning/selector.h"

struct cei_cost_sim_args {
	const struct cei_op_shape *shape;       /* of an op with a product */
	const struct cei_rates    *rates;       /* of a GPU that has our own kernels */
	struct cei_tile_shape      tile;        /* one of these kernels' tile shapes */
	uint32_t                   n_pieces;
	enum ceov_op_cut           cut;
	enum ceov_op_order         order;       /* only CEOV_ORDER_TURNS makes a difference: what
						 * caches gain is not simulated */
};

/* Returns how the rows are cut. The rates may be any. Of a tile that no kernel has, as those of
 * cuBLAS are, the waves are not known; then they are those of the kernels' largest tiles. */
struct cei_row_cut cei_cost_sim_cut(const struct cei_cost_sim_args *args);

/* Returns the time from the beginning of the run to its end. Negative: there are too many tiles to
 * simulate, or no kernel has tiles of this shape. */
double cei_cost_sim_ns(const struct cei_cost_sim_args *args);

/* Returns the time of the product alone, as if no tile had to wait. Negative: see
 * cei_cost_sim_ns(). */
double cei_cost_sim_gemm_ns(const struct cei_cost_sim_args *args);

#define CEI_COST_SIMS_MAX 32u

/* The result of one simulation. */
struct cei_cost_sim {
	double                ns;
	uint32_t              n_pieces;
	struct cei_tile_shape tile;
	enum ceov_op_cut      cut;
	enum ceov_op_order    order;
};

/* The numbers of pieces to simulate: first, twice first, ..., up to last. */
struct cei_cost_cuts {
	uint32_t first;
	uint32_t last;
};

/* Simulates each number of pieces with each tile shape of the kernels, the fewest pieces first; of
 * args shape, rates, order and cut are read. Combinations that cannot be simulated are left out.
 * Returns how many results there are. */
uint32_t cei_cost_sim_all(const struct cei_cost_sim_args *args, struct cei_cost_cuts cuts,
			  struct cei_cost_sim ret_forecasts[CEI_COST_SIMS_MAX]);

/* --- for kinds with a product, which define struct cei_product_kind --- */

#define CEI_PLAY_CLUSTERS_MAX 256u

/* The state of a simulation. */
struct cei_play {
	const struct cei_op_shape *shape;
	const struct cei_rates    *rates;
	struct cei_tile_shape      tile;
	uint32_t                   n_pieces;
	struct cei_row_cut         cut;
	enum ceov_op_order         order;
	double                     tile_ns;
	uint32_t                   n_clusters;
	uint64_t                   n_played;    /* pairs of tiles simulated so far; determines
						 * the next cluster */
	double                     free_ns[CEI_PLAY_CLUSTERS_MAX];      /* [cluster]: when it has
									 * finished its pairs */
};

/* A piece of a peer: the step-th in the order in which peers are served, from 1 on. */
struct cei_play_turn {
	uint32_t step;
	uint32_t piece;
};

/* Returns which piece comes at-th of the (n_ranks - 1) * n_pieces pieces of peers. */
struct cei_play_turn cei_play_turn_at(const struct cei_play *play, uint32_t at);

/* Returns how many of these there are. */
uint32_t cei_play_turns(const struct cei_play *play);

/* Simulates the pairs of tiles of one piece, which has n_rows rows. A pair begins when its cluster
 * is free, but not before from_ns. Returns when the last pair ends. */
double cei_play_piece(struct cei_play *play, uint64_t n_rows, double from_ns);

/* For products whose rows go to other ranks: simulates the tiles of one piece of a peer's rows, and
 * the copy of it, which waits for the lane. *lane_ns: when that is free.
 * arrived_ns[piece of the own rows]: when it has come from all peers, as far as simulated; 0 at
 * first. */
void cei_play_send(struct cei_play *play, struct cei_play_turn turn, double *lane_ns,
		   double arrived_ns[CEI_OP_PIECES_MAX]);

/* Simulates cei_play_send() for each piece of each peer, in the order of tiles, on a lane that is
 * free. */
void cei_play_sends(struct cei_play *play, double ret_arrived_ns[CEI_OP_PIECES_MAX]);

/* Simulates the tiles of one piece of the own rows, which add the partial sums of all peers when
 * these have arrived. Returns when its last tile is stored; 0: it has no rows. */
double cei_play_sum(struct cei_play *play, uint32_t piece, double arrived_ns);

/* For products whose rows come from other ranks: simulates the tiles of the own rows, and then
 * those of peers' rows as these arrive. All senders are assumed to be equally fast. */
void cei_play_gathered(struct cei_play *play);

/* Lets the run end no earlier than at `ns`. */
void cei_play_until(struct cei_play *play, double ns);

/* Returns how long it takes to copy n_rows rows of that many columns and to raise a mark behind
 * them. */
double cei_play_copy_ns(const struct cei_play *play, uint64_t n_rows, uint64_t columns);

/* The same of copies that a lane makes behind a mark of this rank's product, for which it waits. */
double cei_play_sent_ns(const struct cei_play *play, uint64_t n_rows, uint64_t columns);

#endif /* CEI_COST_SIM_H */
