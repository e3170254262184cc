/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_IDS_H
#define CEI_IDS_H

/* Assigns numbers to pointers: 0, 1, 2, ... in the order in which they are first passed. */

#include <stdint.h>

struct cei_ids {
	const void **keys;              /* [number]: the pointer that got it */
	uint32_t     n;                 /* numbers assigned so far */
	uint32_t     n_slots;           /* slots of the hash table; a power of 2, or 0 */
	uint32_t    *slots;             /* a number in each slot; UINT32_MAX: free */
};

/* Frees the memory. A struct of zeros is an empty set and needs no initialisation. */
void cei_ids_fini(struct cei_ids *ids);

/* Returns the key's number in *ret_number; the first call with a key assigns a number to it.
 * CEOV_ERR_NO_MEMORY, not raised: no memory, or more than 2^30 keys. */
int  cei_ids_number(struct cei_ids *ids, const void *key, uint32_t *ret_number);

/* Returns the key's number; UINT32_MAX: it has none. */
uint32_t cei_ids_find(const struct cei_ids *ids, const void *key);

#endif /* CEI_IDS_H */
