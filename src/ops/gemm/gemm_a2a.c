/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * GEMM + all-to-all. One half of scratch holds two parts. The first has this rank's product, from
 * which blocks are sent; the place for its own block is not read. The second has the blocks that
 * peers send, in the layout of the result; the place for the own block is unused, because tiles
 * store that in the caller's memory.
 *
 * No run waits until its blocks were sent, because they stay in scratch, and the same half is
 * written again only two runs later (workspace.c says why that is enough).
 */

#include <stddef.h>
#include <string.h>

#include "base/sized.h"
#include "ops/compute/dtype.h"
#include "ops/core/arrivals.h"
#include "ops/core/operands.h"
#include "ops/core/run.h"
#include "ops/gemm/a2a.h"
#include "ops/gemm/columns.h"
#include "ops/gemm/cost_sim.h"
#include "ops/gemm/product.h"
#include "ops/gemm/whole.h"
#include "ops/kinds.h"

#define PART_ALIGN_BYTES 256u

/* --- shapes ---------------------------------------------------------------- */

/* Fills what the cost model reads: how many rows the largest block to each rank has, and how many
 * columns. */
static void fill_model(struct cei_op_shape *shape)
{
	const struct cei_a2a_shape *a2a = &shape->a2a;
	uint32_t n_ranks = shape->n_ranks, source, target;
	uint64_t rows;

	if (a2a->is_by_columns)
		shape->product.n[0] = cei_a2a_most(a2a->columns, n_ranks);
	for (target = 0; target < n_ranks; target++) {
		for (source = 0; source < n_ranks; source++) {
			rows = a2a->is_by_columns ? a2a->rows[source]
				: cei_op_block(shape, source, target);
			if (rows > shape->rows[target])
				shape->rows[target] = rows;
		}
	}
}

static const struct ceov_op_tuning *shape_of(struct cei_op_shape *shape, const void *from,
					     uint32_t n_ranks)
{
	const struct ceov_gemm_a2a *taken = from;
	struct cei_a2a_from wanted;

	shape->fault = cei_sized_fault(from, sizeof(*taken), sizeof(*taken));
	if (shape->fault)
		return NULL;
	wanted = (struct cei_a2a_from){ taken->dtype, taken->rows_of, taken->rows, taken->columns,
					taken->k, taken->n, taken->b_is_k_by_n };
	if (!cei_a2a_take(shape, &wanted, n_ranks))
		return taken->tuning;
	if (taken->columns && cei_a2a_sum(taken->columns, n_ranks) != taken->n)
		shape->fault = "n is not the sum of columns";
	fill_model(shape);
	return taken->tuning;
}

/* Returns how many columns the rank's product has. */
static uint64_t width_of(const struct cei_op_shape *shape)
{
	return shape->a2a.is_by_columns
		? cei_a2a_sum(shape->a2a.columns, shape->n_ranks)
		: shape->product.n[0];
}

/* Returns how many columns the blocks have that `rank` receives. */
static uint64_t part_of(const struct cei_op_shape *shape, uint32_t rank)
{
	return shape->a2a.is_by_columns ? shape->a2a.columns[rank]
		: shape->product.n[0];
}

/* Returns how many rows the product of `source` has. */
static uint64_t product_rows(const struct cei_op_shape *shape, uint32_t source)
{
	return shape->a2a.is_by_columns ? shape->a2a.rows[source]
		: cei_op_block_leaves(shape, source, shape->n_ranks);
}

/* Returns how many rows the block from source to target has; 0 also if it has no columns. */
static uint64_t block_rows(const struct cei_op_shape *shape, uint32_t source, uint32_t target)
{
	if (!part_of(shape, target))
		return 0;
	return shape->a2a.is_by_columns ? shape->a2a.rows[source]
		: cei_op_block(shape, source, target);
}

/* Returns the first row of the block from `source` in the result of `target`. If source is n_ranks,
 * returns how many rows the result has. */
static uint64_t arrives_row(const struct cei_op_shape *shape, uint32_t source, uint32_t target)
{
	return shape->a2a.is_by_columns ? cei_a2a_sum(shape->a2a.rows, source)
		: cei_op_block_arrives(shape, source, target);
}

/* Returns the offset in a target's result of a row of the block from source. */
static uint64_t arrives_at(const struct cei_op_shape *shape, uint32_t source, uint32_t target,
			   uint64_t row)
{
	return (arrives_row(shape, source, target) + row) * part_of(shape, target) *
		CEI_DTYPE16_BYTES;
}

static uint64_t result_bytes(const struct cei_op_shape *shape, uint32_t rank)
{
	return arrives_at(shape, shape->n_ranks, rank, 0);
}

/* Returns the offset in a half of scratch of what peers send. */
static uint64_t received_at(const struct cei_op_shape *shape)
{
	uint64_t most = 0, rows, bytes;
	uint32_t rank;

	for (rank = 0; rank < shape->n_ranks; rank++) {
		rows = product_rows(shape, rank);
		most = rows > most ? rows : most;
	}
	bytes = most * width_of(shape) * CEI_DTYPE16_BYTES;
	return (bytes + PART_ALIGN_BYTES - 1) / PART_ALIGN_BYTES * PART_ALIGN_BYTES;
}

static uint64_t scratch_bytes(const struct cei_op_shape *shape)
{
	uint64_t most = 0, bytes;
	uint32_t rank;

	for (rank = 0; rank < shape->n_ranks; rank++) {
		bytes = result_bytes(shape, rank);
		most = bytes > most ? bytes : most;
	}
	return received_at(shape) + most;
}

uint64_t ceov_gemm_a2a_scratch_bytes(const struct ceov_gemm_a2a *from, uint32_t n_ranks)
{
	return cei_op_scratch_bytes(&cei_gemm_a2a, from, n_ranks);
}

/* --- one after the other --------------------------------------------------- */

/* Blocks come to the begin of the half, which has no product in it then. Rows are divided. */
static void span_of(const struct cei_op_shape *shape, uint32_t own, uint32_t rank,
		    struct cei_direct_span *span)
{
	*span = (struct cei_direct_span){
		.leaves = cei_op_block_leaves(shape, own, rank) * cei_product_row_bytes(shape),
		.n_leaves = block_rows(shape, own, rank) * cei_product_row_bytes(shape),
		.there = arrives_at(shape, own, rank, 0),
		.here = arrives_at(shape, rank, own, 0),
		.n_here = block_rows(shape, rank, own) * cei_product_row_bytes(shape),
	};
	span->place = span->here;
}

static struct cei_whole_ends ends_of(const ceov_op *op, const void *operands)
{
	const struct ceov_gemm_a2a_run *run = operands;

	return (struct cei_whole_ends){ op->product.whole, run->c };
}

static const struct cei_whole_kind whole = {
	0, product_rows, span_of, ends_of,
	cei_columns_choose, cei_a2a_explain, cei_columns_candidates
};

/* --- tiles ----------------------------------------------------------------- */

static void ask(const ceov_op *op, struct cei_tiles_args *args, uint64_t rows[CEI_OP_RANKS_MAX])
{
	const struct cei_op_shape *shape = &op->shape;
	uint32_t i;

	if (cei_op_is_whole(op)) {
		cei_whole_ask(product_rows(shape, args->rank), args, rows);
		return;
	}
	args->exchanges = 1;
	if (shape->a2a.is_by_columns)
		args->parts = shape->a2a.columns;
	for (i = 0; i < shape->n_ranks; i++)
		rows[i] = args->parts ? product_rows(shape, args->rank)
			: block_rows(shape, args->rank, i);
	args->rows = rows;
}

/* --- transfers ------------------------------------------------------------- */

/* Sends a piece of the block for a peer, as soon as all its tiles are stored. */
static int send_piece(ceov_op *op, uint32_t target, uint32_t piece)
{
	const struct cei_op_shape *shape = &op->shape;
	uint32_t rank = op->workspace->rank, n_pieces = op->choice.n_pieces;
	uint64_t row, n_rows, first;
	struct cei_send leg = { .target = target };

	leg.source_pitch_bytes = width_of(shape) * CEI_DTYPE16_BYTES;
	leg.target_pitch_bytes = part_of(shape, target) * CEI_DTYPE16_BYTES;
	if (shape->a2a.is_by_columns)
		first = cei_a2a_sum(shape->a2a.columns, target) * CEI_DTYPE16_BYTES;
	else
		first = cei_op_block_leaves(shape, rank, target) * leg.source_pitch_bytes;
	row = cei_piece_rows(&op->choice.cut, block_rows(shape, rank, target), n_pieces, piece,
			     &n_rows);
	leg.source_bytes = first + row * leg.source_pitch_bytes;
	leg.target_bytes = received_at(shape) + arrives_at(shape, rank, target, row);
	leg.n_rows = n_rows;
	leg.n_bytes = n_rows ? leg.target_pitch_bytes : 0;
	leg.ready = target * n_pieces + piece;
	leg.arrives = rank * n_pieces + piece;
	return cei_send_stage_add(&op->stages[0], &leg);
}

/* Adds the transfers. The job awaits marks that say that those peers have begun the run that send
 * this rank no block. */
static int build(ceov_op *op)
{
	struct cei_send_stage *stage = &op->stages[0];
	int r;

	if (cei_op_is_whole(op))
		return cei_whole_build(op);
	r = cei_product_prepare(op);
	if (!r)
		r = cei_send_stage_open(stage, op->workspace, 0);
	if (r || op->shape.n_ranks == 1)
		return r;
	r = cei_op_say_present(op, stage, block_rows);
	if (!r)
		r = cei_op_send_pieces(op, stage, send_piece);
	return r ? r : cei_op_await_here(op, stage, block_rows);
}

/* --- the job --------------------------------------------------------------- */

static struct cei_gemm_job job_of(const ceov_op *op, const void *operands,
				  char *scratch, const struct cei_tile_list *list)
{
	const struct cei_op_shape *shape = &op->shape;
	uint32_t rank = op->workspace->rank;
	uint64_t rows = product_rows(shape, rank), width = width_of(shape);
	uint64_t k = shape->product.k;
	struct cei_gemm_job job = cei_op_is_whole(op) ? cei_whole_job(op, list)
		: cei_product_job(op, list);
	const struct ceov_gemm_a2a_run *run = operands;
	struct cei_matrix all = shape->product.b_is_k_by_n
		? cei_product_matrix(run->b, k, width) : cei_product_matrix(run->b, width, k);

	job.a[CEI_GEMM_A_OWN] = cei_product_matrix(run->a, rows, k);
	job.b[0] = shape->a2a.is_by_columns
		? cei_columns_of_b(shape, rank, run->b) : all;
	if (shape->a2a.is_by_columns)
		job.b[1] = all;
	if (cei_op_is_whole(op)) {
		job.c[0] = cei_product_matrix(op->product.whole, rows, width);
		return job;
	}
	job.c[0] = cei_product_matrix((char *)run->c + arrives_at(shape, rank, rank, 0),
				      block_rows(shape, rank, rank), part_of(shape, rank));
	job.c[CEI_GEMM_C_PARTIAL] = cei_product_matrix(scratch, rows, width);
	return job;
}

static int multiply(const struct cei_run *run, const struct cei_tile_list *list,
		    ceov_signal *ready)
{
	struct cei_executor *executor = &run->op->workspace->executor;
	struct cei_gemm_job job;

	if (!list->tiles.n_tiles)
		return 0;
	job = job_of(run->op, run->operands, cei_run_scratch(run), list);
	job.marks = cei_run_marks(run, NULL, ready);
	job.marks.sent = NULL;                  /* awaited at the end of the run */
	job.marks.n_sent = 0;
	return executor->ops->gemm(executor, run->stream, &job);
}

/* For a sequence: computes the blocks of all peers as one product, raises the marks that let them
 * be sent, then computes the own block. */
static int multiply_in_sequence(const struct cei_run *run)
{
	const ceov_op *op = run->op;
	uint32_t rank = op->workspace->rank, peer;
	int r = multiply(run, &op->product.others, NULL);

	for (peer = 0; !r && peer < op->shape.n_ranks; peer++)
		if (peer != rank && block_rows(&op->shape, rank, peer))
			r = cei_run_raise(run, op->workspace->ready, peer);
	return r ? r : multiply(run, &op->product.own, NULL);
}

/* Copies the pieces first to first + n - 1 of the block from `source` to the caller's memory, once
 * they have arrived. */
static int copy_pieces(const struct cei_run *run, uint32_t source, uint32_t first, uint32_t n)
{
	const struct ceov_gemm_a2a_run *operands = run->operands;
	const ceov_op *op = run->op;
	const struct cei_op_shape *shape = &op->shape;
	struct cei_executor *executor = &op->workspace->executor;
	uint32_t rank = op->workspace->rank, n_pieces = op->choice.n_pieces;
	uint64_t rows = block_rows(shape, source, rank), row, n_rows, at, n_bytes;
	int r = cei_run_await(run, cei_run_arrived(run), source * n_pieces + first, n);

	if (r)
		return r;
	row = cei_arrivals_rows(run, rows, first, n, &n_rows);
	at = arrives_at(shape, source, rank, row);
	n_bytes = n_rows * part_of(shape, rank) * CEI_DTYPE16_BYTES;
	return executor->ops->copy(executor, run->stream, (char *)operands->c + at,
				   cei_run_scratch(run) + received_at(shape) + at, n_bytes);
}

static uint64_t rows_from(const ceov_op *op, uint32_t source)
{
	return block_rows(&op->shape, source, op->workspace->rank);
}

static int queue_job(const struct cei_run *run)
{
	static const struct cei_arrivals arrivals = { rows_from, NULL, copy_pieces };
	const ceov_op *op = run->op;
	int r;

	if (cei_op_is_whole(op))
		return cei_whole_run(run);
	r = op->choice.mode == CEOV_MODE_SEQUENCE ? multiply_in_sequence(run)
		: multiply(run, &op->product.all, op->workspace->ready);

	if (!r)
		r = cei_arrivals_take(run, &arrivals);
	return r ? r : cei_run_await_sent(run);
}

int ceov_gemm_a2a_create(ceov_workspace *workspace, const struct ceov_gemm_a2a *from,
			 ceov_op **ret_op)
{
	return cei_op_create_from(workspace, &cei_gemm_a2a, from, ret_op);
}

static int take_operands(struct cei_run *run)
{
	const struct ceov_gemm_a2a_run *from = run->operands;
	const ceov_op *op = run->op;
	const struct cei_op_shape *shape = &op->shape;
	uint32_t rank = op->workspace->rank;
	uint64_t k_bytes = shape->product.k * CEI_DTYPE16_BYTES;
	uint64_t rows = product_rows(shape, rank);
	const struct cei_operand operands[] = {
		{ "a", from->a, rows * k_bytes, 0 },
		{ "b", from->b, rows ? width_of(shape) * k_bytes : 0, 0 },
		{ "c", from->c, result_bytes(shape, rank), 1 },
	};

	run->stream = from->stream;
	return cei_operands_take(run, operands, 3);
}

int ceov_gemm_a2a_run(ceov_op *op, const struct ceov_gemm_a2a_run *operands)
{
	return cei_op_run(op, cei_gemm_a2a.run_call, operands);
}

/* --- the cost model -------------------------------------------------------- */

/* Simulates the tiles of the peers' blocks and their copies, then the tiles of the own block. The
 * copies from scratch to the result are left out: they take the same time whatever is chosen. */
static void play(struct cei_play *play)
{
	double arrived_ns[CEI_OP_PIECES_MAX];
	uint64_t n_rows;
	uint32_t piece;

	cei_play_sends(play, arrived_ns);
	for (piece = 0; piece < play->n_pieces; piece++) {
		(void)cei_piece_rows(&play->cut, play->shape->rows[0], play->n_pieces, piece,
				     &n_rows);
		(void)cei_play_piece(play, n_rows, 0);
		cei_play_until(play, arrived_ns[piece]);
	}
}

/* --- measuring ------------------------------------------------------------- */

static void trial_sizes(const ceov_op *op, struct cei_trial_sizes *ret_sizes)
{
	const struct cei_op_shape *shape = &op->shape;
	uint32_t rank = op->workspace->rank;

	memset(ret_sizes, 0, sizeof(*ret_sizes));
	ret_sizes->n = 1;
	ret_sizes->a = product_rows(shape, rank) * shape->product.k;
	ret_sizes->b[0] = width_of(shape) * shape->product.k;
	ret_sizes->c[0] = result_bytes(shape, rank) / CEI_DTYPE16_BYTES;
}

static int trial_run(ceov_op *op, const struct cei_trial_operands *operands)
{
	struct ceov_gemm_a2a_run run = { .struct_bytes = sizeof(run) };

	run.stream = operands->stream;
	run.a = operands->a;
	run.b = operands->b[0];
	run.c = operands->c[0];
	return ceov_gemm_a2a_run(op, &run);
}

static const struct cei_op_trial trial = {
	cei_whole_candidates, trial_sizes, trial_run
};

static const struct cei_product_kind product = {
	.scatters = 1, .play = play, .job = job_of, .ask = ask, .whole = &whole,
};

/* --- the kind -------------------------------------------------------------- */

const struct cei_op_kind cei_gemm_a2a = {
	.name = "ceov_gemm_a2a",
	.key = "gemm_a2a",
	.run_call = "ceov_gemm_a2a_run",
	.run_bytes = sizeof(struct ceov_gemm_a2a_run),
	.n_stages = 1,
	.shape = shape_of,
	.fault = cei_a2a_fault,
	.lacks = cei_columns_lacks,
	.direct_fault = cei_whole_fault,
	.row_bytes = cei_product_row_bytes,     /* the rows of the model are those of the largest
						 * block */
	.scratch_bytes = scratch_bytes,
	.pieces = cei_product_pieces,
	.choose = cei_whole_choose,
	.explain = cei_whole_explain,
	.build = build,
	.take = take_operands,
	.job = queue_job,
	.fini = cei_product_fini,
	.trial = &trial,
	.product = &product,
};
