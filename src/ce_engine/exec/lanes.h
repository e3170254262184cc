/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_LANES_H
#define CEI_LANES_H

/*
 * Stage 3 of 4: how the engine fills its movers' lanes.
 *   in:   chunks PICKED, from scheduler
 *   out:  chunks MOVING, to completion
 *
 * A copy engine is fastest with one batch of copies and then one batch of marks (measured: a mark
 * after each copy costs a stop of 2 to 7 us), so consecutive chunks of a lane go as one group: wait
 * (gated lanes), copies, marks, submit.
 */

#include <stdatomic.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/list.h"
#include "ce_engine/sched/scheduler.h"

/* Most chunks in a group: each may add a piece and a post to a lane's batch, behind one wait. */
#define CEI_GROUP_MAX (CEI_LANE_BATCH / 2u - 1u)

struct cei_chunk;
struct cei_trace;

struct cei_lanes {
	struct cei_trace *trace;                /* NULL: off */
	_Atomic uint32_t n;                     /* number of open lanes; grows while plans are
						 * committed, see cei_lanes_n() */
	struct cei_lane  lane[CEI_LANES_MAX];
	struct cei_list  moving[CEI_LANES_MAX];     /* chunks, in the order of submits */
	int              error[CEI_LANES_MAX];      /* of a broken lane, else 0 */
	uint64_t         broken;                /* bit i: lane i has broken, and what is on it was
						 * not ended yet */
	uint64_t         gate_launch[CEI_LANES_MAX]; /* the last wait that each lane was given: its
						      * launch, ... */
	uint64_t         gate_counter[CEI_LANES_MAX];
	uint64_t         gate_value[CEI_LANES_MAX];  /* ... counter and value */
	uint64_t         n_groups;              /* groups ever begun; the number of the current
						 * one */
};

/* Returns the number of open lanes, which are the first ones of `lane`. */
static inline uint32_t cei_lanes_n(const struct cei_lanes *lanes)
{
	/* acquire: pairs with the release in add_lane() */
	return atomic_load_explicit(&lanes->n, memory_order_acquire);
}

/* Finds or opens the mover's lane for copies in that direction to and from that rank (CEOV_NOBODY:
 * no particular one); it is never gated. The engine may be running; the caller holds the movers'
 * lock. CEOV_ERR_NO_MEMORY, raised: there are CEI_LANES_MAX already. */
int  cei_lanes_take(struct cei_lanes *lanes, struct cei_backend *backend,
		   enum cei_direction direction, uint32_t peer, uint32_t *ret_index);

/* Opens the first CEI_LANES lanes. After a failure call fini. */
int  cei_lanes_init(struct cei_lanes *lanes, struct cei_backend *backend,
		    struct cei_trace *trace);
void cei_lanes_fini(struct cei_lanes *lanes);

/* Submits picked chunks to their lanes. Stops when a lane breaks, or at a chunk whose mark would
 * lower a counter, which it returns; the caller ends the launches concerned, and calls again. */
struct cei_chunk *cei_lanes_push(struct cei_lanes *lanes, struct cei_list *picked);

/* Stops a lane that has failed, and sets its bit in `broken`. It takes no more work. */
void cei_lanes_break(struct cei_lanes *lanes, uint32_t lane, int error);

/* Stops all lanes and waits until they are idle, at most until deadline_ns (a point in time).
 * Returns how many are not idle then; an error line names each. May be repeated. */
uint32_t cei_lanes_stop(struct cei_lanes *lanes, uint64_t deadline_ns);

/* Whether each lane of the set (bit i: lane i) is idle. Any thread. */
int  cei_lanes_are_idle(struct cei_lanes *lanes, uint64_t set);

#endif /* CEI_LANES_H */
