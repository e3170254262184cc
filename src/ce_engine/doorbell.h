/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DOORBELL_H
#define CEI_DOORBELL_H

/*
 * Stage 1 of 4: doorbell - sees that marks are reached.
 *   in:   chunks ARMED, from launches; the first of a transfer stands for all
 *   out:  chunks READY, to scheduler
 *
 * A transfer goes when its target is free and its source is ready. A gated launch
 * leaves source_ready to its lane. A transfer that moves nothing goes when, besides,
 * all before it in the plan have gone, so that lanes keep it behind them: its mark says
 * that their bytes have arrived. Launches of one plan pass transfer by transfer
 * in their order, so that marks only rise. Where many are armed, those whose marks are not
 * reached are parked (parking.h), so that a turn stays short.
 */

#include <stdint.h>

#include "ce_engine/parking.h"

/* Marks looked at in one pass; a longer list is continued in the next. */
#define CEI_DOORBELL_LOOKS 512u

/* Where the source is ready and only some targets are free, the launch's transfers
 * wait for each other so long: going as one batch and in order is worth more. */
#define CEI_DOORBELL_HOLD_NS UINT64_C(200000)

struct cei_scheduler;
struct cei_staging;
struct cei_trace;

struct cei_doorbell {
	struct cei_scheduler *scheduler;        /* these three are the engine's */
	struct cei_staging   *staging;
	struct cei_trace     *trace;            /* NULL: off */
	struct cei_parking    parking;          /* has the armed ones, ... */
	uint64_t              n_armed;          /* ... so many */
};

/* The engine's parts are filled, the rest is zero. */
void cei_doorbell_init(struct cei_doorbell *doorbell);

/* Arms every transfer of the launch. */
void cei_doorbell_arm(struct cei_doorbell *doorbell, struct cei_launch *launch);

/* The armed chunk, the first of its transfer, is dropped: it counts no more. */
void cei_doorbell_disarm(struct cei_doorbell *doorbell, struct cei_chunk *chunk);

/* The launch has failed, and none of its chunks is armed any more. */
void cei_doorbell_forget(struct cei_launch *launch);

/* The transfer is done, its mark raised: what waits for that is looked at again. */
void cei_doorbell_done(struct cei_doorbell *doorbell, struct cei_launch *launch, uint32_t step);

/* Looks at armed marks, and passes on the transfers that are reached. Returns how many chunks.
 * Where a signal was aborted ret_ending->launch is the launch to fail, else NULL. */
uint32_t cei_doorbell_poll(struct cei_doorbell *doorbell, struct cei_ending *ret_ending);

#endif /* CEI_DOORBELL_H */
