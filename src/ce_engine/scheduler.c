/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Stage 2: order and credit. Knows lanes by number only. */

#include "ce_engine/scheduler.h"

#include "ce_engine/chunk.h"
#include "ce_engine/engine.h"

void cei_scheduler_init(struct cei_scheduler *scheduler)
{
	uint32_t i;

	for (i = 0; i < CEI_LANES; i++) {
		cei_list_init(&scheduler->queues[i]);
		scheduler->in_flight[i] = 0;
	}
	cei_list_init(&scheduler->picked);
}

void cei_scheduler_add(struct cei_scheduler *scheduler, struct cei_chunk *chunk)
{
	cei_list_append(&scheduler->queues[cei_router_lane(chunk)], &chunk->link);
}

uint32_t cei_scheduler_pick(struct cei_engine *engine)
{
	struct cei_scheduler *scheduler = &engine->scheduler;
	uint32_t i, n_picked = 0;

	for (i = 0; i < CEI_LANES; i++) {
		while (scheduler->in_flight[i] < CEI_LANE_CREDIT &&
		       !cei_list_is_empty(&scheduler->queues[i])) {
			cei_list_append(&scheduler->picked,
					cei_list_take(&scheduler->queues[i]));
			scheduler->in_flight[i]++;
			n_picked++;
		}
	}
	return n_picked;
}

void cei_scheduler_credit(struct cei_scheduler *scheduler, uint32_t lane)
{
	scheduler->in_flight[lane]--;
}
