/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * The backward of embedding bags + all-to-all. Gradients go back to the owners of tables: each rank
 * sends its rows' parts straight from the caller's memory. One half of scratch holds what a rank
 * receives, [samples of all ranks][own columns]; the place of the own samples is unused, because
 * their gradients are read where they are.
 */

#include "ops/core/arrivals.h"
#include "ops/core/operands.h"
#include "ops/embedding/layout.h"
#include "ops/kinds.h"

/* --- where things lie ------------------------------------------------------ */

/* Returns how many samples the block from source to target has; 0: nothing is sent. */
static uint64_t block_rows(const struct cei_op_shape *shape, uint32_t source, uint32_t target)
{
	return cei_embedding_width(shape, target) ? shape->rows[source] : 0;
}

static uint64_t scratch_bytes(const struct cei_op_shape *shape)
{
	return cei_op_all_rows(shape) * cei_embedding_row_bytes(shape);
}

uint64_t ceov_embedding_backward_scratch_bytes(const struct ceov_embedding *from, uint32_t n_ranks)
{
	return cei_op_scratch_bytes(&cei_embedding_backward, from, n_ranks);
}

/* --- transfers ------------------------------------------------------------- */

static int send_block(ceov_op *op, uint32_t target)
{
	const struct cei_op_shape *shape = &op->shape;
	uint32_t rank = op->workspace->rank, n_pieces = op->choice.n_pieces, piece;
	uint64_t width = cei_embedding_width(shape, target), row, n_rows;
	struct cei_send leg = { .target = target, .ready = CEOV_NOBODY };
	int r = 0;

	leg.source_pitch_bytes = cei_embedding_pitch(shape);
	leg.target_pitch_bytes = width;
	for (piece = 0; !r && piece < n_pieces; piece++) {
		row = cei_piece_rows(&op->choice.cut, block_rows(shape, rank, target), n_pieces,
				     piece, &n_rows);
		leg.source_bytes = row * leg.source_pitch_bytes +
			cei_embedding_widths_before(shape, target);
		leg.target_bytes = (cei_op_rows_before(shape, rank) + row) * width;
		leg.n_rows = n_rows;
		leg.n_bytes = n_rows ? width : 0;
		leg.arrives = rank * n_pieces + piece;
		r = cei_send_stage_add(&op->stages[0], &leg);
	}
	return r;
}

static int build(ceov_op *op)
{
	const struct cei_op_shape *shape = &op->shape;
	uint32_t rank = op->workspace->rank;
	struct cei_send_stage *stage = &op->stages[0];
	int r = cei_embedding_make_tables(op);

	if (!r)
		r = cei_send_stage_open(stage, op->workspace,
					shape->rows[rank] * cei_embedding_pitch(shape));
	if (r || shape->n_ranks == 1)
		return r;
	cei_send_stage_follow(stage);
	stage->says_sent = 1;
	r = cei_op_say_present(op, stage, block_rows);
	if (!r)
		r = cei_op_send_all(op, stage, send_block);
	return r ? r : cei_op_await_here(op, stage, block_rows);
}

/* --- the job --------------------------------------------------------------- */

/* Makes the results of a part of the samples, whose gradients are here. */
static int use_part(const struct cei_run *run, const struct cei_embedding_part *part)
{
	const struct ceov_embedding_backward_run *from = run->operands;
	struct cei_executor *executor = &run->op->workspace->executor;
	struct cei_embedding_job job = cei_embedding_job(run, &from->bags);
	uint64_t width = cei_embedding_width(&run->op->shape, run->op->workspace->rank);
	struct cei_rows rows = {
		.source = part->vectors,
		.row_bytes = width,
		.n_rows = part->n,
		.target_pitch_bytes = width,
		.source_pitch_bytes = part->pitch_bytes,
	};
	int r = 0;

	job.row_grads = from->row_grads;
	if (from->bag_grads) {
		rows.target = (char *)from->bag_grads + part->first * width;
		r = executor->ops->copy_rows(executor, run->stream, &rows);
	}
	if (!r && from->row_grads)
		r = executor->ops->embedding->spread(executor, run->stream, &job, part);
	return r;
}

static int use_own(const struct cei_run *run)
{
	const struct ceov_embedding_backward_run *from = run->operands;
	const struct cei_op_shape *shape = &run->op->shape;
	uint32_t rank = run->op->workspace->rank;
	struct cei_embedding_part part = {
		.first = cei_op_rows_before(shape, rank),
		.n = block_rows(shape, rank, rank),
		.pitch_bytes = cei_embedding_pitch(shape),
	};

	if (!part.n)
		return 0;
	/* spread() and copies only read it */
	part.vectors = (char *)(uintptr_t)from->grads + cei_embedding_widths_before(shape, rank);
	return use_part(run, &part);
}

static uint64_t rows_from(const ceov_op *op, uint32_t source)
{
	return block_rows(&op->shape, source, op->workspace->rank);
}

/* Uses pieces of the block from `source`, once they have arrived. */
static int take_pieces(const struct cei_run *run, uint32_t source, uint32_t first, uint32_t n)
{
	const ceov_op *op = run->op;
	uint32_t n_pieces = op->choice.n_pieces;
	struct cei_embedding_part part = { 0 };
	int r = cei_run_await(run, cei_run_arrived(run), source * n_pieces + first, n);

	if (r)
		return r;
	part.first = cei_op_rows_before(&op->shape, source) +
		cei_arrivals_rows(run, rows_from(op, source), first, n, &part.n);
	part.pitch_bytes = cei_embedding_width(&op->shape, op->workspace->rank);
	part.vectors = cei_run_scratch(run) + part.first * part.pitch_bytes;
	return use_part(run, &part);
}

/* The bags are checked without indices, which are not needed here. */
static int check(const struct cei_run *run)
{
	const struct ceov_embedding_backward_run *from = run->operands;
	struct cei_executor *executor = &run->op->workspace->executor;
	struct cei_embedding_job job = cei_embedding_job(run, &from->bags);

	if (!job.n_tables || !from->row_grads)
		return 0;
	job.bags.indices = NULL;
	return executor->ops->embedding->check(executor, run->stream, &job);
}

static int queue_job(const struct cei_run *run)
{
	static const struct cei_arrivals arrivals = { rows_from, NULL, take_pieces };
	int r = check(run);

	if (!r)
		r = use_own(run);
	if (!r)
		r = cei_arrivals_take(run, &arrivals);
	return r ? r : cei_run_await_sent(run);
}

/* More pieces of a block gain little: what is made of them is made several times as fast as they
 * arrive. */
static uint32_t pieces_of(const struct cei_op_shape *shape)
{
	return cei_selector_pieces(shape, 4);
}

/* --- creation and runs ----------------------------------------------------- */

int ceov_embedding_backward_create(ceov_workspace *workspace, const struct ceov_embedding *from,
				   ceov_op **ret_op)
{
	return cei_op_create_from(workspace, &cei_embedding_backward, from, ret_op);
}

/* Memory for no rows may be NULL: then the bags, of which all are empty, say that they are
 * wanted. */
static int check_results(const ceov_op *op, const struct ceov_embedding_backward_run *from)
{
	if (from->bag_grads || from->row_grads || !op->tables.list ||
	    (from->bags.offsets && !from->bags.n_indices))
		return 0;
	return cei_raise(cei_object_report(&op->object), CEOV_ERR_INVALID, 0,
			 "%s: rank %u: bag_grads and row_grads are NULL, one of them must be set",
			 op->kind->run_call, op->workspace->rank);
}

static int take_operands(struct cei_run *run)
{
	const struct ceov_embedding_backward_run *from = run->operands;
	const ceov_op *op = run->op;
	const struct cei_op_shape *shape = &op->shape;
	uint32_t rank = op->workspace->rank;
	uint64_t n_indices = from->row_grads && op->tables.list ? from->bags.n_indices : 0;
	uint64_t row_bytes = op->tables.most_vectors * CEI_EMBEDDING_VECTOR_BYTES;
	const struct cei_operand operands[] = {
		{ "grads", from->grads, shape->rows[rank] * cei_embedding_pitch(shape), 0 },
		{ "bags.offsets", from->bags.offsets,
		  from->row_grads ? cei_embedding_offsets_bytes(op) : 0, 0 },
		{ "bags.weights", from->bags.weights,
		  from->bags.weights ? n_indices * sizeof(float) : 0, 0 },
		{ "bag_grads", from->bag_grads, from->bag_grads ? cei_op_all_rows(shape) *
		  cei_embedding_width(shape, rank) : 0, 1 },
		{ "row_grads", from->row_grads, n_indices * row_bytes, 1 },
	};
	int r = cei_embedding_check_bags(op, &from->bags);

	run->stream = from->stream;
	run->floating[0] = from->grads;
	if (!r)
		r = check_results(op, from);
	return r ? r : cei_operands_take(run, operands, 5);
}

int ceov_embedding_backward_run(ceov_op *op, const struct ceov_embedding_backward_run *run)
{
	return cei_op_run(op, cei_embedding_backward.run_call, run);
}

const struct cei_op_kind cei_embedding_backward = {
	.name = "ceov_embedding_backward",
	.key = "embedding_backward",
	.run_call = "ceov_embedding_backward_run",
	.run_bytes = sizeof(struct ceov_embedding_backward_run),
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
