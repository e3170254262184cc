/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Lists the candidates for tuning an op with a product. */

#include "ops/gemm/product.h"

#include "ops/gemm/cost_sim.h"
#include "ops/tuning/candidates.h"

/* Candidates whose predicted time is within this factor of the best one's are measured. The
 * model's errors are smaller than that. */
#define NEAR      1.35
#define NEAR_MAX  8u

/* An unequal cut is measured if its predicted time is below this fraction of the best equal
 * one's. */
#define CUT_WORTH 0.99

struct plays {                          /* results of simulations, the fastest first */
	uint32_t            n;
	struct cei_cost_sim play[CEI_COST_SIMS_MAX];
};

/* Inserts a simulation behind those that are equally fast, so that fewer pieces and larger
 * tiles stay first. */
static void insert(struct plays *plays, const struct cei_cost_sim *play)
{
	uint32_t at = plays->n++;

	for (; at && plays->play[at - 1].ns > play->ns; at--)
		plays->play[at] = plays->play[at - 1];
	plays->play[at] = *play;
}

static void play_all(const struct cei_listing *listing, enum ceov_op_cut cut,
		     struct plays *ret_plays)
{
	struct cei_cost_sim_args model = {
		.shape = listing->shape, .rates = listing->rates, .cut = cut };
	struct cei_cost_sim all[CEI_COST_SIMS_MAX];
	uint32_t i, n = 0;

	if (listing->rates->n_sms && listing->rates->has_tiles)
		n = cei_cost_sim_all(&model, cei_candidates_first_cut(listing),
				     cei_candidates_last_cut(listing), all);
	ret_plays->n = 0;
	for (i = 0; i < n; i++)
		insert(ret_plays, &all[i]);
}

static void add_play(const struct cei_listing *listing, const struct cei_cost_sim *play)
{
	const struct ceov_op_tuning tuning = {
		.struct_bytes = sizeof(tuning),
		.mode = CEOV_MODE_OVERLAP,
		.n_pieces = play->n_pieces,
		.tile_rows = play->tile.rows,
		.tile_columns = play->tile.columns,
		.cut = play->cut,
	};

	cei_candidates_add(listing, &tuning);
}

static void add_near(const struct cei_listing *listing, const struct plays *plays)
{
	uint32_t i;

	for (i = 0; i < plays->n && i < NEAR_MAX; i++) {
		if (plays->play[i].ns > plays->play[0].ns * NEAR)
			return;
		add_play(listing, &plays->play[i]);
	}
}

/* Adds the best of each unequal cut that is predicted to gain something over the best equal one. */
static void add_cuts(const struct cei_listing *listing, const struct plays *equal)
{
	static const enum ceov_op_cut cuts[] = {
		CEOV_CUT_WAVES, CEOV_CUT_SHRINKING, CEOV_CUT_GROWING
	};
	struct plays plays;
	uint32_t i;

	for (i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
		play_all(listing, cuts[i], &plays);
		if (plays.n && equal->n && plays.play[0].ns < equal->play[0].ns * CUT_WORTH)
			add_play(listing, &plays.play[0]);
	}
}

static void add_sequence(const struct cei_listing *listing)
{
	struct ceov_op_tuning given = *listing->given, tuning;

	given.mode = CEOV_MODE_SEQUENCE;
	given.n_pieces = 1;
	tuning = cei_candidates_choose(listing, listing->rates, &given);
	cei_candidates_add(listing, &tuning);
}

/* Adds a candidate for cuBLAS, whose tiles are whole rows: one tile for each piece. */
static void add_library(const struct cei_listing *listing, uint32_t n_pieces)
{
	struct cei_rates rates = *listing->rates;
	struct ceov_op_tuning given = *listing->given, tuning;

	rates.has_tiles = 0;
	given.mode = CEOV_MODE_OVERLAP;
	given.n_pieces = n_pieces;
	tuning = cei_candidates_choose(listing, &rates, &given);
	cei_candidates_add(listing, &tuning);
}

void cei_product_candidates(const struct cei_listing *listing)
{
	const struct cei_rates *rates = listing->rates;
	enum ceov_op_cut given = listing->given->cut;
	struct plays plays;
	uint32_t n_pieces = cei_candidates_first_cut(listing);

	play_all(listing, given ? given : CEOV_CUT_EQUAL, &plays);
	add_near(listing, &plays);
	if (!given)
		add_cuts(listing, &plays);
	add_sequence(listing);
	if (rates->has_library && rates->has_tiles)
		add_library(listing, plays.n ? plays.play[0].n_pieces
				     : listing->candidates->tuning[0].n_pieces);
	if (!rates->has_library || rates->has_tiles)
		return;
	for (; n_pieces <= cei_candidates_last_cut(listing); n_pieces *= 2)
		add_library(listing, n_pieces);
}
