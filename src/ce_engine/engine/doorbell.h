/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DOORBELL_H
#define CEI_DOORBELL_H

/*
 * Stage 1 of 4: doorbell - sees that marks are reached.
 *   in:   chunks ARMED, from launches; the first of a transfer stands for all
 *   out:  chunks READY, to scheduler
 *
 * A transfer becomes READY when its target is free and its source is ready. In a gated launch the
 * lane waits for source_ready instead. A transfer that moves nothing also waits until all transfers
 * before it in the plan are READY, so that lanes keep it behind them: its mark says that their
 * bytes have arrived. Each transfer of a plan becomes READY in the order of the plan's launches, so
 * that marks only rise. When many transfers are armed, those whose marks are not reached are parked
 * (parking.h), so that a turn stays short.
 */

#include <stdint.h>

#include "ce_engine/engine/parking.h"

/* Marks looked at in one pass; a longer list is continued in the next. */
#define CEI_DOORBELL_LOOKS 512u

/* When the source is ready and only some targets are free, the launch's transfers wait at most this
 * long for each other: one batch of copies in the plan's order is worth the delay. */
#define CEI_DOORBELL_HOLD_NS UINT64_C(200000)

struct cei_scheduler;
struct cei_staging;
struct cei_trace;

struct cei_doorbell {
	struct cei_scheduler *scheduler;        /* these three are the engine's */
	struct cei_staging   *staging;
	struct cei_trace     *trace;            /* NULL: off */
	struct cei_parking    parking;          /* has the armed transfers, ... */
	uint64_t              n_armed;          /* ... and this is their number */
};

/* Arms every transfer of the launch. */
void cei_doorbell_arm(struct cei_doorbell *doorbell, struct cei_launch *launch);

/* Takes a transfer, given by its first chunk, out of the counts of armed ones, because it is passed
 * on or dropped. */
void cei_doorbell_disarm(struct cei_doorbell *doorbell, struct cei_chunk *chunk);

/* Forgets what is parked of a failed launch, none of whose chunks is armed any more. */
void cei_doorbell_forget(struct cei_launch *launch);

/* Wakes the parked transfers that wait for this one, which is done and has raised its mark. */
void cei_doorbell_done(struct cei_doorbell *doorbell, struct cei_launch *launch, uint32_t step);

/* Polls the marks of armed transfers, and passes on the transfers whose marks are reached. Returns
 * the number of chunks passed on. ret_ending->launch: the launch to fail because a signal was
 * aborted, or NULL. */
uint32_t cei_doorbell_poll(struct cei_doorbell *doorbell, struct cei_ending *ret_ending);

#endif /* CEI_DOORBELL_H */
