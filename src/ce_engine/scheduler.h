/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_SCHEDULER_H
#define CEI_SCHEDULER_H

/*
 * Stage 2 of 4: scheduler - decides on which lane a chunk goes, and which may go now.
 *   in:   chunks READY, from doorbell
 *   out:  chunks PICKED, to lanes; at most CEI_LANE_CREDIT in flight per lane
 *
 * What goes when is decided in queues.h, over plain data; ports.h keeps engines of this
 * process from meeting at ports of the machine. Plans that keep their order go first come
 * first served, and so keep the rotation by which templates keep receivers apart.
 */

#include <stdint.h>

#include "backend/backend.h"
#include "base/list.h"
#include "ce_engine/queues.h"

/* Lanes of an engine: one that never waits for each direction, and gated ones. */
#define CEI_LANES_GATED_FIRST CEI_DIRECTION_LANES
#define CEI_LANES_GATED       4u
#define CEI_LANES             (CEI_LANES_GATED_FIRST + CEI_LANES_GATED)

/* With those of other GPUs' copy engines that its routes need: see staging.h. */
#define CEI_LANES_MAX 64u

/* Chunks on one lane that are not reaped: no more than submits, which hold at least
 * one each, so that a lane is never full. */
#define CEI_LANE_CREDIT CEI_LANE_SUBMITS

struct cei_chunk;
struct cei_trace;

struct cei_scheduler {
	struct cei_trace *trace;        /* NULL: off */
	struct cei_queues queues;
	struct cei_list   picked;       /* to lanes, emptied each turn */
};

/* ports: of the context, or NULL. CEOV_ERR_NO_MEMORY, not raised; fini accepts zeroes. */
int  cei_scheduler_init(struct cei_scheduler *scheduler, struct cei_ports *ports,
			struct cei_trace *trace);
void cei_scheduler_fini(struct cei_scheduler *scheduler);

/* The chunk is READY, knows its way and leg, and is linked nowhere. */
void cei_scheduler_add(struct cei_scheduler *scheduler, struct cei_chunk *chunk);

/* Moves what may go to `picked`. Returns how many. */
uint32_t cei_scheduler_pick(struct cei_scheduler *scheduler);

/* The chunk has left its lane or, before that, was dropped. May be repeated. */
void cei_scheduler_leave(struct cei_scheduler *scheduler, struct cei_chunk *chunk);

#endif /* CEI_SCHEDULER_H */
