/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The table of runs that graph_cache.h declares. */

#include "ops/core/graph_cache.h"

#include <string.h>

static int is_of(const struct cei_graph_entry *entry, const struct cei_graph_key *key)
{
	return entry->op == key->op && entry->half == key->half &&
	       entry->n_bytes == key->n_bytes &&
	       !memcmp(entry->operands, key->operands, key->n_bytes);
}

static struct cei_graph_entry *find(struct cei_graph_cache *graphs, const struct cei_graph_key *key)
{
	uint32_t i;

	for (i = 0; i < graphs->n; i++)
		if (is_of(&graphs->entries[i], key))
			return &graphs->entries[i];
	return NULL;
}

/* Returns a free entry, or else the entry that was unused for longest, if it was unused for at
 * least CEI_GRAPH_CACHE_STALE runs. NULL: there is no such entry. */
static struct cei_graph_entry *take_room(struct cei_graph_cache *graphs, void **ret_dropped)
{
	struct cei_graph_entry *oldest = &graphs->entries[0];
	uint32_t i;

	if (graphs->n < CEI_GRAPH_CACHE_MAX)
		return &graphs->entries[graphs->n++];
	for (i = 1; i < graphs->n; i++)
		if (graphs->entries[i].last < oldest->last)
			oldest = &graphs->entries[i];
	if (graphs->n_runs - oldest->last < CEI_GRAPH_CACHE_STALE)
		return NULL;
	*ret_dropped = oldest->graph;
	return oldest;
}

static void fill(struct cei_graph_entry *entry, const struct cei_graph_key *key)
{
	memset(entry, 0, sizeof(*entry));
	entry->op = key->op;
	entry->half = key->half;
	entry->n_bytes = key->n_bytes;
	memcpy(entry->operands, key->operands, key->n_bytes);
	entry->memory = *key->memory;
}

/* Begins the entry anew if its addresses stand for other memory now. */
static void renew(struct cei_graph_entry *entry, const struct cei_graph_key *key,
		  void **ret_dropped)
{
	if (!memcmp(&entry->memory, key->memory, sizeof(entry->memory)))
		return;
	*ret_dropped = entry->graph;
	fill(entry, key);
}

struct cei_graph_entry *cei_graph_cache_see(struct cei_graph_cache *graphs,
					    const struct cei_graph_key *key, void **ret_dropped)
{
	struct cei_graph_entry *entry;

	*ret_dropped = NULL;
	graphs->n_runs++;
	if (key->n_bytes > CEI_GRAPH_OPERANDS_MAX)
		return NULL;
	entry = find(graphs, key);
	if (!entry) {
		entry = take_room(graphs, ret_dropped);
		if (!entry)
			return NULL;
		fill(entry, key);
	}
	renew(entry, key, ret_dropped);
	entry->last = graphs->n_runs;
	entry->n_seen++;
	return entry;
}

int cei_graph_cache_forget(struct cei_graph_cache *graphs, const ceov_op *op, void **ret_dropped)
{
	uint32_t i;

	for (i = 0; i < graphs->n; i++) {
		if (op && graphs->entries[i].op != op)
			continue;
		*ret_dropped = graphs->entries[i].graph;
		graphs->entries[i] = graphs->entries[--graphs->n];
		return 1;
	}
	return 0;
}
