/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "base/rank_set.h"

void cei_rank_set_add(struct cei_rank_set *set, uint32_t rank)
{
	if (rank < CEI_RANKS_MAX)
		set->words[rank / 64] |= UINT64_C(1) << rank % 64;
}

void cei_rank_set_remove(struct cei_rank_set *set, uint32_t rank)
{
	if (rank < CEI_RANKS_MAX)
		set->words[rank / 64] &= ~(UINT64_C(1) << rank % 64);
}

int cei_rank_set_has(const struct cei_rank_set *set, uint32_t rank)
{
	return rank < CEI_RANKS_MAX && (set->words[rank / 64] >> rank % 64 & 1);
}

uint32_t cei_rank_set_missing(const struct cei_rank_set *set, uint32_t from,
			      uint32_t n_ranks)
{
	while (from < n_ranks && cei_rank_set_has(set, from))
		from++;
	return from < n_ranks ? from : n_ranks;
}
