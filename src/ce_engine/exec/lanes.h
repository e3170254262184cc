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

#include <stdint.h>

#include "backend/lane.h"
#include "base/lane_set.h"
#include "base/list.h"
#include "ce_engine/sched/scheduler.h"

/* Most chunks in a group: each may add a piece and a post to a lane's batch, behind one wait. */
#define CEI_GROUP_MAX (CEI_LANE_BATCH / 2u - 1u)

struct cei_chunk;
struct cei_trace;

struct cei_lane_state {                         /* a lane, and what the engine knows of it */
	struct cei_lane lane;
	struct cei_list moving;                 /* chunks, in the order of submits */
	int             error;                  /* of a broken lane, else 0 */
	uint64_t        gate_launch;            /* the last wait that the lane was given: its
						 * launch, ... */
	uint64_t        gate_counter;
	uint64_t        gate_value;             /* ... counter and value */
};

struct cei_lanes {
	struct cei_trace     *trace;            /* NULL: off */
	struct cei_scheduler *scheduler;        /* has room for each open lane */
	struct cei_lane_set   under_way;        /* lanes with chunks in `moving` */
	struct cei_lane_set   broken;           /* lanes that broke, and what is on them was not
						 * ended yet */
	struct cei_lane_set   stuck;            /* lanes that were not idle when what was on them
						 * was ended */
	uint64_t              n_groups;         /* groups ever begun; the number of the current
						 * one */
	uint32_t              n;                /* number of open lanes: see cei_lanes_n() */
	struct cei_lane_state *states[CEI_LANES_MAX];   /* of open lanes; they never move */
};

/* Returns the number of open lanes, which are the first ones of `states`. Only with the movers'
 * lock, or while no plan is committed: commits add lanes. The engine's thread, which has no lock,
 * does not need the number: it meets a lane in launches of plans that were committed with it, and
 * these come through the inbox, which orders memory. */
static inline uint32_t cei_lanes_n(const struct cei_lanes *lanes)
{
	return lanes->n;
}

/* Finds or opens the mover's lane for copies in that direction to and from that rank (CEOV_NOBODY:
 * no particular one); it is never gated. The engine may be running; the caller holds the movers'
 * lock. CEOV_ERR_NO_MEMORY, raised: there are CEI_LANES_MAX already, or there is no memory. */
int  cei_lanes_take(struct cei_lanes *lanes, struct cei_backend *backend,
		   enum cei_direction direction, uint32_t peer, uint32_t *ret_index);

/* Opens the first CEI_LANES lanes, for which it makes room in the scheduler, as for all later ones.
 * After a failure call fini, which accepts zeroes. */
int  cei_lanes_init(struct cei_lanes *lanes, struct cei_backend *backend,
		    struct cei_scheduler *scheduler, struct cei_trace *trace);
void cei_lanes_fini(struct cei_lanes *lanes);

/* Submits picked chunks to their lanes. Stops when a lane breaks, or at a chunk whose mark would
 * lower a counter, which it returns; the caller ends the launches concerned, and calls again. */
struct cei_chunk *cei_lanes_push(struct cei_lanes *lanes, struct cei_list *picked);

/* Stops a lane that has failed, and adds it to `broken`. It takes no more work. */
void cei_lanes_break(struct cei_lanes *lanes, uint32_t lane, int error);

/* Stops all lanes and waits until they are idle, at most until deadline_ns (a point in time).
 * Returns how many are not idle then; an error line names each. May be repeated. */
uint32_t cei_lanes_stop(struct cei_lanes *lanes, uint64_t deadline_ns);

/* Whether each lane of the set is idle. All of them are open. Any thread. */
int  cei_lanes_are_idle(const struct cei_lanes *lanes, const struct cei_lane_set *set);

#endif /* CEI_LANES_H */
