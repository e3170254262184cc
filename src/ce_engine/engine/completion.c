/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Stage 4: takes done chunks off lanes, retires a launch with its last chunk, and fails
 * launches. */

#include "ce_engine/engine/completion.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "ce_engine/engine/engine.h"
#include "ce_engine/objects/abort.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/signal.h"
#include "ce_engine/sched/trace.h"

/* --- messages ------------------------------------------------------------ */

struct mark_text {
	char text[256];
};

/* Says in words how far the chunk has come. */
static const char *where_is(const struct cei_chunk *chunk)
{
	switch ((enum cei_chunk_state)chunk->state) {
	case CEI_CHUNK_ARMED:   return "its transfer has not begun";
	case CEI_CHUNK_READY:   return "waits for its lane";
	case CEI_CHUNK_PICKED:  return "is about to go on its lane";
	case CEI_CHUNK_MOVING:  return "does not come back from its lane";
	case CEI_CHUNK_DONE:    return "done";
	case CEI_CHUNK_DROPPED: return "dropped";
	}
	return "?";
}

/* The field of struct ceov_transfer that has the mark. Also what a plan adds to target_free. */
static const char *name_of(const struct cei_step *step, const struct cei_counter *counter)
{
	if (counter == &step->source_ready)
		return "source_ready";
	return counter == &step->then ? "then" : "target_free";
}

/* Describes the chunk's mark, and what its counter holds. */
static struct mark_text describe(const struct cei_chunk *chunk, const struct cei_counter *counter,
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
	snprintf(mark.text, sizeof(mark.text), "; its mark %s is %s at %" PRIu64 ", %s",
		 name_of(cei_chunk_step(chunk), counter),
		 cei_counter_text(counter->signal, counter->index).text, failure->mark_value,
		 holds);
	return mark;
}

/* Failures of a launch are told to the context that launched it. */
static struct cei_report *report_of(const struct cei_launch *launch)
{
	return &launch->plan->object.context->report;
}

/* The rank that launched it. An engine that works for several processes has another number. */
static uint32_t rank_of(const struct cei_launch *launch)
{
	return launch->plan->program.rank;
}

static void tell_launch(const struct cei_launch *launch, struct ceov_failure *failure,
			const char *why)
{
	cei_raise_failure(report_of(launch), failure, "rank %u: launch %" PRIu64 ": %s%s",
			  rank_of(launch), launch->number, why,
			  cei_blame_text(failure->rank).text);
}

struct peer_text {
	char text[128];
};

/* Says how the rank does that should have taken the chunk's bytes, if there is one. */
static struct peer_text describe_peer(const struct cei_engine *engine,
				      const struct cei_ending *ending)
{
	const struct cei_chunk *chunk = ending->chunk;
	struct peer_text peer = { "" };
	struct cei_lane *lane;
	char text[96] = "";

	if (ending->failure.error != CEOV_ERR_TIMEOUT || ending->counter ||
	    chunk->state == CEI_CHUNK_ARMED || chunk->path)
		return peer;
	lane = &engine->lanes.states[cei_chunk_step(chunk)->lane]->lane;
	if (!lane->ops->describe_peer)
		return peer;
	lane->ops->describe_peer(lane, text, sizeof(text));
	snprintf(peer.text, sizeof(peer.text), "; rank %u %s", lane->peer, text);
	return peer;
}

static void tell(const struct cei_engine *engine, struct cei_ending *ending)
{
	const struct cei_launch *launch = ending->launch;
	const struct cei_chunk *chunk = ending->chunk;
	const struct cei_counter *counter = ending->counter;
	struct ceov_failure *failure = &ending->failure;
	char why[64];

	snprintf(why, sizeof(why), "%.63s", failure->text[0] ? failure->text
		 : ceov_strerror(failure->error));
	if (!chunk) {
		tell_launch(launch, failure, why);
		return;
	}
	failure->transfer = cei_chunk_cut(chunk)->step;
	failure->chunk = chunk->index - cei_chunk_step(chunk)->first_chunk;
	if (counter) {
		failure->mark_value = launch->base + counter->value;
		if (counter->seen)      /* relaxed: for the message only */
			failure->seen_value = atomic_load_explicit(counter->seen,
								   memory_order_relaxed);
	}
	cei_raise_failure(report_of(launch), failure,
			  "rank %u: launch %" PRIu64 ", transfer %u, chunk %" PRIu64
			  ": %s%s%s; %s%s", rank_of(launch), launch->number, failure->transfer,
			  failure->chunk, why, cei_blame_text(failure->rank).text,
			  describe(chunk, counter, failure).text, where_is(chunk),
			  describe_peer(engine, ending).text);
}

/* --- launches that end --------------------------------------------------- */

/* Fails a launch whose signals were aborted, even if all of its chunks are done: poison releases
 * waits, so its chunks may have been moved before their sources were ready. */
static void look_for_abort(struct cei_launch *launch)
{
	const struct ceov_plan *plan = launch->plan;
	struct ceov_failure failure = cei_failure(0, 0);

	if (!cei_expiry_find_abort(launch, &failure))
		return;
	tell_launch(launch, &failure, ceov_strerror(failure.error));
	launch->error = failure.error;
	launch->blamed = failure.rank;
	cei_abort_unlocked(plan->signals, plan->program.n_signals, failure.error, failure.rank);
}

void cei_completion_retire(struct cei_engine *engine, struct cei_launch *launch)
{
	struct ceov_plan *plan = launch->plan;
	struct cei_ticket_slot *slot = launch->slot;
	ceov_context *context = plan->object.context;
	int error;

	if (launch->error)              /* lanes may have written over the poison */
		cei_expiry_poison(launch);
	else
		look_for_abort(launch);
	error = launch->error;
	cei_expiry_take(&engine->expiry, launch);
	cei_admission_leave(&engine->admission, launch);
	/* A guest may be closed as soon as none of its plans has a launch in flight. */
	if (context->ended)
		context->ended(context->ended_arg, launch->number, error);
	pthread_mutex_lock(&plan->lock);
	cei_list_append(&plan->run.idle, &launch->link);
	cei_context_await(context, -(plan->waits.n_watches != 0));
	plan->run.n_in_flight--;
	pthread_mutex_unlock(&plan->lock);
	/* Who has a ticket may release the plan as soon as it is told. */
	if (slot)
		cei_tickets_publish(&context->tickets, slot, error);
}

/* --- chunks that come back ----------------------------------------------- */

static void finish(struct cei_engine *engine, struct cei_chunk *chunk)
{
	struct cei_launch *launch = chunk->launch;
	uint32_t step = cei_chunk_cut(chunk)->step;

	cei_trace_stage(engine->trace, chunk, CEI_TRACE_DONE);
	cei_scheduler_leave(&engine->scheduler, chunk);
	if (launch->plan->steps[step].is_routed && cei_staging_goes_on(&engine->staging, chunk))
		return;
	chunk->state = CEI_CHUNK_DONE;
	if (chunk == cei_launch_last(launch, step))
		cei_doorbell_done(&engine->doorbell, launch, step);
	cei_trace_stage(engine->trace, chunk, CEI_TRACE_FINISHED);      /* retiring may free it */
	if (!--launch->n_open)
		cei_completion_retire(engine, launch);
}

static uint32_t reap_lane(struct cei_engine *engine, uint32_t i)
{
	struct cei_lane_state *state = engine->lanes.states[i];
	struct cei_list *moving = &state->moving;
	struct cei_chunk *chunk;
	uint64_t n_done = 0;
	uint32_t n_reaped = 0;
	int r;

	r = state->lane.ops->reap(&state->lane, &n_done);
	while (!cei_list_is_empty(moving)) {
		chunk = CEI_OWNER(moving->next, struct cei_chunk, link);
		if (chunk->sequence > n_done)
			break;
		cei_list_remove(&chunk->link);
		finish(engine, chunk);
		n_reaped++;
	}
	if (cei_list_is_empty(moving))
		cei_lane_set_remove(&engine->lanes.under_way, i);
	if (r < 0) {
		cei_lanes_break(&engine->lanes, i, r);
		cei_completion_end_broken(engine);
	}
	return n_reaped;
}

uint32_t cei_completion_reap(struct cei_engine *engine)
{
	const struct cei_lane_set *under_way = &engine->lanes.under_way;
	uint32_t i, n_reaped = 0;

	for (i = cei_lane_set_next(under_way, 0); i != CEI_NO_LANE;
	     i = cei_lane_set_next(under_way, i + 1))
		n_reaped += reap_lane(engine, i);
	return n_reaped;
}

/* --- failures ------------------------------------------------------------ */

/* Drops the launch's chunks that no lane has yet, and takes them out of their stages. */
static void drop(struct cei_engine *engine, struct cei_launch *launch)
{
	struct ceov_plan *plan = launch->plan;
	struct cei_chunk *chunk;
	uint32_t i, step;

	for (i = 0; i < plan->program.n_chunks; i++) {
		chunk = &launch->chunks[i];
		step = plan->cuts[i].step;
		if (chunk->state > CEI_CHUNK_PICKED)
			continue;
		if (chunk->state == CEI_CHUNK_ARMED && chunk == cei_launch_first(launch, step))
			cei_doorbell_disarm(&engine->doorbell, chunk);
		cei_scheduler_leave(&engine->scheduler, chunk);
		cei_list_remove(&chunk->link);
		chunk->state = CEI_CHUNK_DROPPED;
		cei_staging_release(&engine->staging, chunk);
		launch->n_open--;
		if (plan->run.turns[step] <= launch->sequence)
			plan->run.turns[step] = launch->sequence + 1;
	}
	cei_doorbell_forget(launch);
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
}

void cei_completion_fail(struct cei_engine *engine, struct cei_ending *ending)
{
	struct ceov_plan *plan = ending->launch->plan;
	struct cei_list *in_flight = &engine->expiry.in_flight;
	struct cei_list *node, *next;
	struct cei_launch *launch;

	if (ending->launch->error)
		return;
	tell(engine, ending);
	fail_quietly(engine, ending->launch, &ending->failure);
	cei_abort_unlocked(plan->signals, plan->program.n_signals, ending->failure.error,
			   ending->failure.rank);
	for (node = in_flight->next; node != in_flight; node = next) {
		next = node->next;
		launch = CEI_OWNER(node, struct cei_launch, link);
		if (launch->plan != plan)
			continue;
		fail_quietly(engine, launch, &ending->failure);
		if (!launch->n_open)
			cei_completion_retire(engine, launch);
	}
}

/* The rank to blame for a lane's failure: the only one that it leads to, if that is lost; else the
 * launch's. */
static uint32_t blamed_rank(const struct cei_launch *launch, const struct cei_lane_state *state)
{
	int is_lost = state->error == CEOV_ERR_PEER_LOST || state->error == CEOV_ERR_UNCERTAIN;

	return is_lost && state->lane.peer != CEOV_NOBODY ? state->lane.peer
		: rank_of(launch);
}

/* Adds what the mover knows of the lane's failure. */
static void explain(struct cei_lane_state *state, struct ceov_failure *failure)
{
	const struct cei_place_ops *ops = state->lane.backend->ops;

	if (ops->lost)
		(void)ops->lost(state->lane.backend, failure->text);
}

/* Drops the chunks on the lane and fails their launches. If the lane may still move them, their
 * plans are marked as stuck. */
static void end_lane(struct cei_engine *engine, uint32_t i)
{
	struct cei_lane_state *state = engine->lanes.states[i];
	struct cei_list *moving = &state->moving;
	int is_idle = state->lane.ops->is_idle(&state->lane);
	struct cei_ending ending;
	struct cei_chunk *chunk;

	if (!is_idle)
		cei_lane_set_add(&engine->lanes.stuck, i);
	while (!cei_list_is_empty(moving)) {
		chunk = CEI_OWNER(cei_list_take(moving), struct cei_chunk, link);
		chunk->state = CEI_CHUNK_DROPPED;
		cei_scheduler_leave(&engine->scheduler, chunk);
		/* Its slot may be filled again: whatever takes this path meets this lane,
		 * and fails. */
		cei_staging_release(&engine->staging, chunk);
		if (!is_idle)
			cei_lane_set_add(&chunk->launch->plan->run.stuck_lanes, i);
		ending = (struct cei_ending){ .launch = chunk->launch, .chunk = chunk };
		ending.failure = cei_failure(state->error, 0);
		ending.failure.rank = blamed_rank(chunk->launch, state);
		explain(state, &ending.failure);
		cei_completion_fail(engine, &ending);
		if (!--chunk->launch->n_open)
			cei_completion_retire(engine, chunk->launch);
	}
	cei_lane_set_remove(&engine->lanes.under_way, i);
}

void cei_completion_end_broken(struct cei_engine *engine)
{
	struct cei_lane_set *broken = &engine->lanes.broken;
	uint32_t i;

	while ((i = cei_lane_set_next(broken, 0)) != CEI_NO_LANE) {
		cei_fence_look(&engine->fence, &engine->movers);
		end_lane(engine, i);
		cei_lane_set_remove(broken, i);
	}
}

void cei_completion_fall(struct cei_engine *engine, const struct cei_chunk *chunk)
{
	struct cei_ending ending = { .launch = chunk->launch, .chunk = chunk };

	ending.counter = &cei_chunk_step(chunk)->then;
	ending.failure = cei_failure(CEOV_ERR_INVALID, 0);
	ending.failure.rank = rank_of(ending.launch);
	snprintf(ending.failure.text, sizeof(ending.failure.text), "its mark would fall");
	cei_completion_fail(engine, &ending);
}

/* Gives up the lane that does not give back the chunks of a failed launch. */
static void give_up(struct cei_engine *engine, struct cei_ending *ending)
{
	struct cei_launch *launch = ending->launch;
	uint32_t lane;

	launch->error = CEOV_ERR_UNCERTAIN;
	if (!ending->chunk)
		return;
	lane = ending->chunk->job.lane;
	cei_raise(engine->site->report, CEOV_ERR_UNCERTAIN, 0,
		  "%s: lane %u does not come back after launch %" PRIu64
		  " failed; its targets are uncertain and the lane takes no more",
		  engine->lanes.states[lane]->lane.backend->ops->name, lane, launch->number);
	cei_lanes_break(&engine->lanes, lane, CEOV_ERR_UNCERTAIN);
	cei_completion_end_broken(engine);
}

/* Puts a held launch among those in flight, so that it can fail like them. */
static void let_in(struct cei_engine *engine, struct cei_launch *launch)
{
	launch->plan->run.n_held = 0;       /* admission sets it again if another one is held */
	launch->plan->run.n_admitted++;
	cei_expiry_put(&engine->expiry, launch, &engine->expiry.in_flight);
	cei_doorbell_arm(&engine->doorbell, launch);
}

void cei_completion_expire(struct cei_engine *engine, uint64_t now_ns)
{
	struct cei_ending ending;

	if (!cei_expiry_turn(&engine->expiry, now_ns, &ending))
		return;
	if (ending.is_held)
		let_in(engine, ending.launch);
	if (ending.failure.error)
		cei_completion_fail(engine, &ending);
	else
		give_up(engine, &ending);
}

/* Ends every launch, for a reason that give_reason() fills in. */
static void end_all(struct cei_engine *engine,
		    void (*give_reason)(struct cei_engine *engine, struct cei_ending *ending))
{
	struct cei_list *node = engine->expiry.in_flight.next;
	struct cei_ending ending;

	while (node != &engine->expiry.in_flight) {
		ending = (struct cei_ending){ .failure = cei_failure(0, 0) };
		ending.launch = CEI_OWNER(node, struct cei_launch, link);
		ending.chunk = cei_expiry_stuck_at(ending.launch);
		node = node->next;
		if (ending.launch->error)
			continue;
		give_reason(engine, &ending);
		cei_completion_fail(engine, &ending);
		node = engine->expiry.in_flight.next;
	}
}

/* The fence's reason goes before an abort that another launch of the place has left in signals. */
static void give_fence(struct cei_engine *engine, struct cei_ending *ending)
{
	ending->failure.error = cei_fence_read(&engine->fence, ending->failure.text);
	ending->failure.rank = rank_of(ending->launch);
}

static void give_stop(struct cei_engine *engine, struct cei_ending *ending)
{
	(void)engine;
	if (cei_expiry_find_abort(ending->launch, &ending->failure))
		return;
	ending->failure.error = CEOV_ERR_ABORTED;
	ending->failure.rank = rank_of(ending->launch);
}

/* Whether the lane moves its first chunk. A chunk that waits there keeps those behind it. */
static int moves(const struct cei_list *moving, int unknown)
{
	const struct cei_chunk *chunk = CEI_OWNER(moving->next, struct cei_chunk, link);
	const struct cei_counter *ready = &cei_chunk_step(chunk)->source_ready;

	if (chunk->launch->after)
		return unknown;
	if (!cei_launch_lane_waits(chunk->launch) || !ready->signal)
		return 1;
	if (!ready->seen)
		return unknown;
	/* relaxed: decides only how long to wait */
	return atomic_load_explicit(ready->seen, memory_order_relaxed) >=
		chunk->launch->base + ready->value;
}

int cei_completion_moves(const struct cei_engine *engine, int unknown)
{
	const struct cei_lane_set *under_way = &engine->lanes.under_way;
	uint32_t i;

	for (i = cei_lane_set_next(under_way, 0); i != CEI_NO_LANE;
	     i = cei_lane_set_next(under_way, i + 1))
		if (moves(&engine->lanes.states[i]->moving, unknown))
			return 1;
	return 0;
}

void cei_completion_end_fenced(struct cei_engine *engine)
{
	end_all(engine, give_fence);
}

void cei_completion_abort_all(struct cei_engine *engine)
{
	end_all(engine, give_stop);
}
