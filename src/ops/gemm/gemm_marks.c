/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * GEMM with marks: a product of one rank whose groups of rows each raise a counter of the op's own
 * signal, for work that the caller queues elsewhere. Groups are the pieces of other products. Tiles
 * wait for nothing, so a run proceeds on whatever SMs it gets.
 *
 * Replays of a graph have no numbers. A captured run therefore first sets the counters to 0, and
 * tiles raise them to 1. Streams that wait for them are taken into the graph behind that point, so
 * that they do not find the counters of the replay before.
 */

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/sized.h"
#include "ce_engine/objects/context.h"
#include "ops/compute/dtype.h"
#include "ops/core/operands.h"
#include "ops/core/run.h"
#include "ops/gemm/product.h"
#include "ops/kinds.h"

/* No scratch is used, but a workspace must have some. */
#define SCRATCH_BYTES UINT64_C(16)

/* How long a waiting thread sleeps before it looks whether the workspace has failed. */
#define LOOK_NS UINT64_C(10000000)

static const struct ceov_op_tuning *shape_of(struct cei_op_shape *shape, const void *from,
					     uint32_t n_ranks)
{
	const struct ceov_gemm_marks *taken = from;

	shape->fault = cei_sized_fault(from, sizeof(*taken), sizeof(*taken));
	if (shape->fault)
		return NULL;
	cei_product_take(shape, taken->dtype, taken->k, taken->n, taken->b_is_k_by_n);
	if (!n_ranks || n_ranks > CEI_OP_RANKS_MAX)
		return taken->tuning;
	shape->n_ranks = 1;             /* whatever the group has */
	shape->rows[0] = taken->m;
	return taken->tuning;
}

static uint64_t scratch_bytes(const struct cei_op_shape *shape)
{
	(void)shape;
	return SCRATCH_BYTES;
}

uint64_t ceov_gemm_marks_scratch_bytes(const struct ceov_gemm_marks *from, uint32_t n_ranks)
{
	return cei_op_scratch_bytes(&cei_gemm_marks, from, n_ranks);
}

/* --- building -------------------------------------------------------------- */

/* The list of tiles is that of a group of one rank. */
static void ask(const ceov_op *op, struct cei_tiles_args *args, uint64_t rows[CEI_OP_RANKS_MAX])
{
	(void)op;
	(void)rows;
	args->rank = 0;
	args->tells = 1;
}

static int build(ceov_op *op)
{
	ceov_context *context = op->workspace->object.context;
	uint32_t rank = op->workspace->rank;
	struct ceov_place place = context->site.members[cei_context_member(context, rank)].place;
	int r = cei_product_prepare(op);

	return r ? r : ceov_signal_create(context, rank, place, op->choice.n_pieces, 0,
					  &op->marks.signal);
}

static void fini(ceov_op *op)
{
	struct cei_executor *executor = &op->workspace->executor;

	if (op->marks.fork)
		executor->ops->end_fork(executor, op->marks.fork);
	if (!op->may_run)               /* else the context releases it when it closes */
		(void)ceov_signal_release(op->marks.signal);
	cei_product_fini(op);
}

int ceov_gemm_marks_create(ceov_workspace *workspace, const struct ceov_gemm_marks *from,
			   ceov_op **ret_op)
{
	return cei_op_create_from(workspace, &cei_gemm_marks, from, ret_op);
}

/* --- the job --------------------------------------------------------------- */

static struct cei_gemm_job job_of(const ceov_op *op, const void *operands,
				  char *scratch, const struct cei_tile_list *list)
{
	const struct cei_op_shape *shape = &op->shape;
	struct cei_gemm_job job = cei_product_job(op, list);
	const struct ceov_gemm_marks_run *run = operands;

	(void)scratch;
	job.a[CEI_GEMM_A_OWN] = cei_product_matrix(run->a, shape->rows[0], shape->product.k);
	job.b[0] = cei_product_b(shape, 0, run->b);
	job.c[0] = cei_product_matrix(run->c, shape->rows[0], shape->product.n[0]);
	job.is_claimed = op->workspace->shares_sms;
	return job;
}

/* Begins a captured run: sets the counters to 0, behind which streams may wait for them. */
static int begin_captured(const struct cei_run *run)
{
	const ceov_workspace *workspace = run->op->workspace;
	struct cei_executor *executor = &run->op->workspace->executor;
	struct ceov_mark zeros[CEI_OP_PIECES_MAX];
	uint32_t i;
	int r;

	for (i = 0; i < run->op->choice.n_pieces; i++)
		zeros[i] = (struct ceov_mark){ run->op->marks.signal, i, 0 };
	r = ceov_stream_raise(workspace->object.context, workspace->rank, run->stream, zeros,
			      run->op->choice.n_pieces, 0);
	return r ? r : executor->ops->fork(executor, run->stream, &run->op->marks.fork);
}

static int queue_job(const struct cei_run *run)
{
	ceov_op *op = run->op;
	struct cei_executor *executor = &op->workspace->executor;
	struct cei_gemm_job job = job_of(op, run->operands, NULL, &op->product.all);
	int captures = 0, r = 0;

	if (cei_workspace_is_capturable(op->workspace))
		r = executor->ops->is_capturing(executor, run->stream, &captures);
	if (!r && captures)
		r = begin_captured(run);
	if (r)
		return r;
	op->marks.is_captured = captures;
	job.marks.ready = op->marks.signal;
	job.marks.value = captures ? 1 : run->number;
	job.marks.timeout_ns = op->workspace->deadline_ns;
	return executor->ops->gemm(executor, run->stream, &job);
}

static int take_operands(struct cei_run *run)
{
	const struct ceov_gemm_marks_run *from = run->operands;
	const ceov_op *op = run->op;
	const struct cei_op_shape *shape = &op->shape;
	uint64_t k_bytes = shape->product.k * CEI_DTYPE16_BYTES;
	const struct cei_operand operands[] = {
		{ "a", from->a, shape->rows[0] * k_bytes, 0 },
		{ "b", from->b, shape->product.n[0] * k_bytes, 0 },
		{ "c", from->c, shape->rows[0] * cei_product_row_bytes(shape), 1 },
	};

	run->stream = from->stream;
	return cei_operands_take(run, operands, 3);
}

int ceov_gemm_marks_run(ceov_op *op, const struct ceov_gemm_marks_run *operands)
{
	return cei_op_run(op, cei_gemm_marks.run_call, operands);
}

/* --- groups ---------------------------------------------------------------- */

static int check_op(const ceov_op *op, const char *call)
{
	int r = cei_object_check(op, &cei_op_type, call);

	if (r || op->kind == &cei_gemm_marks)
		return r;
	return cei_raise(cei_object_report(&op->object), CEOV_ERR_INVALID, 0,
			 "%s: the op is a %s, which has no groups", call, op->kind->name);
}

/* Returns how many pieces have rows: with very few rows the last ones have none. */
static uint32_t n_groups(const ceov_op *op)
{
	uint32_t n = op->choice.n_pieces;
	uint64_t n_rows;

	for (; n > 1; n--) {
		(void)cei_piece_rows(&op->choice.cut, op->shape.rows[0], op->choice.n_pieces, n - 1,
				     &n_rows);
		if (n_rows)
			break;
	}
	return n;
}

static int check_group(const ceov_op *op, uint32_t group, const char *call)
{
	int r = check_op(op, call);

	if (r || group < n_groups(op))
		return r;
	return cei_raise(cei_object_report(&op->object), CEOV_ERR_INVALID, 0,
			 "%s: rank %u: there is no group %u, the op has %u", call,
			 op->workspace->rank, group, n_groups(op));
}

uint32_t ceov_gemm_marks_groups(const ceov_op *op)
{
	return op && !check_op(op, "ceov_gemm_marks_groups") ? n_groups(op) : 0;
}

int ceov_gemm_marks_rows(const ceov_op *op, uint32_t group, uint64_t *ret_first,
			 uint64_t *ret_n_rows)
{
	static const char call[] = "ceov_gemm_marks_rows";
	int r = check_group(op, group, call);

	if (r)
		return r;
	if (!ret_first || !ret_n_rows)
		return cei_raise(cei_object_report(&op->object), CEOV_ERR_INVALID, 0,
				 "%s: rank %u: no ret_first or no ret_n_rows", call,
				 op->workspace->rank);
	*ret_first = cei_piece_rows(&op->choice.cut, op->shape.rows[0], op->choice.n_pieces, group,
				    ret_n_rows);
	return 0;
}

/* --- waiting --------------------------------------------------------------- */

static int refuse_wait(const ceov_op *op, const char *why)
{
	return cei_raise(cei_object_report(&op->object), CEOV_ERR_STATE, 0,
			 "ceov_gemm_marks_wait: rank %u: %s", op->workspace->rank, why);
}

/* Returns the error that ended a run of the workspace, or 0. */
static int failed(const ceov_op *op)
{
	const ceov_workspace *workspace = op->workspace;
	/* acquire: pairs with cei_workspace_fail() */
	int error = atomic_load_explicit(&workspace->error, memory_order_acquire);

	return error ? cei_raise(cei_object_report(&op->object), error, 0,
				 "ceov_gemm_marks_wait: a run of workspace '%s' of rank %u has "
				 "failed (%s)", workspace->name, workspace->rank,
				 ceov_strerror(error)) : 0;
}

/* Returns the number of the run that is meant, or 0: no run was begun. *ret_last is that of the
 * last one. */
static uint64_t number_of(const ceov_op *op, uint64_t run, uint64_t *ret_last)
{
	/* relaxed: what a run has queued or stored is announced by its marks, and by the lock */
	*ret_last = atomic_load_explicit(&op->marks.n_runs, memory_order_relaxed);
	return run ? run : *ret_last;
}

static int wait_on_host(const ceov_op *op, uint64_t run, uint32_t group)
{
	uint64_t deadline_ns = cei_deadline(op->workspace->deadline_ns), last;
	uint64_t number = number_of(op, run, &last);
	int r;

	if (!number)
		return refuse_wait(op, "no run was begun yet, so there is no last one");
	do {
		r = ceov_signal_wait(op->marks.signal, group, number, LOOK_NS);
		if (r != CEOV_PENDING)
			return r;
		r = failed(op);
	} while (!r && cei_now_ns() < deadline_ns);
	return r ? r : cei_raise(cei_object_report(&op->object), CEOV_ERR_TIMEOUT, 0,
				 "ceov_gemm_marks_wait: rank %u: group %u of run %" PRIu64
				 " is not stored within the deadline; %" PRIu64 " runs were begun",
				 op->workspace->rank, group, number, last);
}

/* The caller holds the workspace's lock, so runs that were begun are queued. */
static int wait_on_stream(ceov_op *op, uint64_t run, uint32_t group, void *stream)
{
	struct cei_executor *executor = &op->workspace->executor;
	struct ceov_mark mark = { op->marks.signal, group, 1 };
	uint64_t last, number = number_of(op, run, &last);
	int r = failed(op);

	if (r)
		return r;
	if (!number || number > last)
		return refuse_wait(op, "that run was not queued yet; a stream that waits for it "
				   "might keep it from beginning");
	if (op->marks.is_captured && number != last)
		return refuse_wait(op, "a captured run came after that run, and counts from 0 "
				   "again");
	if (op->marks.is_captured)
		r = executor->ops->join(executor, stream, op->marks.fork);
	else
		mark.value = number;
	return r ? r : ceov_stream_wait(op->workspace->object.context, op->workspace->rank,
					stream, &mark, 1, 0);
}

int ceov_gemm_marks_wait(ceov_op *op, uint64_t run, uint32_t group, void *stream)
{
	int r = check_group(op, group, "ceov_gemm_marks_wait");

	if (r)
		return r;
	if (op->workspace->is_host)     /* whose lock is held during a run */
		return wait_on_host(op, run, group);
	/* first, since a wrong stream would spoil the capture that it joined */
	r = cei_op_check_stream(op, stream);
	if (r)
		return r;
	pthread_mutex_lock(&op->workspace->lock);
	r = wait_on_stream(op, run, group, stream);
	pthread_mutex_unlock(&op->workspace->lock);
	return r;
}

/* --- the kind -------------------------------------------------------------- */

static const struct cei_product_kind product = { .job = job_of, .ask = ask };

const struct cei_op_kind cei_gemm_marks = {
	.name = "ceov_gemm_marks",
	.key = "gemm_marks",
	.run_call = "ceov_gemm_marks_run",
	.run_bytes = sizeof(struct ceov_gemm_marks_run),
	.is_local = 1,
	.shape = shape_of,
	.fault = cei_product_fault,
	.lacks = cei_product_lacks,
	.row_bytes = cei_product_row_bytes,
	.scratch_bytes = scratch_bytes,
	.pieces = cei_product_pieces,
	.choose = cei_product_choose,
	.explain = cei_product_explain,
	.build = build,
	.take = take_operands,
	.job = queue_job,
	.fini = fini,
	.product = &product,
};
