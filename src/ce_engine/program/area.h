/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_AREA_H
#define CEI_AREA_H

/* Areas are the bytes that transfers read or write: which of them have to be compared, and whether
 * two have bytes in common. */

#include <stdint.h>

#include "base/number_set.h"
#include "ce_engine/program/program_order.h"

/* --- two areas ----------------------------------------------------------------- */

struct cei_area {                       /* rows of equal length at a constant pitch */
	uint64_t begin;                 /* address of the first byte, ... */
	uint64_t end;                   /* ... and behind the last */
	uint64_t pitch;                 /* at least row_bytes; ignored for one row */
	uint64_t row_bytes;             /* > 0 */
	uint64_t n_rows;                /* > 0 */
};

/* Fills the area; rows without a gap between them become one. */
void cei_area_init(struct cei_area *area, uint64_t begin, uint64_t pitch,
		   uint64_t row_bytes, uint64_t n_rows);

/* Whether the areas have a byte in common. The number of steps grows with the logarithm of
 * the pitches and not with the number of rows. */
int  cei_areas_meet(const struct cei_area *a, const struct cei_area *b);

/* --- spans of many --------------------------------------------------------------- */

/*
 * Which transfers must be ordered because they access the same bytes, along one dimension.
 *
 * Consider the transfers that access one byte, sorted by position: each writer must follow
 * the writer before it, and all readers in between; each reader must follow the writer
 * before it. The rest follows from these. So of a byte's n transfers only neighbours are
 * compared instead of n * n pairs, and only where a span begins: where one ends, the new
 * neighbours were ordered through it.
 */

struct cei_span {                       /* a range of bytes, rows or columns of one transfer */
	uint64_t begin;
	uint64_t end;                   /* > begin */
	uint32_t position;              /* a transfer's read spans, and its write spans, do not
					 * overlap each other */
	uint32_t is_written;
};

/* The note of a query: which of the two write. */
#define CEI_SWEEP_FIRST_WRITES  1u
#define CEI_SWEEP_SECOND_WRITES 2u

struct cei_sweep {
	struct cei_queries   *queries;
	struct cei_number_set writers;  /* positions of write spans at the present point */
	struct cei_number_set readers;
	struct cei_span      *ends;     /* the spans sorted by end */
	uint32_t              room;
};

/* For positions below `bound`. CEOV_ERR_NO_MEMORY, not raised; then call fini. */
int  cei_sweep_init(struct cei_sweep *sweep, struct cei_queries *queries, uint32_t bound);
void cei_sweep_fini(struct cei_sweep *sweep);

/* Adds the necessary questions, and stops when one is answered no. Sorts the spans. 0 or
 * CEOV_ERR_NO_MEMORY, not raised. */
int  cei_sweep_run(struct cei_sweep *sweep, struct cei_span *spans, uint32_t n);

#endif /* CEI_AREA_H */
