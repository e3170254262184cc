/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CANDIDATES_H
#define CEI_CANDIDATES_H

/*
 * The tunings to measure for an op. Pure: ranks with equal shape, rates and tuning get the
 * same list in the same order.
 */

#include <stdint.h>

#include "ops/tuning/selector.h"

/* room for the model's own choice, 8 near it, a sequence, and some numbers of pieces for
 * cuBLAS */
#define CEI_CANDIDATES_MAX 16u

struct cei_candidates {
	uint32_t              n;
	struct ceov_op_tuning tuning[CEI_CANDIDATES_MAX];       /* every field that the op uses is
								 * set */
};

/* Lists the candidates. The first is what cei_selector_choose() chooses; all of them keep
 * what `given` sets. */
void cei_candidates_list(const struct cei_op_shape *shape, const struct cei_rates *rates,
			 const struct ceov_op_tuning *given,
			 struct cei_candidates *ret_candidates);

/* --- for kinds --- */

struct cei_listing {
	const struct cei_op_shape   *shape;
	const struct cei_rates      *rates;
	const struct ceov_op_tuning *given;     /* the caller's tuning; 0: that field is left
						 * open */
	struct cei_candidates       *candidates;
};

/* Adds a candidate, unless it is listed already, differs from what the caller set, or there
 * is no room. */
void cei_candidates_add(const struct cei_listing *listing,
			const struct ceov_op_tuning *tuning);

/* Returns the model's choice, which keeps what `given` sets. The rates may differ from the op's. */
struct ceov_op_tuning cei_candidates_choose(const struct cei_listing *listing,
					    const struct cei_rates *rates,
					    const struct ceov_op_tuning *given);

/* Return the first and the last number of pieces to try; each one is twice the one before it. */
uint32_t cei_candidates_first_cut(const struct cei_listing *listing);
uint32_t cei_candidates_last_cut(const struct cei_listing *listing);

/* Returns a hash of 40 bits, never 0, of a list of tunings. */
uint64_t cei_candidates_hash(const struct ceov_op_tuning *tunings, uint32_t n);

#endif /* CEI_CANDIDATES_H */
