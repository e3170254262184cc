/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Lists the candidates for tuning an op with a product. */

#include "ops/gemm/product.h"

#include "ops/gemm/cost_sim.h"
#include "ops/gemm/product_lane.h"
#include "ops/kind.h"
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

static enum ceov_op_cut equal_unless(enum ceov_op_cut given)
{
	return given ? given : CEOV_CUT_EQUAL;
}

static void play_all(const struct cei_listing *listing, enum ceov_op_cut cut,
		     enum ceov_op_order order, struct plays *ret_plays)
{
	const struct cei_cost_sim_args args = { .shape = listing->shape, .rates = listing->rates,
						.cut = cut, .order = order };
	const struct cei_cost_cuts cuts = { cei_candidates_first_cut(listing),
					    cei_candidates_last_cut(listing) };
	struct cei_cost_sim all[CEI_COST_SIMS_MAX];
	uint32_t i, n = 0;

	if (listing->rates->n_sms && listing->rates->has_tiles)
		n = cei_cost_sim_all(&args, cuts, all);
	ret_plays->n = 0;
	for (i = 0; i < n; i++)
		insert(ret_plays, &all[i]);
}

static int is_between(const struct cei_listing *listing)
{
	return listing->shape->kind->product->own_between;
}

/* Simulates the order that is expected to be faster, unless the caller set one. Without own pieces
 * between those of peers turns are but an alternative (add_other_order()). */
static void play_best(const struct cei_listing *listing, enum ceov_op_cut cut,
		      struct plays *ret_plays)
{
	enum ceov_op_order given = listing->given->tile_order;
	struct plays turns;

	play_all(listing, cut, CEOV_ORDER_BANDS, ret_plays);
	if (!is_between(listing) || (given && given != CEOV_ORDER_TURNS))
		return;
	play_all(listing, cut, CEOV_ORDER_TURNS, &turns);
	if (turns.n && (given || turns.play[0].ns < ret_plays->play[0].ns))
		*ret_plays = turns;
}

/* Returns the tuning of a simulated run. It leaves bands open, so that a caller's order takes their
 * place, and turns of one piece are not measured once more. */
static struct ceov_op_tuning tuning_of(const struct cei_cost_sim *play)
{
	struct ceov_op_tuning tuning = { .struct_bytes = sizeof(tuning) };

	tuning.mode = CEOV_MODE_OVERLAP;
	tuning.n_pieces = play->n_pieces;
	tuning.tile_rows = play->tile.rows;
	tuning.tile_columns = play->tile.columns;
	tuning.cut = play->cut;
	if (play->order == CEOV_ORDER_TURNS && play->n_pieces > 1)
		tuning.tile_order = CEOV_ORDER_TURNS;
	return tuning;
}

static void add_near(const struct cei_listing *listing, const struct plays *plays)
{
	struct ceov_op_tuning tuning;
	uint32_t i;

	for (i = 0; i < plays->n && i < NEAR_MAX; i++) {
		if (plays->play[i].ns > plays->play[0].ns * NEAR)
			return;
		tuning = tuning_of(&plays->play[i]);
		cei_candidates_add(listing, &tuning);
	}
}

/* Adds the best of each unequal cut that is predicted to gain something over the best equal one. */
static void add_cuts(const struct cei_listing *listing, const struct plays *equal)
{
	static const enum ceov_op_cut cuts[] = {
		CEOV_CUT_WAVES, CEOV_CUT_SHRINKING, CEOV_CUT_GROWING, CEOV_CUT_COLUMNS
	};
	struct ceov_op_tuning tuning;
	struct plays plays;
	uint32_t i;

	for (i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
		if (cuts[i] == CEOV_CUT_COLUMNS && !listing->shape->kind->cuts_columns)
			continue;
		play_best(listing, cuts[i], &plays);
		if (!plays.n || !equal->n || plays.play[0].ns >= equal->play[0].ns * CUT_WORTH)
			continue;
		tuning = tuning_of(&plays.play[0]);
		cei_candidates_add(listing, &tuning);
	}
}

/* Returns the fastest simulation with tiles that the caller's tuning allows, and at least so many
 * pieces; NULL: there is none. */
static const struct cei_cost_sim *fastest(const struct cei_listing *listing,
					  const struct plays *plays, uint32_t n_pieces)
{
	const struct ceov_op_tuning *given = listing->given;
	uint32_t i;

	for (i = 0; i < plays->n; i++)
		if (plays->play[i].n_pieces >= n_pieces &&
		    (!given->tile_rows || (plays->play[i].tile.rows == given->tile_rows &&
					   plays->play[i].tile.columns == given->tile_columns)))
			return &plays->play[i];
	return NULL;
}

/* Adds the fastest cut in turns, or in bands if `best` is in turns, if it is near the best. With
 * one piece turns are the order that there is anyway; with one peer, too, unless own pieces come
 * between those of peers. */
static void add_other_order(const struct cei_listing *listing, const struct cei_cost_sim *best)
{
	int in_turns = best->order == CEOV_ORDER_TURNS;
	const struct cei_cost_sim *play;
	struct ceov_op_tuning tuning;
	struct plays plays;

	/* Where columns arrive, the list of tiles has one rank. */
	if ((listing->shape->n_ranks < 3 && !is_between(listing)) ||
	    (listing->shape->a2a.is_by_columns && !listing->shape->kind->product->scatters))
		return;
	play_all(listing, equal_unless(listing->given->cut),
		 in_turns ? CEOV_ORDER_BANDS : CEOV_ORDER_TURNS, &plays);
	play = fastest(listing, &plays, in_turns ? 1 : 2);
	if (!play || play->ns > best->ns * NEAR)
		return;
	tuning = tuning_of(play);
	cei_candidates_add(listing, &tuning);
}

static struct cei_cost_sim_args model_of(const struct cei_listing *listing,
					 const struct cei_cost_sim *play)
{
	return (struct cei_cost_sim_args){ listing->shape, listing->rates, play->tile,
					   play->n_pieces, play->cut, play->order };
}

/* Adds other heights of bands to the fastest cut, for what caches gain by them, where its pieces
 * are high enough to make a difference. */
static void add_bands(const struct cei_listing *listing, const struct cei_cost_sim *play)
{
	const struct cei_cost_sim_args model = model_of(listing, play);
	const struct cei_row_cut cut = cei_cost_sim_cut(&model);
	struct ceov_op_tuning tuning = tuning_of(play);
	uint64_t usual = cei_tiles_band(0, play->tile, listing->rates->pair), n_rows;

	n_rows = cei_cut_most_rows(&cut, cei_op_most_rows(listing->shape), play->n_pieces);
	if (!tuning.tile_order)
		tuning.tile_order = CEOV_ORDER_BANDS;
	tuning.band_rows = (uint32_t)(usual / 2);
	if (n_rows > usual / 2)
		cei_candidates_add(listing, &tuning);
	tuning.band_rows = (uint32_t)(usual * 2);
	if (n_rows > usual)
		cei_candidates_add(listing, &tuning);
	tuning.tile_order = CEOV_ORDER_COLUMNS;
	tuning.band_rows = 0;
	if (n_rows > usual * 2)
		cei_candidates_add(listing, &tuning);
}

/* Adds the fewest SMs with which the fastest cut takes no more rounds of tiles: they need as long,
 * and leave the other SMs and their share of memory to copies. */
static void add_budget(const struct cei_listing *listing, const struct cei_cost_sim *play)
{
	const struct cei_rates *rates = listing->rates;
	const struct cei_cost_sim_args model = model_of(listing, play);
	uint64_t n_pairs = cei_product_tiles(&model) / rates->pair;
	uint64_t n_rounds = cei_ceiling(n_pairs, rates->n_sms / rates->pair), n;
	struct ceov_op_tuning tuning = tuning_of(play);

	n = n_rounds ? cei_ceiling(n_pairs, n_rounds) * rates->pair : 0;
	if (!n || n + rates->pair > rates->n_sms)
		return;
	tuning.n_gemm_blocks = (uint32_t)n;
	cei_candidates_add(listing, &tuning);
}

static void add_orders(const struct cei_listing *listing, const struct plays *plays)
{
	const struct cei_cost_sim *play = fastest(listing, plays, 1);

	if (!play)
		return;
	add_other_order(listing, play);
	add_bands(listing, play);
	add_budget(listing, play);
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

void cei_product_candidates(const struct cei_listing *from)
{
	const struct cei_rates taken = cei_product_rates(from->rates, from->given);
	const struct cei_rates *rates = &taken;
	const struct cei_listing limited = { from->shape, rates, from->given, from->candidates };
	const struct cei_listing *listing = &limited;
	uint32_t n_pieces = cei_candidates_first_cut(listing);
	int has_library = rates->has_library && from->given->cut != CEOV_CUT_COLUMNS;
	struct plays plays;

	play_best(listing, equal_unless(from->given->cut), &plays);
	add_near(listing, &plays);
	if (!from->given->cut)
		add_cuts(listing, &plays);
	add_sequence(listing);
	if (has_library && rates->has_tiles)
		add_library(listing, plays.n ? plays.play[0].n_pieces
				     : listing->candidates->tuning[0].n_pieces);
	add_orders(listing, &plays);
	cei_product_lane_list(from);
	if (!has_library || rates->has_tiles)
		return;
	for (; n_pieces <= cei_candidates_last_cut(listing); n_pieces *= 2)
		add_library(listing, n_pieces);
}
