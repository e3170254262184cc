/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PLAN_BIND_H
#define CEI_PLAN_BIND_H

/* At commit: makes steps and cuts, with addresses of this process, from the plan's program. */

#include "ce_engine/objects/plan.h"

/* Routes the program, makes the engine's paths, and fills the steps but for their chunks.
 * Raises what cannot be had. */
int  cei_plan_bind(struct ceov_plan *plan);

/* Computes the chunks of each step, and the cuts. Call it after the plan's checks. */
int  cei_plan_cut(struct ceov_plan *plan);

/* Returns the buffer's address for the plan's rank or, if that rank does not reach it, for another
 * rank of this process. 0: none of them reaches it. */
uint64_t cei_plan_address(const struct ceov_plan *plan, const struct ceov_buffer *buffer);

/* Describes the rank's region for calls of the movers of the plan's engine. */
struct cei_memory cei_plan_memory(const struct ceov_plan *plan, const struct cei_region *region,
				  uint32_t rank);

/* Closes the memory that cei_plan_bind() opened at movers. May be repeated. */
void cei_plan_unbind(struct ceov_plan *plan);

#endif /* CEI_PLAN_BIND_H */
