/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_REMOTE_PRIVATE_H
#define CEI_REMOTE_PRIVATE_H

/* What remote.c, which is the door to a daemon, shares with remote_link.c, which connects to it and
 * goes on with the next one, and with remote_offer.c, which says what the daemon gets. */

#include <stdatomic.h>
#include <stdint.h>

#include "base/list.h"
#include "base/site.h"
#include "ce_engine/objects/plan.h"
#include "ce_engine/remote/remote.h"
#include "ipc/service_link.h"

/* Instead of a ring's number: the daemon does not serve the member. */
#define CEI_REMOTE_NO_RING UINT32_MAX

/*
 * What a context has to do with its daemon. cei_remote_open() makes it, at the end of ceov_open();
 * from then on each plan that is committed has a record in it, until the plan ends. When the daemon
 * is lost, ceov_reopen() closes the link, and opens one to the next daemon, for which it goes
 * through the records. cei_remote_close() releases all of it, before ceov_close() ends the plans.
 */
struct cei_remote {
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
								 * CEI_REMOTE_NO_RING */
	int                         is_quiet;   /* from when nothing is in flight at any rank until
						 * ceov_reopen() succeeds: a loss aborts no signals.
						 * Guarded by the context's lock */
	struct cei_list             plans;      /* struct cei_remote_plan; guarded by that lock */
};

struct cei_remote_plan {                        /* of a committed plan; the launches are guarded by
						 * the plan's lock */
	struct cei_list           link;
	struct ceov_plan         *plan;
	const char               *why_here;     /* why this process carries it out, in words that
						 * nobody frees; NULL: the daemon does. Changed with
						 * the context's lock, by ceov_reopen() */
	struct cei_service_handle handle;       /* under which the daemon has it */
	uint64_t                  n_launches;   /* by the daemon */
	uint64_t                  recent[CEI_PLAN_LAUNCHES_MAX];        /* numbers of the last
									 * launches */
};

/* Has this process carry out a plan that a lost daemon had committed, since the next one cannot:
 * `why`, which nobody frees. Raises, and then the plan is as before. */
int  cei_remote_keep_here(struct cei_remote_plan *record, const char *why);

/* Returns why the daemon cannot carry out the plan, or NULL. */
const char *cei_remote_why_here(const struct ceov_plan *plan);

/* Fills in who this process is: its members, with their GPUs, and its settings. */
void cei_remote_hello(const ceov_context *context, struct cei_service_hello *hello);

/* Returns why no daemon can carry out the plan, in words, or NULL. */
const char *cei_remote_cannot(const struct ceov_plan *plan);

/* Has the daemon commit a plan that was prepared, with the memory that it names, for the record's
 * handle. Raises. */
int  cei_remote_send(struct cei_remote_plan *record);

#endif /* CEI_REMOTE_PRIVATE_H */
