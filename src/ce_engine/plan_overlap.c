/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Which bytes transfers read and write, and whether they meet without order. */

#include <stdlib.h>

#include "ce_engine/context.h"
#include "ce_engine/plan_order.h"

static struct cei_report *report_of(const struct ceov_plan *plan)
{
	return &plan->object.context->report;
}

struct area {                           /* bytes that a transfer writes or reads */
	uint64_t begin;
	uint64_t end;
	uint64_t pitch;
	uint64_t row_bytes;
	uint64_t n_rows;
	uint32_t transfer;
	int      is_written;
};

static int compare_areas(const void *left, const void *right)
{
	const struct area *a = left, *b = right;

	if (a->begin != b->begin)
		return a->begin < b->begin ? -1 : 1;
	return a->transfer < b->transfer ? -1 : a->transfer > b->transfer;
}

static int row_meets(const struct area *area, uint64_t begin, uint64_t end)
{
	uint64_t first;

	if (end <= area->begin || begin >= area->end)
		return 0;
	if (area->n_rows == 1)
		return 1;
	/* the row of area that begins at or before `begin`, and the next one */
	first = begin > area->begin ? (begin - area->begin) / area->pitch : 0;
	if (area->begin + first * area->pitch + area->row_bytes > begin)
		return area->begin + first * area->pitch < end;
	return first + 1 < area->n_rows && area->begin + (first + 1) * area->pitch < end;
}

/* Exact: row by row of the one with fewer rows. */
static int areas_meet(const struct area *a, const struct area *b)
{
	const struct area *few = a->n_rows <= b->n_rows ? a : b;
	const struct area *many = few == a ? b : a;
	uint64_t i, begin;

	for (i = 0; i < few->n_rows; i++) {
		begin = few->begin + i * few->pitch;
		if (row_meets(many, begin, begin + few->row_bytes))
			return 1;
	}
	return 0;
}

static struct area area_of(const struct cei_piece *piece, uint32_t transfer, int is_written)
{
	struct area area;

	area.begin = is_written ? piece->target : piece->source;
	area.pitch = is_written ? piece->target_pitch_bytes : piece->source_pitch_bytes;
	area.row_bytes = piece->row_bytes;
	area.n_rows = piece->n_rows;
	area.end = area.begin + (piece->n_rows - 1) * area.pitch + piece->row_bytes;
	area.transfer = transfer;
	area.is_written = is_written;
	return area;
}

static int refuse_overlap(const struct ceov_plan *plan, const struct area *a,
			  const struct area *b)
{
	if (a->transfer == b->transfer)
		return cei_raise(report_of(plan), CEOV_ERR_INVALID, 0,
				 "transfer %u: its source and target overlap", a->transfer);
	if (a->is_written && b->is_written)
		return cei_raise(report_of(plan), CEOV_ERR_INVALID, 0,
				 "transfers %u and %u: their targets overlap and no mark "
				 "orders them", a->transfer, b->transfer);
	return cei_raise(report_of(plan), CEOV_ERR_INVALID, 0,
			 "transfer %u reads what transfer %u writes and no mark orders them",
			 a->is_written ? b->transfer : a->transfer,
			 a->is_written ? a->transfer : b->transfer);
}

/* Areas are sorted by their begin: each is compared with those that begin within. */
static int sweep(const struct ceov_plan *plan, struct cei_order *order,
		 const struct area *areas, uint32_t n)
{
	const struct area *a, *b;
	uint32_t i, k;

	for (i = 0; i < n; i++) {
		a = &areas[i];
		for (k = i + 1; k < n && areas[k].begin < a->end; k++) {
			b = &areas[k];
			if (!a->is_written && !b->is_written)
				continue;
			if (a->transfer != b->transfer &&
			    cei_order_has(order, a->transfer, b->transfer))
				continue;
			if (areas_meet(a, b))
				return refuse_overlap(plan, a, b);
		}
	}
	return 0;
}

int cei_overlap_check(const struct ceov_plan *plan, struct cei_order *order)
{
	struct area *areas = calloc((size_t)plan->n_transfers + 1, 2 * sizeof(*areas));
	uint32_t i, n = 0;
	int r;

	if (!areas)
		return cei_raise(report_of(plan), CEOV_ERR_NO_MEMORY, 0,
				 "ceov_plan_commit: no memory for checks");
	for (i = 0; i < plan->n_transfers; i++) {
		if (!plan->transfers[i].row_bytes)
			continue;
		if (!plan->steps[i].is_floating)        /* the caller's promise */
			areas[n++] = area_of(&plan->steps[i].piece, i, 0);
		areas[n++] = area_of(&plan->steps[i].piece, i, 1);
	}
	qsort(areas, n, sizeof(*areas), compare_areas);
	r = sweep(plan, order, areas, n);
	free(areas);
	return r;
}
