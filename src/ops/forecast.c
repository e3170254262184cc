/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Plays tiles against copies. */

#include "ops/forecast.h"

#include <stdlib.h>
#include <string.h>

#include "ops/kinds.h"
#include "ops/numbers.h"
#include "ops/workspace.h"

#define TILES_MAX    (UINT64_C(1) << 20)
#define CLUSTERS_MAX 256u

/* One tile of a shape: so much for each step of k, and so much besides (fill, drain and
 * store). H200, products of 2048 rows alone (docs/results, "The kernel's tiles"). */
static const struct {
	struct cei_tile_shape shape;
	double                step_ns;
	double                fixed_ns;
} kernels[] = {
	{ { 128, 256 }, 640, 4500 },
	{ { 128, 192 }, 510, 2800 },
	{ { 128, 128 }, 330, 2300 },
};

/* Of a run, besides: the kernel's launch and what orders it on the stream. */
#define RUN_NS  8000.0

/* A gate in front of a copy: a lane's wait and the order it makes in hardware. Measured
 * as what one more piece costs a GEMM + reduce-scatter, without its mark. */
#define GATE_NS 5500.0

/* Partial sums into one SM, from L2. */
#define SUM_BYTES_PER_NS 60.0

struct play {
	const struct cei_op_shape *shape;
	const struct cei_rates    *rates;
	struct cei_tile_shape      tile;
	uint32_t                   n_pieces;
	double                     tile_ns;
	uint32_t                   n_clusters;
	uint64_t                   n_played;    /* pairs so far: whose turn it is */
	double                     free_ns[CLUSTERS_MAX];       /* when each cluster is */
	double                     lane_ns;                     /* when the lane is */
	double                     arrived_ns[CEI_OP_PIECES_MAX]; /* own pieces' sums: from
								   * all peers */
};

static uint64_t ceiling(uint64_t n, uint64_t divisor)
{
	return n / divisor + (n % divisor != 0);
}

static int begin(struct play *play, const struct cei_forecast_question *question)
{
	uint64_t n_steps = ceiling(question->shape->k, CEI_GEMM_K_STEP), n_tiles = 0;
	uint32_t i;

	memset(play, 0, sizeof(*play));
	play->shape = question->shape;
	play->rates = question->rates;
	play->tile = question->tile;
	play->n_pieces = question->n_pieces;
	play->n_clusters = question->rates->n_sms / question->rates->pair;
	for (i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++)
		if (kernels[i].shape.rows == play->tile.rows &&
		    kernels[i].shape.columns == play->tile.columns)
			play->tile_ns = (double)n_steps * kernels[i].step_ns +
				kernels[i].fixed_ns;
	for (i = 0; i < play->shape->n_ranks && play->tile_ns > 0; i++)
		n_tiles += ceiling(play->shape->rows[i], play->tile.rows) *
			ceiling(play->shape->n[0], play->tile.columns);
	return play->tile_ns > 0 && n_tiles < TILES_MAX && play->n_clusters &&
		play->n_clusters <= CLUSTERS_MAX;
}

static uint64_t pairs_of(const struct play *play, uint64_t n_rows)
{
	uint64_t n = ceiling(ceiling(n_rows, play->tile.rows), play->rates->pair), sum = 0;
	uint32_t i;

	for (i = 0; i < play->shape->n_products; i++)
		sum += n * ceiling(play->shape->n[i], play->tile.columns);
	return sum;
}

/* The pairs of a piece that may begin at from_ns; each ends no earlier than until_ns and
 * takes more_ns longer. Returns when the last one ends. */
static double play_piece(struct play *play, uint64_t n_rows, double from_ns,
			 double until_ns, double more_ns)
{
	uint64_t i, n = pairs_of(play, n_rows);
	double *free_ns, end_ns, last_ns = 0;

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

static double end_of(const struct play *play)
{
	double last_ns = 0;
	uint32_t i;

	for (i = 0; i < play->n_clusters; i++)
		if (play->free_ns[i] > last_ns)
			last_ns = play->free_ns[i];
	return last_ns;
}

static double copy_ns(const struct play *play, uint64_t n_rows, uint64_t columns)
{
	return (double)(n_rows * columns * CEI_NUMBER_BYTES) /
		play->rates->copy_bytes_per_ns + play->rates->mark_ns;
}

/* Own rows, then peers' as they arrive: all senders keep the same pace. */
static double play_gather(struct play *play)
{
	const struct cei_op_shape *shape = play->shape;
	double arrival_ns = 0;
	uint32_t i, peer, piece;
	uint64_t n_rows;

	(void)play_piece(play, shape->rows[0], 0, 0, 0);
	for (i = 1; i < shape->n_ranks; i++) {
		peer = shape->n_ranks - i;
		for (piece = 0; piece < play->n_pieces; piece++) {
			(void)cei_piece_rows(shape->rows[peer], play->n_pieces, piece, &n_rows);
			if (!n_rows)
				continue;
			arrival_ns += copy_ns(play, n_rows, shape->k);
			(void)play_piece(play, n_rows, arrival_ns, 0, 0);
		}
	}
	return RUN_NS + end_of(play);
}

static void play_target(struct play *play, uint32_t target)
{
	const struct cei_op_shape *shape = play->shape;
	double done_ns;
	uint64_t n_rows;
	uint32_t piece;

	for (piece = 0; piece < play->n_pieces; piece++) {
		(void)cei_piece_rows(shape->rows[target], play->n_pieces, piece, &n_rows);
		if (!n_rows)
			continue;
		done_ns = play_piece(play, n_rows, 0, 0, 0);
		if (done_ns > play->lane_ns)
			play->lane_ns = done_ns;
		play->lane_ns += GATE_NS + copy_ns(play, n_rows, shape->n[0]);
		/* The peer that has rank 0 as its i-th target sends as we send to ours. */
		if (play->lane_ns > play->arrived_ns[piece])
			play->arrived_ns[piece] = play->lane_ns;
	}
}

static double play_scatter(struct play *play)
{
	const struct cei_op_shape *shape = play->shape;
	double sum_ns = (shape->n_ranks - 1) * (double)(play->tile.rows * play->tile.columns) *
		CEI_NUMBER_BYTES / SUM_BYTES_PER_NS;
	uint32_t target, piece;
	uint64_t n_rows;

	for (target = 1; target < shape->n_ranks; target++)
		play_target(play, target);
	for (piece = 0; piece < play->n_pieces; piece++) {
		(void)cei_piece_rows(shape->rows[0], play->n_pieces, piece, &n_rows);
		if (n_rows)
			(void)play_piece(play, n_rows, 0, play->arrived_ns[piece], sum_ns);
	}
	return RUN_NS + end_of(play);
}

double cei_forecast_ns(const struct cei_forecast_question *question)
{
	struct play play;

	if (!begin(&play, question))
		return -1;
	return question->shape->kind == &cei_ag_gemm ? play_gather(&play)
						       : play_scatter(&play);
}

double cei_forecast_gemm_ns(const struct cei_forecast_question *question)
{
	uint64_t n_rows;
	uint32_t rank, piece;
	struct play play;

	if (!begin(&play, question))
		return -1;
	for (rank = 0; rank < question->shape->n_ranks; rank++) {
		for (piece = 0; piece < question->n_pieces; piece++) {
			(void)cei_piece_rows(question->shape->rows[rank], question->n_pieces,
					     piece, &n_rows);
			(void)play_piece(&play, n_rows, 0, 0, 0);
		}
	}
	return RUN_NS + end_of(&play);
}
