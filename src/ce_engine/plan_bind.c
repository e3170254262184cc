/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * From a program to what this context's engine carries out: numbers become addresses, and
 * ways of routes become ways of the engine.
 */

#include "ce_engine/plan_bind.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ce_engine/buffer.h"
#include "ce_engine/context.h"
#include "ce_engine/engine.h"

static struct cei_engine *engine_of(const struct ceov_plan *plan)
{
	return &plan->object.context->engines[plan->member];
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

/* --- ways ------------------------------------------------------------------ */

/* The ways that are left take over what those that could not be made should have had. */
static void share_again(struct cei_route *route, uint64_t bytes, uint32_t n_wanted)
{
	uint64_t kept = 0;
	double factor;
	uint32_t i;

	for (i = 0; i < route->n_ways; i++)
		kept += route->ways[i].bytes;
	factor = (double)bytes / (double)kept;
	for (i = 0; i < route->n_ways; i++)
		route->ways[i].bytes = (uint64_t)((double)route->ways[i].bytes * factor);
	route->expected_ns = (uint64_t)((double)route->expected_ns * factor);
	snprintf(route->why, sizeof(route->why), "%u of %u ways: for the others the engine "
		 "has no room, or a GPU does not reach its memory", route->n_ways, n_wanted);
}

/* Makes the engine's ways for a route; it loses those that cannot be made. */
static int open_ways(struct ceov_plan *plan, uint32_t i)
{
	struct cei_engine *engine = engine_of(plan);
	struct cei_program_route *found = &plan->program.routes[i];
	struct cei_route *route = &found->route;
	struct cei_staging_ask ask = { engine->topology->machine, NULL, found->from,
				       found->to, 0 };
	uint32_t w, n = 0, n_wanted = route->n_ways;
	int r;

	for (w = 0; w < n_wanted; w++) {
		ask.way = &route->ways[w];
		ask.is_spare = n || !found->no_direct;
		plan->ways[i][n] = CEI_WAY_DIRECT;
		r = ask.way->sort == CEI_ROUTE_DIRECT ? 0
			: cei_staging_way(engine, &ask, &plan->ways[i][n]);
		if (r && r != CEOV_ERR_NO_ROUTE)
			return r;
		if (!r)
			route->ways[n++] = route->ways[w];
	}
	route->n_ways = n;
	if (n && n < n_wanted)
		share_again(route, found->bytes, n_wanted);
	if (!n && n_wanted)
		snprintf(route->why, sizeof(route->why), "the engine has no room for more than "
			 "%u ways and %u GPUs on them, or one does not reach its memory",
			 CEI_WAYS_MAX, CEI_HELPERS_MAX);
	return 0;
}

static int open_routes(struct ceov_plan *plan)
{
	uint32_t i;
	int r = 0;

	plan->ways = calloc((size_t)plan->program.n_routes + 1, sizeof(*plan->ways));
	if (!plan->ways)
		return no_memory(plan);
	for (i = 0; !r && i < plan->program.n_routes; i++)
		r = open_ways(plan, i);
	return r;
}

/* --- steps ----------------------------------------------------------------- */

/* The address in the plan of one in the program. A floating buffer's are offsets in both. */
static uint64_t moved(const struct ceov_plan *plan, uint32_t buffer, uint64_t address)
{
	if (plan->buffers[buffer]->is_floating)
		return address;
	return address - plan->program.buffers[buffer].start +
		cei_plan_address(plan, plan->buffers[buffer]);
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

static int bind_marks(const struct ceov_plan *plan, uint32_t i, struct cei_step *step)
{
	const struct cei_program_transfer *transfer = &plan->program.transfers[i];
	int r = bind_mark(plan, &transfer->source_ready, "source_ready", &step->source_ready);

	if (!r)
		r = bind_mark(plan, &transfer->target_free, "target_free",
			      &step->target_free);
	return r ? r : bind_mark(plan, &transfer->then, "then", &step->then);
}

static int bind_step(struct ceov_plan *plan, uint32_t i)
{
	const struct cei_program *program = &plan->program;
	const struct cei_program_transfer *transfer = &program->transfers[i];
	struct cei_step *step = &plan->steps[i];

	step->piece = cei_program_piece(program, i);
	if (transfer->row_bytes) {
		step->piece.source = moved(plan, transfer->source.buffer, step->piece.source);
		step->piece.target = moved(plan, transfer->target.buffer, step->piece.target);
	}
	find_places(plan, i, step);
	step->direction = (enum cei_direction)transfer->direction;
	step->is_floating = transfer->row_bytes && transfer->source.buffer == program->floating;
	step->is_routed = transfer->route != CEI_PROGRAM_NONE;
	return bind_marks(plan, i, step);
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
	plan->steps = calloc((size_t)plan->program.n_transfers + 1, sizeof(*plan->steps));
	plan->run.turns = calloc((size_t)plan->program.n_transfers + 1, sizeof(*plan->run.turns));
	if (!plan->steps || !plan->run.turns)
		return no_memory(plan);
	if (program->floating != CEI_PROGRAM_NONE)
		plan->floating = plan->buffers[program->floating];
	for (i = 0; !r && i < plan->program.n_transfers; i++)
		r = bind_step(plan, i);
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
		cut->way = cut->way == CEI_PROGRAM_NONE ? CEI_WAY_DIRECT
			: plan->ways[transfer->route][cut->way];
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
