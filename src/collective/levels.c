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
	for (rank = 0; rank < n_ranks; rank++) {
		r = ceov_rank_node(context, rank, &levels.node[rank]);
		if (r)
			break;
		levels.index[rank] = levels.n_local[levels.node[rank]]++;
		if (levels.node[rank] >= levels.n_nodes)
			levels.n_nodes = levels.node[rank] + 1;
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

static uint32_t next_node(const struct cei_levels *levels, uint32_t node)
{
	return (node + 1) % levels->n_nodes;
}

/* Returns the index of the rank at which the shard enters another node. */
static uint32_t entry(const struct cei_levels *levels, uint32_t source, uint32_t node)
{
	uint32_t at = levels->node[source], index = levels->index[source];

	if (!levels->is_ring)
		return index % levels->n_local[node];
	while (at != node) {
		at = next_node(levels, at);
		index %= levels->n_local[at];
	}
	return index;
}

static int is_entry(const struct cei_levels *levels, uint32_t source, uint32_t rank)
{
	uint32_t node = levels->node[rank];

	return node != levels->node[source] &&
		levels->index[rank] == entry(levels, source, node);
}

int cei_levels_sends(const struct cei_levels *levels, uint32_t from, uint32_t to)
{
	uint32_t node = levels->node[from];

	if (levels->node[to] == node)
		return 1;
	if (levels->is_ring && levels->node[to] != next_node(levels, node))
		return 0;
	return is_entry(levels, from, to);
}

/* Whether the shard goes from the node to the next one. */
static int leaves(const struct cei_levels *levels, uint32_t node, uint32_t source)
{
	return levels->is_ring && next_node(levels, node) != levels->node[source];
}

int cei_levels_passes_on(const struct cei_levels *levels, uint32_t rank, uint32_t source)
{
	uint32_t node = levels->node[rank];

	return is_entry(levels, source, rank) &&
		(levels->n_local[node] > 1 || leaves(levels, node, source));
}

int cei_levels_passes_to(const struct cei_levels *levels, uint32_t rank, uint32_t source,
			 uint32_t to)
{
	uint32_t node = levels->node[rank];

	if (levels->node[to] == node)
		return to != rank;
	return leaves(levels, node, source) && levels->node[to] == next_node(levels, node) &&
		is_entry(levels, source, to);
}
