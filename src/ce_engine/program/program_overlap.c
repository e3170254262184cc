/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Which bytes transfers read and write, and whether they meet without order.
 *
 * Areas fall into clusters that have no address in common. Within one, where all areas are
 * one row each, they are spans of addresses (area.h). Where those of several rows
 * have one pitch, as tiles and columns of a matrix do, the cluster is that matrix, and areas
 * are rectangles in it. Rows of several pitches are swept row by row where they are few, or
 * else compared pair by pair.
 */

#include <stdlib.h>

#include "ce_engine/program/area.h"

/* the most rows of different pitches that a cluster is split into: 100 MB */
#define ROWS_MAX (UINT64_C(1) << 21)

struct touch {                      /* a transfer reads or writes an area */
	struct cei_area area;
	uint32_t        position;
	uint32_t        is_written;
};

static int compare_touches(const void *left, const void *right)
{
	const struct touch *a = left, *b = right;

	if (a->area.begin != b->area.begin)
		return a->area.begin < b->area.begin ? -1 : 1;
	return a->position < b->position ? -1 : a->position > b->position;
}

static struct touch touch_of(const struct cei_order *order, const struct cei_piece *piece,
			     uint32_t i, uint32_t is_written)
{
	struct touch touch = { .position = order->position[i], .is_written = is_written };

	cei_area_init(&touch.area, is_written ? piece->target : piece->source,
		      is_written ? piece->target_pitch_bytes : piece->source_pitch_bytes,
		      piece->row_bytes, piece->n_rows);
	return touch;
}

static int refuse(const struct cei_order *order, const struct cei_query *query)
{
	uint32_t first = order->line[query->first], second = order->line[query->second];
	int first_writes = (query->note & CEI_SWEEP_FIRST_WRITES) != 0;

	if (first_writes && (query->note & CEI_SWEEP_SECOND_WRITES))
		return cei_raise(order->report, CEOV_ERR_INVALID, 0,
				 "transfers %u and %u: their targets overlap and no mark "
				 "orders them", first < second ? first : second,
				 first < second ? second : first);
	return cei_raise(order->report, CEOV_ERR_INVALID, 0,
			 "transfer %u reads what transfer %u writes and no mark orders them",
			 first_writes ? second : first, first_writes ? first : second);
}

/* --- matrices ---------------------------------------------------------------------- */

/*
 * Areas of one pitch as rectangles of a matrix whose rows are a pitch long. It is cut into
 * bands at each row where a rectangle begins or ends, or at each such column, whichever makes
 * fewer pieces of them; in a band all pieces have the same extent, and are swept along the
 * other dimension. Columns of a matrix, blocks of rows and a grid of tiles make as many
 * pieces as there are rectangles.
 */

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
	uint64_t          origin;       /* no area begins below this address */
	uint64_t          pitch;
	struct rectangle *rectangles;
	uint32_t          n;
	uint64_t         *cuts;         /* where bands begin and end, sorted, each once */
	uint32_t          n_cuts;
	struct rectangle *present;      /* the rectangles in the present band, ... */
	struct cei_span  *spans;        /* ... and their spans for the sweep */
};

/* Most rectangles that one area is split into. */
#define RECTANGLES 3u

static void add(struct matrix *matrix, const struct touch *touch, struct range rows,
		struct range columns)
{
	if (rows.begin < rows.end)
		matrix->rectangles[matrix->n++] = (struct rectangle){
			rows, columns, touch->position, touch->is_written };
}

/* Adds a single row. It may be longer than a row of the matrix: then it is the end of a matrix row,
 * whole matrix rows, and the begin of another. */
static void add_row(struct matrix *matrix, const struct touch *touch)
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

/* Adds an area of several rows. If they go over the end of a matrix row, they make two
 * rectangles. */
static void add_rows(struct matrix *matrix, const struct touch *touch)
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

/* Counts the pieces into which the bands cut the rectangles. */
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

/* Cuts the matrix into bands across the dimension that gives fewer pieces. */
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

/* Updates matrix->present for the band that begins at `at`: removes the rectangles that end, and
 * adds those that begin. *next: the first that was not added yet. Returns the new n_present. */
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
	for (band = 0; !r && !sweep->queries->result && band < matrix->n_cuts; band++) {
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

/* Asks for all pairs that matter among touches of one pitch, or of one row. */
static int sweep_matrix(struct cei_sweep *sweep, const struct touch *touches, uint32_t n,
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

/* --- clusters ---------------------------------------------------------------------- */

static int sweep_rows(struct cei_sweep *sweep, const struct touch *touches, uint32_t n,
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

/* Adds the question for two overlapping accesses. */
static void query_pair(struct cei_queries *queries, const struct touch *a, const struct touch *b)
{
	const struct touch *first = a->position < b->position ? a : b;
	const struct touch *second = first == a ? b : a;

	if ((a->is_written || b->is_written) && a->position != b->position &&
	    cei_areas_meet(&a->area, &b->area))
		cei_queries_add(queries, first->position, second->position,
			     (first->is_written ? CEI_SWEEP_FIRST_WRITES : 0) |
			     (second->is_written ? CEI_SWEEP_SECOND_WRITES : 0));
}

static void compare_pairs(struct cei_queries *queries, const struct touch *touches, uint32_t n)
{
	uint32_t i, k;

	for (i = 0; i < n; i++)
		for (k = i + 1; k < n && touches[k].area.begin < touches[i].area.end; k++) {
			if (queries->result)
				return;
			query_pair(queries, &touches[i], &touches[k]);
		}
}

/* Checks one cluster, sorted by begin. */
static int check_cluster(struct cei_sweep *sweep, const struct touch *touches, uint32_t n)
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
	if (pitch && !is_mixed)
		return sweep_matrix(sweep, touches, n, pitch);
	if (!pitch || (n_rows < ROWS_MAX && n_rows / n < n))
		return sweep_rows(sweep, touches, n, n_rows);
	compare_pairs(sweep->queries, touches, n);
	return 0;
}

static int check_clusters(struct cei_sweep *sweep, const struct touch *touches, uint32_t n)
{
	uint32_t i, next;
	uint64_t end;
	int r = 0;

	for (i = 0; !r && !sweep->queries->result && i < n; i = next) {
		end = touches[i].area.end;
		for (next = i + 1; next < n && touches[next].area.begin < end; next++)
			if (touches[next].area.end > end)
				end = touches[next].area.end;
		r = check_cluster(sweep, &touches[i], next - i);
	}
	return r;
}

/* --- the check --------------------------------------------------------------------- */

/* Collects and sorts all accesses, and returns how many. A transfer must not write what it
 * reads. */
static int collect(const struct cei_order *order, struct touch *touches, uint32_t *ret_n)
{
	const struct cei_program *program = order->program;
	struct cei_piece piece;
	struct touch source;
	uint32_t i, n = 0;

	for (i = 0; i < program->n_transfers; i++) {
		if (!program->transfers[i].row_bytes)
			continue;
		piece = cei_program_piece(program, i);
		touches[n++] = touch_of(order, &piece, i, 1);
		if (program->transfers[i].source.buffer == program->floating)
			continue;               /* the caller guarantees it */
		source = touch_of(order, &piece, i, 0);
		if (cei_areas_meet(&source.area, &touches[n - 1].area))
			return cei_raise(order->report, CEOV_ERR_INVALID, 0,
					 "transfer %u: its source and target overlap", i);
		touches[n++] = source;
	}
	qsort(touches, n, sizeof(*touches), compare_touches);
	*ret_n = n;
	return 0;
}

static int check(const struct cei_order *order, const struct touch *touches, uint32_t n)
{
	struct cei_sweep sweep;
	struct cei_queries queries;
	int r = cei_queries_init(&queries, order);
	int r_sweep = cei_sweep_init(&sweep, &queries, order->n);

	if (!r)
		r = r_sweep;
	if (!r)
		r = check_clusters(&sweep, touches, n);
	if (!r)
		r = cei_queries_end(&queries);
	cei_sweep_fini(&sweep);
	cei_queries_fini(&queries);
	if (r == CEOV_ERR_NO_MEMORY)
		return cei_order_no_memory(order);
	return r ? refuse(order, &queries.refused) : 0;
}

int cei_overlap_check(const struct cei_order *order)
{
	struct touch *touches = calloc((size_t)order->n + 1, 2 * sizeof(*touches));
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
