/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Chooses whether copy engines or SMs make a product's transfers. */

#include "ops/gemm/product_lane.h"

#include "kernels/sm_lane.h"
#include "ops/core/sm_lane.h"
#include "ops/gemm/product.h"
#include "ops/gemm/whole.h"
#include "ops/kind.h"
#include "ops/tuning/direct_choice.h"

/* With how many SMs lanes are predicted and measured: as few as nearly fill the links of an H200,
 * and more, which leave the product less. */
static const uint32_t listed_blocks[] = { 16, 24 };

/* The rate at which one SM stores to peers, and that which more SMs do not exceed: with eight H200
 * 24 SMs were at most 4 % faster than 16 beside a product, and often slower
 * (docs/results/8xh200.md). So the model prefers the smaller number. */
#define SM_BYTES_PER_NS   18.0
#define LANE_BYTES_PER_NS 288.0

/* The time between two steps of a lane: the last stores of a step arrive, blocks count themselves,
 * and the mark is raised. Stores of the next step hide most of it. */
#define STEP_NS 1500.0

/* The time from a tile's mark to the first store of what waited for it. */
#define SM_GATE_NS 1000.0

/* SMs are chosen without a word if their predicted time is below this fraction of that of copy
 * engines, which leave all SMs to others. */
#define LANE_WORTH 0.97

/* Pieces of columns are measured if their predicted time is below this fraction of that of rows. */
#define COLUMNS_WORTH 0.99

int cei_product_lane_always(const struct cei_op_shape *shape)
{
	(void)shape;
	return 1;
}

const char *cei_product_lane_fault(const struct cei_op_shape *shape, enum ceov_op_mode mode)
{
	uint32_t i;

	if (mode == CEOV_MODE_TWO_SHOT)
		return cei_whole_fault(shape, mode);
	for (i = 0; i < shape->n_ranks; i++)
		if (!shape->rows[i])
			return "tuning->mode: SMs make the transfers only if all ranks have rows";
	return cei_direct_ranks_fault(shape);
}

/* Returns how many of the wanted SMs can carry a lane. */
static uint32_t blocks_within(const struct cei_rates *rates, uint32_t n)
{
	uint32_t most = rates->n_sms / 2;

	if (n > CEI_SM_LANE_BLOCKS_MAX)
		n = CEI_SM_LANE_BLOCKS_MAX;
	if (most && n > most)
		n = most;
	n = n / CEI_SM_LANE_CLUSTER * CEI_SM_LANE_CLUSTER;
	return n ? n : CEI_SM_LANE_CLUSTER;
}

/* Returns the rates of a product beside a lane of n_blocks SMs. */
static struct cei_rates rates_beside(const struct cei_rates *from, uint32_t n_blocks)
{
	struct cei_rates rates = *from;
	double lane;

	if (!rates.n_sms)
		return rates;           /* the host's mean nothing */
	rates.n_sms -= n_blocks;
	rates.mark_ns = STEP_NS;
	rates.gate_ns = SM_GATE_NS;
	lane = n_blocks * SM_BYTES_PER_NS;
	if (lane > LANE_BYTES_PER_NS)
		lane = LANE_BYTES_PER_NS;
	if (rates.copy_bytes_per_ns > lane)
		rates.copy_bytes_per_ns = lane;
	return rates;
}

/* Chooses for a lane of so many SMs. A tile that no kernel of the library has would leave the lane
 * no SMs, so the model's takes its place: only where the caller left the mode open, since beside
 * this mode such a tile is refused. Mode and pieces do not depend on it. */
static void choose_with(const struct cei_choose_args *from, uint32_t wanted,
			struct cei_choice *choice)
{
	uint32_t n_blocks = blocks_within(from->rates, wanted);
	struct cei_rates rates = rates_beside(from->rates, n_blocks);
	struct ceov_op_tuning given = *from->given;
	const struct cei_choose_args args = { from->shape, &rates, &given };

	given.mode = choice->mode = CEOV_MODE_OVERLAP;
	if (!cei_selector_has_kernel(&rates, (struct cei_tile_shape){ given.tile_rows,
								      given.tile_columns }))
		given.tile_rows = given.tile_columns = 0;
	if (!given.n_gemm_blocks || given.n_gemm_blocks > rates.n_sms)
		given.n_gemm_blocks = rates.n_sms;
	cei_product_choose(&args, choice);
	choice->mode = CEOV_MODE_DIRECT;
	choice->n_reduce_blocks = n_blocks;
}

/* Returns the number of SMs that is predicted to be fastest, and the time in *ret_ns; 0: not known.
 * Only what is the same at all ranks is looked at, since pieces depend on it: a number of SMs
 * counts only with the mode. */
static uint32_t choose_blocks(const struct cei_choose_args *from, const struct cei_choice *begun,
			      double *ret_ns)
{
	const struct ceov_op_tuning alike = cei_product_alike(from->given);
	const struct cei_choose_args args = { from->shape, from->rates, &alike };
	uint32_t i, best = listed_blocks[0];
	struct cei_choice choice;

	*ret_ns = 0;
	if (from->given->mode == CEOV_MODE_DIRECT && from->given->n_reduce_blocks)
		return from->given->n_reduce_blocks;
	for (i = 0; i < sizeof(listed_blocks) / sizeof(listed_blocks[0]); i++) {
		choice = *begun;
		choose_with(&args, listed_blocks[i], &choice);
		if (choice.run_ns <= 0 || (*ret_ns > 0 && choice.run_ns >= *ret_ns))
			continue;
		best = listed_blocks[i];
		*ret_ns = choice.run_ns;
	}
	return best;
}

/* Whether the model may choose SMs: they need a kernel of the library for the product, too, since
 * cuBLAS would not leave them room. The same at all ranks. */
static int may_choose(const struct cei_op_shape *shape, const struct cei_rates *rates)
{
	return cei_kind_has_sm_lane(shape, CEOV_MODE_DIRECT) && rates->has_lanes &&
	       rates->n_sms >= CEI_PRODUCT_LANE_SMS && shape->n_ranks > 1 &&
	       !cei_product_lane_fault(shape, CEOV_MODE_DIRECT);
}

/* Returns with how many SMs a lane is expected to be faster than copy engines by as much as SMs are
 * worth, or 0. What a caller may set at some ranks alone has no part in that, since all ranks have
 * to find the same. */
static uint32_t blocks_worth(const struct cei_choose_args *from, const struct cei_choice *begun)
{
	const struct ceov_op_tuning alike = cei_product_alike(from->given);
	const struct cei_choose_args args = { from->shape, from->rates, &alike };
	struct cei_choice by_engines = *begun;
	double ns;
	uint32_t n_blocks = choose_blocks(from, begun, &ns);

	cei_product_choose(&args, &by_engines);
	return ns > 0 && ns < cei_product_run_ns(&args, &by_engines) * LANE_WORTH ? n_blocks : 0;
}

/* Returns how many SMs make the transfers; 0: copy engines do. */
static uint32_t lane_blocks(const struct cei_choose_args *args, const struct cei_choice *begun)
{
	const struct ceov_op_tuning *given = args->given;
	double ns;

	if (given->mode == CEOV_MODE_DIRECT)
		return choose_blocks(args, begun, &ns);
	if (given->mode || given->n_gemm_blocks || !may_choose(args->shape, args->rates))
		return 0;
	return blocks_worth(args, begun);
}

void cei_product_lane_choose(const struct cei_choose_args *args, struct cei_choice *choice)
{
	uint32_t n_blocks = lane_blocks(args, choice);

	if (n_blocks)
		choose_with(args, n_blocks, choice);
	else
		cei_product_choose(args, choice);
}

void cei_product_lane_explain(const struct cei_choose_args *args, struct cei_choice *choice)
{
	struct cei_rates rates = rates_beside(args->rates, choice->n_reduce_blocks);
	const struct cei_choose_args beside = { args->shape, &rates, args->given };

	if (choice->mode != CEOV_MODE_DIRECT) {
		cei_product_explain(args, choice);
		return;
	}
	cei_product_explain(&beside, choice);
	cei_direct_say_moved(choice, args->given->mode && args->given->n_reduce_blocks);
}

void cei_product_lane_fini(ceov_op *op)
{
	cei_sm_lane_fini(op);
	cei_product_fini(op);
}

/* Adds what the model chooses for a lane of n_blocks SMs, with pieces of the given cut and what
 * else the caller sets, if it is predicted to take less than most_ns, or if that is 0. Returns the
 * predicted time. */
static double add_lane(const struct cei_listing *listing, uint32_t n_blocks, enum ceov_op_cut cut,
		       double most_ns)
{
	struct ceov_op_tuning tuning = *listing->given;
	const struct cei_choose_args args = { listing->shape, listing->rates, &tuning };
	struct cei_choice choice = { .mode = CEOV_MODE_DIRECT };

	tuning.mode = CEOV_MODE_DIRECT;
	tuning.n_reduce_blocks = n_blocks;
	tuning.cut = cut;
	choice.n_pieces = tuning.n_pieces ? tuning.n_pieces : 1;
	choose_with(&args, n_blocks, &choice);
	tuning.n_pieces = choice.n_pieces;
	tuning.n_reduce_blocks = choice.n_reduce_blocks;
	tuning.n_gemm_blocks = choice.n_gemm_blocks;
	tuning.tile_rows = choice.shape.rows;
	tuning.tile_columns = choice.shape.columns;
	tuning.tile_order = choice.order;
	if (most_ns <= 0 || choice.run_ns < most_ns)
		cei_candidates_add(listing, &tuning);
	return choice.run_ns;
}

static void add_cuts(const struct cei_listing *listing, uint32_t n_blocks)
{
	enum ceov_op_cut given = listing->given->cut;
	double ns = add_lane(listing, n_blocks, given, 0);

	if (!given && listing->shape->kind->cuts_columns && ns > 0)
		(void)add_lane(listing, n_blocks, CEOV_CUT_COLUMNS, ns * COLUMNS_WORTH);
}

void cei_product_lane_list(const struct cei_listing *listing)
{
	uint32_t i;

	if (!may_choose(listing->shape, listing->rates))
		return;
	if (listing->given->n_reduce_blocks) {
		add_cuts(listing, listing->given->n_reduce_blocks);
		return;
	}
	for (i = 0; i < sizeof(listed_blocks) / sizeof(listed_blocks[0]); i++)
		add_cuts(listing, listed_blocks[i]);
}
