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
