/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_REMOTE_OFFER_H
#define CEI_REMOTE_OFFER_H

/* What a daemon hears of a process and of its plans, and which plans it can reach. */

#include <ceoverlap/ceoverlap.h>

#include "ipc/service_link.h"

struct ceov_plan;                       /* ce_engine/objects/plan.h */

/* Fills in who this process is: its members, with their GPUs, and its settings. */
void cei_remote_hello(const ceov_context *context, struct cei_service_hello *hello);

/* Returns why no daemon can carry out the plan, in words, or NULL. */
const char *cei_remote_cannot(const struct ceov_plan *plan);

/* Sends a plan that was prepared, and the memory that it names, and has it committed there.
 * Raises. */
int  cei_remote_send(const struct ceov_plan *plan, struct cei_service_link *link,
		    struct cei_service_handle *ret_handle);

#endif /* CEI_REMOTE_OFFER_H */
