/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_RANK_SET_H
#define CEI_RANK_SET_H

/* A set of ranks of a group. A zeroed set is empty. Callers serialise calls on one set. */

#include <stdint.h>

#include "base/site.h"

#define CEI_RANK_WORDS ((CEI_RANKS_MAX + 63u) / 64u)

struct cei_rank_set {
	uint64_t words[CEI_RANK_WORDS];         /* a bit for each rank */
};

/* These ignore ranks from CEI_RANKS_MAX on, which only an invalid message from a peer can name. */
void cei_rank_set_add(struct cei_rank_set *set, uint32_t rank);
void cei_rank_set_remove(struct cei_rank_set *set, uint32_t rank);
int  cei_rank_set_has(const struct cei_rank_set *set, uint32_t rank);

/* Returns the first rank from `from` on that is not in the set, or n_ranks. */
uint32_t cei_rank_set_missing(const struct cei_rank_set *set, uint32_t from,
			      uint32_t n_ranks);

#endif /* CEI_RANK_SET_H */
