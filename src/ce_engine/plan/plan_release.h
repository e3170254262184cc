/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PLAN_RELEASE_H
#define CEI_PLAN_RELEASE_H

/* The end of plans. A plan whose copies a lane may still be making is kept, with all that it
 * names, until the lane is idle. */

#include "ce_engine/objects/plan.h"

/* Implements cei_local_door. */
uint32_t cei_plan_in_flight_here(const struct ceov_plan *plan);

/* The lock of a plan that otherwise does not change: it may be taken in a const plan, too. */
pthread_mutex_t *cei_plan_lock_of(const struct ceov_plan *plan);

/* How many launches of the plan are in flight, whoever carries them out. Any thread that does not
 * hold the plan's lock. */
uint32_t cei_plan_in_flight(const struct ceov_plan *plan);

/* Whether launches of the plan are in flight, or it is stuck: a lane that was given up may still
 * touch its memory. Any thread that does not hold the plan's lock. */
int  cei_plan_is_moving(const struct ceov_plan *plan);

/* Ends the plans that were released while stuck and whose lanes have become idle. Returns how many.
 * Until then they keep their buffers and signals in use. Any thread. */
uint32_t cei_plans_settle(ceov_context *context);

/* Whether launches of any plan of the context are in flight, or a lane that was given up may still
 * touch the memory of one. Ends plans whose lanes have come back. Any thread, without locks
 * held. */
int  cei_plans_are_moving(ceov_context *context);

/* End plans at ceov_close(), when no launch is in flight any more and all lanes are idle: one plan,
 * and all those that were released while stuck. */
void cei_plan_destroy(struct ceov_plan *plan);
void cei_plans_destroy_released(ceov_context *context);

#endif /* CEI_PLAN_RELEASE_H */
