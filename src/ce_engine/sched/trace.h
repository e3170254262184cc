/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_TRACE_H
#define CEI_TRACE_H

/*
 * When each chunk passed which stage: a ring of records per engine, written by the
 * engine's thread only, read after it has stopped. Off unless the environment names a
 * file (CEOVERLAP_TRACE): then an engine has no ring, and a call is one branch.
 *
 * The file is JSON as Perfetto and Chrome read it. A process per rank is shown (pid),
 * with the four stages of every chunk as slices, and a line per lane (tid) with what it
 * moved.
 */

#include <stdint.h>

#include "base/site.h"
#include "ce_engine/sched/launch.h"

/* Records that an engine keeps, of its newest chunks. */
#define CEI_TRACE_RECORDS 16384u

struct cei_engine;

enum cei_trace_stage {
	CEI_TRACE_ARMED,                /* the launch was taken up */
	CEI_TRACE_READY,                /* doorbell: its marks were reached */
	CEI_TRACE_PICKED,               /* scheduler: it may go on this lane */
	CEI_TRACE_SUBMITTED,            /* backend: the lane has it */
	CEI_TRACE_DONE,                 /* completion: the lane says that it is done */
	CEI_TRACE_FINISHED,             /* completion: the chunk is off our hands */
	CEI_TRACE_STAGES
};

struct cei_trace_record {               /* one leg of one chunk */
	uint64_t launch;                /* its ticket; 0: unused */
	uint64_t bytes;
	uint64_t submit;                /* number on its lane */
	uint32_t index;                 /* in the plan's cuts */
	uint32_t transfer;
	uint32_t chunk;                 /* in the transfer */
	uint16_t lane;
	uint8_t  leg;
	uint8_t  direction;             /* enum cei_direction */
	uint32_t via;                   /* place in the machine; CEOV_NOBODY: direct */
	uint32_t awaited;               /* the rank for which it waited last in the doorbell;
					 * CEOV_NOBODY: its marks were there before it */
	uint32_t from;                  /* the rank whose memory it reads, ... */
	uint32_t to;                    /* ... and the one into whose it writes; CEOV_NOBODY: it
					 * moves nothing */
	const char *label;              /* its plan's */
	uint64_t at_ns[CEI_TRACE_STAGES];       /* 0: not reached */
};

struct cei_trace {
	uint64_t                n_taken;        /* ever; the ring holds the newest */
	struct cei_trace_record records[CEI_TRACE_RECORDS];
};

/* Makes a trace if site->trace_path is set; else *ret_trace is NULL. CEOV_ERR_NO_MEMORY, raised. */
int  cei_trace_open(const struct cei_site *site, struct cei_trace **ret_trace);

void cei_trace_add(struct cei_trace *trace, struct cei_chunk *chunk, enum cei_trace_stage stage);

/* Engine's thread. READY begins a record, once for each leg. trace: NULL where it is off. */
static inline void cei_trace_stage(struct cei_trace *trace, struct cei_chunk *chunk,
				   enum cei_trace_stage stage)
{
	if (__builtin_expect(trace != NULL, 0))
		cei_trace_add(trace, chunk, stage);
}

#endif /* CEI_TRACE_H */
