/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests the simulated cost of overlapped products against lower bounds and measurements. */

#include <check.h>
#include <stdlib.h>

#include "ops/gemm/cost_sim.h"
#include "ops/kinds.h"
#include "testing.h"

static struct cei_op_shape shape_of(const struct cei_op_kind *kind, uint32_t n_ranks, uint64_t rows,
				    uint64_t k, uint64_t n)
{
	struct cei_op_shape shape = { .kind = kind, .dtype = CEOV_BF16, .n_ranks = n_ranks };
	uint32_t i;

	for (i = 0; i < n_ranks; i++)
		shape.rows[i] = rows / n_ranks;
	shape.product.k = k;
	shape.product.n_products = 1;
	shape.product.n[0] = n;
	return shape;
}

/* Measured on 4 x H200 with graphs, in one run per shape
 * (docs/results/4xh200.md#operators). */
static const struct {
	const struct cei_op_kind *kind;
	uint64_t              rows;
	uint64_t              k;
	uint64_t              n;
	struct cei_tile_shape tile;
	uint32_t              n_pieces;
	double                us;
} measured[] = {
	{ &cei_ag_gemm, 2048, 4096, 2752, { 128, 256 }, 1, 102.8 },
	{ &cei_ag_gemm, 2048, 4096, 2752, { 128, 192 }, 1, 92.4 },
	{ &cei_ag_gemm, 2048, 4096, 2752, { 128, 128 }, 1, 91.7 },
	{ &cei_ag_gemm, 8192, 4096, 2752, { 128, 256 }, 1, 285.7 },
	{ &cei_gemm_rs, 2048, 2752, 4096, { 128, 256 }, 1, 114.2 },
	{ &cei_gemm_rs, 2048, 2752, 4096, { 128, 128 }, 1, 102.7 },
	{ &cei_gemm_rs, 8192, 2752, 4096, { 128, 256 }, 1, 308.4 },
	{ &cei_gemm_rs, 8192, 2752, 4096, { 128, 256 }, 2, 273.4 },
	{ &cei_gemm_rs, 8192, 2752, 4096, { 128, 128 }, 8, 381.4 },
	{ &cei_gemm_rs, 8192, 7168, 8192, { 128, 256 }, 1, 1403.6 },
};

/* Forecasts lie within the variation between runs, which is more than a tenth. */
START_TEST(test_what_was_measured_was_forecast)
{
	struct cei_rates rates = cei_rates_gpu();
	struct cei_op_shape shape = shape_of(measured[_i].kind, 4, measured[_i].rows,
					     measured[_i].k, measured[_i].n);
	struct cei_cost_sim_args args = {
		.shape = &shape,
		.rates = &rates,
		.tile = measured[_i].tile,
		.n_pieces = measured[_i].n_pieces,
	};
	double us = cei_cost_sim_ns(&args) / 1e3;

	ck_assert_double_ge(us, 0.78 * measured[_i].us);
	ck_assert_double_le(us, 1.15 * measured[_i].us);
}
END_TEST

static void check_bounds(uint64_t *random)
{
	static const struct cei_tile_shape tiles[] = { { 128, 256 }, { 128, 192 }, { 128, 128 } };
	static const struct cei_op_kind *const kinds[] = {
		&cei_ag_gemm, &cei_gemm_rs, &cei_gemm_ar
	};
	uint32_t n_ranks = 2 + (uint32_t)testing_below(random, 7);
	struct cei_op_shape shape = shape_of(
		kinds[testing_below(random, 3)], n_ranks,
		n_ranks * (1 + testing_below(random, 4096)), 8 + testing_below(random, 8192),
		8 + testing_below(random, 8192));
	struct cei_rates rates = cei_rates_gpu();
	struct cei_cost_sim_args args = {
		.shape = &shape,
		.rates = &rates,
		.tile = tiles[testing_below(random, 3)],
		.n_pieces = 1 + (uint32_t)testing_below(random, 8),
		.cut = (enum ceov_op_cut)testing_below(random, shape.kind->cuts_columns
						       ? CEOV_CUT_COLUMNS + 1
						       : CEOV_CUT_GROWING + 1),
		.order = testing_below(random, 2) ? CEOV_ORDER_TURNS : CEOV_ORDER_BANDS,
	};
	uint64_t columns = shape.kind == &cei_ag_gemm ? shape.product.k : shape.product.n[0];
	double copies_ns = (double)((n_ranks - 1) * shape.rows[0] * columns * 2) /
		rates.copy_bytes_per_ns * (shape.kind == &cei_gemm_ar ? 2 : 1);
	double ns = cei_cost_sim_ns(&args);

	if (ns < copies_ns)
		ck_abort_msg("%g ns, but the copies take %g", ns, copies_ns);
	if (ns < cei_cost_sim_gemm_ns(&args) * 0.5)
		ck_abort_msg("%g ns, but the product takes %g", ns,
			     cei_cost_sim_gemm_ns(&args));
}

START_TEST(test_no_faster_than_its_parts)
{
	uint64_t random = testing_seed();
	uint32_t i;

	for (i = 0; i < 500; i++)
		check_bounds(&random);
}
END_TEST

START_TEST(test_what_cannot_be_played_is_refused)
{
	struct cei_op_shape shape = shape_of(&cei_ag_gemm, 4, 4096, 4096, 4096);
	struct cei_rates rates = cei_rates_gpu();
	struct cei_cost_sim_args args = { &shape, &rates, { 32, 32 }, 1, CEOV_CUT_EQUAL,
					  CEOV_ORDER_BANDS };

	ck_assert_double_lt(cei_cost_sim_ns(&args), 0);
	args.tile.rows = args.tile.columns = 128;
	ck_assert_double_gt(cei_cost_sim_ns(&args), 0);
	rates.n_sms = 0;
	ck_assert_double_lt(cei_cost_sim_ns(&args), 0);
	rates = cei_rates_gpu();
	shape.product.n[0] = UINT64_C(1) << 31;
	ck_assert_double_lt(cei_cost_sim_ns(&args), 0);
}
END_TEST

/* In turns, first pieces have come from all peers long before the last ones, so an all-reduce sends
 * their sums meanwhile. Rows that are gathered are needed as they come, in whichever order; and if
 * copies take the most time, a lane makes as many in either order. */
START_TEST(test_turns)
{
	static const struct {
		const struct cei_op_kind *kind;
		double                    copy_bytes_per_ns;
		int                       gains;
	} cases[] = {
		{ &cei_ag_gemm, 100, 0 }, { &cei_gemm_ar, 100, 0 }, { &cei_gemm_ar, 400, 1 }
	};
	struct cei_op_shape shape = shape_of(cases[_i].kind, 4, 8192, 4096, 4096);
	struct cei_rates rates = cei_rates_gpu();
	struct cei_cost_sim_args args = {
		.shape = &shape, .rates = &rates, .tile = { 128, 128 }, .n_pieces = 4,
	};
	double by_rank, in_turns;

	rates.copy_bytes_per_ns = cases[_i].copy_bytes_per_ns;
	by_rank = cei_cost_sim_ns(&args);
	args.order = CEOV_ORDER_COLUMNS;
	ck_assert_double_eq(cei_cost_sim_ns(&args), by_rank);
	args.order = CEOV_ORDER_TURNS;
	in_turns = cei_cost_sim_ns(&args);
	if (cases[_i].gains)
		ck_assert_double_lt(in_turns, 0.98 * by_rank);
	else
		ck_assert_double_eq_tol(in_turns, by_rank, 1e-6 * by_rank);
	args.n_pieces = 1;
	in_turns = cei_cost_sim_ns(&args);
	args.order = CEOV_ORDER_BANDS;
	ck_assert_double_eq(in_turns, cei_cost_sim_ns(&args));
}
END_TEST

/* One piece of columns is one piece of rows. Of a rank whose rows fill one pair of tiles, further
 * pieces of rows have as many tiles each, but of columns only their share; so the product alone
 * takes no longer, and what is sent leaves earlier. */
START_TEST(test_pieces_of_columns)
{
	struct cei_op_shape shape = shape_of(&cei_gemm_rs, 4, 1024, 4096, 28672);
	struct cei_rates rates = cei_rates_gpu();
	struct cei_cost_sim_args args = {
		.shape = &shape, .rates = &rates, .tile = { 128, 256 }, .n_pieces = 1,
	};
	double one = cei_cost_sim_ns(&args), alone = cei_cost_sim_gemm_ns(&args), by_columns;

	args.cut = CEOV_CUT_COLUMNS;
	ck_assert_double_eq(cei_cost_sim_ns(&args), one);
	args.n_pieces = 2;
	ck_assert_double_eq(cei_cost_sim_gemm_ns(&args), alone);
	by_columns = cei_cost_sim_ns(&args);
	ck_assert_double_lt(by_columns, 0.95 * one);
	args.cut = CEOV_CUT_EQUAL;
	ck_assert_double_gt(cei_cost_sim_ns(&args), by_columns);
	ck_assert_double_gt(cei_cost_sim_gemm_ns(&args), 1.5 * alone);
	args.cut = CEOV_CUT_COLUMNS;
	rates.copy_bytes_per_ns = 20;           /* copies take the most time, of as many bytes */
	args.n_pieces = 1;
	one = cei_cost_sim_ns(&args);
	args.n_pieces = 4;
	ck_assert_double_lt(cei_cost_sim_ns(&args), one);
	shape.product.n[0] = 3 * 768;           /* further pieces are empty, and take no time */
	args.n_pieces = 3;
	one = cei_cost_sim_ns(&args);
	args.n_pieces = 8;
	ck_assert_double_eq(cei_cost_sim_ns(&args), one);
}
END_TEST

/* All peers' pieces are taken once, whatever the order. */
START_TEST(test_every_piece_has_its_turn)
{
	struct cei_op_shape shape = shape_of(&cei_ag_gemm, 5, 5, 8, 8);
	struct cei_play play = { .shape = &shape, .n_pieces = 3, .order = (enum ceov_op_order)_i };
	unsigned char seen[6][3] = { { 0 } };
	struct cei_play_turn turn;
	uint32_t at;

	ck_assert_uint_eq(cei_play_turns(&play), 12);
	for (at = 0; at < 12; at++) {
		turn = cei_play_turn_at(&play, at);
		ck_assert(turn.step >= 1 && turn.step <= 4 && turn.piece < 3);
		ck_assert_uint_eq(seen[turn.step][turn.piece]++, 0);
	}
	ck_assert_uint_eq(cei_play_turn_at(&play, 1).step, _i == CEOV_ORDER_TURNS ? 2 : 1);
}
END_TEST

int main(void)
{
	Suite *made = suite_create("forecast");
	TCase *all = tcase_create("forecast");

	tcase_add_loop_test(all, test_what_was_measured_was_forecast, 0,
			    sizeof(measured) / sizeof(measured[0]));
	tcase_add_test(all, test_no_faster_than_its_parts);
	tcase_add_loop_test(all, test_turns, 0, 3);
	tcase_add_test(all, test_pieces_of_columns);
	tcase_add_loop_test(all, test_every_piece_has_its_turn, CEOV_ORDER_BANDS,
			    CEOV_ORDER_TURNS + 1);
	tcase_add_test(all, test_what_cannot_be_played_is_refused);
	suite_add_tcase(made, all);
	return testing_run(made);
}
