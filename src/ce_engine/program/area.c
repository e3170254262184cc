/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Whether areas overlap, and which of many have to be compared. */

#include "ce_engine/program/area.h"

#include <stdlib.h>
#include <string.h>

/* --- two areas ----------------------------------------------------------------- */

/*
 * Whether two areas overlap, without comparing each row. The distances between rows of two
 * pitches are multiples of one pitch modulo the other; the question is whether one of them
 * lies in a range, which a variant of Euclid's algorithm answers.
 */

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

/* --- sets of positions ----------------------------------------------------------- */

/* A set as bits in levels: bit i of a level says whether word i of the level below has a bit
 * set. */

#define WORD_BITS 64u

int cei_number_set_init(struct cei_number_set *set, uint32_t bound)
{
	uint64_t n_words = bound;

	memset(set, 0, sizeof(*set));
	do {
		/* If the bound is a multiple of 64, this is one word more than needed, because
		 * callers may ask for the bound itself. */
		n_words = n_words / WORD_BITS + 1;
		set->words[set->n_levels] = calloc(n_words, sizeof(uint64_t));
		if (!set->words[set->n_levels])
			return CEOV_ERR_NO_MEMORY;
		set->n_levels++;
	} while (n_words > 1);
	return 0;
}

void cei_number_set_fini(struct cei_number_set *set)
{
	uint32_t i;

	for (i = 0; i < set->n_levels; i++)
		free(set->words[i]);
	memset(set, 0, sizeof(*set));
}

void cei_number_set_put(struct cei_number_set *set, uint32_t number)
{
	uint32_t i;

	for (i = 0; i < set->n_levels; i++, number /= WORD_BITS)
		set->words[i][number / WORD_BITS] |= UINT64_C(1) << number % WORD_BITS;
}

void cei_number_set_take(struct cei_number_set *set, uint32_t number)
{
	uint64_t *word;
	uint32_t i;

	for (i = 0; i < set->n_levels; i++, number /= WORD_BITS) {
		word = &set->words[i][number / WORD_BITS];
		*word &= ~(UINT64_C(1) << number % WORD_BITS);
		if (*word)
			return;
	}
}

static uint32_t highest(uint64_t word)
{
	return WORD_BITS - 1 - (uint32_t)__builtin_clzll(word);
}

uint32_t cei_number_set_before(const struct cei_number_set *set, uint32_t number)
{
	uint64_t found;
	uint32_t i;

	for (i = 0; i < set->n_levels; i++, number /= WORD_BITS) {
		found = set->words[i][number / WORD_BITS] &
			((UINT64_C(1) << number % WORD_BITS) - 1);
		if (!found)
			continue;
		number = number / WORD_BITS * WORD_BITS + highest(found);
		while (i-- > 0)
			number = number * WORD_BITS + highest(set->words[i][number]);
		return number;
	}
	return CEI_NO_NUMBER;
}

static uint32_t lowest(uint64_t word)
{
	return (uint32_t)__builtin_ctzll(word);
}

uint32_t cei_number_set_after(const struct cei_number_set *set, uint32_t number)
{
	uint64_t found;
	uint32_t i;

	for (i = 0; i < set->n_levels; i++, number /= WORD_BITS) {
		found = set->words[i][number / WORD_BITS] &
			~UINT64_C(1) << number % WORD_BITS;
		if (!found)
			continue;
		number = number / WORD_BITS * WORD_BITS + lowest(found);
		while (i-- > 0)
			number = number * WORD_BITS + lowest(set->words[i][number]);
		return number;
	}
	return CEI_NO_NUMBER;
}

/* --- spans of many --------------------------------------------------------------- */

/* Sweeps from the least to the largest coordinate, keeping the transfers at the present
 * point sorted by position. */

int cei_sweep_init(struct cei_sweep *sweep, struct cei_queries *queries, uint32_t bound)
{
	int r;

	memset(sweep, 0, sizeof(*sweep));
	sweep->queries = queries;
	r = cei_number_set_init(&sweep->writers, bound);
	return r ? r : cei_number_set_init(&sweep->readers, bound);
}

void cei_sweep_fini(struct cei_sweep *sweep)
{
	cei_number_set_fini(&sweep->writers);
	cei_number_set_fini(&sweep->readers);
	free(sweep->ends);
	sweep->ends = NULL;
}

static int compare_begins(const void *left, const void *right)
{
	const struct cei_span *a = left, *b = right;

	if (a->begin != b->begin)
		return a->begin < b->begin ? -1 : 1;
	return a->position < b->position ? -1 : a->position > b->position;
}

static int compare_ends(const void *left, const void *right)
{
	const struct cei_span *a = left, *b = right;

	return a->end < b->end ? -1 : a->end > b->end;
}

/* A writer begins: adds questions for its neighbouring writers and the readers in between. */
static void query_writer(struct cei_sweep *sweep, uint32_t at)
{
	uint32_t before = cei_number_set_before(&sweep->writers, at);
	uint32_t after = cei_number_set_after(&sweep->writers, at);
	uint32_t reader;

	if (before != CEI_NO_NUMBER)
		cei_queries_add(sweep->queries, before, at,
			     CEI_SWEEP_FIRST_WRITES | CEI_SWEEP_SECOND_WRITES);
	if (after != CEI_NO_NUMBER)
		cei_queries_add(sweep->queries, at, after,
			     CEI_SWEEP_FIRST_WRITES | CEI_SWEEP_SECOND_WRITES);
	for (reader = cei_number_set_before(&sweep->readers, at);
	     reader != CEI_NO_NUMBER && (before == CEI_NO_NUMBER || reader > before) &&
	     !sweep->queries->result;
	     reader = cei_number_set_before(&sweep->readers, reader))
		cei_queries_add(sweep->queries, reader, at, CEI_SWEEP_SECOND_WRITES);
	for (reader = cei_number_set_after(&sweep->readers, at);
	     reader != CEI_NO_NUMBER && reader < after && !sweep->queries->result;
	     reader = cei_number_set_after(&sweep->readers, reader))
		cei_queries_add(sweep->queries, at, reader, CEI_SWEEP_FIRST_WRITES);
}

static void query_reader(struct cei_sweep *sweep, uint32_t at)
{
	uint32_t before = cei_number_set_before(&sweep->writers, at);
	uint32_t after = cei_number_set_after(&sweep->writers, at);

	if (before != CEI_NO_NUMBER)
		cei_queries_add(sweep->queries, before, at, CEI_SWEEP_FIRST_WRITES);
	if (after != CEI_NO_NUMBER)
		cei_queries_add(sweep->queries, at, after, CEI_SWEEP_SECOND_WRITES);
}

/* Enters spans that begin at one point: first all writers, then questions about neighbours,
 * so that a reader is compared only with the writers next to it. */
static void enter(struct cei_sweep *sweep, const struct cei_span *span,
		  const struct cei_span *end)
{
	const struct cei_span *next;

	for (next = span; next < end; next++)
		if (next->is_written)
			cei_number_set_put(&sweep->writers, next->position);
	for (next = span; next < end; next++)
		if (next->is_written)
			query_writer(sweep, next->position);
	for (next = span; next < end; next++) {
		if (next->is_written)
			continue;
		query_reader(sweep, next->position);
		cei_number_set_put(&sweep->readers, next->position);
	}
}

static void leave(struct cei_sweep *sweep, const struct cei_span *span)
{
	cei_number_set_take(span->is_written ? &sweep->writers : &sweep->readers,
			    span->position);
}

static int has_writer(const struct cei_span *spans, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		if (spans[i].is_written)
			return 1;
	return 0;
}

/* Sorts the spans by their end, in the sweep's own memory. */
static int sort_ends(struct cei_sweep *sweep, const struct cei_span *spans, uint32_t n)
{
	if (n > sweep->room) {
		free(sweep->ends);
		sweep->room = 0;
		sweep->ends = malloc(n * sizeof(*spans));
		if (!sweep->ends)
			return CEOV_ERR_NO_MEMORY;
		sweep->room = n;
	}
	memcpy(sweep->ends, spans, n * sizeof(*spans));
	qsort(sweep->ends, n, sizeof(*spans), compare_ends);
	return 0;
}

int cei_sweep_run(struct cei_sweep *sweep, struct cei_span *spans, uint32_t n)
{
	uint32_t i, next, n_left = 0;
	int r;

	if (n < 2 || !has_writer(spans, n))
		return 0;
	qsort(spans, n, sizeof(*spans), compare_begins);
	r = sort_ends(sweep, spans, n);
	if (r)
		return r;
	for (i = 0; i < n && !sweep->queries->result; i = next) {
		while (sweep->ends[n_left].end <= spans[i].begin)
			leave(sweep, &sweep->ends[n_left++]);
		for (next = i + 1; next < n && spans[next].begin == spans[i].begin;)
			next++;
		enter(sweep, &spans[i], &spans[next]);
	}
	while (n_left < n)
		leave(sweep, &sweep->ends[n_left++]);
	return 0;
}
