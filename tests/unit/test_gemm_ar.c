/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* GEMM + all-reduce on host ranks: how the sum is divided, from one row on, what a job queues, how
 * an op is chosen and explained, and what is refused. Plain cases, missing ranks and aborts are in
 * test_ops.c, turns in test_gemm_ar_turns.c, random shapes in tests/system/test_ops_shapes.c. */

#include <check.h>
#include <string.h>
#include <unistd.h>

#include "op_record.h"
#include "op_rig.h"
#include "ops/core/op.h"
#include "ops/kinds.h"

#define SCRATCH   UINT64_C(1200000)
#define RUNS      6u
#define RANKS     4u

#define DIRECT_SHAPES 6u

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

	for (i = 0; i < testing_share(RUNS); i++) {
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

/* Random shapes whose sums ranks make by themselves, in one step or in two. */
START_TEST(test_sums_without_copy_engines)
{
	static const enum ceov_op_mode modes[] = { CEOV_MODE_DIRECT, CEOV_MODE_TWO_SHOT };
	uint64_t random = testing_seed() + (uint64_t)_i;
	struct op_case one;
	uint32_t i;

	for (i = 0; i < testing_share(DIRECT_SHAPES); i++) {
		one = case_of(2 + (uint32_t)testing_below(&random, 4),
			      1 + testing_below(&random, 70), 8 + 8 * testing_below(&random, 30));
		one.dtype = testing_below(&random, 2) ? CEOV_BF16 : CEOV_FP16;
		one.b_is_k_by_n = (int)testing_below(&random, 2);
		one.by_columns = (int)testing_below(&random, 2);
		one.tuning.mode = modes[_i];
		one.tuning.n_pieces = 0;
		one.tuning.n_reduce_blocks = (uint32_t)testing_below(&random, 5);
		try_case(&one);
	}
}
END_TEST

/* --- how the sum is divided ------------------------------------------------- */

static struct cei_op_shape shape_of(const struct ceov_gemm_ar *from, uint32_t n_ranks)
{
	struct cei_op_shape shape = { .kind = &cei_gemm_ar };

	(void)cei_gemm_ar.shape(&shape, from, n_ranks);
	ck_assert_ptr_null(cei_op_shape_fault(&shape));
	return shape;
}

static struct ceov_gemm_ar from_of(uint64_t m, uint64_t n)
{
	struct ceov_gemm_ar from = { .struct_bytes = sizeof(from), .dtype = CEOV_BF16, .m = m,
				     .k = 64, .n = n };

	return from;
}

static void expect_parts(const uint64_t *parts, const uint64_t *expected, uint32_t n_ranks)
{
	uint32_t i;

	for (i = 0; i < n_ranks; i++)
		ck_assert_uint_eq(parts[i], expected[i]);
}

/* Rows are divided where each rank gets a tile's rows, in half tiles, and else columns. */
START_TEST(test_parts)
{
	struct ceov_gemm_ar from = from_of(3 * 128 - 1, 1000);
	struct cei_op_shape shape = shape_of(&from, 3);

	ck_assert_int_eq(shape.a2a.is_by_columns, 1);
	expect_parts(shape.a2a.columns, (const uint64_t[]){ 384, 320, 296 }, 3);
	from.n = 40;                    /* less than 64 for each rank */
	shape = shape_of(&from, 3);
	expect_parts(shape.a2a.columns, (const uint64_t[]){ 16, 16, 8 }, 3);
	from.n = 8;
	shape = shape_of(&from, 3);
	expect_parts(shape.a2a.columns, (const uint64_t[]){ 8, 0, 0 }, 3);
	from.by_rows = 1;
	shape = shape_of(&from, 3);
	ck_assert_int_eq(shape.a2a.is_by_columns, 0);
	expect_parts(shape.rows, (const uint64_t[]){ 128, 128, 127 }, 3);
	from.m = 2;
	shape = shape_of(&from, 3);
	expect_parts(shape.rows, (const uint64_t[]){ 1, 1, 0 }, 3);
	from.by_rows = 0;
	from.m = 500;
	shape = shape_of(&from, 3);
	ck_assert_int_eq(shape.a2a.is_by_columns, 0);
	expect_parts(shape.rows, (const uint64_t[]){ 192, 192, 116 }, 3);
	from.m = 1;
	shape = shape_of(&from, 1);     /* nothing is divided */
	ck_assert_int_eq(shape.a2a.is_by_columns, 0);
}
END_TEST

/* Scratch holds the product, a part from each rank, and the sums; or, of few bytes, the products of
 * all ranks. */
START_TEST(test_scratch)
{
	struct ceov_gemm_ar from = from_of(512, 256);

	ck_assert_uint_eq(ceov_gemm_ar_scratch_bytes(&from, 4), 4 * 512 * 256 * 2);
	from.m = 16;
	ck_assert_uint_eq(ceov_gemm_ar_scratch_bytes(&from, 4), 4 * 16 * 256 * 2);
}
END_TEST

/* --- what a job queues ----------------------------------------------------- */

/* Rank 1 of 4: its own sums are copied first, then those of ranks 0, 3 and 2, whose counters begin
 * behind the 4 * 32 for partial sums. The last block comes piece by piece. */
START_TEST(test_order_of_a_job)
{
	static const char *const expected[] = {
		"gemm copy 128+2 copy 134+2 copy 132+1 copy 133+1 copy ",
		"gemm gemm copy 128+1 copy 131+1 copy 130+1 copy ",     /* a sequence */
		"gemm rows 128+2 rows 134+2 rows 132+1 rows 133+1 rows ",       /* columns */
		"gemm gemm rows 128+1 rows 131+1 rows 130+1 rows ",
	};
	struct op_case one = case_of(RANKS, _i & 2 ? 128 : 512, 64);
	struct op_record record;

	one.tuning.mode = _i & 1 ? CEOV_MODE_SEQUENCE : CEOV_MODE_OVERLAP;
	one.tuning.n_pieces = _i & 1 ? 1 : 2;
	op_record_job(&one, SCRATCH, &record);
	ck_assert_str_eq(record.words, expected[_i]);
	ck_assert_uint_eq(record.n_sent, 0);    /* it would wait for sums not made yet */
}
END_TEST

/* Sums leave while further ones are made: the second stage has a transfer for each piece and peer,
 * and each awaits the mark of its own piece. */
START_TEST(test_sums_leave_piece_by_piece)
{
	struct op_case one = case_of(RANKS, _i ? 192 : 512, 64);
	struct op_rig rig;
	ceov_op *op;

	one.tuning.n_pieces = 2;
	op_rig_open(&rig, RANKS, SCRATCH, NULL);
	op = op_case_made(&one, rig.workspaces[1]);
	ck_assert_uint_eq(op->stages[0].n_added, 2 * (RANKS - 1));
	ck_assert_uint_eq(op->stages[1].n_added, 2 * (RANKS - 1));
	ck_assert_int_eq(op->stages[0].awaits_job && op->stages[1].awaits_job, 1);
	ck_assert_uint_eq(op->n_sent, 0);
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* --- choices --------------------------------------------------------------- */

static struct cei_choice choice_of(uint64_t m, const struct cei_rates *rates)
{
	struct ceov_gemm_ar from = from_of(m, 8192);
	struct cei_choice choice;
	struct cei_op_shape shape;

	from.k = 4096;
	shape = shape_of(&from, RANKS);
	cei_selector_choose(&shape, rates, NULL, &choice);
	return choice;
}

/* On GPUs with this library's kernels large products overlap. A run takes longer than that of a
 * GEMM + reduce-scatter, since the sums are sent, too. */
START_TEST(test_choices_for_gpus)
{
	struct ceov_gemm_rs other = { .struct_bytes = sizeof(other), .dtype = CEOV_BF16,
				      .rows = (const uint64_t[]){ 2048, 2048, 2048, 2048 },
				      .k = 4096, .n = 8192 };
	struct cei_op_shape shape = { .kind = &cei_gemm_rs };
	struct cei_choice choice, scattered;
	struct cei_rates rates = cei_rates_gpu();

	choice = choice_of(8192, &rates);
	ck_assert_int_eq(choice.mode, CEOV_MODE_OVERLAP);
	ck_assert_uint_eq(choice.shape.rows, 128);
	(void)cei_gemm_rs.shape(&shape, &other, RANKS);
	cei_selector_choose(&shape, &rates, NULL, &scattered);
	ck_assert_double_gt(choice.run_ns, scattered.run_ns);
	ck_assert_double_le(choice.run_ns, choice.gemm_ns + choice.copy_ns);
	rates.has_library = 1;          /* cuBLAS does not compute divided columns */
	choice = choice_of(8, &rates);
	ck_assert_uint_eq(choice.shape.rows, 128);
	ck_assert_ptr_nonnull(strstr(choice.text, "divided: columns"));
}
END_TEST

/* On one node SMs sum what few rows give, without being asked to, and it is said. */
START_TEST(test_few_rows_are_summed_by_sms)
{
	const struct ceov_op_tuning tiles = { .struct_bytes = sizeof(tiles), .tile_rows = 128,
					      .tile_columns = 128 };
	struct ceov_gemm_ar from = from_of(8, 1024);
	struct cei_rates rates = cei_rates_gpu();
	struct cei_op_shape shape;
	struct cei_choice choice;

	rates.has_direct = 1;
	choice = choice_of(1, &rates);
	ck_assert_int_eq(choice.mode, CEOV_MODE_DIRECT);
	ck_assert_ptr_nonnull(strstr(choice.text, "moved by: SMs"));
	ck_assert_int_eq(choice_of(21, &rates).mode, CEOV_MODE_DIRECT);
	ck_assert_int_eq(choice_of(64, &rates).mode, CEOV_MODE_TWO_SHOT);
	rates.has_library = 1;
	ck_assert_uint_eq(choice_of(64, &rates).shape.columns, 8192);
	ck_assert_int_eq(choice_of(256, &rates).mode, CEOV_MODE_TWO_SHOT);      /* of 4 MiB */
	ck_assert(!cei_selector_is_direct(choice_of(257, &rates).mode));
	rates.has_direct = 0;
	ck_assert_int_ne(choice_of(1, &rates).mode, CEOV_MODE_DIRECT);
	rates.has_direct = 1;
	shape = shape_of(&from, 32);
	cei_selector_choose(&shape, &rates, NULL, &choice);
	ck_assert(cei_selector_is_direct(choice.mode));
	shape = shape_of(&from, 33);    /* more than direct modes take */
	cei_selector_choose(&shape, &rates, NULL, &choice);
	ck_assert(!cei_selector_is_direct(choice.mode));
	shape = shape_of(&from, RANKS); /* ranks may differ in tiles */
	cei_selector_choose(&shape, &rates, &tiles, &choice);
	ck_assert_int_eq(choice.mode, CEOV_MODE_DIRECT);
	ck_assert_uint_eq(choice.shape.columns, 128);
}
END_TEST

/* Without the library's kernels columns are not divided: creation says what to do. */
START_TEST(test_what_cublas_does_not_support)
{
	struct ceov_gemm_ar from = from_of(8, 1024);
	struct cei_op_shape shape = shape_of(&from, RANKS);
	struct cei_rates rates = cei_rates_gpu();
	struct op_rig rig;
	const char *fault;

	rates.has_tiles = 0;
	rates.has_library = 1;
	op_rig_open(&rig, 1, SCRATCH, NULL);
	fault = cei_gemm_ar.lacks(rig.workspaces[0], &shape, NULL, &rates);
	ck_assert_ptr_nonnull(fault);
	ck_assert_ptr_nonnull(strstr(fault, "divide rows"));
	from.by_rows = 1;
	shape = shape_of(&from, RANKS);
	ck_assert_ptr_null(cei_gemm_ar.lacks(rig.workspaces[0], &shape, NULL, &rates));
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* --- refusals -------------------------------------------------------------- */

static void expect_no_op(struct op_rig *rig, const struct ceov_gemm_ar *from, const char *text)
{
	ceov_op *op = NULL;

	testing_log_clear(&log_);
	ck_assert_uint_eq(ceov_gemm_ar_scratch_bytes(from, 2), 0);
	ck_assert_int_eq(ceov_gemm_ar_create(rig->workspaces[0], from, &op), CEOV_ERR_INVALID);
	ck_assert_ptr_null(op);
	testing_log_has(&log_, "ceov_gemm_ar_create", text, NULL);
}

START_TEST(test_shapes_that_are_refused)
{
	struct ceov_gemm_ar from = from_of(8, 64);
	struct op_rig rig;

	op_rig_open(&rig, 2, SCRATCH, &log_);
	from.m = 0;
	expect_no_op(&rig, &from, "have no rows");
	from.m = UINT64_MAX;
	expect_no_op(&rig, &from, "too many rows or columns");
	from.m = (UINT64_C(1) << 31) + 1;
	expect_no_op(&rig, &from, "too many rows or columns");
	from.m = UINT64_C(1) << 31;     /* a part has more than a third, three of them too many */
	from.n = from.k = 8;
	ck_assert_uint_gt(ceov_gemm_ar_scratch_bytes(&from, 2), 0);
	ck_assert_uint_eq(ceov_gemm_ar_scratch_bytes(&from, 3), 0);
	from = from_of(8, 12);
	expect_no_op(&rig, &from, "n must be a multiple of 8");
	from.n = 0;
	expect_no_op(&rig, &from, "n must be a multiple of 8");
	from.n = UINT64_C(1) << 30;
	expect_no_op(&rig, &from, "too many rows or columns");
	from = from_of(8, 64);
	from.k = 4;
	expect_no_op(&rig, &from, "k must be a multiple of 8");
	from = from_of(8, 64);
	from.dtype = CEOV_FP32;
	expect_no_op(&rig, &from, "only sums take");
	from = from_of(8, 64);
	from.by_rows = 2;
	expect_no_op(&rig, &from, "by_rows must be 0 or 1");
	from = from_of(8, 64);
	from.b_is_k_by_n = 2;
	expect_no_op(&rig, &from, "b_is_k_by_n must be 0 or 1");
	from = from_of(8, 64);
	from.struct_bytes--;
	expect_no_op(&rig, &from, "struct_bytes");
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("gemm_ar");
	TCase *all = tcase_create("gemm_ar");

	tcase_add_checked_fixture(all, set_up, NULL);
	tcase_set_timeout(all, 100);
	tcase_add_loop_test(all, test_few_rows, 0, 16);
	tcase_add_loop_test(all, test_sums_without_copy_engines, 0, 2);
	tcase_add_loop_test(all, test_divided_rows, 0, 5);
	tcase_add_loop_test(all, test_parts_that_are_narrower_than_tiles, 0, 4);
	tcase_add_test(all, test_parts);
	tcase_add_test(all, test_scratch);
	tcase_add_loop_test(all, test_order_of_a_job, 0, 4);
	tcase_add_loop_test(all, test_sums_leave_piece_by_piece, 0, 2);
	tcase_add_test(all, test_choices_for_gpus);
	tcase_add_test(all, test_few_rows_are_summed_by_sms);
	tcase_add_test(all, test_what_cublas_does_not_support);
	tcase_add_test(all, test_shapes_that_are_refused);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
