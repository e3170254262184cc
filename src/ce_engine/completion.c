/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Stage 5: takes done chunks off lanes; the last one of a launch retires it. */

#include "ce_engine/completion.h"

#include "ce_engine/engine.h"
#include "ce_engine/launch.h"
#include "ce_engine/trace.h"
#include "ce_engine/staging.h"

/* The last chunk of a transfer brings its mark, for which others may be parked. */
static void tell_parked(struct cei_engine *engine, const struct cei_chunk *chunk)
{
	const struct ceov_plan *plan = chunk->launch->plan;
	uint32_t i = plan->cuts[chunk->index].step;

	if (chunk->index == plan->steps[i].first_chunk + plan->steps[i].n_chunks - 1)
		cei_parking_done(engine, chunk->launch, i);
}

static void finish(struct cei_engine *engine, struct cei_chunk *chunk)
{
	cei_trace_stage(engine, chunk, CEI_TRACE_DONE);
	cei_scheduler_leave(&engine->scheduler, chunk);
	if (cei_staging_goes_on(engine, chunk))
		return;
	chunk->state = CEI_CHUNK_DONE;
	if (chunk->launch->n_parked)
		tell_parked(engine, chunk);
	cei_trace_stage(engine, chunk, CEI_TRACE_FINISHED);     /* retiring may free it */
	if (!--chunk->launch->n_open)
		cei_launch_retire(engine, chunk->launch);
}

static uint32_t reap_lane(struct cei_engine *engine, uint32_t i)
{
	struct cei_list *moving = &engine->lanes.moving[i];
	struct cei_lane *lane = &engine->lanes.lane[i];
	struct cei_chunk *chunk;
	uint64_t n_done = 0;
	uint32_t n_reaped = 0;
	int r;

	r = lane->backend->ops->reap(lane, &n_done);
	while (!cei_list_is_empty(moving)) {
		chunk = CEI_OWNER(moving->next, struct cei_chunk, link);
		if (chunk->sequence > n_done)
			break;
		cei_list_remove(&chunk->link);
		finish(engine, chunk);
		n_reaped++;
	}
	if (r < 0)
		cei_lanes_break(engine, i, r);
	return n_reaped;
}

uint32_t cei_completion_reap(struct cei_engine *engine)
{
	uint32_t i, n_reaped = 0;

	for (i = 0; i < cei_lanes_n(&engine->lanes); i++)
		if (!cei_list_is_empty(&engine->lanes.moving[i]))
			n_reaped += reap_lane(engine, i);
	return n_reaped;
}
