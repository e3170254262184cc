/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What is told of a program's transfers, one line each and one for each path. */

#include "ce_engine/program/program_explain.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/write.h"

#define LINE_BYTES 512

uint64_t cei_program_expected_ns(const struct cei_program *program,
				 const struct cei_machine *machine, uint32_t transfer)
{
	const struct cei_program_transfer *of = &program->transfers[transfer];
	const struct cei_machine_link *link = NULL;
	uint32_t from, to;

	if (of->route != CEI_PROGRAM_NONE)
		return program->routes[of->route].route.expected_ns;
	if (!of->row_bytes || program->movers[of->mover].flags & CEI_PROGRAM_LEAVES_MACHINE)
		return 0;
	from = program->buffers[of->source.buffer].place;
	to = program->buffers[of->target.buffer].place;
	if (machine && from != CEOV_NOBODY && to != CEOV_NOBODY)
		link = cei_machine_link(machine, from, to);
	if (!link)
		link = cei_link_default((enum cei_direction)of->direction);
	return cei_machine_link_ns(link, of->row_bytes * of->n_rows) +
		(of->n_chunks - 1) * link->t0_ns;
}

int cei_say(const struct cei_explain *explain, const char *format, ...)
{
	char line[LINE_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	return cei_write(explain->report, explain->fd, line, "ceov_plan_explain");
}

static const char *trigger_of(const struct cei_explain *explain,
			      const struct cei_program_transfer *transfer)
{
	if (transfer->source_ready.signal == CEI_PROGRAM_NONE &&
	    transfer->target_free.signal == CEI_PROGRAM_NONE)
		return "at launch";
	return explain->trigger;
}

/* Before the bytes of a transfer whose launches read how many rows they move. */
static const char *at_most(const struct cei_program_transfer *transfer)
{
	return transfer->is_counted ? "as many rows as a launch says, at most " : "";
}

static int explain_path(const struct cei_explain *explain,
			const struct cei_program_route *found, uint32_t w)
{
	const struct cei_machine *machine = explain->machine;
	const struct cei_route_path *path = &found->route.paths[w];
	char via[16], first[16], second[16];

	if (path->kind == CEI_ROUTE_DIRECT)
		return cei_say(explain, "  %.1f %% direct, %.1f GB/s expected\n",
			   100.0 * (double)path->bytes / (double)found->bytes,
			   (double)path->bytes_per_s / 1e9);
	return cei_say(explain, "  %.1f %% %s via %s, %.1f GB/s expected, moved by %s then %s\n",
		   100.0 * (double)path->bytes / (double)found->bytes,
		   cei_route_kind_name(path->kind),
		   cei_machine_place_name(machine, path->via, via),
		   (double)path->bytes_per_s / 1e9,
		   cei_machine_place_name(machine, path->engines[0], first),
		   cei_machine_place_name(machine, path->engines[1], second));
}

static int explain_routed(const struct cei_explain *explain, uint32_t i)
{
	const struct cei_program *program = explain->program;
	const struct cei_program_transfer *transfer = &program->transfers[i];
	const struct cei_route *route = &program->routes[transfer->route].route;
	uint32_t w;
	int r;

	r = cei_say(explain, "transfer %u: rank %u -> rank %u, %s%" PRIu64 " bytes (%" PRIu64
		" rows); %u path%s (%s); trigger: %s; %u chunks; expected %.1f us\n", i,
		program->buffers[transfer->source.buffer].rank,
		program->buffers[transfer->target.buffer].rank, at_most(transfer),
		transfer->row_bytes * transfer->n_rows, transfer->n_rows, route->n_paths,
		route->n_paths == 1 ? "" : "s", route->why, trigger_of(explain, transfer),
		transfer->n_chunks, (double)route->expected_ns / 1e3);
	for (w = 0; !r && w < route->n_paths; w++)
		r = explain_path(explain, &program->routes[transfer->route], w);
	return r;
}

struct expected_text {
	char text[64];
};

static struct expected_text far_text(const struct cei_explain *explain,
				     const struct cei_program_transfer *transfer)
{
	uint32_t rank = explain->program->buffers[transfer->target.buffer].rank;
	struct expected_text text = { "expected time not known" };
	struct cei_rail_expected expected;

	if (!explain->far(explain, rank, transfer->row_bytes * transfer->n_rows, &expected))
		snprintf(text.text, sizeof(text.text), "expected %.1f us by %s",
			 (double)expected.ns / 1e3, expected.is_measured
			 ? "what was sent there before" : "the network library");
	return text;
}

static struct expected_text expected_text(const struct cei_explain *explain, uint32_t i)
{
	const struct cei_program *program = explain->program;
	uint64_t expected_ns = cei_program_expected_ns(program, explain->machine, i);
	struct expected_text expected = { "expected time not known" };

	if (program->movers[program->transfers[i].mover].flags & CEI_PROGRAM_LEAVES_MACHINE)
		return far_text(explain, &program->transfers[i]);
	if (expected_ns)
		snprintf(expected.text, sizeof(expected.text), "expected %.1f us",
			 (double)expected_ns / 1e3);
	return expected;
}

int cei_explain_transfer(const struct cei_explain *explain, uint32_t i)
{
	const struct cei_program *program = explain->program;
	const struct cei_program_transfer *transfer = &program->transfers[i];
	int leaves = cei_program_leaves_node(program, i);

	if (!transfer->row_bytes)
		return cei_say(explain, "transfer %u: moves nothing, raises a mark behind "
			   "those before it; trigger: %s\n", i, trigger_of(explain, transfer));
	if (transfer->route != CEI_PROGRAM_NONE)
		return explain_routed(explain, i);
	return cei_say(explain, "transfer %u: rank %u%s -> rank %u, %s%" PRIu64 " bytes (%" PRIu64
		   " rows); backend %s, route %s%s; trigger: %s; %u chunk%s; %s\n",
		   i, program->buffers[transfer->source.buffer].rank,
		   transfer->source.buffer == program->floating ? " (floating)" : "",
		   program->buffers[transfer->target.buffer].rank, at_most(transfer),
		   transfer->row_bytes * transfer->n_rows, transfer->n_rows,
		   explain->movers[transfer->mover], leaves ? "over the network" : "direct ",
		   leaves ? "" : cei_direction_name((enum cei_direction)transfer->direction),
		   trigger_of(explain, transfer), transfer->n_chunks,
		   transfer->n_chunks == 1 ? "" : "s",
		   expected_text(explain, i).text);
}
