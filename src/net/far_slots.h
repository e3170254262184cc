/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_FAR_SLOTS_H
#define CEI_FAR_SLOTS_H

/*
 * Slots: pinned host memory of a rail. Bytes of memory that the transport neither reads nor writes
 * (of a GPU) go through them, a piece in each slot:
 *
 *   sending     FREE -> COPYING, from the GPU -> COPIED -> BUSY, the transport reads it -> FREE
 *   receiving   FREE -> BUSY, the transport writes it -> COPYING, to the GPU -> FREE
 *
 * Their number bounds what is under way. Who finds none free waits. The slots know nothing of
 * connections: whoever takes a slot notes there what it is for. The rail's thread only.
 */

#include "net/far_copier.h"
#include "net/far_memory.h"

#define CEI_FAR_SLOTS 8u                        /* in each direction */

enum cei_far_slot_state { CEI_FAR_SLOT_FREE, CEI_FAR_SLOT_BUSY, CEI_FAR_SLOT_COPYING,
			  CEI_FAR_SLOT_COPIED };

struct cei_far_slot {
	enum cei_far_slot_state     state;
	enum cei_far_line_direction direction;
	uint64_t                    address;    /* of the slot, in host memory */
	uint64_t                    n_bytes;    /* of the piece */
	uint64_t                    number;     /* of the copy in its line, from 1 */
	uint32_t                    unit;
	int                         error;      /* of the copy */

	/* the user's */
	struct cei_far_peer        *peer;
	uint32_t                    index;      /* of the piece, at the peer */
	struct cei_far_piece        piece;
	struct cei_far_memory      *memory;     /* what is copied from */
};

struct cei_far_line {
	void    *line;                          /* NULL: not open */
	uint64_t n_begun;
	uint64_t n_ended;
	int      error;                         /* the line is broken */
};

struct cei_far_slots {
	const struct cei_far_copier_ops *ops;           /* NULL: there is no such memory */
	void                            *arg;
	struct cei_far_table            *table;
	void                            *host;          /* all slots; NULL: none are open */
	uint32_t                         host_unit;     /* whose memory_open() gave it */
	struct cei_far_memory           *registered;    /* the same with the transport */
	uint32_t                         n_copying;
	struct cei_far_slot              slots[CEI_FAR_LINES * CEI_FAR_SLOTS];  /* by direction */
	struct cei_far_line              lines[CEI_FAR_UNITS_MAX][CEI_FAR_LINES];
};

void cei_far_slots_init(struct cei_far_slots *slots, const struct cei_far_copier_ops *ops,
			void *arg, struct cei_far_table *table);

/* Opens what the unit's memory needs, if it is not open. Errors are raised. */
int  cei_far_slots_use(struct cei_far_slots *slots, uint32_t unit);

/* Closes everything. All slots are free, or their connections have closed. */
void cei_far_slots_fini(struct cei_far_slots *slots);

/* Takes a free slot, which is BUSY then; NULL: there is none. */
struct cei_far_slot *cei_far_slots_take(struct cei_far_slots *slots,
					enum cei_far_line_direction direction);

/* Finds the slot of that piece; NULL: it went through none. */
struct cei_far_slot *cei_far_slots_find(struct cei_far_slots *slots,
					enum cei_far_line_direction direction,
					const struct cei_far_peer *peer, uint32_t index);

/* Begins to copy the slot's n_bytes between it and that address of its unit. Errors are raised;
 * the slot stays as it was. */
int  cei_far_slots_copy(struct cei_far_slots *slots, struct cei_far_slot *slot, uint64_t address);

/* Returns a slot whose copy has ended since the last call, well or with slot->error, and which is
 * COPIED now; NULL: there is none. */
struct cei_far_slot *cei_far_slots_ended(struct cei_far_slots *slots);

/* Whether copies of the peer's pieces are under way. */
int  cei_far_slots_is_copying(const struct cei_far_slots *slots, const struct cei_far_peer *peer);

void cei_far_slot_free(struct cei_far_slot *slot);

#endif /* CEI_FAR_SLOTS_H */
