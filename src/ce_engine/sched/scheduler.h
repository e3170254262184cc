/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_SCHEDULER_H
#define CEI_SCHEDULER_H

/*
 * Stage 2 of 4: scheduler - decides on which lane a chunk goes, and which may go now.
 *   in:   chunks READY, from doorbell
 *   out:  chunks PICKED, to lanes; at most CEI_LANE_CREDIT in flight per lane
 *
 * What goes when is decided in queues.h, over plain data; ports.h keeps engines of this process
 * from using one port of the machine at once. Plans that keep their order go first come first
 * served, and so keep the rotation by which templates keep receivers apart.
 */

#include <stdint.h>

#include "backend/lane.h"
#include "base/list.h"
#include "ce_engine/sched/queues.h"

/* Lanes of an engine: one for each direction, which never waits for marks, and the gated ones. */
#define CEI_LANES_GATED_FIRST CEI_DIRECTION_LANES
#define CEI_LANES_GATED       4u
#define CEI_LANES             (CEI_LANES_GATED_FIRST + CEI_LANES_GATED)

/* Most chunks on one lane that are not reaped yet. A submit holds at least one chunk, so a lane
 * always has room for one more. */
#define CEI_LANE_CREDIT CEI_LANE_SUBMITS

struct cei_chunk;
struct cei_tally;
struct cei_trace;

struct cei_scheduler {
	struct cei_trace *trace;        /* NULL: off */
	struct cei_tally *tally;        /* set before init; NULL: off */
	struct cei_queues queues;
	struct cei_list   picked;       /* PICKED chunks for the lanes; emptied in each turn */
};

/* ports, flows: of the works, or NULL. There is no room for any lane yet. CEOV_ERR_NO_MEMORY, not
 * raised. cei_queues_fini(), cei_queues_make_room() and cei_queues_admit() are for its queues. */
int  cei_scheduler_init(struct cei_scheduler *scheduler, struct cei_ports *ports,
			struct cei_flows *flows, struct cei_trace *trace);

/* The chunk is READY, knows its path and leg, and is linked nowhere. */
void cei_scheduler_add(struct cei_scheduler *scheduler, struct cei_chunk *chunk);

/* Moves the chunks that may go on their lanes now to `picked`. Returns how many. */
uint32_t cei_scheduler_pick(struct cei_scheduler *scheduler);

/* Takes a chunk that has left its lane, or was dropped before, out of the queues. May be
 * repeated. */
void cei_scheduler_leave(struct cei_scheduler *scheduler, struct cei_chunk *chunk);

#endif /* CEI_SCHEDULER_H */
