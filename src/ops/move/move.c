/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * All-gather and all-to-all. Each rank sends its blocks to the targets' scratch, and each target
 * copies what it receives to its caller's memory, on the caller's stream. One half of scratch holds
 * what the rank receives, in the layout of the run's target; the place of the rank's own block is
 * unused.
 *
 * A rank serves one target after another, and cuts only the block for the last target into pieces.
 * Copies within a GPU are so much faster than arriving ones that only the copies behind the last
 * arrival cost time. Marks for pieces of other blocks would gain nothing (reduce.c cuts the same
 * way, and gives measurements).
 *
 * In a direct mode kernels store the blocks to the same places of the targets' scratch.
 */

#include <string.h>

#include "base/sized.h"
#include "ops/core/direct.h"
#include "ops/core/operands.h"
#include "ops/core/run.h"
#include "ops/kinds.h"
#include "ops/tuning/direct_choice.h"

#define BYTE_STEP 16u

/* The type of operands that measurements fill with numbers. */
#define MEASURED_DTYPE       CEOV_BF16
#define MEASURED_DTYPE_BYTES 2u

/* With pieces of this size, the copy of the piece that arrives last takes a few microseconds. */
#define PIECE_BYTES (UINT64_C(16) << 20)

/* The most that a rank sends to all others together by SMs, unless its caller says how. A copy
 * engine takes longer to begin than so many bytes take to arrive. Between 4 H100 an all-gather of
 * 256 KiB took 8 us by SMs and 25 by copy engines, in graphs; between 8 H200 one of 1 MiB took 12
 * and 56 (docs/results). Beyond that copy engines move, to leave SMs to other kernels. */
#define FEW_BYTES (UINT64_C(1) << 20)

/* Limit of a block, so that the sum over all pairs of ranks fits 64 bits. */
#define BLOCK_BYTES_MAX (UINT64_C(1) << 48)

/* --- shapes ---------------------------------------------------------------- */

static const struct ceov_op_tuning *shape_of(struct cei_op_shape *shape, const void *from,
					     uint32_t n_ranks)
{
	const struct ceov_move *move = from;
	uint64_t largest[CEI_OP_RANKS_MAX] = { 0 };
	uint32_t i;

	shape->dtype = MEASURED_DTYPE;
	shape->fault = cei_sized_fault(move, sizeof(*move), sizeof(*move));
	if (shape->fault)
		return NULL;
	if (!move->bytes || n_ranks > CEI_OP_RANKS_MAX)
		return move->tuning;
	if (shape->kind == &cei_all_gather) {
		cei_op_take_rows(shape, move->bytes, n_ranks);
		return move->tuning;
	}
	for (i = 0; i < n_ranks * n_ranks; i++)
		if (move->bytes[i] > largest[i / n_ranks])
			largest[i / n_ranks] = move->bytes[i];
	cei_op_take_rows(shape, largest, n_ranks);
	shape->blocks = move->bytes;
	return move->tuning;
}

/* The rows of a move are bytes, so a row is one byte. */
static uint64_t row_bytes(const struct cei_op_shape *shape)
{
	(void)shape;
	return 1;
}

static uint64_t block_bytes(const struct cei_op_shape *shape, uint32_t source,
			    uint32_t target)
{
	return shape->blocks ? cei_op_block(shape, source, target) : shape->rows[source];
}

/* Returns the offset of the block from `source` in what `target` receives. If source is n_ranks,
 * returns how many bytes target receives. */
static uint64_t arrives_at(const struct cei_op_shape *shape, uint32_t source,
			   uint32_t target)
{
	return shape->blocks ? cei_op_block_arrives(shape, source, target)
		: cei_op_rows_before(shape, source);
}

static uint64_t arriving_bytes(const struct cei_op_shape *shape, uint32_t target)
{
	return arrives_at(shape, shape->n_ranks, target);
}

/* Returns the offset of the block for `target` in the operand of `source`. In an all-gather all
 * targets get the same block. */
static uint64_t leaves_at(const struct cei_op_shape *shape, uint32_t source, uint32_t target)
{
	return shape->blocks ? cei_op_block_leaves(shape, source, target) : 0;
}

static uint64_t leaving_bytes(const struct cei_op_shape *shape, uint32_t source)
{
	return shape->kind == &cei_all_gather ? shape->rows[source]
		: leaves_at(shape, source, shape->n_ranks);
}

static const char *fault_of(const struct cei_op_shape *shape)
{
	uint64_t bytes, sum = 0;
	uint32_t source, target;

	for (source = 0; source < shape->n_ranks; source++) {
		for (target = 0; target < shape->n_ranks; target++) {
			bytes = block_bytes(shape, source, target);
			if (bytes > BLOCK_BYTES_MAX)
				return "there are too many bytes";
			if (bytes % BYTE_STEP)
				return "bytes must be multiples of 16";
			sum += bytes;
		}
	}
	return sum ? NULL : "all ranks together have no bytes";
}

static const char *direct_fault(const struct cei_op_shape *shape, enum ceov_op_mode mode)
{
	if (mode == CEOV_MODE_TWO_SHOT)
		return "tuning->mode: only an all-reduce has two steps";
	return cei_direct_ranks_fault(shape);
}

static uint64_t scratch_bytes(const struct cei_op_shape *shape)
{
	uint64_t most = 0, bytes;
	uint32_t target;

	for (target = 0; target < shape->n_ranks; target++) {
		bytes = arriving_bytes(shape, target);
		most = bytes > most ? bytes : most;
	}
	return most;
}

uint64_t ceov_all_gather_scratch_bytes(const struct ceov_move *from, uint32_t n_ranks)
{
	return cei_op_scratch_bytes(&cei_all_gather, from, n_ranks);
}

uint64_t ceov_all_to_all_scratch_bytes(const struct ceov_move *from, uint32_t n_ranks)
{
	return cei_op_scratch_bytes(&cei_all_to_all, from, n_ranks);
}

/* --- pieces ---------------------------------------------------------------- */

/* Returns whether the block is cut into pieces. Blocks that go to another node are, because they
 * take longest, and in an all-gather are passed on there; so is the block for the last of the
 * ranks of a node to which `source` sends. */
static int is_cut(const ceov_op *op, uint32_t source, uint32_t target)
{
	const struct cei_op_shape *shape = &op->shape;
	const uint32_t *node = op->workspace->levels.node;
	uint32_t next = (target + 1) % shape->n_ranks;

	if (node[source] != node[target])
		return 1;
	while (next != source && (node[next] != node[source] ||
				  !block_bytes(shape, source, next)))
		next = (next + 1) % shape->n_ranks;
	return next == source;
}

/* Returns the bytes of one piece of a block, and in *ret_at the offset of the piece; 0: the block
 * has no such piece. A block that is not cut is one piece. The source and the target compute the
 * same. */
static uint64_t piece_of(const ceov_op *op, uint32_t source, uint32_t target, uint32_t piece,
			 uint64_t *ret_at)
{
	uint64_t bytes = block_bytes(&op->shape, source, target), share = bytes;
	uint64_t n_steps = cei_op_most_rows(&op->shape) / BYTE_STEP;
	uint32_t n_pieces = op->choice.n_pieces;

	if (is_cut(op, source, target))
		share = (n_steps + n_pieces - 1) / n_pieces * BYTE_STEP;
	*ret_at = piece * share;
	if (*ret_at >= bytes)
		return 0;
	return bytes - *ret_at < share ? bytes - *ret_at : share;
}

/* --- transfers ------------------------------------------------------------- */

/* Returns a transfer of one piece of the block from `source` to `target`; its n_bytes is 0 if
 * there is no such piece. */
static struct cei_send send_of(const ceov_op *op, uint32_t source, uint32_t target, uint32_t piece)
{
	const struct cei_op_shape *shape = &op->shape;
	struct cei_send leg = { .target = target, .ready = CEOV_NOBODY };
	uint64_t at;

	leg.n_bytes = piece_of(op, source, target, piece, &at);
	leg.source_bytes = leaves_at(shape, source, target) + at;
	leg.target_bytes = arrives_at(shape, source, target) + at;
	leg.arrives = source * op->choice.n_pieces + piece;
	return leg;
}

/* Sends the block for one peer, unless it is a shard that another rank passes on there. */
static int send_block(ceov_op *op, uint32_t target)
{
	uint32_t rank = op->workspace->rank, piece;
	struct cei_send leg;
	int r = 0;

	if (op->kind == &cei_all_gather &&
	    !cei_levels_sends(&op->workspace->levels, rank, target))
		return 0;
	for (piece = 0; !r && piece < op->choice.n_pieces; piece++) {
		leg = send_of(op, rank, target, piece);
		r = cei_send_stage_add(&op->stages[0], &leg);
	}
	return r;
}

static int pass_piece(ceov_op *op, uint32_t source, uint32_t target, uint32_t piece)
{
	struct cei_send leg = send_of(op, source, target, piece);

	leg.passes_on = 1;
	return cei_send_stage_add(&op->stages[0], &leg);
}

/*
 * Adds the transfers. The first counters of `sent` say that the operand was sent; each further one
 * says that one peer, which has no block for this rank, has begun the run. So when a rank has
 * finished a run, every peer has begun it, as workspace.c requires: the peer's block or its mark in
 * `here` shows that.
 */
static int build(ceov_op *op)
{
	const struct cei_op_shape *shape = &op->shape;
	uint32_t rank = op->workspace->rank;
	struct cei_send_stage *stage = &op->stages[0];
	int r;

	if (cei_selector_is_direct(op->choice.mode))
		return cei_direct_build(op);
	r = cei_send_stage_open(stage, op->workspace, leaving_bytes(shape, rank));
	if (r || shape->n_ranks == 1)
		return r;
	cei_send_stage_follow(stage);
	stage->says_sent = 1;
	r = cei_op_say_present(op, stage, block_bytes);
	if (!r)
		r = cei_op_send_all(op, stage, send_block);
	if (!r && op->kind == &cei_all_gather)
		r = cei_op_pass_all(op, pass_piece);
	return r ? r : cei_op_await_here(op, stage, block_bytes);
}

/* --- the job --------------------------------------------------------------- */

static int copy(const struct cei_run *run, uint64_t target_bytes, const char *from,
		uint64_t n_bytes)
{
	const struct ceov_move_run *operands = run->operands;
	struct cei_executor *executor = &run->op->workspace->executor;
	char *to = (char *)operands->target + target_bytes;

	return executor->ops->copy(executor, run->stream, to, from, n_bytes);
}

/* Copies this rank's own block, unless it is already at its place in the target. */
static int copy_own(const struct cei_run *run)
{
	const struct ceov_move_run *operands = run->operands;
	const struct cei_op_shape *shape = &run->op->shape;
	uint32_t own = run->op->workspace->rank;
	uint64_t at = arrives_at(shape, own, own), n_bytes = block_bytes(shape, own, own);
	const char *from;

	if (!n_bytes)
		return 0;
	from = (const char *)operands->source + leaves_at(shape, own, own);
	if (from == (const char *)operands->target + at)
		return 0;
	return copy(run, at, from, n_bytes);
}

static int copy_others(const struct cei_run *run, uint32_t source)
{
	const ceov_op *op = run->op;
	uint32_t own = op->workspace->rank, piece;
	uint64_t first = arrives_at(&op->shape, source, own), at, n_bytes;
	int r = 0;

	for (piece = 0; !r; piece++) {
		n_bytes = piece_of(op, source, own, piece, &at);
		if (!n_bytes)
			break;
		r = cei_run_await(run, cei_run_arrived(run),
				  source * op->choice.n_pieces + piece, 1);
		if (!r)
			r = copy(run, first + at, cei_run_scratch(run) + first + at, n_bytes);
	}
	return r;
}

/* Fills what this rank and another one exchange in a direct mode. */
static void fill_span(const struct cei_op_shape *shape, uint32_t own, uint32_t rank,
		      struct cei_direct_span *span)
{
	span->leaves = leaves_at(shape, own, rank);
	span->n_leaves = block_bytes(shape, own, rank);
	span->there = arrives_at(shape, own, rank);
	span->here = arrives_at(shape, rank, own);
	span->n_here = block_bytes(shape, rank, own);
	span->place = span->here;
}

static int queue_direct(const struct cei_run *run)
{
	const struct ceov_move_run *operands = run->operands;
	const ceov_op *op = run->op;
	struct cei_executor *executor = &op->workspace->executor;
	struct cei_direct_job job;
	uint32_t rank;

	memset(&job, 0, sizeof(job));
	cei_direct_job(run, &job);
	job.source = operands->source;
	job.target = operands->target;
	for (rank = 0; rank < op->shape.n_ranks; rank++)
		fill_span(&op->shape, job.own, rank, &job.spans[rank]);
	return executor->ops->direct(executor, run->stream, &job);
}

/* Copies received blocks in the order in which they arrive if all ranks are equally fast. */
static int queue_job(const struct cei_run *run)
{
	uint32_t own = run->op->workspace->rank, n_ranks = run->op->shape.n_ranks, i;
	int r;

	if (cei_selector_is_direct(run->op->choice.mode))
		return queue_direct(run);
	r = copy_own(run);
	for (i = 1; !r && i < n_ranks; i++)
		r = copy_others(run, (own + n_ranks - i) % n_ranks);
	return r ? r : cei_run_await_sent(run);
}

/* --- the cost model -------------------------------------------------------- */

static uint32_t pieces_of(const struct cei_op_shape *shape)
{
	uint64_t n = cei_op_most_rows(shape) / PIECE_BYTES;

	if (n > CEI_OP_PIECES_MAX)
		return CEI_OP_PIECES_MAX;
	return n ? (uint32_t)n : 1;
}

/* Whether SMs move the bytes, as the model says: see FEW_BYTES. */
static int is_for_sms(const struct cei_choose_args *args)
{
	const struct cei_op_shape *shape = args->shape;

	return cei_direct_is_open(args) && !direct_fault(shape, CEOV_MODE_DIRECT) &&
		cei_op_most_rows(shape) * (shape->n_ranks - 1) <= FEW_BYTES;
}

/* Returns whether each rank sends something to every other one. */
static int all_send(const struct cei_op_shape *shape)
{
	uint32_t source, target;

	for (source = 0; source < shape->n_ranks; source++)
		for (target = 0; target < shape->n_ranks; target++)
			if (source != target && !block_bytes(shape, source, target))
				return 0;
	return 1;
}

static void choose_direct(const struct cei_choose_args *args, struct cei_choice *choice)
{
	uint64_t most = cei_op_most_rows(args->shape);

	cei_direct_choose(args, most, choice);
	cei_direct_choose_ll(args, all_send(args->shape), most, choice);
}

static void choose(const struct cei_choose_args *args, struct cei_choice *choice)
{
	if (choice->mode == CEOV_MODE_CHOOSE && is_for_sms(args))
		choice->mode = CEOV_MODE_DIRECT;
	if (cei_selector_is_direct(choice->mode))
		choose_direct(args, choice);
	else
		choice->copy_ns = cei_selector_copy_ns(args, choice->n_pieces);
}

static void explain(const struct cei_choose_args *args, struct cei_choice *choice)
{
	if (cei_selector_is_direct(choice->mode))
		cei_direct_explain(args, choice);
	else
		cei_choice_say_pieces(args, choice);
}

/* --- creation -------------------------------------------------------------- */

int ceov_all_gather_create(ceov_workspace *workspace, const struct ceov_move *from,
			   ceov_op **ret_op)
{
	return cei_op_create_from(workspace, &cei_all_gather, from, ret_op);
}

int ceov_all_to_all_create(ceov_workspace *workspace, const struct ceov_move *from,
			   ceov_op **ret_op)
{
	return cei_op_create_from(workspace, &cei_all_to_all, from, ret_op);
}

/* --- runs ------------------------------------------------------------------ */

/* Returns whether the operand of an all-gather is this rank's shard of the target. Then it is part
 * of the target, and not checked as an operand beside it. */
static int is_in_place(const ceov_op *op, const struct ceov_move_run *run)
{
	uint32_t own = op->workspace->rank;

	return op->kind == &cei_all_gather && (uintptr_t)run->source ==
		(uintptr_t)run->target + arrives_at(&op->shape, own, own);
}

static int take_operands(struct cei_run *run)
{
	const struct ceov_move_run *from = run->operands;
	const ceov_op *op = run->op;
	uint32_t own = op->workspace->rank;
	const struct cei_operand operands[] = {
		{ "target", from->target, arriving_bytes(&op->shape, own), 1 },
		{ "source", from->source, leaving_bytes(&op->shape, own), 0 },
	};

	run->stream = from->stream;
	run->floating[0] = from->source;
	return cei_operands_take(run, operands, is_in_place(op, from) ? 1 : 2);
}

int ceov_move_run(ceov_op *op, const struct ceov_move_run *operands)
{
	return cei_op_run(op, cei_all_gather.run_call, operands);
}

/* --- measuring ------------------------------------------------------------- */

/* Lists copy engines, and SMs where these may be faster. Into how many pieces copy engines cut is
 * left to the model. */
static void list_candidates(const struct cei_listing *listing)
{
	struct ceov_op_tuning engines = *listing->given;

	if (!engines.mode) {
		engines.mode = CEOV_MODE_OVERLAP;
		engines = cei_candidates_choose(listing, listing->rates, &engines);
		cei_candidates_add(listing, &engines);
	}
	cei_direct_list(listing, CEOV_MODE_DIRECT, cei_op_most_rows(listing->shape));
}

static void trial_sizes(const ceov_op *op, struct cei_trial_sizes *ret_sizes)
{
	uint32_t own = op->workspace->rank;

	memset(ret_sizes, 0, sizeof(*ret_sizes));
	ret_sizes->n = 1;
	ret_sizes->a = leaving_bytes(&op->shape, own) / MEASURED_DTYPE_BYTES;
	ret_sizes->c[0] = arriving_bytes(&op->shape, own) / MEASURED_DTYPE_BYTES;
}

static int trial_run(ceov_op *op, const struct cei_trial_operands *operands)
{
	struct ceov_move_run run = { .struct_bytes = sizeof(run) };

	run.stream = operands->stream;
	run.source = operands->a;
	run.target = operands->c[0];
	return ceov_move_run(op, &run);
}

static const struct cei_op_trial trial = { list_candidates, trial_sizes, trial_run };

/* --- the kinds ------------------------------------------------------------- */

const struct cei_op_kind cei_all_gather = {
	.name = "ceov_all_gather",
	.key = "all_gather",
	.run_call = "ceov_move_run",
	.run_bytes = sizeof(struct ceov_move_run),
	.n_stages = 1,
	.shape = shape_of,
	.fault = fault_of,
	.direct_fault = direct_fault,
	.row_bytes = row_bytes,
	.scratch_bytes = scratch_bytes,
	.pieces = pieces_of,
	.choose = choose,
	.explain = explain,
	.build = build,
	.take = take_operands,
	.job = queue_job,
	.trial = &trial,
};

const struct cei_op_kind cei_all_to_all = {
	.name = "ceov_all_to_all",
	.key = "all_to_all",
	.run_call = "ceov_move_run",
	.run_bytes = sizeof(struct ceov_move_run),
	.n_stages = 1,
	.shape = shape_of,
	.fault = fault_of,
	.direct_fault = direct_fault,
	.row_bytes = row_bytes,
	.scratch_bytes = scratch_bytes,
	.pieces = pieces_of,
	.choose = choose,
	.explain = explain,
	.build = build,
	.take = take_operands,
	.job = queue_job,
	.trial = &trial,
};
