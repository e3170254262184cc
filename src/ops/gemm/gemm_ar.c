/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * GEMM + all-reduce: a GEMM + reduce-scatter whose sums go to all ranks. Each rank has a part of
 * the result, some of its rows or of its columns (ar_parts.h). One half of scratch holds this
 * rank's product, from which the parts of the other ranks are sent; the staging, which is this
 * rank's part as each other rank sends it; and the sums, of which this rank's tiles store their own
 * and peers send the others. From there they are copied to the caller's C.
 *
 * No run waits until its partial sums or its sums were sent, because they stay in scratch, and the
 * same half is written again only two runs later (workspace.c says why that is enough). A run ends
 * only after all peers have begun it: at least one rank has a part that is not empty, it can sum
 * that only when all others have sent, and all others await its sums.
 *
 * Few bytes are summed by one kernel behind the product, without transfers: gemm_ar_direct.h.
 */

#include <stddef.h>
#include <string.h>

#include "base/sized.h"
#include "ops/compute/dtype.h"
#include "ops/core/arrivals.h"
#include "ops/core/direct.h"
#include "ops/core/operands.h"
#include "ops/core/run.h"
#include "ops/core/sm_lane.h"
#include "ops/gemm/a2a.h"
#include "ops/gemm/ar_parts.h"
#include "ops/gemm/columns.h"
#include "ops/gemm/cost_sim.h"
#include "ops/gemm/gemm_ar_direct.h"
#include "ops/gemm/product.h"
#include "ops/gemm/product_lane.h"
#include "ops/kinds.h"
#include "ops/tuning/direct_choice.h"

/* With fewer rows for each rank than a tile of the kernels has, columns are divided instead: then a
 * tile reads no more rows of A than there are, and all ranks have a part. */
#define ROWS_OF_A_RANK 128u

/* Drivers copy rows that are less than 2^31 bytes apart. */
#define COLUMNS_MAX ((UINT64_C(1) << 30) - CEI_AR_COLUMNS_LEAST)

/* --- shapes ---------------------------------------------------------------- */

static const struct ceov_op_tuning *shape_of(struct cei_op_shape *shape, const void *from,
					     uint32_t n_ranks)
{
	const struct ceov_gemm_ar *taken = from;

	shape->fault = cei_sized_fault(from, sizeof(*taken), sizeof(*taken));
	if (shape->fault)
		return NULL;
	cei_product_take(shape, taken->dtype, taken->k, taken->n, taken->b_is_k_by_n);
	if (!n_ranks || n_ranks > CEI_OP_RANKS_MAX)
		return taken->tuning;
	shape->n_ranks = n_ranks;
	if (taken->by_rows != 0 && taken->by_rows != 1)
		shape->fault = "by_rows must be 0 or 1";
	else if (taken->m > CEI_EXTENT_MAX || taken->n > COLUMNS_MAX)
		shape->fault = "there are too many rows or columns";
	/* a number of columns that is refused is left for cei_product_fault() to see */
	else if (taken->by_rows || n_ranks == 1 || !taken->n || taken->n % CEI_AR_COLUMNS_LEAST ||
		 taken->m >= (uint64_t)ROWS_OF_A_RANK * n_ranks)
		cei_ar_divide_rows(shape, taken->m);
	else
		cei_ar_divide_columns(shape, taken->m);
	return taken->tuning;
}

static struct cei_gemm_ar_size size_of(const struct cei_op_shape *shape)
{
	const struct cei_gemm_ar_size size = { cei_ar_m(shape), cei_ar_n(shape) };

	return size;
}

static const char *fault_of(const struct cei_op_shape *shape)
{
	const char *fault = cei_product_fault(shape);

	/* The kernel takes the partial sums of all sources as one matrix, and counts its rows in
	 * 31 bits. */
	if (!fault && cei_op_most_rows(shape) > CEI_EXTENT_MAX / shape->n_ranks)
		fault = "there are too many rows for the number of ranks";
	return fault;
}

/* What is too large for one kernel behind the product is sent beside it, if rows are divided. */
static int has_sm_lane(const struct cei_op_shape *shape)
{
	return !shape->a2a.is_by_columns && cei_ar_all_bytes(shape) > CEI_DIRECT_ONE_SHOT_MAX;
}

static const char *direct_fault(const struct cei_op_shape *shape, enum ceov_op_mode mode)
{
	if (cei_kind_has_sm_lane(shape, mode))
		return cei_product_lane_fault(shape, mode);
	return cei_gemm_ar_direct_fault(size_of(shape), shape, mode);
}

/* --- scratch --------------------------------------------------------------- */

static uint64_t scratch_bytes(const struct cei_op_shape *shape)
{
	uint64_t copied = cei_ar_sums_at(shape, shape->n_ranks);
	uint64_t direct = cei_gemm_ar_direct_scratch(size_of(shape), shape->n_ranks);

	return copied > direct ? copied : direct;
}

uint64_t ceov_gemm_ar_scratch_bytes(const struct ceov_gemm_ar *from, uint32_t n_ranks)
{
	return cei_op_scratch_bytes(&cei_gemm_ar, from, n_ranks);
}

/* --- tiles ----------------------------------------------------------------- */

/* Returns whether own pieces come between those of peers (tiles.h), and sums between partial sums.
 * Then a lane waits for sums before it sends further partial sums, so the product must add them
 * tile by tile. cuBLAS does not: its sums come behind all products. Only kernels of this library
 * execute tiles in pairs (cei_op_rates()). Ranks may differ in it. */
static int is_between(const ceov_op *op)
{
	const ceov_workspace *workspace = op->workspace;
	const struct cei_executor *executor = &workspace->executor;

	return op->choice.order == CEOV_ORDER_TURNS && op->choice.n_pieces > 1 &&
		(workspace->is_host || executor->ops->pair(executor, op->choice.shape) > 1);
}

/* Returns whether one kernel behind the product makes the sums, and there are no transfers. */
static int is_summed_directly(const ceov_op *op)
{
	return cei_selector_is_direct(op->choice.mode) && !cei_op_has_sm_lane(op);
}

static void ask(const ceov_op *op, struct cei_tiles_args *args, uint64_t rows[CEI_OP_RANKS_MAX])
{
	if (is_summed_directly(op)) {
		cei_gemm_ar_direct_ask(size_of(&op->shape), args, rows);
		return;
	}
	args->sums_leave = 1;
	args->own_between = is_between(op);
	if (op->shape.a2a.is_by_columns)
		args->parts = op->shape.a2a.columns;
}

/* --- transfers ------------------------------------------------------------- */

/* Returns which rows and columns of a rank's part a piece has. */
static struct cei_cut_piece piece_of(const ceov_op *op, uint32_t rank, uint32_t piece)
{
	const struct cei_op_shape *shape = &op->shape;

	return cei_piece_of(&op->choice.cut, cei_ar_part_rows(shape, rank),
			    cei_ar_part_columns(shape, rank), op->choice.n_pieces, piece);
}

/* For the first stage: sends a piece of the part of the product that a peer sums, as soon as all
 * its tiles are stored. */
static int send_partials(ceov_op *op, uint32_t target, uint32_t piece)
{
	const struct cei_op_shape *shape = &op->shape;
	uint32_t rank = op->workspace->rank, n_pieces = op->choice.n_pieces;
	const struct cei_cut_piece of = piece_of(op, target, piece);
	struct cei_send leg = { .target = target };

	leg.source_pitch_bytes = cei_ar_n(shape) * CEI_DTYPE16_BYTES;
	leg.target_pitch_bytes = cei_ar_part_row_bytes(shape, target);
	leg.source_bytes = cei_ar_part_in_c(shape, target) + of.row * leg.source_pitch_bytes +
		of.column * CEI_DTYPE16_BYTES;
	leg.target_bytes = cei_ar_staging_at(shape) + rank * cei_ar_part_bytes(shape, target) +
		of.row * leg.target_pitch_bytes + of.column * CEI_DTYPE16_BYTES;
	leg.n_rows = of.n_rows;
	leg.n_bytes = of.n_rows ? of.n_columns * CEI_DTYPE16_BYTES : 0;
	leg.ready = target * n_pieces + piece;
	leg.arrives = rank * n_pieces + piece;
	return cei_send_stage_add(&op->stages[0], &leg);
}

/* Returns the counter of `arrived` that says that a piece of a rank's sums has come. */
static uint32_t sums_counter(const ceov_op *op, uint32_t rank, uint32_t piece)
{
	return op->shape.n_ranks * CEI_OP_PIECES_MAX + rank * op->choice.n_pieces + piece;
}

/* Sends a piece of this rank's sums, as soon as all its tiles are stored. A range of columns has
 * gaps between its rows. */
static int send_sum(ceov_op *op, uint32_t target, uint32_t piece)
{
	const struct cei_op_shape *shape = &op->shape;
	uint32_t rank = op->workspace->rank, n_pieces = op->choice.n_pieces;
	const struct cei_cut_piece of = piece_of(op, rank, piece);
	uint64_t pitch_bytes = cei_ar_part_row_bytes(shape, rank);
	struct cei_send leg = { .target = target };

	leg.source_bytes = leg.target_bytes = cei_ar_sums_at(shape, rank) +
		of.row * pitch_bytes + of.column * CEI_DTYPE16_BYTES;
	leg.n_bytes = of.n_rows * pitch_bytes;
	if (of.n_rows && of.n_columns < cei_ar_part_columns(shape, rank)) {
		leg.n_bytes = of.n_columns * CEI_DTYPE16_BYTES;
		leg.n_rows = of.n_rows;
		leg.source_pitch_bytes = leg.target_pitch_bytes = pitch_bytes;
	}
	leg.ready = rank * n_pieces + piece;
	leg.arrives = sums_counter(op, rank, piece);
	return cei_send_stage_add(&op->stages[is_between(op) ? 0 : 1], &leg);
}

/* For the second stage: sends all sums to a rank. */
static int send_sums(ceov_op *op, uint32_t target)
{
	uint32_t piece;
	int r = 0;

	for (piece = 0; !r && piece < op->choice.n_pieces; piece++)
		r = send_sum(op, target, piece);
	return r;
}

/* Returns whether any other rank has a part that is not empty. */
static int others_have_parts(const ceov_op *op)
{
	uint32_t rank;

	for (rank = 0; rank < op->shape.n_ranks; rank++)
		if (rank != op->workspace->rank && cei_ar_part_rows(&op->shape, rank))
			return 1;
	return 0;
}

/* Builds one stage for partial sums and sums, in the order in which their tiles are computed. Some
 * rank has a part, so each rank has something to send. */
static int build_between(ceov_op *op)
{
	uint32_t n_pieces = op->choice.n_pieces, piece;
	int r = cei_send_stage_open(&op->stages[0], op->workspace, 0);

	if (!r)
		r = cei_op_send_piece(op, 0, send_partials);
	for (piece = 1; !r && piece < n_pieces; piece++) {
		r = cei_op_send_piece(op, piece, send_partials);
		if (!r)
			r = cei_op_send_piece(op, piece - 1, send_sum);
	}
	return r ? r : cei_op_send_piece(op, n_pieces - 1, send_sum);
}

/* Opens only stages that have something to send, since a plan without transfers is refused. */
static int build(ceov_op *op)
{
	int sends = others_have_parts(op), r;

	if (is_summed_directly(op))
		return cei_gemm_ar_direct_build(op, size_of(&op->shape));
	r = cei_product_prepare(op);
	if (r || op->shape.n_ranks == 1)
		return r;
	if (is_between(op))
		return build_between(op);
	if (sends)
		r = cei_send_stage_open(&op->stages[0], op->workspace, 0);
	if (!r && sends)
		r = cei_op_send_pieces(op, &op->stages[0], send_partials);
	if (r || !cei_ar_part_rows(&op->shape, op->workspace->rank))
		return r;
	r = cei_send_stage_open(&op->stages[1], op->workspace, 0);
	return r ? r : cei_op_send_all(op, &op->stages[1], send_sums);
}

/* --- the job --------------------------------------------------------------- */

static struct cei_gemm_job job_of(const ceov_op *op, const void *operands,
				  char *scratch, const struct cei_tile_list *list)
{
	const struct cei_op_shape *shape = &op->shape;
	uint32_t rank = op->workspace->rank;
	uint64_t m = cei_ar_m(shape), n = cei_ar_n(shape), k = shape->product.k;
	struct cei_gemm_job job = cei_product_job(op, list);
	const struct ceov_gemm_ar_run *run = operands;
	struct cei_matrix all = shape->product.b_is_k_by_n
		? cei_product_matrix(run->b, k, n) : cei_product_matrix(run->b, n, k);

	if (is_summed_directly(op))
		return cei_gemm_ar_direct_product(op, size_of(shape), run, list);
	job.a[CEI_GEMM_A_OWN] = cei_product_matrix(run->a, m, k);
	job.b[0] = shape->a2a.is_by_columns ? cei_columns_of_b(shape, rank, run->b) : all;
	if (shape->a2a.is_by_columns)
		job.b[1] = all;
	job.c[0] = cei_product_matrix(shape->n_ranks == 1 ? run->c
				      : scratch + cei_ar_sums_at(shape, rank),
				      cei_ar_part_rows(shape, rank),
				      cei_ar_part_columns(shape, rank));
	job.c[CEI_GEMM_C_PARTIAL] = cei_product_matrix(scratch, m, n);
	job.is_claimed = op->workspace->shares_sms;
	job.partials = scratch + cei_ar_staging_at(shape);
	job.partial_stride_bytes = cei_ar_part_bytes(shape, rank);
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
	job.marks = cei_run_marks(run, cei_run_arrived(run), ready);
	return executor->ops->gemm(executor, run->stream, &job);
}

/* For a sequence: computes the parts of all peers as one product, raises the marks that let them be
 * sent, then computes the own part, whose sums are sent as in an overlap. */
static int multiply_in_sequence(const struct cei_run *run)
{
	const ceov_op *op = run->op;
	ceov_signal *ready = op->workspace->ready;
	uint32_t rank = op->workspace->rank, peer;
	int r = multiply(run, &op->product.others, NULL);

	for (peer = 0; !r && peer < op->shape.n_ranks; peer++)
		if (peer != rank && cei_ar_part_rows(&op->shape, peer))
			r = cei_run_raise(run, ready, peer);
	return r ? r : multiply(run, &op->product.own, ready);
}

/* Copies some rows and columns of a rank's sums to the caller's C. */
static int copy_sums(const struct cei_run *run, uint32_t rank, const struct cei_cut_piece *of)
{
	const struct ceov_gemm_ar_run *operands = run->operands;
	const struct cei_op_shape *shape = &run->op->shape;
	struct cei_executor *executor = &run->op->workspace->executor;
	uint64_t pitch_bytes = cei_ar_n(shape) * CEI_DTYPE16_BYTES;
	uint64_t part_bytes = cei_ar_part_row_bytes(shape, rank);
	uint64_t column_bytes = of->column * CEI_DTYPE16_BYTES;
	const struct cei_rows rows = {
		.target = (char *)operands->c + cei_ar_part_in_c(shape, rank) +
			of->row * pitch_bytes + column_bytes,
		.source = cei_run_scratch(run) + cei_ar_sums_at(shape, rank) +
			of->row * part_bytes + column_bytes,
		.row_bytes = of->n_columns * CEI_DTYPE16_BYTES,
		.n_rows = of->n_rows,
		.target_pitch_bytes = pitch_bytes,
		.source_pitch_bytes = part_bytes,
	};

	if (rows.row_bytes == pitch_bytes)
		return executor->ops->copy(executor, run->stream, rows.target, rows.source,
					   of->n_rows * pitch_bytes);
	return executor->ops->copy_rows(executor, run->stream, &rows);
}

static uint64_t rows_from(const ceov_op *op, uint32_t source)
{
	return cei_ar_part_rows(&op->shape, source);
}

static uint64_t columns_from(const ceov_op *op, uint32_t source)
{
	return cei_ar_part_columns(&op->shape, source);
}

static int take_sums(const struct cei_run *run, uint32_t source, uint32_t first, uint32_t n)
{
	const ceov_op *op = run->op;
	struct cei_cut_piece of;
	int r = cei_run_await(run, cei_run_arrived(run), sums_counter(op, source, first), n);

	of = cei_arrivals_part(run, rows_from(op, source), columns_from(op, source), first, n);
	return r ? r : copy_sums(run, source, &of);
}

static int multiply_all(const struct cei_run *run)
{
	const ceov_op *op = run->op;

	if (op->choice.mode == CEOV_MODE_SEQUENCE)
		return multiply_in_sequence(run);
	return multiply(run, &op->product.all, op->workspace->ready);
}

/* Copies the sums to the caller's C: this rank's own, and those of peers as they come. */
static int take_all(const struct cei_run *run)
{
	static const struct cei_arrivals arrivals = { rows_from, columns_from, take_sums };
	const ceov_op *op = run->op;
	uint32_t rank = op->workspace->rank;
	const struct cei_cut_piece own = { 0, rows_from(op, rank), 0, columns_from(op, rank) };
	int r = 0;

	if (op->shape.n_ranks == 1)
		return 0;
	if (own.n_rows)
		r = copy_sums(run, rank, &own);
	return r ? r : cei_arrivals_take(run, &arrivals);
}

static int queue_job(const struct cei_run *run)
{
	int r;

	if (is_summed_directly(run->op))
		return cei_gemm_ar_direct_job(run, size_of(&run->op->shape));
	if (cei_op_has_sm_lane(run->op))
		return cei_sm_lane_run(run, multiply_all, take_all);
	r = multiply_all(run);
	return r ? r : take_all(run);
}

int ceov_gemm_ar_create(ceov_workspace *workspace, const struct ceov_gemm_ar *from,
			ceov_op **ret_op)
{
	return cei_op_create_from(workspace, &cei_gemm_ar, from, ret_op);
}

static int take_operands(struct cei_run *run)
{
	const struct ceov_gemm_ar_run *from = run->operands;
	const ceov_op *op = run->op;
	const struct cei_op_shape *shape = &op->shape;
	uint64_t k_bytes = shape->product.k * CEI_DTYPE16_BYTES;
	const struct cei_operand operands[] = {
		{ "a", from->a, cei_ar_m(shape) * k_bytes, 0 },
		{ "b", from->b, cei_ar_n(shape) * k_bytes, 0 },
		{ "c", from->c, cei_ar_all_bytes(shape), 1 },
	};

	run->stream = from->stream;
	return cei_operands_take(run, operands, 3);
}

int ceov_gemm_ar_run(ceov_op *op, const struct ceov_gemm_ar_run *operands)
{
	return cei_op_run(op, cei_gemm_ar.run_call, operands);
}

/* --- the cost model -------------------------------------------------------- */

/* Simulates the tiles of one piece of the own rows, and the copies of its sums. */
static void play_own(struct cei_play *play, uint32_t piece, double arrived_ns, double *lane_ns)
{
	const struct cei_op_shape *shape = play->shape;
	double done_ns = cei_play_sum(play, piece, arrived_ns);
	struct cei_cut_piece of;

	of = cei_piece_of(&play->cut, shape->rows[0], shape->product.n[0], play->n_pieces, piece);
	if (!of.n_rows)
		return;
	*lane_ns = done_ns > *lane_ns ? done_ns : *lane_ns;
	*lane_ns += cei_play_sent_ns(play, of.n_rows, of.n_columns) +
		(shape->n_ranks - 2) * cei_play_copy_ns(play, of.n_rows, of.n_columns);
}

/* Simulates tiles and copies in the order of tiles.h. All ranks are simulated alike, so what peers
 * send has come when this rank has sent its own. */
static void play(struct cei_play *play)
{
	double arrived_ns[CEI_OP_PIECES_MAX] = { 0 }, lane_ns = 0;
	uint32_t at, own = 0;
	struct cei_play_turn turn;

	for (at = 0; at < cei_play_turns(play); at++) {
		turn = cei_play_turn_at(play, at);
		cei_play_send(play, turn, &lane_ns, arrived_ns);
		if (play->order == CEOV_ORDER_TURNS && turn.piece &&
		    turn.step == play->shape->n_ranks - 1) {
			play_own(play, own, arrived_ns[own], &lane_ns);
			own++;
		}
	}
	for (; own < play->n_pieces; own++)
		play_own(play, own, arrived_ns[own], &lane_ns);
	cei_play_until(play, lane_ns);
}

/* On one node few rows are multiplied and summed directly, unless the caller sets a mode or pieces,
 * which are the same at all ranks; shapes of tiles need not be. */
static void choose(const struct cei_choose_args *args, struct cei_choice *choice)
{
	struct cei_gemm_ar_size size = size_of(args->shape);
	uint32_t n_ranks = args->shape->n_ranks;
	int is_open = choice->mode == CEOV_MODE_CHOOSE && args->given->n_pieces < 2;
	enum ceov_op_mode mode = is_open && args->rates->has_direct
		? cei_gemm_ar_direct_mode(size, n_ranks) : choice->mode;

	if (has_sm_lane(args->shape) && mode != CEOV_MODE_TWO_SHOT) {
		cei_product_lane_choose(args, choice);
		return;
	}
	if (!cei_selector_is_direct(mode)) {
		cei_columns_choose(args, choice);
		return;
	}
	choice->mode = CEOV_MODE_SEQUENCE;      /* for the shape of tiles */
	cei_columns_choose(args, choice);
	if (cei_product_rates(args->rates, args->given).has_library && !args->given->tile_rows)
		choice->shape = cei_product_whole_rows(size.m, size.n);
	choice->mode = mode;
	cei_gemm_ar_direct_choose(args, size, choice);
}

static void explain(const struct cei_choose_args *args, struct cei_choice *choice)
{
	if (cei_kind_has_sm_lane(args->shape, choice->mode)) {
		cei_product_lane_explain(args, choice);
		return;
	}
	if (!cei_selector_is_direct(choice->mode)) {
		cei_a2a_explain(args, choice);
		return;
	}
	cei_direct_explain(args, choice);
	cei_product_say_order(args, choice);
}

/* --- measuring ------------------------------------------------------------- */

static void trial_sizes(const ceov_op *op, struct cei_trial_sizes *ret_sizes)
{
	const struct cei_op_shape *shape = &op->shape;

	memset(ret_sizes, 0, sizeof(*ret_sizes));
	ret_sizes->n = 1;
	ret_sizes->a = cei_ar_m(shape) * shape->product.k;
	ret_sizes->b[0] = cei_ar_n(shape) * shape->product.k;
	ret_sizes->c[0] = cei_ar_m(shape) * cei_ar_n(shape);
}

static int trial_run(ceov_op *op, const struct cei_trial_operands *operands)
{
	struct ceov_gemm_ar_run run = { .struct_bytes = sizeof(run) };

	run.stream = operands->stream;
	run.a = operands->a;
	run.b = operands->b[0];
	run.c = operands->c[0];
	return ceov_gemm_ar_run(op, &run);
}

static void list_candidates(const struct cei_listing *listing)
{
	static const enum ceov_op_mode direct[] = { CEOV_MODE_DIRECT, CEOV_MODE_TWO_SHOT };
	uint32_t n_ranks = listing->shape->n_ranks, i;
	struct cei_gemm_ar_size size = size_of(listing->shape);

	cei_columns_candidates(listing);
	for (i = 0; i < sizeof(direct) / sizeof(direct[0]); i++)
		cei_direct_list(listing, direct[i],
				cei_gemm_ar_direct_span(size, n_ranks, direct[i]));
}

static const struct cei_op_trial trial = { list_candidates, trial_sizes, trial_run };

static const struct cei_product_kind product = {
	.scatters = 1, .own_between = 1, .play = play, .job = job_of, .ask = ask,
};

/* --- the kind -------------------------------------------------------------- */

const struct cei_op_kind cei_gemm_ar = {
	.name = "ceov_gemm_ar",
	.key = "gemm_ar",
	.run_call = "ceov_gemm_ar_run",
	.run_bytes = sizeof(struct ceov_gemm_ar_run),
	.n_stages = 2,
	.shape = shape_of,
	.fault = fault_of,
	.direct_fault = direct_fault,
	.has_sm_lane = has_sm_lane,
	.lacks = cei_columns_lacks,
	.row_bytes = cei_product_row_bytes,     /* the rows of the model are those of the widest
						 * part */
	.scratch_bytes = scratch_bytes,
	.pieces = cei_product_pieces,
	.choose = choose,
	.explain = explain,
	.build = build,
	.built = cei_sm_lane_build,
	.take = take_operands,
	.job = queue_job,
	.fini = cei_product_lane_fini,
	.trial = &trial,
	.product = &product,
	.cuts_columns = 1,
};
