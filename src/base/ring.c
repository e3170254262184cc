/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* A bounded queue of pointers. Engines receive launches through such a queue. */

#include "base/ring.h"

#include <assert.h>
#include <stdlib.h>

#include <ceoverlap/ceoverlap.h>

int cei_ring_init(struct cei_ring *ring, uint64_t n_cells)
{
	uint64_t i;

	assert(n_cells && !(n_cells & (n_cells - 1)));
	ring->cells = calloc(n_cells, sizeof(*ring->cells));
	if (!ring->cells)
		return CEOV_ERR_NO_MEMORY;
	ring->mask = n_cells - 1;
	ring->tail = 0;
	atomic_init(&ring->head, 0);
	for (i = 0; i < n_cells; i++)
		atomic_init(&ring->cells[i].turn, i);
	return 0;
}

void cei_ring_fini(struct cei_ring *ring)
{
	free(ring->cells);
	ring->cells = NULL;
}

int cei_ring_put(struct cei_ring *ring, void *item)
{
	/* relaxed: head only says at which cell to begin; the cell's turn decides */
	uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
	struct cei_ring_cell *cell;
	uint64_t turn;

	for (;;) {
		cell = &ring->cells[head & ring->mask];
		/* acquire: pairs with the consumer's release in cei_ring_take() */
		turn = atomic_load_explicit(&cell->turn, memory_order_acquire);
		if (turn < head)
			return CEOV_FULL;
		if (turn == head &&
		    atomic_compare_exchange_weak_explicit(&ring->head, &head, head + 1,
							  memory_order_relaxed,
							  memory_order_relaxed))
			break;
		if (turn > head)
			head = atomic_load_explicit(&ring->head, memory_order_relaxed);
	}
	cell->item = item;
	/* release: pairs with the consumer's acquire in cei_ring_take() */
	atomic_store_explicit(&cell->turn, head + 1, memory_order_release);
	return 0;
}

void *cei_ring_take(struct cei_ring *ring)
{
	struct cei_ring_cell *cell = &ring->cells[ring->tail & ring->mask];
	void *item;

	/* acquire: pairs with the producer's release in cei_ring_put() */
	if (atomic_load_explicit(&cell->turn, memory_order_acquire) != ring->tail + 1)
		return NULL;
	item = cell->item;
	/* release: pairs with the producer's acquire in cei_ring_put() */
	atomic_store_explicit(&cell->turn, ring->tail + ring->mask + 1,
			      memory_order_release);
	ring->tail++;
	return item;
}
