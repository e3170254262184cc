/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Deadlines and aborts of launches: what is looked at, and when. */

#include "ce_engine/expiry.h"

#include <inttypes.h>

#include "ce_engine/engine.h"
#include "ce_engine/launch.h"

/* --- lists --------------------------------------------------------------- */

static void step(struct cei_expiry *expiry)
{
	expiry->at = expiry->at->next;
	expiry->next_signal = 0;
}

void cei_expiry_take(struct cei_engine *engine, struct cei_launch *launch)
{
	if (engine->expiry.at == &launch->link)
		step(&engine->expiry);
	cei_list_remove(&launch->link);
}

void cei_expiry_put(struct cei_engine *engine, struct cei_launch *launch,
		    struct cei_list *list)
{
	cei_expiry_take(engine, launch);
	launch->listed_pass = engine->expiry.pass;
	cei_list_append(list, &launch->link);
}

/* --- deadlines ----------------------------------------------------------- */

static int is_missing(const struct cei_counter *counter, uint64_t base)
{
	if (!counter->signal)
		return 0;
	/* relaxed: for the message only. What lanes alone can see may be missing. */
	return !counter->seen || atomic_load_explicit(counter->seen, memory_order_relaxed) <
		base + counter->value;
}

/* The chunk's mark that is not reached; NULL: both are, so its own rank is to blame. */
static const struct cei_counter *missing_mark(const struct cei_launch *launch,
					      const struct cei_chunk *chunk)
{
	const struct ceov_plan *plan = launch->plan;
	const struct cei_step *at;

	if (!chunk)
		return NULL;
	at = &plan->steps[plan->cuts[chunk->index].step];
	if (is_missing(&at->target_free, launch->base))
		return &at->target_free;
	return is_missing(&at->source_ready, launch->base) ? &at->source_ready : NULL;
}

/* An abort that nothing has looked at yet is the reason, if there is one: its poison looks
 * like marks that have been reached. */
static void expire(struct cei_engine *engine, struct cei_launch *launch)
{
	const struct cei_chunk *chunk = cei_launch_stuck_at(launch);
	const struct cei_counter *counter = missing_mark(launch, chunk);
	struct ceov_failure failure;

	if (cei_launch_find_abort(launch, &failure)) {
		cei_launch_fail(engine, launch, chunk, NULL, &failure);
		return;
	}
	failure = cei_failure(CEOV_ERR_TIMEOUT, 0);
	failure.rank = counter ? counter->signal->rank : engine->rank;
	cei_launch_fail(engine, launch, chunk, counter, &failure);
}

/* A failed launch whose chunks do not come back: its lanes are given up. */
static void give_up(struct cei_engine *engine, struct cei_launch *launch)
{
	const struct cei_chunk *chunk = cei_launch_stuck_at(launch);

	launch->error = CEOV_ERR_UNCERTAIN;
	if (!chunk)
		return;
	cei_raise(engine->site->report, CEOV_ERR_UNCERTAIN, 0,
		  "%s: lane %u does not come back after launch %" PRIu64
		  " failed; its targets are uncertain and the lane takes no more",
		  engine->lanes.lane[chunk->lane].backend->ops->name, chunk->lane,
		  launch->number);
	cei_lanes_break(engine, chunk->lane, CEOV_ERR_UNCERTAIN);
}

/* A held launch is let in, to fail like the others. */
static void let_in(struct cei_engine *engine, struct cei_launch *launch)
{
	launch->plan->run.n_held = 0;       /* or found again in the next turn */
	launch->plan->run.n_admitted++;
	cei_expiry_put(engine, launch, &engine->launches);
	cei_doorbell_arm(&engine->doorbell, launch);
}

/* --- a pass -------------------------------------------------------------- */

enum look {
	LOOK_WELL,
	LOOK_NOT_ALL,                   /* some of its signals are left for the next turn */
	LOOK_ENDS,                      /* by the failure found or, without one, by its
					 * deadline */
};

static int is_new(const struct cei_expiry *expiry)
{
	return CEI_OWNER(expiry->at, struct cei_launch, link)->listed_pass == expiry->pass;
}

/* The next launch of the pass; NULL: it has ended. Those that came into a list since it began
 * are the last ones there. */
static struct cei_launch *next_launch(struct cei_engine *engine)
{
	struct cei_expiry *expiry = &engine->expiry;

	if (expiry->is_held && (expiry->at == &engine->held || is_new(expiry))) {
		expiry->is_held = 0;
		expiry->at = engine->launches.next;
		expiry->next_signal = 0;
	}
	if (!expiry->is_held && (expiry->at == &engine->launches || is_new(expiry)))
		return NULL;
	return CEI_OWNER(expiry->at, struct cei_launch, link);
}

/* Whether the pass has seen to the plan's signals for a launch like this one. */
static int is_seen_to(const struct cei_expiry *expiry, const struct cei_launch *launch)
{
	return launch->plan->run.expiry_pass[launch->error != 0] == expiry->pass;
}

static void see_to(const struct cei_expiry *expiry, const struct cei_launch *launch)
{
	launch->plan->run.expiry_pass[launch->error != 0] = expiry->pass;
}

static enum look look_at_signals(struct cei_expiry *expiry, const struct cei_launch *launch,
				 uint32_t *n_left, struct ceov_failure *failure)
{
	const struct ceov_plan *plan = launch->plan;
	uint32_t n = plan->program.n_signals - expiry->next_signal;

	n = n < *n_left ? n : *n_left;
	*n_left -= n;
	failure->error = cei_signals_blame(plan->signals + expiry->next_signal, n,
					   &failure->rank);
	if (failure->error)
		return LOOK_ENDS;
	expiry->next_signal += n;
	if (expiry->next_signal < plan->program.n_signals)
		return LOOK_NOT_ALL;
	see_to(expiry, launch);
	return LOOK_WELL;
}

/* What a launch has come to since the last pass; an abort fills the failure. To poison the
 * signals of one that has failed is more than a look, so nothing else is done in the same
 * turn. */
static enum look look_at(struct cei_expiry *expiry, const struct cei_launch *launch,
			 uint64_t now_ns, uint32_t *n_left, struct ceov_failure *failure)
{
	--*n_left;
	if (launch->error && !is_seen_to(expiry, launch)) {
		cei_launch_poison(launch);      /* a raiser may have covered what a gate
						 * waits to see */
		see_to(expiry, launch);
		*n_left = 0;
	}
	if (now_ns >= launch->deadline_ns)
		return LOOK_ENDS;
	if (launch->error || is_seen_to(expiry, launch))
		return LOOK_WELL;
	return look_at_signals(expiry, launch, n_left, failure);
}

/* The pass has moved on from it before, since the launch may be gone after this. */
static void end(struct cei_engine *engine, struct cei_launch *launch, int is_held,
		struct ceov_failure *failure)
{
	if (is_held)
		let_in(engine, launch);
	if (failure->error)
		cei_launch_fail(engine, launch, cei_launch_stuck_at(launch), NULL, failure);
	else if (launch->error)
		give_up(engine, launch);
	else
		expire(engine, launch);
}

static void begin_pass(struct cei_engine *engine)
{
	struct cei_expiry *expiry = &engine->expiry;

	expiry->pass++;
	expiry->is_held = 1;
	expiry->at = engine->held.next;
	expiry->next_signal = 0;
}

static void go_on(struct cei_engine *engine, uint64_t now_ns)
{
	struct cei_expiry *expiry = &engine->expiry;
	struct ceov_failure failure = cei_failure(0, 0);
	uint32_t n_left = CEI_EXPIRY_LOOKS;
	enum look look = LOOK_WELL;
	struct cei_launch *launch;
	int is_held;

	while (n_left && look == LOOK_WELL && (launch = next_launch(engine))) {
		look = look_at(expiry, launch, now_ns, &n_left, &failure);
		is_held = expiry->is_held;
		if (look != LOOK_NOT_ALL)
			step(expiry);
		if (look == LOOK_ENDS)
			end(engine, launch, is_held, &failure);
	}
}

void cei_expiry_turn(struct cei_engine *engine, uint64_t now_ns)
{
	struct cei_expiry *expiry = &engine->expiry;

	if (!expiry->at && now_ns < expiry->next_pass_ns)
		return;
	if (!expiry->at)
		begin_pass(engine);
	go_on(engine, now_ns);
	if (next_launch(engine))
		return;
	expiry->at = NULL;
	/* overflows for CEI_FOREVER, when the engine gives up: the next pass begins at once */
	expiry->next_pass_ns = now_ns + CEI_EXPIRY_NS;
}
