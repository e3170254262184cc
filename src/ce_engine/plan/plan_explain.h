/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PLAN_EXPLAIN_H
#define CEI_PLAN_EXPLAIN_H

#include "ce_engine/objects/plan.h"

/* Implements cei_local_door; the caller has checked the handle. */
int cei_plan_explain(const struct ceov_plan *plan, int fd);

/* The same for a plan whose context has a daemon, which does not carry it out: why_here. */
int cei_plan_explain_kept(const struct ceov_plan *plan, int fd, const char *why_here);

#endif /* CEI_PLAN_EXPLAIN_H */
