/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_RING_H
#define CEI_RING_H

/*
 * A bounded queue of pointers between threads of one process, with many producers and one consumer.
 * Each cell holds the number of the turn in which it may be used, so producers and the consumer
 * need no lock (D. Vyukov's bounded queue).
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
	_Alignas(64) _Atomic uint64_t head;     /* number of the next put; shared by producers */
	_Alignas(64) uint64_t tail;             /* number of the next take; only the consumer
						 * uses it */
};

/* Initialises a ring; n_cells must be a power of two. CEOV_ERR_NO_MEMORY, not raised. */
int  cei_ring_init(struct cei_ring *ring, uint64_t n_cells);
void cei_ring_fini(struct cei_ring *ring);

/* Puts an item into the ring. CEOV_FULL: there is no room. Any thread. */
int  cei_ring_put(struct cei_ring *ring, void *item);

/* Takes the oldest item out; NULL: the ring is empty. Only one thread may call it. */
void *cei_ring_take(struct cei_ring *ring);

#endif /* CEI_RING_H */
