/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_TABLE_H
#define CEI_TABLE_H

/*
 * A hash table of objects that embed a node. Several may have the same key, so whoever looks for an
 * object compares what the key was made of. Adding allocates nothing, and needs one
 * cei_table_reserve() that succeeded at any time before. Callers serialise calls on one table.
 */

#include <stddef.h>
#include <stdint.h>

struct cei_table_node {                 /* of zeros: in no table */
	struct cei_table_node *next;
	uint64_t               key;
};

struct cei_table {                      /* of zeros: empty */
	struct cei_table_node **slots;
	uint32_t                n_slots;        /* a power of 2, or 0 */
	uint32_t                n;
};

void cei_table_fini(struct cei_table *table);

/* Makes room for so many more, in which look-ups take constant time. CEOV_ERR_NO_MEMORY, not
 * raised: the table is as it was, and may be added to if it has had room before. */
int  cei_table_reserve(struct cei_table *table, uint32_t n);

void cei_table_add(struct cei_table *table, struct cei_table_node *node, uint64_t key);

/* Removing a node that is in no table has no effect. */
void cei_table_remove(struct cei_table *table, struct cei_table_node *node);

/* A key of two numbers, whose bits depend on all of theirs. */
static inline uint64_t cei_table_key(uint64_t a, uint64_t b)
{
	uint64_t key = a * UINT64_C(0x9e3779b97f4a7c15) ^ b;

	key = (key ^ key >> 32) * UINT64_C(0xd6e8feb86659fd93);
	return key ^ key >> 32;
}

/* The node, or the next one behind it that has the key; NULL: there is none. */
static inline struct cei_table_node *cei_table_match(struct cei_table_node *node, uint64_t key)
{
	while (node && node->key != key)
		node = node->next;
	return node;
}

/* The first node that has the key, and the next one; NULL: there is none. */
static inline struct cei_table_node *cei_table_first(const struct cei_table *table, uint64_t key)
{
	return table->n ? cei_table_match(table->slots[key & (table->n_slots - 1)], key) : NULL;
}

static inline struct cei_table_node *cei_table_next(const struct cei_table_node *node)
{
	return cei_table_match(node->next, node->key);
}

#endif /* CEI_TABLE_H */
