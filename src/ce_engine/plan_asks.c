/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Which transfer follows which, for many pairs at a time. */

#include "ce_engine/plan_asks.h"

#include <stdlib.h>
#include <string.h>

/* Asks that are answered together: many enough to fill walks, few enough to be sorted in
 * the cache. */
#define BATCH (UINT32_C(1) << 16)

#define WALK_BITS (CEI_ASKS_MASK_WORDS * 64u)

int cei_asks_init(struct cei_asks *asks, const struct cei_order *order)
{
	size_t i, n = 2 * (size_t)order->n;
	uint32_t before;

	memset(asks, 0, sizeof(*asks));
	asks->order = order;
	asks->before = malloc((n + 1) * sizeof(uint32_t));
	asks->list = malloc(BATCH * sizeof(*asks->list));
	if (!asks->before || !asks->list)
		return CEOV_ERR_NO_MEMORY;
	for (i = 0; i < n; i++) {
		before = order->before[2 * (size_t)order->line[i / 2] + i % 2];
		asks->before[i] = before == CEOV_NOBODY ? CEOV_NOBODY
			: order->position[before];
	}
	return 0;
}

void cei_asks_fini(struct cei_asks *asks)
{
	free(asks->before);
	free(asks->masks);
	free(asks->list);
	asks->before = NULL;
	asks->masks = NULL;
	asks->list = NULL;
}

static int compare_asks(const void *left, const void *right)
{
	const struct cei_ask *a = left, *b = right;

	if (a->first != b->first)
		return a->first < b->first ? -1 : 1;
	return a->second < b->second ? -1 : a->second > b->second;
}

static int is_earlier(const struct cei_ask *a, const struct cei_ask *b)
{
	if (a->note != b->note)
		return a->note < b->note;
	if (a->second != b->second)
		return a->second < b->second;
	return a->first < b->first;
}

void cei_asks_refuse(struct cei_asks *asks, uint32_t first, uint32_t second, uint32_t note)
{
	struct cei_ask ask = { first, second, note };

	if (!asks->result || is_earlier(&ask, &asks->refused))
		asks->refused = ask;
	asks->result = CEOV_NONE;
}

/* The masks of positions [from, to]: bit i of one says that it follows, or is, the i-th
 * position that the asks name first. The asks are sorted by it. */
static void walk(struct cei_asks *asks, const struct cei_ask *ask, const struct cei_ask *end,
		 uint32_t to)
{
	uint32_t from = ask->first, at, k, w, before, bit = 0;
	uint64_t *mask;

	for (at = from; at <= to; at++) {
		mask = asks->masks[at];
		memset(mask, 0, sizeof(*asks->masks));
		for (k = 0; k < 2; k++) {
			before = asks->before[2 * (size_t)at + k];
			if (before == CEOV_NOBODY || before < from)
				continue;
			for (w = 0; w < CEI_ASKS_MASK_WORDS; w++)
				mask[w] |= asks->masks[before][w];
		}
		if (ask == end || ask->first != at)
			continue;
		mask[bit / 64] |= UINT64_C(1) << bit % 64;
		for (bit++; ask != end && ask->first == at;)
			ask++;
	}
}

static void read_masks(struct cei_asks *asks, const struct cei_ask *ask,
		       const struct cei_ask *end)
{
	uint32_t bit = 0, first = ask->first;

	for (; ask != end; ask++) {
		bit += ask->first != first;
		first = ask->first;
		if (!(asks->masks[ask->second][bit / 64] >> bit % 64 & 1))
			cei_asks_refuse(asks, ask->first, ask->second, ask->note);
	}
}

/* Asks from i on that one walk answers: returns behind the last of them. */
static uint32_t take_group(const struct cei_asks *asks, uint32_t i, uint32_t *ret_to)
{
	uint32_t n_bits = 0;

	*ret_to = 0;
	for (; i < asks->n; i++) {
		if (!n_bits || asks->list[i].first != asks->list[i - 1].first)
			n_bits++;
		if (n_bits > WALK_BITS)
			break;
		if (asks->list[i].second > *ret_to)
			*ret_to = asks->list[i].second;
	}
	return i;
}

static void answer(struct cei_asks *asks)
{
	uint32_t i, end, to;

	if (!asks->masks)
		asks->masks = malloc(((size_t)asks->order->n + 1) * sizeof(*asks->masks));
	if (!asks->masks) {
		asks->result = CEOV_ERR_NO_MEMORY;
		return;
	}
	qsort(asks->list, asks->n, sizeof(*asks->list), compare_asks);
	for (i = 0; i < asks->n; i = end) {
		end = take_group(asks, i, &to);
		walk(asks, &asks->list[i], &asks->list[end], to);
		read_masks(asks, &asks->list[i], &asks->list[end]);
	}
	asks->n = 0;
}

void cei_asks_add(struct cei_asks *asks, uint32_t first, uint32_t second, uint32_t note)
{
	const uint32_t *before = &asks->before[2 * (size_t)second];

	if (asks->result || before[0] == first || before[1] == first)
		return;
	if (first > second) {
		cei_asks_refuse(asks, first, second, note);
		return;
	}
	asks->list[asks->n++] = (struct cei_ask){ first, second, note };
	if (asks->n == BATCH)
		answer(asks);
}

int cei_asks_end(struct cei_asks *asks)
{
	if (asks->n && asks->result != CEOV_ERR_NO_MEMORY)
		answer(asks);
	return asks->result;
}
