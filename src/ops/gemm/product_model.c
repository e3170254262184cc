/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The cost model of products: the cost of a number of pieces and a tile shape, and the
 * choice between them. */

#include "ops/gemm/product.h"

#include "ops/compute/dtype.h"
#include "ops/gemm/cost_sim.h"
#include "ops/kind.h"
#include "ops/tuning/selector.h"

#define PIECES_MAX     8u

/* A piece with fewer rows would leave half of each pair of tiles empty. */
#define PIECE_ROWS_MIN  256u

/* The rows of a tile are stored in 16 bits. */
#define TILE_ROWS_MAX   UINT64_C(65528)

uint32_t cei_product_pieces(const struct cei_op_shape *shape)
{
	uint64_t rows = cei_op_most_rows(shape);
	uint32_t n = cei_selector_pieces(shape, PIECES_MAX);

	while (n > 1 && rows / n < PIECE_ROWS_MIN)
		n--;
	return n;
}

struct cei_rates cei_product_rates(const struct cei_rates *rates,
				   const struct ceov_op_tuning *given)
{
	struct cei_rates taken = *rates;

	if (!given->n_gemm_blocks || !rates->n_sms)
		return taken;
	if (given->n_gemm_blocks < rates->n_sms)
		taken.n_sms = given->n_gemm_blocks;
	if (rates->has_tiles)
		taken.has_library = 0;
	return taken;
}

uint64_t cei_product_tiles(const struct cei_cost_sim_args *args)
{
	const struct cei_op_shape *shape = args->shape;
	struct cei_row_cut cut = cei_cost_sim_cut(args);
	uint64_t n_columns = 0, n_blocks = 0, n_rows;
	uint32_t pair = args->rates->pair, i, p;

	for (i = 0; i < shape->product.n_products; i++)
		n_columns += cei_ceiling(shape->product.n[i], args->tile.columns);
	for (i = 0; i < shape->n_ranks; i++) {
		for (p = 0; p < args->n_pieces; p++) {
			(void)cei_piece_rows(&cut, shape->rows[i], args->n_pieces, p, &n_rows);
			n_blocks += cei_ceiling(cei_ceiling(n_rows, args->tile.rows), pair) * pair;
		}
	}
	return n_blocks * n_columns;
}

/* Returns how long a tile takes. Both tiles of a pair need the same columns of B, of which each
 * loads half. */
static double tile_ns(const struct cei_op_shape *shape, const struct cei_rates *rates,
		      struct cei_tile_shape tile)
{
	double flops = 2.0 * tile.rows * tile.columns * (double)shape->product.k;
	double bytes = (tile.rows + (double)tile.columns / rates->pair) *
		(double)(shape->product.k * CEI_DTYPE16_BYTES);
	double math = flops / rates->math_flops_per_ns;
	double load = bytes / rates->load_bytes_per_ns;

	return (math > load ? math : load) + rates->tile_ns;
}

static double gemm_ns(const struct cei_cost_sim_args *args)
{
	uint32_t n_sms = args->rates->n_sms;

	return (double)cei_ceiling(cei_product_tiles(args), n_sms ? n_sms : 1) *
		tile_ns(args->shape, args->rates, args->tile);
}

struct cei_tile_shape cei_product_whole_rows(uint64_t rows, uint64_t columns)
{
	struct cei_tile_shape tile;

	rows = cei_ceiling(rows, CEI_PIECE_ROWS) * CEI_PIECE_ROWS;
	tile.rows = (uint32_t)(rows < TILE_ROWS_MAX ? rows : TILE_ROWS_MAX);
	tile.columns = (uint32_t)columns;
	return tile;
}

/* Returns the tile shape for cuBLAS: all rows of the largest piece of the rank that has most rows,
 * and all columns. */
static struct cei_tile_shape whole_rows(const struct cei_cost_sim_args *args)
{
	const struct cei_product_shape *product = &args->shape->product;
	struct cei_row_cut cut = cei_cost_sim_cut(args);
	uint64_t columns = 0;
	uint32_t i;

	for (i = 0; i < product->n_products; i++)
		if (product->n[i] > columns)
			columns = product->n[i];
	return cei_product_whole_rows(cei_cut_most_rows(&cut, cei_op_most_rows(args->shape),
							args->n_pieces), columns);
}

/* The tile of args is not read. */
static struct cei_tile_shape choose_shape(const struct cei_cost_sim_args *args)
{
	const struct cei_rates *rates = args->rates;
	struct cei_cost_sim_args one = *args;
	struct cei_tile_shape best;
	double ns, best_ns;
	uint32_t i;

	one.tile = best = cei_selector_shape(rates, 0);
	best_ns = gemm_ns(&one);
	if (!rates->has_tiles)
		return whole_rows(&one);
	for (i = 1; one.tile = cei_selector_shape(rates, i), rates->n_sms && one.tile.rows; i++) {
		ns = gemm_ns(&one);
		if (ns < best_ns) {
			best = one.tile;
			best_ns = ns;
		}
	}
	return best;
}

/* Returns by how much the copies of a run take longer because each of them awaits a mark of this
 * rank's product; 0 where they need not. */
static double gates_ns(const struct cei_op_shape *shape, const struct cei_rates *rates,
		       uint32_t n_pieces)
{
	if (!shape->kind->product->scatters)
		return 0;
	return (shape->n_ranks - 1) * (double)n_pieces * rates->gate_ns;
}

/* Chooses between overlap and sequence. Overlap hides the shorter of product and copies, except its
 * first or last part. */
static enum ceov_op_mode choose_mode(const struct cei_op_shape *shape,
				     const struct cei_choice *choice,
				     const struct cei_rates *rates)
{
	double longer = choice->gemm_ns > choice->copy_ns ? choice->gemm_ns
		: choice->copy_ns;
	double shorter = choice->gemm_ns + choice->copy_ns - longer;
	double parts = (double)choice->n_pieces * shape->n_ranks;

	if (shape->n_ranks == 1)
		return CEOV_MODE_OVERLAP;
	if (choice->run_ns > 0)
		return choice->run_ns <= longer + shorter + gates_ns(shape, rates, 1)
			? CEOV_MODE_OVERLAP : CEOV_MODE_SEQUENCE;
	return longer + shorter / parts + rates->mark_ns < longer + shorter
		? CEOV_MODE_OVERLAP : CEOV_MODE_SEQUENCE;
}

/* --- choosing by simulation ------------------------------------------------ */

static struct cei_cost_sim_args model_of(const struct cei_choose_args *args,
					 const struct cei_choice *choice)
{
	return (struct cei_cost_sim_args){ args->shape, args->rates, choice->shape,
					   choice->n_pieces, choice->cut.kind,
					   CEOV_ORDER_BANDS };
}

/* By how much more pieces must win. Candidates are compared from the fewest pieces on, and a later
 * one replaces the best so far only if its predicted time is below this fraction of the best's: the
 * simulation leaves out what further marks cost other work on the machine. */
#define WORTH 0.99

/* Turns are chosen without a word if their predicted time is below this fraction of that of bands.
 * The simulation leaves out what caches lose by them. */
#define TURNS_WORTH 0.97

/* Returns the fastest combination of an allowed number of pieces and a tile shape, with the order
 * of args. All tile shapes are tried, even those that this rank's caller excludes, because all
 * ranks must find the same number of pieces. If none could be simulated, ns of the result is
 * negative. */
static struct cei_cost_sim best_play(const struct cei_cost_sim_args *args, uint32_t given_pieces)
{
	struct cei_cost_sim all[CEI_COST_SIMS_MAX], best = { .ns = -1 };
	const struct cei_cost_cuts cuts = { given_pieces ? given_pieces : 1,
					    given_pieces ? given_pieces : PIECES_MAX };
	uint32_t n = cei_cost_sim_all(args, cuts, all), i;

	for (i = 0; i < n; i++)
		if (best.ns < 0 || all[i].ns < best.ns * WORTH)
			best = all[i];
	return best;
}

/* Returns what best_play() finds for the better one of bands and turns. An order that the caller
 * asked for plays no part, since ranks may differ in that. */
static struct cei_cost_sim best_order(const struct cei_cost_sim_args *args, uint32_t given_pieces)
{
	struct cei_cost_sim best = best_play(args, given_pieces), turns;
	struct cei_cost_sim_args in_turns = *args;

	if (!args->shape->kind->product->own_between)
		return best;
	in_turns.order = CEOV_ORDER_TURNS;
	turns = best_play(&in_turns, given_pieces);
	return turns.ns > 0 && turns.ns < best.ns * TURNS_WORTH ? turns : best;
}

/* Chooses by simulation. The choice is compared with the best time of the GEMM alone, and with the
 * time of the copies. */
static void choose_by_play(const struct cei_choose_args *args, struct cei_choice *choice)
{
	const struct ceov_op_tuning *given = args->given;
	struct cei_cost_sim_args alone = model_of(args, choice);
	struct cei_cost_sim best = best_order(&alone, given->n_pieces);

	if (best.ns < 0)
		return;
	alone.n_pieces = best.n_pieces;
	alone.tile = best.tile;
	choice->n_pieces = best.n_pieces;
	choice->shape = best.tile;
	choice->order = best.order;
	choice->gemm_ns = cei_cost_sim_gemm_ns(&alone);
	choice->run_ns = best.ns;
	if (!given->tile_rows)
		return;
	choice->shape.rows = given->tile_rows;
	choice->shape.columns = given->tile_columns;
}

/* Settles the order, which was that of the simulation, or bands, until now. Only now, because mode
 * and pieces must not depend on an order in which ranks may differ. If it becomes another one, the
 * run is predicted anew. */
static void settle_order(const struct cei_choose_args *args, struct cei_choice *choice)
{
	enum ceov_op_order played = choice->order;
	struct cei_cost_sim_args model;
	double ns;

	if (args->given->tile_order)
		choice->order = args->given->tile_order;
	else if (choice->mode == CEOV_MODE_SEQUENCE ||
		 !cei_selector_has_kernel(args->rates, choice->shape))
		choice->order = CEOV_ORDER_BANDS;
	if (choice->run_ns <= 0 ||
	    (choice->order == CEOV_ORDER_TURNS) == (played == CEOV_ORDER_TURNS))
		return;
	model = model_of(args, choice);
	model.order = choice->order;
	ns = cei_cost_sim_ns(&model);
	if (ns > 0)
		choice->run_ns = ns;
}

struct ceov_op_tuning cei_product_alike(const struct ceov_op_tuning *given)
{
	return (struct ceov_op_tuning){
		.struct_bytes = sizeof(*given), .n_pieces = given->n_pieces, .cut = given->cut,
	};
}

double cei_product_run_ns(const struct cei_choose_args *args, const struct cei_choice *choice)
{
	if (choice->mode != CEOV_MODE_SEQUENCE && choice->run_ns > 0)
		return choice->run_ns;
	return choice->gemm_ns + choice->copy_ns +
		gates_ns(args->shape, args->rates, choice->n_pieces);
}

/* --- the choice ------------------------------------------------------------ */

void cei_product_choose(const struct cei_choose_args *from, struct cei_choice *choice)
{
	const struct cei_op_shape *shape = from->shape;
	const struct ceov_op_tuning *given = from->given;
	const struct cei_rates taken = cei_product_rates(from->rates, given), *rates = &taken;
	const struct cei_choose_args limited = { shape, rates, given }, *args = &limited;
	struct cei_cost_sim_args model;

	choice->order = CEOV_ORDER_BANDS;
	choice->band_rows = given->band_rows;
	choice->n_gemm_blocks = given->n_gemm_blocks;
	if (choice->mode == CEOV_MODE_SEQUENCE)
		choice->n_pieces = 1;
	choice->cut.kind = given->cut ? given->cut : CEOV_CUT_EQUAL;
	choice->shape.rows = given->tile_rows;
	choice->shape.columns = given->tile_columns;
	model = model_of(args, choice);
	if (!given->tile_rows)
		choice->shape = model.tile = choose_shape(&model);
	choice->gemm_ns = gemm_ns(&model);
	if (rates->n_sms && rates->has_tiles && shape->n_ranks > 1 &&
	    given->mode != CEOV_MODE_SEQUENCE)
		choose_by_play(args, choice);
	choice->copy_ns = cei_selector_copy_ns(args, choice->n_pieces);
	if (choice->mode == CEOV_MODE_CHOOSE && given->n_pieces > 1)
		choice->mode = CEOV_MODE_OVERLAP; /* a sequence has one piece */
	if (choice->mode == CEOV_MODE_CHOOSE)
		choice->mode = choose_mode(shape, choice, rates);
	settle_order(args, choice);
	if (choice->mode == CEOV_MODE_SEQUENCE)
		choice->n_pieces = 1;
	model = model_of(args, choice);
	if (choice->mode == CEOV_MODE_SEQUENCE && rates->has_library && !given->tile_rows)
		choice->shape = model.tile = whole_rows(&model);
	choice->cut = cei_cost_sim_cut(&model);
}

void cei_product_say_order(const struct cei_choose_args *args, struct cei_choice *choice)
{
	int in_turns = choice->order == CEOV_ORDER_TURNS && choice->n_pieces > 1 &&
		args->shape->n_ranks > 1;
	int by_kernel = cei_selector_has_kernel(args->rates, choice->shape);

	cei_choice_say(choice, "order: %s", in_turns ? "all ranks' first pieces, then second ones"
		       : "rank after rank");
	if (in_turns && by_kernel && args->shape->kind->product->own_between)
		cei_choice_say(choice, ", own pieces one behind");
	if (choice->order == CEOV_ORDER_COLUMNS)
		cei_choice_say(choice, ", column by column");
	else if (by_kernel)
		cei_choice_say(choice, ", bands of at most %llu rows",
			       (unsigned long long)cei_tiles_band(choice->band_rows, choice->shape,
								  args->rates->pair));
	cei_choice_say(choice, " (%s)\n", cei_choice_by(args->given->tile_order ||
							args->given->band_rows));
	if (!choice->n_gemm_blocks)
		return;
	cei_choice_say(choice, "SMs of the product: at most %u (%s)%s\n",
		       choice->n_gemm_blocks, cei_choice_by(args->given->n_gemm_blocks),
		       !args->rates->n_sms ? ", without effect on the host"
		       : by_kernel ? "" : ", to which cuBLAS does not keep");
}

/* A given shape of tiles may not be the one that was chosen (product_lane.c). */
void cei_product_say_tiles(const struct cei_choose_args *args, struct cei_choice *choice)
{
	const struct ceov_op_tuning *given = args->given;
	struct cei_rates taken = cei_product_rates(args->rates, given);
	const struct cei_choose_args limited = { args->shape, &taken, given };
	const struct cei_cost_sim_args model = model_of(&limited, choice);
	int is_given = given->tile_rows == choice->shape.rows &&
		given->tile_columns == choice->shape.columns;

	if (!cei_selector_has_kernel(&taken, choice->shape))
		taken.pair = 1;
	cei_choice_say(choice, "tiles: %ux%u, %llu of them (%s", choice->shape.rows,
		       choice->shape.columns,
		       (unsigned long long)cei_product_tiles(&model),
		       cei_choice_by((uint64_t)is_given));
	if (given->tile_rows && !is_given)
		cei_choice_say(choice, "; no kernel leaves the transfers SMs with the %ux%u given",
			       given->tile_rows, given->tile_columns);
	cei_choice_say(choice, ")%s\n",
		       args->shape->product.b_is_k_by_n ? ", B is k x n" : "");
	cei_product_say_order(args, choice);
}

void cei_product_explain(const struct cei_choose_args *args, struct cei_choice *choice)
{
	cei_choice_say_mode(args, choice);
	cei_choice_say_pieces(args, choice);
	cei_choice_say_cut(args, choice);
	cei_product_say_tiles(args, choice);
}
