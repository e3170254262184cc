/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Sweeps from the least to the largest coordinate, keeping the transfers at the present
 * point sorted by position. */

#include "ce_engine/program/overlap_sweep.h"

#include <stdlib.h>
#include <string.h>

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
