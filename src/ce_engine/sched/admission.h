/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_ADMISSION_H
#define CEI_ADMISSION_H

/*
 * Decides which launches may begin, and how the source_ready marks of each are observed: the
 * doorbell polls them, or the launch is gated: a lane waits for them itself.
 *
 * A lane that waits moves nothing. So lanes that all launches share never wait, and each gated lane
 * serves one producer stream at a time: the work of one stream raises its marks in the order of the
 * launches that name it, so nothing unrelated is delayed behind a wait. When all gated lanes serve
 * other streams, or an earlier launch of the stream is held, the launch is polled; if it cannot be
 * polled, it is held. Launches of one plan stay in order behind a held one, and so do launches that
 * need a lane of one stream.
 *
 * Gated lanes are assigned in the order of launches, even to held ones: a later launch may wait on
 * its lane for the work of an earlier one, and must not take the lane that this one needs.
 */

#include <stdint.h>

#include "base/ring.h"
#include "ce_engine/sched/expiry.h"
#include "ce_engine/sched/scheduler.h"

/* Most launches in the inbox, which the engine has not taken up yet. */
#define CEI_INBOX_CELLS 1024u

struct cei_admission {
	struct cei_ring     inbox;              /* any thread puts, the engine's takes */
	struct cei_backend *backend;            /* of the lanes */
	struct cei_expiry  *expiry;             /* keeps the held launches */
	struct cei_list    *next_held;          /* the held launch to be tried next in this turn */
	const void         *producer[CEI_LANES_GATED];  /* whom each gated lane serves */
	uint32_t            n_launches[CEI_LANES_GATED];/* launches that it is assigned to: in
							 * flight, or held behind another one of
							 * their plan */
	struct cei_list     line[CEI_LANES_GATED];      /* those in flight with transfers in the
							 * doorbell, oldest first */
	int                 is_short;           /* in this turn a launch was held because no gated
						 * lane is free: later ones take none before it */
};

/* The struct is zeroed before. CEOV_ERR_NO_MEMORY, not raised; fini accepts zeroes. */
int  cei_admission_init(struct cei_admission *admission, struct cei_backend *backend,
			struct cei_expiry *expiry);
void cei_admission_fini(struct cei_admission *admission);

/* All below: engine's thread. */

/* Once a turn, before launches are taken up. */
void cei_admission_begin(struct cei_admission *admission);

/* Takes up launches: first the held ones, then those of the inbox. Returns the next one that may
 * begin, with its gate set; the caller adds it to the launches in flight. NULL: there is none; the
 * remaining ones are held. */
struct cei_launch *cei_admission_next(struct cei_admission *admission);

/* Takes an admitted launch that has ended off its plan's count and its gated lane. */
void cei_admission_leave(struct cei_admission *admission, struct cei_launch *launch);

#endif /* CEI_ADMISSION_H */
