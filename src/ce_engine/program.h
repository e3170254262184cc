/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PROGRAM_H
#define CEI_PROGRAM_H

/*
 * What a plan does, as a table of constants: transfers that name ranks, buffers, signals and
 * counters by number. A program points to nothing outside of itself: no context, no engine,
 * no address of a process. So it can be checked, cut into chunks and played by whoever has
 * it, and can be written to bytes and read in another process (program_wire.h).
 *
 * Buffers stand in an address space of the program's own: those that share memory overlap
 * there as they do in the process that compiled the plan, and no others do.
 */

#include <stdint.h>

#include "backend/backend.h"
#include "base/report.h"

#define CEI_PROGRAM_NONE UINT32_MAX     /* no buffer, no signal */

/* What one program may hold. */
#define CEI_PROGRAM_TRANSFERS_MAX (UINT32_C(1) << 20)   /* and expected marks */
#define CEI_PROGRAM_CHUNKS_MAX    (UINT32_C(1) << 22)

enum cei_program_buffer_flags {
	CEI_PROGRAM_FLOATING = 1,       /* each launch names its address */
};

struct cei_program_buffer {
	uint32_t rank;                  /* whose memory it is */
	uint32_t flags;                 /* enum cei_program_buffer_flags */
	uint64_t start;                 /* in the program's address space; floating: 0 */
	uint64_t size_bytes;
};

struct cei_program_signal {
	uint32_t rank;                  /* its owner */
	uint32_t n_counters;
};

struct cei_program_mark {
	uint32_t signal;                /* CEI_PROGRAM_NONE: no mark, all else is 0 */
	uint32_t counter;
	uint64_t value;                 /* relative to the launch's base */
};

struct cei_program_spot {
	uint32_t buffer;                /* CEI_PROGRAM_NONE: moves nothing, all else is 0 */
	uint64_t offset_bytes;
	uint64_t pitch_bytes;           /* of one row: 0 */
};

struct cei_program_transfer {
	struct cei_program_spot source;
	struct cei_program_spot target;
	uint64_t                row_bytes;      /* 0: moves nothing, only raises ... */
	uint64_t                n_rows;         /* ... and this is 0, too */
	struct cei_program_mark source_ready;
	struct cei_program_mark target_free;
	struct cei_program_mark then;
};

struct cei_program {
	uint32_t rank;                          /* whose engine carries it out */
	uint32_t n_ranks;                       /* of the group */
	uint64_t max_chunk_bytes;
	uint32_t has_template;                  /* a template made it: transfers go in the
						 * order in which they stand here */
	uint32_t floating;                      /* the one floating buffer, or
						 * CEI_PROGRAM_NONE */
	uint32_t n_buffers;
	uint32_t n_signals;
	uint32_t n_transfers;
	uint32_t n_expected;
	struct cei_program_buffer   *buffers;
	struct cei_program_signal   *signals;
	struct cei_program_transfer *transfers;
	struct cei_program_mark     *expected;  /* marks that are raised outside */
};

/* Room for as many entries as the four numbers say, zeroed. CEOV_ERR_NO_MEMORY, not raised;
 * then fini, which accepts zeroes. */
int  cei_program_alloc(struct cei_program *program);
void cei_program_fini(struct cei_program *program);

/* The transfer's bytes as one piece, in the program's address space; of a floating buffer
 * the offset alone. All 0 where it moves nothing. */
struct cei_piece cei_program_piece(const struct cei_program *program, uint32_t transfer);

/* Bytes from the first of a spot to behind its last; 0: more than 64 bits can say. */
uint64_t cei_program_extent(const struct cei_program_transfer *transfer,
			    const struct cei_program_spot *spot);

/* Whether it is a program at all: all numbers in range, what is unused 0, every spot within
 * its buffer. 0 or CEOV_ERR_INVALID, not raised: for what another process sent. */
int  cei_program_verify(const struct cei_program *program);

/* What a commit refuses: raises CEOV_ERR_INVALID and names the transfer. The first finds
 * program->floating, too. */
int  cei_program_check_floating(struct cei_program *program, struct cei_report *report);
int  cei_program_check_bounds(const struct cei_program *program, struct cei_report *report);

#endif /* CEI_PROGRAM_H */
