/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* ceov_plan_explain(): one line per transfer. */

#include <inttypes.h>
#include <stdio.h>

#include "ce_engine/buffer.h"
#include "ce_engine/context.h"

static const char *trigger_of(const struct ceov_plan *plan, const struct cei_step *step)
{
	if (!step->source_ready.signal && !step->target_free.signal)
		return "at launch";
	if (!plan->is_gateable)
		return "polled";
	return plan->is_pollable ? "gated where the launch names its producer, else polled"
		: "gated";
}

static void explain_step(const struct ceov_plan *plan, uint32_t i, int fd)
{
	const ceov_context *context = plan->object.context;
	const struct cei_engine *engine = &context->engines[plan->member];
	const struct ceov_transfer *transfer = &plan->transfers[i];
	const struct cei_step *step = &plan->steps[i];
	uint64_t bytes = step->piece.row_bytes * step->piece.n_rows;

	if (!bytes) {
		dprintf(fd, "transfer %u: moves nothing, raises a mark; %s\n", i,
			trigger_of(plan, step));
		return;
	}
	dprintf(fd, "transfer %u: rank %u -> rank %u, %" PRIu64 " bytes (%" PRIu64
		" rows); backend %s, route direct %s; trigger: %s; %u chunk%s; expected "
		"%.1f us\n", i, transfer->source.buffer->rank, transfer->target.buffer->rank,
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
	dprintf(fd, "plan of rank %u: %u transfers, %u chunks, %s%s\n", plan->rank,
		plan->n_transfers, plan->n_cuts, plan->is_gateable ? "can be gated"
		: "always polled: ", plan->is_gateable ? "" : plan->why_polled);
	for (i = 0; i < plan->n_transfers; i++)
		explain_step(plan, i, fd);
	return 0;
}
