/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Routes and cuts of a plan. A direct way needs nothing but addresses, so transfers that
 * may not or need not go otherwise never ask for more. The others ask route.c, once for
 * all of nearly the same size.
 */

#include "ce_engine/plan_route.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ce_engine/buffer.h"
#include "ce_engine/context.h"
#include "ce_engine/split.h"

static struct cei_engine *engine_of(const struct ceov_plan *plan)
{
	return &plan->object.context->engines[plan->member];
}

static struct cei_report *report_of(const struct ceov_plan *plan)
{
	return &plan->object.context->report;
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

/* Of a floating buffer: the offset alone. */
static uint64_t address_of(const struct ceov_plan *plan, const struct ceov_spot *spot)
{
	if (spot->buffer->is_floating)
		return spot->offset_bytes;
	return cei_plan_address(plan, spot->buffer) + spot->offset_bytes;
}

static void fill_piece(struct ceov_plan *plan, uint32_t i)
{
	const struct ceov_transfer *transfer = &plan->transfers[i];
	struct cei_step *step = &plan->steps[i];

	step->is_floating = transfer->source.buffer->is_floating;
	step->piece.source = address_of(plan, &transfer->source);
	step->piece.target = address_of(plan, &transfer->target);
	step->piece.row_bytes = transfer->row_bytes;
	step->piece.n_rows = transfer->n_rows;
	step->piece.source_pitch_bytes = transfer->source.pitch_bytes;
	step->piece.target_pitch_bytes = transfer->target.pitch_bytes;
	if (transfer->n_rows == 1)
		step->piece.source_pitch_bytes = step->piece.target_pitch_bytes = 0;
}

/* --- asking for a route -------------------------------------------------------------- */

/* Rounded up to three significant bits: shares of a route hold for all in a class. */
static uint64_t class_of(uint64_t bytes)
{
	uint64_t step = 1;

	while (bytes / step >= 8)
		step *= 2;
	return (bytes + step - 1) / step * step;
}

/* Memory that only our own GPU can touch: a peer process's, mapped for it alone, and
 * what each launch names. */
static int is_ours_alone(const struct ceov_buffer *buffer)
{
	if (buffer->is_floating)
		return 1;
	return buffer->region->kind == CEOV_PLACE_GPU &&
	       (buffer->region->origin == CEI_REGION_IMPORTED || !buffer->region->is_open);
}

static uint64_t may_drive(const struct cei_engine *engine,
			  const struct ceov_transfer *transfer)
{
	const struct cei_topology *topology = engine->topology;
	uint32_t n = topology->machine->n_gpus; /* at most 64, and place below it */

	if (is_ours_alone(transfer->source.buffer) || is_ours_alone(transfer->target.buffer))
		return UINT64_C(1) << engine->place;
	/* a file may tell of more GPUs than the driver shows */
	if (engine->backend.ops->caps & CEI_CAP_DEVICE && topology->n_gpus < n)
		n = topology->n_gpus;
	return n >= 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1;
}

static struct cei_route_request ask_for(const struct ceov_plan *plan, uint32_t i)
{
	const struct ceov_transfer *transfer = &plan->transfers[i];
	const struct cei_step *step = &plan->steps[i];
	struct cei_route_request request;

	memset(&request, 0, sizeof(request));
	request.from = step->source_place;
	request.to = step->target_place;
	request.bytes = class_of(step->piece.row_bytes * step->piece.n_rows);
	request.rule = plan->rule;
	request.may_drive = may_drive(engine_of(plan), transfer);
	request.no_direct = !step->has_direct;
	request.slot_bytes = plan->max_chunk_bytes < CEI_ROUTE_SLOT_BYTES
		? plan->max_chunk_bytes : CEI_ROUTE_SLOT_BYTES;
	return request;
}

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

/* Makes the engine's ways for the route; it loses those that cannot be made. */
static int open_ways(struct ceov_plan *plan, struct cei_plan_route *found)
{
	struct cei_engine *engine = engine_of(plan);
	struct cei_route *route = &found->route;
	struct cei_staging_ask ask = { engine->topology->machine, NULL,
				       found->request.from, found->request.to, 0 };
	uint32_t i, n = 0, n_wanted = route->n_ways;
	int r;

	for (i = 0; i < n_wanted; i++) {
		ask.way = &route->ways[i];
		ask.is_spare = n || !found->request.no_direct;
		found->ways[n] = CEI_WAY_DIRECT;
		r = ask.way->sort == CEI_ROUTE_DIRECT ? 0
			: cei_staging_way(engine, &ask, &found->ways[n]);
		if (r && r != CEOV_ERR_NO_ROUTE)
			return r;
		if (!r)
			route->ways[n++] = route->ways[i];
	}
	route->n_ways = n;
	if (n && n < n_wanted)
		share_again(route, found->request.bytes, n_wanted);
	if (n)
		return 0;
	snprintf(route->why, sizeof(route->why), "the engine has no room for more than %u ways "
		 "and %u GPUs on them, or one does not reach its memory", CEI_WAYS_MAX,
		 CEI_HELPERS_MAX);
	return CEOV_ERR_NO_ROUTE;
}

static uint32_t bucket_of(const struct cei_route_request *request)
{
	uint64_t key = request->bytes * UINT64_C(0x9e3779b97f4a7c15) ^
		       ((uint64_t)request->from << 32 | request->to) *
		       UINT64_C(0xc2b2ae3d27d4eb4f);

	return (uint32_t)(key >> 40) % CEI_PLAN_ROUTE_BUCKETS;
}

static int is_same(const struct cei_route_request *a, const struct cei_route_request *b)
{
	return a->from == b->from && a->to == b->to && a->bytes == b->bytes &&
	       a->may_drive == b->may_drive && a->no_direct == b->no_direct;
}

/* The plan's route for the request, made at the first asking. */
static int find_route(struct ceov_plan *plan, const struct cei_route_request *request,
		      struct cei_plan_route **ret_found)
{
	struct cei_plan_route **bucket = &plan->routes[bucket_of(request)];
	struct cei_plan_route *found;

	for (found = *bucket; found; found = found->next)
		if (is_same(&found->request, request))
			break;
	*ret_found = found;
	if (found)
		return found->result;
	found = calloc(1, sizeof(*found));
	if (!found)
		return cei_raise(report_of(plan), CEOV_ERR_NO_MEMORY, 0,
				 "ceov_plan_commit: no memory for routes");
	found->request = *request;
	found->next = *bucket;
	*bucket = *ret_found = found;
	found->result = cei_route_find(engine_of(plan)->topology->machine, request,
				       &found->route);
	if (!found->result)
		found->result = open_ways(plan, found);
	return found->result;
}

/* --- routing a transfer ---------------------------------------------------------------- */

static void find_places(struct ceov_plan *plan, uint32_t i)
{
	const struct cei_engine *engine = engine_of(plan);
	const struct ceov_transfer *transfer = &plan->transfers[i];
	struct cei_step *step = &plan->steps[i];

	step->source_place = cei_router_place(engine, transfer->source.buffer);
	step->target_place = cei_router_place(engine, transfer->target.buffer);
	if (step->source_place != CEOV_NOBODY && step->target_place != CEOV_NOBODY)
		step->link = cei_machine_link(engine->topology->machine, step->source_place,
					      step->target_place);
}

static int refuse(const struct ceov_plan *plan, uint32_t i, const char *why)
{
	const struct ceov_transfer *transfer = &plan->transfers[i];

	return cei_raise(report_of(plan), CEOV_ERR_NO_ROUTE, 0,
			 "transfer %u: no route from rank %u to rank %u for the engine of "
			 "rank %u: %s", i, transfer->source.buffer->rank,
			 transfer->target.buffer->rank, plan->rank, why);
}

static int has_addresses(const struct ceov_plan *plan, const struct ceov_transfer *transfer)
{
	return (transfer->source.buffer->is_floating ||
		cei_plan_address(plan, transfer->source.buffer)) &&
		cei_plan_address(plan, transfer->target.buffer);
}

/* Whether ways other than the direct one are to be looked at. */
static int asks_for_more(const struct ceov_plan *plan, const struct cei_step *step)
{
	if (!step->link || step->source_place == step->target_place ||
	    engine_of(plan)->place == CEOV_NOBODY)
		return 0;
	if (!has_addresses(plan, &plan->transfers[step - plan->steps]))
		return 0;
	if (!step->has_direct)
		return plan->rule != CEI_ROUTE_RULE_DIRECT;
	/* All ranks run a template at once. Each would count on the host's links for itself:
	 * an all-gather of 256 MiB by all ways took 1.44 times as long (4 x H200). */
	return plan->rule == CEI_ROUTE_RULE_ALL && !plan->has_template;
}

int cei_plan_route(struct ceov_plan *plan, uint32_t i)
{
	const struct ceov_transfer *transfer = &plan->transfers[i];
	struct cei_step *step = &plan->steps[i];
	struct cei_route_request request;
	struct cei_plan_route *found = NULL;
	const char *why = "";
	int r;

	step->source_place = step->target_place = CEOV_NOBODY;
	step->has_direct = 1;
	if (!transfer->row_bytes) {     /* goes behind what is before it: on its lane */
		step->direction = i ? plan->steps[i - 1].direction : CEI_DIRECTION_LOCAL;
		return 0;
	}
	r = cei_router_direction(transfer->source.buffer, transfer->target.buffer,
				 engine_of(plan), &step->direction, &why);
	fill_piece(plan, i);
	find_places(plan, i);
	if (!r && step->link && step->link->kind == CEI_MACHINE_NONE) {
		r = CEOV_ERR_NO_ROUTE;
		why = "the machine has no direct link between them";
	}
	step->has_direct = !r;
	if (!asks_for_more(plan, step))
		return r ? refuse(plan, i, why) : 0;
	request = ask_for(plan, i);
	r = find_route(plan, &request, &found);
	if (r && r != CEOV_ERR_NO_ROUTE)
		return r;
	if (r && !step->has_direct)
		return refuse(plan, i, found->route.why[0] ? found->route.why : why);
	if (r || (found->route.n_ways == 1 && found->route.ways[0].sort == CEI_ROUTE_DIRECT))
		return 0;
	step->is_routed = 1;
	step->route = found;
	return 0;
}

void cei_plan_unroute(struct ceov_plan *plan)
{
	struct cei_plan_route *found;
	uint32_t i;

	for (i = 0; i < CEI_PLAN_ROUTE_BUCKETS; i++) {
		while ((found = plan->routes[i])) {
			plan->routes[i] = found->next;
			free(found);
		}
	}
}

/* --- cutting ----------------------------------------------------------------------------- */

static int is_flat(const struct cei_piece *piece)
{
	return piece->n_rows == 1 ||
	       (piece->source_pitch_bytes == piece->row_bytes &&
		piece->target_pitch_bytes == piece->row_bytes);
}

/* Without gaps on either side rows are one. */
static struct cei_piece flattened(const struct cei_piece *piece)
{
	struct cei_piece flat = *piece;

	if (!is_flat(piece))
		return flat;
	flat.row_bytes *= flat.n_rows;
	flat.n_rows = 1;
	flat.source_pitch_bytes = flat.target_pitch_bytes = 0;
	return flat;
}

/* What way w carries: units (rows, or 4 KiB of one row) in proportion to its share, the
 * last way the rest. Empty (n_rows 0) where that is none. */
static struct cei_piece part_of(const struct cei_step *step, uint32_t w)
{
	const struct cei_route *route = &step->route->route;
	struct cei_piece piece = flattened(&step->piece);
	int is_row = piece.n_rows == 1;
	uint64_t unit = is_row ? 4096 : 1;
	uint64_t n = is_row ? piece.row_bytes : piece.n_rows;
	uint64_t before = 0, total = 0, first, end;
	uint32_t i;

	for (i = 0; i < route->n_ways; i++) {
		total += route->ways[i].bytes;
		before += i < w ? route->ways[i].bytes : 0;
	}
	first = (uint64_t)((double)n * (double)before / (double)total) / unit * unit;
	end = (uint64_t)((double)n * (double)(before + route->ways[w].bytes) /
			 (double)total) / unit * unit;
	if (w + 1 == route->n_ways)
		end = n;
	if (first >= end) {
		piece.n_rows = 0;
		return piece;
	}
	if (is_row) {
		piece.source += first;
		piece.target += first;
		piece.row_bytes = end - first;
		return piece;
	}
	piece.source += first * piece.source_pitch_bytes;
	piece.target += first * piece.target_pitch_bytes;
	piece.n_rows = end - first;
	return piece;
}

static uint64_t chunk_limit(const struct ceov_plan *plan, const struct cei_step *step, uint32_t w)
{
	if (step->route->ways[w] == CEI_WAY_DIRECT)
		return plan->max_chunk_bytes;
	return plan->max_chunk_bytes < CEI_ROUTE_SLOT_BYTES ? plan->max_chunk_bytes
		: CEI_ROUTE_SLOT_BYTES;
}

/* With the one that closes it. */
static uint64_t count_routed(const struct ceov_plan *plan, const struct cei_step *step)
{
	struct cei_piece part;
	uint64_t n = 1;
	uint32_t w;

	for (w = 0; w < step->route->route.n_ways; w++) {
		part = part_of(step, w);
		if (part.n_rows)
			n += cei_split_count(&part, chunk_limit(plan, step, w));
	}
	return n;
}

static void cut_routed(struct ceov_plan *plan, uint32_t i)
{
	struct cei_step *step = &plan->steps[i];
	struct cei_cut *cut = &plan->cuts[step->first_chunk];
	struct cei_piece part;
	uint64_t k, n;
	uint32_t w;

	for (w = 0; w < step->route->route.n_ways; w++) {
		part = part_of(step, w);
		n = part.n_rows ? cei_split_count(&part, chunk_limit(plan, step, w)) : 0;
		for (k = 0; k < n; k++, cut++) {
			cut->step = i;
			cut->way = step->route->ways[w];
			cut->piece = cei_split_at(&part, chunk_limit(plan, step, w), k);
		}
	}
	cut->step = i;
	cut->way = CEI_WAY_DIRECT;
	memset(&cut->piece, 0, sizeof(cut->piece));
}

static void cut_direct(struct ceov_plan *plan, uint32_t i)
{
	struct cei_step *step = &plan->steps[i];
	struct cei_cut *cut = &plan->cuts[step->first_chunk];
	uint32_t k;

	for (k = 0; k < step->n_chunks; k++, cut++) {
		cut->step = i;
		cut->way = CEI_WAY_DIRECT;
		cut->piece = cei_split_at(&step->piece, plan->max_chunk_bytes, k);
	}
}

static int count_chunks(struct ceov_plan *plan)
{
	struct cei_step *step;
	uint64_t n, total = 0;
	uint32_t i;

	for (i = 0; i < plan->n_transfers; i++) {
		step = &plan->steps[i];
		n = step->is_routed ? count_routed(plan, step)
			: cei_split_count(&step->piece, plan->max_chunk_bytes);
		if (n > CEI_PROGRAM_CHUNKS_MAX - total)
			return cei_raise(report_of(plan), CEOV_ERR_INVALID, 0,
					 "transfer %u: the plan would have more than %u "
					 "chunks; raise max_chunk_bytes", i,
					 CEI_PROGRAM_CHUNKS_MAX);
		step->first_chunk = (uint32_t)total;
		step->n_chunks = (uint32_t)n;
		total += n;
	}
	plan->n_cuts = (uint32_t)total;
	return 0;
}

int cei_plan_cut(struct ceov_plan *plan)
{
	uint32_t i;
	int r = count_chunks(plan);

	if (r)
		return r;
	plan->cuts = calloc(plan->n_cuts + 1, sizeof(*plan->cuts));
	if (!plan->cuts)
		return cei_raise(report_of(plan), CEOV_ERR_NO_MEMORY, 0,
				 "ceov_plan_commit: no memory for %u chunks", plan->n_cuts);
	for (i = 0; i < plan->n_transfers; i++) {
		if (plan->steps[i].is_routed)
			cut_routed(plan, i);
		else
			cut_direct(plan, i);
	}
	return 0;
}
