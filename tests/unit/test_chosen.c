/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* ceov_op_chosen(): what programs learn of an operator's choices, on host ranks. */

#include <check.h>
#include <stddef.h>
#include <string.h>

#include "op_rig.h"
#include "ops/core/op.h"

#define RANKS   3u
#define SCRATCH UINT64_C(4000000)

static struct testing_log log_;

static void set_up(void)
{
	testing_log_init(&log_);
}

static struct ceov_op_tuning chosen_of(const ceov_op *op)
{
	struct ceov_op_tuning chosen;

	memset(&chosen, 0xa5, sizeof(chosen));
	chosen.struct_bytes = sizeof(chosen);
	ck_assert_int_eq(ceov_op_chosen(op, &chosen), 0);
	ck_assert_uint_eq(chosen.struct_bytes, sizeof(chosen));
	return chosen;
}

static void expect_same(const struct ceov_op_tuning *a, const struct ceov_op_tuning *b)
{
	ck_assert_int_eq(a->mode, b->mode);
	ck_assert_uint_eq(a->n_pieces, b->n_pieces);
	ck_assert_uint_eq(a->tile_rows, b->tile_rows);
	ck_assert_uint_eq(a->tile_columns, b->tile_columns);
	ck_assert_uint_eq(a->n_reduce_blocks, b->n_reduce_blocks);
	ck_assert_uint_eq(a->chunk_bytes, b->chunk_bytes);
	ck_assert_int_eq(a->cut, b->cut);
	ck_assert_int_eq(a->tile_order, b->tile_order);
	ck_assert_uint_eq(a->band_rows, b->band_rows);
	ck_assert_uint_eq(a->n_gemm_blocks, b->n_gemm_blocks);
}

/* An op that gets what another one chose has chosen the same. */
START_TEST(test_what_was_chosen_can_be_asked_for)
{
	struct op_case one = op_case_of((enum op_sort)_i, RANKS, 304, 64, 48);
	struct ceov_op_tuning chosen, again;
	struct op_rig rig;
	ceov_op *op;

	op_rig_open(&rig, RANKS, SCRATCH, &log_);
	op = op_case_made(&one, rig.workspaces[0]);
	chosen = chosen_of(op);
	ceov_op_release(op);
	ck_assert_int_ne(chosen.mode, CEOV_MODE_CHOOSE);
	ck_assert_int_eq(chosen.cut, CEOV_CUT_EQUAL);
	ck_assert_uint_ge(chosen.n_pieces, 1);
	ck_assert_int_eq(chosen.tile_order != CEOV_ORDER_CHOOSE, !op_is_sum(one.sort));
	ck_assert_int_eq(chosen.tile_rows != 0, !op_is_sum(one.sort));
	ck_assert_int_eq(chosen.tile_columns != 0, !op_is_sum(one.sort));
	one.tuning = chosen;
	op = op_case_made(&one, rig.workspaces[0]);
	again = chosen_of(op);
	expect_same(&again, &chosen);
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* What the caller set is there as it was set. */
START_TEST(test_what_was_given)
{
	struct op_case one = op_case_of(OP_GEMM_RS, RANKS, 700, 64, 48);
	struct op_case sum = op_case_of(OP_REDUCE_SCATTER, RANKS, 200, 0, 0);
	struct ceov_op_tuning given = {
		.struct_bytes = sizeof(given), .mode = CEOV_MODE_OVERLAP, .n_pieces = 3,
		.tile_rows = 32, .tile_columns = 24, .chunk_bytes = 5000,
		.cut = CEOV_CUT_GROWING, .tile_order = CEOV_ORDER_TURNS, .band_rows = 64,
		.n_gemm_blocks = 6,
	};
	struct ceov_op_tuning chosen;
	struct op_rig rig;
	ceov_op *op;

	op_rig_open(&rig, RANKS, SCRATCH, &log_);
	one.tuning = given;
	op = op_case_made(&one, rig.workspaces[0]);
	chosen = chosen_of(op);
	expect_same(&chosen, &given);
	ceov_op_release(op);
	sum.tuning.mode = CEOV_MODE_DIRECT;
	sum.tuning.n_reduce_blocks = 4;
	op = op_case_made(&sum, rig.workspaces[0]);
	chosen = chosen_of(op);
	ck_assert_int_eq(chosen.mode, CEOV_MODE_DIRECT);
	ck_assert_uint_eq(chosen.n_reduce_blocks, 4);
	ck_assert_uint_eq(chosen.n_pieces, 1);
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* Nothing is written behind the struct of a caller that knows fewer fields. */
START_TEST(test_an_older_struct)
{
	struct op_case one = op_case_of(OP_AG_GEMM, RANKS, 300, 64, 48);
	struct ceov_op_tuning chosen;
	struct op_rig rig;
	ceov_op *op;

	op_rig_open(&rig, RANKS, SCRATCH, &log_);
	one.tuning.n_pieces = 2;
	one.tuning.chunk_bytes = 5000;
	op = op_case_made(&one, rig.workspaces[0]);
	memset(&chosen, 0xa5, sizeof(chosen));
	chosen.struct_bytes = offsetof(struct ceov_op_tuning, chunk_bytes);
	ck_assert_int_eq(ceov_op_chosen(op, &chosen), 0);
	ck_assert_uint_eq(chosen.n_pieces, 2);
	ck_assert_uint_eq(chosen.chunk_bytes, UINT64_C(0xa5a5a5a5a5a5a5a5));
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

START_TEST(test_what_is_refused)
{
	struct op_case one = op_case_of(OP_AG_GEMM, RANKS, 300, 64, 48);
	struct ceov_op_tuning chosen = { .struct_bytes = 8, .n_pieces = 77 };
	struct op_rig rig;
	ceov_op *op;

	ck_assert_int_eq(ceov_op_chosen(NULL, &chosen), CEOV_ERR_INVALID);
	op_rig_open(&rig, RANKS, SCRATCH, &log_);
	op = op_case_made(&one, rig.workspaces[0]);
	ck_assert_int_eq(ceov_op_chosen(op, NULL), CEOV_ERR_INVALID);
	testing_log_has(&log_, "ceov_op_chosen: ret_tuning: there is no struct", NULL, NULL);
	ck_assert_int_eq(ceov_op_chosen(op, &chosen), CEOV_ERR_INVALID);
	testing_log_has(&log_, "struct_bytes is too small", NULL, NULL);
	ck_assert_uint_eq(chosen.n_pieces, 77);
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

int main(void)
{
	Suite *made = suite_create("chosen");
	TCase *all = tcase_create("all");

	tcase_add_checked_fixture(all, set_up, NULL);
	tcase_set_timeout(all, 60);
	tcase_add_loop_test(all, test_what_was_chosen_can_be_asked_for, 0, OP_SORTS);
	tcase_add_test(all, test_what_was_given);
	tcase_add_test(all, test_an_older_struct);
	tcase_add_test(all, test_what_is_refused);
	suite_add_tcase(made, all);
	return testing_run(made);
}
