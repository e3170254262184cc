/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* ceov_plan_explain(): one line per transfer. */

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ce_engine/buffer.h"
#include "ce_engine/context.h"

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
	size_t n_bytes, at;
	va_list args;
	ssize_t n;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	n_bytes = strlen(line);
	for (at = 0; at < n_bytes; at += (size_t)n) {
		n = write(fd, line + at, n_bytes - at);
		if (n < 0 && errno == EINTR)
			n = 0;
		if (n < 0)
			return cei_raise(&plan->object.context->report, CEOV_ERR_SYSTEM,
					 errno, "ceov_plan_explain: cannot write to "
					 "descriptor %d", fd);
	}
	return 0;
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
	return say(plan, fd, "transfer %u: rank %u%s -> rank %u, %" PRIu64 " bytes (%" PRIu64
		   " rows); backend %s, route direct %s; trigger: %s; %u chunk%s; expected "
		   "%.1f us\n", i, transfer->source.buffer->rank,
		   step->is_floating ? " (floating)" : "", transfer->target.buffer->rank,
		   bytes, step->piece.n_rows, engine->backend.ops->name,
		   cei_path_name(step->path), trigger_of(plan, step), step->n_chunks,
		   step->n_chunks == 1 ? "" : "s",
		   (double)cei_router_expected_ns(engine, step) / 1e3);
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
	for (i = 0; !r && i < plan->n_transfers; i++)
		r = explain_step(plan, i, fd);
	return r;
}
