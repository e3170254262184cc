/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* A hash table with open addressing, at most half full. */

#include "base/ids.h"

#include <stdlib.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

#define SLOTS_FIRST 16u
#define SLOTS_MAX   (UINT32_C(1) << 31)

/* Returns the key's slot, or the free slot into which the key would be put. */
static uint32_t slot_of(const struct cei_ids *ids, const void *key)
{
	uint64_t hash = (uint64_t)(uintptr_t)key * UINT64_C(0x9e3779b97f4a7c15);
	uint32_t mask = ids->n_slots - 1, at = (uint32_t)(hash >> 32) & mask;

	while (ids->slots[at] != UINT32_MAX && ids->keys[ids->slots[at]] != key)
		at = (at + 1) & mask;
	return at;
}

static int grow(struct cei_ids *ids)
{
	uint32_t i, n_slots = ids->n_slots ? 2 * ids->n_slots : SLOTS_FIRST;
	const void **keys;
	uint32_t *slots;

	if (ids->n_slots == SLOTS_MAX)
		return CEOV_ERR_NO_MEMORY;
	keys = realloc(ids->keys, n_slots / 2 * sizeof(*keys));
	if (!keys)
		return CEOV_ERR_NO_MEMORY;
	ids->keys = keys;
	slots = malloc(n_slots * sizeof(*slots));
	if (!slots)
		return CEOV_ERR_NO_MEMORY;
	memset(slots, 0xff, n_slots * sizeof(*slots));
	free(ids->slots);
	ids->slots = slots;
	ids->n_slots = n_slots;
	for (i = 0; i < ids->n; i++)
		slots[slot_of(ids, keys[i])] = i;
	return 0;
}

int cei_ids_number(struct cei_ids *ids, const void *key, uint32_t *ret_number)
{
	uint32_t *slot;

	if (ids->n == ids->n_slots / 2 && grow(ids))
		return CEOV_ERR_NO_MEMORY;
	slot = &ids->slots[slot_of(ids, key)];
	if (*slot == UINT32_MAX) {
		*slot = ids->n;
		ids->keys[ids->n++] = key;
	}
	*ret_number = *slot;
	return 0;
}

uint32_t cei_ids_find(const struct cei_ids *ids, const void *key)
{
	return ids->n_slots ? ids->slots[slot_of(ids, key)] : UINT32_MAX;
}

void cei_ids_fini(struct cei_ids *ids)
{
	free(ids->keys);
	free(ids->slots);
	memset(ids, 0, sizeof(*ids));
}
