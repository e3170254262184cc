/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Areas of one pitch as rectangles of a matrix whose rows are a pitch long. It is cut into
 * bands at each row where a rectangle begins or ends, or at each such column, whichever makes
 * fewer pieces of them; in a band all pieces have the same extent, and are swept along the
 * other dimension. Columns of a matrix, blocks of rows and a grid of tiles make as many
 * pieces as there are rectangles.
 */

#include <stdlib.h>

#include "ce_engine/plan_overlap.h"

struct range {
	uint64_t begin;
	uint64_t end;
};

struct rectangle {
	struct range across;            /* the dimension that is cut into bands */
	struct range along;             /* the other */
	uint32_t     position;
	uint32_t     is_written;
};

struct matrix {
	uint64_t          origin;       /* an address that none is below */
	uint64_t          pitch;
	struct rectangle *rectangles;
	uint32_t          n;
	uint64_t         *cuts;         /* where bands begin and end, sorted, each once */
	uint32_t          n_cuts;
	struct rectangle *present;      /* those in a band, ... */
	struct cei_span  *spans;        /* ... for the sweep */
};

/* An area of several rows, or one row, makes so many rectangles at most. */
#define RECTANGLES 3u

static void add(struct matrix *matrix, const struct cei_touch *touch, struct range rows,
		struct range columns)
{
	if (rows.begin < rows.end)
		matrix->rectangles[matrix->n++] = (struct rectangle){
			rows, columns, touch->position, touch->is_written };
}

/* One row may be longer than a row of the matrix: the end of one of these, whole ones, and
 * the begin of another. */
static void add_row(struct matrix *matrix, const struct cei_touch *touch)
{
	uint64_t from = touch->area.begin - matrix->origin;
	uint64_t to = touch->area.end - matrix->origin;
	uint64_t first = from / matrix->pitch, last = to / matrix->pitch;
	uint64_t column = from % matrix->pitch, end = to % matrix->pitch;

	if (first == last) {
		add(matrix, touch, (struct range){ first, first + 1 },
		    (struct range){ column, end });
		return;
	}
	if (column)
		add(matrix, touch, (struct range){ first, first + 1 },
		    (struct range){ column, matrix->pitch });
	add(matrix, touch, (struct range){ first + (column != 0), last },
	    (struct range){ 0, matrix->pitch });
	if (end)
		add(matrix, touch, (struct range){ last, last + 1 },
		    (struct range){ 0, end });
}

/* Rows that go over the end of a row of the matrix are two rectangles. */
static void add_rows(struct matrix *matrix, const struct cei_touch *touch)
{
	uint64_t from = touch->area.begin - matrix->origin;
	uint64_t row = from / matrix->pitch, column = from % matrix->pitch;
	uint64_t end = column + touch->area.row_bytes, n = touch->area.n_rows;

	add(matrix, touch, (struct range){ row, row + n },
	    (struct range){ column, end < matrix->pitch ? end : matrix->pitch });
	if (end > matrix->pitch)
		add(matrix, touch, (struct range){ row + 1, row + 1 + n },
		    (struct range){ 0, end - matrix->pitch });
}

static void turn(struct matrix *matrix)
{
	struct range along;
	uint32_t i;

	for (i = 0; i < matrix->n; i++) {
		along = matrix->rectangles[i].along;
		matrix->rectangles[i].along = matrix->rectangles[i].across;
		matrix->rectangles[i].across = along;
	}
}

static int compare_numbers(const void *left, const void *right)
{
	const uint64_t *a = left, *b = right;

	return *a < *b ? -1 : *a > *b;
}

static int compare_rectangles(const void *left, const void *right)
{
	const struct rectangle *a = left, *b = right;

	return compare_numbers(&a->across.begin, &b->across.begin);
}

static void find_cuts(struct matrix *matrix)
{
	uint32_t i, n = 0;

	for (i = 0; i < matrix->n; i++) {
		matrix->cuts[n++] = matrix->rectangles[i].across.begin;
		matrix->cuts[n++] = matrix->rectangles[i].across.end;
	}
	qsort(matrix->cuts, n, sizeof(*matrix->cuts), compare_numbers);
	matrix->n_cuts = 0;
	for (i = 0; i < n; i++)
		if (!i || matrix->cuts[i] != matrix->cuts[i - 1])
			matrix->cuts[matrix->n_cuts++] = matrix->cuts[i];
}

static uint64_t cut_at(const struct matrix *matrix, uint64_t at)
{
	const uint64_t *cut = bsearch(&at, matrix->cuts, matrix->n_cuts, sizeof(at),
				      compare_numbers);

	return (uint64_t)(cut - matrix->cuts);
}

/* Into how many pieces the bands cut the rectangles. */
static uint64_t count_pieces(const struct matrix *matrix)
{
	const struct rectangle *one;
	uint64_t n = 0;
	uint32_t i;

	for (i = 0; i < matrix->n; i++) {
		one = &matrix->rectangles[i];
		n += cut_at(matrix, one->across.end) - cut_at(matrix, one->across.begin);
	}
	return n;
}

/* Bands across the dimension with fewer pieces. */
static void choose(struct matrix *matrix)
{
	uint64_t n;

	find_cuts(matrix);
	n = count_pieces(matrix);
	turn(matrix);
	find_cuts(matrix);
	if (count_pieces(matrix) < n)
		return;
	turn(matrix);
	find_cuts(matrix);
}

/* Brings n_present up to the band that begins at `at`: those that end go, those that begin
 * come; *next is the first that has not come yet. */
static uint32_t move_to(struct matrix *matrix, uint64_t at, uint32_t n_present, uint32_t *next)
{
	uint32_t i, n = 0;

	for (i = 0; i < n_present; i++)
		if (matrix->present[i].across.end > at)
			matrix->present[n++] = matrix->present[i];
	while (*next < matrix->n && matrix->rectangles[*next].across.begin == at)
		matrix->present[n++] = matrix->rectangles[(*next)++];
	return n;
}

static int sweep_bands(struct matrix *matrix, struct cei_sweep *sweep)
{
	const struct rectangle *one;
	uint32_t band, i, next = 0, n = 0;
	int r = 0;

	qsort(matrix->rectangles, matrix->n, sizeof(*matrix->rectangles), compare_rectangles);
	for (band = 0; !r && !sweep->asks->result && band < matrix->n_cuts; band++) {
		n = move_to(matrix, matrix->cuts[band], n, &next);
		for (i = 0; i < n; i++) {
			one = &matrix->present[i];
			matrix->spans[i] = (struct cei_span){ one->along.begin, one->along.end,
							      one->position, one->is_written };
		}
		r = cei_sweep_run(sweep, matrix->spans, n);
	}
	return r;
}

static int make_room(struct matrix *matrix, uint32_t n)
{
	size_t n_rectangles = RECTANGLES * (size_t)n;

	matrix->rectangles = malloc(n_rectangles * sizeof(*matrix->rectangles));
	matrix->present = malloc(n_rectangles * sizeof(*matrix->present));
	matrix->spans = malloc(n_rectangles * sizeof(*matrix->spans));
	matrix->cuts = malloc(2 * n_rectangles * sizeof(*matrix->cuts));
	if (matrix->rectangles && matrix->present && matrix->spans && matrix->cuts)
		return 0;
	return CEOV_ERR_NO_MEMORY;
}

int cei_bands_check(struct cei_sweep *sweep, const struct cei_touch *touches, uint32_t n,
		    uint64_t pitch)
{
	struct matrix matrix = { .origin = touches[0].area.begin, .pitch = pitch };
	uint32_t i;
	int r = make_room(&matrix, n);

	for (i = 0; !r && i < n; i++) {
		if (touches[i].area.n_rows == 1)
			add_row(&matrix, &touches[i]);
		else
			add_rows(&matrix, &touches[i]);
	}
	if (!r) {
		choose(&matrix);
		r = sweep_bands(&matrix, sweep);
	}
	free(matrix.rectangles);
	free(matrix.present);
	free(matrix.spans);
	free(matrix.cuts);
	return r;
}
