/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * GEMM + reduce-scatter. One half of scratch holds two parts. The first has this rank's partial
 * sums of all peers' rows; the place for its own rows is never written. The second is the staging:
 * the partial sums of this rank's own rows that each peer sends.
 *
 * No run waits until its partial sums were sent, because they stay in scratch, and the same half is
 * written again only two runs later (workspace.c says why that is enough).
 */

#include <stddef.h>
#include <string.h>

#include "base/sized.h"
#include "ops/compute/dtype.h"
#include "ops/core/operands.h"
#include "ops/core/run.h"
#include "ops/core/sm_lane.h"
#include "ops/gemm/cost_sim.h"
#include "ops/gemm/product.h"
#include "ops/gemm/product_lane.h"
#include "ops/gemm/whole.h"
#include "ops/kinds.h"

#define STAGING_ALIGN_BYTES 256u

static const struct ceov_op_tuning *shape_of(struct cei_op_shape *shape, const void *from,
					     uint32_t n_ranks)
{
	struct ceov_gemm_rs taken;

	shape->fault = cei_sized_fault(from, offsetof(struct ceov_gemm_rs, b_is_k_by_n),
				       sizeof(taken));
	if (shape->fault)
		return NULL;
	cei_sized_take(&taken, from, sizeof(taken));
	cei_product_take(shape, taken.dtype, taken.k, taken.n, taken.b_is_k_by_n);
	cei_op_take_rows(shape, taken.rows, n_ranks);
	return taken.tuning;
}

static const char *fault_of(const struct cei_op_shape *shape)
{
	const char *fault = cei_product_fault(shape);

	/* The kernel takes the partial sums of all sources as one matrix, and counts its rows in
	 * 31 bits. */
	if (!fault && cei_op_most_rows(shape) > CEI_EXTENT_MAX / shape->n_ranks)
		fault = "a rank has too many rows for the number of ranks";
	return fault;
}

/* Returns the offset of the staging in a half of scratch. */
static uint64_t staging_at(const struct cei_op_shape *shape)
{
	uint64_t bytes = cei_op_all_rows(shape) * cei_product_row_bytes(shape);

	return (bytes + STAGING_ALIGN_BYTES - 1) / STAGING_ALIGN_BYTES * STAGING_ALIGN_BYTES;
}

/* Returns how many bytes the staging of a rank has for each source. The sender and the receiver
 * compute the same number. */
static uint64_t stride_of(const struct cei_op_shape *shape, uint32_t rank)
{
	return shape->rows[rank] * cei_product_row_bytes(shape);
}

static uint64_t scratch_bytes(const struct cei_op_shape *shape)
{
	return staging_at(shape) +
		shape->n_ranks * cei_op_most_rows(shape) * cei_product_row_bytes(shape);
}

uint64_t ceov_gemm_rs_scratch_bytes(const struct ceov_gemm_rs *from, uint32_t n_ranks)
{
	return cei_op_scratch_bytes(&cei_gemm_rs, from, n_ranks);
}

/* --- one after the other --------------------------------------------------- */

static uint64_t rows_of(const struct cei_op_shape *shape, uint32_t rank)
{
	(void)rank;
	return cei_op_all_rows(shape);
}

/* Peers' partial sums come to the begin of the half, which has no product in it then. */
static void span_of(const struct cei_op_shape *shape, uint32_t own, uint32_t rank,
		    struct cei_direct_span *span)
{
	*span = (struct cei_direct_span){
		.leaves = cei_op_rows_before(shape, rank) * cei_product_row_bytes(shape),
		.n_leaves = stride_of(shape, rank),
		.there = own * stride_of(shape, rank),
		.here = rank * stride_of(shape, own),
		.n_here = stride_of(shape, own),
	};
}

static struct cei_whole_ends ends_of(const ceov_op *op, const void *operands)
{
	const struct ceov_gemm_rs_run *run = operands;

	return (struct cei_whole_ends){ op->product.whole, run->c };
}

static const struct cei_whole_kind whole = {
	1, rows_of, span_of, ends_of,
	cei_product_lane_choose, cei_product_lane_explain, cei_product_candidates
};

static void ask(const ceov_op *op, struct cei_tiles_args *args, uint64_t rows[CEI_OP_RANKS_MAX])
{
	if (cei_op_is_whole(op))
		cei_whole_ask(cei_op_all_rows(&op->shape), args, rows);
}

/* --- transfers ------------------------------------------------------------- */

/* Sends a piece of the rows of the product that belong to a peer, as soon as all its tiles are
 * stored. A range of columns has gaps between its rows on both sides. */
static int send_partials(ceov_op *op, uint32_t target, uint32_t piece)
{
	const struct cei_op_shape *shape = &op->shape;
	uint32_t rank = op->workspace->rank, n_pieces = op->choice.n_pieces;
	uint64_t first = cei_op_rows_before(shape, target), n = shape->product.n[0];
	uint64_t row_bytes = cei_product_row_bytes(shape);
	struct cei_send leg = { .target = target };
	struct cei_cut_piece of;

	of = cei_piece_of(&op->choice.cut, shape->rows[target], n, n_pieces, piece);
	leg.source_bytes = (first + of.row) * row_bytes + of.column * CEI_DTYPE16_BYTES;
	leg.target_bytes = staging_at(shape) + rank * stride_of(shape, target) +
		of.row * row_bytes + of.column * CEI_DTYPE16_BYTES;
	leg.n_bytes = of.n_rows * row_bytes;
	if (of.n_rows && of.n_columns < n) {
		leg.n_bytes = of.n_columns * CEI_DTYPE16_BYTES;
		leg.n_rows = of.n_rows;
		leg.source_pitch_bytes = leg.target_pitch_bytes = row_bytes;
	}
	leg.ready = target * n_pieces + piece;
	leg.arrives = rank * n_pieces + piece;
	return cei_send_stage_add(&op->stages[0], &leg);
}

static uint64_t block_rows(const struct cei_op_shape *shape, uint32_t source, uint32_t target)
{
	(void)source;
	return shape->rows[target];
}

/* Adds the transfers. A rank without rows receives no partial sums; instead its job awaits marks
 * that say that all peers have begun the run. */
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
		r = cei_op_send_pieces(op, stage, send_partials);
	return r ? r : cei_op_await_here(op, stage, block_rows);
}

/* --- the job --------------------------------------------------------------- */

static struct cei_gemm_job job_of(const ceov_op *op, const void *operands,
				  char *scratch, const struct cei_tile_list *list)
{
	const struct cei_op_shape *shape = &op->shape;
	uint32_t rank = op->workspace->rank;
	uint64_t all_rows = cei_op_all_rows(shape);
	struct cei_gemm_job job = cei_op_is_whole(op) ? cei_whole_job(op, list)
		: cei_product_job(op, list);
	const struct ceov_gemm_rs_run *run = operands;

	job.a[CEI_GEMM_A_OWN] = cei_product_matrix(run->a, all_rows, shape->product.k);
	job.b[0] = cei_product_b(shape, 0, run->b);
	if (cei_op_is_whole(op)) {
		job.c[0] = cei_product_matrix(op->product.whole, all_rows, shape->product.n[0]);
		return job;
	}
	job.c[0] = cei_product_matrix(run->c, shape->rows[rank], shape->product.n[0]);
	job.c[CEI_GEMM_C_PARTIAL] = cei_product_matrix(scratch, all_rows, shape->product.n[0]);
	job.is_claimed = op->workspace->shares_sms;
	job.partials = scratch + staging_at(shape);
	job.partial_stride_bytes = stride_of(shape, rank);
	return job;
}

/* For a sequence: computes the rows of all peers as one product, raises the marks that let them be
 * sent, then computes the own rows. */
static int queue_sequence(const struct cei_run *run)
{
	struct cei_executor *executor = &run->op->workspace->executor;
	const struct cei_op_shape *shape = &run->op->shape;
	char *scratch = cei_run_scratch(run);
	struct cei_gemm_job job;
	uint32_t peer;
	int r = 0;

	if (run->op->product.others.tiles.n_tiles) {
		job = job_of(run->op, run->operands, scratch, &run->op->product.others);
		r = executor->ops->gemm(executor, run->stream, &job);
	}
	for (peer = 0; !r && peer < shape->n_ranks; peer++)
		if (peer != run->op->workspace->rank && shape->rows[peer])
			r = cei_run_raise(run, run->op->workspace->ready, peer);
	if (r)
		return r;
	job = job_of(run->op, run->operands, scratch, &run->op->product.own);
	job.marks = cei_run_marks(run, cei_run_arrived(run), NULL);
	return executor->ops->gemm(executor, run->stream, &job);
}

static int compute(const struct cei_run *run)
{
	struct cei_executor *executor = &run->op->workspace->executor;
	struct cei_gemm_job job;

	if (run->op->choice.mode == CEOV_MODE_SEQUENCE)
		return queue_sequence(run);
	job = job_of(run->op, run->operands, cei_run_scratch(run), &run->op->product.all);
	job.marks = cei_run_marks(run, cei_run_arrived(run), run->op->workspace->ready);
	return executor->ops->gemm(executor, run->stream, &job);
}

static int queue_job(const struct cei_run *run)
{
	if (cei_op_is_whole(run->op))
		return cei_whole_run(run);
	return cei_op_has_sm_lane(run->op) ? cei_sm_lane_run(run, compute, NULL)
		: compute(run);
}

int ceov_gemm_rs_create(ceov_workspace *workspace, const struct ceov_gemm_rs *from,
			ceov_op **ret_op)
{
	return cei_op_create_from(workspace, &cei_gemm_rs, from, ret_op);
}

static int take_operands(struct cei_run *run)
{
	const struct ceov_gemm_rs_run *from = run->operands;
	const ceov_op *op = run->op;
	const struct cei_op_shape *shape = &op->shape;
	uint64_t k_bytes = shape->product.k * CEI_DTYPE16_BYTES;
	uint64_t c_bytes = shape->rows[op->workspace->rank] * cei_product_row_bytes(shape);
	const struct cei_operand operands[] = {
		{ "a", from->a, cei_op_all_rows(shape) * k_bytes, 0 },
		{ "b", from->b, shape->product.n[0] * k_bytes, 0 },
		{ "c", from->c, c_bytes, 1 },
	};

	run->stream = from->stream;
	return cei_operands_take(run, operands, 3);
}

int ceov_gemm_rs_run(ceov_op *op, const struct ceov_gemm_rs_run *operands)
{
	return cei_op_run(op, cei_gemm_rs.run_call, operands);
}

/* --- the cost model -------------------------------------------------------- */

static void play(struct cei_play *play)
{
	double arrived_ns[CEI_OP_PIECES_MAX];
	uint32_t piece;

	cei_play_sends(play, arrived_ns);
	for (piece = 0; piece < play->n_pieces; piece++)
		(void)cei_play_sum(play, piece, arrived_ns[piece]);
}

/* --- measuring ------------------------------------------------------------- */

static void trial_sizes(const ceov_op *op, struct cei_trial_sizes *ret_sizes)
{
	const struct cei_op_shape *shape = &op->shape;

	memset(ret_sizes, 0, sizeof(*ret_sizes));
	ret_sizes->n = 1;
	ret_sizes->a = cei_op_all_rows(shape) * shape->product.k;
	ret_sizes->b[0] = shape->product.n[0] * shape->product.k;
	ret_sizes->c[0] = shape->rows[op->workspace->rank] * shape->product.n[0];
}

static int trial_run(ceov_op *op, const struct cei_trial_operands *operands)
{
	struct ceov_gemm_rs_run run = { .struct_bytes = sizeof(run) };

	run.stream = operands->stream;
	run.a = operands->a;
	run.b = operands->b[0];
	run.c = operands->c[0];
	return ceov_gemm_rs_run(op, &run);
}

static const struct cei_op_trial trial = {
	cei_whole_candidates, trial_sizes, trial_run
};

static const struct cei_product_kind product = {
	.scatters = 1, .play = play, .job = job_of, .ask = ask, .whole = &whole,
};

/* --- the kind -------------------------------------------------------------- */

const struct cei_op_kind cei_gemm_rs = {
	.name = "ceov_gemm_rs",
	.key = "gemm_rs",
	.run_call = "ceov_gemm_rs_run",
	.run_bytes = sizeof(struct ceov_gemm_rs_run),
	.n_stages = 1,
	.shape = shape_of,
	.fault = fault_of,
	.lacks = cei_product_lacks,
	.direct_fault = cei_product_lane_fault,
	.has_sm_lane = cei_product_lane_always,
	.row_bytes = cei_product_row_bytes,
	.scratch_bytes = scratch_bytes,
	.pieces = cei_product_pieces,
	.choose = cei_whole_choose,
	.explain = cei_whole_explain,
	.build = build,
	.built = cei_sm_lane_build,
	.take = take_operands,
	.job = queue_job,
	.fini = cei_product_lane_fini,
	.trial = &trial,
	.product = &product,
	.cuts_columns = 1,
};
