/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CANDIDATES_H
#define CEI_CANDIDATES_H

/*
 * Lists the tunings that are measured for an op. The list depends only on the arguments: ranks with
 * equal shape, rates and tuning get the same tunings in the same order.
 */

#include <stdint.h>

#include "ops/tuning/selector.h"

/* Room for the model's choice, 8 candidates near it, 4 other cuts, a sequence, 7 more (some
 * numbers of pieces for cuBLAS, or one of them, 4 orders of tiles and a budget of SMs), 6 in which
 * SMs make the sums, or 4 in which product and transfers come one after the other, and 4 in which
 * SMs make transfers. */
#define CEI_CANDIDATES_MAX 31u

struct cei_candidates {
	uint32_t              n;
	/* Every field that the op uses is set. */
	struct ceov_op_tuning tuning[CEI_CANDIDATES_MAX];
};

/* Lists the candidates. The first one is what cei_selector_choose() chooses. In all of them the
 * fields that `given` sets are unchanged. */
void cei_candidates_list(const struct cei_op_shape *shape, const struct cei_rates *rates,
			 const struct ceov_op_tuning *given,
			 struct cei_candidates *ret_candidates);

/* --- for kinds of operators, which add candidates --- */

/* What a kind needs to add candidates to the list. */

struct cei_listing {
	const struct cei_op_shape   *shape;
	const struct cei_rates      *rates;
	const struct ceov_op_tuning *given;     /* the caller's tuning; a field of 0 was left
						 * open */
	struct cei_candidates       *candidates;
};

/* Adds a candidate to the list, unless it is already there, differs from what the caller set, or
 * the list is full. Cut, order of tiles, bands and budget of SMs may be open in it: they are then
 * what the caller set, or what is chosen without a word. chunk_bytes is always what the caller
 * set. */
void cei_candidates_add(const struct cei_listing *listing,
			const struct ceov_op_tuning *tuning);

/* Returns the model's choice for the listing's shape, in which the fields that `given` sets are
 * unchanged. The rates may differ from those of the listing. */
struct ceov_op_tuning cei_candidates_choose(const struct cei_listing *listing,
					    const struct cei_rates *rates,
					    const struct ceov_op_tuning *given);

/* Return the first and the last number of pieces to try. Each number to try is twice the one
 * before. */
uint32_t cei_candidates_first_cut(const struct cei_listing *listing);
uint32_t cei_candidates_last_cut(const struct cei_listing *listing);

/* Returns a hash of a list of tunings. It has 40 bits and is never 0. */
uint64_t cei_candidates_hash(const struct ceov_op_tuning *tunings, uint32_t n);

#endif /* CEI_CANDIDATES_H */
