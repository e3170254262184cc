/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Answers which transfer follows which, for many pairs at a time. */

#include "ce_engine/program/order_queries.h"

#include <stdlib.h>
#include <string.h>

/* Queries that are answered together: many enough to fill walks, few enough to be sorted in
 * the cache. */
#define BATCH (UINT32_C(1) << 16)

#define WALK_BITS (CEI_QUERY_MASK_WORDS * 64u)

int cei_queries_init(struct cei_queries *queries, const struct cei_order *order)
{
	size_t i, n = 2 * (size_t)order->n;
	uint32_t before;

	memset(queries, 0, sizeof(*queries));
	queries->order = order;
	queries->before = malloc((n + 1) * sizeof(uint32_t));
	queries->list = malloc(BATCH * sizeof(*queries->list));
	if (!queries->before || !queries->list)
		return CEOV_ERR_NO_MEMORY;
	for (i = 0; i < n; i++) {
		before = order->before[2 * (size_t)order->line[i / 2] + i % 2];
		queries->before[i] = before == CEOV_NOBODY ? CEOV_NOBODY
			: order->position[before];
	}
	return 0;
}

void cei_queries_fini(struct cei_queries *queries)
{
	free(queries->before);
	free(queries->masks);
	free(queries->list);
	queries->before = NULL;
	queries->masks = NULL;
	queries->list = NULL;
}

static int compare_queries(const void *left, const void *right)
{
	const struct cei_query *a = left, *b = right;

	if (a->first != b->first)
		return a->first < b->first ? -1 : 1;
	return a->second < b->second ? -1 : a->second > b->second;
}

static int is_earlier(const struct cei_query *a, const struct cei_query *b)
{
	if (a->note != b->note)
		return a->note < b->note;
	if (a->second != b->second)
		return a->second < b->second;
	return a->first < b->first;
}

void cei_queries_refuse(struct cei_queries *queries, uint32_t first, uint32_t second,
			uint32_t note)
{
	struct cei_query query = { first, second, note };

	if (!queries->result || is_earlier(&query, &queries->refused))
		queries->refused = query;
	queries->result = CEOV_NONE;
}

/* The masks of positions [from, to]: bit i of one says that it follows, or is, the i-th
 * position that the queries name first. The queries are sorted by it. */
static void walk(struct cei_queries *queries, const struct cei_query *query,
		 const struct cei_query *end, uint32_t to)
{
	uint32_t from = query->first, at, k, w, before, bit = 0;
	uint64_t *mask;

	for (at = from; at <= to; at++) {
		mask = queries->masks[at];
		memset(mask, 0, sizeof(*queries->masks));
		for (k = 0; k < 2; k++) {
			before = queries->before[2 * (size_t)at + k];
			if (before == CEOV_NOBODY || before < from)
				continue;
			for (w = 0; w < CEI_QUERY_MASK_WORDS; w++)
				mask[w] |= queries->masks[before][w];
		}
		if (query == end || query->first != at)
			continue;
		mask[bit / 64] |= UINT64_C(1) << bit % 64;
		for (bit++; query != end && query->first == at;)
			query++;
	}
}

static void read_masks(struct cei_queries *queries, const struct cei_query *query,
		       const struct cei_query *end)
{
	uint32_t bit = 0, first = query->first;

	for (; query != end; query++) {
		bit += query->first != first;
		first = query->first;
		if (!(queries->masks[query->second][bit / 64] >> bit % 64 & 1))
			cei_queries_refuse(queries, query->first, query->second, query->note);
	}
}

/* Groups the queries from index i on that a single walk can answer: at most WALK_BITS different
 * first positions. Returns the index after the last one; *ret_to: the highest second position,
 * where the walk may stop. */
static uint32_t take_group(const struct cei_queries *queries, uint32_t i, uint32_t *ret_to)
{
	uint32_t n_bits = 0;

	*ret_to = 0;
	for (; i < queries->n; i++) {
		if (!n_bits || queries->list[i].first != queries->list[i - 1].first)
			n_bits++;
		if (n_bits > WALK_BITS)
			break;
		if (queries->list[i].second > *ret_to)
			*ret_to = queries->list[i].second;
	}
	return i;
}

static void answer(struct cei_queries *queries)
{
	uint32_t i, end, to;

	if (!queries->masks)
		queries->masks = malloc(((size_t)queries->order->n + 1) * sizeof(*queries->masks));
	if (!queries->masks) {
		queries->result = CEOV_ERR_NO_MEMORY;
		return;
	}
	qsort(queries->list, queries->n, sizeof(*queries->list), compare_queries);
	for (i = 0; i < queries->n; i = end) {
		end = take_group(queries, i, &to);
		walk(queries, &queries->list[i], &queries->list[end], to);
		read_masks(queries, &queries->list[i], &queries->list[end]);
	}
	queries->n = 0;
}

void cei_queries_add(struct cei_queries *queries, uint32_t first, uint32_t second,
		     uint32_t note)
{
	const uint32_t *before = &queries->before[2 * (size_t)second];

	if (queries->result || before[0] == first || before[1] == first)
		return;
	if (first > second) {
		cei_queries_refuse(queries, first, second, note);
		return;
	}
	queries->list[queries->n++] = (struct cei_query){ first, second, note };
	if (queries->n == BATCH)
		answer(queries);
}

int cei_queries_end(struct cei_queries *queries)
{
	if (queries->n && queries->result != CEOV_ERR_NO_MEMORY)
		answer(queries);
	return queries->result;
}
