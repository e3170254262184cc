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
 * All launches end here, also those that end early: other stages return why (struct cei_ending,
 * broken lanes), and the turn then calls the functions below. Engine's thread.
 */

#include "ce_engine/engine/engine.h"

/* Takes chunks that are done off all lanes. Returns how many. */
uint32_t cei_completion_reap(struct cei_engine *engine);

/* Ends a launch without open chunks: publishes its result and gives the record back to its plan. */
void cei_completion_retire(struct cei_engine *engine, struct cei_launch *launch);

/* Ends the launch with the failure: raises it once, drops what does not move yet, and aborts
 * every signal of the plan and so the plan's other launches. Fills the rest of the failure. */
void cei_completion_fail(struct cei_engine *engine, struct cei_ending *ending);

/* Fails the launch of a chunk whose mark would lower a counter. */
void cei_completion_fall(struct cei_engine *engine, const struct cei_chunk *chunk);

/* Drops the chunks on broken lanes, and fails their launches. Fences the engine if a lane broke
 * because its member's place is lost. */
void cei_completion_end_broken(struct cei_engine *engine);

/* Makes a turn of expiry, and ends what it finds: at most one launch, with the others of its plan,
 * or one lane that does not give back a failed launch's chunks. */
void cei_completion_expire(struct cei_engine *engine, uint64_t now_ns);

/* When the engine is fenced: ends every launch with the fence's error. */
void cei_completion_end_fenced(struct cei_engine *engine);

/* When the engine stops: whether lanes move bytes, rather than wait for marks of gated launches.
 * Where that is not known, because a lane waits for a stream, or for a mark that the host does not
 * see, the answer is `unknown`. */
int  cei_completion_moves(const struct cei_engine *engine, int unknown);

/* When the engine stops: ends every launch as aborted. */
void cei_completion_abort_all(struct cei_engine *engine);

#endif /* CEI_COMPLETION_H */
