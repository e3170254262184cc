/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The host's executor. The calling thread executes tiles in the list's order, with the same waits
 * and marks as the kernel. It is meant for tests, not for speed. */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ce_engine/objects/context.h"
#include "ce_engine/objects/signal.h"
#include "ops/compute/dtype.h"
#include "ops/compute/sum.h"
#include "ops/exec_host/host_gemm.h"
#include "ops/exec_host/execute_host.h"
#include "ops/shape.h"

struct task {                           /* a job, and the tile that is being executed */
	struct cei_executor         *executor;
	const struct cei_gemm_job   *job;
	const struct cei_gemm_tile  *tile;
	struct cei_host_gemm         gemm;
};

/* --- waits ----------------------------------------------------------------- */

static int refuse(const struct cei_executor *executor, const char *what)
{
	return cei_raise(&executor->context->report, CEOV_ERR_INVALID, 0,
			 "host executor: rank %u: %s", executor->rank, what);
}

/* Waits until the counter has reached the run's number. Does nothing if signal is NULL. */
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
				 "rank %u waits for %s: %s has not reached %" PRIu64 " within "
				 "%" PRIu64 " ms, it holds %" PRIu64 "; look at what its sender "
				 "waits for", executor->rank, what,
				 cei_counter_text(signal, index).text, marks->value,
				 marks->timeout_ns / 1000000, failure.seen_value);
}

int cei_host_await(const struct cei_executor *executor, const struct cei_job_marks *marks,
		   const struct cei_counters *counters, const char *what)
{
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < counters->n; i++)
		r = await(executor, marks, counters->signal, counters->first + i, what);
	return r;
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

int cei_host_keep(const struct cei_executor *executor, int r)
{
	struct cei_host_executor *host = executor->private;
	int none = 0;

	/* release: pairs with the acquire in status(), whose caller then reads the report */
	if (r)
		atomic_compare_exchange_strong_explicit(&host->error, &none, r,
							memory_order_release,
							memory_order_relaxed);
	return r;
}

/* --- a tile ---------------------------------------------------------------- */

static void add_source(struct task *task, uint32_t source)
{
	const struct cei_gemm_job *job = task->job;
	const struct cei_gemm_tile *tile = task->tile;
	struct cei_matrix partial = job->c[tile->c];
	const struct cei_host_gemm *gemm = &task->gemm;
	float *sum, *addend = gemm->row;
	uint64_t row, i;

	partial.base = (const char *)job->partials + source * job->partial_stride_bytes;
	for (row = 0; row < tile->n_rows; row++) {
		sum = cei_host_gemm_sum(gemm, row);
		cei_dtype_widen(job->dtype, addend,
				cei_matrix_at(&partial, tile->c_row + row, tile->column),
				gemm->n_columns);
		for (i = 0; i < gemm->n_columns; i++)
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
	uint64_t row, n_columns = task->gemm.n_columns;

	/* A peer may be reading the next part, and two threads must not touch the same bytes, even
	 * if these do not change. */
	if (tile->n_columns && tile->n_columns < n_columns)
		n_columns = tile->n_columns;
	for (row = 0; row < tile->n_rows; row++)
		cei_dtype_narrow(task->job->dtype,
				 cei_matrix_at(c, tile->c_row + row, tile->column),
				 cei_host_gemm_sum(&task->gemm, row), n_columns);
}

static int holds(const struct cei_matrix *matrix, uint64_t row, uint64_t n_rows,
		 uint64_t n_columns)
{
	return matrix->base && row <= matrix->rows && n_rows <= matrix->rows - row &&
		n_columns <= matrix->columns;
}

/* Returns whether the job has all matrices and rows that the tile refers to. */
static int fits(const struct cei_gemm_job *job, const struct cei_gemm_tile *tile)
{
	const struct cei_matrix *b, *c;
	uint64_t columns;

	if (tile->a >= CEI_GEMM_A_COUNT || tile->b >= CEI_GEMM_B_MAX ||
	    tile->c >= CEI_GEMM_C_MAX || tile->n_rows > job->shape.rows)
		return 0;
	b = &job->b[tile->b];
	c = &job->c[tile->c];
	columns = c->columns;
	return tile->column < columns &&
		(job->b_is_k_by_n ? b->columns : b->rows) == columns &&
		holds(c, tile->c_row, tile->n_rows, columns) &&
		holds(&job->a[tile->a], tile->a_row, tile->n_rows, job->k) &&
		(job->b_is_k_by_n ? holds(b, 0, job->k, columns)
				  : holds(b, 0, columns, job->k)) &&
		(tile->reduce == CEI_GEMM_NONE || job->partials);
}

static int run_tile(struct task *task)
{
	const struct cei_job_marks *marks = &task->job->marks;
	const struct cei_gemm_tile *tile = task->tile;
	int r = 0;

	if (!tile->n_rows)
		return 0;
	if (!fits(task->job, tile))
		return refuse(task->executor, "a tile lies outside of its matrices");
	if (tile->await != CEI_GEMM_NONE)
		r = await(task->executor, marks, marks->awaited, tile->await, "rows of A");
	if (r)
		return r;
	cei_host_gemm_multiply(&task->gemm, task->job, tile);
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
	int r = cei_host_gemm_init(&task.gemm, job);

	(void)stream;
	if (r)
		r = cei_raise(&executor->context->report, r, 0,
			      "host executor: rank %u: no memory for tiles of %u x %u",
			      executor->rank, job->shape.rows, job->shape.columns);
	for (i = 0; !r && i < job->tiles->n_tiles; i++) {
		task.tile = &job->tiles->tile[i];
		r = run_tile(&task);
	}
	cei_host_gemm_fini(&task.gemm);
	if (!r)
		r = await_sent(executor, &job->marks);
	return cei_host_keep(executor, r);
}

/* --- sums ------------------------------------------------------------------ */

/* Returns how many elements the ranks before this one have together. */
static uint64_t part_at(const struct cei_reduce_job *job, uint32_t rank)
{
	uint64_t at = 0;
	uint32_t i;

	for (i = 0; i < rank; i++)
		at += job->counts[i];
	return at;
}

/* Returns how many elements a piece of a rank's part has; *ret_at is the offset of the piece in
 * that part. */
static uint64_t piece_of(const struct cei_reduce_job *job, uint32_t rank, uint32_t piece,
			 uint64_t *ret_at)
{
	uint64_t n = job->counts[rank], at = piece * job->piece_elements[rank];

	*ret_at = at = at < n ? at : n;
	return n - at < job->piece_elements[rank] ? n - at : job->piece_elements[rank];
}

static uint64_t bytes_of(const struct cei_reduce_job *job, uint64_t n_elements)
{
	return n_elements * cei_dtype_bytes(job->dtype);
}

/* Sums n elements of the own part, from element `at` on. */
static void sum_some(const struct cei_reduce_job *job, void *target, uint64_t at, uint64_t n)
{
	const void *sources[CEI_OP_RANKS_MAX];
	const struct cei_sum sum = { job->dtype, CEOV_SUM, job->scale, job->n_ranks, sources };
	const char *from;
	uint32_t rank;

	for (rank = 0; rank < job->n_ranks; rank++) {
		from = rank == job->own ? job->source :
			(const char *)job->partials + rank * job->partial_stride_bytes;
		sources[rank] = from + bytes_of(job, at);
	}
	cei_sum_up(&sum, target, n);
}

/* Returns the counter that says that a source's piece has arrived. */
static uint32_t counter_of(const struct cei_reduce_job *job, uint32_t source, uint32_t piece)
{
	int is_cut = !job->is_tail_cut || source == (job->own + 1) % job->n_ranks;

	return source * job->n_pieces + (is_cut ? piece : 0);
}

/* Awaits and sums one piece of the own part. Empty pieces are skipped, because no rank sends
 * them. */
static int sum_piece(struct cei_executor *executor, const struct cei_reduce_job *job,
		     uint32_t piece)
{
	uint64_t at, n_elements = piece_of(job, job->own, piece, &at);
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
	sum_some(job, (char *)job->target + bytes_of(job, target_at + at), at, n_elements);
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
	return cei_host_keep(executor, r);
}

/* --- the executor's other functions ---------------------------------------- */

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

/* Copies nothing, because jobs can read the caller's list. */
static int host_hold(struct cei_executor *executor, const void *list, uint64_t n_bytes,
		     void **ret_held)
{
	*ret_held = list ? NULL : malloc(n_bytes ? n_bytes : 1);
	if (list || *ret_held)
		return 0;
	return cei_raise(&executor->context->report, CEOV_ERR_NO_MEMORY, 0,
			 "host executor: rank %u: no memory of %" PRIu64 " bytes for a job",
			 executor->rank, n_bytes);
}

static void host_drop(struct cei_executor *executor, void *held)
{
	(void)executor;
	free(held);
}

static int host_load(struct cei_executor *executor, const struct cei_gemm_job *job)
{
	(void)executor;
	(void)job;
	return 0;
}

static int host_keeps(const struct cei_executor *executor, const struct cei_gemm_job *job)
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

static int host_copy_rows(struct cei_executor *executor, void *stream,
			  const struct cei_rows *rows)
{
	uint64_t i;

	(void)executor;
	(void)stream;
	for (i = 0; rows->row_bytes && i < rows->n_rows; i++)
		memcpy((char *)rows->target + i * rows->target_pitch_bytes,
		       (const char *)rows->source + i * rows->source_pitch_bytes,
		       rows->row_bytes);
	return 0;
}

static int host_await(struct cei_executor *executor, void *stream,
		      const struct cei_job_marks *marks, const struct cei_counters *counters)
{
	(void)stream;
	return cei_host_keep(executor, cei_host_await(executor, marks, counters,
						      "a mark between two jobs"));
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

	/* acquire: pairs with the release in cei_host_keep() */
	return atomic_load_explicit(&host->error, memory_order_acquire);
}

/* There is nothing to wait for, because a job has ended when its call returns. */
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
	.hold = host_hold,
	.drop = host_drop,
	.load = host_load,
	.keeps = host_keeps,
	.gemm = host_gemm,
	.reduce = host_reduce,
	.direct = cei_host_direct,
	.experts = &cei_host_experts,
	.embedding = &cei_host_embedding,
	.copy = host_copy,
	.copy_rows = host_copy_rows,
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
