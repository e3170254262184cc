/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Stage 3: which lane, and who is gated where. Moves nothing, waits for nothing. */

#include "ce_engine/router.h"

#include "ce_engine/buffer.h"
#include "ce_engine/context.h"
#include "ce_engine/plan.h"
#include "ce_engine/engine.h"
#include "ce_engine/launch.h"
#include "ce_engine/trace.h"

uint32_t cei_router_place(const struct cei_engine *engine, const struct ceov_buffer *buffer)
{
	const struct cei_machine *machine = engine->topology->machine;
	const struct cei_region *region = buffer->region;

	if (!machine || engine->place == CEOV_NOBODY)
		return CEOV_NOBODY;
	if (!(engine->backend->ops->caps & CEI_CAP_DEVICE))
		return buffer->rank < cei_machine_n_places(machine) ? buffer->rank : CEOV_NOBODY;
	if (region->kind == CEOV_PLACE_GPU)
		return region->gpu < machine->n_gpus ? region->gpu : CEOV_NOBODY;
	return cei_machine_near_host(machine, engine->place);
}

void cei_router_init(struct cei_router *router)
{
	uint32_t i;

	router->is_short = 0;
	for (i = 0; i < CEI_LANES_GATED; i++) {
		router->producer[i] = NULL;
		router->n_launches[i] = 0;
		cei_list_init(&router->unpassed[i]);
	}
}

/* The gated lane that serves the producer or is free, or CEOV_NOBODY. */
static uint32_t lane_for(const struct cei_router *router, const void *producer)
{
	uint32_t i, free_lane = CEOV_NOBODY;

	for (i = CEI_LANES_GATED; i-- > 0;) {
		if (!router->n_launches[i])
			free_lane = i;
		else if (router->producer[i] == producer)
			return i;
	}
	return free_lane;
}

/* Whose work opens the launch's gates, in the order of launches. NULL: it has none and is
 * polled. */
static const void *chain_of(const struct cei_launch *launch)
{
	if (launch->after)
		return launch->after;
	return launch->plan->triggers.is_gateable ? launch->producer : NULL;
}

int cei_router_shares_lane(const struct cei_launch *launch, const struct cei_launch *other)
{
	return chain_of(launch) && chain_of(launch) == chain_of(other);
}

static uint32_t gate_for(const struct cei_engine *engine, const struct cei_launch *launch)
{
	uint32_t lane;

	if (!chain_of(launch))
		return CEOV_NOBODY;
	lane = lane_for(&engine->router, chain_of(launch));
	return lane == CEOV_NOBODY ? CEOV_NOBODY : CEI_LANES_GATED_FIRST + lane;
}

void cei_router_begin(struct cei_router *router)
{
	router->is_short = 0;
}

/* Also for one that is held yet: nobody else has the lane when its turn comes. */
static void take_lane(struct cei_router *router, struct cei_launch *launch, uint32_t gate)
{
	uint32_t i = gate - CEI_LANES_GATED_FIRST;

	if (launch->gate == gate)
		return;
	launch->gate = gate;
	router->producer[i] = chain_of(launch);
	router->n_launches[i]++;
}

/* Whether the lane may be left waiting for marks that could be polled as well. Launches of
 * a plan stay together: one that went the other way would be held for the ones before. */
static int may_gate(struct cei_engine *engine, const struct ceov_plan *plan)
{
	if (plan->run.n_admitted)
		return plan->run.gate != CEOV_NOBODY;
	return engine->backend->ops->waits_left(engine->backend) > 0;
}

int cei_router_admit(struct cei_engine *engine, struct cei_launch *launch, int is_behind)
{
	struct cei_router *router = &engine->router;
	struct ceov_plan *plan = launch->plan;
	int needs_lane = launch->after || !plan->triggers.is_pollable;
	uint32_t gate = launch->gate;

	if (gate == CEOV_NOBODY && !is_behind && !router->is_short &&
	    (needs_lane || may_gate(engine, plan)))
		gate = gate_for(engine, launch);
	/* Two ways at once could raise a plan's marks out of order. Polling is always
	 * as good as a gate; the reverse must wait. */
	if (plan->run.n_admitted && plan->run.gate == CEOV_NOBODY && !needs_lane)
		gate = CEOV_NOBODY;
	if (gate == CEOV_NOBODY && needs_lane) {
		router->is_short |= !is_behind;
		return CEOV_PENDING;
	}
	if (needs_lane)
		take_lane(router, launch, gate);
	if (plan->run.n_held || (plan->run.n_admitted && plan->run.gate != gate))
		return CEOV_PENDING;
	plan->run.n_admitted++;
	plan->run.gate = gate;
	if (gate == CEOV_NOBODY)
		return 0;
	take_lane(router, launch, gate);
	cei_list_append(&router->unpassed[gate - CEI_LANES_GATED_FIRST], &launch->gate_link);
	return 0;
}

int cei_router_lane_waits(const struct cei_launch *launch)
{
	return launch->gate != CEOV_NOBODY && launch->producer &&
		launch->plan->triggers.is_gateable;
}

int cei_router_is_oldest(const struct cei_router *router, const struct cei_launch *launch)
{
	return router->unpassed[launch->gate - CEI_LANES_GATED_FIRST].next ==
		&launch->gate_link;
}

int cei_router_is_next(const struct cei_router *router, const struct cei_launch *launch,
		       uint32_t step)
{
	return cei_router_is_oldest(router, launch) && launch->next_step == step;
}

void cei_router_passed(struct cei_launch *launch)
{
	const struct ceov_plan *plan = launch->plan;

	while (launch->next_step < plan->program.n_transfers &&
	       launch->chunks[plan->steps[launch->next_step].first_chunk].state !=
	       CEI_CHUNK_ARMED)
		launch->next_step++;
	if (launch->next_step == plan->program.n_transfers)
		cei_list_remove(&launch->gate_link);
}

void cei_router_leave(struct cei_router *router, struct cei_launch *launch)
{
	launch->plan->run.n_admitted--;
	cei_list_remove(&launch->gate_link);
	if (launch->gate != CEOV_NOBODY)
		router->n_launches[launch->gate - CEI_LANES_GATED_FIRST]--;
}

uint32_t cei_router_lane(const struct cei_chunk *chunk)
{
	const struct ceov_plan *plan = chunk->launch->plan;

	const struct cei_way *way;

	if (chunk->launch->gate != CEOV_NOBODY)
		return chunk->launch->gate;
	way = cei_staging_way_of(&plan->object.context->engines[plan->member], chunk);
	if (way)
		return way->lanes[chunk->leg];
	return plan->steps[plan->cuts[chunk->index].step].lane;
}

void cei_router_assign(struct cei_engine *engine)
{
	struct cei_list *picked = &engine->scheduler.picked;
	struct cei_list *node;
	struct cei_chunk *chunk;

	for (node = picked->next; node != picked; node = node->next) {
		chunk = CEI_OWNER(node, struct cei_chunk, link);
		chunk->lane = (uint16_t)cei_router_lane(chunk);
		chunk->state = CEI_CHUNK_ROUTED;
		cei_trace_stage(engine, chunk, CEI_TRACE_ROUTED);
	}
}
