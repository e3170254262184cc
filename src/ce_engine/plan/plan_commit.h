/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PLAN_COMMIT_H
#define CEI_PLAN_COMMIT_H

#include "ce_engine/objects/plan.h"

/* Implements cei_door_here; the caller has checked the handle. */
int  cei_plan_commit(struct ceov_plan *plan);

/* Ends the plan's use of buffers and signals, and frees all that its commit made. The last part of
 * a release. */
void cei_plan_empty(struct ceov_plan *plan);

#endif /* CEI_PLAN_COMMIT_H */
