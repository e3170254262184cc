/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PLAN_EXPLAIN_H
#define CEI_PLAN_EXPLAIN_H

#include "ce_engine/objects/plan.h"

/* Implements cei_door_here; the caller has checked the handle. */
int cei_plan_explain(const struct ceov_plan *plan, int fd);

#endif /* CEI_PLAN_EXPLAIN_H */
