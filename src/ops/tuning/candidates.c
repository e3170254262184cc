/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Lists the candidates that ceov_op_tune() measures. */

#include "ops/tuning/candidates.h"

#include <string.h>

#include "base/hash.h"
#include "ops/kind.h"

#define PIECES_MAX 8u

static int is_same(const struct ceov_op_tuning *x, const struct ceov_op_tuning *y)
{
	return x->mode == y->mode && x->n_pieces == y->n_pieces &&
		x->tile_rows == y->tile_rows && x->tile_columns == y->tile_columns &&
		x->n_reduce_blocks == y->n_reduce_blocks && x->cut == y->cut &&
		x->chunk_bytes == y->chunk_bytes && x->tile_order == y->tile_order &&
		x->band_rows == y->band_rows && x->n_gemm_blocks == y->n_gemm_blocks;
}

/* Returns the candidate with what the caller's tuning sets, where the candidate leaves it open. The
 * model says nothing about chunks, nor about cuts of ops that leave them open. */
static struct ceov_op_tuning completed(const struct cei_listing *listing,
				       const struct ceov_op_tuning *tuning)
{
	const struct ceov_op_tuning *given = listing->given;
	struct ceov_op_tuning taken = *tuning;

	taken.chunk_bytes = given->chunk_bytes;
	if (!taken.cut)
		taken.cut = given->cut ? given->cut : CEOV_CUT_EQUAL;
	if (!listing->shape->kind->product)
		return taken;
	if (!taken.tile_order)
		taken.tile_order = given->tile_order ? given->tile_order : CEOV_ORDER_BANDS;
	if (!taken.band_rows)
		taken.band_rows = given->band_rows;
	if (!taken.n_gemm_blocks)
		taken.n_gemm_blocks = given->n_gemm_blocks;
	return taken;
}

/* Returns whether a completed candidate has the order and the budget that the caller's tuning sets,
 * and they agree with each other. */
static int is_order_allowed(const struct cei_listing *listing, const struct ceov_op_tuning *tuning)
{
	const struct ceov_op_tuning *given = listing->given;

	if (!listing->shape->kind->product)
		return 1;
	return (!given->tile_order || given->tile_order == tuning->tile_order) &&
		(!given->band_rows || given->band_rows == tuning->band_rows) &&
		(!given->n_gemm_blocks || given->n_gemm_blocks == tuning->n_gemm_blocks) &&
		!cei_selector_fault(tuning);
}

/* Returns whether a candidate agrees with each field that the caller's tuning sets. The candidate
 * has 0 in fields that the kind does not use. */
static int is_allowed(const struct cei_listing *listing, const struct ceov_op_tuning *tuning)
{
	const struct ceov_op_tuning *given = listing->given;

	if ((given->mode && given->mode != tuning->mode) ||
	    (given->n_pieces && given->n_pieces != tuning->n_pieces) ||
	    (given->cut && given->cut != tuning->cut))
		return 0;
	if (given->n_reduce_blocks && tuning->n_reduce_blocks &&
	    given->n_reduce_blocks != tuning->n_reduce_blocks)
		return 0;
	return !given->tile_rows || !tuning->tile_rows ||
		(given->tile_rows == tuning->tile_rows &&
		 given->tile_columns == tuning->tile_columns);
}

void cei_candidates_add(const struct cei_listing *listing, const struct ceov_op_tuning *tuning)
{
	const struct ceov_op_tuning taken = completed(listing, tuning);
	struct cei_candidates *candidates = listing->candidates;
	uint32_t i;

	if (!is_allowed(listing, &taken) || !is_order_allowed(listing, &taken) ||
	    candidates->n == CEI_CANDIDATES_MAX)
		return;
	for (i = 0; i < candidates->n; i++)
		if (is_same(&candidates->tuning[i], &taken))
			return;
	candidates->tuning[candidates->n++] = taken;
}

struct ceov_op_tuning cei_candidates_choose(const struct cei_listing *listing,
					    const struct cei_rates *rates,
					    const struct ceov_op_tuning *given)
{
	struct cei_choice choice;

	cei_selector_choose(listing->shape, rates, given, &choice);
	return cei_choice_tuning(&choice);
}

/* A single rank gains nothing by pieces, so for it the last number to try equals the first. */
uint32_t cei_candidates_first_cut(const struct cei_listing *listing)
{
	return listing->given->n_pieces ? listing->given->n_pieces : 1;
}

uint32_t cei_candidates_last_cut(const struct cei_listing *listing)
{
	if (listing->given->n_pieces)
		return listing->given->n_pieces;
	return listing->shape->n_ranks > 1 ? PIECES_MAX : 1;
}

void cei_candidates_list(const struct cei_op_shape *shape, const struct cei_rates *rates,
			 const struct ceov_op_tuning *given,
			 struct cei_candidates *ret_candidates)
{
	static const struct ceov_op_tuning open = { .struct_bytes = sizeof(open) };
	struct cei_listing listing = { shape, rates, given ? given : &open, ret_candidates };

	memset(ret_candidates, 0, sizeof(*ret_candidates));
	ret_candidates->tuning[0] = cei_candidates_choose(&listing, rates, listing.given);
	ret_candidates->n = 1;
	if (shape->kind->trial)
		shape->kind->trial->candidates(&listing);
}

/* --- the hash -------------------------------------------------------------- */

static uint64_t mix(uint64_t hash, uint64_t number)
{
	return cei_hash(hash, &number, sizeof(number));
}

uint64_t cei_candidates_hash(const struct ceov_op_tuning *tunings, uint32_t n)
{
	uint64_t hash = CEI_HASH_START;
	uint32_t i;

	for (i = 0; i < n; i++) {
		hash = mix(hash, (uint64_t)tunings[i].mode << 32 | tunings[i].n_pieces);
		hash = mix(hash, (uint64_t)tunings[i].tile_rows << 32 |
			   tunings[i].tile_columns);
		hash = mix(hash, (uint64_t)tunings[i].cut << 32 | tunings[i].n_reduce_blocks);
		hash = mix(hash, tunings[i].chunk_bytes);
		hash = mix(hash, (uint64_t)tunings[i].tile_order << 32 | tunings[i].band_rows);
		hash = mix(hash, tunings[i].n_gemm_blocks);
	}
	hash = (hash ^ hash >> 40) & ((UINT64_C(1) << 40) - 1);
	return hash ? hash : 1;
}
