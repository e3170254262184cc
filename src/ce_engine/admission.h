/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_ADMISSION_H
#define CEI_ADMISSION_H

/*
 * Lets launches in. Here it is decided how the marks of a launch are seen: polled by the
 * doorbell, or gated on a lane of its own.
 *
 * A lane whose stream waits is a stopped lane. So gates are never put on the lanes
 * that all share, and one gated lane serves one producer stream at a time: marks
 * that one stream's work raises are reached in the order in which launches name
 * it - a rising chain - and nothing unrelated starves behind them. When all gated
 * lanes serve others, or an earlier launch of the stream is held, the launch is polled,
 * or held where it cannot be. A plan's launches stay in order behind a held one, and those
 * of a stream.
 *
 * Lanes are given in the order of launches, to held ones, too: a later launch may wait on
 * its lane for what an earlier one does.
 */

#include <stdint.h>

#include "base/ring.h"
#include "ce_engine/expiry.h"
#include "ce_engine/scheduler.h"

/* Launches that wait to be taken up. */
#define CEI_INBOX_CELLS 1024u

struct cei_admission {
	struct cei_ring     inbox;              /* any thread puts, the engine's takes */
	struct cei_backend *backend;            /* of the lanes */
	struct cei_expiry  *expiry;             /* has those that are held */
	struct cei_list    *next_held;          /* to be tried again in this turn */
	const void         *producer[CEI_LANES_GATED];  /* whom each gated lane serves */
	uint32_t            n_launches[CEI_LANES_GATED];/* that have it: in flight, or held for
							 * their plan's sake */
	struct cei_list     line[CEI_LANES_GATED];      /* of them, oldest first: those with
							 * transfers in the doorbell */
	int                 is_short;           /* one is held for want of a gated lane:
						 * others take none before it */
};

/* Zeroed before. CEOV_ERR_NO_MEMORY, not raised; fini accepts zeroes. */
int  cei_admission_init(struct cei_admission *admission, struct cei_backend *backend,
			struct cei_expiry *expiry);
void cei_admission_fini(struct cei_admission *admission);

/* All below: engine's thread. */

/* Once a turn, before launches are taken up. */
void cei_admission_begin(struct cei_admission *admission);

/* Takes up launches: those held since earlier, then those of the inbox. Returns the next one
 * that may go, its gate set, which the caller puts among those in flight; NULL: there is none,
 * and the others are held. */
struct cei_launch *cei_admission_next(struct cei_admission *admission);

/* The admitted launch has ended. */
void cei_admission_leave(struct cei_admission *admission, struct cei_launch *launch);

#endif /* CEI_ADMISSION_H */
