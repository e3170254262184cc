/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_HASH_H
#define CEI_HASH_H

/* FNV-1a (Fowler, Noll, Vo) with 64 bits. Files and other processes have such hashes, so they stay
 * the same from version to version. */

#include <stddef.h>
#include <stdint.h>

#define CEI_HASH_START UINT64_C(0xcbf29ce484222325)

/* Continues a hash with n bytes. */
static inline uint64_t cei_hash(uint64_t hash, const void *bytes, size_t n)
{
	const unsigned char *next = bytes;
	size_t i;

	for (i = 0; i < n; i++)
		hash = (hash ^ next[i]) * UINT64_C(0x100000001b3);
	return hash;
}

#endif /* CEI_HASH_H */
