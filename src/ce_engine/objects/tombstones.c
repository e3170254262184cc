/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Ring buffers of memory that is freed late. */

#include "ce_engine/objects/tombstones.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct tombstones {
	_Atomic uint64_t n;             /* number of entries ever added */
	_Atomic(void *) *slots;
	uint64_t         n_slots;
};

static _Atomic(void *) handle_tombstones[CEI_TOMBSTONES_HANDLES];
static _Atomic(void *) context_tombstones[CEI_TOMBSTONES_CONTEXTS];
static struct tombstones handles = { 0, handle_tombstones, CEI_TOMBSTONES_HANDLES };
static struct tombstones contexts = { 0, context_tombstones, CEI_TOMBSTONES_CONTEXTS };

static void keep(struct tombstones *tombstones, void *memory)
{
	/* relaxed: only gives each caller a different slot */
	uint64_t i = atomic_fetch_add_explicit(&tombstones->n, 1, memory_order_relaxed);

	/* acq_rel: pairs with itself, so that the free comes after the write of whoever
	 * added it */
	free(atomic_exchange_explicit(&tombstones->slots[i % tombstones->n_slots], memory,
				      memory_order_acq_rel));
}

void cei_tombstones_keep_handle(void *memory)
{
	keep(&handles, memory);
}

/* Gives whole pages behind the first one back to the system; they read as zeros then. */
static void give_back_pages(void *memory, size_t n_bytes)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t first = ((uintptr_t)memory / page + 2) * page;
	uintptr_t end = ((uintptr_t)memory + n_bytes) / page * page;

	if (first < end)                /* madvise() is only advice, so a failure does no harm */
		(void)madvise((char *)memory + (first - (uintptr_t)memory), end - first,
			      MADV_DONTNEED);
}

void cei_tombstones_keep_context(void *memory, size_t n_bytes)
{
	give_back_pages(memory, n_bytes);
	keep(&contexts, memory);
}
