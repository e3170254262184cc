/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* GEMM + all-reduce on host ranks: how the sum is divided, from one row on, what a job queues, how
 * an op is chosen and explained, and what is refused. Plain cases, missing ranks and aborts are in
 * test_ops.c, random shapes in tests/system/test_ops_shapes.c. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "op_rig.h"
#include "ops/core/op.h"
#include "ops/kinds.h"
#include "ops/tuning/candidates.h"

#define SCRATCH   UINT64_C(1200000)
#define RUNS      6u
#define RANKS     4u

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
	return one;
}

/* --- results --------------------------------------------------------------- */

/* Runs several times with different operands; some ranks are delayed now and then. */
static void repeat(const struct op_part *part)
{
	const struct op_case *one = part->arg;
	uint64_t random = testing_seed() + part->rank;
	ceov_op *op = op_case_made(one, part->rig->workspaces[part->rank]);
	struct op_data data;
	uint32_t i;

	for (i = 0; i < RUNS; i++) {
		op_data_make(one, part->rank, i, &data);
		if (testing_below(&random, 6) == 0)
			usleep((useconds_t)testing_below(&random, 5000));
		ck_assert_int_eq(op_data_run(one, op, &data), 0);
		op_data_check(one, part->rank, i, &data);
		op_data_free(&data);
	}
	ceov_op_release(op);
}

static void try_case(struct op_case *one)
{
	struct op_rig rig;

	op_rig_open(&rig, one->n_ranks, SCRATCH, &log_);
	ck_assert_uint_le(op_case_scratch(one), SCRATCH);
	op_rig_each(&rig, repeat, one);
	op_rig_release(&rig);
	op_rig_close(&rig);
}

/* Few rows, and numbers of columns that leave some ranks without any, or with fewer than others. */
START_TEST(test_few_rows)
{
	static const uint64_t rows[] = { 1, 2, 7, 37 }, columns[] = { 8, 24, 48, 328 };
	struct op_case one = case_of(3, rows[_i / 4], columns[_i % 4]);

	try_case(&one);
	one.b_is_k_by_n = 1;
	one.tuning.mode = CEOV_MODE_SEQUENCE;
	one.tuning.n_pieces = 1;
	try_case(&one);
}
END_TEST

/* Rows are divided, since there are enough, or since the caller says so. */
START_TEST(test_divided_rows)
{
	static const uint64_t rows[] = { 1, 5, 255, 256, 300 };
	struct op_case one = case_of(2, rows[_i], 24);

	one.by_columns = 0;
	try_case(&one);
	one.b_is_k_by_n = 1;
	one.tuning.tile_rows = 128;
	one.tuning.tile_columns = 16;
	try_case(&one);
}
END_TEST

/* Tiles reach over the ends of parts. */
START_TEST(test_parts_that_are_narrower_than_tiles)
{
	struct op_case one = case_of(4, 40, 72);

	one.b_is_k_by_n = _i & 1;
	one.tuning.tile_rows = 16;
	one.tuning.tile_columns = _i & 2 ? 12 : 32;
	try_case(&one);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("gemm_ar");
	TCase *all = tcase_create("gemm_ar");

	tcase_add_checked_fixture(all, set_up, NULL);
	tcase_set_timeout(all, 100);
	tcase_add_loop_test(all, test_few_rows, 0, 16);
	tcase_add_loop_test(all, test_divided_rows, 0, 5);
	tcase_add_loop_test(all, test_parts_that_are_narrower_than_tiles, 0, 4);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
