/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Stage 2: turns chunks into jobs, for which queues.c decides what goes next. Knows lanes by number
 * only. */

#include "ce_engine/sched/scheduler.h"

#include "base/clock.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/program/program_cut.h"
#include "ce_engine/sched/launch.h"
#include "ce_engine/sched/tally.h"
#include "ce_engine/sched/trace.h"

int cei_scheduler_init(struct cei_scheduler *scheduler, struct cei_ports *ports,
		       struct cei_flows *flows, struct cei_trace *trace)
{
	scheduler->trace = trace;
	cei_list_init(&scheduler->picked);
	cei_queues_share(&scheduler->queues, flows);
	return cei_queues_init(&scheduler->queues, ports, 0, CEI_LANE_CREDIT);
}

/* The link of a chunk that goes there in one copy. Others are bounded by their staging
 * slots, and small: they go when they can. A chunk whose launch counted no rows for it has the link
 * of its transfer's other chunks, too: its mark must not overtake their bytes. */
static const struct cei_machine_link *link_of(const struct cei_chunk *chunk)
{
	const struct cei_cut *cut = cei_chunk_cut(chunk);
	const struct cei_machine_link *link = cei_chunk_step(chunk)->link;

	if (cut->path != CEI_PATH_DIRECT || !cut->piece.n_rows || !link ||
	    link->kind == CEI_MACHINE_NONE)
		return NULL;
	return link;
}

/* A gated launch stays on the lane that waits for it; other chunks go on the lane of their
 * transfer, or of the leg of their path. */
static uint32_t lane_of(const struct cei_chunk *chunk)
{
	if (chunk->launch->gate != CEOV_NOBODY)
		return chunk->launch->gate;
	if (chunk->path)
		return chunk->path->lanes[chunk->leg];
	return cei_chunk_step(chunk)->lane;
}

/* What the chunk's copy, or that of its leg at hand, goes from and to. */
static enum cei_direction direction_of(const struct cei_chunk *chunk)
{
	if (!chunk->path)
		return cei_chunk_step(chunk)->direction;
	if (chunk->path->kind == CEOV_PLACE_GPU)
		return CEI_DIRECTION_PEER;
	return chunk->leg ? CEI_DIRECTION_IN : CEI_DIRECTION_OUT;
}

void cei_scheduler_add(struct cei_scheduler *scheduler, struct cei_chunk *chunk)
{
	const struct ceov_plan *plan = chunk->launch->plan;
	struct cei_job *job = &chunk->job;
	int is_gated = chunk->launch->gate != CEOV_NOBODY;

	job->link = link_of(chunk);
	job->gap_bytes = cei_split_gap_bytes(&cei_chunk_cut(chunk)->piece, job->bytes);
	job->direction = (uint8_t)direction_of(chunk);
	job->ready_ns = cei_now_ns();
	job->lane = (uint16_t)lane_of(chunk);
	job->turn = cei_chunk_step(chunk)->turn;
	job->client = (uint16_t)plan->object.context->slot;
	/* A gated lane waits for marks that are raised in the order of its launches
	 * (admission.h). Its chunks have to keep that order, so urgency does not count. */
	job->urgency = is_gated ? CEOV_URGENCY_NORMAL : (uint8_t)plan->program.urgency;
	job->keeps_order = is_gated || plan->triggers.keeps_order;
	cei_queues_add(&scheduler->queues, job);        /* it may change the job's client */
	if (scheduler->tally)
		cei_tally_wait(scheduler->tally, chunk);
}

uint32_t cei_scheduler_pick(struct cei_scheduler *scheduler)
{
	struct cei_queues *queues = &scheduler->queues;
	const struct cei_lane_set *waiting = &queues->has_waiting;
	uint32_t lane, n_picked = 0;
	struct cei_chunk *chunk;
	struct cei_job *job;
	uint64_t now;

	if (cei_lane_set_is_empty(waiting) && cei_lane_set_is_empty(&queues->has_moving))
		return 0;
	now = cei_now_ns();
	cei_queues_settle(queues, now);
	for (lane = cei_lane_set_next(waiting, 0); lane != CEI_NO_LANE;
	     lane = cei_lane_set_next(waiting, lane + 1)) {
		while ((job = cei_queues_take(queues, lane, now))) {
			chunk = CEI_OWNER(job, struct cei_chunk, job);
			chunk->state = CEI_CHUNK_PICKED;
			cei_list_append(&scheduler->picked, &chunk->link);
			cei_trace_stage(scheduler->trace, chunk, CEI_TRACE_PICKED);
			if (scheduler->tally)
				cei_tally_go(scheduler->tally, chunk, now);
			n_picked++;
		}
	}
	return n_picked;
}

void cei_scheduler_leave(struct cei_scheduler *scheduler, struct cei_chunk *chunk)
{
	uint64_t now_ns = cei_now_ns();

	if (scheduler->tally)
		cei_tally_leave(scheduler->tally, chunk, now_ns);
	cei_queues_leave(&scheduler->queues, &chunk->job, now_ns);
}
