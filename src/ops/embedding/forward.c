/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Embedding bags + all-to-all. One half of scratch holds two parts. The first has the vectors that
 * this rank has pooled, [samples of all ranks][own columns], so that what goes to a rank lies
 * together; the place of the own samples is unused, because their vectors are stored in the
 * result. The second has what peers send, block after block: [own samples][the source's columns].
 *
 * Each piece of a block is looked up by a kernel of its own, behind which the stream raises the
 * mark that lets it leave. Rank r begins with the samples of rank r + 1 and ends with its own.
 */

#include <stddef.h>

#include "ops/core/arrivals.h"
#include "ops/core/operands.h"
#include "ops/embedding/layout.h"
#include "ops/kinds.h"

#define PART_ALIGN_BYTES 256u

/* --- where things lie ------------------------------------------------------ */

/* Returns how many samples the block from source to target has; 0: nothing is sent. */
static uint64_t block_rows(const struct cei_op_shape *shape, uint32_t source, uint32_t target)
{
	return cei_embedding_width(shape, source) ? shape->rows[target] : 0;
}

/* Returns the offset in a half of scratch of what peers send. */
static uint64_t received_at(const struct cei_op_shape *shape)
{
	uint64_t bytes = cei_op_all_rows(shape) * cei_embedding_row_bytes(shape);

	return (bytes + PART_ALIGN_BYTES - 1) / PART_ALIGN_BYTES * PART_ALIGN_BYTES;
}

/* Returns the offset in a half of the target's scratch of a row of the block from source. */
static uint64_t arrives_at(const struct cei_op_shape *shape, uint32_t source, uint32_t target,
			   uint64_t row)
{
	return received_at(shape) +
		shape->rows[target] * cei_embedding_widths_before(shape, source) +
		row * cei_embedding_width(shape, source);
}

static uint64_t scratch_bytes(const struct cei_op_shape *shape)
{
	return received_at(shape) + cei_op_most_rows(shape) * cei_embedding_pitch(shape);
}

uint64_t ceov_embedding_a2a_scratch_bytes(const struct ceov_embedding *from, uint32_t n_ranks)
{
	return cei_op_scratch_bytes(&cei_embedding_a2a, from, n_ranks);
}

/* --- transfers ------------------------------------------------------------- */

/* If the engine makes the transfers, each is one counted row, so that a run whose bags are wrong
 * can refuse them all by a number. */
static int send_block(ceov_op *op, uint32_t target)
{
	const struct cei_op_shape *shape = &op->shape;
	uint32_t rank = op->workspace->rank, n_pieces = op->choice.n_pieces, piece;
	uint64_t width = cei_embedding_width(shape, rank), row, n_rows;
	struct cei_send leg = { .target = target, .counts = op->counts_buffer, .count = target };
	int r = 0;

	for (piece = 0; !r && piece < n_pieces; piece++) {
		row = cei_piece_rows(&op->choice.cut, block_rows(shape, rank, target), n_pieces,
				     piece, &n_rows);
		leg.source_bytes = (cei_op_rows_before(shape, target) + row) * width;
		leg.target_bytes = arrives_at(shape, rank, target, row);
		leg.n_bytes = n_rows * width;
		leg.ready = target * n_pieces + piece;
		leg.arrives = rank * n_pieces + piece;
		r = cei_send_stage_add(&op->stages[0], &leg);
	}
	return r;
}

static int make_verdicts(ceov_op *op)
{
	uint64_t *verdicts;
	uint32_t i;
	int r;

	if (op->workspace->capture)
		return 0;
	r = cei_op_make_counts(op);
	if (r)
		return r;
	/* where the host writes them; kernels may have another address for them */
	verdicts = ceov_buffer_base(op->counts_buffer, op->workspace->rank);
	for (i = 0; i < CEI_OP_HALVES * op->shape.n_ranks; i++)
		verdicts[i] = 1;
	return 0;
}

static int build(ceov_op *op)
{
	struct cei_send_stage *stage = &op->stages[0];
	int r = cei_embedding_make_tables(op);

	if (!r)
		r = make_verdicts(op);
	if (!r)
		r = cei_send_stage_open(stage, op->workspace, 0);
	if (r || op->shape.n_ranks == 1)
		return r;
	r = cei_op_say_present(op, stage, block_rows);
	if (!r)
		r = cei_op_send_all(op, stage, send_block);
	return r ? r : cei_op_await_here(op, stage, block_rows);
}

/* --- the job --------------------------------------------------------------- */

static int look_up(const struct cei_run *run, const struct cei_embedding_job *job,
		   const struct cei_embedding_part *part)
{
	struct cei_executor *executor = &run->op->workspace->executor;

	return executor->ops->embedding->look_up(executor, run->stream, job, part);
}

static int look_up_own(const struct cei_run *run, const struct cei_embedding_job *job)
{
	const struct ceov_embedding_a2a_run *from = run->operands;
	const struct cei_op_shape *shape = &run->op->shape;
	uint32_t rank = run->op->workspace->rank;
	struct cei_embedding_part part = {
		.first = cei_op_rows_before(shape, rank),
		.n = block_rows(shape, rank, rank),
		.pitch_bytes = cei_embedding_pitch(shape),
	};

	if (!part.n)
		return 0;
	part.vectors = (char *)from->pooled + cei_embedding_widths_before(shape, rank);
	return look_up(run, job, &part);
}

/* Looks up one piece of the block for a peer, and lets it leave unless the op is a sequence. */
static int look_up_piece(const struct cei_run *run, const struct cei_embedding_job *job,
			 uint32_t target, uint32_t piece)
{
	const ceov_op *op = run->op;
	const struct cei_op_shape *shape = &op->shape;
	uint32_t rank = op->workspace->rank, n_pieces = op->choice.n_pieces;
	uint64_t width = cei_embedding_width(shape, rank);
	struct cei_embedding_part part = { .pitch_bytes = width };
	int r;

	part.first = cei_op_rows_before(shape, target) +
		cei_piece_rows(&op->choice.cut, block_rows(shape, rank, target), n_pieces, piece,
			       &part.n);
	part.vectors = cei_run_scratch(run) + part.first * width;
	if (!part.n)
		return 0;
	r = look_up(run, job, &part);
	if (r || op->choice.mode == CEOV_MODE_SEQUENCE)
		return r;
	return cei_run_raise(run, op->workspace->ready, target * n_pieces + piece);
}

static int look_up_others(const struct cei_run *run, const struct cei_embedding_job *job)
{
	uint32_t rank = run->op->workspace->rank, n_ranks = run->op->shape.n_ranks, i, piece;
	int r = 0;

	for (i = 1; i < n_ranks; i++)
		for (piece = 0; !r && piece < run->op->choice.n_pieces; piece++)
			r = look_up_piece(run, job, (rank + i) % n_ranks, piece);
	return r;
}

/* For a sequence, whose blocks have one piece: lets all of them leave. */
static int raise_all(const struct cei_run *run)
{
	const ceov_op *op = run->op;
	uint32_t rank = op->workspace->rank, n_ranks = op->shape.n_ranks, i, target;
	int r = 0;

	for (i = 1; !r && i < n_ranks; i++) {
		target = (rank + i) % n_ranks;
		if (block_rows(&op->shape, rank, target))
			r = cei_run_raise(run, op->workspace->ready, target);
	}
	return r;
}

static uint64_t rows_from(const ceov_op *op, uint32_t source)
{
	return block_rows(&op->shape, source, op->workspace->rank);
}

/* Copies pieces of the block from `source` to its columns of the result, once they have arrived. */
static int take_pieces(const struct cei_run *run, uint32_t source, uint32_t first, uint32_t n)
{
	const struct ceov_embedding_a2a_run *from = run->operands;
	const ceov_op *op = run->op;
	const struct cei_op_shape *shape = &op->shape;
	struct cei_executor *executor = &op->workspace->executor;
	uint32_t rank = op->workspace->rank, n_pieces = op->choice.n_pieces;
	uint64_t row;
	struct cei_rows rows = { .row_bytes = cei_embedding_width(shape, source) };
	int r = cei_run_await(run, cei_run_arrived(run), source * n_pieces + first, n);

	if (r)
		return r;
	row = cei_arrivals_rows(run, rows_from(op, source), first, n, &rows.n_rows);
	rows.source = cei_run_scratch(run) + arrives_at(shape, source, rank, row);
	rows.source_pitch_bytes = rows.row_bytes;
	rows.target = (char *)from->pooled + row * cei_embedding_pitch(shape) +
		cei_embedding_widths_before(shape, source);
	rows.target_pitch_bytes = cei_embedding_pitch(shape);
	return executor->ops->copy_rows(executor, run->stream, &rows);
}

static int check(const struct cei_run *run, struct cei_embedding_job *job)
{
	struct cei_executor *executor = &run->op->workspace->executor;

	if (!job->n_tables)
		return 0;
	if (run->op->counts) {
		job->n_verdicts = run->op->shape.n_ranks;
		job->verdicts = run->op->counts + run->half * job->n_verdicts;
	}
	return executor->ops->embedding->check(executor, run->stream, job);
}

static int queue_job(const struct cei_run *run)
{
	static const struct cei_arrivals arrivals = { rows_from, NULL, take_pieces };
	const struct ceov_embedding_a2a_run *from = run->operands;
	struct cei_embedding_job job = cei_embedding_job(run, &from->bags);
	int r;

	job.rows = from->tables;
	r = check(run, &job);
	if (!r)
		r = look_up_others(run, &job);
	if (!r)
		r = look_up_own(run, &job);
	if (!r && run->op->choice.mode == CEOV_MODE_SEQUENCE)
		r = raise_all(run);
	if (!r)
		r = cei_arrivals_take(run, &arrivals);
	return r ? r : cei_run_await_sent(run);
}

/* Two ranks have one block each to send, of which one half leaves while the other one is looked up.
 * With more ranks, blocks are such parts of the whole. Copies go on while the own samples are
 * looked up, so more pieces would only cost more kernels: with four, which was measured on two
 * H100, the look-ups of a block took a fifth longer. */
static uint32_t pieces_of(const struct cei_op_shape *shape)
{
	return cei_selector_pieces(shape, shape->n_ranks > 2 ? 1 : 2);
}

/* --- creation and runs ----------------------------------------------------- */

int ceov_embedding_a2a_create(ceov_workspace *workspace, const struct ceov_embedding *from,
			      ceov_op **ret_op)
{
	return cei_op_create_from(workspace, &cei_embedding_a2a, from, ret_op);
}

static int take_operands(struct cei_run *run)
{
	const struct ceov_embedding_a2a_run *from = run->operands;
	const ceov_op *op = run->op;
	const struct cei_op_shape *shape = &op->shape;
	uint32_t rank = op->workspace->rank;
	uint64_t n_indices = shape->embedding.n_tables[rank] ? from->bags.n_indices : 0;
	const struct cei_operand operands[] = {
		{ "tables", from->tables, cei_embedding_table_bytes(shape, rank), 0 },
		{ "bags.indices", from->bags.indices, n_indices * sizeof(int64_t), 0 },
		{ "bags.offsets", from->bags.offsets, cei_embedding_offsets_bytes(op), 0 },
		{ "bags.weights", from->bags.weights,
		  from->bags.weights ? n_indices * sizeof(float) : 0, 0 },
		{ "pooled", from->pooled, shape->rows[rank] * cei_embedding_pitch(shape), 1 },
	};
	int r = cei_embedding_check_bags(op, &from->bags);

	run->stream = from->stream;
	return r ? r : cei_operands_take(run, operands, 5);
}

int ceov_embedding_a2a_run(ceov_op *op, const struct ceov_embedding_a2a_run *run)
{
	return cei_op_run(op, cei_embedding_a2a.run_call, run);
}

const struct cei_op_kind cei_embedding_a2a = {
	.name = "ceov_embedding_a2a",
	.key = "embedding_a2a",
	.run_call = "ceov_embedding_a2a_run",
	.run_bytes = sizeof(struct ceov_embedding_a2a_run),
	.n_stages = 1,
	.shape = cei_embedding_shape,
	.fault = cei_embedding_fault,
	.row_bytes = cei_embedding_row_bytes,
	.scratch_bytes = scratch_bytes,
	.pieces = pieces_of,
	.choose = cei_embedding_choose,
	.explain = cei_embedding_explain,
	.build = build,
	.take = take_operands,
	.job = queue_job,
	.fini = cei_embedding_fini,
};
