/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The host's executor: the calling thread takes the tiles in the list's order, with the
 * same waits and arrivals as the kernel. For tests and host ranks, not for speed: still,
 * operands are widened once a tile and the inner loop runs on vectors. */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ce_engine/context.h"
#include "ops/execute_host.h"
#include "ops/numbers.h"

#define LANES   8u                      /* columns that are summed at once */
#define STRIP   4u                      /* and rows */
#define K_STEP  256u                    /* of k, widened at once */
#define SUM_MAX 1024u                   /* elements of a sum, likewise */

typedef float lanes __attribute__((vector_size(LANES * sizeof(float)), may_alias));

/* One tile's operands as floats. Rows are padded to STRIP, columns to LANES; what is
 * computed of the padding is never looked at. */
struct desk {
	float   *a;                     /* row by row, K_STEP each */
	lanes   *b;                     /* panels of LANES columns, K_STEP each */
	lanes   *sum;                   /* row by row, n_panels each */
	float   *row;                   /* of C, or of k */
	uint64_t n_rows;
	uint64_t n_panels;
};

struct task {                           /* a job at one of its tiles */
	struct cei_executor         *executor;
	const struct cei_gemm_job   *job;
	const struct cei_gemm_tile  *tile;
	uint64_t                     n_columns;
	struct desk                  desk;
};

/* --- waits ----------------------------------------------------------------- */

static int refuse(const struct cei_executor *executor, const char *what)
{
	return cei_raise(&executor->context->report, CEOV_ERR_INVALID, 0,
			 "host executor: rank %u: %s", executor->rank, what);
}

/* signal NULL: there is nothing to wait for. */
static int await(const struct cei_executor *executor, const struct cei_job_marks *marks,
		 ceov_signal *signal, uint32_t index, const char *what)
{
	struct ceov_failure failure = cei_failure(CEOV_ERR_TIMEOUT, 0);
	int r = signal ? ceov_signal_wait(signal, index, marks->value, marks->timeout_ns) : 0;

	if (r != CEOV_PENDING)
		return r;
	failure.rank = executor->rank;
	failure.mark_value = marks->value;
	r = ceov_signal_value(signal, index, &failure.seen_value);
	if (r)
		return r;
	return cei_raise_failure(&executor->context->report, &failure,
				 "rank %u waits for %s: counter %u has not reached %" PRIu64
				 " within %" PRIu64 " ms, it holds %" PRIu64 "; look at "
				 "what its sender waits for", executor->rank, what, index,
				 marks->value, marks->timeout_ns / 1000000,
				 failure.seen_value);
}

static int await_sent(const struct cei_executor *executor,
		      const struct cei_job_marks *marks)
{
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < marks->n_sent; i++)
		r = await(executor, marks, marks->sent, marks->sent_index + i,
			  "its own copies to leave");
	return r;
}

/* Keeps a job's first error for status(). */
static int keep(const struct cei_executor *executor, int r)
{
	struct cei_host_executor *host = executor->private;
	int none = 0;

	/* release: pairs with status(), after which the report is read */
	if (r)
		atomic_compare_exchange_strong_explicit(&host->error, &none, r,
							memory_order_release,
							memory_order_relaxed);
	return r;
}

/* --- the desk -------------------------------------------------------------- */

static uint64_t round_up(uint64_t n, uint64_t to)
{
	return (n + to - 1) / to * to;
}

static void *take(uint64_t n_floats)
{
	uint64_t n_bytes = round_up(n_floats * sizeof(float), sizeof(lanes));

	return aligned_alloc(sizeof(lanes), n_bytes ? n_bytes : sizeof(lanes));
}

static void desk_fini(struct desk *desk)
{
	free(desk->a);
	free(desk->b);
	free(desk->sum);
	free(desk->row);
}

/* For the largest tile that the job's matrices can hold. */
static int desk_init(struct desk *desk, const struct cei_gemm_job *job)
{
	uint64_t n_rows = 0, n_columns = 0, n;
	uint32_t i;

	for (i = 0; i < CEI_GEMM_C_MAX; i++) {
		n_rows = job->c[i].rows > n_rows ? job->c[i].rows : n_rows;
		n_columns = job->c[i].columns > n_columns ? job->c[i].columns : n_columns;
	}
	n_rows = round_up(n_rows < job->shape.rows ? n_rows : job->shape.rows, STRIP);
	n_columns = round_up(n_columns < job->shape.columns ? n_columns :
			     job->shape.columns, LANES);
	n = n_columns > K_STEP ? n_columns : K_STEP;
	desk->a = take(n_rows * K_STEP);
	desk->b = take(n_columns * K_STEP);
	desk->sum = take(n_rows * n_columns);
	desk->row = take(n);
	if (!desk->a || !desk->b || !desk->sum || !desk->row)
		return CEOV_ERR_NO_MEMORY;
	/* Padding is computed with, so it has to be some number. */
	memset(desk->a, 0, n_rows * K_STEP * sizeof(float));
	memset(desk->b, 0, n_columns * K_STEP * sizeof(float));
	return 0;
}

/* Of a C it is written to. */
static char *element(const struct cei_matrix *matrix, uint64_t row, uint64_t column)
{
	return (char *)(uintptr_t)matrix->base +
		(row * matrix->columns + column) * CEI_NUMBER_BYTES;
}

/* Steps k to k + n_k of the tile's rows of A and columns of C. */
static void lay_out(struct task *task, uint64_t k, uint64_t n_k)
{
	const struct cei_gemm_job *job = task->job;
	const struct cei_gemm_tile *tile = task->tile;
	struct desk *desk = &task->desk;
	uint64_t i, step;
	lanes *panel;

	for (i = 0; i < tile->n_rows; i++)
		cei_widen(job->dtype, desk->a + i * K_STEP,
			  element(&job->a[tile->a], tile->a_row + i, k), n_k);
	for (i = 0; i < task->n_columns; i++) {
		cei_widen(job->dtype, desk->row,
			  element(&job->b[tile->b], tile->column + i, k), n_k);
		panel = desk->b + i / LANES * K_STEP;
		for (step = 0; step < n_k; step++)
			panel[step][i % LANES] = desk->row[step];
	}
}

/* --- multiply -------------------------------------------------------------- */

/* STRIP rows times a panel: each sum adds its products in the order of k. sum is the
 * first row's, the next one's is n_panels on. */
static void multiply_strip(lanes *sum, uint64_t n_panels, const float *a, const lanes *b,
			   uint64_t n_k)
{
	lanes sum0 = sum[0], sum1 = sum[n_panels];
	lanes sum2 = sum[2 * n_panels], sum3 = sum[3 * n_panels];
	uint64_t k;

	for (k = 0; k < n_k; k++) {
		sum0 += a[k] * b[k];
		sum1 += a[K_STEP + k] * b[k];
		sum2 += a[2 * K_STEP + k] * b[k];
		sum3 += a[3 * K_STEP + k] * b[k];
	}
	sum[0] = sum0;
	sum[n_panels] = sum1;
	sum[2 * n_panels] = sum2;
	sum[3 * n_panels] = sum3;
}

static void multiply(struct task *task)
{
	struct desk *desk = &task->desk;
	uint64_t k, n_k, row, panel;

	desk->n_rows = round_up(task->tile->n_rows, STRIP);
	desk->n_panels = round_up(task->n_columns, LANES) / LANES;
	memset(desk->sum, 0, desk->n_rows * desk->n_panels * sizeof(lanes));
	for (k = 0; k < task->job->k; k += n_k) {
		n_k = task->job->k - k < K_STEP ? task->job->k - k : K_STEP;
		lay_out(task, k, n_k);
		for (panel = 0; panel < desk->n_panels; panel++)
			for (row = 0; row < desk->n_rows; row += STRIP)
				multiply_strip(desk->sum + row * desk->n_panels + panel,
					       desk->n_panels, desk->a + row * K_STEP,
					       desk->b + panel * K_STEP, n_k);
	}
}

/* --- a tile ---------------------------------------------------------------- */

static float *sum_row(const struct desk *desk, uint64_t row)
{
	return (float *)(desk->sum + row * desk->n_panels);
}

static void add_source(struct task *task, uint32_t source)
{
	const struct cei_gemm_job *job = task->job;
	const struct cei_gemm_tile *tile = task->tile;
	struct cei_matrix partial = job->c[tile->c];
	float *sum, *addend = task->desk.row;
	uint64_t row, i;

	partial.base = (const char *)job->partials + source * job->partial_stride_bytes;
	for (row = 0; row < tile->n_rows; row++) {
		sum = sum_row(&task->desk, row);
		cei_widen(job->dtype, addend,
			  element(&partial, tile->c_row + row, tile->column),
			  task->n_columns);
		for (i = 0; i < task->n_columns; i++)
			sum[i] += addend[i];
	}
}

static int add_partials(struct task *task)
{
	const struct cei_gemm_job *job = task->job;
	uint32_t source;
	int r = 0;

	for (source = 0; !r && source < job->n_sources; source++) {
		if (source == job->own)
			continue;
		r = await(task->executor, &job->marks, job->marks.awaited,
			  source * job->n_pieces + task->tile->reduce, "partial sums");
		if (!r)
			add_source(task, source);
	}
	return r;
}

static void store(const struct task *task)
{
	const struct cei_gemm_tile *tile = task->tile;
	const struct cei_matrix *c = &task->job->c[tile->c];
	uint64_t row;

	for (row = 0; row < tile->n_rows; row++)
		cei_narrow(task->job->dtype, element(c, tile->c_row + row, tile->column),
			   sum_row(&task->desk, row), task->n_columns);
}

static int holds(const struct cei_matrix *matrix, uint64_t row, uint64_t n_rows,
		 uint64_t n_columns)
{
	return matrix->base && row <= matrix->rows && n_rows <= matrix->rows - row &&
		n_columns <= matrix->columns;
}

/* Whether all that the tile names is there. */
static int fits(const struct cei_gemm_job *job, const struct cei_gemm_tile *tile)
{
	const struct cei_matrix *c;
	uint64_t columns;

	if (tile->a >= CEI_GEMM_A_COUNT || tile->b >= CEI_GEMM_B_MAX ||
	    tile->c >= CEI_GEMM_C_MAX || tile->n_rows > job->shape.rows)
		return 0;
	c = &job->c[tile->c];
	columns = c->columns;
	return tile->column < columns && job->b[tile->b].rows == columns &&
		holds(c, tile->c_row, tile->n_rows, columns) &&
		holds(&job->a[tile->a], tile->a_row, tile->n_rows, job->k) &&
		holds(&job->b[tile->b], 0, columns, job->k) &&
		(tile->reduce == CEI_GEMM_NONE || job->partials);
}

static int run_tile(struct task *task)
{
	const struct cei_job_marks *marks = &task->job->marks;
	const struct cei_gemm_tile *tile = task->tile;
	uint64_t left;
	int r = 0;

	if (!tile->n_rows)
		return 0;
	if (!fits(task->job, tile))
		return refuse(task->executor, "a tile lies outside of its matrices");
	left = task->job->c[tile->c].columns - tile->column;
	task->n_columns = left < task->job->shape.columns ? left : task->job->shape.columns;
	if (tile->await != CEI_GEMM_NONE)
		r = await(task->executor, marks, marks->awaited, tile->await, "rows of A");
	if (r)
		return r;
	multiply(task);
	if (tile->reduce != CEI_GEMM_NONE)
		r = add_partials(task);
	if (r)
		return r;
	store(task);
	if (!marks->ready || tile->arrive == CEI_GEMM_NONE)
		return 0;
	return ceov_signal_arrive(marks->ready, tile->arrive, tile->n_arrivals, marks->value);
}

static int host_gemm(struct cei_executor *executor, void *stream,
		     const struct cei_gemm_job *job)
{
	struct task task = { .executor = executor, .job = job };
	uint32_t i;
	int r = desk_init(&task.desk, job);

	(void)stream;
	if (r)
		r = cei_raise(&executor->context->report, r, 0,
			      "host executor: rank %u: no memory for tiles of %u x %u",
			      executor->rank, job->shape.rows, job->shape.columns);
	for (i = 0; !r && i < job->tiles->n_tiles; i++) {
		task.tile = &job->tiles->tile[i];
		r = run_tile(&task);
	}
	desk_fini(&task.desk);
	if (!r)
		r = await_sent(executor, &job->marks);
	return keep(executor, r);
}

/* --- sums ------------------------------------------------------------------ */

/* Elements of all ranks before this one. */
static uint64_t part_at(const struct cei_reduce_job *job, uint32_t rank)
{
	uint64_t at = 0;
	uint32_t i;

	for (i = 0; i < rank; i++)
		at += job->counts[i];
	return at;
}

/* Elements of a piece, beginning at *ret_at of the rank's part. */
static uint64_t piece_of(const struct cei_reduce_job *job, uint32_t rank, uint32_t piece,
			 uint64_t *ret_at)
{
	uint64_t n = job->counts[rank], at = piece * job->piece_elements[rank];

	*ret_at = at = at < n ? at : n;
	return n - at < job->piece_elements[rank] ? n - at : job->piece_elements[rank];
}

static uint64_t bytes_of(const struct cei_reduce_job *job, uint64_t n_elements)
{
	return n_elements * cei_number_bytes(job->dtype);
}

/* Elements `at` and on of the own part, at most SUM_MAX. */
static void sum_some(const struct cei_reduce_job *job, void *target, uint64_t at, uint64_t n)
{
	float sum[SUM_MAX], addend[SUM_MAX];
	const char *from;
	uint64_t i, own_at = part_at(job, job->own);
	uint32_t source;

	for (source = 0; source < job->n_ranks; source++) {
		from = (const char *)job->partials + source * job->partial_stride_bytes;
		if (source == job->own)
			from = (const char *)job->source + bytes_of(job, own_at);
		cei_widen(job->dtype, source ? addend : sum, from + bytes_of(job, at), n);
		for (i = 0; source && i < n; i++)
			sum[i] += addend[i];
	}
	cei_narrow(job->dtype, target, sum, n);
}

/* Which counter says that a piece of a source's copy is there. */
static uint32_t counter_of(const struct cei_reduce_job *job, uint32_t source, uint32_t piece)
{
	int is_cut = !job->is_tail_cut || source == (job->own + 1) % job->n_ranks;

	return source * job->n_pieces + (is_cut ? piece : 0);
}

/* Empty pieces are passed over: nobody sends them. */
static int sum_piece(struct cei_executor *executor, const struct cei_reduce_job *job,
		     uint32_t piece)
{
	uint64_t at, done, n, n_elements = piece_of(job, job->own, piece, &at);
	uint64_t target_at = job->gathered ? part_at(job, job->own) : 0;
	uint32_t source;
	int r = 0;

	if (!n_elements)
		return 0;
	for (source = 0; !r && source < job->n_ranks; source++)
		if (source != job->own)
			r = await(executor, &job->marks, job->marks.awaited,
				  counter_of(job, source, piece), "partial sums");
	if (r)
		return r;
	for (done = 0; done < n_elements; done += n) {
		n = n_elements - done < SUM_MAX ? n_elements - done : SUM_MAX;
		sum_some(job, (char *)job->target + bytes_of(job, target_at + at + done),
			 at + done, n);
	}
	if (!job->marks.ready)
		return 0;
	return ceov_signal_arrive(job->marks.ready, piece, 1, job->marks.value);
}

static int take_piece(struct cei_executor *executor, const struct cei_reduce_job *job,
		      uint32_t rank, uint32_t piece)
{
	uint64_t at, n = piece_of(job, rank, piece, &at);
	int r;

	if (!n)
		return 0;
	r = await(executor, &job->marks, job->arrived, job->first_arrived +
		  counter_of(job, rank, piece), "sums of its peers");
	at = bytes_of(job, at + part_at(job, rank));
	if (!r)
		memcpy((char *)job->target + at, (const char *)job->gathered + at,
		       bytes_of(job, n));
	return r;
}

static int host_reduce(struct cei_executor *executor, void *stream,
		       const struct cei_reduce_job *job)
{
	uint32_t i, piece, rank;
	int r = 0;

	(void)stream;
	for (piece = 0; !r && piece < job->n_pieces; piece++)
		r = sum_piece(executor, job, piece);
	for (i = 1; !r && job->gathered && i < job->n_ranks; i++) {
		rank = (job->own + job->n_ranks - i) % job->n_ranks;
		for (piece = 0; !r && piece < job->n_pieces; piece++)
			r = take_piece(executor, job, rank, piece);
	}
	if (!r)
		r = await_sent(executor, &job->marks);
	return keep(executor, r);
}

/* --- the rest -------------------------------------------------------------- */

static int host_open(struct cei_executor *executor)
{
	executor->private = calloc(1, sizeof(struct cei_host_executor));
	if (!executor->private)
		return cei_raise(&executor->context->report, CEOV_ERR_NO_MEMORY, 0,
				 "host executor: rank %u: no memory for it",
				 executor->rank);
	return 0;
}

static void host_close(struct cei_executor *executor)
{
	free(executor->private);
	executor->private = NULL;
}

static int host_is_fit(const struct cei_executor *executor, struct cei_tile_shape shape)
{
	(void)executor;
	(void)shape;
	return 1;
}

static uint32_t host_pair(const struct cei_executor *executor, struct cei_tile_shape shape)
{
	(void)executor;
	(void)shape;
	return 1;
}

/* Jobs read the caller's list. */
static int host_hold_tiles(struct cei_executor *executor, const struct cei_tiles *tiles,
			   void **ret_held)
{
	(void)executor;
	(void)tiles;
	*ret_held = NULL;
	return 0;
}

static void host_drop_tiles(struct cei_executor *executor, void *held)
{
	(void)executor;
	(void)held;
}

static int host_load(struct cei_executor *executor, const struct cei_gemm_job *job)
{
	(void)executor;
	(void)job;
	return 0;
}

static int host_copy(struct cei_executor *executor, void *stream, void *target,
		     const void *source, uint64_t n_bytes)
{
	(void)executor;
	(void)stream;
	if (n_bytes)
		memcpy(target, source, n_bytes);
	return 0;
}

static int host_await(struct cei_executor *executor, void *stream,
		      const struct cei_job_marks *marks, const struct cei_counters *counters)
{
	uint32_t i;
	int r = 0;

	(void)stream;
	for (i = 0; !r && i < counters->n; i++)
		r = await(executor, marks, counters->signal, counters->first + i,
			  "a mark between two jobs");
	return keep(executor, r);
}

static int host_is_capturing(struct cei_executor *executor, void *stream, int *ret_is)
{
	(void)executor;
	(void)stream;
	*ret_is = 0;
	return 0;
}

static int host_mark(struct cei_executor *executor, void *stream)
{
	(void)executor;
	(void)stream;
	return 0;
}

static int host_status(struct cei_executor *executor)
{
	struct cei_host_executor *host = executor->private;

	/* acquire: pairs with keep() */
	return atomic_load_explicit(&host->error, memory_order_acquire);
}

/* Jobs are done when they return. */
static int host_idle(struct cei_executor *executor, uint64_t timeout_ns)
{
	(void)executor;
	(void)timeout_ns;
	return 0;
}

const struct cei_executor_ops cei_executor_host = {
	.name = "host",
	.open = host_open,
	.close = host_close,
	.is_fit = host_is_fit,
	.pair = host_pair,
	.hold_tiles = host_hold_tiles,
	.drop_tiles = host_drop_tiles,
	.load = host_load,
	.gemm = host_gemm,
	.reduce = host_reduce,
	.copy = host_copy,
	.await = host_await,
	.is_capturing = host_is_capturing,
	.mark_stream = host_mark,
	.follow_mark = host_mark,
	.status = host_status,
	.idle = host_idle,
	.take = cei_host_take,
	.give = cei_host_give,
	.time_begin = cei_host_time_begin,
	.time_end = cei_host_time_end,
};
