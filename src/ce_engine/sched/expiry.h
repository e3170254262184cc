/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_EXPIRY_H
#define CEI_EXPIRY_H

/*
 * Keeps the launches that an engine has taken up. Finds those whose deadline has passed, and those
 * whose plan has an aborted signal that no stage is polling just now.
 *
 * Passes go over all launches that the engine has, first those held and then those in flight.
 * A turn makes a bounded part of a pass, so that no mark waits for it, and the next pass
 * begins CEI_EXPIRY_NS after the end of one. A pass looks at the signals of a plan once,
 * however many launches of it are in flight. What comes into a list during a pass is left
 * to the next one, so that each pass ends.
 *
 * A pass takes one look for each launch's deadline, and one for each signal of a plan. So an
 * abort or a deadline is found after CEI_EXPIRY_NS and at most two passes of
 *     (launches + signals of their plans) / CEI_EXPIRY_LOOKS
 * turns each; one where the launch was there before the pass. With CEI_TICKETS launches of as
 * many plans with 64 signals each a pass has 1,040 turns, some milliseconds: the engine's
 * thread does not sleep during a pass. Turns that make launches fail come on top: one for
 * each launch that has failed (and those of its plan) since the last pass, and one for each
 * plan whose failed launches lanes have not given back yet.
 */

#include <stdint.h>

#include "ce_engine/sched/launch.h"

/* Most deadlines and signals that one turn looks at. */
#define CEI_EXPIRY_LOOKS 256u

/* From the end of one pass to the beginning of the next. */
#define CEI_EXPIRY_NS UINT64_C(1000000)

struct cei_expiry {
	struct cei_list  held;          /* launches taken up, but not admitted yet */
	struct cei_list  in_flight;     /* admitted, oldest first */
	struct cei_list *at;            /* what the pass looks at next, a launch or the head of its
					 * list; NULL: no pass is under way */
	int              is_held;       /* `at` is in the list of those held */
	uint32_t         next_signal;   /* of that launch's plan: the pass has looked at the signals
					 * before it */
	uint64_t         pass;          /* counts passes, from 1 on */
	uint64_t         next_pass_ns;  /* point in time */
};

void cei_expiry_init(struct cei_expiry *expiry);

/* All below: engine's thread. */

/* Whether a pass is under way, which the next turn continues. */
static inline int cei_expiry_goes_on(const struct cei_expiry *expiry)
{
	return expiry->at != NULL;
}

/* Whether no launch is held or in flight. */
static inline int cei_expiry_is_empty(const struct cei_expiry *expiry)
{
	return cei_list_is_empty(&expiry->in_flight) && cei_list_is_empty(&expiry->held);
}

/* Takes the launch out of the list that it is in, if any. */
void cei_expiry_take(struct cei_expiry *expiry, struct cei_launch *launch);

/* Takes the launch out of the list that it is in, if any, and appends it to this one: `held` or
 * `in_flight`. */
void cei_expiry_put(struct cei_expiry *expiry, struct cei_launch *launch,
		    struct cei_list *list);

/* Continues the pass, or begins one if it is time. 1: *ret_ending names a launch, possibly a held
 * one, that must be ended. If its failure's error is 0, the launch has failed before and its chunks
 * have not come back from their lanes in time. */
int  cei_expiry_turn(struct cei_expiry *expiry, uint64_t now_ns, struct cei_ending *ret_ending);

/* Whether a signal of the launch's plan was aborted; fills error and rank of the failure. */
int  cei_expiry_find_abort(const struct cei_launch *launch, struct ceov_failure *failure);

/* Aborts the signals of a failed launch's plan again, since lanes and raisers may have
 * written over the poison. */
void cei_expiry_poison(const struct cei_launch *launch);

/* Returns the first chunk of the launch that is not done, or NULL. */
const struct cei_chunk *cei_expiry_stuck_at(const struct cei_launch *launch);

#endif /* CEI_EXPIRY_H */
