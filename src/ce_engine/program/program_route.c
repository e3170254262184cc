/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Routes of a program. A direct path needs nothing but addresses, so transfers that may not or
 * need not go otherwise never ask for more. The others ask topology/route.c, once for all of
 * nearly the same size.
 */

#include <stdlib.h>
#include <string.h>

#include "ce_engine/program/program.h"

#define BUCKETS 64u                     /* routes are found by hash */

struct router {
	struct cei_program       *program;
	const struct cei_machine *machine;
	struct cei_report        *report;
	uint32_t                  first[BUCKETS];       /* each bucket's first route;
							 * CEI_PROGRAM_NONE: none */
	uint32_t                 *next;                 /* each route's next one in its bucket */
	uint32_t                  room;
};

static const struct cei_program_buffer *source_of(const struct cei_program *program, uint32_t i)
{
	return &program->buffers[program->transfers[i].source.buffer];
}

static const struct cei_program_buffer *target_of(const struct cei_program *program, uint32_t i)
{
	return &program->buffers[program->transfers[i].target.buffer];
}

static const struct cei_program_mover *mover_of(const struct cei_program *program, uint32_t i)
{
	return &program->movers[program->transfers[i].mover];
}

static int refuse(const struct cei_program *program, struct cei_report *report, uint32_t i,
		  const char *why)
{
	return cei_raise(report, CEOV_ERR_NO_ROUTE, 0,
			 "transfer %u: no route from rank %u to rank %u for the engine of "
			 "rank %u: %s", i, source_of(program, i)->rank,
			 target_of(program, i)->rank, program->rank, why);
}

/* --- the direct path ------------------------------------------------------------------ */

/* NULL, and *ret_direction; or why one copy of mover m cannot move the transfer. */
static const char *find_direction(const struct cei_program *program, uint32_t i, uint32_t m,
				  uint32_t *ret_direction)
{
	const struct cei_program_buffer *source = source_of(program, i);
	const struct cei_program_buffer *target = target_of(program, i);
	const struct cei_program_mover *mover = &program->movers[m];
	int is_from_host = source->kind == CEOV_PLACE_HOST;
	int is_to_host = target->kind == CEOV_PLACE_HOST;

	if (!(source->flags & CEI_PROGRAM_FLOATING) && !(source->reached >> m & 1))
		return "source is not reachable from there";
	if (!(target->reached >> m & 1))
		return "target is not reachable from there";
	if (!(mover->moves & cei_moves_between(source->kind, target->kind)))
		return is_from_host && is_to_host
			? "both ends are host memory, which a GPU's engine does not move"
			: "the rank's engine does not move between these kinds of memory";
	if (is_from_host)
		*ret_direction = is_to_host ? CEI_DIRECTION_HOST : CEI_DIRECTION_IN;
	else if (is_to_host)
		*ret_direction = CEI_DIRECTION_OUT;
	else if (source->gpu == mover->gpu && target->gpu == mover->gpu)
		*ret_direction = CEI_DIRECTION_LOCAL;
	else
		*ret_direction = CEI_DIRECTION_PEER;
	return NULL;
}

/* Whether mover m can raise the transfer's mark. */
static int raises_mark(const struct cei_program *program, uint32_t i, uint32_t m)
{
	uint32_t signal = program->transfers[i].then.signal;

	return signal == CEI_PROGRAM_NONE || program->signals[signal].reached >> m & 1;
}

/* Sets the transfer's mover: the first that can move it in one copy and raise its mark; returns
 * NULL. If there is none, it is the program's first mover; returns why that one cannot. */
static const char *find_mover(struct cei_program *program, uint32_t i)
{
	struct cei_program_transfer *transfer = &program->transfers[i];

	for (transfer->mover = 0; transfer->mover < program->n_movers; transfer->mover++)
		if (raises_mark(program, i, transfer->mover) &&
		    !find_direction(program, i, transfer->mover, &transfer->direction))
			return NULL;
	transfer->mover = 0;
	return find_direction(program, i, 0, &transfer->direction);
}

/* --- asking for a route -------------------------------------------------------------- */

/* Rounds up to three significant bits. All transfers of such a class share a route and its
 * shares. */
static uint64_t class_of(uint64_t bytes)
{
	uint64_t step = 1;

	while (bytes / step >= 8)
		step *= 2;
	return (bytes + step - 1) / step * step;
}

static uint64_t may_drive(const struct cei_program *program, uint32_t i)
{
	const struct cei_program_mover *mover = mover_of(program, i);
	uint32_t flags = source_of(program, i)->flags | target_of(program, i)->flags;

	return flags & CEI_PROGRAM_PRIVATE ? UINT64_C(1) << mover->place : mover->may_drive;
}

static struct cei_route_request ask_for(const struct cei_program *program, uint32_t i)
{
	const struct cei_program_transfer *transfer = &program->transfers[i];
	struct cei_route_request request;

	memset(&request, 0, sizeof(request));
	request.from = source_of(program, i)->place;
	request.to = target_of(program, i)->place;
	request.bytes = class_of(transfer->row_bytes * transfer->n_rows);
	request.rule = (uint8_t)program->rule;
	request.may_drive = may_drive(program, i);
	request.no_direct = !transfer->has_direct;
	request.slot_bytes = program->max_chunk_bytes < CEI_ROUTE_SLOT_BYTES
		? program->max_chunk_bytes : CEI_ROUTE_SLOT_BYTES;
	return request;
}

static uint32_t bucket_of(const struct cei_route_request *request)
{
	uint64_t key = request->bytes * UINT64_C(0x9e3779b97f4a7c15) ^
		       ((uint64_t)request->from << 32 | request->to) *
		       UINT64_C(0xc2b2ae3d27d4eb4f);

	return (uint32_t)(key >> 40) % BUCKETS;
}

static int is_same(const struct cei_program_route *a, const struct cei_route_request *b)
{
	return a->from == b->from && a->to == b->to && a->bytes == b->bytes &&
	       a->may_drive == b->may_drive && a->no_direct == b->no_direct;
}

/* Makes room for one more route. */
static int make_room(struct router *router)
{
	struct cei_program *program = router->program;
	uint32_t room = router->room ? 2 * router->room : 16;
	struct cei_program_route *routes;
	uint32_t *next;

	if (program->n_routes < router->room)
		return 0;
	routes = realloc(program->routes, room * sizeof(*routes));
	if (routes)
		program->routes = routes;
	next = realloc(router->next, room * sizeof(*next));
	if (next)
		router->next = next;
	if (!routes || !next)
		return cei_raise(router->report, CEOV_ERR_NO_MEMORY, 0,
				 "ceov_plan_commit: no memory for routes");
	router->room = room;
	return 0;
}

/* Finds the program's route for the request, or makes it. */
static int find_route(struct router *router, const struct cei_route_request *request,
		      uint32_t *ret_route)
{
	struct cei_program *program = router->program;
	uint32_t *first = &router->first[bucket_of(request)];
	struct cei_program_route *made;
	uint32_t i;
	int r;

	for (i = *first; i != CEI_PROGRAM_NONE; i = router->next[i])
		if (is_same(&program->routes[i], request))
			break;
	*ret_route = i;
	if (i != CEI_PROGRAM_NONE)
		return 0;
	r = make_room(router);
	if (r)
		return r;
	i = *ret_route = program->n_routes++;
	made = &program->routes[i];
	memset(made, 0, sizeof(*made));
	made->from = request->from;
	made->to = request->to;
	made->bytes = request->bytes;
	made->may_drive = request->may_drive;
	made->no_direct = request->no_direct;
	router->next[i] = *first;
	*first = i;
	r = cei_route_find(router->machine, request, &made->route);
	if (r == CEOV_ERR_NO_ROUTE)
		made->route.n_paths = 0;
	return r == CEOV_ERR_NO_ROUTE ? 0 : r;
}

/* --- routing a transfer ---------------------------------------------------------------- */

static int has_addresses(const struct cei_program *program, uint32_t i)
{
	return source_of(program, i)->flags & (CEI_PROGRAM_FLOATING | CEI_PROGRAM_MAPPED) &&
		target_of(program, i)->flags & CEI_PROGRAM_MAPPED;
}

/* The link between the transfer's places, or NULL. */
static const struct cei_machine_link *link_of(const struct router *router, uint32_t i)
{
	uint32_t from = source_of(router->program, i)->place;
	uint32_t to = target_of(router->program, i)->place;

	if (!router->machine || from == CEOV_NOBODY || to == CEOV_NOBODY)
		return NULL;
	return cei_machine_link(router->machine, from, to);
}

/* Whether paths other than the direct one are to be looked at. */
static int asks_for_more(const struct router *router, uint32_t i)
{
	const struct cei_program *program = router->program;

	if (!link_of(router, i) || source_of(program, i)->place == target_of(program, i)->place ||
	    mover_of(program, i)->place == CEOV_NOBODY || !has_addresses(program, i))
		return 0;
	if (!program->transfers[i].has_direct)
		return program->rule != CEI_ROUTE_RULE_DIRECT;
	/* All ranks run a template at once. Each would count on the host's links for itself:
	 * an all-gather of 256 MiB over all paths took 1.44 times as long (4 x H200). */
	return program->rule == CEI_ROUTE_RULE_ALL && !program->has_template;
}

/* Routes a transfer without bytes. It goes on the lane of the transfer before it, unless only
 * another mover can raise its mark. */
static void route_mark(struct cei_program *program, uint32_t i)
{
	struct cei_program_transfer *transfer = &program->transfers[i];
	uint32_t m;

	transfer->direction = i ? transfer[-1].direction : CEI_DIRECTION_LOCAL;
	transfer->mover = i ? transfer[-1].mover : 0;
	for (m = 0; m < program->n_movers && !raises_mark(program, i, transfer->mover); m++) {
		if (!raises_mark(program, i, m))
			continue;
		transfer->mover = m;
		transfer->direction = CEI_DIRECTION_HOST;
	}
}

static int route_one(struct router *router, uint32_t i)
{
	struct cei_program_transfer *transfer = &router->program->transfers[i];
	const struct cei_machine_link *link;
	struct cei_route_request request;
	const char *why;

	transfer->has_direct = 1;
	transfer->route = CEI_PROGRAM_NONE;
	if (!transfer->row_bytes) {
		route_mark(router->program, i);
		return 0;
	}
	transfer->direction = CEI_DIRECTION_PEER;
	why = find_mover(router->program, i);
	link = link_of(router, i);
	if (!why && link && link->kind == CEI_MACHINE_NONE)
		why = "the machine has no direct link between them";
	transfer->has_direct = !why;
	if (!asks_for_more(router, i))
		return why ? refuse(router->program, router->report, i, why) : 0;
	request = ask_for(router->program, i);
	return find_route(router, &request, &transfer->route);
}

int cei_program_route(struct cei_program *program, const struct cei_machine *machine,
		      struct cei_report *report)
{
	struct router router = { .program = program, .machine = machine, .report = report };
	uint32_t i;
	int r = 0;

	memset(router.first, 0xff, sizeof(router.first));       /* CEI_PROGRAM_NONE */
	program->n_routes = 0;
	for (i = 0; !r && i < program->n_transfers; i++)
		r = route_one(&router, i);
	free(router.next);
	return r;
}

int cei_program_keep_routes(struct cei_program *program, struct cei_report *report)
{
	struct cei_program_transfer *transfer;
	const struct cei_route *route;
	uint32_t i;

	for (i = 0; i < program->n_transfers; i++) {
		transfer = &program->transfers[i];
		if (transfer->route == CEI_PROGRAM_NONE)
			continue;
		route = &program->routes[transfer->route].route;
		if (!route->n_paths && !transfer->has_direct)
			return refuse(program, report, i, route->why);
		if (!route->n_paths ||
		    (route->n_paths == 1 && route->paths[0].kind == CEI_ROUTE_DIRECT))
			transfer->route = CEI_PROGRAM_NONE;
	}
	return 0;
}
