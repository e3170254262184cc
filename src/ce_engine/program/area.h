/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_AREA_H
#define CEI_AREA_H

/* Areas are the bytes that transfers read or write: which of them have to be compared, and whether
 * two have bytes in common. */

#include <stdint.h>

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

/* --- sets of positions ----------------------------------------------------------- */

/*
 * A set of numbers below a bound, in which the next smaller or larger member is found quickly.
 * There is a bit for each number, and levels of bits above: for each 64 bits of a level the next
 * level has one bit, which says whether any of them is set. Each call takes a few steps, whatever
 * the set contains. Callers serialise calls on one set.
 */

#define CEI_NUMBER_SET_LEVELS 6u        /* enough for any bound: 64^6 is above 2^32 */
#define CEI_NO_NUMBER         UINT32_MAX

struct cei_number_set {
	uint64_t *words[CEI_NUMBER_SET_LEVELS]; /* words[0]: a bit for each number; words[i]: a
						 * bit for each word of level i - 1 */
	uint32_t  n_levels;
};

/* Initialises an empty set for numbers below `bound`. CEOV_ERR_NO_MEMORY, not raised: the caller
 * must still call cei_number_set_fini(), which also accepts a zeroed set. */
int  cei_number_set_init(struct cei_number_set *set, uint32_t bound);
void cei_number_set_fini(struct cei_number_set *set);

/* Add and remove a number. Adding a number that is in the set, or removing one that is not, has
 * no effect. */
void cei_number_set_put(struct cei_number_set *set, uint32_t number);
void cei_number_set_take(struct cei_number_set *set, uint32_t number);

/* Return the next smaller or larger number in the set, or CEI_NO_NUMBER. The given number need
 * not be in the set; it may be the bound itself. */
uint32_t cei_number_set_before(const struct cei_number_set *set, uint32_t number);
uint32_t cei_number_set_after(const struct cei_number_set *set, uint32_t number);

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
