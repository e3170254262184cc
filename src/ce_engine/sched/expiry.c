/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Looks at launches for deadlines that have passed and for aborts, in bounded steps. */

#include "ce_engine/sched/expiry.h"

#include <string.h>

#include "ce_engine/objects/abort.h"

/* --- lists --------------------------------------------------------------- */

void cei_expiry_init(struct cei_expiry *expiry)
{
	memset(expiry, 0, sizeof(*expiry));
	cei_list_init(&expiry->held);
	cei_list_init(&expiry->in_flight);
}

static void step(struct cei_expiry *expiry)
{
	expiry->at = expiry->at->next;
	expiry->next_signal = 0;
}

void cei_expiry_take(struct cei_expiry *expiry, struct cei_launch *launch)
{
	if (expiry->at == &launch->link)
		step(expiry);
	cei_list_remove(&launch->link);
}

void cei_expiry_put(struct cei_expiry *expiry, struct cei_launch *launch,
		    struct cei_list *list)
{
	cei_expiry_take(expiry, launch);
	launch->listed_pass = expiry->pass;
	cei_list_append(list, &launch->link);
}

/* --- deadlines ----------------------------------------------------------- */

int cei_expiry_find_abort(const struct cei_launch *launch, struct ceov_failure *failure)
{
	const struct ceov_plan *plan = launch->plan;

	failure->error = cei_signals_blame(plan->signals, plan->program.n_signals, &failure->rank);
	return failure->error != 0;
}

void cei_expiry_poison(const struct cei_launch *launch)
{
	const struct ceov_plan *plan = launch->plan;

	cei_abort_alone(plan->signals, plan->program.n_signals, launch->error, launch->blamed);
}

const struct cei_chunk *cei_expiry_stuck_at(const struct cei_launch *launch)
{
	uint32_t i;

	for (i = 0; i < launch->plan->program.n_chunks; i++)
		if (launch->chunks[i].state < CEI_CHUNK_DONE)
			return &launch->chunks[i];
	return NULL;
}

static int is_missing(const struct cei_counter *counter, uint64_t base)
{
	if (!counter->signal)
		return 0;
	/* relaxed: for the message only. A mark that only lanes can see counts as missing. */
	return !counter->seen || atomic_load_explicit(counter->seen, memory_order_relaxed) <
		base + counter->value;
}

/* Returns the chunk's mark that is not reached; NULL: all are reached. */
static const struct cei_counter *missing_mark(const struct cei_chunk *chunk)
{
	const struct cei_step *step;
	uint32_t i;

	if (!chunk)
		return NULL;
	step = cei_chunk_step(chunk);
	if (is_missing(&step->target_free, chunk->launch->base))
		return &step->target_free;
	for (i = 0; i < step->n_also; i++)
		if (is_missing(&step->also[i].counter, chunk->launch->base))
			return &step->also[i].counter;
	return is_missing(&step->source_ready, chunk->launch->base) ? &step->source_ready : NULL;
}

/* The rank to blame for a chunk whose marks are reached: where its bytes go to another node, that
 * which should have taken them; else the rank that launched it. */
static uint32_t blamed_for(const struct cei_ending *ending)
{
	const struct cei_program *program = &ending->launch->plan->program;
	const struct cei_chunk *chunk = ending->chunk;
	uint32_t step;

	if (!chunk || chunk->state == CEI_CHUNK_ARMED)
		return program->rank;
	step = cei_chunk_cut(chunk)->step;
	return cei_program_leaves_node(program, step) ? cei_program_target_rank(program, step)
		: program->rank;
}

/* Fills the failure of a launch whose deadline has passed. If a signal was aborted, which no stage
 * has seen yet, that is the reason: poisoned marks look as if they were reached. */
static void expire(struct cei_ending *ending)
{
	if (cei_expiry_find_abort(ending->launch, &ending->failure))
		return;
	ending->counter = missing_mark(ending->chunk);
	ending->failure.error = CEOV_ERR_TIMEOUT;
	ending->failure.rank = ending->counter ? ending->counter->signal->rank
		: blamed_for(ending);
}

/* --- a pass -------------------------------------------------------------- */

enum look {
	LOOK_WELL,
	LOOK_NOT_ALL,                   /* some of its signals are left for the next turn */
	LOOK_ENDS,                      /* because of the failure found; without one because of its
					 * deadline */
};

static int is_new(const struct cei_expiry *expiry)
{
	return CEI_OWNER(expiry->at, struct cei_launch, link)->listed_pass == expiry->pass;
}

/* Returns the pass's next launch; NULL: the pass has ended. It ends at the launches that were put
 * into the list since it began, which are the last ones there. */
static struct cei_launch *next_launch(struct cei_expiry *expiry)
{
	if (expiry->is_held && (expiry->at == &expiry->held || is_new(expiry))) {
		expiry->is_held = 0;
		expiry->at = expiry->in_flight.next;
		expiry->next_signal = 0;
	}
	if (!expiry->is_held && (expiry->at == &expiry->in_flight || is_new(expiry)))
		return NULL;
	return CEI_OWNER(expiry->at, struct cei_launch, link);
}

/* Whether the pass has done the plan's signals: looked at them or, for failed launches, poisoned
 * them. */
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

/* Checks a launch's deadline, and its plan's signals for an abort, which *failure then describes.
 * Signals of a launch that has failed are poisoned again instead, once in each pass; that takes
 * long, so it uses up the turn's budget, *n_left. */
static enum look look_at(struct cei_expiry *expiry, const struct cei_launch *launch,
			 uint64_t now_ns, uint32_t *n_left, struct ceov_failure *failure)
{
	--*n_left;
	if (launch->error && !is_seen_to(expiry, launch)) {
		cei_expiry_poison(launch);      /* a raiser may have overwritten poison that a
						 * waiting lane needs */
		see_to(expiry, launch);
		*n_left = 0;
	}
	if (now_ns >= launch->deadline_ns)
		return LOOK_ENDS;
	if (launch->error || is_seen_to(expiry, launch))
		return LOOK_WELL;
	return look_at_signals(expiry, launch, n_left, failure);
}

static void begin_pass(struct cei_expiry *expiry)
{
	expiry->pass++;
	expiry->is_held = 1;
	expiry->at = expiry->held.next;
	expiry->next_signal = 0;
}

static int go_on(struct cei_expiry *expiry, uint64_t now_ns, struct cei_ending *ending)
{
	uint32_t n_left = CEI_EXPIRY_LOOKS;
	enum look look = LOOK_WELL;
	struct cei_launch *launch;

	while (n_left && look == LOOK_WELL && (launch = next_launch(expiry))) {
		ending->launch = launch;
		ending->is_held = expiry->is_held;
		look = look_at(expiry, launch, now_ns, &n_left, &ending->failure);
		if (look != LOOK_NOT_ALL)
			step(expiry);
	}
	if (look != LOOK_ENDS)
		return 0;
	ending->chunk = cei_expiry_stuck_at(ending->launch);
	if (!ending->failure.error && !ending->launch->error)
		expire(ending);
	return 1;
}

int cei_expiry_turn(struct cei_expiry *expiry, uint64_t now_ns, struct cei_ending *ret_ending)
{
	int r;

	if (!expiry->at && now_ns < expiry->next_pass_ns)
		return 0;
	*ret_ending = (struct cei_ending){ .failure = cei_failure(0, 0) };
	if (!expiry->at)
		begin_pass(expiry);
	r = go_on(expiry, now_ns, ret_ending);
	if (next_launch(expiry))
		return r;
	expiry->at = NULL;
	/* overflows for CEI_FOREVER, when the engine gives up: the next pass begins at once */
	expiry->next_pass_ns = now_ns + CEI_EXPIRY_NS;
	return r;
}
