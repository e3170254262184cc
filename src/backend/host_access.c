/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The host backend's small accesses: whole words are atomic. */

#include <stdatomic.h>
#include <string.h>

#include "backend/host.h"

static int is_words(uint64_t address, uint64_t n_bytes)
{
	return (address | n_bytes) % sizeof(uint64_t) == 0;
}

int cei_host_store(struct cei_backend *backend, uint64_t address, const void *bytes,
		   uint64_t n_bytes)
{
	uint64_t i, word;

	(void)backend;
	if (!is_words(address, n_bytes)) {
		memcpy((void *)(uintptr_t)address, bytes, n_bytes);
		return 0;
	}
	for (i = 0; i < n_bytes; i += sizeof(word)) {
		memcpy(&word, (const char *)bytes + i, sizeof(word));
		/* release: pairs with the acquire of readers, who then see what came before */
		atomic_store_explicit((_Atomic uint64_t *)(uintptr_t)(address + i), word,
				      memory_order_release);
	}
	return 0;
}

int cei_host_load(struct cei_backend *backend, uint64_t address, void *ret_bytes, uint64_t n_bytes)
{
	uint64_t i, word;

	(void)backend;
	if (!is_words(address, n_bytes)) {
		memcpy(ret_bytes, (const void *)(uintptr_t)address, n_bytes);
		return 0;
	}
	for (i = 0; i < n_bytes; i += sizeof(word)) {
		/* acquire: pairs with raise_counter() of host.c, and with cei_host_store() */
		word = atomic_load_explicit((const _Atomic uint64_t *)(uintptr_t)(address + i),
					    memory_order_acquire);
		memcpy((char *)ret_bytes + i, &word, sizeof(word));
	}
	return 0;
}
