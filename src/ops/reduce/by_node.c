/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Reduce-scatter and all-reduce over several nodes in two levels.
 *
 *   stage 0   Each rank sends its addend for a rank of its own node to that rank, and its addend
 *             for a rank of another node to the adder of that part, which is a rank of its own
 *             node.
 *   stage 1   The adder adds these up, and sends the sum to the rank that the part is of.
 *   stage 2   All-reduce only: sums go to all ranks, and enter each node once (levels.h).
 *
 * The rank that a part is of adds, node by node, the addends of the ranks of its own node and the
 * sums of the others, always in this order. A node of one rank has nothing to add up: it sends its
 * addend in stage 0.
 *
 * ADDERS. The parts of other nodes' ranks go round the node's ranks in turn, so a rank of a node
 * with n of the group's R ranks is the adder of at most (R - n) / n of them, rounded up.
 *
 * SCRATCH of a rank is a row of slots, each for the longest part:
 *   - what is added to its own part: n + n_nodes - 1 slots, in the order of adding;
 *   - for each part that it is the adder of, n slots, by index of the sender on the node;
 *   - for each of these parts a slot for the sum.
 * With n = 1 these are n_nodes + R - 1 + R - 1, with more at most
 * R + (R - 1) / n * (n + 1) <= 2.5 R slots: never more than 3 R.
 *
 * Why no run asks whether a slot is free: workspace.c. A rank that gets a node's sum for its part
 * knows that all ranks of that node have begun the run.
 */

#include "ops/reduce/by_node.h"

#include <string.h>

#include "ce_engine/objects/context.h"
#include "ops/kinds.h"
#include "ops/reduce/parts.h"

#define STAGE_PARTS 0
#define STAGE_NODES 1
#define STAGE_SUMS  2

int cei_by_node_is_used(const ceov_op *op)
{
	return op->shape.sum.by_node && cei_workspace_has_nodes(op->workspace);
}

/* --- who adds what ------------------------------------------------------------------- */

static const struct cei_levels *levels_of(const ceov_op *op)
{
	return &op->workspace->levels;
}

static int is_far(const ceov_op *op, uint32_t a, uint32_t b)
{
	return levels_of(op)->node[a] != levels_of(op)->node[b];
}

static uint32_t n_local(const ceov_op *op, uint32_t rank)
{
	const struct cei_levels *levels = levels_of(op);

	return levels->n_local[levels->node[rank]];
}

/* Returns how many lower ranks than `part` are not on the node of `rank`. */
static uint32_t turn_of(const ceov_op *op, uint32_t rank, uint32_t part)
{
	uint32_t i, n = 0;

	for (i = 0; i < part; i++)
		n += (uint32_t)is_far(op, i, rank);
	return n;
}

/* Returns whether `rank` is the adder of that part, which is of a rank of another node. */
static int is_adder(const ceov_op *op, uint32_t rank, uint32_t part)
{
	return is_far(op, rank, part) && n_local(op, rank) > 1 &&
		turn_of(op, rank, part) % n_local(op, rank) == levels_of(op)->index[rank];
}

/* Returns how many lower parts the adder of that part also has. */
static uint32_t order_of(const ceov_op *op, uint32_t adder, uint32_t part)
{
	return turn_of(op, adder, part) / n_local(op, adder);
}

/* Returns the most parts that a rank on the node of `rank` is the adder of. */
static uint32_t most_orders(const ceov_op *op, uint32_t rank)
{
	uint32_t n = n_local(op, rank);

	return (op->shape.n_ranks - n + n - 1) / n;
}

/* Returns how many addends a rank adds to its part. */
static uint32_t n_addends(const ceov_op *op, uint32_t rank)
{
	return n_local(op, rank) + levels_of(op)->n_nodes - 1;
}

/* Returns the number, among what `part` adds up, of the addend of `rank`, or of its node. */
static uint32_t addend_of(const ceov_op *op, uint32_t part, uint32_t rank)
{
	const struct cei_levels *levels = levels_of(op);
	uint32_t own = levels->node[part], node = levels->node[rank];

	if (node == own)
		return node + levels->index[rank];
	return node + (own < node ? levels->n_local[own] - 1 : 0);
}

/* --- slots and counters -------------------------------------------------------------- */

/* All return offsets in a half of the scratch of `rank`. */
static uint64_t addend_at(const ceov_op *op, uint32_t addend)
{
	return addend * cei_sum_slot_bytes(&op->shape);
}

static uint64_t received_at(const ceov_op *op, uint32_t adder, uint32_t order)
{
	return addend_at(op, n_addends(op, adder) + order * n_local(op, adder));
}

static uint64_t node_sum_at(const ceov_op *op, uint32_t adder, uint32_t order)
{
	return received_at(op, adder, most_orders(op, adder)) + addend_at(op, order);
}

/* Counters of `arrived` at the adder: one for each sender of each part. */
static uint32_t received_counter(const ceov_op *op, uint32_t adder, uint32_t part)
{
	return 2 * op->shape.n_ranks * CEI_OP_PIECES_MAX +
		order_of(op, adder, part) * n_local(op, adder);
}

/* Counters of `arrived` at all ranks: a piece of the sum of another rank's part. */
static uint32_t sum_counter(const ceov_op *op, uint32_t rank, uint32_t piece)
{
	return op->shape.n_ranks * CEI_OP_PIECES_MAX + rank * op->choice.n_pieces + piece;
}

/* The counter of `ready` that says that the adder has added up a part. Those before it are of
 * pieces of the own part. */
static uint32_t node_sum_ready(const ceov_op *op, uint32_t adder, uint32_t part)
{
	return CEI_OP_PIECES_MAX + order_of(op, adder, part);
}

/* --- transfers ------------------------------------------------------------------------- */

/* Sends a part in pieces to the rank that it is of; `from` is where the part begins. */
static int send_pieces(ceov_op *op, uint32_t stage, uint32_t part, struct cei_send leg)
{
	const struct cei_op_shape *shape = &op->shape;
	uint64_t from = leg.source_bytes, at;
	uint32_t addend = addend_of(op, part, op->workspace->rank), piece;
	int r = 0;

	leg.target = part;
	for (piece = 0; !r && piece < op->choice.n_pieces; piece++) {
		leg.n_bytes = cei_sum_bytes(shape, cei_sum_piece_of(op, part, piece, &at));
		leg.source_bytes = from + cei_sum_bytes(shape, at);
		leg.target_bytes = addend_at(op, addend) + cei_sum_bytes(shape, at);
		leg.arrives = addend * op->choice.n_pieces + piece;
		r = cei_send_stage_add(&op->stages[stage], &leg);
	}
	return r;
}

/* Sends the addend for a part of another node to its adder. */
static int send_to_adder(ceov_op *op, uint32_t adder, uint32_t part)
{
	const struct cei_op_shape *shape = &op->shape;
	uint32_t index = levels_of(op)->index[op->workspace->rank];
	struct cei_send leg = {
		.target = adder,
		.source_bytes = cei_sum_bytes(shape, cei_sum_part_at(shape, part)),
		.target_bytes = received_at(op, adder, order_of(op, adder, part)) +
			addend_at(op, index),
		.n_bytes = cei_sum_bytes(shape, shape->rows[part]),
		.ready = CEOV_NOBODY,
		.arrives = received_counter(op, adder, part) + index,
	};

	return cei_send_stage_add(&op->stages[STAGE_PARTS], &leg);
}

static int send_parts(ceov_op *op, uint32_t target)
{
	const struct cei_op_shape *shape = &op->shape;
	struct cei_send leg = {
		.source_bytes = cei_sum_bytes(shape, cei_sum_part_at(shape, target)),
		.ready = CEOV_NOBODY,
	};
	uint32_t rank = op->workspace->rank, part;
	int r = 0;

	if (is_far(op, rank, target))
		return n_local(op, rank) == 1 ? send_pieces(op, STAGE_PARTS, target, leg) : 0;
	for (part = 0; !r && part < shape->n_ranks; part++)
		if (is_adder(op, target, part))
			r = send_to_adder(op, target, part);
	return r ? r : send_pieces(op, STAGE_PARTS, target, leg);
}

static int send_node_sum(ceov_op *op, uint32_t target)
{
	uint32_t rank = op->workspace->rank;
	struct cei_send leg = { .ready = 0 };

	if (!is_adder(op, rank, target))
		return 0;
	leg.source_bytes = node_sum_at(op, rank, order_of(op, rank, target));
	leg.ready = node_sum_ready(op, rank, target);
	return send_pieces(op, STAGE_NODES, target, leg);
}

static struct cei_send sum_of(const ceov_op *op, uint32_t source, uint32_t target, uint32_t piece)
{
	const struct cei_op_shape *shape = &op->shape;
	uint64_t at, n = cei_sum_piece_of(op, source, piece, &at);

	return (struct cei_send){
		.target = target,
		.source_bytes = cei_sum_bytes(shape, at),
		.target_bytes = cei_sum_gather_at(shape) +
			cei_sum_bytes(shape, cei_op_rows_before(shape, source) + at),
		.n_bytes = cei_sum_bytes(shape, n),
		.ready = piece,
		.arrives = sum_counter(op, source, piece),
	};
}

static int send_sums(ceov_op *op, uint32_t target)
{
	uint32_t rank = op->workspace->rank, piece;
	struct cei_send leg;
	int r = 0;

	if (!cei_levels_sends(levels_of(op), rank, target))
		return 0;
	for (piece = 0; !r && piece < op->choice.n_pieces; piece++) {
		leg = sum_of(op, rank, target, piece);
		r = cei_send_stage_add(&op->stages[STAGE_SUMS], &leg);
	}
	return r;
}

static int pass_sum(ceov_op *op, uint32_t source, uint32_t target, uint32_t piece)
{
	struct cei_send leg = sum_of(op, source, target, piece);

	leg.passes_on = 1;
	return cei_send_stage_add(&op->stages[STAGE_SUMS], &leg);
}

/* --- stages ------------------------------------------------------------------------------ */

/* In a reduce-scatter, ranks without a part get no bytes that show that a peer has begun the run;
 * reduce.c says why an all-reduce needs nothing for that. */
static int build_parts(ceov_op *op)
{
	struct cei_send_stage *stage = &op->stages[STAGE_PARTS];
	uint32_t rank = op->workspace->rank, peer;
	int has_absent = op->kind == &cei_reduce_scatter;
	int r = cei_send_stage_open(stage, op->workspace,
				    cei_sum_bytes(&op->shape,
						  cei_sum_source_elements(&op->shape)));

	stage->says_sent = 1;
	for (peer = 0; !r && has_absent && peer < op->shape.n_ranks; peer++)
		if (peer != rank && !op->shape.rows[peer])
			r = cei_send_stage_say_present(stage, peer);
	if (!r)
		r = cei_op_send_all(op, stage, send_parts);
	for (peer = 0; !r && has_absent && peer < op->shape.n_ranks; peer++)
		if (peer != rank && !op->shape.rows[rank])
			r = cei_send_stage_await_here(stage, peer, op->n_sent++);
	return r;
}

/* A stage without transfers is not opened: its launch would have nothing to wait for. */
static int build_node_sums(ceov_op *op)
{
	struct cei_send_stage *stage = &op->stages[STAGE_NODES];
	uint32_t part, n = 0;
	int r;

	for (part = 0; part < op->shape.n_ranks; part++)
		n += is_adder(op, op->workspace->rank, part) && op->shape.rows[part];
	if (!n)
		return 0;
	r = cei_send_stage_open(stage, op->workspace, 0);
	return r ? r : cei_op_send_all(op, stage, send_node_sum);
}

static int passes_any_on(const ceov_op *op)
{
	uint32_t source;

	for (source = 0; source < op->shape.n_ranks; source++)
		if (op->shape.rows[source] &&
		    cei_levels_passes_on(levels_of(op), op->workspace->rank, source))
			return 1;
	return 0;
}

static int build_sums(ceov_op *op)
{
	struct cei_send_stage *stage = &op->stages[STAGE_SUMS];
	uint64_t n_own = op->shape.rows[op->workspace->rank];
	int r;

	if (op->kind == &cei_reduce_scatter || (!n_own && !passes_any_on(op)))
		return 0;
	r = cei_send_stage_open(stage, op->workspace, cei_sum_bytes(&op->shape, n_own));
	stage->says_sent = n_own != 0;
	if (!r)
		r = cei_op_send_all(op, stage, send_sums);
	return r ? r : cei_op_pass_all(op, pass_sum);
}

int cei_by_node_build(ceov_op *op)
{
	int r = build_parts(op);

	if (!r)
		r = build_node_sums(op);
	return r ? r : build_sums(op);
}

/* --- the job ----------------------------------------------------------------------------- */

/* Sums of n_addends addends, of which `own` is at `source` and the others are in slots. */
static struct cei_reduce_job job_of(const struct cei_run *run, uint32_t n_addends_, uint32_t own)
{
	const ceov_op *op = run->op;
	struct cei_reduce_job job;

	memset(&job, 0, sizeof(job));
	job.dtype = op->shape.dtype;
	job.partial_stride_bytes = cei_sum_slot_bytes(&op->shape);
	job.scale = 1;
	job.n_ranks = n_addends_;
	job.own = own;
	job.n_blocks = op->choice.n_reduce_blocks;
	job.marks = cei_run_marks(run, NULL, NULL);
	job.marks.n_sent = 0;           /* awaited at the end */
	return job;
}

static const char *addend_in_source(const struct cei_run *run, uint32_t part)
{
	const struct ceov_reduce_run *operands = run->operands;
	const struct cei_op_shape *shape = &run->op->shape;

	return (const char *)operands->source +
		cei_sum_bytes(shape, cei_sum_part_at(shape, part));
}

/* Waits for what the node's other ranks have sent for a part of another node. */
static int await_addends(const struct cei_run *run, uint32_t part)
{
	const ceov_op *op = run->op;
	uint32_t rank = op->workspace->rank, own = levels_of(op)->index[rank], i;
	uint32_t first = received_counter(op, rank, part);
	int r = 0;

	for (i = 0; !r && i < n_local(op, rank); i++)
		if (i != own)
			r = cei_run_await(run, cei_run_arrived(run), first + i, 1);
	return r;
}

/* Adds up what this node has for a part of another one, and lets it be sent. */
static int add_for(const struct cei_run *run, uint32_t part)
{
	const ceov_op *op = run->op;
	struct cei_executor *executor = &op->workspace->executor;
	uint32_t rank = op->workspace->rank, own = levels_of(op)->index[rank];
	uint32_t order = order_of(op, rank, part);
	struct cei_reduce_job job = job_of(run, n_local(op, rank), own);
	uint64_t counts[CEI_OP_RANKS_MAX] = { 0 };
	int r = await_addends(run, part);

	if (r)
		return r;
	counts[own] = op->shape.rows[part];
	job.counts = job.piece_elements = counts;
	job.n_pieces = 1;
	job.source = addend_in_source(run, part);
	job.partials = cei_run_scratch(run) + received_at(op, rank, order);
	job.target = cei_run_scratch(run) + node_sum_at(op, rank, order);
	r = executor->ops->reduce(executor, run->stream, &job);
	return r ? r : cei_run_raise(run, op->workspace->ready, node_sum_ready(op, rank, part));
}

static int add_for_others(const struct cei_run *run)
{
	const ceov_op *op = run->op;
	uint32_t rank = op->workspace->rank, n_ranks = op->shape.n_ranks, i, part;
	int r = 0;

	for (i = 1; !r && i < n_ranks; i++) {
		part = (rank + i) % n_ranks;
		if (op->shape.rows[part] && is_adder(op, rank, part))
			r = add_for(run, part);
	}
	return r;
}

static int add_own(const struct cei_run *run)
{
	const struct ceov_reduce_run *operands = run->operands;
	const ceov_op *op = run->op;
	struct cei_executor *executor = &op->workspace->executor;
	uint32_t rank = op->workspace->rank, own = addend_of(op, rank, rank);
	struct cei_reduce_job job = job_of(run, n_addends(op, rank), own);
	uint64_t counts[CEI_OP_RANKS_MAX] = { 0 }, pieces[CEI_OP_RANKS_MAX] = { 0 };
	int is_all = op->kind == &cei_all_reduce;

	if (!op->shape.rows[rank])
		return 0;
	counts[own] = op->shape.rows[rank];
	pieces[own] = cei_sum_piece_elements(op, rank);
	job.counts = counts;
	job.piece_elements = pieces;
	job.n_pieces = op->choice.n_pieces;
	job.source = addend_in_source(run, rank);
	job.partials = cei_run_scratch(run);
	job.target = (char *)operands->target + (is_all
		? cei_sum_bytes(&op->shape, cei_op_rows_before(&op->shape, rank)) : 0);
	job.scale = op->shape.sum.scale;
	job.marks.awaited = cei_run_arrived(run);
	job.marks.ready = is_all ? op->workspace->ready : NULL;
	return executor->ops->reduce(executor, run->stream, &job);
}

/* Copies another rank's sums from scratch to the operand. */
static int take_sums(const struct cei_run *run, uint32_t source)
{
	const struct ceov_reduce_run *operands = run->operands;
	const ceov_op *op = run->op;
	struct cei_executor *executor = &op->workspace->executor;
	uint64_t before = cei_op_rows_before(&op->shape, source), at, n, to;
	uint32_t piece;
	int r = 0;

	for (piece = 0; !r && piece < op->choice.n_pieces; piece++) {
		n = cei_sum_bytes(&op->shape, cei_sum_piece_of(op, source, piece, &at));
		if (!n)
			break;
		to = cei_sum_bytes(&op->shape, before + at);
		r = cei_run_await(run, cei_run_arrived(run), sum_counter(op, source, piece), 1);
		if (!r)
			r = executor->ops->copy(executor, run->stream,
						(char *)operands->target + to,
						cei_run_scratch(run) +
						cei_sum_gather_at(&op->shape) + to, n);
	}
	return r;
}

int cei_by_node_job(const struct cei_run *run)
{
	const ceov_op *op = run->op;
	struct cei_job_marks marks = cei_run_marks(run, NULL, NULL);
	uint32_t rank = op->workspace->rank, n_ranks = op->shape.n_ranks, i;
	int r = add_for_others(run);

	if (!r)
		r = add_own(run);
	for (i = 1; !r && op->kind == &cei_all_reduce && i < n_ranks; i++)
		r = take_sums(run, (rank + n_ranks - i) % n_ranks);
	if (r || !marks.n_sent)
		return r;
	return cei_run_await(run, marks.sent, marks.sent_index, marks.n_sent);
}
