/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_SCHEDULER_H
#define CEI_SCHEDULER_H

/*
 * Stage 2 of 5: scheduler - decides which chunks may go now.
 *   in:   chunks READY, from doorbell
 *   out:  chunks picked, to router; at most CEI_LANE_CREDIT in flight per lane
 *
 * One queue per lane, first come first served. A plan's order is kept, and so is
 * the rotation by which templates keep receivers apart: a switch's receiver that
 * two senders serve at once halves the rate of both.
 */

#include <stdint.h>

#include "backend/backend.h"
#include "base/list.h"

/* Lanes of an engine: one that never waits for each direction, and gated ones. */
#define CEI_LANES_GATED_FIRST 3u
#define CEI_LANES_GATED       4u
#define CEI_LANES             (CEI_LANES_GATED_FIRST + CEI_LANES_GATED)

/* Chunks on one lane that are not reaped: no more than submits, which hold at least
 * one each, so that a lane is never full. */
#define CEI_LANE_CREDIT CEI_LANE_SUBMITS

struct cei_chunk;
struct cei_engine;

struct cei_scheduler {
	struct cei_list queues[CEI_LANES];
	uint32_t        in_flight[CEI_LANES];
	struct cei_list picked;         /* to router and lanes, emptied each turn */
};

void cei_scheduler_init(struct cei_scheduler *scheduler);
void cei_scheduler_add(struct cei_scheduler *scheduler, struct cei_chunk *chunk);

/* Moves what may go to `picked`. Returns how many. */
uint32_t cei_scheduler_pick(struct cei_engine *engine);

/* The chunk has left its lane. */
void cei_scheduler_credit(struct cei_scheduler *scheduler, uint32_t lane);

#endif /* CEI_SCHEDULER_H */
