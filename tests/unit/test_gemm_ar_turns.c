/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* GEMM + all-reduce in turns on host ranks, where own pieces come between those of peers and sums
 * leave between partial sums: results, ranks that are late or have another order, the order in
 * which bytes leave, ranks whose product cannot add sums, and when turns are chosen. */

#include <check.h>
#include <string.h>
#include <unistd.h>

#include "ce_engine/objects/plan.h"
#include "op_record.h"
#include "op_rig.h"
#include "ops/core/op.h"
#include "ops/gemm/cost_sim.h"
#include "ops/kinds.h"

#define SCRATCH UINT64_C(1200000)
#define RANKS   4u
#define SHAPES  6u                      /* random ones with each number of ranks */
#define LATE_US 40000u

static struct testing_log log_;

static void set_up(void)
{
	testing_log_init(&log_);
}

/* Makes a case of m rows of the sum, whichever rank they are counted for. */
static struct op_case case_of(uint32_t n_ranks, uint64_t m, uint64_t n)
{
	struct op_case one = op_case_of(OP_GEMM_AR, n_ranks, 0, 16, n);

	one.rows[0] = m;
	one.by_columns = 1;
	one.tuning.mode = CEOV_MODE_OVERLAP;
	one.tuning.n_pieces = 3;
	one.tuning.tile_order = CEOV_ORDER_TURNS;
	return one;
}

/* Few rows and many, in up to 6 pieces of all cuts, of which some are empty; parts of rows or of
 * columns, of which some are empty, too. */
static struct op_case in_turns(uint64_t *random, uint32_t n_ranks)
{
	uint64_t m = testing_below(random, 3) ? 1 + testing_below(random, 400)
		: 1 + testing_below(random, 8);
	struct op_case one = case_of(n_ranks, m, 8 + 8 * testing_below(random, 24));

	one.by_columns = (int)testing_below(random, 2);
	one.b_is_k_by_n = (int)testing_below(random, 2);
	one.tuning.n_pieces = 1 + (uint32_t)testing_below(random, 6);
	one.tuning.cut = (enum ceov_op_cut)testing_below(random, CEOV_CUT_COLUMNS + 1);
	if (testing_below(random, 2)) {
		one.tuning.tile_rows = 8 + 8 * (uint32_t)testing_below(random, 4);
		one.tuning.tile_columns = 16;
	}
	return one;
}

/* Half of the shapes are in turns at all ranks; of the others each rank takes any order. */
static void repeat_in_turns(const struct op_part *part)
{
	uint64_t random = *(const uint64_t *)part->arg, own_random = random + part->rank + 1;
	struct op_case one;
	struct op_data data;
	ceov_op *op;
	uint32_t i, run;

	for (i = 0; i < testing_share(SHAPES); i++) {
		one = in_turns(&random, part->rig->n_ranks);
		if (i % 2)
			one.tuning.tile_order = (enum ceov_op_order)
				testing_below(&own_random, CEOV_ORDER_TURNS + 1);
		op = op_case_made(&one, part->rig->workspaces[part->rank]);
		for (run = 0; run < 2; run++) {
			op_data_make(&one, part->rank, run, &data);
			if (testing_below(&own_random, 6) == 0)
				usleep((useconds_t)testing_below(&own_random, 5000));
			ck_assert_int_eq(op_data_run(&one, op, &data), 0);
			op_data_check(&one, part->rank, run, &data);
			op_data_free(&data);
		}
		ceov_op_release(op);
	}
}

START_TEST(test_random_shapes_in_turns)
{
	uint64_t seed = testing_seed() + (uint64_t)_i;
	struct op_rig rig;

	op_rig_open(&rig, (uint32_t)_i, SCRATCH, &log_);
	op_rig_each(&rig, repeat_in_turns, &seed);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* Each rank is late once, while the others go as far as their orders let them. */
static void run_late(const struct op_part *part)
{
	static const enum ceov_op_order orders[] = {
		CEOV_ORDER_TURNS, CEOV_ORDER_BANDS, CEOV_ORDER_TURNS, CEOV_ORDER_COLUMNS
	};
	struct op_case one = *(const struct op_case *)part->arg;
	struct op_data data;
	ceov_op *op;
	uint32_t i;

	one.tuning.tile_order = orders[part->rank];
	op = op_case_made(&one, part->rig->workspaces[part->rank]);
	for (i = 0; i < RANKS; i++) {
		op_data_make(&one, part->rank, i, &data);
		if (i == part->rank)
			usleep(LATE_US);
		ck_assert_int_eq(op_data_run(&one, op, &data), 0);
		op_data_check(&one, part->rank, i, &data);
		op_data_free(&data);
	}
	ceov_op_release(op);
}

START_TEST(test_late_ranks_with_different_orders)
{
	struct op_case one = case_of(RANKS, _i ? 40 : 900, 64);
	struct op_rig rig;

	one.tuning.n_pieces = 5;
	one.tuning.tile_rows = 8;
	one.tuning.tile_columns = 16;
	op_rig_open(&rig, RANKS, SCRATCH, &log_);
	op_rig_each(&rig, run_late, &one);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* Rank 1 of 4 sends to ranks 2, 3 and 0: three pieces of partial sums, each of which awaits the
 * counter of its rank and piece, and one behind each own sums, whose counters are 3 to 5. */
START_TEST(test_sums_leave_between_partial_sums)
{
	static const uint32_t targets[] = { 2, 3, 0 };
	static const uint32_t counters[] = {
		6, 9, 0, 7, 10, 1, 3, 3, 3, 8, 11, 2, 4, 4, 4, 5, 5, 5
	};
	struct op_case one = case_of(RANKS, _i ? 192 : 768, 64);
	const struct cei_program *program;
	struct op_rig rig;
	ceov_op *op;
	uint32_t i;

	op_rig_open(&rig, RANKS, SCRATCH, NULL);
	op = op_case_made(&one, rig.workspaces[1]);
	program = &op->stages[0].plan[0]->program;
	ck_assert_uint_eq(program->n_transfers, 18);
	for (i = 0; i < 18; i++) {
		ck_assert_uint_eq(op_record_target(op, i), targets[i % 3]);
		ck_assert_uint_eq(program->transfers[i].source_ready.counter, counters[i]);
	}
	ck_assert_ptr_null(op->stages[1].plan[0]);
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* Returns whether any tile that adds sums stands in front of one that does not. */
static int has_own_between(const ceov_op *op)
{
	const struct cei_tiles *tiles = &op->product.all.tiles;
	int is_own = 0;
	uint32_t i;

	for (i = 0; i < tiles->n_tiles; i++) {
		if (is_own && tiles->tile[i].reduce == CEI_GEMM_NONE)
			return 1;
		is_own = tiles->tile[i].reduce != CEI_GEMM_NONE;
	}
	return 0;
}

/* Rank 1 is taken for one on a GPU without kernels of this library while its op is created: sums by
 * cuBLAS come behind all products, so no copy of partial sums may stand behind one of sums. */
static void run_beside_cublas(const struct op_part *part)
{
	struct op_case one = *(const struct op_case *)part->arg;
	ceov_workspace *workspace = part->rig->workspaces[part->rank];
	struct op_data data;
	ceov_op *op;

	workspace->is_host = part->rank != 1;
	op = op_case_made(&one, workspace);
	workspace->is_host = 1;
	ck_assert_int_eq(has_own_between(op), part->rank != 1);
	ck_assert_int_eq(op->stages[1].plan[0] != NULL, part->rank == 1);
	op_data_make(&one, part->rank, 1, &data);
	ck_assert_int_eq(op_data_run(&one, op, &data), 0);
	op_data_check(&one, part->rank, 1, &data);
	op_data_free(&data);
	ceov_op_release(op);
}

START_TEST(test_cublas_keeps_own_pieces_behind)
{
	struct op_case one = case_of(3, 576, 64);
	struct op_rig rig;

	op_rig_open(&rig, 3, SCRATCH, &log_);
	op_rig_each(&rig, run_beside_cublas, &one);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* --- choices --------------------------------------------------------------- */

static struct cei_op_shape shape_of(uint32_t n_ranks, uint64_t m, uint64_t n, uint64_t k)
{
	const struct ceov_gemm_ar from = { .struct_bytes = sizeof(from), .dtype = CEOV_BF16,
					   .m = m, .n = n, .k = k, .by_rows = 1 };
	struct cei_op_shape shape = { .kind = &cei_gemm_ar };

	(void)cei_gemm_ar.shape(&shape, &from, n_ranks);
	ck_assert_ptr_null(cei_op_shape_fault(&shape));
	return shape;
}

static struct cei_choice choice_of(const struct cei_op_shape *shape,
				   const struct ceov_op_tuning *given)
{
	struct cei_rates rates = cei_rates_gpu();
	struct cei_choice choice;

	rates.has_library = 1;
	cei_selector_choose(shape, &rates, given, &choice);
	return choice;
}

/* Returns the least predicted time of all numbers of pieces and tile shapes. */
static double least_ns(const struct cei_op_shape *shape, enum ceov_op_order order)
{
	const struct cei_rates rates = cei_rates_gpu();
	const struct cei_cost_sim_args args = { .shape = shape, .rates = &rates,
						.cut = CEOV_CUT_EQUAL, .order = order };
	struct cei_cost_sim all[CEI_COST_SIMS_MAX];
	uint32_t n = cei_cost_sim_all(&args, (struct cei_cost_cuts){ 1, 8 }, all), i;
	double least = all[0].ns;

	ck_assert_uint_gt(n, 0);
	for (i = 1; i < n; i++)
		least = all[i].ns < least ? all[i].ns : least;
	return least;
}

/* Asserts that with any given order the same mode and pieces are chosen, since ranks may differ in
 * the order. */
static void expect_same_pieces(const struct cei_op_shape *shape, const struct cei_choice *open)
{
	struct ceov_op_tuning given = { .struct_bytes = sizeof(given) };
	uint32_t order;

	for (order = CEOV_ORDER_BANDS; order <= CEOV_ORDER_TURNS; order++) {
		given.tile_order = (enum ceov_op_order)order;
		ck_assert_uint_eq(choice_of(shape, &given).n_pieces, open->n_pieces);
		ck_assert_int_eq(choice_of(shape, &given).mode, open->mode);
	}
}

/* Random shapes. Within a hundredth, by which more pieces must win, the model may take either. */
START_TEST(test_turns_are_chosen_where_they_gain)
{
	uint64_t random = testing_seed();
	uint32_t i, n_turns = 0;
	struct cei_op_shape shape;
	struct cei_choice choice;
	double gain;

	for (i = 0; i < 60; i++) {
		shape = shape_of(2 + (uint32_t)testing_below(&random, 7),
				 1024 + testing_below(&random, 15000),
				 1024 + 8 * testing_below(&random, 900),
				 1024 + 8 * testing_below(&random, 900));
		choice = choice_of(&shape, NULL);
		gain = least_ns(&shape, CEOV_ORDER_TURNS) / least_ns(&shape, CEOV_ORDER_BANDS);
		n_turns += choice.order == CEOV_ORDER_TURNS;
		if (choice.order == CEOV_ORDER_TURNS)
			ck_assert_double_lt(gain, 0.98);
		else
			ck_assert(choice.mode == CEOV_MODE_SEQUENCE || gain > 0.96);
		ck_assert_int_eq(choice.order == CEOV_ORDER_TURNS,
				 strstr(choice.text, "own pieces one behind, ") != NULL);
		expect_same_pieces(&shape, &choice);
	}
	ck_assert_uint_gt(n_turns, 0);
	ck_assert_uint_lt(n_turns, 60);
}
END_TEST

/* A prediction is of the order that is taken. */
START_TEST(test_a_given_order_is_predicted)
{
	struct cei_op_shape shape = shape_of(4, 28000, 7168, 4096);
	struct cei_choice open = choice_of(&shape, NULL), choice;
	struct ceov_op_tuning given = { .struct_bytes = sizeof(given) };

	ck_assert_int_eq(open.order, CEOV_ORDER_TURNS);
	ck_assert_uint_gt(open.n_pieces, 1);
	ck_assert_ptr_nonnull(strstr(open.text, "(by the model)\ndivided: rows"));
	given.tile_order = (enum ceov_op_order)_i;
	choice = choice_of(&shape, &given);
	ck_assert_int_eq(choice.order, _i);
	if (_i == CEOV_ORDER_TURNS)
		ck_assert_double_eq(choice.run_ns, open.run_ns);
	else
		ck_assert_double_gt(choice.run_ns, open.run_ns);
}
END_TEST

/* Where no kernel of the library adds sums, and with one piece, nothing leaves earlier. */
START_TEST(test_where_turns_gain_nothing)
{
	struct cei_op_shape shape = shape_of(4, 28000, 7168, 4096);
	struct ceov_op_tuning given = { .struct_bytes = sizeof(given), .tile_rows = 7040,
					.tile_columns = 7168 };
	uint32_t n_pieces = choice_of(&shape, NULL).n_pieces;

	ck_assert_int_eq(choice_of(&shape, &given).order, CEOV_ORDER_BANDS);
	ck_assert_uint_eq(choice_of(&shape, &given).n_pieces, n_pieces);
	given.tile_rows = given.tile_columns = 0;
	given.n_pieces = 1;
	ck_assert_int_eq(choice_of(&shape, &given).order, CEOV_ORDER_BANDS);
	given.mode = CEOV_MODE_SEQUENCE;
	ck_assert_int_eq(choice_of(&shape, &given).order, CEOV_ORDER_BANDS);
}
END_TEST

int main(void)
{
	Suite *made = suite_create("gemm_ar_turns");
	TCase *all = tcase_create("turns");

	tcase_add_checked_fixture(all, set_up, NULL);
	tcase_set_timeout(all, 100);
	tcase_add_loop_test(all, test_random_shapes_in_turns, 1, 1 + OP_RANKS_MAX);
	tcase_add_loop_test(all, test_late_ranks_with_different_orders, 0, 2);
	tcase_add_loop_test(all, test_sums_leave_between_partial_sums, 0, 2);
	tcase_add_test(all, test_cublas_keeps_own_pieces_behind);
	tcase_add_test(all, test_turns_are_chosen_where_they_gain);
	tcase_add_loop_test(all, test_a_given_order_is_predicted, CEOV_ORDER_BANDS,
			    CEOV_ORDER_TURNS + 1);
	tcase_add_test(all, test_where_turns_gain_nothing);
	suite_add_tcase(made, all);
	return testing_run(made);
}
