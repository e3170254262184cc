/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The choice between copy engines, SMs beside the product, and SMs one after the other with it, for
 * a product's transfers, and what is refused. What the lane of SMs does is tested on GPUs
 * (tests/gpu/test_gpu_ops.c). */

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/sm_lane.h"
#include "op_rig.h"
#include "ops/core/op.h"
#include "ops/gemm/product_lane.h"
#include "ops/kind.h"
#include "ops/kinds.h"
#include "testing.h"

#define SHAPES 900u
#define CASES  4000u                    /* of each sort */

static struct cei_op_shape shape_of(const struct cei_op_kind *kind, uint32_t n_ranks, uint64_t rows,
				    uint64_t k, uint64_t n)
{
	struct cei_op_shape shape = { .kind = kind, .dtype = CEOV_BF16, .n_ranks = n_ranks };
	uint32_t i;

	for (i = 0; i < n_ranks; i++)
		shape.rows[i] = rows;
	shape.product.k = k;
	shape.product.n_products = 1;
	shape.product.n[0] = n;
	return shape;
}

static struct cei_rates rates_of_one_node(void)
{
	struct cei_rates rates = cei_rates_gpu();

	rates.has_direct = rates.has_lanes = rates.has_library = 1;
	return rates;
}

static struct cei_choice choose(const struct cei_op_shape *shape, const struct cei_rates *rates,
				const struct ceov_op_tuning *tuning)
{
	struct cei_choice choice;

	cei_selector_choose(shape, rates, tuning, &choice);
	return choice;
}

/* Eight ranks with a short product: seven copies, each of which takes less time than it costs to
 * begin the next one. */
START_TEST(test_short_copies_are_made_by_sms)
{
	struct cei_op_shape shape = shape_of(&cei_gemm_rs, 8, 256, 1376, 4096);
	struct cei_rates rates = rates_of_one_node();
	struct cei_choice choice = choose(&shape, &rates, NULL);

	ck_assert_int_eq(choice.mode, CEOV_MODE_DIRECT);
	ck_assert_uint_eq(choice.n_gemm_blocks, rates.n_sms - choice.n_reduce_blocks);
	ck_assert_ptr_nonnull(strstr(choice.text, "mode: direct (by the model)\n"));
	ck_assert_ptr_nonnull(strstr(choice.text, " of each GPU (by the model); no copy "
						  "engine\n"));
	ck_assert_ptr_nonnull(strstr(choice.text, "together"));
}
END_TEST

START_TEST(test_copy_engines_where_the_product_is_longer)
{
	static const struct cei_op_kind *const kinds[] = { &cei_ag_gemm, &cei_gemm_rs };
	struct cei_op_shape shape = shape_of(kinds[_i], 2, 8192, 8192, 8192);
	struct cei_rates rates = rates_of_one_node();

	ck_assert_int_eq(choose(&shape, &rates, NULL).mode, CEOV_MODE_OVERLAP);
}
END_TEST

/* What a caller asks for is kept, and what all ranks cannot do is not chosen. */
START_TEST(test_never_against_the_caller)
{
	struct cei_op_shape shape = shape_of(&cei_gemm_rs, 8, 256, 1376, 4096);
	struct ceov_op_tuning tuning = { .struct_bytes = sizeof(tuning) };
	struct cei_rates rates = rates_of_one_node(), apart = rates;

	tuning.mode = CEOV_MODE_OVERLAP;
	ck_assert_int_eq(choose(&shape, &rates, &tuning).mode, CEOV_MODE_OVERLAP);
	tuning.mode = CEOV_MODE_SEQUENCE;
	ck_assert_int_eq(choose(&shape, &rates, &tuning).mode, CEOV_MODE_SEQUENCE);
	tuning.mode = CEOV_MODE_CHOOSE;
	tuning.n_gemm_blocks = 100;
	ck_assert_int_ne(choose(&shape, &rates, &tuning).mode, CEOV_MODE_DIRECT);
	apart.has_lanes = 0;
	ck_assert_int_ne(choose(&shape, &apart, NULL).mode, CEOV_MODE_DIRECT);
	shape.rows[3] = 0;
	ck_assert_int_ne(choose(&shape, &rates, NULL).mode, CEOV_MODE_DIRECT);
}
END_TEST

/* Ranks may differ in tiles, orders and, while the mode is open, numbers of SMs; mode and pieces
 * must be the same. */
START_TEST(test_all_ranks_choose_alike)
{
	static const struct cei_op_kind *const kinds[] = {
		&cei_ag_gemm, &cei_gemm_rs, &cei_gemm_ar
	};
	struct cei_rates rates = rates_of_one_node();
	struct ceov_op_tuning tuning = { .struct_bytes = sizeof(tuning) };
	uint64_t random = testing_seed();
	uint32_t i, n_direct = 0;

	for (i = 0; i < SHAPES; i++) {
		tuning.tile_rows = i % 2 ? 128 : 0;
		tuning.tile_columns = i % 2 ? 192 : 0;
		tuning.tile_order = (enum ceov_op_order)testing_below(&random,
								      CEOV_ORDER_TURNS + 1);
		tuning.n_reduce_blocks = i % 5 ? 0 : 4;
		struct cei_op_shape shape = shape_of(
			kinds[i % 3], 2 + (uint32_t)testing_below(&random, 7),
			1 + testing_below(&random, 2048), 8 * (1 + testing_below(&random, 1024)),
			8 * (1 + testing_below(&random, 1024)));
		struct cei_choice one = choose(&shape, &rates, NULL);
		struct cei_choice other = choose(&shape, &rates, &tuning);

		ck_assert_int_eq(one.mode, other.mode);
		ck_assert_uint_eq(one.n_pieces, other.n_pieces);
		n_direct += one.mode == CEOV_MODE_DIRECT;
	}
	ck_assert_uint_gt(n_direct, 0);
	ck_assert_uint_lt(n_direct, SHAPES);
}
END_TEST

/* Beside a lane the library's kernels compute, also where the caller set a shape of tiles that only
 * cuBLAS takes: cuBLAS would leave the lane no SMs. The explanation says whose tiles are taken. */
START_TEST(test_tiles_beside_a_lane)
{
	struct cei_op_shape shape = shape_of(&cei_gemm_rs, 2, 405, 888, 1776);
	struct ceov_op_tuning tuning = { .struct_bytes = sizeof(tuning) };
	struct cei_rates rates = rates_of_one_node();
	struct cei_choice choice, open;

	shape.rows[1] = 138;
	tuning.n_pieces = 1;            /* so nothing is done one after the other */
	open = choose(&shape, &rates, &tuning);
	tuning.tile_rows = OP_WIDE_ROWS;
	tuning.tile_columns = OP_WIDE_COLUMNS;
	choice = choose(&shape, &rates, &tuning);
	ck_assert_int_eq(open.mode, CEOV_MODE_DIRECT);
	ck_assert_int_eq(choice.mode, open.mode);
	ck_assert_uint_eq(choice.n_pieces, open.n_pieces);
	ck_assert(cei_selector_has_kernel(&rates, choice.shape));
	ck_assert_ptr_nonnull(strstr(choice.text, "(by the model; no kernel leaves the transfers "
				     "SMs with the 512x65536 given)\n"));
}
END_TEST

static int is_fit(const struct cei_executor *executor, struct cei_tile_shape tile)
{
	(void)executor;
	(void)tile;
	return 1;                       /* cuBLAS takes what the kernels do not */
}

static uint32_t pair(const struct cei_executor *executor, struct cei_tile_shape tile)
{
	const struct cei_rates rates = cei_rates_gpu();

	(void)executor;
	return cei_selector_has_kernel(&rates, tile) ? rates.pair : 1;
}

static const struct cei_executor_ops like_a_gpu = { .is_fit = is_fit, .pair = pair };

/* Expects a tuning to be one that creators of the shape accept. */
static void expect_accepted(const struct cei_op_shape *shape, const struct cei_rates *rates,
			    const struct ceov_op_tuning *tuning, const char *whose)
{
	ceov_workspace workspace;
	const char *fault = cei_op_tuning_fault(shape, tuning);

	memset(&workspace, 0, sizeof(workspace));
	workspace.n_ranks = shape->n_ranks;
	workspace.executor.ops = &like_a_gpu;
	if (!fault && shape->kind->lacks)
		fault = shape->kind->lacks(&workspace, shape, tuning, rates);
	ck_assert_msg(!fault, "%s: %s: mode %d pieces %u cut %d tiles %ux%u SMs %u and %u: %s",
		      shape->kind->name, whose, (int)tuning->mode, tuning->n_pieces,
		      (int)tuning->cut, tuning->tile_rows, tuning->tile_columns,
		      tuning->n_gemm_blocks, tuning->n_reduce_blocks, fault);
}

/* A choice of the model is held to what a caller's is: what was chosen for a tuning that is
 * accepted, given back as a tuning, is accepted, too, and is chosen again. So are those that are
 * measured. */
START_TEST(test_choices_would_be_accepted)
{
	uint64_t random = testing_seed() + (uint64_t)_i, blocks[OP_RANKS_MAX * OP_RANKS_MAX];
	struct cei_rates rates = rates_of_one_node();
	struct cei_candidates candidates;
	struct ceov_op_tuning chosen;
	struct cei_choice choice, again;
	struct cei_op_shape shape;
	struct op_case one;
	uint32_t i, k;

	for (i = 0; i < CASES; i++) {
		one = op_case_large(&random, i % 2 ? 2 : 4, (enum op_sort)_i, 1);
		if (i % 4 < 2 && !one.tuning.mode && one.k)
			one.tuning.n_pieces = 1 + i % 3;        /* as in the case above */
		op_case_shape(&one, blocks, &shape);
		expect_accepted(&shape, &rates, &one.tuning, "as drawn");
		choice = choose(&shape, &rates, &one.tuning);
		chosen = cei_choice_tuning(&choice);
		expect_accepted(&shape, &rates, &chosen, "as chosen");
		again = choose(&shape, &rates, &chosen);
		ck_assert_int_eq(again.mode, choice.mode);
		ck_assert_uint_eq(again.n_pieces, choice.n_pieces);
		ck_assert_uint_eq(again.shape.rows, choice.shape.rows);
		ck_assert_uint_eq(again.shape.columns, choice.shape.columns);
		ck_assert_uint_eq(again.n_reduce_blocks, choice.n_reduce_blocks);
		if (i % 64)             /* listing simulates many of them */
			continue;
		cei_candidates_list(&shape, &rates, &one.tuning, &candidates);
		for (k = 0; k < candidates.n; k++)
			expect_accepted(&shape, &rates, &candidates.tuning[k], "as listed");
	}
}
END_TEST

/* Products of few rows are done one after the other with their transfers, by SMs; longer ones hide
 * them. */
START_TEST(test_one_after_the_other)
{
	static const struct {
		const struct cei_op_kind *kind;
		uint64_t                  rows, k, n;
		int                       is_whole;
	} cases[] = {
		{ &cei_ag_gemm, 128, 4096, 7168, 1 }, { &cei_gemm_rs, 128, 7168, 4096, 1 },
		{ &cei_gemm_rs, 256, 7168, 4096, 1 }, { &cei_ag_gemm, 32, 4096, 7168, 1 },
		{ &cei_ag_gemm, 1024, 4096, 5504, 0 }, { &cei_gemm_rs, 512, 7168, 4096, 0 },
		{ &cei_gemm_rs, 8192, 8192, 8192, 0 },
	};
	struct cei_op_shape shape = shape_of(cases[_i].kind, 2, cases[_i].rows, cases[_i].k,
					     cases[_i].n);
	struct ceov_op_tuning tuning = { .struct_bytes = sizeof(tuning) };
	struct cei_rates rates = rates_of_one_node();
	struct cei_choice choice = choose(&shape, &rates, NULL);

	ck_assert_int_eq(choice.mode == CEOV_MODE_TWO_SHOT, cases[_i].is_whole);
	if (!cases[_i].is_whole)
		return;
	ck_assert_uint_eq(choice.shape.columns, cases[_i].n);   /* by cuBLAS, ... */
	ck_assert_uint_eq(choice.shape.rows, 2 * cases[_i].rows);       /* ... as one matrix */
	ck_assert_ptr_nonnull(strstr(choice.text, "mode: direct, two-shot (by the model)\n"));
	ck_assert_ptr_nonnull(strstr(choice.text, "all rows are one product, "));
	ck_assert_ptr_nonnull(strstr(choice.text, ", 1 of them (by the model)\n"));
	ck_assert_ptr_nonnull(strstr(choice.text, "together"));
	rates.has_library = 0;          /* ranks may differ in that: the same mode */
	choice = choose(&shape, &rates, NULL);
	ck_assert_int_eq(choice.mode, CEOV_MODE_TWO_SHOT);
	ck_assert(cei_selector_has_kernel(&rates, choice.shape));
	rates.has_lanes = 0;            /* some rank has no SMs of its own */
	ck_assert_int_ne(choose(&shape, &rates, NULL).mode, CEOV_MODE_TWO_SHOT);
	rates = rates_of_one_node();
	tuning.n_pieces = 1;            /* a caller who speaks of pieces means an overlap */
	ck_assert_int_ne(choose(&shape, &rates, &tuning).mode, CEOV_MODE_TWO_SHOT);
}
END_TEST

/* Blocks come in clusters, and leave the product at least half of the SMs. */
START_TEST(test_numbers_of_sms)
{
	struct cei_op_shape shape = shape_of(&cei_ag_gemm, 4, 1024, 4096, 4096);
	struct ceov_op_tuning tuning = { .struct_bytes = sizeof(tuning) };
	struct cei_rates rates = rates_of_one_node();
	struct cei_choice choice;
	uint32_t given, n_sms;

	tuning.mode = CEOV_MODE_DIRECT;
	for (n_sms = 4; n_sms <= 132; n_sms += 8) {
		for (given = 0; given <= 64; given++) {
			rates.n_sms = n_sms;
			tuning.n_reduce_blocks = given;
			choice = choose(&shape, &rates, &tuning);
			ck_assert_int_eq(choice.mode, CEOV_MODE_DIRECT);
			ck_assert_uint_eq(choice.n_reduce_blocks % CEI_SM_LANE_CLUSTER, 0);
			ck_assert_uint_ge(choice.n_reduce_blocks, CEI_SM_LANE_CLUSTER);
			ck_assert_uint_le(choice.n_reduce_blocks, CEI_SM_LANE_BLOCKS_MAX);
			ck_assert_uint_ge(choice.n_gemm_blocks, n_sms / 2);
			ck_assert_uint_le(choice.n_reduce_blocks + choice.n_gemm_blocks, n_sms);
		}
	}
}
END_TEST

/* More SMs shorten the transfers, until the links are full. */
START_TEST(test_the_model_counts_sms)
{
	struct cei_op_shape shape = shape_of(&cei_ag_gemm, 8, 1024, 4096, 1376);
	struct ceov_op_tuning tuning = { .struct_bytes = sizeof(tuning) };
	struct cei_rates rates = rates_of_one_node();
	double before, now;

	tuning.mode = CEOV_MODE_DIRECT;
	tuning.n_reduce_blocks = 4;
	before = choose(&shape, &rates, &tuning).copy_ns;
	for (tuning.n_reduce_blocks = 8; tuning.n_reduce_blocks <= 16;
	     tuning.n_reduce_blocks += 4) {
		now = choose(&shape, &rates, &tuning).copy_ns;
		ck_assert_double_lt(now, before);
		before = now;
	}
	tuning.n_reduce_blocks = 30;
	ck_assert_double_ge(choose(&shape, &rates, &tuning).copy_ns, before * 0.8);
}
END_TEST

START_TEST(test_what_is_refused)
{
	struct cei_op_shape shape = shape_of(&cei_gemm_rs, 4, 64, 64, 64);
	const char *fault = cei_product_lane_fault(&shape, CEOV_MODE_TWO_SHOT);

	ck_assert_ptr_null(fault);      /* that mode needs no lane */
	ck_assert_ptr_null(cei_product_lane_fault(&shape, CEOV_MODE_DIRECT));
	shape.rows[2] = 0;
	fault = cei_product_lane_fault(&shape, CEOV_MODE_DIRECT);
	ck_assert_ptr_nonnull(strstr(fault, "only if all ranks have rows"));
	shape = shape_of(&cei_gemm_rs, 33, 64, 64, 64);
	ck_assert_ptr_nonnull(strstr(cei_product_lane_fault(&shape, CEOV_MODE_DIRECT),
				     "at most 32 ranks"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("lane of SMs");
	TCase *all = tcase_create("lane of SMs");

	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_short_copies_are_made_by_sms);
	tcase_add_loop_test(all, test_copy_engines_where_the_product_is_longer, 0, 2);
	tcase_add_test(all, test_never_against_the_caller);
	tcase_add_test(all, test_all_ranks_choose_alike);
	tcase_add_test(all, test_tiles_beside_a_lane);
	tcase_add_loop_test(all, test_choices_would_be_accepted, 0, OP_SORTS);
	tcase_add_loop_test(all, test_one_after_the_other, 0, 7);
	tcase_add_test(all, test_numbers_of_sms);
	tcase_add_test(all, test_the_model_counts_sms);
	tcase_add_test(all, test_what_is_refused);
	suite_add_tcase(suite, all);
	return testing_run(suite);
}
