/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Chooses, builds and runs products one after the other with their transfers. */

#include "ops/gemm/whole.h"

#include <string.h>

#include "ops/compute/dtype.h"
#include "ops/core/direct.h"
#include "ops/tuning/direct_choice.h"

/* Beyond that copies and products take long enough to hide each other. */
#define SPAN_BYTES_MAX (UINT64_C(4) << 20)

/* What a product by cuBLAS takes: its begin and end, then what SMs compute of their data sheet's
 * rate, or what an SM loads of operands and results that nobody has read before. Of bf16 products
 * on H200 they predict 23.1 us for 256 x 7168 x 4096, where 23.8 were measured, and 34.4 for
 * 2048 x 1376 x 4096, where it were 32 to 34. */
#define LIBRARY_NS               2000.0
#define LIBRARY_MATH             0.72
#define LIBRARY_BYTES_PER_SM_NS  25.0

/* This mode is chosen if its predicted time is below this fraction of that of others. Of small
 * products the prediction of these is up to a tenth too long: 62.8 us in place of 56.5 for an
 * all-gather + GEMM of 512 rows, 102 in place of 93 for a GEMM + reduce-scatter of 2048 rows
 * between eight H200. */
#define WHOLE_WORTH 0.92

/* --- the choice ------------------------------------------------------------ */

static uint64_t span_bytes(const struct cei_op_shape *shape)
{
	return cei_op_most_rows(shape) * shape->kind->row_bytes(shape);
}

const char *cei_whole_fault(const struct cei_op_shape *shape, enum ceov_op_mode mode)
{
	if (mode != CEOV_MODE_TWO_SHOT)
		return "tuning->mode: SMs do not make this operator's transfers beside its "
			"product; take CEOV_MODE_TWO_SHOT";
	if (shape->a2a.is_by_columns)
		return "tuning->mode: direct modes are for rows, and columns are divided";
	if (span_bytes(shape) > SPAN_BYTES_MAX)
		return "tuning->mode: more than 4 MiB from rank to rank are not sent apart from "
			"the product";
	return cei_direct_ranks_fault(shape);
}

/* Returns whether each rank sends something to every other one. */
static int all_send(const struct cei_op_shape *shape)
{
	struct cei_direct_span span;
	uint32_t source, target;

	for (source = 0; source < shape->n_ranks; source++) {
		for (target = 0; target < shape->n_ranks; target++) {
			shape->kind->product->whole->span(shape, source, target, &span);
			if (source != target && !span.n_leaves)
				return 0;
		}
	}
	return 1;
}

/* Returns the shape of the product alone: all rows as those of one rank. */
static struct cei_op_shape product_of(const struct cei_op_shape *shape)
{
	struct cei_op_shape alone = *shape;

	memset(alone.rows, 0, sizeof(alone.rows));
	alone.rows[0] = cei_op_all_rows(shape);
	alone.n_ranks = 1;
	return alone;
}

/* Predicts the product by cuBLAS, also where this rank has none: all ranks have to find the
 * same. */
static double library_ns(const struct cei_op_shape *shape, const struct cei_rates *rates)
{
	double m = (double)cei_op_all_rows(shape), k = (double)shape->product.k, n = 0;
	double math, load;
	uint32_t i;

	for (i = 0; i < shape->product.n_products; i++)
		n += (double)shape->product.n[i];
	math = 2 * m * n * k / (rates->n_sms * rates->math_flops_per_ns * LIBRARY_MATH);
	load = (m * k + n * k + m * n) * CEI_DTYPE16_BYTES /
		(rates->n_sms * LIBRARY_BYTES_PER_SM_NS);
	return shape->product.n_products * LIBRARY_NS + (math > load ? math : load);
}

static void choose_transfers(const struct cei_choose_args *args, struct cei_choice *choice)
{
	const struct cei_op_shape *shape = args->shape;
	uint64_t span = span_bytes(shape);
	struct cei_choice sent = { .mode = CEOV_MODE_DIRECT };  /* it is in one step */

	if (shape->kind->product->whole->is_sum)
		cei_direct_choose_sum(args, span, &sent);
	else
		cei_direct_choose(args, span, &sent);
	cei_direct_choose_ll(args, all_send(shape), span, &sent);
	choice->n_reduce_blocks = sent.n_reduce_blocks;
	choice->direct_each = sent.direct_each;
	choice->direct_ll = sent.direct_ll;
	choice->direct_steps = sent.direct_steps;
	choice->direct_step_rows = sent.direct_step_rows;
	if (args->rates->n_sms)
		choice->copy_ns = cei_direct_ns(args, choice, (shape->n_ranks - 1) * span);
}

static void choose_whole(const struct cei_choose_args *args, struct cei_choice *choice)
{
	const struct cei_op_shape alone = product_of(args->shape);
	const struct cei_choose_args product = { &alone, args->rates, args->given };

	choice->mode = CEOV_MODE_SEQUENCE;      /* for the shape of tiles */
	cei_product_choose(&product, choice);
	choice->mode = CEOV_MODE_TWO_SHOT;
	choose_transfers(args, choice);
	if (!args->rates->n_sms)
		return;                         /* the host's rates mean nothing */
	choice->gemm_ns = library_ns(args->shape, args->rates);
	choice->run_ns = choice->gemm_ns + choice->copy_ns;
}

/* Returns whether the model chooses this mode. All ranks have to find the same, so only what they
 * share is looked at. A cut is asked for where products and copies overlap. */
static int is_worth(const struct cei_choose_args *from, const struct cei_choice *begun)
{
	const struct ceov_op_tuning alike = cei_product_alike(from->given);
	const struct cei_choose_args args = { from->shape, from->rates, &alike };
	struct cei_choice whole = *begun, other = *begun;

	if (!cei_direct_is_open(from) || from->given->n_gemm_blocks ||
	    from->given->cut > CEOV_CUT_EQUAL ||
	    cei_whole_fault(from->shape, CEOV_MODE_TWO_SHOT))
		return 0;
	choose_whole(&args, &whole);
	from->shape->kind->product->whole->choose(&args, &other);
	return whole.run_ns < cei_product_run_ns(&args, &other) * WHOLE_WORTH;
}

void cei_whole_choose(const struct cei_choose_args *args, struct cei_choice *choice)
{
	if (choice->mode == CEOV_MODE_TWO_SHOT || is_worth(args, choice))
		choose_whole(args, choice);
	else
		args->shape->kind->product->whole->choose(args, choice);
}

void cei_whole_explain(const struct cei_choose_args *args, struct cei_choice *choice)
{
	const struct cei_op_shape alone = product_of(args->shape);
	const struct cei_choose_args product = { &alone, args->rates, args->given };

	if (choice->mode != CEOV_MODE_TWO_SHOT) {
		args->shape->kind->product->whole->explain(args, choice);
		return;
	}
	cei_direct_explain(args, choice);
	cei_choice_say(choice, "all rows are one product, %s the transfers\n",
		       args->shape->kind->product->scatters ? "before" : "behind");
	cei_product_say_tiles(&product, choice);
}

void cei_whole_candidates(const struct cei_listing *listing)
{
	const struct cei_op_shape *shape = listing->shape;
	struct ceov_op_tuning tuning = { .struct_bytes = sizeof(tuning) };
	struct ceov_op_tuning given = *listing->given;
	struct cei_tile_shape tile;
	uint32_t i;

	shape->kind->product->whole->candidates(listing);
	if (!listing->rates->has_direct || shape->n_ranks == 1 ||
	    cei_whole_fault(shape, CEOV_MODE_TWO_SHOT))
		return;
	given.mode = CEOV_MODE_TWO_SHOT;
	given.n_pieces = 1;
	tuning = cei_candidates_choose(listing, listing->rates, &given);
	cei_candidates_add(listing, &tuning);
	for (i = 0; listing->rates->has_tiles; i++) {
		tile = cei_selector_shape(listing->rates, i);
		if (!tile.rows)
			return;
		tuning.tile_rows = tile.rows;
		tuning.tile_columns = tile.columns;
		cei_candidates_add(listing, &tuning);
	}
}

/* --- building -------------------------------------------------------------- */

void cei_whole_ask(uint64_t n_rows, struct cei_tiles_args *args, uint64_t *memory)
{
	*memory = n_rows;
	args->rank = 0;
	args->n_ranks = 1;
	args->rows = memory;
	args->waits = 0;
}

struct cei_gemm_job cei_whole_job(const ceov_op *op, const struct cei_tile_list *list)
{
	struct cei_gemm_job job = cei_product_job(op, list);

	job.n_sources = 1;
	job.own = 0;
	return job;
}

int cei_whole_build(ceov_op *op)
{
	const struct cei_product_kind *product = op->kind->product;
	struct cei_executor *executor = &op->workspace->executor;
	uint64_t width = product->scatters ? op->shape.product.n[0] : op->shape.product.k;
	uint64_t n_rows = product->whole->rows(&op->shape, op->workspace->rank);
	int r = cei_direct_build(op);

	if (!r)
		r = executor->ops->hold(executor, NULL, n_rows * width * CEI_DTYPE16_BYTES,
					&op->product.whole);
	return r ? r : cei_product_prepare(op);
}

/* --- runs ------------------------------------------------------------------ */

static int transfer(const struct cei_run *run)
{
	const ceov_op *op = run->op;
	const struct cei_whole_kind *whole = op->kind->product->whole;
	const struct cei_whole_ends ends = whole->ends(op, run->operands);
	struct cei_executor *executor = &op->workspace->executor;
	struct cei_direct_job job;
	uint32_t rank;

	memset(&job, 0, sizeof(job));
	cei_direct_job(run, &job);
	job.is_sum = whole->is_sum;
	job.dtype = op->shape.dtype;
	job.scale = 1;
	job.source = ends.source;
	job.target = ends.target;
	for (rank = 0; rank < job.n_ranks; rank++)
		whole->span(&op->shape, job.own, rank, &job.spans[rank]);
	return executor->ops->direct(executor, run->stream, &job);
}

static int multiply(const struct cei_run *run)
{
	const ceov_op *op = run->op;
	struct cei_executor *executor = &op->workspace->executor;
	struct cei_gemm_job job = op->kind->product->job(op, run->operands, cei_run_scratch(run),
							 &op->product.all);

	return op->product.all.tiles.n_tiles ? executor->ops->gemm(executor, run->stream, &job) : 0;
}

int cei_whole_run(const struct cei_run *run)
{
	int scatters = run->op->kind->product->scatters;
	int r = scatters ? multiply(run) : transfer(run);

	if (r)
		return r;
	return scatters ? transfer(run) : multiply(run);
}
