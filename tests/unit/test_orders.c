/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The order of tiles and the budget of SMs in tunings of operators, on host ranks: results are the
 * same whatever the order, also where ranks differ in it; bytes leave in the order of tiles; what
 * is refused, and what ops say of themselves. The lists of tiles are in test_tiles_order.c. */

#include <check.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "ce_engine/objects/plan.h"
#include "op_record.h"
#include "op_rig.h"
#include "ops/core/op.h"

#define SCRATCH UINT64_C(600000)
#define RANKS   4u
#define ROUNDS  30u                     /* random shapes with each number of ranks */

static struct testing_log log_;

static void set_up(void)
{
	testing_log_init(&log_);
}

static const enum op_sort products[] = {
	OP_AG_GEMM, OP_GEMM_RS, OP_GEMM_A2A, OP_A2A_GEMM, OP_GEMM_AR
};

#define N_PRODUCTS ((int)(sizeof(products) / sizeof(products[0])))

static const struct {
	enum ceov_op_order order;
	uint32_t           band_rows;
} orders[] = {
	{ CEOV_ORDER_CHOOSE, 0 }, { CEOV_ORDER_BANDS, 1 }, { CEOV_ORDER_BANDS, 20 },
	{ CEOV_ORDER_COLUMNS, 0 }, { CEOV_ORDER_TURNS, 0 }, { CEOV_ORDER_TURNS, 16 },
};

#define N_ORDERS ((uint32_t)(sizeof(orders) / sizeof(orders[0])))

static void set_order(struct op_case *one, uint32_t i)
{
	one->tuning.tile_order = orders[i % N_ORDERS].order;
	one->tuning.band_rows = orders[i % N_ORDERS].band_rows;
}

/* i: number of the product, and bits for the layouts and the mode. */
static struct op_case case_of(int i)
{
	int bits = i / N_PRODUCTS;
	struct op_case one = op_case_of(products[i % N_PRODUCTS], RANKS, 24, 16, 40);

	one.rows[1] = 9;
	one.rows[2] = 17;
	one.by_columns = one.b_is_k_by_n = bits & 1;
	one.tuning.mode = bits >> 1 & 1 ? CEOV_MODE_SEQUENCE : CEOV_MODE_OVERLAP;
	one.tuning.n_pieces = bits >> 1 & 1 ? 1 : 3;
	one.tuning.tile_rows = 8;
	one.tuning.tile_columns = 16;
	if (one.sort == OP_AG_GEMM) {
		one.n_gemms = 2;
		one.n[1] = 24;
		one.wants_gathered = 1;
	}
	return one;
}

/* --- results --------------------------------------------------------------- */

static uint64_t run_once(const struct op_part *part, const struct op_case *one, uint64_t seed)
{
	ceov_op *op = op_case_made(one, part->rig->workspaces[part->rank]);
	struct op_data data;
	uint64_t hash;

	op_data_make(one, part->rank, seed, &data);
	ck_assert_int_eq(op_data_run(one, op, &data), 0);
	op_data_check(one, part->rank, seed, &data);
	hash = op_data_hash(&data);
	op_data_free(&data);
	ceov_op_release(op);
	return hash;
}

static void run_orders(const struct op_part *part)
{
	struct op_case one = *(const struct op_case *)part->arg;
	uint64_t hash = run_once(part, &one, 7);
	uint32_t i;

	for (i = 1; i < N_ORDERS; i++) {
		set_order(&one, i);
		ck_assert_uint_eq(run_once(part, &one, 7), hash);
	}
	for (i = 0; i < 3; i++) {       /* another order at each rank */
		set_order(&one, i + 2 * part->rank);
		ck_assert_uint_eq(run_once(part, &one, 7), hash);
	}
}

START_TEST(test_every_order_gives_the_same_bits)
{
	struct op_case one = case_of(_i);
	struct op_rig rig;

	op_rig_open(&rig, RANKS, SCRATCH, NULL);
	ck_assert_uint_le(op_case_scratch(&one), SCRATCH);
	op_rig_each(&rig, run_orders, &one);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

static struct op_case random_product(uint64_t *random, uint32_t n_ranks)
{
	struct op_case one;

	do
		one = op_case_random(random, n_ranks);
	while (op_is_sum(one.sort));
	return one;
}

static void run_random(const struct op_part *part)
{
	uint64_t random = *(const uint64_t *)part->arg, own_random;
	struct op_case one;
	uint32_t i;

	own_random = random + part->rank + 1;
	for (i = 0; i < testing_share(ROUNDS); i++) {
		one = random_product(&random, part->rig->n_ranks);
		set_order(&one, (uint32_t)testing_below(&own_random, N_ORDERS));
		if (testing_below(&own_random, 40) == 0)
			usleep((useconds_t)testing_below(&own_random, 3000));
		run_once(part, &one, i);
	}
}

/* Random shapes, in which each rank takes an order of its own. */
START_TEST(test_random_shapes)
{
	uint64_t seed = testing_seed();
	struct op_rig rig;

	op_rig_open(&rig, (uint32_t)_i, SCRATCH, NULL);
	op_rig_each(&rig, run_random, &seed);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* --- what is sent ---------------------------------------------------------- */

/* Rank 1 of 4 sends two pieces to each of ranks 2, 3 and 0. In turns the sums of an all-reduce
 * follow in the same stage. */
START_TEST(test_turns_send_in_turn)
{
	static const uint32_t in_blocks[] = { 2, 2, 3, 3, 0, 0 }, in_turn[] = { 2, 3, 0 };
	struct op_case one = op_case_of(products[_i % N_PRODUCTS], RANKS, 128, 64, 64);
	int turns = _i >= N_PRODUCTS;
	uint32_t wanted = turns && one.sort == OP_GEMM_AR ? 12 : 6;
	struct op_rig rig;
	ceov_op *op;
	uint32_t i, n = 0, target;

	one.tuning.mode = CEOV_MODE_OVERLAP;
	one.tuning.n_pieces = 2;
	one.tuning.tile_order = turns ? CEOV_ORDER_TURNS : CEOV_ORDER_COLUMNS;
	op_rig_open(&rig, RANKS, SCRATCH, NULL);
	op = op_case_made(&one, rig.workspaces[1]);
	for (i = 0; i < op->stages[0].plan[0]->program.n_transfers; i++) {
		target = op_record_target(op, i);
		if (target == CEOV_NOBODY)
			continue;
		ck_assert_uint_lt(n, wanted);
		ck_assert_uint_eq(target, turns ? in_turn[n % 3] : in_blocks[n]);
		n++;
	}
	ck_assert_uint_eq(n, wanted);
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* --- tunings --------------------------------------------------------------- */

static void expect_no_op(struct op_rig *rig, const struct op_case *one, const char *text)
{
	ceov_op *op = NULL;

	testing_log_clear(&log_);
	ck_assert_int_eq(op_case_create(one, rig->workspaces[0], &op), CEOV_ERR_INVALID);
	ck_assert_ptr_null(op);
	testing_log_has(&log_, text, NULL, NULL);
}

START_TEST(test_what_is_refused)
{
	struct op_case good = case_of(_i), bad = good;
	struct op_rig rig;

	op_rig_open(&rig, RANKS, SCRATCH, &log_);
	bad.tuning.tile_order = (enum ceov_op_order)(CEOV_ORDER_TURNS + 1);
	expect_no_op(&rig, &bad, "tuning->tile_order is none of enum ceov_op_order");
	bad.tuning.tile_order = (enum ceov_op_order)-1;
	expect_no_op(&rig, &bad, "tuning->tile_order is none of enum ceov_op_order");
	bad = good;
	bad.tuning.tile_order = CEOV_ORDER_COLUMNS;
	bad.tuning.band_rows = 64;
	expect_no_op(&rig, &bad, "CEOV_ORDER_COLUMNS has no bands");
	bad = good;
	bad.tuning.n_gemm_blocks = 1;
	expect_no_op(&rig, &bad, "n_gemm_blocks is 1");
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* A struct of an older header ends before chunks, cut and order. What lies behind is not read. */
START_TEST(test_an_older_tuning)
{
	struct op_case one = case_of(_i);
	struct op_rig rig;
	ceov_op *op;

	one.tuning.struct_bytes = offsetof(struct ceov_op_tuning, chunk_bytes);
	one.tuning.chunk_bytes = one.tuning.band_rows = one.tuning.n_gemm_blocks = 1;
	one.tuning.cut = (enum ceov_op_cut)99;
	one.tuning.tile_order = (enum ceov_op_order)99;
	op_rig_open(&rig, RANKS, SCRATCH, &log_);
	op = op_case_made(&one, rig.workspaces[0]);
	ck_assert_uint_eq(op->choice.n_pieces, 3);
	ck_assert_int_eq(op->choice.order, CEOV_ORDER_BANDS);
	ck_assert_uint_eq(op->choice.band_rows, 0);
	ck_assert_uint_eq(op->choice.n_gemm_blocks, 0);
	ck_assert_int_eq(op->given.tile_order, CEOV_ORDER_CHOOSE);
	ceov_op_release(op);
	one.tuning.struct_bytes -= sizeof(size_t);
	expect_no_op(&rig, &one, "struct_bytes");
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

static void expect_text(struct op_rig *rig, const struct op_case *one, const char *text)
{
	ceov_op *op = op_case_made(one, rig->workspaces[0]);

	if (!strstr(op->choice.text, text))
		ck_abort_msg("no '%s' in '%s'", text, op->choice.text);
	ceov_op_release(op);
}

START_TEST(test_explained)
{
	struct op_case one = case_of(_i);
	struct op_rig rig;
	ceov_op *op;

	op_rig_open(&rig, RANKS, SCRATCH, &log_);
	expect_text(&rig, &one, "order: rank after rank, bands of at most 64 rows (by the "
		    "model)\n");
	op = op_case_made(&one, rig.workspaces[0]);
	ck_assert_ptr_null(strstr(op->choice.text, "SMs of the product"));
	ceov_op_release(op);
	one.tuning.band_rows = 17;
	expect_text(&rig, &one, "order: rank after rank, bands of at most 16 rows (as given)\n");
	one.tuning.tile_order = CEOV_ORDER_TURNS;
	one.tuning.n_gemm_blocks = 12;
	expect_text(&rig, &one, one.sort == OP_GEMM_AR
		    ? "order: all ranks' first pieces, then second ones, own pieces one behind, "
		    "bands of at most 16 rows (as given)\n"
		    : "order: all ranks' first pieces, then second ones, bands of at most 16 rows "
		    "(as given)\n");
	expect_text(&rig, &one, "SMs of the product: at most 12 (as given), without effect on the "
		    "host\n");
	one.tuning.tile_order = CEOV_ORDER_COLUMNS;
	one.tuning.band_rows = 0;
	expect_text(&rig, &one, "order: rank after rank, column by column (as given)\n");
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

int main(void)
{
	Suite *made = suite_create("orders");
	TCase *all = tcase_create("orders");

	tcase_add_checked_fixture(all, set_up, NULL);
	tcase_set_timeout(all, 100);
	tcase_add_loop_test(all, test_every_order_gives_the_same_bits, 0,
			    (int)testing_share(4 * N_PRODUCTS));
	tcase_add_loop_test(all, test_random_shapes, 1, 1 + OP_RANKS_MAX);
	tcase_add_loop_test(all, test_turns_send_in_turn, 0, 2 * N_PRODUCTS);
	tcase_add_loop_test(all, test_what_is_refused, 0, N_PRODUCTS);
	tcase_add_loop_test(all, test_an_older_tuning, 0, N_PRODUCTS);
	tcase_add_loop_test(all, test_explained, 0, N_PRODUCTS);
	suite_add_tcase(made, all);
	return testing_run(made);
}
