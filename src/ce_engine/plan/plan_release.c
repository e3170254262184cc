/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* ceov_plan_idle and ceov_plan_release: the end of plans, which waits for the engine. */

#include "ce_engine/plan/plan_release.h"

#include <stdlib.h>

#include "base/clock.h"
#include "ce_engine/engine/engine.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/plan/plan_builder.h"
#include "ce_engine/plan/plan_commit.h"
#include "ce_engine/sched/launch.h"

pthread_mutex_t *cei_plan_lock_of(const struct ceov_plan *plan)
{
	return (pthread_mutex_t *)(uintptr_t)&plan->lock;
}

uint32_t cei_plan_in_flight_here(const struct ceov_plan *plan)
{
	return plan->run.n_in_flight;
}

uint32_t cei_plan_in_flight(const struct ceov_plan *plan)
{
	uint32_t n;

	pthread_mutex_lock(cei_plan_lock_of(plan));
	n = plan->object.context->door->n_in_flight(plan);
	pthread_mutex_unlock(cei_plan_lock_of(plan));
	return n;
}

int ceov_plan_idle(const ceov_plan *plan)
{
	int r = cei_object_check(plan, &cei_plan_type, "ceov_plan_idle");

	if (r)
		return r;
	return cei_plan_in_flight(plan) ? CEOV_PENDING : 0;
}

static void free_record(struct ceov_plan *plan, struct cei_launch *record)
{
	struct cei_backend *backend = plan->object.context->backends[plan->member];

	if (record->event)
		backend->ops->event_close(backend, record->event);
	free(record);
}

/* Frees a plan that was removed from the list in which ceov_signal_renew() could find it. No lane
 * moves its chunks any more. */
static void take_apart(struct ceov_plan *plan)
{
	struct cei_list *node;

	while ((node = cei_list_take(&plan->run.idle)))
		free_record(plan, CEI_OWNER(node, struct cei_launch, link));
	cei_plan_empty(plan);
	pthread_mutex_destroy(&plan->lock);
	cei_object_quarantine(&plan->object);
}

/* Whether a lane that was given up may still move chunks of the plan. Any thread, where
 * none of its launches is in flight. */
static int is_stuck(const struct ceov_plan *plan)
{
	return !cei_lanes_are_idle(&plan->object.context->engines[plan->member]->lanes,
				   &plan->run.stuck_lanes);
}

/* The engine writes which lanes are stuck only while a launch is in flight, and none becomes so
 * without the lock. */
int cei_plan_is_moving(const struct ceov_plan *plan)
{
	int is;

	pthread_mutex_lock(cei_plan_lock_of(plan));
	is = plan->object.context->door->n_in_flight(plan) || is_stuck(plan);
	pthread_mutex_unlock(cei_plan_lock_of(plan));
	return is;
}

static void leave_door(struct ceov_plan *plan)
{
	const struct cei_door *door = plan->object.context->door;

	if (door->end)
		door->end(plan);
}

void cei_plan_destroy(struct ceov_plan *plan)
{
	cei_object_end(&plan->object);
	leave_door(plan);
	take_apart(plan);
}

void cei_plans_destroy_released(ceov_context *context)
{
	struct cei_list *node;

	while ((node = cei_list_take(&context->stuck)))
		take_apart(CEI_OWNER(node, struct ceov_plan, object.link));
}

/* Takes a plan whose lanes have become idle out of the list, or returns NULL. */
static struct ceov_plan *take_settled(ceov_context *context)
{
	struct ceov_plan *plan, *settled = NULL;
	struct cei_list *node;

	pthread_mutex_lock(&context->lock);
	for (node = context->stuck.next; node != &context->stuck; node = node->next) {
		plan = CEI_OWNER(node, struct ceov_plan, object.link);
		if (is_stuck(plan))
			continue;
		settled = plan;
		cei_list_remove(node);
		break;
	}
	pthread_mutex_unlock(&context->lock);
	return settled;
}

uint32_t cei_plans_settle(ceov_context *context)
{
	struct ceov_plan *plan;
	uint32_t n = 0;

	for (; (plan = take_settled(context)); n++)
		take_apart(plan);
	return n;
}

int cei_plans_are_moving(ceov_context *context)
{
	struct cei_list *node;
	int are;

	(void)cei_plans_settle(context);
	pthread_mutex_lock(&context->lock);
	are = !cei_list_is_empty(&context->stuck);
	for (node = context->plans.next; !are && node != &context->plans; node = node->next)
		are = cei_plan_is_moving(CEI_OWNER(node, struct ceov_plan, object.link));
	pthread_mutex_unlock(&context->lock);
	return are;
}

/* Keeps the plan, and what it uses, while a lane that was given up may still touch it. */
static void keep_stuck(struct ceov_plan *plan)
{
	ceov_context *context = plan->object.context;

	pthread_mutex_lock(&context->lock);
	cei_list_append(&context->stuck, &plan->object.link);
	pthread_mutex_unlock(&context->lock);
}

void ceov_plan_release(ceov_plan *plan)
{
	struct cei_backoff backoff;

	if (!plan || cei_object_check(plan, &cei_plan_type, "ceov_plan_release"))
		return;
	cei_backoff_reset(&backoff);
	while (cei_plan_in_flight(plan)) {      /* each of them ends by its deadline */
		if (plan->object.context->site.progress_by_caller)
			(void)ceov_turn(plan->object.context);
		cei_backoff_step(&backoff);
	}
	if (cei_object_claim(&plan->object, "ceov_plan_release"))
		return;
	leave_door(plan);
	if (is_stuck(plan))
		keep_stuck(plan);
	else
		take_apart(plan);
}
