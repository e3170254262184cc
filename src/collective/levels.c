/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The ranks of each node, and who sends to whom. */

#include "collective/levels.h"

#include <stdlib.h>

#include "ce_engine/objects/context.h"

int cei_levels_make(ceov_context *context, uint32_t n_ranks, struct cei_levels *ret_levels)
{
	struct cei_levels levels = { .n_ranks = n_ranks };
	uint32_t rank;
	int r = 0;

	levels.node = calloc((size_t)n_ranks * 3, sizeof(*levels.node));
	if (!levels.node)
		return cei_raise(&context->report, CEOV_ERR_NO_MEMORY, 0,
				 "no memory for a list of %u ranks and their nodes", n_ranks);
	levels.index = levels.node + n_ranks;
	levels.n_local = levels.index + n_ranks;
	for (rank = 0; !r && rank < n_ranks; rank++) {
		r = ceov_rank_node(context, rank, &levels.node[rank]);
		if (!r)
			levels.index[rank] = levels.n_local[levels.node[rank]]++;
	}
	if (r)
		cei_levels_free(&levels);
	else
		*ret_levels = levels;
	return r;
}

void cei_levels_free(struct cei_levels *levels)
{
	free(levels->node);
	levels->node = NULL;
}

int cei_levels_sends(const struct cei_levels *levels, uint32_t from, uint32_t to)
{
	uint32_t node = levels->node[to];

	return node == levels->node[from] ||
		levels->index[from] % levels->n_local[node] == levels->index[to];
}

int cei_levels_passes_on(const struct cei_levels *levels, uint32_t rank, uint32_t source)
{
	uint32_t node = levels->node[rank];

	return node != levels->node[source] && levels->n_local[node] > 1 &&
		cei_levels_sends(levels, source, rank);
}
