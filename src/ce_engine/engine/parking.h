/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PARKING_H
#define CEI_PARKING_H

/*
 * Parks armed transfers, so that the doorbell need not look at each of them: when many are armed,
 * those whose marks are not reached are parked until
 *
 *   - the transfer of their launch that raises the mark is done, or
 *   - the counter has reached their value: each counter that a launch waits for is looked at
 *     once, for the least value that something parked there waits for, or
 *   - it is their turn in the launch, of those that move nothing.
 *
 * Then they go back to the doorbell, which looks at all their marks again: to be parked
 * too briefly costs time only.
 */

#include <stdint.h>

#include "ce_engine/sched/launch.h"

/* Up to this many armed transfers are polled by the doorbell; it parks others only. */
#define CEI_PARKING_AWAKE 64u

/* Counters looked at, and transfers sent back, in one pass. */
#define CEI_PARKING_LOOKS 512u

struct cei_parking {
	struct cei_list armed;          /* first chunks of the transfers that are not parked, oldest
					 * launch first: the doorbell polls them */
	uint64_t        n_awake;        /* their number */
	struct cei_list watched;        /* watches of counters that parked transfers wait for,
					 * polled in rotation */
};

void cei_parking_init(struct cei_parking *parking);

/* Takes a transfer, given by its first chunk, off `armed` and parks it. It stays there if nothing
 * would bring it back. */
void cei_parking_park(struct cei_parking *parking, struct cei_chunk *chunk,
		      enum cei_parked why);

/* Polls watched counters, and sends back transfers whose marks are reached. 1: the signal of
 * *ret_counter was aborted; *ret_chunk waits for it. */
int  cei_parking_look(struct cei_parking *parking, struct cei_chunk **ret_chunk,
		      const struct cei_counter **ret_counter);

/* Tells that this transfer is the first of the launch that is still armed: sends it back if it was
 * parked until then, or if the launch is gated. */
void cei_parking_next(struct cei_parking *parking, struct cei_launch *launch, uint32_t step);

/* Sends back the transfers that are parked until this one is done, which it is now. */
void cei_parking_done(struct cei_parking *parking, struct cei_launch *launch, uint32_t step);

/* Forgets the parked transfers of a launch that has failed, without sending them back. */
void cei_parking_forget(struct cei_launch *launch);

#endif /* CEI_PARKING_H */
