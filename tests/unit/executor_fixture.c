/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Products for the executors' suites, with reference results in double precision. */

#include "executor_fixture.h"

#include <stdlib.h>
#include <string.h>

#include "ops/compute/dtype.h"

static void shape_any(struct executor_fixture *fixture, uint64_t *random)
{
	struct cei_tiles_args *args = &fixture->args;
	uint32_t i;

	args->n_ranks = 1 + (uint32_t)testing_below(random, FIXTURE_RANKS);
	args->rank = (uint32_t)testing_below(random, args->n_ranks);
	args->n_pieces = 1 + (uint32_t)testing_below(random, FIXTURE_PIECES);
	args->n_products = args->scatters ? 1 :
		1 + (uint32_t)testing_below(random, CEI_GEMM_B_MAX);
	args->shape.rows = 1 + (uint32_t)testing_below(random, 40);
	args->shape.columns = 1 + (uint32_t)testing_below(random, 40);
	args->cut.kind = testing_below(random, 2) ? CEOV_CUT_SHRINKING : CEOV_CUT_EQUAL;
	for (i = 0; i < args->n_ranks; i++)
		fixture->rows[i] = testing_below(random, 5) ? testing_below(random, 100) : 0;
	for (i = 0; i < args->n_products; i++)
		fixture->columns[i] = testing_below(random, 70);
	fixture->are_whole = testing_below(random, 2) != 0;
	fixture->job.dtype = feeder_dtype(random);
	fixture->job.b_is_k_by_n = (int)testing_below(random, 2);
	fixture->job.k = testing_below(random, testing_below(random, 8) ? 70 : 600);
}

static void shape_plain(struct executor_fixture *fixture)
{
	struct cei_tiles_args *args = &fixture->args;

	args->n_ranks = args->n_pieces = 2;
	args->n_products = 1;
	args->shape.rows = args->shape.columns = 16;
	fixture->rows[0] = fixture->rows[1] = 100;
	fixture->columns[0] = 20;
	fixture->are_whole = 1;
	fixture->job.dtype = CEOV_BF16;
	fixture->job.k = 10;
}

static void share_out(struct executor_fixture *fixture)
{
	struct cei_tiles_args *args = &fixture->args;
	uint32_t i;

	ck_assert(cei_executor_host.is_fit(&fixture->executor, args->shape));
	args->pair = cei_executor_host.pair(&fixture->executor, args->shape);
	args->waits = 1;
	args->rows = fixture->rows;
	args->columns = fixture->columns;
	for (i = 0; i < args->n_ranks; i++) {
		fixture->own_row += i < args->rank ? fixture->rows[i] : 0;
		fixture->n_rows += fixture->rows[i];
	}
	fixture->own_rows = fixture->rows[args->rank];
}

static struct cei_matrix matrix(const void *base, uint64_t rows, uint64_t columns)
{
	struct cei_matrix made = { base, rows, columns, 0 };

	return made;
}

static void fill_gather(struct executor_fixture *fixture)
{
	struct cei_gemm_job *job = &fixture->job;
	uint32_t i;

	fixture->gathered = feeder_nans(fixture->n_rows * job->k);
	job->a[CEI_GEMM_A_OWN] = matrix(fixture->a + fixture->own_row * job->k, fixture->own_rows,
					job->k);
	job->a[CEI_GEMM_A_GATHERED] = matrix(fixture->gathered, fixture->n_rows, job->k);
	for (i = 0; i < fixture->args.n_products; i++)
		job->c[i] = matrix(NULL, fixture->n_rows, fixture->columns[i]);
}

static void fill_scatter(struct executor_fixture *fixture, uint64_t *random)
{
	struct cei_gemm_job *job = &fixture->job;
	uint64_t n = fixture->own_rows * fixture->columns[0];

	fixture->partials = feeder_numbers(job->dtype, n * fixture->args.n_ranks,
					   fixture->are_whole, random);
	fixture->come = feeder_nans(n * fixture->args.n_ranks);
	fixture->sent = feeder_nans(fixture->n_rows * fixture->columns[0]);
	job->a[CEI_GEMM_A_OWN] = matrix(fixture->a, fixture->n_rows, job->k);
	job->c[0] = matrix(NULL, fixture->own_rows, fixture->columns[0]);
	job->c[CEI_GEMM_C_PARTIAL] = matrix(NULL, fixture->n_rows, fixture->columns[0]);
	job->partials = fixture->come;
	job->partial_stride_bytes = n * CEI_DTYPE16_BYTES;
}

void fixture_clear(struct executor_fixture *fixture)
{
	struct cei_matrix *c;
	uint32_t i;

	for (i = 0; i < CEI_GEMM_C_MAX; i++) {
		c = &fixture->job.c[i];
		free(fixture->c[i]);
		fixture->c[i] = feeder_nans(c->rows * c->columns);
		c->base = c->columns ? fixture->c[i] : NULL;
	}
}

struct executor_fixture *fixture_make(ceov_context *context, int scatters,
				      enum fixture_shape shape, uint64_t *random)
{
	struct executor_fixture *fixture = calloc(1, sizeof(*fixture));
	struct cei_gemm_job *job;
	uint32_t i;

	ck_assert_ptr_nonnull(fixture);
	job = &fixture->job;
	fixture->args.scatters = scatters;
	if (shape == FIXTURE_PLAIN)
		shape_plain(fixture);
	else
		shape_any(fixture, random);
	share_out(fixture);
	fixture->executor.ops = &cei_executor_host;
	fixture->executor.context = context;
	fixture->executor.rank = fixture->args.rank;
	ck_assert_int_eq(cei_executor_host.open(&fixture->executor), 0);
	ck_assert_int_eq(cei_tiles_init(&fixture->tiles, &fixture->args), 0);
	job->shape = fixture->args.shape;
	job->tiles = &fixture->tiles;
	job->n_sources = fixture->args.n_ranks;
	job->own = fixture->args.rank;
	job->n_pieces = fixture->args.n_pieces;
	job->cut = fixture->args.cut;
	job->marks.awaited = testing_signal(context, job->own, FIXTURE_COUNTERS);
	job->marks.ready = testing_signal(context, job->own, FIXTURE_COUNTERS);
	job->marks.sent = testing_signal(context, job->own, FEEDER_SENT);
	job->marks.sent_index = 1;
	job->marks.n_sent = FEEDER_SENT - 1;
	job->marks.timeout_ns = TESTING_PATIENCE;
	fixture->a = feeder_numbers(job->dtype, fixture->n_rows * job->k, fixture->are_whole,
				    random);
	for (i = 0; i < fixture->args.n_products; i++) {
		fixture->b[i] = feeder_numbers(job->dtype, fixture->columns[i] * job->k,
					       fixture->are_whole, random);
		job->b[i] = job->b_is_k_by_n ? matrix(fixture->b[i], job->k, fixture->columns[i])
					     : matrix(fixture->b[i], fixture->columns[i], job->k);
	}
	if (scatters)
		fill_scatter(fixture, random);
	else
		fill_gather(fixture);
	fixture_clear(fixture);
	fixture->feeder.random = testing_random(random);
	return fixture;
}

void fixture_free(struct executor_fixture *fixture)
{
	uint32_t i;

	cei_executor_host.close(&fixture->executor);
	cei_tiles_fini(&fixture->tiles);
	ck_assert_int_eq(ceov_signal_release(fixture->job.marks.awaited), 0);
	ck_assert_int_eq(ceov_signal_release(fixture->job.marks.ready), 0);
	ck_assert_int_eq(ceov_signal_release(fixture->job.marks.sent), 0);
	for (i = 0; i < CEI_GEMM_B_MAX; i++)
		free(fixture->b[i]);
	for (i = 0; i < CEI_GEMM_C_MAX; i++)
		free(fixture->c[i]);
	free(fixture->a);
	free(fixture->gathered);
	free(fixture->sent);
	free(fixture->partials);
	free(fixture->come);
	free(fixture);
}

/* --- what peers send to the rank, and what it sends -------------------------- */

static void add_deliveries(struct executor_fixture *fixture, uint32_t rank, uint64_t rank_row)
{
	uint64_t width = fixture->args.scatters ? fixture->columns[0] : fixture->job.k;
	uint64_t rows = fixture->args.scatters ? fixture->own_rows : fixture->rows[rank];
	uint64_t row, n_rows;
	struct delivery *delivery;
	uint32_t piece;

	for (piece = 0; piece < fixture->args.n_pieces; piece++) {
		row = rank_row + cei_piece_rows(&fixture->args.cut, rows, fixture->args.n_pieces,
						piece, &n_rows);
		if (!n_rows || rank == fixture->args.rank)
			continue;
		delivery = feeder_add(&fixture->feeder);
		delivery->from = (fixture->args.scatters ? fixture->partials : fixture->a) +
			row * width;
		delivery->to = (fixture->args.scatters ? fixture->come : fixture->gathered) +
			row * width;
		delivery->n_bytes = n_rows * width * CEI_DTYPE16_BYTES;
		delivery->signal = fixture->job.marks.awaited;
		delivery->index = rank * fixture->args.n_pieces + piece;
	}
}

void fixture_add_deliveries(struct executor_fixture *fixture)
{
	uint64_t row = 0;
	uint32_t rank;

	fixture->feeder.n = 0;
	for (rank = 0; rank < fixture->args.n_ranks; rank++) {
		add_deliveries(fixture, rank, row);
		row += fixture->args.scatters ? fixture->own_rows : fixture->rows[rank];
	}
}

void *fixture_take(void *arg)
{
	struct executor_fixture *fixture = arg;
	uint64_t columns = fixture->columns[0], row = 0, at, n_rows;
	uint32_t rank, piece;

	for (rank = 0; rank < fixture->args.n_ranks; rank++) {
		for (piece = 0; piece < fixture->args.n_pieces; piece++) {
			at = row + cei_piece_rows(&fixture->args.cut, fixture->rows[rank],
						  fixture->args.n_pieces, piece, &n_rows);
			if (rank == fixture->args.rank || !n_rows || !columns)
				continue;
			ck_assert_int_eq(ceov_signal_wait(fixture->job.marks.ready,
							  rank * fixture->args.n_pieces +
							  piece, fixture->job.marks.value,
							  TESTING_PATIENCE), 0);
			memcpy(fixture->sent + at * columns, fixture->c[CEI_GEMM_C_PARTIAL] +
			       at * columns, n_rows * columns * CEI_DTYPE16_BYTES);
		}
		row += fixture->rows[rank];
	}
	return NULL;
}

/* --- comparing results ------------------------------------------------------- */

struct right {
	double sum;
	double size;                    /* sum of the magnitudes of all added products */
};

static void add_right(struct right *right, double value)
{
	right->sum += value;
	right->size += value < 0 ? -value : value;
}

static struct right multiply(const struct executor_fixture *fixture, uint32_t b, uint64_t row,
			     uint64_t column)
{
	const uint16_t *x = fixture->a + row * fixture->job.k;
	int is_kn = fixture->job.b_is_k_by_n;
	const uint16_t *y = fixture->b[b] + column * (is_kn ? 1 : fixture->job.k);
	uint64_t step = is_kn ? fixture->columns[b] : 1;
	struct right right = { 0, 0 };
	uint64_t i;

	for (i = 0; i < fixture->job.k; i++)
		add_right(&right, (double)feeder_widen(fixture->job.dtype, x[i]) *
			  (double)feeder_widen(fixture->job.dtype, y[i * step]));
	return right;
}

static void add_right_partials(const struct executor_fixture *fixture, struct right *right,
			       uint64_t at)
{
	uint64_t n = fixture->own_rows * fixture->columns[0];
	uint32_t source;

	for (source = 0; source < fixture->args.n_ranks; source++)
		if (source != fixture->args.rank)
			add_right(right, (double)feeder_widen(fixture->job.dtype,
						       fixture->partials[source * n + at]));
}

/* Returns whether a number is right. Whole numbers must match exactly; others may differ by the
 * error of fp32 sums and of one rounding. */
static int is_right(const struct executor_fixture *fixture, const struct right *right,
		    uint16_t number)
{
	double unit = fixture->job.dtype == CEOV_BF16 ? 0x1p-8 : 0x1p-11;
	double error = (double)feeder_widen(fixture->job.dtype, number) - right->sum;
	double allowed = unit * (right->sum < 0 ? -right->sum : right->sum) +
		0x1p-23 * (double)(fixture->job.k + FIXTURE_RANKS) * right->size + 0x1p-24;

	if (fixture->are_whole)
		return number == feeder_narrow(fixture->job.dtype, (float)right->sum);
	return error <= allowed && error >= -allowed;
}

void fixture_check_c(const struct executor_fixture *fixture, uint32_t c)
{
	const struct cei_matrix *of = &fixture->job.c[c];
	uint32_t b = c == CEI_GEMM_C_PARTIAL ? 0 : c;
	int is_own = fixture->args.scatters && c == 0;
	uint64_t row, i;
	struct right right;

	for (i = 0; i < of->rows * of->columns; i++) {
		row = i / of->columns + (is_own ? fixture->own_row : 0);
		if (c == CEI_GEMM_C_PARTIAL && row >= fixture->own_row &&
		    row < fixture->own_row + fixture->own_rows)
			continue;
		right = multiply(fixture, b, row, i % of->columns);
		if (is_own)
			add_right_partials(fixture, &right, i);
		if (!is_right(fixture, &right, fixture->c[c][i]))
			ck_abort_msg("C %u, row %u, column %u: %g, not %g", c,
				     (unsigned)row, (unsigned)(i % of->columns),
				     (double)feeder_widen(fixture->job.dtype, fixture->c[c][i]),
				     right.sum);
	}
	feeder_check_guard(fixture->c[c], of->rows * of->columns);
}

void fixture_check(const struct executor_fixture *fixture)
{
	uint32_t c;

	for (c = 0; c < CEI_GEMM_C_MAX; c++)
		fixture_check_c(fixture, c);
	if (fixture->args.scatters && fixture->columns[0])
		ck_assert(!memcmp(fixture->sent, fixture->c[CEI_GEMM_C_PARTIAL], fixture->n_rows *
				  fixture->columns[0] * CEI_DTYPE16_BYTES));
}

