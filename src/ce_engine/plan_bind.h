/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PLAN_BIND_H
#define CEI_PLAN_BIND_H

/* At commit: from the plan's program to steps and cuts with addresses of this process. */

#include "ce_engine/plan.h"

/* Routes the program, makes the engine's ways, and fills the steps but for their chunks.
 * Raises what cannot be had. */
int  cei_plan_bind(struct ceov_plan *plan);

/* After the checks: the chunks of each step, and the cuts. */
int  cei_plan_cut(struct ceov_plan *plan);

/* Where the buffer is for the plan's rank. What it does not reach has one address in this
 * process all the same, for who does. 0: nobody does. */
uint64_t cei_plan_address(const struct ceov_plan *plan, const struct ceov_buffer *buffer);

/* The region of that rank as movers of the plan's engine are asked about it. */
struct cei_memory cei_plan_memory(const struct ceov_plan *plan, const struct cei_region *region,
				  uint32_t rank);

/* Closes the memory that cei_plan_bind() opened at movers. May be repeated. */
void cei_plan_unbind(struct ceov_plan *plan);

#endif /* CEI_PLAN_BIND_H */
