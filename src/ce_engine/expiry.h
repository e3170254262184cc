/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_EXPIRY_H
#define CEI_EXPIRY_H

/*
 * Sees that the deadline of a launch has passed, and that a signal of its plan was aborted
 * which nothing else of it looks at just now.
 *
 * Passes go over all launches that the engine has, first those held and then those in flight.
 * A turn makes a bounded part of a pass, so that no mark waits for it, and the next pass
 * begins CEI_EXPIRY_NS after the end of one. A pass looks at the signals of a plan once,
 * however many launches of it are in flight. What comes into a list during a pass is left
 * to the next one, so that each pass ends.
 *
 * A launch takes a look for its deadline and its plan one for each of its signals. So an
 * abort or a deadline is found after CEI_EXPIRY_NS and at most two passes of
 *     (launches + signals of their plans) / CEI_EXPIRY_LOOKS
 * turns each; one where the launch was there before the pass. With CEI_TICKETS launches of as
 * many plans with 64 signals each a pass has 1,040 turns, some milliseconds: the engine's
 * thread does not sleep during a pass. Turns that make launches fail come on top: one for
 * each launch that has failed (and those of its plan) since the last pass, and one for each
 * plan whose failed launches lanes have not given back yet.
 */

#include <stdint.h>

#include "base/list.h"

/* Deadlines and signals looked at in one turn. */
#define CEI_EXPIRY_LOOKS 256u

/* From the end of one pass to the beginning of the next. */
#define CEI_EXPIRY_NS UINT64_C(1000000)

struct cei_engine;
struct cei_launch;

struct cei_expiry {
	struct cei_list *at;            /* what the pass looks at next, a launch or the head of
					 * its list; NULL: none is under way */
	int              is_held;       /* `at` is in the list of those held */
	uint32_t         next_signal;   /* of the launch's plan: those before it were looked at */
	uint64_t         pass;          /* counts passes, from 1 on */
	uint64_t         next_pass_ns;  /* point in time */
};

/* Engine's thread: a pass is under way, which the next turn goes on with. */
static inline int cei_expiry_goes_on(const struct cei_expiry *expiry)
{
	return expiry->at != NULL;
}

/* Engine's thread: takes the launch out of the list of the engine's that it is in, if any. */
void cei_expiry_take(struct cei_engine *engine, struct cei_launch *launch);

/* Engine's thread: the same, and puts it at the end of this one. */
void cei_expiry_put(struct cei_engine *engine, struct cei_launch *launch,
		    struct cei_list *list);

/* Engine's thread: goes on with the pass, or begins one if it is time. Fails one launch at
 * most, and with it those of its plan; gives up one lane of a failed launch at most. */
void cei_expiry_turn(struct cei_engine *engine, uint64_t now_ns);

#endif /* CEI_EXPIRY_H */
