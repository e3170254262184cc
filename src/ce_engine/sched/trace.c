/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Records of chunks. */

#include "ce_engine/sched/trace.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

int cei_trace_open(const struct cei_site *site, struct cei_trace **ret_trace)
{
	*ret_trace = NULL;
	if (!site->trace_path[0])
		return 0;
	*ret_trace = calloc(1, sizeof(**ret_trace));
	return *ret_trace ? 0 : cei_raise(site->report, CEOV_ERR_NO_MEMORY, 0,
					  "no memory for a trace");
}

static int is_of(const struct cei_trace_record *record, const struct cei_chunk *chunk)
{
	return record->launch == chunk->launch->number && record->index == chunk->index;
}

static const struct cei_program_transfer *transfer_of(const struct cei_chunk *chunk)
{
	return &chunk->launch->plan->program.transfers[cei_chunk_cut(chunk)->step];
}

static uint32_t owner_of(const struct cei_chunk *chunk, const struct cei_program_spot *spot)
{
	if (spot->buffer == CEI_PROGRAM_NONE)
		return CEOV_NOBODY;
	return chunk->launch->plan->program.buffers[spot->buffer].rank;
}

/* Who raises the counter of a transfer's end; without bytes all that is known is whose it is. */
static uint32_t raiser_of(const struct cei_chunk *chunk, const struct cei_program_spot *spot,
			  const struct cei_counter *counter)
{
	if (spot->buffer != CEI_PROGRAM_NONE)
		return owner_of(chunk, spot);
	return counter->signal ? counter->signal->rank : CEOV_NOBODY;
}

/* Returns the rank whose mark the transfer waited for last: who has the bytes says that they are
 * ready, and who takes them says that there is room. */
static uint32_t awaited_rank(const struct cei_chunk *chunk)
{
	const struct cei_program_transfer *transfer = transfer_of(chunk);
	const struct cei_step *step = cei_chunk_step(chunk);
	uint32_t also = chunk->awaited - CEI_AWAITED_ALSO;

	switch (chunk->awaited) {
	case CEI_AWAITED_NONE:
		return CEOV_NOBODY;
	case CEI_AWAITED_SOURCE:
		return raiser_of(chunk, &transfer->source, &step->source_ready);
	case CEI_AWAITED_TARGET:
		return raiser_of(chunk, &transfer->target, &step->target_free);
	default:
		return also < step->n_also ? step->also[also].counter.signal->rank : CEOV_NOBODY;
	}
}

static struct cei_trace_record *begin(struct cei_trace *trace, struct cei_chunk *chunk)
{
	const struct cei_cut *cut = cei_chunk_cut(chunk);
	const struct cei_step *step = cei_chunk_step(chunk);
	struct cei_trace_record *record;

	chunk->trace = (uint32_t)(trace->n_taken++ % CEI_TRACE_RECORDS);
	record = &trace->records[chunk->trace];
	memset(record, 0, sizeof(*record));
	record->launch = chunk->launch->number;
	record->index = chunk->index;
	record->transfer = cut->step;
	record->chunk = chunk->index - step->first_chunk;
	record->bytes = chunk->job.bytes;
	record->direction = (uint8_t)step->direction;
	record->label = chunk->launch->plan->label;
	record->awaited = awaited_rank(chunk);
	record->from = owner_of(chunk, &transfer_of(chunk)->source);
	record->to = owner_of(chunk, &transfer_of(chunk)->target);
	record->at_ns[CEI_TRACE_ARMED] = chunk->launch->armed_ns;
	return record;
}

/* The second leg waits for no doorbell: it is ready when the first one has arrived. */
static struct cei_trace_record *begin_next_leg(struct cei_trace *trace,
					       struct cei_chunk *chunk, uint64_t now)
{
	struct cei_trace_record *record = &trace->records[chunk->trace];

	if (is_of(record, chunk) && !record->at_ns[CEI_TRACE_FINISHED])
		record->at_ns[CEI_TRACE_FINISHED] = now;
	record = begin(trace, chunk);
	record->at_ns[CEI_TRACE_ARMED] = now;
	record->leg = (uint8_t)chunk->leg;
	return record;
}

void cei_trace_add(struct cei_trace *trace, struct cei_chunk *chunk,
		   enum cei_trace_stage stage)
{
	uint64_t now = cei_now_ns();
	struct cei_trace_record *record;

	if (stage == CEI_TRACE_READY)
		record = chunk->leg ? begin_next_leg(trace, chunk, now)
			: begin(trace, chunk);
	else
		record = &trace->records[chunk->trace % CEI_TRACE_RECORDS];
	if (!is_of(record, chunk))      /* newer ones have taken its place */
		return;
	if (stage == CEI_TRACE_PICKED) {
		record->lane = chunk->job.lane;
		record->via = chunk->path ? chunk->path->via : CEOV_NOBODY;
	}
	if (stage == CEI_TRACE_SUBMITTED)
		record->submit = chunk->sequence;
	record->at_ns[stage] = now;
}
