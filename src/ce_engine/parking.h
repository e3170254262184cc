/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PARKING_H
#define CEI_PARKING_H

/*
 * Armed transfers that the doorbell does not look at one by one: where many are armed, those
 * whose marks are not reached stand here until
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

#include "ce_engine/launch.h"

/* The doorbell looks at so many armed transfers itself before it parks any. */
#define CEI_PARKING_AWAKE 64u

/* Counters looked at, and transfers sent back, in one pass. */
#define CEI_PARKING_LOOKS 512u

struct cei_parking {
	struct cei_list armed;          /* first chunks, oldest launch first, that are awake: the
					 * doorbell looks at them */
	uint64_t        n_awake;        /* how many these are */
	struct cei_list watched;        /* watches of the others, looked at in turn */
};

void cei_parking_init(struct cei_parking *parking);

/* Takes an armed chunk, the first of its transfer, from those that are awake. Where nothing
 * would bring it back it stays there. */
void cei_parking_park(struct cei_parking *parking, struct cei_chunk *chunk,
		      enum cei_parked why);

/* Looks at counters. 1: a signal was aborted; the chunk waits for that counter. */
int  cei_parking_look(struct cei_parking *parking, struct cei_chunk **ret_chunk,
		      const struct cei_counter **ret_counter);

/* The launch's next transfer in its plan's order is this one: where it was parked for that,
 * or is gated, it goes back. */
void cei_parking_next(struct cei_parking *parking, struct cei_launch *launch, uint32_t step);

/* The transfer is done, its mark raised: what is parked behind it goes back. */
void cei_parking_done(struct cei_parking *parking, struct cei_launch *launch, uint32_t step);

/* The launch has failed: nothing of it is parked any more, and nothing goes back. */
void cei_parking_forget(struct cei_launch *launch);

#endif /* CEI_PARKING_H */
