/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Stage 3: groups chunks into submits. Their order is the scheduler's. */

#include "ce_engine/exec/lanes.h"

#include <stdlib.h>
#include <string.h>

#include "backend/lane.h"
#include "ce_engine/exec/lower.h"
#include "ce_engine/program/program_cut.h"
#include "ce_engine/sched/launch.h"
#include "ce_engine/sched/trace.h"

struct group {
	struct cei_lanes  *lanes;
	uint32_t           lane;
	uint32_t           n_chunks;
	uint32_t           n_pieces;
	uint32_t           n_posts;
	uint64_t           n_bytes;             /* as if each copy were one row */
	uint64_t           number;
	struct cei_await   await;               /* counter 0: none */
	struct cei_chunk  *chunks[CEI_GROUP_MAX];
	struct cei_piece   pieces[CEI_GROUP_MAX];
	struct cei_post    posts[CEI_GROUP_MAX];
};

static enum cei_direction direction_of(uint32_t lane)
{
	return lane < CEI_LANES_GATED_FIRST ? (enum cei_direction)lane : CEI_DIRECTION_ANY;
}

/* Opens one more lane, with the movers' lock. CEOV_ERR_NO_MEMORY, raised: there are CEI_LANES_MAX
 * already, or there is no memory. */
static int add_lane(struct cei_lanes *lanes, struct cei_backend *backend,
		    enum cei_direction direction, uint32_t peer, uint32_t *ret_index)
{
	uint32_t rank = backend->site->members[backend->member].rank;
	struct cei_lane_state *state;
	int r;

	if (lanes->n == CEI_LANES_MAX)
		return cei_raise(backend->site->report, CEOV_ERR_NO_MEMORY, 0,
				 "rank %u: %s: an engine has at most %u lanes; let its plans use "
				 "fewer routes, or move to and from fewer ranks", rank,
				 backend->ops->name, CEI_LANES_MAX);
	state = calloc(1, sizeof(*state));
	if (!state || cei_queues_make_room(&lanes->scheduler->queues, lanes->n + 1)) {
		free(state);
		return cei_raise(backend->site->report, CEOV_ERR_NO_MEMORY, 0,
				 "rank %u: %s: no memory for lane %u", rank, backend->ops->name,
				 lanes->n);
	}
	cei_list_init(&state->moving);
	r = cei_lane_open(&state->lane, backend, direction, peer, lanes->n);
	if (r) {
		free(state);
		return r;
	}
	lanes->states[lanes->n] = state;
	*ret_index = lanes->n++;
	return 0;
}

int cei_lanes_init(struct cei_lanes *lanes, struct cei_backend *backend,
		   struct cei_scheduler *scheduler, struct cei_trace *trace)
{
	uint32_t i, index;
	int r = 0;

	memset(lanes, 0, sizeof(*lanes));
	lanes->scheduler = scheduler;
	lanes->trace = trace;
	for (i = 0; !r && i < CEI_LANES; i++)
		r = add_lane(lanes, backend, direction_of(i), CEOV_NOBODY, &index);
	return r;
}

int cei_lanes_take(struct cei_lanes *lanes, struct cei_backend *backend,
		   enum cei_direction direction, uint32_t peer, uint32_t *ret_index)
{
	const struct cei_lane *lane;

	if (!(backend->ops->caps & CEI_CAP_PEER_LANES))
		peer = CEOV_NOBODY;
	for (*ret_index = 0; *ret_index < cei_lanes_n(lanes); ++*ret_index) {
		lane = &lanes->states[*ret_index]->lane;
		if (lane->backend == backend && lane->direction == direction &&
		    lane->peer == peer)
			return 0;
	}
	return add_lane(lanes, backend, direction, peer, ret_index);
}

void cei_lanes_fini(struct cei_lanes *lanes)
{
	struct cei_lane_state *state;

	while (lanes->n) {
		state = lanes->states[--lanes->n];
		cei_lane_close(&state->lane);
		if (!state->lane.private)       /* else it could not be stopped, and keeps it */
			free(state);
	}
}

uint32_t cei_lanes_stop(struct cei_lanes *lanes, uint64_t deadline_ns)
{
	struct cei_lane *lane;
	uint32_t i, n = 0;
	int r;

	for (i = 0; i < cei_lanes_n(lanes); i++) {
		lane = &lanes->states[i]->lane;
		r = cei_lane_stop(lane, deadline_ns);
		if (!r)
			continue;
		(void)cei_raise(lane->backend->site->report, r, 0,
				"%s: lane %u still moves bytes and cannot be stopped",
				lane->backend->ops->name, i);
		n++;
	}
	return n;
}

int cei_lanes_are_idle(const struct cei_lanes *lanes, const struct cei_lane_set *set)
{
	struct cei_lane *lane;
	uint32_t i;

	for (i = cei_lane_set_next(set, 0); i != CEI_NO_LANE; i = cei_lane_set_next(set, i + 1)) {
		lane = &lanes->states[i]->lane;
		if (!lane->ops->is_idle(lane))
			return 0;
	}
	return 1;
}

/* Returns what the chunk's lane has to wait for; counter 0: nothing. */
static struct cei_await await_of(const struct cei_chunk *chunk)
{
	const struct cei_counter *ready = &cei_chunk_step(chunk)->source_ready;
	const struct cei_await none = { 0, 0, NULL };

	return cei_launch_lane_waits(chunk->launch) && ready->signal
		? cei_lower_await(ready, chunk->launch->base) : none;
}

/* Whether the lane has still to wait for the stream that the launch comes after. */
static int must_follow(const struct cei_chunk *chunk)
{
	return chunk->launch->after && !chunk->launch->has_followed;
}

/* Of a path of two legs, the leg at hand: into the slot, or out of it. */
static struct cei_piece piece_of(const struct cei_chunk *chunk)
{
	struct cei_piece moved = cei_split_shorten(&cei_chunk_cut(chunk)->piece, chunk->job.bytes);
	struct cei_piece piece = cei_lower_piece(cei_chunk_step(chunk), &moved,
						 chunk->launch->floating);
	uint64_t slot, pitch = piece.n_rows > 1 ? piece.row_bytes : 0;

	if (!chunk->path)
		return piece;
	slot = chunk->path->memory + chunk->slot * CEI_ROUTE_SLOT_BYTES;
	if (chunk->leg == 0) {
		piece.target = slot;
		piece.target_pitch_bytes = pitch;
	} else {
		piece.source = slot;
		piece.source_pitch_bytes = pitch;
	}
	return piece;
}

/* Whether the chunk may go in the same batches as what the group holds. */
static int takes(const struct group *group, const struct cei_chunk *chunk)
{
	const struct ceov_plan *plan = chunk->launch->plan;
	struct cei_await await = await_of(chunk);

	if (chunk->job.lane != group->lane || group->n_chunks == CEI_GROUP_MAX)
		return 0;
	if (group->n_bytes + cei_job_row_bytes(&chunk->job) > plan->program.mark_group_bytes)
		return 0;
	/* The marks of a group are raised when all of its copies are done. So chunks of different
	 * urgency are not grouped, and background chunks go alone. */
	if (chunk->job.urgency != group->chunks[0]->job.urgency ||
	    chunk->job.urgency == CEOV_URGENCY_BACKGROUND)
		return 0;
	/* A leg goes alone, so that its end is seen at once: it fills a slot for the second leg, or
	 * frees one. */
	if (chunk->path || group->chunks[0]->path)
		return 0;
	if (must_follow(chunk) && chunk->launch != group->chunks[0]->launch)
		return 0;
	if (await.counter != group->await.counter || await.value != group->await.value)
		return 0;
	/* Posts of one batch have no order: two launches of a plan raise the same
	 * counters and must not meet in it. */
	return plan->run.group != group->number || plan->run.group_launch == chunk->launch;
}

/* Returns the mark that the chunk raises, or NULL. A lane keeps the order of a transfer's chunks,
 * so the last one raises the transfer's mark. */
static const struct cei_counter *mark_of(const struct cei_chunk *chunk)
{
	const struct cei_step *step = cei_chunk_step(chunk);

	if (!step->then.signal || chunk->index != step->first_chunk + step->n_chunks - 1)
		return NULL;
	return &step->then;
}

/* Whether the chunk follows the group's last one within a transfer, at one address behind the other
 * on both sides, so that one copy can move both. A device does not interrupt a group's copies
 * anyway. Movers with threads of their own look between copies whether they have to stop, and one
 * to other machines cuts its copies by chunks. */
static int continues(const struct group *group, const struct cei_chunk *chunk,
		     const struct cei_piece *piece)
{
	const struct cei_backend *backend = group->lanes->states[group->lane]->lane.backend;
	const struct cei_piece *last = &group->pieces[group->n_pieces - 1];
	const struct cei_chunk *before = group->chunks[group->n_chunks - 1];

	return before->launch == chunk->launch && before->index + 1 == chunk->index &&
	       cei_chunk_step(before) == cei_chunk_step(chunk) && before->job.bytes &&
	       last->n_rows == 1 && piece->n_rows == 1 &&
	       last->source + last->row_bytes == piece->source &&
	       last->target + last->row_bytes == piece->target &&
	       (backend->ops->caps & CEI_CAP_DEVICE);
}

/* Adds the chunk's copy, or makes the one before it longer. */
static void add_piece(struct group *group, const struct cei_chunk *chunk)
{
	struct cei_piece piece = piece_of(chunk);

	if (group->n_pieces && continues(group, chunk, &piece))
		group->pieces[group->n_pieces - 1].row_bytes += piece.row_bytes;
	else
		group->pieces[group->n_pieces++] = piece;
}

static void add(struct group *group, struct cei_chunk *chunk)
{
	struct ceov_plan *plan = chunk->launch->plan;
	const struct cei_counter *then = mark_of(chunk);

	if (!group->n_chunks) {
		group->lane = chunk->job.lane;
		group->await = await_of(chunk);
		group->number = ++group->lanes->n_groups;
	}
	cei_lane_set_remove(&plan->run.stuck_lanes, group->lane);       /* see mend() */
	plan->run.group = group->number;
	plan->run.group_launch = chunk->launch;
	if (chunk->job.bytes)
		add_piece(group, chunk);
	group->chunks[group->n_chunks++] = chunk;
	group->n_bytes += cei_job_row_bytes(&chunk->job);
	if (then)
		group->posts[group->n_posts++] = cei_lower_post(then, chunk->launch->base);
}

static int wait_for_gate(struct group *group)
{
	struct cei_lane_state *state = group->lanes->states[group->lane];
	uint64_t number;
	int r;

	if (!group->await.counter)
		return 0;
	number = group->chunks[0]->launch->number;
	/* Skips a wait that the lane was given already, if that was for the same launch: between
	 * launches the signal may have been renewed. */
	if (state->gate_launch == number && state->gate_counter == group->await.counter &&
	    state->gate_value >= group->await.value)
		return 0;
	r = state->lane.ops->wait(&state->lane, &group->await);
	if (r)
		return r;
	state->gate_launch = number;
	state->gate_counter = group->await.counter;
	state->gate_value = group->await.value;
	return 0;
}

/* Tries to use a broken lane again. Returns the error that it keeps, else 0. */
static int mend(struct cei_lanes *lanes, uint32_t lane)
{
	struct cei_lane_state *state = lanes->states[lane];
	const struct cei_lane_ops *ops = state->lane.ops;

	if (!state->error || !ops->mend || ops->mend(&state->lane))
		return state->error;
	cei_lane_set_remove(&lanes->stuck, lane);
	state->error = 0;
	return 0;
}

static int fill(struct group *group)
{
	struct cei_lane_state *state = group->lanes->states[group->lane];
	struct cei_lane *lane = &state->lane;
	const struct cei_lane_ops *ops = lane->ops;
	struct cei_launch *launch = group->chunks[0]->launch;
	int r = mend(group->lanes, group->lane);

	if (!r && must_follow(group->chunks[0])) {
		launch->has_followed = 1;
		r = ops->follow(lane, launch->event);
	}
	if (!r)
		r = wait_for_gate(group);
	if (!r && group->n_pieces)
		r = ops->copy(lane, group->pieces, group->n_pieces);
	if (!r && group->n_posts)
		r = ops->post(lane, group->posts, group->n_posts);
	if (!r)
		r = ops->submit(lane);
	return r;
}

static void flush(struct group *group)
{
	struct cei_lanes *lanes = group->lanes;
	struct cei_lane_state *state = lanes->states[group->lane];
	struct cei_lane *lane = &state->lane;
	struct cei_chunk *chunk;
	uint32_t i;
	int r;

	if (!group->n_chunks)
		return;
	r = fill(group);
	lane->n_submitted++;
	for (i = 0; i < group->n_chunks; i++) {
		chunk = group->chunks[i];
		chunk->state = CEI_CHUNK_MOVING;
		chunk->sequence = lane->n_submitted;
		cei_trace_stage(lanes->trace, chunk, CEI_TRACE_SUBMITTED);
		cei_list_append(&state->moving, &chunk->link);
	}
	cei_lane_set_add(&lanes->under_way, group->lane);
	group->n_chunks = group->n_pieces = group->n_posts = 0;
	group->n_bytes = 0;
	if (!r)
		return;
	if (r > 0)                      /* credit keeps lanes from being full */
		r = cei_raise(lane->backend->site->report, CEOV_ERR_STATE, r,
			      "%s: lane %u: refused work that it has room for",
			      lane->backend->ops->name, group->lane);
	cei_lanes_break(lanes, group->lane, r);
}

/* Whether the counter holds more than the transfer would raise it to. Lowering it would mislead
 * those who wait for it, so the launch fails instead. */
static int would_fall(const struct cei_chunk *chunk)
{
	const struct cei_counter *then = mark_of(chunk);

	return then && cei_counter_falls(then, chunk->launch->base + then->value);
}

struct cei_chunk *cei_lanes_push(struct cei_lanes *lanes, struct cei_list *picked)
{
	struct cei_chunk *chunk;
	struct group group;
	int falls;

	if (cei_list_is_empty(picked))
		return NULL;
	group.lanes = lanes;
	group.lane = group.n_chunks = group.n_pieces = group.n_posts = 0;
	group.n_bytes = 0;
	group.number = 0;
	while (cei_lane_set_is_empty(&lanes->broken) && !cei_list_is_empty(picked)) {
		chunk = CEI_OWNER(picked->next, struct cei_chunk, link);
		falls = would_fall(chunk);
		if (group.n_chunks && (falls || !takes(&group, chunk))) {
			flush(&group);
			continue;
		}
		if (falls)
			return chunk;
		cei_list_remove(&chunk->link);
		add(&group, chunk);
	}
	flush(&group);
	return NULL;
}

void cei_lanes_break(struct cei_lanes *lanes, uint32_t lane, int error)
{
	struct cei_lane_state *state = lanes->states[lane];

	state->error = error;
	cei_lane_set_add(&lanes->broken, lane);
	state->lane.ops->stop(&state->lane);
}
