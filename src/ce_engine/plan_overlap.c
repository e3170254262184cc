/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Which bytes transfers read and write, and whether they meet without order.
 *
 * Areas fall into clusters that have no address in common. Within one, where all areas are
 * one row each, they are spans of addresses (plan_sweep.h). Where those of several rows
 * have one pitch, as tiles and columns of a matrix do, the cluster is that matrix, areas
 * are rectangles in it, and it is swept band by band (plan_bands.c). Rows of several
 * pitches are swept row by row where they are few, or else compared pair by pair.
 */

#include <stdlib.h>

#include "ce_engine/plan_overlap.h"

/* Rows that a cluster of several pitches may be taken apart into: 100 MB. */
#define ROWS_MAX (UINT64_C(1) << 21)

static int compare_touches(const void *left, const void *right)
{
	const struct cei_touch *a = left, *b = right;

	if (a->area.begin != b->area.begin)
		return a->area.begin < b->area.begin ? -1 : 1;
	return a->position < b->position ? -1 : a->position > b->position;
}

static void touch_source(const struct cei_order *order, const struct cei_piece *piece,
			 uint32_t i, struct cei_touch *touch)
{
	cei_area_init(&touch->area, piece->source, piece->source_pitch_bytes,
		      piece->row_bytes, piece->n_rows);
	touch->position = order->position[i];
	touch->is_written = 0;
}

static void touch_target(const struct cei_order *order, const struct cei_piece *piece,
			 uint32_t i, struct cei_touch *touch)
{
	cei_area_init(&touch->area, piece->target, piece->target_pitch_bytes,
		      piece->row_bytes, piece->n_rows);
	touch->position = order->position[i];
	touch->is_written = 1;
}

static int refuse(const struct cei_order *order, const struct cei_ask *ask)
{
	uint32_t first = order->line[ask->first], second = order->line[ask->second];
	int first_writes = (ask->note & CEI_SWEEP_FIRST_WRITES) != 0;

	if (first_writes && (ask->note & CEI_SWEEP_SECOND_WRITES))
		return cei_raise(order->report, CEOV_ERR_INVALID, 0,
				 "transfers %u and %u: their targets overlap and no mark "
				 "orders them", first < second ? first : second,
				 first < second ? second : first);
	return cei_raise(order->report, CEOV_ERR_INVALID, 0,
			 "transfer %u reads what transfer %u writes and no mark orders them",
			 first_writes ? second : first, first_writes ? first : second);
}

/* --- clusters ---------------------------------------------------------------------- */

static int sweep_flat(struct cei_sweep *sweep, const struct cei_touch *touches, uint32_t n)
{
	struct cei_span *spans = malloc(n * sizeof(*spans));
	uint32_t i;
	int r;

	if (!spans)
		return CEOV_ERR_NO_MEMORY;
	for (i = 0; i < n; i++)
		spans[i] = (struct cei_span){ touches[i].area.begin, touches[i].area.end,
					      touches[i].position, touches[i].is_written };
	r = cei_sweep_run(sweep, spans, n);
	free(spans);
	return r;
}

static int sweep_rows(struct cei_sweep *sweep, const struct cei_touch *touches, uint32_t n,
		      uint64_t n_rows)
{
	struct cei_span *spans = malloc(n_rows * sizeof(*spans));
	const struct cei_area *area;
	uint64_t row, begin;
	uint32_t i, n_spans = 0;
	int r;

	if (!spans)
		return CEOV_ERR_NO_MEMORY;
	for (i = 0; i < n; i++) {
		area = &touches[i].area;
		for (row = 0; row < area->n_rows; row++) {
			begin = area->begin + row * area->pitch;
			spans[n_spans++] = (struct cei_span){
				begin, begin + area->row_bytes, touches[i].position,
				touches[i].is_written };
		}
	}
	r = cei_sweep_run(sweep, spans, n_spans);
	free(spans);
	return r;
}

/* What one is to the other, where their areas meet. */
static void ask_pair(struct cei_asks *asks, const struct cei_touch *a, const struct cei_touch *b)
{
	const struct cei_touch *first = a->position < b->position ? a : b;
	const struct cei_touch *second = first == a ? b : a;

	if ((a->is_written || b->is_written) && a->position != b->position &&
	    cei_areas_meet(&a->area, &b->area))
		cei_asks_add(asks, first->position, second->position,
			     (first->is_written ? CEI_SWEEP_FIRST_WRITES : 0) |
			     (second->is_written ? CEI_SWEEP_SECOND_WRITES : 0));
}

static void compare_pairs(struct cei_asks *asks, const struct cei_touch *touches, uint32_t n)
{
	uint32_t i, k;

	for (i = 0; i < n; i++)
		for (k = i + 1; k < n && touches[k].area.begin < touches[i].area.end; k++) {
			if (asks->result)
				return;
			ask_pair(asks, &touches[i], &touches[k]);
		}
}

/* Touches of a cluster, sorted by their begin. */
static int check_cluster(struct cei_sweep *sweep, const struct cei_touch *touches, uint32_t n)
{
	uint64_t pitch = 0, n_rows = 0;
	int is_mixed = 0, is_written = 0;
	uint32_t i;

	for (i = 0; i < n; i++) {
		is_written |= touches[i].is_written;
		n_rows += touches[i].area.n_rows < ROWS_MAX ? touches[i].area.n_rows : ROWS_MAX;
		if (touches[i].area.n_rows == 1)
			continue;
		is_mixed |= pitch && pitch != touches[i].area.pitch;
		pitch = touches[i].area.pitch;
	}
	if (n == 1 || !is_written)
		return 0;
	if (!pitch)
		return sweep_flat(sweep, touches, n);
	if (!is_mixed)
		return cei_bands_check(sweep, touches, n, pitch);
	if (n_rows < ROWS_MAX && n_rows / n < n)
		return sweep_rows(sweep, touches, n, n_rows);
	compare_pairs(sweep->asks, touches, n);
	return 0;
}

static int check_clusters(struct cei_sweep *sweep, const struct cei_touch *touches, uint32_t n)
{
	uint32_t i, next;
	uint64_t end;
	int r = 0;

	for (i = 0; !r && !sweep->asks->result && i < n; i = next) {
		end = touches[i].area.end;
		for (next = i + 1; next < n && touches[next].area.begin < end; next++)
			if (touches[next].area.end > end)
				end = touches[next].area.end;
		r = check_cluster(sweep, &touches[i], next - i);
	}
	return r;
}

/* --- the check --------------------------------------------------------------------- */

/* All touches, sorted, and how many. A transfer must not write what it reads. */
static int collect(const struct cei_order *order, struct cei_touch *touches, uint32_t *ret_n)
{
	const struct cei_program *program = order->program;
	struct cei_piece piece;
	struct cei_touch source;
	uint32_t i, n = 0;

	for (i = 0; i < program->n_transfers; i++) {
		if (!program->transfers[i].row_bytes)
			continue;
		piece = cei_program_piece(program, i);
		touch_target(order, &piece, i, &touches[n++]);
		if (program->transfers[i].source.buffer == program->floating)
			continue;               /* the caller's promise */
		touch_source(order, &piece, i, &source);
		if (cei_areas_meet(&source.area, &touches[n - 1].area))
			return cei_raise(order->report, CEOV_ERR_INVALID, 0,
					 "transfer %u: its source and target overlap", i);
		touches[n++] = source;
	}
	qsort(touches, n, sizeof(*touches), compare_touches);
	*ret_n = n;
	return 0;
}

static int check(const struct cei_order *order, const struct cei_touch *touches, uint32_t n)
{
	struct cei_sweep sweep;
	struct cei_asks asks;
	int r = cei_asks_init(&asks, order);
	int r_sweep = cei_sweep_init(&sweep, &asks, order->n);

	if (!r)
		r = r_sweep;
	if (!r)
		r = check_clusters(&sweep, touches, n);
	if (!r)
		r = cei_asks_end(&asks);
	cei_sweep_fini(&sweep);
	cei_asks_fini(&asks);
	if (r == CEOV_ERR_NO_MEMORY)
		return cei_order_no_memory(order);
	return r ? refuse(order, &asks.refused) : 0;
}

int cei_overlap_check(const struct cei_order *order)
{
	struct cei_touch *touches = calloc((size_t)order->n + 1, 2 * sizeof(*touches));
	uint32_t n = 0;
	int r;

	if (!touches)
		return cei_order_no_memory(order);
	r = collect(order, touches, &n);
	if (!r)
		r = check(order, touches, n);
	free(touches);
	return r;
}
