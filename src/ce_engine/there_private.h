/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_THERE_PRIVATE_H
#define CEI_THERE_PRIVATE_H

/* What there.c, which is the door to a daemon, shares with there_link.c, which connects to it and
 * goes on with the next one. */

#include <stdatomic.h>
#include <stdint.h>

#include "base/site.h"
#include "ce_engine/objects/plan.h"
#include "ce_engine/there.h"
#include "ipc/service_link.h"

/* Instead of a ring's number: the daemon does not serve the member. */
#define CEI_THERE_NO_RING UINT32_MAX

struct cei_there {
	struct cei_service_link    *link;       /* NULL: the last one has gone, and no other one
						 * has been connected yet */
	struct cei_service_launcher launcher;
	char                       *path;
	int                         is_strict;  /* CEOVERLAP_DAEMON_STRICT: plans that the daemon
						 * cannot reach are refused */
	_Atomic uint32_t            is_silent;  /* words about a failed launch were awaited in
						 * vain, and no others have come since */
	_Atomic uint64_t            n_stayed;   /* plans that are carried out here, ever */
	uint32_t                    rings[CEI_MEMBERS_MAX];     /* by member; or
								 * CEI_THERE_NO_RING */
	int                         is_quiet;   /* from when nothing is in flight at any rank until
						 * ceov_reopen() succeeds: a loss aborts no signals.
						 * Guarded by the context's lock */
};

struct cei_there_plan {
	struct cei_service_handle handle;
	uint64_t                  n_launches;   /* by the daemon */
	uint64_t                  recent[CEI_PLAN_LAUNCHES_MAX];        /* numbers of the last
									 * launches */
};

/* Has this process carry out a plan that a lost daemon had committed, since the next one cannot:
 * `why`, which nobody frees. Raises, and then the plan is as before. */
int  cei_there_keep_here(struct ceov_plan *plan, const char *why);

/* At ceov_close(): takes from all plans what they know of their launches there. Aborts, which look
 * at plans until these are gone, then no longer ask the link. */
void cei_there_forget_launches(ceov_context *context);

/* Returns why the daemon cannot carry out the plan, or NULL. */
const char *cei_there_why_here(const struct ceov_plan *plan);

#endif /* CEI_THERE_PRIVATE_H */
