/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* ceov_plan_explain(): one line per transfer. */

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/write.h"
#include "ce_engine/buffer.h"
#include "ce_engine/context.h"
#include "ce_engine/engine.h"
#include "ce_engine/plan.h"
#include "ce_engine/plan_bind.h"

#define LINE_BYTES 512

static const char *trigger_of(const struct ceov_plan *plan, const struct cei_step *step)
{
	if (!step->source_ready.signal && !step->target_free.signal)
		return "at launch";
	if (!plan->is_gateable)
		return "polled";
	return plan->is_pollable ? "gated where the launch names its producer, else polled"
		: "gated";
}

/* One line. */
static int __attribute__((format(printf, 3, 4)))
say(const struct ceov_plan *plan, int fd, const char *format, ...)
{
	char line[LINE_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	return cei_write(&plan->object.context->report, fd, line, "ceov_plan_explain");
}

static int explain_way(const struct ceov_plan *plan, const struct cei_program_route *found,
		       uint32_t w, int fd)
{
	const ceov_context *context = plan->object.context;
	const struct cei_machine *machine = context->engines[plan->member].topology->machine;
	const struct cei_route_way *way = &found->route.ways[w];
	char via[16], first[16], second[16];

	if (way->sort == CEI_ROUTE_DIRECT)
		return say(plan, fd, "  %.1f %% direct, %.1f GB/s expected\n",
			   100.0 * (double)way->bytes / (double)found->bytes,
			   (double)way->bytes_per_s / 1e9);
	return say(plan, fd, "  %.1f %% %s via %s, %.1f GB/s expected, moved by %s then %s\n",
		   100.0 * (double)way->bytes / (double)found->bytes,
		   cei_route_sort_name(way->sort),
		   cei_machine_place_name(machine, way->via, via),
		   (double)way->bytes_per_s / 1e9,
		   cei_machine_place_name(machine, way->engines[0], first),
		   cei_machine_place_name(machine, way->engines[1], second));
}

static int explain_routed(const struct ceov_plan *plan, uint32_t i, int fd)
{
	const struct ceov_transfer *transfer = &plan->transfers[i];
	const struct cei_step *step = &plan->steps[i];
	const struct cei_route *route = &step->route->route;
	uint32_t w;
	int r;

	r = say(plan, fd, "transfer %u: rank %u -> rank %u, %" PRIu64 " bytes (%" PRIu64
		" rows); %u way%s (%s); trigger: %s; %u chunks; expected %.1f us\n", i,
		transfer->source.buffer->rank, transfer->target.buffer->rank,
		step->piece.row_bytes * step->piece.n_rows, step->piece.n_rows, route->n_ways,
		route->n_ways == 1 ? "" : "s", route->why, trigger_of(plan, step),
		step->n_chunks, (double)route->expected_ns / 1e3);
	for (w = 0; !r && w < route->n_ways; w++)
		r = explain_way(plan, step->route, w, fd);
	return r;
}

static int explain_step(const struct ceov_plan *plan, uint32_t i, int fd)
{
	const ceov_context *context = plan->object.context;
	const struct cei_engine *engine = &context->engines[plan->member];
	const struct ceov_transfer *transfer = &plan->transfers[i];
	const struct cei_step *step = &plan->steps[i];
	uint64_t bytes = step->piece.row_bytes * step->piece.n_rows;

	if (!bytes)
		return say(plan, fd, "transfer %u: moves nothing, raises a mark behind "
			   "those before it; trigger: %s\n", i, trigger_of(plan, step));
	if (step->is_routed)
		return explain_routed(plan, i, fd);
	return say(plan, fd, "transfer %u: rank %u%s -> rank %u, %" PRIu64 " bytes (%" PRIu64
		   " rows); backend %s, route direct %s; trigger: %s; %u chunk%s; expected "
		   "%.1f us\n", i, transfer->source.buffer->rank,
		   step->is_floating ? " (floating)" : "", transfer->target.buffer->rank,
		   bytes, step->piece.n_rows, engine->backend.ops->name,
		   cei_direction_name(step->direction), trigger_of(plan, step), step->n_chunks,
		   step->n_chunks == 1 ? "" : "s",
		   (double)cei_router_expected_ns(step) / 1e3);
}

/* Waiting streams hold hardware queues that kernels need, see backend/waits.h. */
static int explain_waits(const struct ceov_plan *plan, int fd)
{
	ceov_context *context = plan->object.context;
	struct cei_backend *backend = &context->engines[plan->member].backend;
	uint32_t n;

	if (!plan->is_gateable || !plan->is_pollable ||
	    !(backend->ops->caps & CEI_CAP_DEVICE))
		return 0;
	n = backend->ops->waits_left(backend);
	if (n)
		return say(plan, fd, "%u more streams of GPU %u can be left waiting; beyond "
			   "that launches of this plan are polled and not gated\n", n,
			   backend->place.index);
	return say(plan, fd, "as many streams of GPU %u wait as may: launches of this plan are "
		   "polled and not gated\n", backend->place.index);
}

int ceov_plan_explain(const ceov_plan *plan, int fd)
{
	uint32_t i;
	int r = cei_object_check(plan, CEI_OBJECT_PLAN, "ceov_plan_explain");

	if (r)
		return r;
	if (!plan->is_committed)
		return cei_raise(&plan->object.context->report, CEOV_ERR_STATE, 0,
				 "ceov_plan_explain: the plan is not committed");
	r = say(plan, fd, "plan of rank %u: %u transfers, %u chunks, %s%s\n", plan->rank,
		plan->n_transfers, plan->n_cuts, plan->is_gateable ? "can be gated"
		: "always polled: ", plan->is_gateable ? "" : plan->why_polled);
	if (!r)
		r = explain_waits(plan, fd);
	for (i = 0; !r && i < plan->n_transfers; i++)
		r = explain_step(plan, i, fd);
	return r;
}
