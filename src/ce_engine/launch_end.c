/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* How a launch ends: failure, retirement. Runs on the engine's thread. */

#include "ce_engine/launch.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "ce_engine/context.h"
#include "ce_engine/plan.h"
#include "ce_engine/signal.h"
#include "ce_engine/engine.h"
#include "ce_engine/staging.h"

/* Takes what does not move yet out of its stage. */
static void drop(struct cei_engine *engine, struct cei_launch *launch)
{
	struct ceov_plan *plan = launch->plan;
	struct cei_chunk *chunk;
	uint32_t i, step;

	for (i = 0; i < plan->program.n_chunks; i++) {
		chunk = &launch->chunks[i];
		step = plan->cuts[i].step;
		if (chunk->state > CEI_CHUNK_ROUTED)
			continue;
		if (chunk->state == CEI_CHUNK_ARMED && i == plan->steps[step].first_chunk)
			cei_doorbell_disarm(&engine->doorbell, chunk);
		cei_scheduler_leave(&engine->scheduler, chunk);
		cei_list_remove(&chunk->link);
		chunk->state = CEI_CHUNK_DROPPED;
		cei_staging_release(engine, chunk);
		launch->n_open--;
		if (plan->run.turns[step] <= launch->sequence)
			plan->run.turns[step] = launch->sequence + 1;
	}
}

struct mark_text {
	char text[224];
};

/* How far the chunk has come. */
static const char *where_is(const struct cei_chunk *chunk)
{
	switch ((enum cei_chunk_state)chunk->state) {
	case CEI_CHUNK_ARMED:   return "not let through";
	case CEI_CHUNK_READY:   return "waits for its lane";
	case CEI_CHUNK_ROUTED:  return "is about to go on its lane";
	case CEI_CHUNK_MOVING:  return "does not come back from its lane";
	case CEI_CHUNK_DONE:    return "done";
	case CEI_CHUNK_DROPPED: return "dropped";
	}
	return "?";
}

/* What the mark is, and what it holds. */
static struct mark_text describe(const struct cei_counter *counter,
				     const struct ceov_failure *failure)
{
	struct mark_text mark = { "" };
	char holds[48] = "which the host does not see";

	if (!counter)
		return mark;
	if (failure->seen_value >= CEOV_VALUE_LIMIT)
		snprintf(holds, sizeof(holds), "which is poisoned by an abort");
	else if (counter->seen)
		snprintf(holds, sizeof(holds), "which holds %" PRIu64, failure->seen_value);
	snprintf(mark.text, sizeof(mark.text), "; the mark is %s at %" PRIu64 ", %s",
		 cei_counter_text(counter).text, failure->mark_value, holds);
	return mark;
}

static void tell(struct cei_engine *engine, const struct cei_launch *launch,
		 const struct cei_chunk *chunk, const struct cei_counter *counter,
		 struct ceov_failure *failure)
{
	const struct ceov_plan *plan = launch->plan;
	char why[64];

	snprintf(why, sizeof(why), "%.63s", failure->text[0] ? failure->text
		 : ceov_strerror(failure->error));
	if (!chunk) {
		cei_raise_failure(engine->site->report, failure,
				  "rank %u: launch %" PRIu64 ": %s%s", engine->rank,
				  launch->number, why,
				  cei_blame_text(failure->rank).text);
		return;
	}
	failure->transfer = plan->cuts[chunk->index].step;
	failure->chunk = chunk->index - plan->steps[failure->transfer].first_chunk;
	if (counter) {
		failure->mark_value = launch->base + counter->value;
		if (counter->seen)      /* relaxed: for the message only */
			failure->seen_value = atomic_load_explicit(counter->seen,
								   memory_order_relaxed);
	}
	cei_raise_failure(engine->site->report, failure,
			  "rank %u: launch %" PRIu64 ", transfer %u, chunk %" PRIu64
			  ": %s%s%s; %s", engine->rank, launch->number, failure->transfer,
			  failure->chunk, why, cei_blame_text(failure->rank).text,
			  describe(counter, failure).text, where_is(chunk));
}

static void fail_quietly(struct cei_engine *engine, struct cei_launch *launch,
			 const struct ceov_failure *failure)
{
	if (launch->error)
		return;
	launch->error = failure->error;
	launch->blamed = failure->rank;
	launch->deadline_ns = cei_deadline(CEI_DRAIN_NS);
	drop(engine, launch);
	cei_parking_forget(launch);
	cei_router_passed(launch);
}

/* Retires what the failure left empty. Retiring unlinks, so start over each time. */
static void retire_dropped(struct cei_engine *engine)
{
	struct cei_launch *launch;
	struct cei_list *node = engine->launches.next;

	while (node != &engine->launches) {
		launch = CEI_OWNER(node, struct cei_launch, link);
		node = node->next;
		if (launch->error && !launch->n_open) {
			cei_launch_retire(engine, launch);
			node = engine->launches.next;
		}
	}
}

void cei_launch_fail(struct cei_engine *engine, struct cei_launch *launch,
		     const struct cei_chunk *chunk, const struct cei_counter *counter,
		     struct ceov_failure *failure)
{
	struct ceov_plan *plan = launch->plan;
	struct cei_launch *other;
	struct cei_list *node;

	if (launch->error)
		return;
	tell(engine, launch, chunk, counter, failure);
	fail_quietly(engine, launch, failure);
	cei_signals_abort(plan->signals, plan->program.n_signals, failure->error, failure->rank);
	for (node = engine->launches.next; node != &engine->launches; node = node->next) {
		other = CEI_OWNER(node, struct cei_launch, link);
		if (other->plan == plan)
			fail_quietly(engine, other, failure);
	}
	retire_dropped(engine);
}

void cei_launch_poison(const struct cei_launch *launch)
{
	const struct ceov_plan *plan = launch->plan;

	cei_signals_abort(plan->signals, plan->program.n_signals, launch->error, launch->blamed);
}

int cei_launch_find_abort(const struct cei_launch *launch, struct ceov_failure *failure)
{
	const struct ceov_plan *plan = launch->plan;

	*failure = cei_failure(0, 0);
	failure->error = cei_signals_blame(plan->signals, plan->program.n_signals, &failure->rank);
	return failure->error != 0;
}

/* Poison opens gates: chunks that nobody's mark let through look like any others. So
 * a launch whose signals were aborted has not done its work, whatever moved. */
static void look_for_abort(struct cei_engine *engine, struct cei_launch *launch)
{
	struct ceov_failure failure;

	if (!cei_launch_find_abort(launch, &failure))
		return;
	tell(engine, launch, NULL, NULL, &failure);
	launch->error = failure.error;
	launch->blamed = failure.rank;
}

void cei_launch_retire(struct cei_engine *engine, struct cei_launch *launch)
{
	struct ceov_plan *plan = launch->plan;
	struct cei_tickets *tickets = &plan->object.context->tickets;
	struct cei_ticket_slot *slot = launch->slot;
	int error;

	if (!launch->error)
		look_for_abort(engine, launch);
	error = launch->error;
	if (error)                      /* lanes may have written over the poison */
		cei_launch_poison(launch);
	cei_expiry_take(engine, launch);
	cei_router_leave(&engine->router, launch);
	pthread_mutex_lock(&plan->lock);
	cei_list_append(&plan->run.idle, &launch->link);
	plan->run.n_in_flight--;
	pthread_mutex_unlock(&plan->lock);
	cei_tickets_publish(tickets, slot, error);
}

struct cei_chunk *cei_launch_stuck_at(struct cei_launch *launch)
{
	uint32_t i;

	for (i = 0; i < launch->plan->program.n_chunks; i++)
		if (launch->chunks[i].state < CEI_CHUNK_DONE)
			return &launch->chunks[i];
	return NULL;
}

void cei_launches_abort(struct cei_engine *engine)
{
	struct ceov_failure failure;
	struct cei_launch *launch;
	struct cei_list *node = engine->launches.next;

	while (node != &engine->launches) {
		launch = CEI_OWNER(node, struct cei_launch, link);
		node = node->next;
		if (launch->error)
			continue;
		if (!cei_launch_find_abort(launch, &failure)) {
			failure.error = CEOV_ERR_ABORTED;
			failure.rank = engine->rank;
		}
		cei_launch_fail(engine, launch, cei_launch_stuck_at(launch), NULL, &failure);
		node = engine->launches.next;
	}
}
