/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_COMPLETION_H
#define CEI_COMPLETION_H

/*
 * Stage 4 of 4: completion - reaps lanes and retires launches.
 *   in:   chunks MOVING, from lanes
 *   out:  tickets, to whoever waits for them
 *
 * Marks are raised by the lanes themselves, right behind the bytes.
 *
 * All ends of launches are here, early ones, too: other stages say what they have found
 * (struct cei_ending, lanes that have broken), and the turn has it ended here. Engine's thread.
 */

#include "ce_engine/engine.h"

/* Returns how many chunks came back. */
uint32_t cei_completion_reap(struct cei_engine *engine);

/* No chunk of the launch is open. Publishes the result and gives the record back to its
 * plan. */
void cei_completion_retire(struct cei_engine *engine, struct cei_launch *launch);

/* Ends the launch with the failure: raises it once, drops what does not move yet, and aborts
 * every signal of the plan and so the plan's other launches. Fills the rest of the failure. */
void cei_completion_fail(struct cei_engine *engine, struct cei_ending *ending);

/* The chunk's mark would fall: its launch fails. */
void cei_completion_fall(struct cei_engine *engine, const struct cei_chunk *chunk);

/* Drops what is on lanes that have broken, and fails its launches. */
void cei_completion_end_broken(struct cei_engine *engine);

/* Has expiry look on, and ends what it finds: one launch at most, with those of its plan, or
 * one lane of a failed launch. */
void cei_completion_expire(struct cei_engine *engine, uint64_t now_ns);

/* When the engine stops: ends every launch as aborted. */
void cei_completion_abort_all(struct cei_engine *engine);

#endif /* CEI_COMPLETION_H */
