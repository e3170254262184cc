/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_IDS_H
#define CEI_IDS_H

/* Assigns numbers to pointers: 0, 1, 2, ... in the order in which they are first passed. */

#include <stdint.h>

struct cei_ids {
	const void **keys;              /* by number */
	uint32_t     n;
	uint32_t     n_slots;           /* of the hash table; a power of 2, or 0 */
	uint32_t    *slots;             /* numbers; UINT32_MAX: free */
};

/* Zeroes are an empty set. */
void cei_ids_fini(struct cei_ids *ids);

/* Returns the key's number in *ret_number; the first call for a key assigns one.
 * CEOV_ERR_NO_MEMORY, not raised: also if there would be more than 2^30 keys. */
int  cei_ids_number(struct cei_ids *ids, const void *key, uint32_t *ret_number);

/* Returns the key's number; UINT32_MAX: it has none. */
uint32_t cei_ids_find(const struct cei_ids *ids, const void *key);

#endif /* CEI_IDS_H */
