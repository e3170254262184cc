/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Products with an all-to-all on host ranks: blocks that are empty or uneven, columns that are
 * divided, the order of what is sent, how an op is chosen and explained, and what is refused. Plain
 * cases, missing ranks and aborts are in test_ops.c, random shapes in
 * tests/system/test_ops_shapes.c. */

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ce_engine/objects/buffer.h"
#include "ce_engine/objects/plan.h"
#include "op_record.h"
#include "op_rig.h"
#include "ops/core/op.h"
#include "ops/kinds.h"
#include "ops/tuning/candidates.h"
#include "ops/tuning/tunings.h"

#define SCRATCH   UINT64_C(400000)
#define RUNS      8u
#define RANKS     4u

static struct testing_log log_;

static void set_up(void)
{
	testing_log_init(&log_);
}

/* --- results --------------------------------------------------------------- */

/* Runs many times with different operands; some ranks are delayed now and then. */
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

	op_rig_open(&rig, one->n_ranks, SCRATCH, NULL);
	ck_assert_uint_le(op_case_scratch(one), SCRATCH);
	op_rig_each(&rig, repeat, one);
	op_rig_release(&rig);
	op_rig_close(&rig);
}

/* i: bits for the kind, the layout, the layout of B, and whether it is a sequence. */
static struct op_case case_of(int i, uint64_t rows, uint64_t columns)
{
	enum op_sort sort = i & 1 ? OP_A2A_GEMM : OP_GEMM_A2A;
	struct op_case one = op_case_of(sort, RANKS, rows, sort == OP_A2A_GEMM ? columns : 24,
					sort == OP_A2A_GEMM ? 24 : columns);

	one.by_columns = i >> 1 & 1;
	one.b_is_k_by_n = i >> 2 & 1;
	one.tuning.mode = i >> 3 & 1 ? CEOV_MODE_SEQUENCE : CEOV_MODE_OVERLAP;
	one.tuning.n_pieces = i >> 3 & 1 ? 1 : 3;
	return one;
}

START_TEST(test_uneven_and_empty_blocks)
{
	struct op_case one = case_of(_i, 9, 56);

	for (one.spread = 1; one.spread <= 5; one.spread += 4) {
		one.rows[1] = one.spread == 5 ? 0 : 31;
		try_case(&one);
	}
}
END_TEST

/* Parts end within tiles, which then reach into the next part, or over it. */
START_TEST(test_parts_that_are_narrower_than_tiles)
{
	struct op_case one = case_of(_i & 2 ? 2 + 4 : 2, 40, 40);

	one.tuning.tile_rows = 16;
	one.tuning.tile_columns = _i & 1 ? 12 : 32;
	try_case(&one);
}
END_TEST

/* All other ranks send nothing, or get nothing. */
START_TEST(test_one_rank_has_all_columns)
{
	struct op_case one = case_of(2 + (_i & 1), 20, 8);

	ck_assert_uint_eq(op_case_part(&one, 0), 8);
	if (_i & 2)
		one.rows[0] = one.rows[1] = 0;
	try_case(&one);
}
END_TEST

/* --- what is sent ---------------------------------------------------------- */

/* Rank 1 of 4 sends to ranks 2, 3 and 0. For a product that needs a piece from every rank, all
 * first pieces are sent first. */
START_TEST(test_order_of_sending)
{
	static const uint32_t in_blocks[] = { 2, 2, 3, 3, 0, 0 }, in_turn[] = { 2, 3, 0, 2, 3, 0 };
	struct op_case one = case_of(_i, 128, 64);
	struct op_rig rig;
	ceov_op *op;
	uint32_t i, n = 0, target;

	one.tuning.n_pieces = 2;
	op_rig_open(&rig, RANKS, SCRATCH, NULL);
	op = op_case_made(&one, rig.workspaces[1]);
	for (i = 0; i < op->stages[0].plan[0]->program.n_transfers; i++) {
		target = op_record_target(op, i);
		if (target == CEOV_NOBODY)
			continue;
		ck_assert_uint_lt(n, 6);
		ck_assert_uint_eq(target, (_i & 3) == 3 ? in_turn[n] : in_blocks[n]);
		n++;
	}
	ck_assert_uint_eq(n, 6);
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* --- what a job queues ----------------------------------------------------- */

/* Rank 1 of 4: counters and how many of them each wait sees, products, and copies. What was sent is
 * awaited last, where it is the caller's memory. */
START_TEST(test_order_of_a_job)
{
	static const char *const expected[] = {
		"gemm 0+2 copy 6+2 copy 4+1 copy 5+1 copy ",    /* GEMM + all-to-all */
		"gemm 0+1 ",                                    /* all-to-all + GEMM */
		"gemm 0+2 copy 6+2 copy 4+1 copy 5+1 copy ",    /* columns: GEMM + all-to-all */
		"rows 0+1 2+2 gemm 4+1 6+2 gemm 0+1 ",          /* columns: all-to-all + GEMM */
		"gemm gemm 0+1 copy 3+1 copy 2+1 copy ",        /* the same as sequences */
		"0+1 2+1 3+1 gemm 0+1 ",
		"gemm gemm 0+1 copy 3+1 copy 2+1 copy ",
		"rows 0+1 2+2 gemm 0+1 ",
	};
	struct op_case one = case_of((_i & 3) | (_i & 4) << 1, 128, 64);
	struct op_record record;

	one.tuning.n_pieces = _i & 4 ? 1 : 2;
	op_record_job(&one, SCRATCH, &record);
	ck_assert_str_eq(record.words, expected[_i]);
}
END_TEST

/* --- choices --------------------------------------------------------------- */

static char *explained(ceov_op *op)
{
	char *text = calloc(1, 1000);
	int ends[2];

	ck_assert_ptr_nonnull(text);
	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_eq(ceov_op_explain(op, ends[1]), 0);
	ck_assert_int_gt(read(ends[0], text, 999), 0);
	close(ends[0]);
	close(ends[1]);
	return text;
}

START_TEST(test_explained)
{
	struct op_case one = case_of(_i, 128, 64);
	struct op_rig rig;
	ceov_op *op;
	char *text;

	op_rig_open(&rig, RANKS, SCRATCH, NULL);
	op = op_case_made(&one, rig.workspaces[1]);
	text = explained(op);
	ck_assert_ptr_nonnull(strstr(text, _i & 1 ? "ceov_a2a_gemm\n" : "ceov_gemm_a2a\n"));
	ck_assert_ptr_nonnull(strstr(text, "mode: overlap (as given)\npieces: 3 of at most "));
	ck_assert_ptr_nonnull(strstr(text, _i & 2 ? "divided: columns" : "divided: rows\n"));
	free(text);
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* A shape as its creator makes it, with the arrays that it points to. */
struct made {
	struct cei_op_shape shape;
	uint64_t            rows_of[RANKS * RANKS];
	uint64_t            rows[RANKS];
	uint64_t            columns[RANKS];
};

static void make_shape(struct made *made, int i, uint64_t rows, uint64_t extent)
{
	struct ceov_gemm_a2a from = { .struct_bytes = sizeof(from), .dtype = CEOV_BF16,
				      .k = extent, .n = extent };
	struct ceov_a2a_gemm other = { .struct_bytes = sizeof(other), .dtype = CEOV_BF16,
				       .k = extent, .n = extent };
	uint32_t k;

	for (k = 0; k < RANKS * RANKS; k++)
		made->rows_of[k] = rows;
	for (k = 0; k < RANKS; k++) {
		made->rows[k] = rows;
		made->columns[k] = extent / RANKS;
	}
	from.rows_of = other.rows_of = i & 2 ? NULL : made->rows_of;
	from.rows = other.rows = i & 2 ? made->rows : NULL;
	from.columns = other.columns = i & 2 ? made->columns : NULL;
	memset(&made->shape, 0, sizeof(made->shape));
	made->shape.kind = i & 1 ? &cei_a2a_gemm : &cei_gemm_a2a;
	(void)made->shape.kind->shape(&made->shape, i & 1 ? (void *)&other : (void *)&from, RANKS);
	ck_assert_ptr_null(cei_op_shape_fault(&made->shape));
}

/* On GPUs with this library's kernels large products overlap. A run takes no less than most of the
 * product or of the copies, and no more than one after the other. */
START_TEST(test_choices_for_gpus)
{
	struct cei_rates rates = cei_rates_gpu();
	struct cei_choice choice;
	struct made made;

	make_shape(&made, _i, 4096, 8192);
	cei_selector_choose(&made.shape, &rates, NULL, &choice);
	ck_assert_int_eq(choice.mode, CEOV_MODE_OVERLAP);
	ck_assert_uint_eq(choice.shape.rows, 128);
	ck_assert_double_ge(choice.run_ns, choice.gemm_ns * 0.9);
	ck_assert_double_ge(choice.run_ns, choice.copy_ns * 0.6);
	ck_assert_double_le(choice.run_ns, choice.gemm_ns + choice.copy_ns);
}
END_TEST

/* cuBLAS computes whole rows, so it is no candidate where tiles begin at the columns of a part. */
START_TEST(test_candidates_for_gpus)
{
	struct cei_rates rates = cei_rates_gpu();
	struct cei_candidates candidates;
	uint32_t i, n_wide = 0;
	struct made made;

	rates.has_library = 1;
	make_shape(&made, _i, 4096, 8192);
	cei_candidates_list(&made.shape, &rates, NULL, &candidates);
	ck_assert_uint_ge(candidates.n, 3);
	for (i = 0; i < candidates.n; i++)
		n_wide += candidates.tuning[i].tile_columns > 256;
	ck_assert_int_eq(n_wide > 0, (_i & 3) != 2);
}
END_TEST

/* An executor that has cuBLAS only, or is to use it, supports all but a GEMM + all-to-all whose
 * columns are divided. */
START_TEST(test_what_cublas_does_not_support)
{
	struct cei_rates library = { .n_sms = 132, .pair = 2, .has_library = 1 };
	struct cei_rates both = { .n_sms = 132, .pair = 2, .has_library = 1, .has_tiles = 1 };
	struct ceov_op_tuning tuning = { .struct_bytes = sizeof(tuning) };
	const struct cei_op_kind *kind = _i & 1 ? &cei_a2a_gemm : &cei_gemm_a2a;
	const char *why, *why_tile;
	struct op_rig rig;
	struct made made;

	tuning.tile_rows = tuning.tile_columns = 512;
	make_shape(&made, _i, 64, 64);
	op_rig_open(&rig, RANKS, SCRATCH, NULL);
	why = kind->lacks(rig.workspaces[0], &made.shape, NULL, &library);
	why_tile = kind->lacks(rig.workspaces[0], &made.shape, &tuning, &both);
	ck_assert_ptr_null(kind->lacks(rig.workspaces[0], &made.shape, NULL, &both));
	if (_i == 2)
		ck_assert(strstr(why, "no kernel for this GPU") && strstr(why_tile, "cuBLAS"));
	else
		ck_assert(!why && !why_tile);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* Shapes whose largest blocks are equal have tunings of their own. */
START_TEST(test_keys_tell_shapes_apart)
{
	char key[CEI_TUNING_KEY_BYTES], other[CEI_TUNING_KEY_BYTES];
	struct made made;

	make_shape(&made, _i, 4096, 8192);
	cei_tuning_key("m", &made.shape, key);
	made.rows_of[1] = made.shape.a2a.rows[1] = 8;
	cei_tuning_key("m", &made.shape, other);
	ck_assert_str_ne(key, other);
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
	ck_assert_uint_eq(op_case_scratch(one), 0);
}

START_TEST(test_sizes_that_are_refused)
{
	struct op_case good = case_of(_i, 8, 32), bad = good;
	struct op_rig rig;

	op_rig_open(&rig, RANKS, SCRATCH, &log_);
	memset(bad.rows, 0, sizeof(bad.rows));
	expect_no_op(&rig, &bad, "all ranks together have no rows");
	bad = good;
	bad.rows[0] = UINT64_MAX - 3;
	expect_no_op(&rig, &bad, "there are too many rows");
	bad = good;
	bad.dtype = CEOV_FP32;
	expect_no_op(&rig, &bad, "dtype is CEOV_FP32");
	bad = good;
	bad.k = 0;
	expect_no_op(&rig, &bad, "k must be a multiple of 8, and not 0");
	bad = good;
	bad.n[0] = 0;
	expect_no_op(&rig, &bad, "n must be a multiple of 8, and not 0");
	bad = good;
	bad.b_is_k_by_n = 2;
	expect_no_op(&rig, &bad, "b_is_k_by_n must be 0 or 1");
	bad = good;
	bad.rows[0] = UINT64_C(1) << 28;
	if (_i & 1)
		bad.n[0] = UINT64_C(1) << 30;
	else
		bad.k = UINT64_C(1) << 30;
	expect_no_op(&rig, &bad, "a matrix has too many elements");
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

static void expect_no_a2a(struct op_rig *rig, const struct ceov_gemm_a2a *from, const char *text)
{
	ceov_op *op = NULL;

	testing_log_clear(&log_);
	ck_assert_int_eq(ceov_gemm_a2a_create(rig->workspaces[0], from, &op), CEOV_ERR_INVALID);
	testing_log_has(&log_, "ceov_gemm_a2a_create: rank 0", text, NULL);
	ck_assert_uint_eq(ceov_gemm_a2a_scratch_bytes(from, RANKS), 0);
}

START_TEST(test_arrays_that_are_refused)
{
	uint64_t rows_of[RANKS * RANKS] = { 8 }, rows[RANKS] = { 8 }, columns[RANKS] = { 8, 8 };
	struct ceov_gemm_a2a from = { .struct_bytes = sizeof(from), .dtype = CEOV_BF16, .k = 8,
				      .n = 16 };
	struct ceov_a2a_gemm other = { .struct_bytes = sizeof(other), .dtype = CEOV_BF16,
				       .rows = rows, .columns = columns, .k = 24, .n = 8 };
	static const char either[] = "set either rows_of, or both rows and columns";
	struct op_rig rig;
	ceov_op *op = NULL;

	op_rig_open(&rig, RANKS, SCRATCH, &log_);
	expect_no_a2a(&rig, &from, either);
	from.rows = rows;
	expect_no_a2a(&rig, &from, either);
	from.rows_of = rows_of;
	expect_no_a2a(&rig, &from, either);
	from.columns = columns;
	expect_no_a2a(&rig, &from, either);
	from.rows_of = NULL;
	columns[1] = 16;
	expect_no_a2a(&rig, &from, "n is not the sum of columns");
	columns[0] = columns[1] = UINT64_C(1) << 63;
	from.n = 0;                     /* what the sum is in 64 bits */
	expect_no_a2a(&rig, &from, "there are too many columns");
	columns[0] = columns[1] = 4;
	from.n = 8;
	expect_no_a2a(&rig, &from, "columns must be multiples of 8");
	ck_assert_int_eq(ceov_a2a_gemm_create(rig.workspaces[0], &other, &op), CEOV_ERR_INVALID);
	testing_log_has(&log_, "k is not the sum of columns", NULL, NULL);
	ck_assert_uint_eq(ceov_gemm_a2a_scratch_bytes(&from, 0), 0);
	ck_assert_uint_eq(ceov_gemm_a2a_scratch_bytes(&from, 65), 0);
	ck_assert_uint_eq(ceov_gemm_a2a_scratch_bytes(NULL, RANKS), 0);
	from.struct_bytes = 8;
	expect_no_a2a(&rig, &from, "struct_bytes");
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* The op keeps the numbers, which the caller may change once it is created. */
START_TEST(test_the_callers_numbers_are_copied)
{
	uint64_t rows_of[1] = { 8 };
	struct ceov_gemm_a2a from = { .struct_bytes = sizeof(from), .dtype = CEOV_BF16,
				      .rows_of = rows_of, .k = 8, .n = 16 };
	struct op_rig rig;
	ceov_op *op = NULL;

	ck_assert_uint_eq(ceov_gemm_a2a_scratch_bytes(&from, 1), 2 * 8 * 16 * 2);
	op_rig_open(&rig, 1, SCRATCH, &log_);
	ck_assert_int_eq(ceov_gemm_a2a_create(rig.workspaces[0], &from, &op), 0);
	rows_of[0] = 1000;
	ck_assert_uint_eq(op->shape.blocks[0], 8);
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

int main(void)
{
	Suite *made = suite_create("a2a");
	TCase *all = tcase_create("a2a");

	tcase_add_checked_fixture(all, set_up, NULL);
	tcase_set_timeout(all, 100);
	tcase_add_loop_test(all, test_uneven_and_empty_blocks, 0, 16);
	tcase_add_loop_test(all, test_parts_that_are_narrower_than_tiles, 0, 4);
	tcase_add_loop_test(all, test_one_rank_has_all_columns, 0, 4);
	tcase_add_loop_test(all, test_order_of_sending, 0, 4);
	tcase_add_loop_test(all, test_order_of_a_job, 0, 8);
	tcase_add_loop_test(all, test_explained, 0, 4);
	tcase_add_loop_test(all, test_choices_for_gpus, 0, 4);
	tcase_add_loop_test(all, test_candidates_for_gpus, 0, 4);
	tcase_add_loop_test(all, test_what_cublas_does_not_support, 0, 4);
	tcase_add_loop_test(all, test_keys_tell_shapes_apart, 0, 4);
	tcase_add_loop_test(all, test_sizes_that_are_refused, 0, 4);
	tcase_add_test(all, test_arrays_that_are_refused);
	tcase_add_test(all, test_the_callers_numbers_are_copied);
	suite_add_tcase(made, all);
	return testing_run(made);
}
