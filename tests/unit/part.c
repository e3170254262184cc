/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Products for the suites of executors, and what is right in double. */

#include "part.h"

#include <stdlib.h>
#include <string.h>

#include "ops/compute/numbers.h"

static void shape_any(struct part *part, uint64_t *random)
{
	struct cei_tiles_question *question = &part->question;
	uint32_t i;

	question->n_ranks = 1 + (uint32_t)testing_below(random, PART_RANKS);
	question->rank = (uint32_t)testing_below(random, question->n_ranks);
	question->n_pieces = 1 + (uint32_t)testing_below(random, PART_PIECES);
	question->n_products = question->scatters ? 1 :
		1 + (uint32_t)testing_below(random, CEI_GEMM_B_MAX);
	question->shape.rows = 1 + (uint32_t)testing_below(random, 40);
	question->shape.columns = 1 + (uint32_t)testing_below(random, 40);
	for (i = 0; i < question->n_ranks; i++)
		part->rows[i] = testing_below(random, 5) ? testing_below(random, 100) : 0;
	for (i = 0; i < question->n_products; i++)
		part->columns[i] = testing_below(random, 70);
	part->are_whole = testing_below(random, 2) != 0;
	part->job.dtype = feeder_dtype(random);
	part->job.b_is_k_by_n = (int)testing_below(random, 2);
	part->job.k = testing_below(random, testing_below(random, 8) ? 70 : 600);
}

static void shape_plain(struct part *part)
{
	struct cei_tiles_question *question = &part->question;

	question->n_ranks = question->n_pieces = 2;
	question->n_products = 1;
	question->shape.rows = question->shape.columns = 16;
	part->rows[0] = part->rows[1] = 100;
	part->columns[0] = 20;
	part->are_whole = 1;
	part->job.dtype = CEOV_BF16;
	part->job.k = 10;
}

static void share_out(struct part *part)
{
	struct cei_tiles_question *question = &part->question;
	uint32_t i;

	ck_assert(cei_executor_host.is_fit(&part->executor, question->shape));
	question->pair = cei_executor_host.pair(&part->executor, question->shape);
	question->waits = 1;
	question->rows = part->rows;
	question->columns = part->columns;
	for (i = 0; i < question->n_ranks; i++) {
		part->own_row += i < question->rank ? part->rows[i] : 0;
		part->n_rows += part->rows[i];
	}
	part->own_rows = part->rows[question->rank];
}

static struct cei_matrix matrix(const void *base, uint64_t rows, uint64_t columns)
{
	struct cei_matrix made = { base, rows, columns };

	return made;
}

static void fill_gather(struct part *part)
{
	struct cei_gemm_job *job = &part->job;
	uint32_t i;

	part->gathered = feeder_nans(part->n_rows * job->k);
	job->a[CEI_GEMM_A_OWN] = matrix(part->a + part->own_row * job->k, part->own_rows,
					job->k);
	job->a[CEI_GEMM_A_GATHERED] = matrix(part->gathered, part->n_rows, job->k);
	for (i = 0; i < part->question.n_products; i++)
		job->c[i] = matrix(NULL, part->n_rows, part->columns[i]);
}

static void fill_scatter(struct part *part, uint64_t *random)
{
	struct cei_gemm_job *job = &part->job;
	uint64_t n = part->own_rows * part->columns[0];

	part->partials = feeder_numbers(job->dtype, n * part->question.n_ranks,
					part->are_whole, random);
	part->come = feeder_nans(n * part->question.n_ranks);
	part->sent = feeder_nans(part->n_rows * part->columns[0]);
	job->a[CEI_GEMM_A_OWN] = matrix(part->a, part->n_rows, job->k);
	job->c[0] = matrix(NULL, part->own_rows, part->columns[0]);
	job->c[CEI_GEMM_C_PARTIAL] = matrix(NULL, part->n_rows, part->columns[0]);
	job->partials = part->come;
	job->partial_stride_bytes = n * CEI_NUMBER_BYTES;
}

void part_clear(struct part *part)
{
	struct cei_matrix *c;
	uint32_t i;

	for (i = 0; i < CEI_GEMM_C_MAX; i++) {
		c = &part->job.c[i];
		free(part->c[i]);
		part->c[i] = feeder_nans(c->rows * c->columns);
		c->base = c->columns ? part->c[i] : NULL;
	}
}

struct part *part_make(ceov_context *context, int scatters, enum part_shape shape,
		       uint64_t *random)
{
	struct part *part = calloc(1, sizeof(*part));
	struct cei_gemm_job *job;
	uint32_t i;

	ck_assert_ptr_nonnull(part);
	job = &part->job;
	part->question.scatters = scatters;
	if (shape == PART_PLAIN)
		shape_plain(part);
	else
		shape_any(part, random);
	share_out(part);
	part->executor.ops = &cei_executor_host;
	part->executor.context = context;
	part->executor.rank = part->question.rank;
	ck_assert_int_eq(cei_executor_host.open(&part->executor), 0);
	ck_assert_int_eq(cei_tiles_init(&part->tiles, &part->question), 0);
	job->shape = part->question.shape;
	job->tiles = &part->tiles;
	job->n_sources = part->question.n_ranks;
	job->own = part->question.rank;
	job->n_pieces = part->question.n_pieces;
	job->marks.awaited = testing_signal(context, job->own, PART_COUNTERS);
	job->marks.ready = testing_signal(context, job->own, PART_COUNTERS);
	job->marks.sent = testing_signal(context, job->own, FEEDER_SENT);
	job->marks.sent_index = 1;
	job->marks.n_sent = FEEDER_SENT - 1;
	job->marks.timeout_ns = TESTING_PATIENCE;
	part->a = feeder_numbers(job->dtype, part->n_rows * job->k, part->are_whole, random);
	for (i = 0; i < part->question.n_products; i++) {
		part->b[i] = feeder_numbers(job->dtype, part->columns[i] * job->k,
					    part->are_whole, random);
		job->b[i] = job->b_is_k_by_n ? matrix(part->b[i], job->k, part->columns[i])
					     : matrix(part->b[i], part->columns[i], job->k);
	}
	if (scatters)
		fill_scatter(part, random);
	else
		fill_gather(part);
	part_clear(part);
	part->feeder.random = testing_random(random);
	return part;
}

void part_free(struct part *part)
{
	uint32_t i;

	cei_executor_host.close(&part->executor);
	cei_tiles_fini(&part->tiles);
	ck_assert_int_eq(ceov_signal_release(part->job.marks.awaited), 0);
	ck_assert_int_eq(ceov_signal_release(part->job.marks.ready), 0);
	ck_assert_int_eq(ceov_signal_release(part->job.marks.sent), 0);
	for (i = 0; i < CEI_GEMM_B_MAX; i++)
		free(part->b[i]);
	for (i = 0; i < CEI_GEMM_C_MAX; i++)
		free(part->c[i]);
	free(part->a);
	free(part->gathered);
	free(part->sent);
	free(part->partials);
	free(part->come);
	free(part);
}

/* --- what comes for it, what leaves it --------------------------------------- */

static void add_deliveries(struct part *part, uint32_t rank, uint64_t rank_row)
{
	uint64_t width = part->question.scatters ? part->columns[0] : part->job.k;
	uint64_t rows = part->question.scatters ? part->own_rows : part->rows[rank];
	uint64_t row, n_rows;
	struct delivery *delivery;
	uint32_t piece;

	for (piece = 0; piece < part->question.n_pieces; piece++) {
		row = rank_row + cei_piece_rows(rows, part->question.n_pieces, piece, &n_rows);
		if (!n_rows || rank == part->question.rank)
			continue;
		delivery = feeder_add(&part->feeder);
		delivery->from = (part->question.scatters ? part->partials : part->a) +
			row * width;
		delivery->to = (part->question.scatters ? part->come : part->gathered) +
			row * width;
		delivery->n_bytes = n_rows * width * CEI_NUMBER_BYTES;
		delivery->signal = part->job.marks.awaited;
		delivery->index = rank * part->question.n_pieces + piece;
	}
}

void part_add_deliveries(struct part *part)
{
	uint64_t row = 0;
	uint32_t rank;

	part->feeder.n = 0;
	for (rank = 0; rank < part->question.n_ranks; rank++) {
		add_deliveries(part, rank, row);
		row += part->question.scatters ? part->own_rows : part->rows[rank];
	}
}

void *part_take(void *arg)
{
	struct part *part = arg;
	uint64_t columns = part->columns[0], row = 0, at, n_rows;
	uint32_t rank, piece;

	for (rank = 0; rank < part->question.n_ranks; rank++) {
		for (piece = 0; piece < part->question.n_pieces; piece++) {
			at = row + cei_piece_rows(part->rows[rank], part->question.n_pieces,
						  piece, &n_rows);
			if (rank == part->question.rank || !n_rows || !columns)
				continue;
			ck_assert_int_eq(ceov_signal_wait(part->job.marks.ready,
							  rank * part->question.n_pieces +
							  piece, part->job.marks.value,
							  TESTING_PATIENCE), 0);
			memcpy(part->sent + at * columns, part->c[CEI_GEMM_C_PARTIAL] +
			       at * columns, n_rows * columns * CEI_NUMBER_BYTES);
		}
		row += part->rows[rank];
	}
	return NULL;
}

/* --- what is right ----------------------------------------------------------- */

struct right {
	double sum;
	double size;                    /* the sum of what was added, without signs */
};

static void add_right(struct right *right, double value)
{
	right->sum += value;
	right->size += value < 0 ? -value : value;
}

static struct right multiply(const struct part *part, uint32_t b, uint64_t row,
			     uint64_t column)
{
	const uint16_t *x = part->a + row * part->job.k;
	int is_kn = part->job.b_is_k_by_n;
	const uint16_t *y = part->b[b] + column * (is_kn ? 1 : part->job.k);
	uint64_t step = is_kn ? part->columns[b] : 1;
	struct right right = { 0, 0 };
	uint64_t i;

	for (i = 0; i < part->job.k; i++)
		add_right(&right, (double)feeder_widen(part->job.dtype, x[i]) *
			  (double)feeder_widen(part->job.dtype, y[i * step]));
	return right;
}

static void add_right_partials(const struct part *part, struct right *right, uint64_t at)
{
	uint64_t n = part->own_rows * part->columns[0];
	uint32_t source;

	for (source = 0; source < part->question.n_ranks; source++)
		if (source != part->question.rank)
			add_right(right, (double)feeder_widen(part->job.dtype,
						       part->partials[source * n + at]));
}

/* Whole numbers come out to the bit; of others fp32 and the one rounding lose some. */
static int is_right(const struct part *part, const struct right *right, uint16_t number)
{
	double unit = part->job.dtype == CEOV_BF16 ? 0x1p-8 : 0x1p-11;
	double error = (double)feeder_widen(part->job.dtype, number) - right->sum;
	double allowed = unit * (right->sum < 0 ? -right->sum : right->sum) +
		0x1p-23 * (double)(part->job.k + PART_RANKS) * right->size + 0x1p-24;

	if (part->are_whole)
		return number == feeder_narrow(part->job.dtype, (float)right->sum);
	return error <= allowed && error >= -allowed;
}

void part_check_c(const struct part *part, uint32_t c)
{
	const struct cei_matrix *of = &part->job.c[c];
	uint32_t b = c == CEI_GEMM_C_PARTIAL ? 0 : c;
	int is_own = part->question.scatters && c == 0;
	uint64_t row, i;
	struct right right;

	for (i = 0; i < of->rows * of->columns; i++) {
		row = i / of->columns + (is_own ? part->own_row : 0);
		if (c == CEI_GEMM_C_PARTIAL && row >= part->own_row &&
		    row < part->own_row + part->own_rows)
			continue;
		right = multiply(part, b, row, i % of->columns);
		if (is_own)
			add_right_partials(part, &right, i);
		if (!is_right(part, &right, part->c[c][i]))
			ck_abort_msg("C %u, row %u, column %u: %g, not %g", c,
				     (unsigned)row, (unsigned)(i % of->columns),
				     (double)feeder_widen(part->job.dtype, part->c[c][i]),
				     right.sum);
	}
	feeder_check_guard(part->c[c], of->rows * of->columns);
}

void part_check(const struct part *part)
{
	uint32_t c;

	for (c = 0; c < CEI_GEMM_C_MAX; c++)
		part_check_c(part, c);
	if (part->question.scatters && part->columns[0])
		ck_assert(!memcmp(part->sent, part->c[CEI_GEMM_C_PARTIAL], part->n_rows *
				  part->columns[0] * CEI_NUMBER_BYTES));
}

