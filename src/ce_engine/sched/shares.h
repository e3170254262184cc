/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_SHARES_H
#define CEI_SHARES_H

/*
 * How flows (flows.h) share one lane: start-time fair queueing. The lane's next job is the first
 * one of the flow that starts least; a flow's start is the service that it has received on the lane
 * so far. The lane's clock is the largest start of a job that went; a flow that begins to wait
 * starts there at least, so it saves up nothing while it asks for nothing. What a flow can catch up
 * with that waited long for other reasons is bounded by a credit, as in flows.h.
 *
 * All lanes of a machine serve their flows in the same order as long as the flow whose turn it is
 * can go. Then copies that keep out of each other's way within a client, such as those of a
 * rotation, do so with several clients, too. So a lane waits for the ports of the flow whose turn
 * it is, but only for a small part of its time, because clients with other patterns never get into
 * step.
 *
 * Plain data of one engine; time is a parameter.
 */

#include <stdint.h>

/* A lane waits for the flow whose turn it is for one part in HOLD_PART of its time. Unused time
 * adds up to that of HOLD_MOST jobs. With these two all-gathers at 3:1 lose 2 %, and an all-gather
 * beside random copies 1 % more than without any waiting (tests/sim/). */
#define CEI_SHARES_HOLD_PART 16u
#define CEI_SHARES_HOLD_MOST 8u

struct cei_shares {
	uint64_t clock;
	uint64_t floor;                 /* as a port's: see flows.h */
	uint64_t urgent_until_ns;       /* until when urgent time of jobs is used up that cross no
					 * port; see flows.h */
	uint64_t held_since_ns;         /* since when it waits for the flow whose turn it is; 0: it
					 * does not */
	uint64_t held_most_ns;          /* the longest that it may have waited */
	uint64_t hold_until_ns;         /* until when it has used its time to wait */
};

struct cei_shares_use {                 /* a job that goes */
	uint64_t service;
	uint64_t credit;                /* of its flow */
	int      is_urgent;             /* in urgent time: its lead grows up to its credit */
};

/* A flow begins to wait; *start: its start. */
void cei_shares_begin(const struct cei_shares *shares, uint64_t *start);

/* A job of the flow goes. */
void cei_shares_serve(struct cei_shares *shares, uint64_t *start,
		      const struct cei_shares_use *use);

/* The flow whose turn it is should have its ports within the time of its job. Whether the lane
 * waits for it. */
int  cei_shares_hold(struct cei_shares *shares, uint64_t takes_ns, uint64_t now_ns);

/* The lane waits no longer, because a job goes. */
void cei_shares_go_on(struct cei_shares *shares, uint64_t now_ns);

#endif /* CEI_SHARES_H */
