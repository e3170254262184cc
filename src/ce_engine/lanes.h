/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_LANES_H
#define CEI_LANES_H

/*
 * Stage 3 of 4: how the engine fills its movers' lanes.
 *   in:   chunks PICKED, from scheduler
 *   out:  chunks MOVING, to completion
 *
 * The engine is fastest with one batch of copies and then one batch of marks
 * (measured: a mark after each copy costs a stop of 2 to 7 us), so consecutive
 * chunks of a lane go as one group: wait (gated lanes), copies, marks, submit.
 */

#include <stdatomic.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/list.h"
#include "ce_engine/scheduler.h"

/* Chunks in a group: each may bring a piece and a post, and one wait precedes. */
#define CEI_GROUP_MAX (CEI_LANE_BATCH / 2u - 1u)

struct cei_chunk;
struct cei_trace;

struct cei_lanes {
	struct cei_trace *trace;                /* NULL: off */
	_Atomic uint32_t n;                     /* open; grows while plans are committed,
						 * see cei_lanes_n() */
	struct cei_lane  lane[CEI_LANES_MAX];
	struct cei_list  moving[CEI_LANES_MAX];     /* chunks, in the order of submits */
	int              error[CEI_LANES_MAX];      /* of a broken lane, else 0 */
	uint64_t         broken;                /* bit i: lane i has broken, and what is on it was
						 * not ended yet */
	uint64_t         gate_launch[CEI_LANES_MAX]; /* what each lane waited for last: for
						  * which launch, ... */
	uint64_t         gate_counter[CEI_LANES_MAX];
	uint64_t         gate_value[CEI_LANES_MAX];  /* ... counter and value */
	uint64_t         n_groups;              /* ever; names the current group */
};

/* How many are open: [0, n). */
static inline uint32_t cei_lanes_n(const struct cei_lanes *lanes)
{
	/* acquire: pairs with the release in add_lane() */
	return atomic_load_explicit(&lanes->n, memory_order_acquire);
}

/* The lane of that mover that carries the direction to and from that rank and never waits;
 * opened where there is none yet, also while the engine is running. With the movers' lock.
 * CEOV_ERR_NO_MEMORY, raised: there are CEI_LANES_MAX already. */
int  cei_lanes_take(struct cei_lanes *lanes, struct cei_backend *backend,
		   enum cei_direction direction, uint32_t peer, uint32_t *ret_index);

/* Opens CEI_LANES of them. On failure fini. */
int  cei_lanes_init(struct cei_lanes *lanes, struct cei_backend *backend,
		    struct cei_trace *trace);
void cei_lanes_fini(struct cei_lanes *lanes);

/* Fills lanes with what was picked. Stops where a lane breaks, and at a chunk whose mark would
 * fall, which it returns; the caller ends what is concerned, and calls again. */
struct cei_chunk *cei_lanes_push(struct cei_lanes *lanes, struct cei_list *picked);

/* The lane has failed: it takes no more, and is in `broken`. */
void cei_lanes_break(struct cei_lanes *lanes, uint32_t lane, int error);

/* Stops all lanes and waits until they are idle, bounded. How many were not at deadline_ns,
 * a point in time; each is named in an error line. May be repeated. */
uint32_t cei_lanes_stop(struct cei_lanes *lanes, uint64_t deadline_ns);

/* Whether each lane of the set (bit i: lane i) is idle. Any thread. */
int  cei_lanes_are_idle(struct cei_lanes *lanes, uint64_t set);

#endif /* CEI_LANES_H */
