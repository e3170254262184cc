/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_AREA_H
#define CEI_AREA_H

/* The bytes that a transfer reads or writes: rows of equal length at a constant pitch. */

#include <stdint.h>

struct cei_area {
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

#endif /* CEI_AREA_H */
