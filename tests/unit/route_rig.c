/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Checks properties of routes, computed independently of the code that finds them. */

#include "route_rig.h"

#include <check.h>
#include <string.h>

struct bounds {
	double port_bytes[CEI_MACHINE_PORTS_MAX];
	double engine_ns[CEI_MACHINE_GPUS_MAX][3];
};

struct cei_route_request route_rig_request(uint32_t from, uint32_t to, uint64_t bytes,
					   enum cei_route_rule rule)
{
	return (struct cei_route_request){ .from = from, .to = to, .bytes = bytes,
					   .rule = (uint8_t)rule,
					   .may_drive = ROUTE_RIG_ALL };
}

uint32_t route_rig_count(const struct cei_route *route, enum cei_route_kind kind)
{
	uint32_t i, n = 0;

	for (i = 0; i < route->n_paths; i++)
		n += route->paths[i].kind == kind;
	return n;
}

static void check_engine(const struct cei_machine *machine,
			 const struct cei_route_request *request, uint32_t from, uint32_t to,
			 uint32_t engine)
{
	int is_from_gpu = cei_machine_is_gpu(machine, from);
	int is_to_gpu = cei_machine_is_gpu(machine, to);

	if (!is_from_gpu && !is_to_gpu) {
		ck_assert_uint_eq(engine, CEOV_NOBODY);
		return;
	}
	ck_assert_uint_lt(engine, machine->n_gpus);
	ck_assert(request->may_drive >> engine & 1);
	ck_assert((is_from_gpu && engine == from) || (is_to_gpu && engine == to));
	if (is_from_gpu && request->may_drive >> from & 1)
		ck_assert_uint_eq(engine, from);
}

/* Asserts that the link exists, that its engine may be driven, and that it is not faster
 * than possible. */
static void check_leg(const struct cei_machine *machine,
		      const struct cei_route_request *request,
		      const struct cei_route_path *path, int is_second, struct bounds *bounds)
{
	uint32_t from = is_second ? path->via : request->from;
	uint32_t to = is_second || path->via == CEOV_NOBODY ? request->to : path->via;
	const struct cei_machine_link *link = cei_machine_link(machine, from, to);
	uint32_t engine = path->engines[is_second], i, direction = 2;

	ck_assert_uint_ne(link->kind, CEI_MACHINE_NONE);
	check_engine(machine, request, from, to, engine);
	ck_assert_uint_le(path->bytes_per_s, link->bytes_per_s);
	for (i = 0; i < link->n_ports; i++)
		bounds->port_bytes[link->ports[i]] += (double)path->bytes;
	if (engine == CEOV_NOBODY || link->kind == CEI_MACHINE_NVLINK)
		return;
	if (!cei_machine_is_gpu(machine, from))
		direction = 0;
	else if (!cei_machine_is_gpu(machine, to))
		direction = 1;
	bounds->engine_ns[engine][direction] +=
		(double)path->bytes / (double)link->bytes_per_s * 1e9;
}

static void check_path(const struct cei_machine *machine,
		       const struct cei_route_request *request,
		       const struct cei_route_path *path, struct bounds *bounds)
{
	int is_over_gpu = path->via < machine->n_gpus;

	ck_assert_uint_gt(path->bytes_per_s, 0);
	check_leg(machine, request, path, 0, bounds);
	if (path->via == CEOV_NOBODY) {
		ck_assert_uint_eq(path->kind, CEI_ROUTE_DIRECT);
		ck_assert(!request->no_direct);
		ck_assert_uint_eq(path->engines[1], CEOV_NOBODY);
		return;
	}
	ck_assert_uint_lt(path->via, cei_machine_n_places(machine));
	ck_assert(path->via != request->from && path->via != request->to);
	check_leg(machine, request, path, 1, bounds);
	if (is_over_gpu)
		ck_assert(request->may_drive >> path->via & 1);
	else
		ck_assert(!machine->nodes[path->via - machine->n_gpus].is_gpu_memory);
	if (!is_over_gpu)
		ck_assert_uint_eq(path->kind, CEI_ROUTE_STAGED);
	else if (request->from < machine->n_gpus && request->to < machine->n_gpus)
		ck_assert_uint_eq(path->kind, CEI_ROUTE_MIDDLE);
	else
		ck_assert_uint_eq(path->kind, CEI_ROUTE_RELAYED);
}

static void check_shares(const struct cei_route_request *request,
			 const struct cei_route *route)
{
	uint64_t sum = 0;
	uint32_t i, j;

	for (i = 0; i < route->n_paths; i++) {
		sum += route->paths[i].bytes;
		ck_assert(route->paths[i].bytes || !request->bytes);
		if (i + 1 < route->n_paths)
			ck_assert_uint_eq(route->paths[i].bytes % 4096, 0);
		if (i)
			ck_assert_uint_le(route->paths[i].bytes, route->paths[i - 1].bytes);
		for (j = 0; j < i; j++)
			ck_assert_uint_ne(route->paths[i].via, route->paths[j].via);
	}
	ck_assert_uint_eq(sum, request->bytes);
}

/* Asserts that the expected time is not shorter than ports and engines allow, nor than the time of
 * any of the parts. */
static void check_time(const struct cei_machine *machine,
		       const struct cei_route_request *request,
		       const struct cei_route *route, const struct bounds *bounds)
{
	double ns = (double)route->expected_ns * (1 + 1e-6) + 1, load;
	const struct cei_route_path *path;
	uint32_t i, j;

	for (i = 0; i < route->n_paths; i++) {
		path = &route->paths[i];
		ck_assert_double_ge(ns, (double)path->t0_ns - 1 +
				    (double)path->bytes / (double)(path->bytes_per_s + 1) * 1e9);
	}
	for (i = 0; i < machine->n_ports; i++) {
		load = request->port_load ? (double)request->port_load[i] : 0;
		load = (double)machine->ports[i].bytes_per_s - load;
		if (load < (double)machine->ports[i].bytes_per_s / 10)
			load = (double)machine->ports[i].bytes_per_s / 10;
		if (!(ns >= bounds->port_bytes[i] / load * 1e9))
			ck_abort_msg("port %u takes longer than %g ns", i, ns);
	}
	for (i = 0; i < machine->n_gpus; i++)
		for (j = 0; j < 3; j++)
			if (!(ns >= bounds->engine_ns[i][j]))
				ck_abort_msg("engine %u of GPU %u takes longer than %g ns", j, i,
					     ns);
}

int route_rig_find(const struct cei_machine *machine, const struct cei_route_request *request,
		   struct cei_route *ret_route)
{
	static struct bounds bounds;
	uint32_t i;
	int r;

	memset(ret_route, 0xee, sizeof(*ret_route));
	r = cei_route_find(machine, request, ret_route);
	ck_assert(r == 0 || r == CEOV_ERR_NO_ROUTE);
	ck_assert_ptr_nonnull(memchr(ret_route->why, 0, sizeof(ret_route->why)));
	ck_assert_uint_gt(strlen(ret_route->why), 10);
	ck_assert_uint_lt(strlen(ret_route->why), sizeof(ret_route->why) - 1);
	if (r) {
		ck_assert_uint_eq(ret_route->n_paths, 0);
		return r;
	}
	ck_assert_uint_ge(ret_route->n_paths, 1);
	ck_assert_uint_le(ret_route->n_paths, CEI_ROUTE_PATHS_MAX);
	memset(&bounds, 0, sizeof(bounds));
	for (i = 0; i < ret_route->n_paths; i++)
		check_path(machine, request, &ret_route->paths[i], &bounds);
	check_shares(request, ret_route);
	check_time(machine, request, ret_route, &bounds);
	return 0;
}

struct cei_route route_rig_get(const struct cei_machine *machine,
			       const struct cei_route_request *request)
{
	struct cei_route route;

	ck_assert_int_eq(route_rig_find(machine, request, &route), 0);
	return route;
}
