/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Whether two areas overlap, without comparing each row. The distances between rows of two
 * pitches are multiples of one pitch modulo the other; the question is whether one of them
 * lies in a range, which a variant of Euclid's algorithm answers.
 */

#include "ce_engine/program/area.h"

/* products of two pitches exceed 64 bits */
__extension__ typedef unsigned __int128 wide;

#define NEVER UINT64_MAX

void cei_area_init(struct cei_area *area, uint64_t begin, uint64_t pitch,
		   uint64_t row_bytes, uint64_t n_rows)
{
	area->begin = begin;
	area->end = begin + (n_rows - 1) * pitch + row_bytes;
	area->pitch = pitch;
	area->row_bytes = row_bytes;
	area->n_rows = n_rows;
	if (n_rows > 1 && pitch == row_bytes) {
		area->row_bytes *= n_rows;
		area->n_rows = 1;
	}
}

/* Whether [begin, end) overlaps a row of the area. */
static int row_meets(const struct cei_area *area, uint64_t begin, uint64_t end)
{
	uint64_t first;

	if (end <= area->begin || begin >= area->end)
		return 0;
	if (area->n_rows == 1)
		return 1;
	/* the last row that begins at or before `begin`, and the next one */
	first = begin > area->begin ? (begin - area->begin) / area->pitch : 0;
	if (area->begin + first * area->pitch + area->row_bytes > begin)
		return area->begin + first * area->pitch < end;
	return first + 1 < area->n_rows && area->begin + (first + 1) * area->pitch < end;
}

static uint64_t negated(uint64_t value, uint64_t modulus)
{
	return value % modulus ? modulus - value % modulus : 0;
}

/* The least t with low <= t * step mod modulus <= high, or NEVER. Requires step < modulus
 * and low <= high < modulus. If no multiple of step below the modulus lies in the range,
 * the number of wraps is found by solving the same problem with smaller numbers. */
static uint64_t first_within(uint64_t step, uint64_t modulus, uint64_t low, uint64_t high)
{
	uint64_t t, n_wraps;

	if (!low)
		return 0;
	if (!step)
		return NEVER;
	t = low / step + (low % step != 0);
	if ((wide)t * step <= high)
		return t;
	n_wraps = first_within(modulus % step, step, negated(high, step),
			       negated(low, step));
	if (n_wraps == NEVER)
		return NEVER;
	return (uint64_t)(((wide)n_wraps * modulus + low + step - 1) / step);
}

/* Rows [first, last] of a lie between the first and the last byte of b. Such a row overlaps
 * b if its distance from the last row of b that begins before it is small enough. */
static int rows_meet(const struct cei_area *a, uint64_t first, uint64_t last,
		     const struct cei_area *b)
{
	uint64_t reach = a->row_bytes + b->row_bytes - 1;
	uint64_t at = (a->begin + first * a->pitch + a->row_bytes - 1 - b->begin) % b->pitch;
	uint64_t t;

	if (reach >= b->pitch || at < reach)
		return 1;
	t = first_within(a->pitch % b->pitch, b->pitch, b->pitch - at,
			 b->pitch - at + reach - 1);
	return t != NEVER && t <= last - first;
}

int cei_areas_meet(const struct cei_area *a, const struct cei_area *b)
{
	uint64_t first, last;

	if (a->n_rows == 1)
		return row_meets(b, a->begin, a->end);
	if (b->n_rows == 1)
		return row_meets(a, b->begin, b->end);
	if (a->begin >= b->end || b->begin >= a->end)
		return 0;
	first = a->begin + a->row_bytes > b->begin ? 0
		: (b->begin - a->begin - a->row_bytes) / a->pitch + 1;
	last = (b->end - 1 - a->begin) / a->pitch;
	if (last >= a->n_rows)
		last = a->n_rows - 1;
	return first <= last && rows_meet(a, first, last, b);
}
