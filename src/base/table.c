/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* A hash table whose slots are lists, at least as many as there are nodes. */

#include "base/table.h"

#include <stdlib.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

#define SLOTS_FIRST 64u
#define SLOTS_MAX   (UINT32_C(1) << 30)

void cei_table_fini(struct cei_table *table)
{
	free(table->slots);
	memset(table, 0, sizeof(*table));
}

static void put(struct cei_table *table, struct cei_table_node *node)
{
	struct cei_table_node **slot = &table->slots[node->key & (table->n_slots - 1)];

	node->next = *slot;
	*slot = node;
}

int cei_table_reserve(struct cei_table *table, uint32_t n)
{
	struct cei_table old = *table;
	struct cei_table_node *node;
	uint32_t i, n_slots = old.n_slots ? old.n_slots : SLOTS_FIRST;

	while (n_slots < (uint64_t)old.n + n && n_slots < SLOTS_MAX)
		n_slots *= 2;
	if (n_slots == old.n_slots)
		return 0;
	table->slots = calloc(n_slots, sizeof(struct cei_table_node *));
	if (!table->slots) {
		table->slots = old.slots;
		return CEOV_ERR_NO_MEMORY;
	}
	table->n_slots = n_slots;
	for (i = 0; i < old.n_slots; i++) {
		while ((node = old.slots[i]) != NULL) {
			old.slots[i] = node->next;
			put(table, node);
		}
	}
	free(old.slots);
	return 0;
}

void cei_table_add(struct cei_table *table, struct cei_table_node *node, uint64_t key)
{
	node->key = key;
	put(table, node);
	table->n++;
}

void cei_table_remove(struct cei_table *table, struct cei_table_node *node)
{
	struct cei_table_node **at;

	if (!table->n)
		return;
	for (at = &table->slots[node->key & (table->n_slots - 1)]; *at; at = &(*at)->next) {
		if (*at != node)
			continue;
		*at = node->next;
		node->next = NULL;
		table->n--;
		return;
	}
}
