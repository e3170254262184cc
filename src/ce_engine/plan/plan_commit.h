/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PLAN_COMMIT_H
#define CEI_PLAN_COMMIT_H

#include "ce_engine/objects/plan.h"

/* Implements cei_local_door; the caller has checked the handle. */
int  cei_plan_commit(struct ceov_plan *plan);

/* Completes the program and makes the checks that need no order of transfers, for a door whose
 * other side makes all others. Raises, and then the plan is as before. unprepare() undoes it;
 * without that, cei_plan_end_builder() follows. complete() makes a plan that is prepared one that
 * was committed here, also later; raises, and then the plan is prepared, as before. */
int  cei_plan_prepare(struct ceov_plan *plan);
void cei_plan_unprepare(struct ceov_plan *plan);
int  cei_plan_complete(struct ceov_plan *plan);

/* Ends the plan's use of buffers and signals, and frees all that its commit made. The last part of
 * a release. */
void cei_plan_empty(struct ceov_plan *plan);

#endif /* CEI_PLAN_COMMIT_H */
