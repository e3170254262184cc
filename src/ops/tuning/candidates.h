/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CANDIDATES_H
#define CEI_CANDIDATES_H

/*
 * The tunings that are worth measuring for an op. Pure: ranks of equal shape, rates and
 * tuning list the same ones in the same order.
 */

#include <stdint.h>

#include "ops/tuning/chooser.h"

/* The model's own choice, 8 that it expects to be near, a sequence, and some cuts of a
 * library's. */
#define CEI_CANDIDATES_MAX 16u

struct cei_candidates {
	uint32_t              n;
	struct ceov_op_tuning tuning[CEI_CANDIDATES_MAX];       /* all fields are set, but
								 * for those that the op
								 * has no use for */
};

/* The first is what cei_chooser_choose() takes; what told sets, all of them have. */
void cei_candidates_list(const struct cei_op_shape *shape, const struct cei_rates *rates,
			 const struct ceov_op_tuning *told,
			 struct cei_candidates *ret_candidates);

/* --- for kinds --- */

struct cei_listing {
	const struct cei_op_shape   *shape;
	const struct cei_rates      *rates;
	const struct ceov_op_tuning *told;      /* by the caller; zeros: nothing */
	struct cei_candidates       *candidates;
};

/* Adds it, unless it is there already, lacks what was told or there is no room. */
void cei_candidates_add(const struct cei_listing *listing,
			const struct ceov_op_tuning *tuning);

/* What the chooser makes of what is told, with rates that may not be the op's. */
struct ceov_op_tuning cei_candidates_choose(const struct cei_listing *listing,
					    const struct cei_rates *rates,
					    const struct ceov_op_tuning *told);

/* From the first cut to the last, each twice as many pieces as the one before. */
uint32_t cei_candidates_first_cut(const struct cei_listing *listing);
uint32_t cei_candidates_last_cut(const struct cei_listing *listing);

/* 40 bits, never 0: equal for equal tunings, and hardly ever for others. */
uint64_t cei_candidates_hash(const struct ceov_op_tuning *tunings, uint32_t n);

#endif /* CEI_CANDIDATES_H */
