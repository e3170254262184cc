/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Operators on host ranks: plain cases, refusals, and missing ranks. Random shapes are in
 * tests/system/test_ops_shapes.c. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "op_rig.h"
#include "ops/core/op.h"
#include "ops/gemm/product.h"

#define SCRATCH  UINT64_C(400000)
#define RUNS     40u

static struct testing_log log_;

static void set_up(void)
{
	testing_log_init(&log_);
}

/* --- results --------------------------------------------------------------- */

/* Makes cases of each kind in turn; every other time sums are in fp32 and B is k x n. */
static struct op_case plain(uint32_t i, uint32_t n_ranks)
{
	enum op_sort sort = (enum op_sort)(i % OP_SORTS);
	int is_sum = op_is_sum(sort);
	struct op_case one = op_case_of(sort, n_ranks, is_sum ? 200 : 24, 40, 32);

	if (sort == OP_AG_GEMM) {
		one.n_gemms = 3;
		one.n[1] = 8;
		one.n[2] = 40;
		one.wants_gathered = 1;
	}
	if (is_sum && i / OP_SORTS % 2)
		one.dtype = CEOV_FP32;
	one.b_is_k_by_n = one.by_columns = i / OP_SORTS % 2;
	return one;
}

/* Runs many times with two sets of operands alternately: results must be right, and equal
 * in every bit. Some rank is delayed now and then. */
static void repeat(const struct op_part *part)
{
	const struct op_case *one = part->arg;
	uint64_t random = testing_seed() + part->rank, hash[2] = { 0, 0 };
	ceov_op *op = op_case_made(one, part->rig->workspaces[part->rank]);
	struct op_data data;
	uint32_t i;

	for (i = 0; i < testing_share(RUNS); i++) {
		op_data_make(one, part->rank, i % 2, &data);
		if (testing_below(&random, 8) == 0)
			usleep((useconds_t)testing_below(&random, 10000));
		ck_assert_int_eq(op_data_run(one, op, &data), 0);
		if (i < 2) {
			op_data_check(one, part->rank, i % 2, &data);
			hash[i] = op_data_hash(&data);
		}
		ck_assert_uint_eq(op_data_hash(&data), hash[i % 2]);
		op_data_free(&data);
	}
	ceov_op_release(op);
}

START_TEST(test_runs_are_right_and_bitwise_alike)
{
	struct op_case one = plain((uint32_t)_i, 1 + (uint32_t)_i % OP_RANKS_MAX);
	struct op_rig rig;

	if (one.dtype != CEOV_FP32)
		one.dtype = _i % 2 ? CEOV_FP16 : CEOV_BF16;
	one.tuning.n_pieces = 1 + (uint32_t)_i % 3;
	op_rig_open(&rig, one.n_ranks, SCRATCH, NULL);
	op_rig_each(&rig, repeat, &one);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

START_TEST(test_a_sequence_gives_the_same)
{
	struct op_case one = plain((uint32_t)_i, 3);
	struct op_rig rig;

	one.tuning.mode = CEOV_MODE_SEQUENCE;
	op_rig_open(&rig, 3, SCRATCH, NULL);
	op_rig_each(&rig, repeat, &one);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* A rank without rows sends or receives nothing, but must not run ahead of the others. */
START_TEST(test_a_rank_without_rows)
{
	struct op_case one = plain((uint32_t)_i, 4);
	struct op_rig rig;

	memset(one.rows, 0, sizeof(one.rows));
	one.rows[2] = 64;
	if (_i >= OP_SORTS)
		one.rows[1] = 8;
	op_rig_open(&rig, 4, SCRATCH, NULL);
	op_rig_each(&rig, repeat, &one);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* Makes runs of a second workspace meanwhile, with two threads per rank. */
static void *run_other(void *arg)
{
	struct op_case one = plain(OP_GEMM_RS, 3);

	op_rig_each(arg, repeat, &one);
	return NULL;
}

START_TEST(test_two_workspaces_at_once)
{
	struct op_case one = plain(OP_AG_GEMM, 3);
	struct op_rig rig, other;
	pthread_t thread;

	op_rig_open(&rig, 3, SCRATCH, NULL);
	op_rig_open_beside(&other, &rig, "other", SCRATCH);
	ck_assert_int_eq(pthread_create(&thread, NULL, run_other, &other), 0);
	op_rig_each(&rig, repeat, &one);
	pthread_join(thread, NULL);
	op_rig_release(&rig);
	op_rig_release(&other);
	op_rig_close(&rig);
}
END_TEST

/* Operators that cut differently use the same counters of one workspace. */
static void alternate(const struct op_part *part)
{
	struct op_case cases[OP_SORTS];
	ceov_op *ops[OP_SORTS];
	struct op_data data;
	uint32_t i, which;

	for (i = 0; i < OP_SORTS; i++) {
		cases[i] = plain(i, part->rig->n_ranks);
		cases[i].tuning.n_pieces = 1 + 2 * i;
		ops[i] = op_case_made(&cases[i], part->rig->workspaces[part->rank]);
	}
	for (i = 0; i < testing_share(4 * RUNS); i++) {
		which = i * 7 / 3 % OP_SORTS;
		op_data_make(&cases[which], part->rank, i, &data);
		ck_assert_int_eq(op_data_run(&cases[which], ops[which], &data), 0);
		if (i % 5 == 0)
			op_data_check(&cases[which], part->rank, i, &data);
		op_data_free(&data);
	}
	for (i = 0; i < OP_SORTS; i++)
		ceov_op_release(ops[i]);
}

START_TEST(test_ops_that_cut_differently)
{
	struct op_rig rig;

	op_rig_open(&rig, 4, SCRATCH, NULL);
	op_rig_each(&rig, alternate, NULL);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* --- marks of a later run --------------------------------------------------- */

#define LONG_PART  UINT64_C(4000000)    /* large enough to take a while */
#define SHORT_PART UINT64_C(8)
#define OVERTAKES  4u

/* Sums values that are all equal, so that each rank adds the same value. */
static int sum_of(ceov_op *op, uint64_t n, uint16_t value, uint16_t **ret_target)
{
	struct ceov_reduce_run run = { .struct_bytes = sizeof(run) };
	uint16_t *source = aligned_alloc(16, n * 2), *target = aligned_alloc(16, n * 2);
	uint64_t i;
	int r;

	ck_assert(source && target);
	for (i = 0; i < n; i++)
		source[i] = value;
	run.source = source;
	run.target = target;
	r = ceov_reduce_run(op, &run);
	free(source);
	*ret_target = target;
	return r;
}

static ceov_op *op_of_parts(const struct op_part *part, uint64_t first, uint32_t n_pieces)
{
	struct op_case one = op_case_of(OP_REDUCE_SCATTER, 3, SHORT_PART, 0, 0);

	one.rows[0] = first;
	one.tuning.n_pieces = n_pieces;
	return op_case_made(&one, part->rig->workspaces[part->rank]);
}

/*
 * Rank 1 comes late to a long run, sends to rank 2 first, and is then busy sending to rank
 * 0. Rank 2 is already in the next run, which is cut differently, and raises a counter at
 * rank 0 that rank 1 has not reached yet.
 */
static void overtake(const struct op_part *part)
{
	static const uint16_t values[2] = { 0x3f80, 0x4000 };           /* 1 and 2 in bf16 */
	static const uint16_t sums[2] = { 0x4040, 0x40c0 };             /* 3 and 6 in bf16 */
	ceov_op *long_op = op_of_parts(part, LONG_PART, 2);
	ceov_op *short_op = op_of_parts(part, SHORT_PART, 1);
	uint64_t k, n = part->rank ? SHORT_PART : LONG_PART;
	uint16_t *target;
	uint32_t i;

	for (i = 0; i < OVERTAKES; i++) {
		if (part->rank == 1)
			usleep(100000);
		ck_assert_int_eq(sum_of(long_op, LONG_PART + 2 * SHORT_PART,
					values[i / 2 % 2], &target), 0);
		for (k = 0; k < n && target[k] == sums[i / 2 % 2]; k++)
			;               /* one assertion for all, which is faster */
		ck_assert_uint_eq(k, n);
		free(target);
		ck_assert_int_eq(sum_of(short_op, 3 * SHORT_PART, values[0], &target), 0);
		for (k = 0; k < SHORT_PART; k++)
			ck_assert_uint_eq(target[k], sums[0]);
		free(target);
		/* after a third run the next long one uses the other scratch slot */
		ck_assert_int_eq(sum_of(short_op, 3 * SHORT_PART, values[1], &target), 0);
		free(target);
	}
	ceov_op_release(long_op);
	ceov_op_release(short_op);
}

START_TEST(test_marks_of_a_next_run_do_not_overtake)
{
	struct op_rig rig;

	op_rig_open(&rig, 3, 3 * 2 * LONG_PART + 256, NULL);
	op_rig_each(&rig, overtake, NULL);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* --- refusals -------------------------------------------------------------- */

static void expect_no_op(struct op_rig *rig, const struct op_case *one, const char *text)
{
	ceov_op *op = NULL;

	testing_log_clear(&log_);
	ck_assert_int_eq(op_case_create(one, rig->workspaces[0], &op), CEOV_ERR_INVALID);
	ck_assert_ptr_null(op);
	testing_log_has(&log_, text, NULL, NULL);
}

START_TEST(test_shapes_that_are_refused)
{
	struct op_case good = op_case_of(OP_AG_GEMM, 2, 8, 8, 8), bad;
	struct op_rig rig;

	op_rig_open(&rig, 2, SCRATCH, &log_);
	bad = good;
	bad.dtype = 0;
	expect_no_op(&rig, &bad, "dtype");
	ck_assert_uint_eq(op_case_scratch(&bad), 0);
	bad.dtype = CEOV_FP32;
	expect_no_op(&rig, &bad, "dtype is CEOV_FP32, which only sums take");
	ck_assert_uint_eq(op_case_scratch(&bad), 0);
	bad.sort = OP_GEMM_RS;
	expect_no_op(&rig, &bad, "dtype is CEOV_FP32, which only sums take");
	bad = good;
	bad.k = 12;
	expect_no_op(&rig, &bad, "k must be a multiple of 8");
	bad = good;
	bad.n[0] = 0;
	expect_no_op(&rig, &bad, "n must be a multiple of 8");
	bad = good;
	bad.n_gemms = 5;
	expect_no_op(&rig, &bad, "n_gemms");
	bad = good;
	bad.b_is_k_by_n = 2;
	expect_no_op(&rig, &bad, "b_is_k_by_n must be 0 or 1");
	bad = good;
	bad.rows[0] = bad.rows[1] = 0;
	expect_no_op(&rig, &bad, "no rows");
	bad = good;
	bad.rows[1] = UINT64_MAX - 4;
	expect_no_op(&rig, &bad, "too many rows");
	bad = good;
	bad.sort = OP_ALL_REDUCE;
	bad.rows[1] = 9;
	expect_no_op(&rig, &bad, "multiples of 8");
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

START_TEST(test_tunings_that_are_refused)
{
	struct op_case good = op_case_of(OP_GEMM_RS, 2, 8, 8, 8), bad;
	struct op_rig rig;

	op_rig_open(&rig, 2, SCRATCH, &log_);
	bad = good;
	bad.tuning.struct_bytes = 8;
	expect_no_op(&rig, &bad, "struct_bytes");
	bad = good;
	bad.tuning.n_pieces = 33;
	expect_no_op(&rig, &bad, "n_pieces");
	bad = good;
	bad.tuning.mode = (enum ceov_op_mode)7;
	expect_no_op(&rig, &bad, "tuning->mode is none of");
	bad = good;
	bad.tuning.mode = CEOV_MODE_SEQUENCE;
	bad.tuning.n_pieces = 2;
	expect_no_op(&rig, &bad, "one piece");
	bad = good;
	bad.tuning.tile_rows = 8;
	expect_no_op(&rig, &bad, "tile_rows and tile_columns");
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

START_TEST(test_scratch_that_is_too_small)
{
	struct op_case one = op_case_of(OP_AG_GEMM, 2, 64, 40, 8);
	struct op_case sum = op_case_of(OP_ALL_REDUCE, 2, 64, 0, 0);
	struct op_rig rig;
	ceov_op *op = NULL;

	ck_assert_uint_eq(op_case_scratch(&one), 2 * 64 * 40 * 2);
	sum.dtype = CEOV_FP32;
	ck_assert_uint_eq(op_case_scratch(&sum), 2 * 64 * 4 + 2 * 64 * 4);
	op_rig_open(&rig, 2, 4000, &log_);
	ck_assert_int_eq(op_case_create(&one, rig.workspaces[1], &op), CEOV_ERR_INVALID);
	testing_log_has(&log_, "needs scratch of 10240 bytes", "has 4096",
			"ceov_ag_gemm_scratch_bytes");
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

START_TEST(test_runs_that_are_refused)
{
	struct op_case one = op_case_of(OP_REDUCE_SCATTER, 1, 16, 0, 0);
	struct ceov_reduce_run reduce = { .struct_bytes = sizeof(reduce) };
	struct ceov_gemm_rs_run gemm_rs = { .struct_bytes = sizeof(gemm_rs) };
	_Alignas(16) char memory[128] = { 0 };
	struct op_rig rig;
	ceov_op *op = NULL;

	one.dtype = CEOV_FP32;
	op_rig_open(&rig, 1, SCRATCH, &log_);
	ck_assert_int_eq(op_case_create(&one, rig.workspaces[0], &op), 0);
	ck_assert_int_eq(ceov_gemm_rs_run(op, &gemm_rs), CEOV_ERR_INVALID);
	testing_log_has(&log_, "the op is a ceov_reduce_scatter", NULL, NULL);
	ck_assert_int_eq(ceov_reduce_run(op, NULL), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_reduce_run(NULL, &reduce), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_reduce_run(op, &reduce), CEOV_ERR_INVALID);
	testing_log_has(&log_, "source is NULL", NULL, NULL);
	reduce.source = memory;
	reduce.target = memory + 72;
	ck_assert_int_eq(ceov_reduce_run(op, &reduce), CEOV_ERR_INVALID);
	testing_log_has(&log_, "target is not aligned to 16 bytes", NULL, NULL);
	reduce.target = memory + 48;
	ck_assert_int_eq(ceov_reduce_run(op, &reduce), CEOV_ERR_INVALID);
	testing_log_has(&log_, "target overlaps source", NULL, NULL);
	reduce.target = memory + 64;
	ck_assert_int_eq(ceov_reduce_run(op, &reduce), 0);
	ceov_op_release(op);
	ck_assert_int_eq(ceov_reduce_run(op, &reduce), CEOV_ERR_INVALID);
	testing_log_has(&log_, "the op was released before", NULL, NULL);
	ceov_op_release(NULL);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* --- failures -------------------------------------------------------------- */

struct failing {
	struct op_case one;
	uint32_t       absent;          /* the rank that makes no second run */
	_Atomic uint32_t n_ran;         /* ranks whose first run has ended */
	ceov_workspace *aborted;
	int            results[OP_RANKS_MAX];
	uint64_t       took_ns[OP_RANKS_MAX];
};

/* Makes one good run, then one that one rank leaves out. */
static void run_without(const struct op_part *part)
{
	struct failing *failing = part->arg;
	struct op_data data;
	ceov_op *op = op_case_made(&failing->one, part->rig->workspaces[part->rank]);
	uint64_t begin;

	op_data_make(&failing->one, part->rank, 1, &data);
	ck_assert_int_eq(op_data_run(&failing->one, op, &data), 0);
	failing->n_ran++;
	begin = cei_now_ns();
	if (part->rank != failing->absent)
		failing->results[part->rank] = op_data_run(&failing->one, op, &data);
	failing->took_ns[part->rank] = cei_now_ns() - begin;
	op_data_free(&data);
	ceov_op_release(op);
}

static void open_failing(struct op_rig *rig, struct failing *failing, uint64_t deadline_ns)
{
	uint32_t i;

	memset(rig, 0, sizeof(*rig));
	rig->n_ranks = failing->one.n_ranks;
	rig->context = testing_open(rig->n_ranks, &log_);
	for (i = 0; i < rig->n_ranks; i++)
		rig->workspaces[i] = op_workspace(rig->context, i, "rig", SCRATCH,
						  deadline_ns);
	for (i = 0; i < rig->n_ranks; i++)
		ck_assert_int_eq(ceov_workspace_connect(rig->workspaces[i],
							TESTING_PATIENCE), 0);
}

/* Asserts that all ranks know of the failure, and that no more runs are made. */
static void expect_over(struct op_rig *rig, const struct failing *failing, int error)
{
	struct op_data data;
	ceov_op *op;
	uint32_t i;

	for (i = 0; i < rig->n_ranks; i++) {
		op = op_case_made(&failing->one, rig->workspaces[i]);
		op_data_make(&failing->one, i, 1, &data);
		ck_assert_int_eq(op_data_run(&failing->one, op, &data), error);
		ck_assert_int_eq(ceov_workspace_status(rig->workspaces[i]), error);
		op_data_free(&data);
		ceov_op_release(op);
	}
}

START_TEST(test_a_rank_that_does_not_come)
{
	struct failing failing = { .one = plain((uint32_t)_i, 3), .absent = 1 };
	struct op_rig rig;
	uint32_t i;

	open_failing(&rig, &failing, 200 * TESTING_MS);
	op_rig_each(&rig, run_without, &failing);
	for (i = 0; i < 3; i++) {
		if (i == failing.absent)
			continue;
		ck_assert_int_eq(failing.results[i], CEOV_ERR_TIMEOUT);
		ck_assert_uint_le(failing.took_ns[i], 2 * TESTING_SECOND);
	}
	expect_over(&rig, &failing, CEOV_ERR_TIMEOUT);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

static void *abort_soon(void *arg)
{
	struct failing *failing = arg;

	while (failing->n_ran < failing->one.n_ranks)
		usleep(1000);
	usleep(50000);
	cei_workspace_fail(failing->aborted, CEOV_ERR_ABORTED);
	return NULL;
}

START_TEST(test_an_abort_ends_runs_of_all)
{
	struct failing failing = { .one = plain((uint32_t)_i, 3), .absent = 0 };
	struct op_rig rig;
	pthread_t thread;
	uint32_t i;

	open_failing(&rig, &failing, TESTING_PATIENCE);
	failing.aborted = rig.workspaces[0];
	ck_assert_int_eq(pthread_create(&thread, NULL, abort_soon, &failing), 0);
	op_rig_each(&rig, run_without, &failing);
	pthread_join(thread, NULL);
	for (i = 1; i < 3; i++) {
		ck_assert_int_eq(failing.results[i], CEOV_ERR_ABORTED);
		ck_assert_uint_le(failing.took_ns[i], 2 * TESTING_SECOND);
	}
	expect_over(&rig, &failing, CEOV_ERR_ABORTED);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* --- other properties ------------------------------------------------------ */

START_TEST(test_explained)
{
	struct op_case one = op_case_of(OP_AG_GEMM, 1, 8, 8, 8);
	struct op_rig rig;
	ceov_op *op = NULL;
	char text[1024];
	ssize_t n;
	int ends[2];

	one.tuning.n_pieces = 3;
	op_rig_open(&rig, 1, SCRATCH, &log_);
	ck_assert_int_eq(op_case_create(&one, rig.workspaces[0], &op), 0);
	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_eq(ceov_op_explain(op, ends[1]), 0);
	n = read(ends[0], text, sizeof(text) - 1);
	ck_assert_int_gt(n, 0);
	text[n] = 0;
	ck_assert_ptr_nonnull(strstr(text, "ceov_ag_gemm"));
	ck_assert_ptr_nonnull(strstr(text, "pieces: 3"));
	ck_assert_ptr_nonnull(strstr(text, "as given"));
	close(ends[0]);
	close(ends[1]);
	ck_assert_int_eq(ceov_op_explain(op, ends[1]), CEOV_ERR_SYSTEM);
	ck_assert_int_eq(ceov_op_tune(op, NULL), CEOV_ERR_INVALID);
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* A product measured alone: own rows are right, and the next run is not affected. */
START_TEST(test_the_product_alone)
{
	struct op_case one = op_case_of(OP_AG_GEMM, 1, 20, 24, 16);
	struct ceov_ag_gemm_run run = { .struct_bytes = sizeof(run) };
	struct op_data data;
	struct op_rig rig;
	ceov_op *op = NULL;

	op_rig_open(&rig, 1, SCRATCH, &log_);
	ck_assert_int_eq(op_case_create(&one, rig.workspaces[0], &op), 0);
	op_data_make(&one, 0, 5, &data);
	run.a = data.a;
	run.b[0] = data.b[0];
	run.c[0] = data.c[0];
	ck_assert_int_eq(cei_op_gemm_alone(op, &run), 0);
	op_data_check(&one, 0, 5, &data);
	memset(data.c[0], 0, data.c_bytes[0]);
	ck_assert_int_eq(op_data_run(&one, op, &data), 0);
	op_data_check(&one, 0, 5, &data);
	op_data_free(&data);
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("ops");
	TCase *all = tcase_create("ops");

	tcase_add_checked_fixture(all, set_up, NULL);
	tcase_set_timeout(all, 100);
	tcase_add_loop_test(all, test_runs_are_right_and_bitwise_alike, 0, 2 * OP_SORTS);
	tcase_add_loop_test(all, test_a_sequence_gives_the_same, 0, 2 * OP_SORTS);
	tcase_add_loop_test(all, test_a_rank_without_rows, 0, 2 * OP_SORTS);
	tcase_add_test(all, test_two_workspaces_at_once);
	tcase_add_test(all, test_ops_that_cut_differently);
	tcase_add_test(all, test_marks_of_a_next_run_do_not_overtake);
	tcase_add_test(all, test_shapes_that_are_refused);
	tcase_add_test(all, test_tunings_that_are_refused);
	tcase_add_test(all, test_scratch_that_is_too_small);
	tcase_add_test(all, test_runs_that_are_refused);
	tcase_add_loop_test(all, test_a_rank_that_does_not_come, 0, 2 * OP_SORTS);
	tcase_add_loop_test(all, test_an_abort_ends_runs_of_all, 0, 2 * OP_SORTS);
	tcase_add_test(all, test_explained);
	tcase_add_test(all, test_the_product_alone);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
