/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * All-to-all + GEMM. One half of scratch receives the rows of A, in the layout of the product.
 *
 * If rows are divided, tiles of the rank's own rows read the caller's memory, and those of others'
 * rows start as these arrive; the place for the own rows in scratch is unused.
 *
 * If columns are divided, each row of the product needs a part from every rank. A tile awaits one
 * mark only, and the marks of several ranks are not ordered. So the rows are computed piece after
 * piece, each by a product of its own, before which the stream waits for the piece of every rank.
 * The own part is copied to scratch first.
 */

#include <stddef.h>
#include <string.h>

#include "base/sized.h"
#include "ops/compute/dtype.h"
#include "ops/core/operands.h"
#include "ops/core/run.h"
#include "ops/gemm/cost_sim.h"
#include "ops/gemm/a2a.h"
#include "ops/gemm/product.h"
#include "ops/gemm/whole.h"
#include "ops/kinds.h"

/* --- shapes ---------------------------------------------------------------- */

/* Fills what the cost model reads. If rows are divided: how many rows the largest block of each
 * rank has. If columns are: all rows of the product of the rank that has most, as rows of rank 0,
 * because there is one product of so many rows, and not one for each rank. */
static void fill_model(struct cei_op_shape *shape)
{
	uint32_t n_ranks = shape->n_ranks, source, target;
	uint64_t rows;

	if (shape->a2a.is_by_columns) {
		shape->rows[0] = cei_a2a_most(shape->a2a.rows, n_ranks);
		return;
	}
	for (source = 0; source < n_ranks; source++) {
		for (target = 0; target < n_ranks; target++) {
			rows = cei_op_block(shape, source, target);
			if (rows > shape->rows[source])
				shape->rows[source] = rows;
		}
	}
}

static const struct ceov_op_tuning *shape_of(struct cei_op_shape *shape, const void *from,
					     uint32_t n_ranks)
{
	const struct ceov_a2a_gemm *taken = from;
	struct cei_a2a_from wanted;

	shape->fault = cei_sized_fault(from, sizeof(*taken), sizeof(*taken));
	if (shape->fault)
		return NULL;
	wanted = (struct cei_a2a_from){ taken->dtype, taken->rows_of, taken->rows, taken->columns,
					taken->k, taken->n, taken->b_is_k_by_n };
	if (!cei_a2a_take(shape, &wanted, n_ranks))
		return taken->tuning;
	if (taken->columns && cei_a2a_sum(taken->columns, n_ranks) != taken->k)
		shape->fault = "k is not the sum of columns";
	fill_model(shape);
	return taken->tuning;
}

/* Returns how many columns of A `rank` has. */
static uint64_t part_of(const struct cei_op_shape *shape, uint32_t rank)
{
	return shape->a2a.is_by_columns ? shape->a2a.columns[rank] : shape->product.k;
}

/* Returns how many rows the block from source to target has; 0 also if it has no columns. */
static uint64_t block_rows(const struct cei_op_shape *shape, uint32_t source, uint32_t target)
{
	if (!part_of(shape, source))
		return 0;
	return shape->a2a.is_by_columns ? shape->a2a.rows[target]
		: cei_op_block(shape, source, target);
}

/* Returns the offset in the A of `source` of a row of the block for `target`. If target is n_ranks,
 * returns the size of A. */
static uint64_t leaves_at(const struct cei_op_shape *shape, uint32_t source, uint32_t target,
			  uint64_t row)
{
	uint64_t before = shape->a2a.is_by_columns
		? cei_a2a_sum(shape->a2a.rows, target)
		: cei_op_block_leaves(shape, source, target);

	return (before + row) * part_of(shape, source) * CEI_DTYPE16_BYTES;
}

static uint64_t k_bytes(const struct cei_op_shape *shape)
{
	return shape->product.k * CEI_DTYPE16_BYTES;
}

/* Returns the offset in a half of scratch of the target of a row of the block from source. */
static uint64_t arrives_at(const struct cei_op_shape *shape, uint32_t source, uint32_t target,
			   uint64_t row)
{
	if (shape->a2a.is_by_columns)
		return row * k_bytes(shape) +
			cei_a2a_sum(shape->a2a.columns, source) * CEI_DTYPE16_BYTES;
	return (cei_op_block_arrives(shape, source, target) + row) * k_bytes(shape);
}

/* Returns how many rows the product of `rank` has. */
static uint64_t product_rows(const struct cei_op_shape *shape, uint32_t rank)
{
	return shape->a2a.is_by_columns ? shape->a2a.rows[rank]
		: cei_op_block_arrives(shape, shape->n_ranks, rank);
}

/* Rows of the model are those of the largest block. */
static uint64_t row_bytes(const struct cei_op_shape *shape)
{
	if (shape->a2a.is_by_columns)
		return cei_a2a_most(shape->a2a.columns, shape->n_ranks) *
			CEI_DTYPE16_BYTES;
	return k_bytes(shape);
}

static uint64_t scratch_bytes(const struct cei_op_shape *shape)
{
	uint64_t most = 0, rows;
	uint32_t rank;

	for (rank = 0; rank < shape->n_ranks; rank++) {
		rows = product_rows(shape, rank);
		most = rows > most ? rows : most;
	}
	return most * k_bytes(shape);
}

uint64_t ceov_a2a_gemm_scratch_bytes(const struct ceov_a2a_gemm *from, uint32_t n_ranks)
{
	return cei_op_scratch_bytes(&cei_a2a_gemm, from, n_ranks);
}

/* --- one after the other --------------------------------------------------- */

/* Rows are divided. */
static void span_of(const struct cei_op_shape *shape, uint32_t own, uint32_t rank,
		    struct cei_direct_span *span)
{
	*span = (struct cei_direct_span){
		.leaves = leaves_at(shape, own, rank, 0),
		.n_leaves = block_rows(shape, own, rank) * k_bytes(shape),
		.there = arrives_at(shape, own, rank, 0),
		.here = arrives_at(shape, rank, own, 0),
		.n_here = block_rows(shape, rank, own) * k_bytes(shape),
	};
	span->place = span->here;
}

static struct cei_whole_ends ends_of(const ceov_op *op, const void *operands)
{
	const struct ceov_a2a_gemm_run *run = operands;

	return (struct cei_whole_ends){ run->a, op->product.whole };
}

static const struct cei_whole_kind whole = {
	0, product_rows, span_of, ends_of,
	cei_product_choose, cei_a2a_explain, cei_product_candidates
};

/* --- tiles ----------------------------------------------------------------- */

/* If columns are divided, all tiles are those of one rank. */
static void ask(const ceov_op *op, struct cei_tiles_args *args, uint64_t rows[CEI_OP_RANKS_MAX])
{
	const struct cei_op_shape *shape = &op->shape;
	uint32_t rank = args->rank, i;

	if (cei_op_is_whole(op)) {
		cei_whole_ask(product_rows(shape, rank), args, rows);
		return;
	}
	args->rows = rows;
	for (i = 0; i < shape->n_ranks; i++)
		rows[i] = block_rows(shape, i, rank);
	if (!shape->a2a.is_by_columns)
		return;
	rows[0] = product_rows(shape, rank);
	args->rank = 0;
	args->n_ranks = 1;
}

/* --- transfers ------------------------------------------------------------- */

/* Returns the counter of a piece from source. If columns are divided, those of a piece from all
 * ranks are neighbours, because they are awaited together. */
static uint32_t counter_of(const ceov_op *op, uint32_t source, uint32_t piece)
{
	return op->shape.a2a.is_by_columns ? piece * op->shape.n_ranks + source
		: source * op->choice.n_pieces + piece;
}

static int send_piece(ceov_op *op, uint32_t target, uint32_t piece)
{
	const struct cei_op_shape *shape = &op->shape;
	uint32_t rank = op->workspace->rank;
	struct cei_send leg = { .target = target, .ready = CEOV_NOBODY };
	uint64_t row, n_rows;

	row = cei_piece_rows(&op->choice.cut, block_rows(shape, rank, target), op->choice.n_pieces,
			     piece, &n_rows);
	leg.source_pitch_bytes = part_of(shape, rank) * CEI_DTYPE16_BYTES;
	leg.target_pitch_bytes = k_bytes(shape);
	leg.source_bytes = leaves_at(shape, rank, target, row);
	leg.target_bytes = arrives_at(shape, rank, target, row);
	leg.n_rows = n_rows;
	leg.n_bytes = n_rows ? leg.source_pitch_bytes : 0;
	leg.arrives = counter_of(op, rank, piece);
	return cei_send_stage_add(&op->stages[0], &leg);
}

/* If rows are divided, pieces leave as tiles use them. If columns are, the first pieces of all
 * leave first, because a piece is computed when it has come from all ranks. */
static int send_all(ceov_op *op, struct cei_send_stage *stage)
{
	return op->shape.a2a.is_by_columns ? cei_op_send_in_turn(op, stage, send_piece)
		: cei_op_send_pieces(op, stage, send_piece);
}

/* Adds the transfers. The first counters of `sent` say that this rank's A was sent; each further
 * one says that one peer, which sends no block to this rank, has begun the run. */
static int add_transfers(ceov_op *op)
{
	const struct cei_op_shape *shape = &op->shape;
	uint32_t rank = op->workspace->rank, n_ranks = shape->n_ranks;
	struct cei_send_stage *stage = &op->stages[0];
	int r = cei_send_stage_open(stage, op->workspace, leaves_at(shape, rank, n_ranks, 0));

	if (r || n_ranks == 1)
		return r;
	cei_send_stage_follow(stage);
	stage->says_sent = 1;
	r = cei_op_say_present(op, stage, block_rows);
	if (!r)
		r = send_all(op, stage);
	return r ? r : cei_op_await_here(op, stage, block_rows);
}

static int build(ceov_op *op)
{
	int r;

	if (cei_op_is_whole(op))
		return cei_whole_build(op);
	r = cei_product_prepare(op);
	if (!r && op->shape.a2a.is_by_columns)
		r = cei_product_cut(op, product_rows(&op->shape, op->workspace->rank));
	return r ? r : add_transfers(op);
}

/* --- the job --------------------------------------------------------------- */

/* Returns whether the whole A of the product is this rank's own, because no other rank has columns:
 * then tiles read the caller's memory. */
static int has_all_columns(const ceov_op *op)
{
	return part_of(&op->shape, op->workspace->rank) == op->shape.product.k;
}

static struct cei_gemm_job job_of(const ceov_op *op, const void *operands,
				  char *scratch, const struct cei_tile_list *list)
{
	const struct cei_op_shape *shape = &op->shape;
	uint32_t rank = op->workspace->rank;
	uint64_t rows = product_rows(shape, rank), k = shape->product.k;
	struct cei_gemm_job job = cei_op_is_whole(op) ? cei_whole_job(op, list)
		: cei_product_job(op, list);
	const struct ceov_a2a_gemm_run *run = operands;
	const char *own = (const char *)run->a + leaves_at(shape, rank, rank, 0);

	if (cei_op_is_whole(op)) {
		job.a[CEI_GEMM_A_OWN] = cei_product_matrix(op->product.whole, rows, k);
	} else if (!shape->a2a.is_by_columns) {
		job.a[CEI_GEMM_A_OWN] =
			cei_product_matrix(own, block_rows(shape, rank, rank), k);
		job.a[CEI_GEMM_A_GATHERED] = cei_product_matrix(scratch, rows, k);
	} else {
		job.a[CEI_GEMM_A_OWN] =
			cei_product_matrix(has_all_columns(op) ? own : scratch, rows, k);
	}
	job.b[0] = cei_product_b(shape, 0, run->b);
	job.c[0] = cei_product_matrix(run->c, rows, shape->product.n[0]);
	return job;
}

static int multiply(const struct cei_run *run, const struct cei_tile_list *list,
		    ceov_signal *awaited)
{
	struct cei_executor *executor = &run->op->workspace->executor;
	struct cei_gemm_job job;

	if (!list->tiles.n_tiles)
		return 0;
	job = job_of(run->op, run->operands, cei_run_scratch(run), list);
	job.marks = cei_run_marks(run, awaited, NULL);
	job.marks.sent = NULL;                  /* awaited at the end of the run */
	job.marks.n_sent = 0;
	return executor->ops->gemm(executor, run->stream, &job);
}

/* Makes the stream wait until a piece has come from the peers that send one: from those with
 * neighbouring counters in one wait. */
static int await_piece(const struct cei_run *run, uint32_t piece)
{
	const ceov_op *op = run->op;
	uint32_t rank = op->workspace->rank, n_ranks = op->shape.n_ranks, source, n = 0;
	int r = 0;

	for (source = 0; !r && source <= n_ranks; source++) {
		if (source < n_ranks && source != rank && block_rows(&op->shape, source, rank)) {
			n++;
			continue;
		}
		if (n)
			r = cei_run_await(run, cei_run_arrived(run),
					  counter_of(op, source - n, piece), n);
		n = 0;
	}
	return r;
}

static int copy_own(const struct cei_run *run)
{
	const struct ceov_a2a_gemm_run *operands = run->operands;
	const struct cei_op_shape *shape = &run->op->shape;
	struct cei_executor *executor = &run->op->workspace->executor;
	uint32_t rank = run->op->workspace->rank;
	struct cei_rows rows;

	if (has_all_columns(run->op))
		return 0;
	rows.target = cei_run_scratch(run) + arrives_at(shape, rank, rank, 0);
	rows.source = (const char *)operands->a + leaves_at(shape, rank, rank, 0);
	rows.row_bytes = part_of(shape, rank) * CEI_DTYPE16_BYTES;
	rows.n_rows = block_rows(shape, rank, rank);
	rows.target_pitch_bytes = k_bytes(shape);
	rows.source_pitch_bytes = rows.row_bytes;
	return executor->ops->copy_rows(executor, run->stream, &rows);
}

static int multiply_pieces(const struct cei_run *run)
{
	const struct cei_tile_list *pieces = run->op->product.pieces;
	uint32_t piece;
	int r = copy_own(run);

	for (piece = 0; !r && piece < run->op->choice.n_pieces; piece++) {
		if (!pieces[piece].tiles.n_tiles)
			continue;
		r = await_piece(run, piece);
		if (!r)
			r = multiply(run, &pieces[piece], NULL);
	}
	return r;
}

/* For a sequence: makes the stream wait until the rows of all peers have arrived. */
static int await_rows(const struct cei_run *run)
{
	const ceov_op *op = run->op;
	uint32_t rank = op->workspace->rank, peer;
	int r = 0;

	for (peer = 0; !r && peer < op->shape.n_ranks; peer++)
		if (peer != rank && block_rows(&op->shape, peer, rank))
			r = cei_run_await(run, cei_run_arrived(run), peer, 1);
	return r;
}

static int multiply_rows(const struct cei_run *run)
{
	int is_sequence = run->op->choice.mode == CEOV_MODE_SEQUENCE;
	int r = is_sequence ? await_rows(run) : 0;

	return r ? r : multiply(run, &run->op->product.all,
				is_sequence ? NULL : cei_run_arrived(run));
}

static int queue_job(const struct cei_run *run)
{
	int r;

	if (cei_op_is_whole(run->op))
		return cei_whole_run(run);
	r = run->op->shape.a2a.is_by_columns ? multiply_pieces(run) : multiply_rows(run);
	return r ? r : cei_run_await_sent(run);
}

int ceov_a2a_gemm_create(ceov_workspace *workspace, const struct ceov_a2a_gemm *from,
			 ceov_op **ret_op)
{
	return cei_op_create_from(workspace, &cei_a2a_gemm, from, ret_op);
}

static int take_operands(struct cei_run *run)
{
	const struct ceov_a2a_gemm_run *from = run->operands;
	const ceov_op *op = run->op;
	const struct cei_op_shape *shape = &op->shape;
	uint32_t rank = op->workspace->rank;
	uint64_t rows = product_rows(shape, rank);
	const struct cei_operand operands[] = {
		{ "a", from->a, leaves_at(shape, rank, shape->n_ranks, 0), 0 },
		{ "b", from->b, rows ? shape->product.n[0] * k_bytes(shape) : 0, 0 },
		{ "c", from->c, rows * shape->product.n[0] * CEI_DTYPE16_BYTES, 1 },
	};

	run->stream = from->stream;
	run->floating[0] = from->a;
	return cei_operands_take(run, operands, 3);
}

int ceov_a2a_gemm_run(ceov_op *op, const struct ceov_a2a_gemm_run *operands)
{
	return cei_op_run(op, cei_a2a_gemm.run_call, operands);
}

/* --- the cost model -------------------------------------------------------- */

/* Simulates the product of each piece, which begins when the one before has ended and the piece has
 * come from all peers. */
static void play_pieces(struct cei_play *play)
{
	const struct cei_op_shape *shape = play->shape;
	uint64_t columns = row_bytes(shape) / CEI_DTYPE16_BYTES, n_rows;
	double arrival_ns = 0, end_ns = 0;
	uint32_t piece;

	for (piece = 0; piece < play->n_pieces; piece++) {
		(void)cei_piece_rows(&play->cut, shape->rows[0], play->n_pieces, piece, &n_rows);
		if (!n_rows)
			continue;
		arrival_ns += (shape->n_ranks - 1) * cei_play_copy_ns(play, n_rows, columns);
		end_ns = cei_play_piece(play, n_rows, arrival_ns > end_ns ? arrival_ns : end_ns);
	}
}

static void play(struct cei_play *play)
{
	if (play->shape->a2a.is_by_columns)
		play_pieces(play);
	else
		cei_play_gathered(play);
}

/* --- measuring ------------------------------------------------------------- */

static void trial_sizes(const ceov_op *op, struct cei_trial_sizes *ret_sizes)
{
	const struct cei_op_shape *shape = &op->shape;
	uint32_t rank = op->workspace->rank;

	memset(ret_sizes, 0, sizeof(*ret_sizes));
	ret_sizes->n = 1;
	ret_sizes->a = leaves_at(shape, rank, shape->n_ranks, 0) / CEI_DTYPE16_BYTES;
	ret_sizes->b[0] = shape->product.n[0] * shape->product.k;
	ret_sizes->c[0] = product_rows(shape, rank) * shape->product.n[0];
}

static int trial_run(ceov_op *op, const struct cei_trial_operands *operands)
{
	struct ceov_a2a_gemm_run run = { .struct_bytes = sizeof(run) };

	run.stream = operands->stream;
	run.a = operands->a;
	run.b = operands->b[0];
	run.c = operands->c[0];
	return ceov_a2a_gemm_run(op, &run);
}

static const struct cei_op_trial trial = {
	cei_whole_candidates, trial_sizes, trial_run
};

static const struct cei_product_kind product = {
	.play = play, .job = job_of, .ask = ask, .whole = &whole,
};

/* --- the kind -------------------------------------------------------------- */

const struct cei_op_kind cei_a2a_gemm = {
	.name = "ceov_a2a_gemm",
	.key = "a2a_gemm",
	.run_call = "ceov_a2a_gemm_run",
	.run_bytes = sizeof(struct ceov_a2a_gemm_run),
	.n_stages = 1,
	.gathers = 1,
	.shape = shape_of,
	.fault = cei_a2a_fault,
	.lacks = cei_product_lacks,
	.direct_fault = cei_whole_fault,
	.row_bytes = row_bytes,
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
