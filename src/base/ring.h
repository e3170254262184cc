/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_RING_H
#define CEI_RING_H

/*
 * A bounded queue of pointers, many producers and one consumer, inside one
 * process. Each cell carries the number of the turn in which it may be used, so
 * producers and the consumer never share a lock (D. Vyukov's bounded queue).
 */

#include <stdatomic.h>
#include <stdint.h>

struct cei_ring_cell {
	_Atomic uint64_t turn;
	void            *item;
};

struct cei_ring {
	struct cei_ring_cell *cells;
	uint64_t              mask;
	_Alignas(64) _Atomic uint64_t head;     /* next cell to put; shared by producers */
	_Alignas(64) uint64_t tail;             /* next cell to take; the consumer's alone */
};

/* n_cells is a power of two. CEOV_ERR_NO_MEMORY. */
int  cei_ring_init(struct cei_ring *ring, uint64_t n_cells);
void cei_ring_fini(struct cei_ring *ring);

/* Any thread. 0, or CEOV_FULL. */
int  cei_ring_put(struct cei_ring *ring, void *item);

/* One thread. NULL: empty. */
void *cei_ring_take(struct cei_ring *ring);

#endif /* CEI_RING_H */
