/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Reduce-scatter and all-reduce. One half of scratch holds the staging: this rank's part as each
 * source rank sends it. For an all-reduce the gathered sums follow, in the layout of the operands.
 * Where SMs move the bytes, see direct_sum.h.
 *
 * A rank serves one target after another. If it sent piece by piece to all targets in turn, sums
 * could begin earlier, but ranks that are a few us apart would send to the same receiver most of
 * the time. Measured with 256 MiB a rank on 4 GPUs: 870 us in 4 pieces each, and 720 us in one.
 */

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/sized.h"
#include "ops/compute/dtype.h"
#include "ops/core/direct.h"
#include "ops/core/operands.h"
#include "ops/core/run.h"
#include "ops/kinds.h"
#include "ops/reduce/by_node.h"
#include "ops/reduce/direct_sum.h"
#include "ops/reduce/parts.h"
#include "ops/reduce/sum_model.h"
#include "ops/tuning/candidates.h"
#include "ops/tuning/direct_choice.h"

/* Each doubling of the number of pieces halves the work behind the last copy. Beyond 4 pieces this
 * gains less than the further marks cost. */
#define PIECES_MAX          4u

#define BLOCKS_DEFAULT      16u

/* Ranks begin a sum together if a rank sends so much to all others in each phase: see meets(). */
#define MEET_BYTES          (UINT64_C(32) << 20)
#define STRIDE_MAX          (UINT64_C(1) << 40) /* so that all offsets in bytes fit 64 bits */

static const struct ceov_op_tuning *shape_of(struct cei_op_shape *shape, const void *from,
					     uint32_t n_ranks)
{
	struct ceov_reduce taken;

	shape->fault = cei_sized_fault(from, offsetof(struct ceov_reduce, stride),
				       sizeof(taken));
	if (shape->fault)
		return NULL;
	cei_sized_take(&taken, from, sizeof(taken));
	shape->dtype = taken.dtype;
	shape->sum.stride = taken.stride;
	shape->sum.scale = taken.scale != 0 ? taken.scale : 1;
	shape->sum.by_node = taken.by_node;
	cei_op_take_rows(shape, taken.counts, n_ranks);
	return taken.tuning;
}

static uint64_t row_bytes(const struct cei_op_shape *shape)
{
	return cei_dtype_bytes(shape->dtype);
}

static const char *stride_fault(const struct cei_op_shape *shape)
{
	if (!shape->sum.stride)
		return NULL;
	if (shape->kind != &cei_reduce_scatter)
		return "stride must be 0: only a reduce-scatter takes one";
	if (shape->sum.stride % CEI_SUM_STEP || shape->sum.stride < cei_op_most_rows(shape))
		return "stride must be 0, or a multiple of 8 and no less than the largest "
			"count";
	return shape->sum.stride > STRIDE_MAX ? "stride is above 2^40" : NULL;
}

/* Refuses a scale for an all-reduce: each rank would scale the part that it sums, and nobody would
 * notice if ranks had different scales. */
static const char *scale_fault(const struct cei_op_shape *shape)
{
	if (!isfinite(shape->sum.scale))
		return "scale must be finite; 0 or 1 where sums are wanted as they are";
	if (shape->kind != &cei_reduce_scatter && shape->sum.scale != 1)
		return "scale must be 0 or 1: only a reduce-scatter takes another one";
	return NULL;
}

static const char *fault_of(const struct cei_op_shape *shape)
{
	const char *fault = cei_op_dtype_fault(shape);

	if (!fault)
		fault = cei_op_rows_fault(shape, CEI_ELEMENTS_MAX, CEI_SUM_STEP);
	if (!fault)
		fault = stride_fault(shape);
	if (!fault && shape->sum.by_node > 1)
		fault = "by_node must be 0 or 1";
	return fault ? fault : scale_fault(shape);
}

static uint64_t scratch_bytes(const struct cei_op_shape *shape)
{
	uint64_t by_parts, whole;

	if (shape->kind == &cei_reduce_scatter)
		return cei_sum_gather_at(shape);
	by_parts = cei_sum_gather_at(shape) + cei_sum_bytes(shape, cei_op_all_rows(shape));
	whole = cei_direct_sum_scratch(shape);
	return whole > by_parts ? whole : by_parts;
}

uint64_t ceov_reduce_scatter_scratch_bytes(const struct ceov_reduce *from, uint32_t n_ranks)
{
	return cei_op_scratch_bytes(&cei_reduce_scatter, from, n_ranks);
}

uint64_t ceov_all_reduce_scratch_bytes(const struct ceov_reduce *from, uint32_t n_ranks)
{
	return cei_op_scratch_bytes(&cei_all_reduce, from, n_ranks);
}

/* --- transfers ------------------------------------------------------------- */

/* Returns whether the part for this target is sent in pieces. This is so only for the last target:
 * at that target this rank's copies arrive last, and pieces leave little to be summed behind them.
 * For other targets further marks would only cost time. */
static int is_cut(const ceov_op *op, uint32_t target)
{
	return (target + 1) % op->shape.n_ranks == op->workspace->rank;
}

/* For the first stage: sends a part that belongs to the target, or one piece of the part, from the
 * caller's memory. */
static int send_part(ceov_op *op, uint32_t target, uint32_t piece)
{
	const struct cei_op_shape *shape = &op->shape;
	struct cei_send leg = { .target = target, .ready = CEOV_NOBODY };
	uint32_t rank = op->workspace->rank;
	uint64_t at, n = cei_sum_piece_of(op, target, piece, &at);

	if (!is_cut(op, target))
		n = shape->rows[target];
	leg.source_bytes = cei_sum_bytes(shape, cei_sum_part_at(shape, target) + at);
	leg.target_bytes = cei_sum_bytes(shape, rank * shape->rows[target] + at);
	leg.n_bytes = cei_sum_bytes(shape, n);
	leg.arrives = rank * op->choice.n_pieces + piece;
	return cei_send_stage_add(&op->stages[0], &leg);
}

/* Returns the last piece of the own part. Pieces are summed in order, so its mark says that
 * the whole part is summed. */
static uint32_t last_piece(const ceov_op *op)
{
	uint32_t rank = op->workspace->rank;
	uint64_t n = op->shape.rows[rank], share = cei_sum_piece_elements(op, rank);

	return n ? (uint32_t)((n - 1) / share) : 0;
}

/* For the second stage of an all-reduce: sends this rank's part with its sums, or one piece of the
 * part. */
static int send_sum(ceov_op *op, uint32_t target, uint32_t piece)
{
	const struct cei_op_shape *shape = &op->shape;
	uint32_t rank = op->workspace->rank;
	uint64_t at, n = cei_sum_piece_of(op, rank, piece, &at);
	struct cei_send leg = { .target = target, .ready = piece };

	if (!is_cut(op, target)) {
		n = shape->rows[rank];
		leg.ready = last_piece(op);
	}
	leg.source_bytes = cei_sum_bytes(shape, at);
	leg.target_bytes = cei_sum_gather_at(shape) +
		cei_sum_bytes(shape, cei_op_rows_before(shape, rank) + at);
	leg.n_bytes = cei_sum_bytes(shape, n);
	leg.arrives = shape->n_ranks * CEI_OP_PIECES_MAX + rank * op->choice.n_pieces + piece;
	return cei_send_stage_add(&op->stages[1], &leg);
}

static int send_pieces(ceov_op *op, uint32_t target,
		       int (*send)(ceov_op *op, uint32_t target, uint32_t piece))
{
	uint32_t n = is_cut(op, target) ? op->choice.n_pieces : 1, piece;
	int r = 0;

	for (piece = 0; !r && piece < n; piece++)
		r = send(op, target, piece);
	return r;
}

static int send_parts(ceov_op *op, uint32_t target)
{
	return send_pieces(op, target, send_part);
}

static int send_sums(ceov_op *op, uint32_t target)
{
	return send_pieces(op, target, send_sum);
}

static int has_absent_peers(const ceov_op *op)
{
	return op->kind == &cei_reduce_scatter;
}

/*
 * A run that is not captured awaits counters of `sent`, raised when the copies of its stages have
 * ended (cei_op_send_all()). In a reduce-scatter, a rank whose own part is empty receives no bytes
 * that show that its peers have begun the run; so it also awaits one counter for each peer, raised
 * when that peer has begun.
 *
 * An all-reduce needs no such counters: at least one rank's part is not empty. That rank can
 * sum its part only when all peers have begun, and all other ranks await the sum.
 */
static int build_first(ceov_op *op)
{
	const ceov_workspace *workspace = op->workspace;
	struct cei_send_stage *stage = &op->stages[0];
	uint32_t rank = workspace->rank, peer;
	int r = cei_send_stage_open(stage, op->workspace,
				    cei_sum_bytes(&op->shape, cei_sum_source_elements(&op->shape)));

	if (r || workspace->n_ranks == 1)
		return r;
	/* With a start mark the engine polls for these copies, so they go on the lane of the
	 * second stage, which never waits. Without it they would go on a lane that follows the
	 * stream, and overlap with the copies of the last run's sums; two copies of a GPU at
	 * once compete with other ranks' copies at the receivers. */
	stage->awaits_start = !workspace->capture;
	for (peer = 0; !r && has_absent_peers(op) && peer < workspace->n_ranks; peer++)
		if (peer != rank && !op->shape.rows[peer])
			r = cei_send_stage_say_present(stage, peer);
	stage->says_sent = 1;
	if (!r)
		r = cei_op_send_all(op, stage, send_parts);
	for (peer = 0; !r && has_absent_peers(op) && peer < workspace->n_ranks; peer++)
		if (peer != rank && !op->shape.rows[rank])
			r = cei_send_stage_await_here(stage, peer, op->n_sent++);
	return r;
}

/* A rank whose part is empty has no second stage. Its transfers would have nothing to await, so its
 * counter of `sent` would be raised before an earlier run that is still in flight raises it
 * (model/sent.pml). */
static int build_second(ceov_op *op)
{
	struct cei_send_stage *stage = &op->stages[1];
	uint32_t rank = op->workspace->rank;
	int r;

	if (op->shape.n_ranks == 1 || !op->shape.rows[rank])
		return 0;
	r = cei_send_stage_open(stage, op->workspace,
				cei_sum_bytes(&op->shape, op->shape.rows[rank]));
	if (r)
		return r;
	stage->says_sent = 1;
	return cei_op_send_all(op, stage, send_sums);
}

static int build(ceov_op *op)
{
	int r;

	if (cei_selector_is_direct(op->choice.mode))
		return cei_direct_build(op);
	if (cei_by_node_is_used(op))
		return cei_by_node_build(op);
	r = build_first(op);
	return r || op->kind == &cei_reduce_scatter ? r : build_second(op);
}

/* --- the job --------------------------------------------------------------- */

static int queue_job(const struct cei_run *run)
{
	const struct ceov_reduce_run *operands = run->operands;
	const ceov_op *op = run->op;
	const struct cei_op_shape *shape = &op->shape;
	struct cei_executor *executor = &op->workspace->executor;
	int is_all = shape->kind == &cei_all_reduce;
	uint64_t pieces[CEI_OP_RANKS_MAX];
	struct cei_reduce_job job;
	uint32_t i;

	if (cei_selector_is_direct(op->choice.mode))
		return cei_direct_sum_job(run);
	if (cei_by_node_is_used(op))
		return cei_by_node_job(run);
	for (i = 0; i < shape->n_ranks; i++)
		pieces[i] = cei_sum_piece_elements(op, i);
	memset(&job, 0, sizeof(job));
	job.dtype = shape->dtype;
	job.own = op->workspace->rank;
	job.source = (const char *)operands->source +
		cei_sum_bytes(shape, cei_sum_part_at(shape, job.own));
	job.target = operands->target;
	job.partials = cei_run_scratch(run);
	job.gathered = is_all ? cei_run_scratch(run) + cei_sum_gather_at(shape) : NULL;
	job.partial_stride_bytes = cei_sum_bytes(shape, shape->rows[job.own]);
	job.counts = shape->rows;
	job.piece_elements = pieces;
	job.scale = shape->sum.scale;
	job.n_ranks = shape->n_ranks;
	job.n_pieces = op->choice.n_pieces;
	job.is_tail_cut = 1;
	job.n_blocks = op->choice.n_reduce_blocks;
	job.first_arrived = shape->n_ranks * CEI_OP_PIECES_MAX;
	job.arrived = cei_run_arrived(run);
	job.marks = cei_run_marks(run, cei_run_arrived(run),
				  is_all ? op->workspace->ready : NULL);
	return executor->ops->reduce(executor, run->stream, &job);
}

int ceov_reduce_scatter_create(ceov_workspace *workspace, const struct ceov_reduce *from,
			       ceov_op **ret_op)
{
	return cei_op_create_from(workspace, &cei_reduce_scatter, from, ret_op);
}

int ceov_all_reduce_create(ceov_workspace *workspace, const struct ceov_reduce *from,
			   ceov_op **ret_op)
{
	return cei_op_create_from(workspace, &cei_all_reduce, from, ret_op);
}

/* --- the cost model -------------------------------------------------------- */

static uint32_t pieces_of(const struct cei_op_shape *shape)
{
	return cei_selector_pieces(shape, PIECES_MAX);
}

static void choose_direct(const struct cei_choose_args *args, struct cei_choice *choice)
{
	uint64_t span_bytes = cei_direct_sum_span(args->shape, choice->mode);

	cei_direct_choose_sum(args, span_bytes, choice);
	cei_direct_choose_ll(args, cei_direct_sum_all_send(args->shape, choice->mode), span_bytes,
			     choice);
}

static void choose(const struct cei_choose_args *args, struct cei_choice *choice)
{
	if (choice->mode == CEOV_MODE_CHOOSE)
		choice->mode = cei_sum_direct_mode(args);
	if (cei_selector_is_direct(choice->mode)) {
		choose_direct(args, choice);
		return;
	}
	choice->n_reduce_blocks = args->given->n_reduce_blocks ? args->given->n_reduce_blocks
		: BLOCKS_DEFAULT;
	choice->copy_ns = cei_selector_copy_ns(args, choice->n_pieces);
}

/* Two ranks are never out of step. Between 4 H100 the all-reduce of 64 MiB gained 11 %, and that of
 * 16 MiB lost 10 % by the 10 us that ranks take to meet: they send 48 and 12 MiB in each of two
 * phases (docs/internals/operators.md). */
static int meets(const struct cei_op_shape *shape)
{
	return shape->n_ranks > 2 &&
		cei_sum_slot_bytes(shape) * (shape->n_ranks - 1) >= MEET_BYTES;
}

static void explain(const struct cei_choose_args *args, struct cei_choice *choice)
{
	if (cei_selector_is_direct(choice->mode)) {
		cei_direct_explain(args, choice);
		return;
	}
	cei_choice_say_mode(args, choice);
	cei_choice_say_pieces(args, choice);
	cei_choice_say(choice, "blocks that sum: %u (%s)\n", choice->n_reduce_blocks,
		       cei_choice_by(args->given->n_reduce_blocks));
	if (args->shape->sum.by_node)
		cei_choice_say(choice, "over several nodes: each adds up what its ranks have for "
			       "ranks of others\n");
}

/* Lists candidates with at most 16 blocks, because a sum should leave most SMs to other kernels;
 * then those of direct modes. */
static void list_candidates(const struct cei_listing *listing)
{
	static const enum ceov_op_mode direct[] = { CEOV_MODE_DIRECT, CEOV_MODE_TWO_SHOT };
	static const uint32_t blocks[] = { BLOCKS_DEFAULT, 8 };
	struct ceov_op_tuning tuning = { .struct_bytes = sizeof(tuning) };
	uint64_t all_bytes = cei_sum_bytes(listing->shape, cei_op_all_rows(listing->shape));
	uint32_t n = cei_candidates_first_cut(listing), i;

	tuning.mode = CEOV_MODE_OVERLAP;
	for (; n <= cei_candidates_last_cut(listing); n *= 2) {
		tuning.n_pieces = n;
		for (i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) {
			tuning.n_reduce_blocks = listing->given->n_reduce_blocks
				? listing->given->n_reduce_blocks : blocks[i];
			cei_candidates_add(listing, &tuning);
		}
	}
	for (i = 0; i < sizeof(direct) / sizeof(direct[0]); i++)
		cei_direct_list_sum(listing, direct[i],
				    cei_direct_sum_span(listing->shape, direct[i]), all_bytes);
}

/* --- runs ------------------------------------------------------------------ */

/* Returns how many elements the operand `target` has. */
static uint64_t n_results(const ceov_op *op)
{
	return op->kind == &cei_all_reduce ? cei_op_all_rows(&op->shape)
		: op->shape.rows[op->workspace->rank];
}

static int take_operands(struct cei_run *run)
{
	const struct ceov_reduce_run *from = run->operands;
	const struct cei_op_shape *shape = &run->op->shape;
	uint64_t own_at = cei_op_rows_before(shape, run->op->workspace->rank);
	const struct cei_operand operands[] = {
		{ "source", from->source, cei_sum_bytes(shape, cei_sum_source_elements(shape)), 0 },
		{ "target", from->target, cei_sum_bytes(shape, n_results(run->op)), 1 },
	};
	int r = cei_operands_take(run, operands, 2);

	if (r)
		return r;
	run->stream = from->stream;
	run->floating[0] = from->source;
	run->floating[1] = (const char *)from->target + cei_sum_bytes(shape, own_at);
	run->floating[2] = run->floating[1];
	return 0;
}

int ceov_reduce_run(ceov_op *op, const struct ceov_reduce_run *operands)
{
	return cei_op_run(op, cei_all_reduce.run_call, operands);
}

/* --- measuring ------------------------------------------------------------- */

static void trial_sizes(const ceov_op *op, struct cei_trial_sizes *ret_sizes)
{
	memset(ret_sizes, 0, sizeof(*ret_sizes));
	ret_sizes->n = 1;
	ret_sizes->a = cei_sum_source_elements(&op->shape);
	ret_sizes->c[0] = n_results(op);
}

static int trial_run(ceov_op *op, const struct cei_trial_operands *operands)
{
	struct ceov_reduce_run run = { .struct_bytes = sizeof(run) };

	run.stream = operands->stream;
	run.source = operands->a;
	run.target = operands->c[0];
	return ceov_reduce_run(op, &run);
}

static const struct cei_op_trial trial = { list_candidates, trial_sizes, trial_run };

/* --- the kinds ------------------------------------------------------------- */

const struct cei_op_kind cei_reduce_scatter = {
	.name = "ceov_reduce_scatter",
	.key = "reduce_scatter",
	.run_call = "ceov_reduce_run",
	.run_bytes = sizeof(struct ceov_reduce_run),
	.n_stages = CEI_BY_NODE_STAGES,
	.shape = shape_of,
	.fault = fault_of,
	.direct_fault = cei_direct_sum_fault,
	.row_bytes = row_bytes,
	.scratch_bytes = scratch_bytes,
	.meets = meets,
	.pieces = pieces_of,
	.choose = choose,
	.explain = explain,
	.build = build,
	.take = take_operands,
	.job = queue_job,
	.trial = &trial,
};

const struct cei_op_kind cei_all_reduce = {
	.name = "ceov_all_reduce",
	.key = "all_reduce",
	.run_call = "ceov_reduce_run",
	.run_bytes = sizeof(struct ceov_reduce_run),
	.n_stages = CEI_BY_NODE_STAGES,
	.shape = shape_of,
	.fault = fault_of,
	.direct_fault = cei_direct_sum_fault,
	.row_bytes = row_bytes,
	.scratch_bytes = scratch_bytes,
	.meets = meets,
	.pieces = pieces_of,
	.choose = choose,
	.explain = explain,
	.build = build,
	.take = take_operands,
	.job = queue_job,
	.trial = &trial,
};
