/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Reduce-scatters whose parts have gaps between them in the source, and scaled sums, on
 * host ranks. */

#include <check.h>
#include <math.h>

#include "op_rig.h"
#include "ops/compute/dtype.h"

#define SCRATCH UINT64_C(100000)

static struct testing_log log_;

static void set_up(void)
{
	testing_log_init(&log_);
}

/* Makes several runs with each rank's own stride and scale. */
static void sum_and_check(const struct op_part *part)
{
	const struct op_case *one = part->arg;
	struct op_data data;
	uint64_t run;
	ceov_op *op;

	op = op_case_made(one, part->rig->workspaces[part->rank]);
	for (run = 0; run < 4; run++) {
		op_data_make(one, part->rank, run, &data);
		ck_assert_int_eq(op_data_run(one, op, &data), 0);
		op_data_check(one, part->rank, run, &data);
		op_data_free(&data);
	}
	ceov_op_release(op);
}

START_TEST(test_parts_with_gaps)
{
	static const enum ceov_dtype dtypes[] = { CEOV_BF16, CEOV_FP16, CEOV_FP32 };
	struct op_case one = op_case_of(OP_REDUCE_SCATTER, 4, 96, 0, 0);
	struct op_rig rig;

	one.dtype = dtypes[_i % 3];
	one.rows[1] = 24;
	one.rows[_i < 3 ? 0 : 3] = 0;
	one.stride = _i % 2 ? 96 : 136;
	one.tuning.n_pieces = 1 + (uint32_t)_i % 3;
	op_rig_open(&rig, 4, SCRATCH, &log_);
	op_rig_each(&rig, sum_and_check, &one);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

static void expect_no_op(struct op_rig *rig, const struct op_case *one, const char *text)
{
	ceov_op *op = NULL;

	testing_log_clear(&log_);
	ck_assert_int_eq(op_case_create(one, rig->workspaces[0], &op), CEOV_ERR_INVALID);
	ck_assert_ptr_null(op);
	ck_assert_uint_eq(op_case_scratch(one), 0);
	testing_log_has(&log_, text, "rank 0", NULL);
}

static void expect_no_stride(struct op_rig *rig, enum op_sort sort, uint64_t stride,
			     const char *text)
{
	struct op_case one = op_case_of(sort, 2, 16, 0, 0);

	one.rows[1] = 24;
	one.stride = stride;
	expect_no_op(rig, &one, text);
}

START_TEST(test_strides_that_are_refused)
{
	static const char *const bad = "stride must be 0, or a multiple of 8 and no less";
	struct op_rig rig;

	op_rig_open(&rig, 2, SCRATCH, &log_);
	expect_no_stride(&rig, OP_REDUCE_SCATTER, 28, bad);
	expect_no_stride(&rig, OP_REDUCE_SCATTER, 16, bad);
	expect_no_stride(&rig, OP_REDUCE_SCATTER, (UINT64_C(1) << 40) + 8, "above 2^40");
	expect_no_stride(&rig, OP_ALL_REDUCE, 24, "only a reduce-scatter takes one");
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* Gaps belong to the source; there is none behind the last part. */
START_TEST(test_targets_in_gaps_are_refused)
{
	struct op_case one = op_case_of(OP_REDUCE_SCATTER, 1, 8, 0, 0);
	struct ceov_reduce_run run = { .struct_bytes = sizeof(run) };
	_Alignas(16) uint16_t memory[64 + 8 + 8] = { 0 };
	struct op_rig rig;
	ceov_op *op;

	one.stride = 64;
	op_rig_open(&rig, 1, SCRATCH, &log_);
	op = op_case_made(&one, rig.workspaces[0]);
	run.source = memory;
	run.target = memory + 8;
	ck_assert_int_eq(ceov_reduce_run(op, &run), 0);
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);

	one.n_ranks = 2;
	one.rows[1] = 8;
	op_rig_open(&rig, 2, SCRATCH, &log_);
	op = op_case_made(&one, rig.workspaces[0]);
	ck_assert_int_eq(ceov_reduce_run(op, &run), CEOV_ERR_INVALID);
	testing_log_has(&log_, "target overlaps source", "rank 0", NULL);
	run.target = memory + 64;
	ck_assert_int_eq(ceov_reduce_run(op, &run), CEOV_ERR_INVALID);
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* Three ranks have different scales: powers of two, other numbers, negative ones. */
START_TEST(test_scaled_sums)
{
	static const enum ceov_dtype dtypes[] = { CEOV_BF16, CEOV_FP16, CEOV_FP32 };
	static const float scales[] = { 0.25f, 1 / 3.0f, -1, 0x1p-130f };
	struct op_case one = op_case_of(OP_REDUCE_SCATTER, 3, 40, 0, 0);
	struct op_rig rig;

	one.dtype = dtypes[_i % 3];
	one.scale = scales[_i / 3];
	one.rows[1] = _i % 2 ? 0 : 2056;        /* more elements than are summed at a time */
	one.tuning.n_pieces = 1 + (uint32_t)_i % 2;
	op_rig_open(&rig, 3, SCRATCH, &log_);
	op_rig_each(&rig, sum_and_check, &one);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* Returns a scaled sum of one rank, without using the rig's reference. */
static float times(struct op_rig *rig, enum ceov_dtype dtype, float number, float scale)
{
	struct op_case one = op_case_of(OP_REDUCE_SCATTER, 1, 8, 0, 0);
	struct ceov_reduce_run run = { .struct_bytes = sizeof(run) };
	_Alignas(16) float source[8] = { 0 }, target[8] = { 0 };
	float result;
	ceov_op *op;

	one.dtype = dtype;
	one.scale = scale;
	cei_dtype_narrow(dtype, source, &number, 1);
	run.source = source;
	run.target = target;
	op = op_case_made(&one, rig->workspaces[0]);
	ck_assert_int_eq(ceov_reduce_run(op, &run), 0);
	ceov_op_release(op);
	cei_dtype_widen(dtype, &result, target, 1);
	return result;
}

START_TEST(test_what_scales_do)
{
	struct op_rig rig;

	op_rig_open(&rig, 1, SCRATCH, &log_);
	ck_assert(times(&rig, CEOV_FP32, 1.5f, 0) == 1.5f);
	ck_assert(times(&rig, CEOV_FP32, 1.5f, 1) == 1.5f);
	ck_assert(times(&rig, CEOV_FP32, 1.5f, -0.5f) == -0.75f);
	ck_assert(times(&rig, CEOV_FP32, 3, 1 / 3.0f) == 1);
	/* scaled as fp32: as fp16 it would be infinite, or 0 */
	ck_assert(times(&rig, CEOV_FP16, 1024, 0x1p5f) == 32768);
	ck_assert(times(&rig, CEOV_FP16, 0x1p15f, 0x1p-30f) == 0x1p-15f);
	ck_assert(times(&rig, CEOV_BF16, 0x1p-100f, 0x1p120f) == 0x1p20f);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

static void expect_no_scale(struct op_rig *rig, enum op_sort sort, float scale,
			    const char *text)
{
	struct op_case one = op_case_of(sort, 2, 16, 0, 0);

	one.scale = scale;
	expect_no_op(rig, &one, text);
}

START_TEST(test_scales_that_are_refused)
{
	static const char *const bad = "scale must be finite";
	struct op_case one = op_case_of(OP_ALL_REDUCE, 2, 16, 0, 0);
	struct op_rig rig;

	op_rig_open(&rig, 2, SCRATCH, &log_);
	expect_no_scale(&rig, OP_REDUCE_SCATTER, NAN, bad);
	expect_no_scale(&rig, OP_REDUCE_SCATTER, INFINITY, bad);
	expect_no_scale(&rig, OP_REDUCE_SCATTER, -INFINITY, bad);
	expect_no_scale(&rig, OP_ALL_REDUCE, NAN, bad);
	expect_no_scale(&rig, OP_ALL_REDUCE, 0.5f, "only a reduce-scatter takes another");
	one.scale = 1;
	ceov_op_release(op_case_made(&one, rig.workspaces[0]));
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("strides");
	TCase *all = tcase_create("strides");

	tcase_add_checked_fixture(all, set_up, NULL);
	tcase_set_timeout(all, 60);
	tcase_add_loop_test(all, test_parts_with_gaps, 0, 6);
	tcase_add_test(all, test_strides_that_are_refused);
	tcase_add_test(all, test_targets_in_gaps_are_refused);
	tcase_add_loop_test(all, test_scaled_sums, 0, 12);
	tcase_add_test(all, test_what_scales_do);
	tcase_add_test(all, test_scales_that_are_refused);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
