/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Stage 1: polls the host words of marks. Issues nothing. */

#include "ce_engine/engine/doorbell.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "ce_engine/exec/lanes.h"
#include "ce_engine/exec/staging.h"
#include "ce_engine/program/program_cut.h"
#include "ce_engine/sched/trace.h"

enum look { LOOK_REACHED, LOOK_NOT_YET, LOOK_ABORTED };

void cei_doorbell_arm(struct cei_doorbell *doorbell, struct cei_launch *launch)
{
	uint32_t i, n = launch->plan->program.n_transfers;

	for (i = 0; i < n; i++)
		cei_list_append(&doorbell->parking.armed, &cei_launch_first(launch, i)->link);
	doorbell->n_armed += n;
	doorbell->parking.n_awake += n;
}

void cei_doorbell_disarm(struct cei_doorbell *doorbell, struct cei_chunk *chunk)
{
	doorbell->n_armed--;
	doorbell->parking.n_awake -= chunk->parked == CEI_AWAKE;
}

static enum look look_at(const struct cei_counter *counter, uint64_t base)
{
	uint64_t seen;

	if (!counter->signal)
		return LOOK_REACHED;
	/* acquire: pairs with the raiser's release - a kernel's st.release.sys, a
	 * lane's flag write, cei_signal raise by a thread */
	seen = atomic_load_explicit(counter->seen, memory_order_acquire);
	/* acquire: pairs with cei_signal_raise_abort() */
	if (atomic_load_explicit(&counter->header->abort_code, memory_order_acquire))
		return LOOK_ABORTED;
	return seen >= base + counter->value ? LOOK_REACHED : LOOK_NOT_YET;
}

static void end_aborted(const struct cei_chunk *chunk, const struct cei_counter *counter,
			struct cei_ending *ending)
{
	*ending = (struct cei_ending){ .launch = chunk->launch, .chunk = chunk,
				       .counter = counter, .failure = cei_failure(0, 0) };
	ending->failure.error = cei_signal_blame(counter->signal, &ending->failure.rank);
	if (!ending->failure.error)     /* it was renewed since, although a launch is in flight */
		ending->failure.error = CEOV_ERR_ABORTED;
}

/* Looks for an abort only. For marks that are not waited for here: the one that a transfer
 * raises, and source_ready, for which a lane waits in a gated launch. */
static enum look look_at_abort(const struct cei_counter *counter)
{
	if (!counter->signal)
		return LOOK_REACHED;
	/* acquire: pairs with cei_signal_raise_abort() */
	return atomic_load_explicit(&counter->header->abort_code, memory_order_acquire)
		? LOOK_ABORTED : LOOK_REACHED;
}

static uint32_t step_index(const struct cei_chunk *chunk)
{
	return cei_chunk_cut(chunk)->step;
}

/* Whether all transfers of earlier launches on the gated lane of this one have left the
 * doorbell. Before that, a launch that comes after its stream would stop the lane at a
 * point of the stream that may wait for them. */
static int is_oldest(const struct cei_launch *launch)
{
	return launch->gate_line->next == &launch->gate_link;
}

/* Whether the transfer's lane, not the doorbell, waits for source_ready: only if it is the next
 * transfer in the order of the lane's launches. Otherwise the lane could wait for a mark whose
 * producer waits for a transfer behind this one; so the doorbell polls the mark. */
static int is_left_to_lane(const struct cei_chunk *chunk)
{
	const struct cei_launch *launch = chunk->launch;

	return cei_launch_lane_waits(launch) && is_oldest(launch) &&
		launch->next_step == step_index(chunk);
}

/* Polls a mark whose wait is not left to the lane. A mark that the host cannot see counts as not
 * reached, until the wait is left to the lane. */
static enum look look_ahead(const struct cei_counter *counter, uint64_t base)
{
	enum look look = look_at_abort(counter);

	if (look != LOOK_REACHED || !counter->signal)
		return look;
	return counter->seen ? look_at(counter, base) : LOOK_NOT_YET;
}

/* Whether the transfer may write: its target is free, for all who read it, and neither these marks
 * nor the one that it raises was aborted. */
static enum look look_at_target(const struct cei_chunk *chunk,
				const struct cei_counter **ret_counter)
{
	const struct cei_step *step = cei_chunk_step(chunk);
	enum look look;
	uint32_t i;

	*ret_counter = &step->then;
	if (look_at_abort(&step->then) == LOOK_ABORTED)
		return LOOK_ABORTED;
	*ret_counter = &step->target_free;
	look = look_at(&step->target_free, chunk->launch->base);
	for (i = 0; look == LOOK_REACHED && i < step->n_also; i++) {
		*ret_counter = &step->also[i].counter;
		look = look_at(*ret_counter, chunk->launch->base);
	}
	return look;
}

/* For traces: keeps which mark of the transfer was seen missing last. */
static void note_target(struct cei_chunk *chunk, const struct cei_counter *missing)
{
	const struct cei_step *step = cei_chunk_step(chunk);
	uint64_t also = 0;

	chunk->awaited = CEI_AWAITED_TARGET;
	if (missing == &step->target_free)
		return;
	while (also < step->n_also && missing != &step->also[also].counter)
		also++;
	if (also > UINT16_MAX - CEI_AWAITED_ALSO)
		also = UINT16_MAX - CEI_AWAITED_ALSO;
	chunk->awaited = (uint16_t)(CEI_AWAITED_ALSO + also);
}

static enum look look_at_source(const struct cei_chunk *chunk,
				const struct cei_counter **ret_counter)
{
	const struct cei_step *step = cei_chunk_step(chunk);

	*ret_counter = &step->source_ready;
	if (is_left_to_lane(chunk))
		return look_at_abort(&step->source_ready);
	return look_ahead(&step->source_ready, chunk->launch->base);
}

/* Moves next_step to the launch's first transfer that is still armed. */
static void advance(struct cei_launch *launch)
{
	uint32_t n = launch->plan->program.n_transfers;

	while (launch->next_step < n &&
	       cei_launch_first(launch, launch->next_step)->state != CEI_CHUNK_ARMED)
		launch->next_step++;
	if (launch->next_step == n)
		cei_list_remove(&launch->gate_link);
}

void cei_doorbell_forget(struct cei_launch *launch)
{
	cei_parking_forget(launch);
	advance(launch);
}

void cei_doorbell_done(struct cei_doorbell *doorbell, struct cei_launch *launch, uint32_t step)
{
	if (launch->n_parked)
		cei_parking_done(&doorbell->parking, launch, step);
}

/* How many rows the launch moves of the transfer, whose source_ready is reached. */
static uint64_t rows_of(const struct cei_step *step)
{
	/* relaxed: look_at() has acquired the mark whose raiser wrote the number before */
	return step->count ? atomic_load_explicit(step->count, memory_order_relaxed)
		: step->piece.n_rows;
}

/* Passes on n_rows rows of the transfer. */
static uint32_t pass_on(struct cei_doorbell *doorbell, struct cei_launch *launch, uint32_t index,
			uint64_t n_rows)
{
	const struct cei_step *step = &launch->plan->steps[index];
	struct cei_chunk *chunk = cei_launch_first(launch, index);
	struct cei_chunk *end = chunk + step->n_chunks;
	uint16_t awaited = chunk->awaited;

	launch->plan->run.turns[index] = launch->sequence + 1;
	cei_doorbell_disarm(doorbell, chunk);
	for (; chunk < end; chunk++) {
		cei_list_remove(&chunk->link);
		chunk->state = CEI_CHUNK_READY;
		chunk->job.bytes = cei_split_bytes_within(&step->piece,
							  &cei_chunk_cut(chunk)->piece, n_rows);
		chunk->awaited = awaited;
		cei_trace_stage(doorbell->trace, chunk, CEI_TRACE_READY);
		if (step->is_routed && launch->gate == CEOV_NOBODY)
			cei_staging_send(doorbell->staging, chunk);
		else
			cei_scheduler_add(doorbell->scheduler, chunk);
	}
	advance(launch);
	if (launch->n_parked && launch->next_step < launch->plan->program.n_transfers)
		cei_parking_next(&doorbell->parking, launch, launch->next_step);
	return step->n_chunks;
}

/* Neighbouring transfers of one launch that wait for the same source_ready. They are passed on
 * together if possible: as one batch of copies and one batch of marks, in the order of the plan, by
 * which templates keep receivers apart. */
struct bunch {
	struct cei_chunk *chunks[CEI_GROUP_MAX];
	uint32_t          n;
	uint32_t          n_free;       /* how many of them have a free target */
	enum cei_parked   why;          /* if it is NOT_YET: what it waits for */
};

static int is_empty(const struct cei_chunk *chunk)
{
	return !cei_chunk_step(chunk)->piece.row_bytes;
}

/* Whether the chunk's transfer belongs to the bunch. A transfer that moves nothing is a bunch of
 * its own: it waits for others, and none of them waits for it. */
static int belongs(const struct bunch *bunch, const struct cei_chunk *chunk)
{
	const struct cei_counter *first, *other;

	if (!bunch->n)
		return 1;
	if (bunch->n == CEI_GROUP_MAX || chunk->launch != bunch->chunks[0]->launch ||
	    is_empty(chunk) || is_empty(bunch->chunks[0]))
		return 0;
	first = &cei_chunk_step(bunch->chunks[0])->source_ready;
	other = &cei_chunk_step(chunk)->source_ready;
	return cei_counter_is_same(first, other) && first->value == other->value;
}

/* Takes the next bunch, which begins at *node; moves *node behind it. */
static void collect(struct cei_list *armed, struct cei_list **node, struct bunch *bunch)
{
	struct cei_chunk *chunk;

	bunch->n = bunch->n_free = 0;
	while (*node != armed) {
		chunk = CEI_OWNER(*node, struct cei_chunk, link);
		if (!belongs(bunch, chunk))
			return;
		bunch->chunks[bunch->n++] = chunk;
		*node = (*node)->next;
	}
}

/* Whether all transfers that must leave the doorbell before this one have done so: the same
 * transfer of earlier launches; if the launch follows a stream, all transfers of earlier launches
 * on its lane; and if it moves nothing, all transfers before it in the plan. */
static int is_its_turn(const struct cei_chunk *chunk)
{
	const struct cei_launch *launch = chunk->launch;

	if (launch->plan->run.turns[step_index(chunk)] < launch->sequence)
		return 0;
	if (launch->after && !is_oldest(launch))
		return 0;
	if (!is_empty(chunk))
		return 1;
	/* Its mark says that their bytes are there. A lane's order says so of what went
	 * directly; who took other paths has to be done. */
	return launch->next_step == step_index(chunk) &&
	       cei_staging_is_closed(chunk->launch, launch->next_step);
}

static void note_source(const struct bunch *bunch)
{
	uint32_t i;

	for (i = 0; i < bunch->n; i++)
		bunch->chunks[i]->awaited = CEI_AWAITED_SOURCE;
}

/* Looks at the bunch's marks. NOT_YET: its source is not ready, or another transfer
 * must pass first. REACHED: ready, and n_free says how many may go. */
static enum look look_at_bunch(struct bunch *bunch, int is_traced, struct cei_chunk **ret_chunk,
			       const struct cei_counter **ret_counter)
{
	struct cei_chunk *chunk;
	enum look look;
	uint32_t i;
	int is_turn = 1;

	for (i = 0; i < bunch->n; i++) {
		*ret_chunk = chunk = bunch->chunks[i];
		look = look_at_target(chunk, ret_counter);
		if (look == LOOK_ABORTED)
			return look;
		if (is_traced && look == LOOK_NOT_YET)
			note_target(chunk, *ret_counter);
		bunch->n_free += look == LOOK_REACHED;
		is_turn &= is_its_turn(chunk);
	}
	*ret_chunk = chunk = bunch->chunks[0];
	look = look_at_source(chunk, ret_counter);
	if (is_traced && look == LOOK_NOT_YET)
		note_source(bunch);
	bunch->why = look == LOOK_NOT_YET ? CEI_PARKED_SOURCE : CEI_PARKED_TURN;
	return look == LOOK_REACHED && !is_turn ? LOOK_NOT_YET : look;
}

/* Whether something would send the parked chunk back. The next transfer of a gated launch is not
 * parked: its wait may be left to the lane at any time. Nor is one that waits for an earlier launch
 * of its plan: nothing would send it back then. */
static int may_park(const struct cei_chunk *chunk, enum cei_parked why)
{
	const struct cei_launch *launch = chunk->launch;
	int is_next = launch->next_step == step_index(chunk);

	if (why == CEI_PARKED_TURN)
		return is_empty(chunk) && !is_next;
	return launch->gate == CEOV_NOBODY || !is_next;
}

/* Parks transfers of the bunch, as long as the doorbell's list is too long. */
static void park(struct cei_parking *parking, const struct bunch *bunch, enum cei_parked why)
{
	uint32_t i;

	for (i = 0; i < bunch->n && parking->n_awake > CEI_PARKING_AWAKE; i++)
		if (may_park(bunch->chunks[i], why))
			cei_parking_park(parking, bunch->chunks[i], why);
}

/* Whether a bunch whose source is ready should wait for the rest of its targets, or for an earlier
 * bunch of its launch that does so. The time limit begins when a transfer could go. */
static int must_hold(const struct bunch *bunch, const struct cei_launch *held)
{
	struct cei_launch *launch = bunch->chunks[0]->launch;
	uint64_t now;

	if (!bunch->n_free)
		return 1;
	if (bunch->n_free == bunch->n && launch != held && !launch->n_blocked)
		return 0;
	now = cei_now_ns();
	if (!launch->hold_until_ns)
		launch->hold_until_ns = now + CEI_DOORBELL_HOLD_NS;
	return now < launch->hold_until_ns;
}

/* Keeps the bunch armed. Returns its launch, whose further bunches wait behind it. */
static const struct cei_launch *hold(struct cei_parking *parking, const struct bunch *bunch)
{
	const struct cei_launch *launch = bunch->chunks[0]->launch;

	if (!bunch->n_free)
		park(parking, bunch, CEI_PARKED_TARGET);
	return launch;
}

/* Reads once how many rows a transfer moves: who wrote the number may change it at any time.
 * Returns 0 if it has fewer, and *ret_ending is filled. */
static int count_rows(const struct cei_chunk *chunk, uint64_t *ret_n_rows,
		      struct cei_ending *ret_ending)
{
	const struct cei_step *step = cei_chunk_step(chunk);

	*ret_n_rows = rows_of(step);
	if (*ret_n_rows <= step->piece.n_rows)
		return 1;
	*ret_ending = (struct cei_ending){ .launch = chunk->launch, .chunk = chunk,
					   .failure = cei_failure(CEOV_ERR_INVALID, 0) };
	ret_ending->failure.rank = step->source_ready.signal->rank;
	snprintf(ret_ending->failure.text, sizeof(ret_ending->failure.text),
		 "n_rows_at is %" PRIu64 " of %" PRIu64 " rows", *ret_n_rows, step->piece.n_rows);
	return 0;
}

static uint32_t pass_bunch(struct cei_doorbell *doorbell, const struct bunch *bunch,
			   struct cei_ending *ret_ending)
{
	const struct cei_counter *counter;
	struct cei_chunk *chunk;
	uint32_t i, n_passed = 0;
	uint64_t n_rows;

	for (i = 0; i < bunch->n; i++) {
		chunk = bunch->chunks[i];
		if (look_at_target(chunk, &counter) != LOOK_REACHED ||
		    look_at_source(chunk, &counter) != LOOK_REACHED)
			continue;
		if (!count_rows(chunk, &n_rows, ret_ending))
			return n_passed;
		n_passed += pass_on(doorbell, chunk->launch, step_index(chunk), n_rows);
	}
	return n_passed;
}

uint32_t cei_doorbell_poll(struct cei_doorbell *doorbell, struct cei_ending *ret_ending)
{
	struct cei_parking *parking = &doorbell->parking;
	struct cei_list *armed = &parking->armed;
	struct cei_list *node;
	const struct cei_launch *held = NULL;
	const struct cei_counter *counter;
	struct cei_chunk *chunk;
	struct bunch bunch;
	uint32_t n_looks, n_passed = 0;
	enum look look;

	ret_ending->launch = NULL;
	if (!cei_list_is_empty(&parking->watched) &&
	    cei_parking_look(parking, &chunk, &counter)) {
		end_aborted(chunk, counter, ret_ending);
		return 0;
	}
	node = armed->next;
	for (n_looks = 0; n_looks < CEI_DOORBELL_LOOKS && node != armed; n_looks += bunch.n) {
		collect(armed, &node, &bunch);
		look = look_at_bunch(&bunch, doorbell->trace != NULL, &chunk, &counter);
		if (look == LOOK_ABORTED) {
			end_aborted(chunk, counter, ret_ending);
			return n_passed;
		}
		if (look == LOOK_NOT_YET)
			park(parking, &bunch, bunch.why);
		else if (must_hold(&bunch, held))
			held = hold(parking, &bunch);
		else
			n_passed += pass_bunch(doorbell, &bunch, ret_ending);
		if (ret_ending->launch)
			return n_passed;
	}
	if (node != armed) {            /* the next pass begins there */
		cei_list_remove(armed);
		cei_list_append(node, armed);
	}
	return n_passed;
}
