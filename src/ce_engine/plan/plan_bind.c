/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * From a program to what this context's engine carries out: numbers become addresses, and
 * paths of routes become paths of the engine.
 */

#include "ce_engine/plan/plan_bind.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ce_engine/engine/engine.h"
#include "ce_engine/objects/buffer.h"
#include "ce_engine/objects/context.h"

static struct cei_engine *engine_of(const struct ceov_plan *plan)
{
	return plan->object.context->engines[plan->member];
}

static int no_memory(const struct ceov_plan *plan)
{
	return cei_raise(&plan->object.context->report, CEOV_ERR_NO_MEMORY, 0,
			 "ceov_plan_commit: no memory for steps and chunks");
}

uint64_t cei_plan_address(const struct ceov_plan *plan, const struct ceov_buffer *buffer)
{
	const struct cei_region *region = buffer->region;
	uint64_t address = region->address[plan->member];
	uint32_t i;

	for (i = 0; !address && i < region->site->n_members; i++)
		address = region->address[i];
	return address;
}

/* --- memory ---------------------------------------------------------------- */

/* A plan's memories, for each mover: its buffers, the counters of its signals, and the host
 * words of those. */
struct memory_of {
	uint32_t                 mover;
	uint32_t                 number;
	const struct cei_region *region;
	uint32_t                 rank;
};

struct cei_memory cei_plan_memory(const struct ceov_plan *plan, const struct cei_region *region,
				  uint32_t rank)
{
	struct cei_memory memory = {
		.region = region,
		.rank = rank,
		.address = region->address[plan->member],
		.size_bytes = region->size_bytes,
		.is_floating = region->origin == CEI_REGION_NONE,
	};

	if (region->origin == CEI_REGION_FAR)
		memory.far_id = region->far_id;
	else if (region->kind == CEOV_PLACE_HOST)
		memory.host = (uint64_t)(uintptr_t)region->host;
	else if (rank == plan->program.rank)
		memory.device = region->device;
	return memory;
}

static struct cei_backend *mover_of(const struct ceov_plan *plan, uint32_t m)
{
	return &engine_of(plan)->movers.mover[m].backend;
}

/* Whether what reaches it, as a set of movers, has the mover, and that has addresses of its
 * own. */
static int has_own_address(const struct ceov_plan *plan, uint32_t mover, uint32_t reached)
{
	return mover_of(plan, mover)->ops->memory_open && reached >> mover & 1;
}

static int make_room(struct ceov_plan *plan)
{
	const struct cei_program *program = &plan->program;
	uint32_t m, n_own = 0;

	for (m = 0; m < program->n_movers; m++)
		n_own += mover_of(plan, m)->ops->memory_open != NULL;
	if (!n_own)
		return 0;
	plan->n_memories = program->n_buffers + 2 * program->n_signals;
	plan->memories = calloc((size_t)program->n_movers * plan->n_memories + 1,
				sizeof(*plan->memories));
	return plan->memories ? 0 : no_memory(plan);
}

/* What the mover, which has addresses of its own, calls byte 0 of it. */
static int open_memory(struct ceov_plan *plan, const struct memory_of *of, uint64_t *ret_address)
{
	struct cei_backend *backend = mover_of(plan, of->mover);
	uint64_t *address = &plan->memories[of->mover * plan->n_memories + of->number];
	struct cei_memory memory = cei_plan_memory(plan, of->region, of->rank);
	int r = *address ? 0 : backend->ops->memory_open(backend, &memory, address);

	*ret_address = *address;
	return r;
}

void cei_plan_unbind(struct ceov_plan *plan)
{
	struct cei_backend *backend;
	uint32_t i, n = plan->memories ? plan->program.n_movers * plan->n_memories : 0;

	for (i = 0; i < n; i++) {
		if (!plan->memories[i])
			continue;
		backend = mover_of(plan, i / plan->n_memories);
		backend->ops->memory_close(backend, plan->memories[i]);
	}
	free(plan->memories);
	plan->memories = NULL;
}

/* --- paths ------------------------------------------------------------------ */

/* The paths that are left take over what those that could not be made should have had. */
static void share_again(struct cei_route *route, uint64_t bytes, uint32_t n_wanted)
{
	uint64_t kept = 0;
	double factor;
	uint32_t i;

	for (i = 0; i < route->n_paths; i++)
		kept += route->paths[i].bytes;
	factor = (double)bytes / (double)kept;
	for (i = 0; i < route->n_paths; i++)
		route->paths[i].bytes = (uint64_t)((double)route->paths[i].bytes * factor);
	route->expected_ns = (uint64_t)((double)route->expected_ns * factor);
	snprintf(route->why, sizeof(route->why), "%u of %u paths: for the others the engine "
		 "has no room, or a GPU does not reach its memory", route->n_paths, n_wanted);
}

/* Makes the engine's paths for a route; it loses those that cannot be made. */
static int open_paths(struct ceov_plan *plan, uint32_t i)
{
	struct cei_engine *engine = engine_of(plan);
	struct cei_program_route *found = &plan->program.routes[i];
	struct cei_route *route = &found->route;
	struct cei_staging_ask ask = { engine->topology->machine, NULL, found->from,
				       found->to, 0 };
	uint32_t w, n = 0, n_wanted = route->n_paths;
	int r;

	for (w = 0; w < n_wanted; w++) {
		ask.path = &route->paths[w];
		ask.is_spare = n || !found->no_direct;
		plan->paths[i][n] = CEI_PATH_DIRECT;
		r = ask.path->kind == CEI_ROUTE_DIRECT ? 0
			: cei_staging_path(&engine->staging, &ask, &plan->paths[i][n]);
		if (r && r != CEOV_ERR_NO_ROUTE)
			return r;
		if (!r)
			route->paths[n++] = route->paths[w];
	}
	route->n_paths = n;
	if (n && n < n_wanted)
		share_again(route, found->bytes, n_wanted);
	if (!n && n_wanted)
		snprintf(route->why, sizeof(route->why), "the engine has no room for more than "
			 "%u paths and %u GPUs on them, or one does not reach its memory",
			 CEI_PATHS_MAX, CEI_HELPERS_MAX);
	return 0;
}

static int open_routes(struct ceov_plan *plan)
{
	uint32_t i;
	int r = 0;

	plan->paths = calloc((size_t)plan->program.n_routes + 1, sizeof(*plan->paths));
	if (!plan->paths)
		return no_memory(plan);
	for (i = 0; !r && i < plan->program.n_routes; i++)
		r = open_paths(plan, i);
	return r;
}

/* --- steps ----------------------------------------------------------------- */

/* From the address in the program to the mover's. A floating buffer's are offsets in the program,
 * and for the mover what is to be added to the address that a launch names. */
static int bind_address(struct ceov_plan *plan, uint32_t mover, uint32_t buffer,
			uint64_t *address)
{
	const struct ceov_buffer *bound = plan->buffers[buffer];
	const struct memory_of of = { mover, buffer, bound->region, bound->rank };
	uint64_t base = 0;
	int r = 0;

	if (has_own_address(plan, mover, plan->program.buffers[buffer].reached))
		r = open_memory(plan, &of, &base);
	else if (!bound->is_floating)
		base = cei_plan_address(plan, bound);
	*address += base - plan->program.buffers[buffer].start;
	return r;
}

static int bind_piece(struct ceov_plan *plan, uint32_t i, struct cei_step *step)
{
	const struct cei_program_transfer *transfer = &plan->program.transfers[i];
	int r;

	step->piece = cei_program_piece(&plan->program, i);
	if (!transfer->row_bytes)
		return 0;
	r = bind_address(plan, transfer->mover, transfer->source.buffer, &step->piece.source);
	return r ? r : bind_address(plan, transfer->mover, transfer->target.buffer,
				    &step->piece.target);
}

/* The other rank of a transfer; a rank that moves within its own memory is its own peer. */
static uint32_t peer_of(const struct cei_program *program,
			const struct cei_program_transfer *transfer)
{
	uint32_t target;

	if (!transfer->row_bytes)
		return program->signals[transfer->then.signal].rank;
	target = program->buffers[transfer->target.buffer].rank;
	return target == program->rank ? program->buffers[transfer->source.buffer].rank : target;
}

/* Whether a transfer without bytes goes on the lane of the one before it. It does not where lanes
 * are for one rank each, and the counter that it raises is reached by such lanes only. */
static int goes_behind(const struct ceov_plan *plan, uint32_t i)
{
	const struct cei_program_transfer *transfer = &plan->program.transfers[i];
	uint32_t reached = plan->program.signals[transfer->then.signal].reached;

	return transfer[-1].mover == transfer->mover &&
	       (reached & 1 ||
		!(mover_of(plan, transfer->mover)->ops->caps & CEI_CAP_PEER_LANES));
}

/* The engine's first lanes are those of its first mover, in their order. */
static int bind_lane(struct ceov_plan *plan, uint32_t i, struct cei_step *step)
{
	const struct cei_program_transfer *transfer = &plan->program.transfers[i];
	enum cei_direction direction = cei_direction_lane((enum cei_direction)transfer->direction);
	struct cei_engine *engine = engine_of(plan);
	int r;

	step->direction = (enum cei_direction)transfer->direction;
	step->lane = direction;
	if (!transfer->mover)
		return 0;
	if (!transfer->row_bytes && i && goes_behind(plan, i)) {
		step->lane = step[-1].lane;
		return 0;
	}
	pthread_mutex_lock(&engine->movers.lock);
	r = cei_lanes_take(&engine->lanes, mover_of(plan, transfer->mover), direction,
			   peer_of(&plan->program, transfer), &step->lane);
	pthread_mutex_unlock(&engine->movers.lock);
	return r;
}

static void find_places(const struct ceov_plan *plan, uint32_t i, struct cei_step *step)
{
	const struct cei_program *program = &plan->program;
	const struct cei_program_transfer *transfer = &program->transfers[i];
	uint32_t from, to;

	if (!transfer->row_bytes)
		return;
	from = program->buffers[transfer->source.buffer].place;
	to = program->buffers[transfer->target.buffer].place;
	step->turn = (uint16_t)((to - from) % CEI_MACHINE_GPUS_MAX);
	if (from != CEOV_NOBODY && to != CEOV_NOBODY)
		step->link = cei_machine_link(engine_of(plan)->topology->machine, from, to);
}

static int bind_mark(const struct ceov_plan *plan, const struct cei_program_mark *from,
		     const char *what, struct cei_counter *ret_counter)
{
	struct ceov_mark mark = { NULL, from->counter, from->value };

	if (from->signal != CEI_PROGRAM_NONE)
		mark.signal = plan->signals[from->signal];
	return cei_signal_resolve(&mark, plan->member, what, ret_counter);
}

/* A mark is raised at an address of the transfer's mover. */
static int bind_then(struct ceov_plan *plan, uint32_t i, struct cei_counter *then)
{
	const struct cei_program *program = &plan->program;
	const struct cei_program_transfer *transfer = &program->transfers[i];
	struct cei_signal_spot spot;
	struct memory_of of;
	int r = bind_mark(plan, &transfer->then, "then", then);

	if (r || !then->signal ||
	    !has_own_address(plan, transfer->mover,
			     program->signals[transfer->then.signal].reached))
		return r;
	spot = cei_signal_spot(then->signal, then->index);
	of = (struct memory_of){ transfer->mover, program->n_buffers + transfer->then.signal,
				 spot.counters, then->signal->rank };
	r = open_memory(plan, &of, &then->address);
	then->address += spot.counter_at;
	if (r || !spot.words)
		return r;
	of.number += program->n_signals;
	of.region = spot.words;
	r = open_memory(plan, &of, &then->word);
	then->word += spot.word_at;
	return r;
}

static int bind_marks(struct ceov_plan *plan, uint32_t i, struct cei_step *step)
{
	const struct cei_program_transfer *transfer = &plan->program.transfers[i];
	int r = bind_mark(plan, &transfer->source_ready, "source_ready", &step->source_ready);

	if (!r)
		r = bind_mark(plan, &transfer->target_free, "target_free",
			      &step->target_free);
	return r ? r : bind_then(plan, i, &step->then);
}

static const _Atomic uint64_t *count_of(const struct ceov_plan *plan,
					const struct cei_program_spot *spot)
{
	const struct cei_region *region = plan->buffers[spot->buffer]->region;

	return (const _Atomic uint64_t *)(const void *)((const char *)region->host +
							spot->offset_bytes);
}

static int bind_step(struct ceov_plan *plan, uint32_t i)
{
	const struct cei_program *program = &plan->program;
	const struct cei_program_transfer *transfer = &program->transfers[i];
	struct cei_step *step = &plan->steps[i];
	int r = bind_piece(plan, i, step);

	if (!r)
		r = bind_lane(plan, i, step);
	if (r)
		return r;
	find_places(plan, i, step);
	step->is_floating = transfer->row_bytes && transfer->source.buffer == program->floating;
	step->is_routed = transfer->route != CEI_PROGRAM_NONE;
	if (transfer->is_counted)
		step->count = count_of(plan, &transfer->count);
	return bind_marks(plan, i, step);
}

static void bind_also(struct ceov_plan *plan)
{
	struct cei_step *step;
	uint32_t i;

	for (i = 0; i < plan->n_also; i++) {
		step = &plan->steps[plan->also[i].step];
		if (!step->n_also++)
			step->also = &plan->also[i];
	}
}

int cei_plan_bind(struct ceov_plan *plan)
{
	struct cei_program *program = &plan->program;
	struct cei_report *report = &plan->object.context->report;
	uint32_t i;
	int r = cei_program_route(program, engine_of(plan)->topology->machine, report);

	if (!r)
		r = open_routes(plan);
	if (!r)
		r = cei_program_keep_routes(program, report);
	if (r)
		return r;
	r = make_room(plan);
	if (r)
		return r;
	plan->steps = calloc((size_t)plan->program.n_transfers + 1, sizeof(*plan->steps));
	plan->run.turns = calloc((size_t)plan->program.n_transfers + 1, sizeof(*plan->run.turns));
	if (!plan->steps || !plan->run.turns)
		return no_memory(plan);
	for (i = 0; !r && i < plan->program.n_transfers; i++)
		r = bind_step(plan, i);
	bind_also(plan);
	return r;
}

/* --- chunks ---------------------------------------------------------------- */

static void bind_cuts(struct ceov_plan *plan, uint32_t i)
{
	const struct cei_program_transfer *transfer = &plan->program.transfers[i];
	struct cei_piece piece = cei_program_piece(&plan->program, i);
	struct cei_step *step = &plan->steps[i];
	uint64_t source = step->piece.source - piece.source;    /* from one space to the ... */
	uint64_t target = step->piece.target - piece.target;    /* ... other; may wrap */
	struct cei_cut *cut = &plan->cuts[transfer->first_chunk];
	struct cei_cut *end = cut + transfer->n_chunks;

	step->first_chunk = transfer->first_chunk;
	step->n_chunks = transfer->n_chunks;
	cei_program_cut(&plan->program, i, cut);
	for (; cut < end; cut++) {
		if (cut->piece.n_rows) {
			cut->piece.source += source;
			cut->piece.target += target;
		}
		cut->path = cut->path == CEI_PROGRAM_NONE ? CEI_PATH_DIRECT
			: plan->paths[transfer->route][cut->path];
	}
}

int cei_plan_cut(struct ceov_plan *plan)
{
	uint32_t i;
	int r = cei_program_count(&plan->program, &plan->object.context->report);

	if (r)
		return r;
	plan->cuts = calloc((size_t)plan->program.n_chunks + 1, sizeof(*plan->cuts));
	if (!plan->cuts)
		return no_memory(plan);
	for (i = 0; i < plan->program.n_transfers; i++)
		bind_cuts(plan, i);
	return 0;
}
