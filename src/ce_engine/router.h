/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_ROUTER_H
#define CEI_ROUTER_H

/*
 * Stage 3 of 5: router - picks the way.
 *   in:   chunks picked, from scheduler
 *   out:  chunks ROUTED, to the lane of their way
 *
 * Routes are found at commit (program_route.c). At launch it is decided here how the marks
 * are seen: polled, or gated on a lane of its own.
 *
 * A lane whose stream waits is a stopped lane. So gates are never put on the lanes
 * that all share, and one gated lane serves one producer stream at a time: marks
 * that one stream's work raises are reached in the order in which launches name
 * it - a rising chain - and nothing unrelated starves behind them. When all gated
 * lanes serve others, or an earlier launch of the stream is held, the launch is polled,
 * or held where it cannot be.
 */

#include <stdint.h>

#include "base/list.h"
#include "ce_engine/plan.h"
#include "ce_engine/scheduler.h"

struct cei_engine;
struct cei_launch;

struct cei_router {
	const void *producer[CEI_LANES_GATED];  /* whom each gated lane serves */
	uint32_t    n_launches[CEI_LANES_GATED];/* that have it: in flight, or held for their
						 * plan's sake */
	struct cei_list unpassed[CEI_LANES_GATED]; /* of them, oldest first: those with
						    * transfers in the doorbell */
	int         is_short;                   /* one is held for want of a gated lane:
						 * others take none before it */
};

void cei_router_init(struct cei_router *router);

/* Where the buffer's memory is in the topology's machine; CEOV_NOBODY: not known, or there
 * is no machine. Host ranks that stand in for a machine's places (CEOVERLAP_MACHINE) are
 * its places by rank. */
uint32_t cei_router_place(const struct cei_engine *engine, const struct ceov_buffer *buffer);

/* Whether both would be gated on the lane of one stream, where they have to stand in the
 * order of their launches: the later one stops it at a point of the stream, or at a mark,
 * that may wait for the earlier one. */
int cei_router_shares_lane(const struct cei_launch *launch, const struct cei_launch *other);

/* Engine's thread, before launches are taken up, the held ones first, in their order. */
void cei_router_begin(struct cei_router *router);

/* Engine's thread, when a launch is taken up: sets launch->gate. is_behind: one that
 * shares its lane is held before it, so it does not go there. CEOV_PENDING: for that, or
 * an earlier launch of the plan is held or goes the other way, or no gated lane is free;
 * try when one has ended. Lanes are given in the order of launches, to held ones, too: a
 * later launch may wait on its lane for what an earlier one does. */
int  cei_router_admit(struct cei_engine *engine, struct cei_launch *launch, int is_behind);

/* Whether source_ready marks of the admitted launch are left to its lane. */
int cei_router_lane_waits(const struct cei_launch *launch);

/* Whether the armed transfer of a gated launch is the next of its lane's chain. Out
 * of turn a lane would wait for a mark whose producer may wait for what stands behind
 * it: such a transfer goes when its mark is reached. */
int cei_router_is_next(const struct cei_router *router, const struct cei_launch *launch,
		       uint32_t step);

/* Whether all transfers of earlier launches on the gated lane of this one have left the
 * doorbell. Before that, a launch that comes after its stream would stop the lane at a
 * point of the stream that may wait for them. */
int cei_router_is_oldest(const struct cei_router *router, const struct cei_launch *launch);

/* A transfer of the launch has left the doorbell. */
void cei_router_passed(struct cei_launch *launch);

/* The launch has ended. */
void cei_router_leave(struct cei_router *router, struct cei_launch *launch);

/* The lane of a chunk's way. */
uint32_t cei_router_lane(const struct cei_chunk *chunk);

/* Gives every picked chunk its lane; opens gated lanes on first use. */
void cei_router_assign(struct cei_engine *engine);

#endif /* CEI_ROUTER_H */
