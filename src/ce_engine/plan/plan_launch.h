/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PLAN_LAUNCH_H
#define CEI_PLAN_LAUNCH_H

/* The application's side of launches, and what is checked before a plan is carried out. */

#include "ce_engine/objects/plan.h"

/* check_base refuses a base that falls or is too large. The caller holds the plan's lock, and ends
 * `hold` after releasing it; a refusal begins `hold`, which keeps back log lines until then.
 * check_parties refuses plans that can only fail: with a lost rank or an aborted signal. */
int  cei_plan_check_base(const struct ceov_plan *plan, uint64_t base, const char *call,
			 struct cei_report_hold *hold);
int  cei_plan_check_parties(struct ceov_plan *plan, const char *call);

/* Implement the launches and tickets of cei_local_door; the caller has checked the handles. */
int  cei_launch_enqueue(struct ceov_plan *plan, const struct ceov_launch *launch,
			ceov_ticket *ret_ticket);
int  cei_ticket_wait(ceov_context *context, ceov_ticket ticket, uint64_t timeout_ns,
		     int *ret_result);
int  cei_ticket_abort(ceov_context *context, ceov_ticket ticket);

/* Launches a committed plan of a context that has ceov_context.ended, by a number that is not 0 and
 * not of a launch in flight. The launch names no streams. Any thread, the engine's too. CEOV_FULL:
 * CEI_PLAN_LAUNCHES_MAX launches of the plan are in flight, or the engine's inbox is full.
 * CEOV_ERR_INVALID, not raised: the base is too large. CEOV_ERR_NO_MEMORY, raised. A base may fall:
 * whoever numbers launches knows when signals were renewed. */
int  cei_launch_numbered(struct ceov_plan *plan, const struct ceov_launch *launch,
			 uint64_t number);

#endif /* CEI_PLAN_LAUNCH_H */
