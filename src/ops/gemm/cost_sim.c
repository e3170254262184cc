/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Simulates the tiles and copies of a run in virtual time. */

#include "ops/gemm/cost_sim.h"

#include <stdlib.h>
#include <string.h>

#include "ops/compute/dtype.h"
#include "ops/gemm/product.h"
#include "ops/kind.h"

#define TILES_MAX    (UINT64_C(1) << 20)

/* How long one tile of each shape takes: step_ns for each step of k, and fixed_ns once (fill, drain
 * and store). Measured on H200 with products of 2048 rows (docs/results, "The kernel's tiles"). */
static const struct {
	struct cei_tile_shape shape;
	double                step_ns;
	double                fixed_ns;
} kernels[] = {
	{ { 128, 256 }, 640, 4500 },
	{ { 128, 192 }, 510, 2800 },
	{ { 128, 128 }, 330, 2300 },
};

/* How long a run takes beyond its tiles and copies, to launch the kernel and order it on the
 * stream. */
#define RUN_NS  16000.0

/* The rate at which one SM reads partial sums from the L2 cache. */
#define SUM_BYTES_PER_NS 60.0

/* How many tiles of the host's executor are called a wave. It computes one after another, so any
 * number does; with this one small products have several waves. */
#define HOST_WAVE 2u

/* Pieces of columns begin at multiples of these, so that ranks find the same pieces, whatever tiles
 * each has. On GPUs: the least common multiple of the widths of all kernels' tiles, 128, 192 and
 * 256. The host computes tiles of any width, of which those that divide its step are taken. */
#define GPU_STEP_COLUMNS  768u
#define HOST_STEP_COLUMNS 64u

/* --- cuts ------------------------------------------------------------------ */

/* Returns the tile shape if there is a kernel for it, and the first one of the kernels' if not. */
static struct cei_tile_shape known_tile(const struct cei_cost_sim_args *args)
{
	return cei_selector_lists(args->rates, args->tile) ? args->tile
		: cei_selector_shape(args->rates, 0);
}

struct cei_row_cut cei_cost_sim_cut(const struct cei_cost_sim_args *args)
{
	const struct cei_product_shape *product = &args->shape->product;
	struct cei_row_cut cut = { .kind = args->cut };
	struct cei_tile_shape tile = known_tile(args);
	uint32_t pair = args->rates->pair, i;

	if (cut.kind == CEOV_CUT_COLUMNS)
		cut.step_columns = args->rates->n_sms ? GPU_STEP_COLUMNS : HOST_STEP_COLUMNS;
	if (cut.kind != CEOV_CUT_WAVES)
		return cut;
	for (i = 0; i < product->n_products; i++)
		cut.block_tiles += cei_ceiling(product->n[i], tile.columns);
	cut.block_rows = cei_ceiling((uint64_t)tile.rows * pair, CEI_PIECE_ROWS) * CEI_PIECE_ROWS;
	cut.wave_tiles = args->rates->n_sms ? args->rates->n_sms / pair : HOST_WAVE;
	if (cut.wave_tiles < cut.block_tiles)
		cut.wave_tiles = cut.block_tiles;
	return cut;
}

/* --- simulations ------------------------------------------------------------ */

static int begin(struct cei_play *play, const struct cei_cost_sim_args *args)
{
	uint64_t n_steps = cei_ceiling(args->shape->product.k, CEI_GEMM_K_STEP), n_tiles = 0;
	uint32_t i;

	memset(play, 0, sizeof(*play));
	play->shape = args->shape;
	play->rates = args->rates;
	play->tile = args->tile;
	play->n_pieces = args->n_pieces;
	play->cut = cei_cost_sim_cut(args);
	play->order = args->order;
	play->n_clusters = args->rates->n_sms / args->rates->pair;
	for (i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++)
		if (kernels[i].shape.rows == play->tile.rows &&
		    kernels[i].shape.columns == play->tile.columns)
			play->tile_ns = (double)n_steps * kernels[i].step_ns +
				kernels[i].fixed_ns;
	for (i = 0; i < play->shape->n_ranks && play->tile_ns > 0; i++)
		n_tiles += cei_ceiling(play->shape->rows[i], play->tile.rows) *
			cei_ceiling(play->shape->product.n[0], play->tile.columns);
	return play->tile_ns > 0 && n_tiles < TILES_MAX && play->n_clusters &&
		play->n_clusters <= CEI_PLAY_CLUSTERS_MAX;
}

/* Returns how many pairs of tiles compute so many rows, with all columns of all products. */
static uint64_t pairs_of(const struct cei_play *play, uint64_t n_rows)
{
	uint64_t n = cei_ceiling(cei_ceiling(n_rows, play->tile.rows), play->rates->pair), sum = 0;
	uint32_t i;

	for (i = 0; i < play->shape->product.n_products; i++)
		sum += n * cei_ceiling(play->shape->product.n[i], play->tile.columns);
	return sum;
}

/* Simulates n pairs of tiles. A pair begins when its cluster is free, but not before from_ns. The
 * end of its computation is not before until_ns, when what it then needs arrives; after that the
 * pair takes another more_ns. Returns when the last pair ends. */
static double play_pairs(struct cei_play *play, uint64_t n, double from_ns, double until_ns,
			 double more_ns)
{
	double *free_ns, end_ns, last_ns = 0;
	uint64_t i;

	for (i = 0; i < n; i++, play->n_played++) {
		free_ns = &play->free_ns[play->n_played % play->n_clusters];
		end_ns = (*free_ns > from_ns ? *free_ns : from_ns) + play->tile_ns;
		if (end_ns < until_ns)
			end_ns = until_ns;
		*free_ns = end_ns + more_ns;
		if (*free_ns > last_ns)
			last_ns = *free_ns;
	}
	return last_ns;
}

double cei_play_piece(struct cei_play *play, uint64_t n_rows, double from_ns)
{
	return play_pairs(play, pairs_of(play, n_rows), from_ns, 0, 0);
}

/* Returns which rows and columns a piece of a rank has, in a product that leaves. */
static struct cei_cut_piece piece_of(const struct cei_play *play, uint32_t rank, uint32_t piece)
{
	return cei_piece_of(&play->cut, play->shape->rows[rank], play->shape->product.n[0],
			    play->n_pieces, piece);
}

/* Returns how many pairs of tiles compute a piece of the only product. */
static uint64_t pairs_of_piece(const struct cei_play *play, const struct cei_cut_piece *of)
{
	return cei_ceiling(cei_ceiling(of->n_rows, play->tile.rows), play->rates->pair) *
		cei_ceiling(of->n_columns, play->tile.columns);
}

static double end_of(const struct cei_play *play)
{
	double last_ns = 0;
	uint32_t i;

	for (i = 0; i < play->n_clusters; i++)
		if (play->free_ns[i] > last_ns)
			last_ns = play->free_ns[i];
	return last_ns;
}

double cei_play_copy_ns(const struct cei_play *play, uint64_t n_rows, uint64_t columns)
{
	double rate = cei_rates_all_send(play->rates, play->shape->n_ranks);

	return (double)(n_rows * columns * CEI_DTYPE16_BYTES) / rate + play->rates->mark_ns;
}

double cei_play_sent_ns(const struct cei_play *play, uint64_t n_rows, uint64_t columns)
{
	return play->rates->gate_ns + cei_play_copy_ns(play, n_rows, columns);
}

uint32_t cei_play_turns(const struct cei_play *play)
{
	return (play->shape->n_ranks - 1) * play->n_pieces;
}

struct cei_play_turn cei_play_turn_at(const struct cei_play *play, uint32_t at)
{
	uint32_t n_peers = play->shape->n_ranks - 1;

	if (play->order == CEOV_ORDER_TURNS)
		return (struct cei_play_turn){ 1 + at % n_peers, at / n_peers };
	return (struct cei_play_turn){ 1 + at / play->n_pieces, at % play->n_pieces };
}

void cei_play_send(struct cei_play *play, struct cei_play_turn turn, double *lane_ns,
		   double arrived_ns[CEI_OP_PIECES_MAX])
{
	const struct cei_cut_piece of = piece_of(play, turn.step, turn.piece);
	double done_ns;

	if (!of.n_rows)
		return;
	done_ns = play_pairs(play, pairs_of_piece(play, &of), 0, 0, 0);
	if (done_ns > *lane_ns)
		*lane_ns = done_ns;
	*lane_ns += cei_play_sent_ns(play, of.n_rows, of.n_columns);
	/* All ranks are simulated alike: when rank 0 sends to its i-th target, the peer whose i-th
	 * target is rank 0 sends to rank 0. */
	if (*lane_ns > arrived_ns[turn.piece])
		arrived_ns[turn.piece] = *lane_ns;
}

void cei_play_sends(struct cei_play *play, double ret_arrived_ns[CEI_OP_PIECES_MAX])
{
	double lane_ns = 0;
	uint32_t at;

	memset(ret_arrived_ns, 0, CEI_OP_PIECES_MAX * sizeof(*ret_arrived_ns));
	for (at = 0; at < cei_play_turns(play); at++)
		cei_play_send(play, cei_play_turn_at(play, at), &lane_ns, ret_arrived_ns);
}

void cei_play_gathered(struct cei_play *play)
{
	const struct cei_op_shape *shape = play->shape;
	struct cei_play_turn turn;
	double arrival_ns = 0;
	uint64_t n_rows;
	uint32_t at;

	(void)cei_play_piece(play, shape->rows[0], 0);
	for (at = 0; at < cei_play_turns(play); at++) {
		turn = cei_play_turn_at(play, at);
		(void)cei_piece_rows(&play->cut, shape->rows[shape->n_ranks - turn.step],
				     play->n_pieces, turn.piece, &n_rows);
		if (!n_rows)
			continue;
		arrival_ns += cei_play_copy_ns(play, n_rows, shape->product.k);
		(void)cei_play_piece(play, n_rows, arrival_ns);
	}
}

double cei_play_sum(struct cei_play *play, uint32_t piece, double arrived_ns)
{
	const struct cei_op_shape *shape = play->shape;
	double sum_ns = (shape->n_ranks - 1) * (double)(play->tile.rows * play->tile.columns) *
		CEI_DTYPE16_BYTES / SUM_BYTES_PER_NS;
	const struct cei_cut_piece of = piece_of(play, 0, piece);

	return of.n_rows ? play_pairs(play, pairs_of_piece(play, &of), 0, arrived_ns, sum_ns) : 0;
}

void cei_play_until(struct cei_play *play, double ns)
{
	if (play->free_ns[0] < ns)
		play->free_ns[0] = ns;
}

double cei_cost_sim_ns(const struct cei_cost_sim_args *args)
{
	struct cei_play play;

	if (!begin(&play, args))
		return -1;
	args->shape->kind->product->play(&play);
	return RUN_NS + end_of(&play);
}

double cei_cost_sim_gemm_ns(const struct cei_cost_sim_args *args)
{
	uint64_t n_rows;
	uint32_t rank, piece;
	struct cei_play play;

	if (!begin(&play, args))
		return -1;
	for (rank = 0; rank < args->shape->n_ranks; rank++) {
		for (piece = 0; piece < args->n_pieces; piece++) {
			(void)cei_piece_rows(&play.cut, args->shape->rows[rank], args->n_pieces,
					     piece, &n_rows);
			(void)cei_play_piece(&play, n_rows, 0);
		}
	}
	return RUN_NS + end_of(&play);
}

uint32_t cei_cost_sim_all(const struct cei_cost_sim_args *args, struct cei_cost_cuts cuts,
			  struct cei_cost_sim ret_forecasts[CEI_COST_SIMS_MAX])
{
	struct cei_cost_sim_args one = *args;
	uint32_t n = 0, i;
	double ns;

	for (one.n_pieces = cuts.first; one.n_pieces <= cuts.last; one.n_pieces *= 2) {
		for (i = 0; one.tile = cei_selector_shape(one.rates, i),
		     one.tile.rows && n < CEI_COST_SIMS_MAX; i++) {
			ns = cei_cost_sim_ns(&one);
			if (ns >= 0)
				ret_forecasts[n++] = (struct cei_cost_sim){
					ns, one.n_pieces, one.tile, one.cut, one.order };
		}
	}
	return n;
}
