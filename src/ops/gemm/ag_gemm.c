/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * All-gather + GEMM. One half of scratch receives the rows of A that peers send. Its place for this
 * rank's own rows stays unused: tiles read these from the caller's memory.
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

static const struct ceov_op_tuning *shape_of(struct cei_op_shape *shape, const void *from,
					     uint32_t n_ranks)
{
	struct ceov_ag_gemm taken;

	shape->fault = cei_sized_fault(from, offsetof(struct ceov_ag_gemm, b_is_k_by_n),
				       sizeof(taken));
	if (shape->fault)
		return NULL;
	cei_sized_take(&taken, from, sizeof(taken));
	shape->dtype = taken.dtype;
	shape->product.k = taken.k;
	shape->product.n_products = taken.n_gemms;
	memcpy(shape->product.n, taken.n, sizeof(shape->product.n));
	shape->product.b_is_k_by_n = taken.b_is_k_by_n;
	cei_op_take_rows(shape, taken.rows, n_ranks);
	return taken.tuning;
}

static uint64_t row_bytes(const struct cei_op_shape *shape)
{
	return shape->product.k * CEI_DTYPE16_BYTES;
}

static uint64_t scratch_bytes(const struct cei_op_shape *shape)
{
	return cei_op_all_rows(shape) * row_bytes(shape);
}

uint64_t ceov_ag_gemm_scratch_bytes(const struct ceov_ag_gemm *from, uint32_t n_ranks)
{
	return cei_op_scratch_bytes(&cei_ag_gemm, from, n_ranks);
}

/* --- one after the other --------------------------------------------------- */

static uint64_t rows_of(const struct cei_op_shape *shape, uint32_t rank)
{
	(void)rank;
	return cei_op_all_rows(shape);
}

static void span_of(const struct cei_op_shape *shape, uint32_t own, uint32_t rank,
		    struct cei_direct_span *span)
{
	*span = (struct cei_direct_span){
		.n_leaves = shape->rows[own] * row_bytes(shape),
		.there = cei_op_rows_before(shape, own) * row_bytes(shape),
		.here = cei_op_rows_before(shape, rank) * row_bytes(shape),
		.n_here = shape->rows[rank] * row_bytes(shape),
	};
	span->place = span->here;
}

/* The caller's gathered rows, if they are wanted, are the A of the product. */
static struct cei_whole_ends ends_of(const ceov_op *op, const void *operands)
{
	const struct ceov_ag_gemm_run *run = operands;

	return (struct cei_whole_ends){ run->a, run->gathered ? run->gathered
					: op->product.whole };
}

static const struct cei_whole_kind whole = {
	0, rows_of, span_of, ends_of,
	cei_product_lane_choose, cei_product_lane_explain, cei_product_candidates
};

static void ask(const ceov_op *op, struct cei_tiles_args *args, uint64_t rows[CEI_OP_RANKS_MAX])
{
	if (cei_op_is_whole(op))
		cei_whole_ask(cei_op_all_rows(&op->shape), args, rows);
}

/* --- transfers ------------------------------------------------------------- */

/* Returns a transfer of one piece of the rows of `source` to the scratch of `target`. */
static struct cei_send send_of(const ceov_op *op, uint32_t source, uint32_t target, uint32_t piece)
{
	uint32_t n_pieces = op->choice.n_pieces;
	uint64_t n_rows, row = cei_piece_rows(&op->choice.cut, op->shape.rows[source], n_pieces,
					      piece, &n_rows);

	return (struct cei_send){
		.target = target,
		.source_bytes = row * row_bytes(&op->shape),
		.target_bytes = (cei_op_rows_before(&op->shape, source) + row) *
			row_bytes(&op->shape),
		.n_bytes = n_rows * row_bytes(&op->shape),
		.ready = CEOV_NOBODY,
		.arrives = source * n_pieces + piece,
	};
}

/* Sends a piece of this rank's rows to one peer, unless another rank passes it on there. */
static int send_rows(ceov_op *op, uint32_t target, uint32_t piece)
{
	uint32_t rank = op->workspace->rank;
	struct cei_send leg = send_of(op, rank, target, piece);

	if (!cei_levels_sends(&op->workspace->levels, rank, target))
		return 0;
	return cei_send_stage_add(&op->stages[0], &leg);
}

static int pass_rows(ceov_op *op, uint32_t source, uint32_t target, uint32_t piece)
{
	struct cei_send leg = send_of(op, source, target, piece);

	leg.passes_on = 1;
	return cei_send_stage_add(&op->stages[0], &leg);
}

static uint64_t block_rows(const struct cei_op_shape *shape, uint32_t source, uint32_t target)
{
	(void)target;
	return shape->rows[source];
}

/* Adds the transfers. The first counters of `sent` say that this rank's rows were sent; each
 * further one says that one peer, which has no rows to send, has begun the run. */
static int build(ceov_op *op)
{
	const struct cei_op_shape *shape = &op->shape;
	struct cei_send_stage *stage = &op->stages[0];
	int r;

	if (cei_op_is_whole(op))
		return cei_whole_build(op);
	r = cei_product_prepare(op);
	if (!r)
		r = cei_send_stage_open(stage, op->workspace, shape->rows[op->workspace->rank] *
					row_bytes(shape));
	if (r || shape->n_ranks == 1)
		return r;
	cei_send_stage_follow(stage);
	stage->says_sent = !cei_op_has_sm_lane(op);
	r = cei_op_say_present(op, stage, block_rows);
	if (!r)
		r = cei_op_send_pieces(op, stage, send_rows);
	if (!r)
		r = cei_op_pass_all(op, pass_rows);
	return r ? r : cei_op_await_here(op, stage, block_rows);
}

/* --- the job --------------------------------------------------------------- */

static struct cei_gemm_job job_of(const ceov_op *op, const void *operands,
				  char *scratch, const struct cei_tile_list *list)
{
	const struct cei_op_shape *shape = &op->shape;
	uint64_t all_rows = cei_op_all_rows(shape);
	struct cei_gemm_job job = cei_op_is_whole(op) ? cei_whole_job(op, list)
		: cei_product_job(op, list);
	const struct ceov_ag_gemm_run *run = operands;
	uint32_t i;

	if (cei_op_is_whole(op)) {
		job.a[CEI_GEMM_A_OWN] = cei_product_matrix(ends_of(op, run).target, all_rows,
							   shape->product.k);
	} else {
		job.a[CEI_GEMM_A_OWN] = cei_product_matrix(
			run->a, shape->rows[op->workspace->rank], shape->product.k);
		job.a[CEI_GEMM_A_GATHERED] =
			cei_product_matrix(scratch, all_rows, shape->product.k);
	}
	for (i = 0; i < shape->product.n_products; i++) {
		job.b[i] = cei_product_b(shape, i, run->b[i]);
		job.c[i] = cei_product_matrix(run->c[i], all_rows, shape->product.n[i]);
	}
	return job;
}

/* Copies the gathered A to the caller's memory, unless the product stores it itself: peers' rows
 * from scratch, and this rank's rows from the operand. */
static int copy_gathered(const struct cei_run *run)
{
	const struct ceov_ag_gemm_run *operands = run->operands;
	struct cei_executor *executor = &run->op->workspace->executor;
	const struct cei_op_shape *shape = &run->op->shape;
	uint32_t rank = run->op->workspace->rank;
	uint64_t before = cei_op_rows_before(shape, rank) * row_bytes(shape);
	uint64_t own = shape->rows[rank] * row_bytes(shape), all = scratch_bytes(shape);
	const char *scratch = cei_run_scratch(run);
	char *to = operands->gathered;
	int r = 0;

	if (before)
		r = executor->ops->copy(executor, run->stream, to, scratch, before);
	if (!r && own)
		r = executor->ops->copy(executor, run->stream, to + before, operands->a, own);
	if (!r && before + own < all)
		r = executor->ops->copy(executor, run->stream, to + before + own,
					scratch + before + own, all - before - own);
	return r;
}

/* For a sequence: makes the stream wait until the rows of all peers have arrived. */
static int await_rows(const struct cei_run *run)
{
	const struct cei_op_shape *shape = &run->op->shape;
	uint32_t peer;
	int r = 0;

	for (peer = 0; !r && peer < shape->n_ranks; peer++)
		if (peer != run->op->workspace->rank && shape->rows[peer])
			r = cei_run_await(run, cei_run_arrived(run), peer, 1);
	return r;
}

static int compute(const struct cei_run *run)
{
	const struct ceov_ag_gemm_run *operands = run->operands;
	struct cei_executor *executor = &run->op->workspace->executor;
	int is_sequence = run->op->choice.mode == CEOV_MODE_SEQUENCE;
	struct cei_gemm_job job = job_of(run->op, operands, cei_run_scratch(run),
					 &run->op->product.all);
	int r = is_sequence ? await_rows(run) : 0;

	if (r)
		return r;
	job.marks = cei_run_marks(run, is_sequence ? NULL : cei_run_arrived(run), NULL);
	if (operands->gathered && executor->ops->keeps(executor, &job))
		job.kept = operands->gathered;
	r = executor->ops->gemm(executor, run->stream, &job);
	return !r && !job.kept && operands->gathered ? copy_gathered(run) : r;
}

static int queue_job(const struct cei_run *run)
{
	if (cei_op_is_whole(run->op))
		return cei_whole_run(run);
	return cei_op_has_sm_lane(run->op) ? cei_sm_lane_run(run, compute, NULL)
		: compute(run);
}

int ceov_ag_gemm_create(ceov_workspace *workspace, const struct ceov_ag_gemm *from,
			ceov_op **ret_op)
{
	return cei_op_create_from(workspace, &cei_ag_gemm, from, ret_op);
}

static int take_operands(struct cei_run *run)
{
	static const char *const b_name[] = { "b[0]", "b[1]", "b[2]", "b[3]" };
	static const char *const c_name[] = { "c[0]", "c[1]", "c[2]", "c[3]" };
	const struct ceov_ag_gemm_run *from = run->operands;
	const ceov_op *op = run->op;
	const struct cei_op_shape *shape = &op->shape;
	struct cei_operand operands[CEI_OPERANDS_MAX];
	uint64_t own_bytes = shape->rows[op->workspace->rank] * row_bytes(shape);
	uint32_t i, n = 0;

	operands[n++] = (struct cei_operand){ "a", from->a, own_bytes, 0 };
	for (i = 0; i < shape->product.n_products; i++) {
		operands[n++] = (struct cei_operand){
			b_name[i], from->b[i], shape->product.n[i] * row_bytes(shape), 0 };
		operands[n++] = (struct cei_operand){
			c_name[i], from->c[i],
			cei_op_all_rows(shape) * shape->product.n[i] * CEI_DTYPE16_BYTES, 1 };
	}
	if (from->gathered)
		operands[n++] = (struct cei_operand){ "gathered", from->gathered,
						      scratch_bytes(shape), 1 };
	run->stream = from->stream;
	run->floating[0] = from->a;
	return cei_operands_take(run, operands, n);
}

int ceov_ag_gemm_run(ceov_op *op, const struct ceov_ag_gemm_run *operands)
{
	return cei_op_run(op, cei_ag_gemm.run_call, operands);
}

/* --- choosing and measuring ------------------------------------------------ */

static void trial_sizes(const ceov_op *op, struct cei_trial_sizes *ret_sizes)
{
	const struct cei_op_shape *shape = &op->shape;
	uint32_t i;

	memset(ret_sizes, 0, sizeof(*ret_sizes));
	ret_sizes->n = shape->product.n_products;
	ret_sizes->a = shape->rows[op->workspace->rank] * shape->product.k;
	for (i = 0; i < shape->product.n_products; i++) {
		ret_sizes->b[i] = shape->product.n[i] * shape->product.k;
		ret_sizes->c[i] = cei_op_all_rows(shape) * shape->product.n[i];
	}
}

static int trial_run(ceov_op *op, const struct cei_trial_operands *operands)
{
	struct ceov_ag_gemm_run run = { .struct_bytes = sizeof(run) };
	uint32_t i;

	run.stream = operands->stream;
	run.a = operands->a;
	for (i = 0; i < op->shape.product.n_products; i++) {
		run.b[i] = operands->b[i];
		run.c[i] = operands->c[i];
	}
	return ceov_ag_gemm_run(op, &run);
}

static const struct cei_op_trial trial = {
	cei_whole_candidates, trial_sizes, trial_run
};

static const struct cei_product_kind product = {
	.play = cei_play_gathered, .job = job_of, .ask = ask, .whole = &whole,
};

/* --- the kind -------------------------------------------------------------- */

const struct cei_op_kind cei_ag_gemm = {
	.name = "ceov_ag_gemm",
	.key = "ag_gemm",
	.run_call = "ceov_ag_gemm_run",
	.run_bytes = sizeof(struct ceov_ag_gemm_run),
	.n_stages = 1,
	.gathers = 1,
	.shape = shape_of,
	.fault = cei_product_fault,
	.lacks = cei_product_lacks,
	.direct_fault = cei_product_lane_fault,
	.has_sm_lane = cei_product_lane_always,
	.row_bytes = row_bytes,
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
};
