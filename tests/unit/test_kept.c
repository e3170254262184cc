/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests who writes the gathered rows of an all-gather + GEMM to the caller's memory: the executor
 * while it multiplies, if it can, or a copy after the product. The host's executor cannot, so this
 * test's executor does it, and takes each row from the memory that its tile reads. */

#include <check.h>
#include <string.h>

#include "op_rig.h"
#include "ops/compute/dtype.h"
#include "ops/core/op.h"
#include "ops/gemm/product.h"

#define SCRATCH UINT64_C(100000)
#define RANKS   3u
#define RUNS    3u

struct stand_in {
	int      can;
	uint32_t n_asked;               /* written only by that rank's thread */
	uint32_t n_kept;
	uint32_t n_copies;
};

static struct stand_in stand_ins[RANKS];
static struct testing_log log_;

static void set_up(void)
{
	testing_log_init(&log_);
	memset(stand_ins, 0, sizeof(stand_ins));
}

/* --- the test's executor --------------------------------------------------- */

static int keeps(const struct cei_executor *executor, const struct cei_gemm_job *job)
{
	struct stand_in *own = &stand_ins[executor->rank];

	ck_assert_ptr_nonnull(job->tiles);
	own->n_asked++;
	return own->can;
}

static void keep_tile(const struct cei_gemm_job *job, const struct cei_gemm_tile *tile)
{
	uint64_t row_bytes = job->k * CEI_DTYPE16_BYTES;

	if (tile->column || tile->b || !tile->n_rows)
		return;
	memcpy((char *)job->kept + tile->c_row * row_bytes,
	       (const char *)job->a[tile->a].base + tile->a_row * row_bytes,
	       tile->n_rows * row_bytes);
}

/* Multiplies, then copies the gathered rows: all of them have arrived by then. */
static int multiply(struct cei_executor *executor, void *stream,
		    const struct cei_gemm_job *job)
{
	int r = cei_executor_host.gemm(executor, stream, job);
	uint32_t i;

	if (r || !job->kept)
		return r;
	stand_ins[executor->rank].n_kept++;
	for (i = 0; i < job->tiles->n_tiles; i++)
		keep_tile(job, &job->tiles->tile[i]);
	return 0;
}

static int copy(struct cei_executor *executor, void *stream, void *target,
		const void *source, uint64_t n_bytes)
{
	stand_ins[executor->rank].n_copies++;
	return cei_executor_host.copy(executor, stream, target, source, n_bytes);
}

static struct cei_executor_ops stand_in_ops(void)
{
	struct cei_executor_ops ops = cei_executor_host;

	ops.keeps = keeps;
	ops.gemm = multiply;
	ops.copy = copy;
	return ops;
}

/* --- runs ------------------------------------------------------------------ */

static void run_some(const struct op_part *part)
{
	const struct op_case *one = part->arg;
	ceov_op *op = NULL;
	struct op_data data;
	uint64_t run;

	ck_assert_int_eq(op_case_create(one, part->rig->workspaces[part->rank], &op), 0);
	for (run = 0; run < RUNS; run++) {
		op_data_make(one, part->rank, run, &data);
		ck_assert_int_eq(op_data_run(one, op, &data), 0);
		op_data_check(one, part->rank, run, &data);
		op_data_free(&data);
	}
	ceov_op_release(op);
}

/* Makes a case in which rank 1 has no rows, or few. */
static struct op_case case_of(enum ceov_op_mode mode, int is_wanted)
{
	struct op_case one = op_case_of(OP_AG_GEMM, RANKS, 40, 24, 40);

	one.rows[1] = mode == CEOV_MODE_SEQUENCE ? 0 : 7;
	one.n_gemms = 2;
	one.n[1] = 8;
	one.wants_gathered = is_wanted;
	one.tuning.mode = mode;
	one.tuning.n_pieces = mode == CEOV_MODE_OVERLAP ? 2 : 1;
	one.tuning.tile_rows = one.tuning.tile_columns = 16;
	return one;
}

static void run_all(const struct op_case *one)
{
	struct cei_executor_ops ops = stand_in_ops();
	struct op_case kept = *one;
	struct op_rig rig;
	uint32_t i;

	op_rig_open(&rig, RANKS, SCRATCH, &log_);
	for (i = 0; i < RANKS; i++)
		rig.workspaces[i]->executor.ops = &ops;
	op_rig_each(&rig, run_some, &kept);
	for (i = 0; i < RANKS; i++)
		rig.workspaces[i]->executor.ops = &cei_executor_host;
	op_rig_release(&rig);
	op_rig_close(&rig);
}

static void expect(uint32_t n_asked, uint32_t n_kept, int copies)
{
	uint32_t i;

	for (i = 0; i < RANKS; i++) {
		ck_assert_uint_eq(stand_ins[i].n_asked, n_asked);
		ck_assert_uint_eq(stand_ins[i].n_kept, n_kept);
		ck_assert_int_eq(stand_ins[i].n_copies != 0, copies);
	}
}

static const enum ceov_op_mode modes[] = { CEOV_MODE_OVERLAP, CEOV_MODE_SEQUENCE };

START_TEST(test_the_product_keeps_them)
{
	struct op_case one = case_of(modes[_i], 1);
	uint32_t i;

	for (i = 0; i < RANKS; i++)
		stand_ins[i].can = 1;
	run_all(&one);
	expect(RUNS, RUNS, 0);
}
END_TEST

START_TEST(test_else_they_are_copied)
{
	struct op_case one = case_of(modes[_i], 1);

	run_all(&one);
	expect(RUNS, 0, 1);
}
END_TEST

/* Whether rows are copied is decided on each rank by its own executor. */
START_TEST(test_each_rank_for_itself)
{
	struct op_case one = case_of(modes[_i], 1);

	stand_ins[0].can = 1;
	run_all(&one);
	ck_assert_uint_eq(stand_ins[0].n_kept, RUNS);
	ck_assert_uint_eq(stand_ins[0].n_copies, 0);
	ck_assert_uint_eq(stand_ins[2].n_kept, 0);
	ck_assert_uint_gt(stand_ins[2].n_copies, 0);
}
END_TEST

START_TEST(test_they_are_not_wanted)
{
	struct op_case one = case_of(modes[_i], 0);
	uint32_t i;

	for (i = 0; i < RANKS; i++)
		stand_ins[i].can = 1;
	run_all(&one);
	expect(0, 0, 0);
}
END_TEST

/* A product that runs only to be measured writes no gathered rows. */
START_TEST(test_a_product_alone_keeps_nothing)
{
	struct op_case one = op_case_of(OP_AG_GEMM, 1, 20, 24, 16);
	struct ceov_ag_gemm_run run = { .struct_bytes = sizeof(run) };
	struct cei_executor_ops ops = stand_in_ops();
	struct op_data data;
	ceov_op *op = NULL;
	struct op_rig rig;
	uint64_t i;

	one.wants_gathered = 1;
	stand_ins[0].can = 1;
	op_rig_open(&rig, 1, SCRATCH, &log_);
	rig.workspaces[0]->executor.ops = &ops;
	ck_assert_int_eq(op_case_create(&one, rig.workspaces[0], &op), 0);
	op_data_make(&one, 0, 5, &data);
	memset(data.gathered, 0x33, data.gathered_bytes);
	run.a = data.a;
	run.b[0] = data.b[0];
	run.c[0] = data.c[0];
	run.gathered = data.gathered;
	ck_assert_int_eq(cei_op_gemm_alone(op, &run), 0);
	ck_assert_uint_eq(stand_ins[0].n_kept, 0);
	for (i = 0; i < data.gathered_bytes; i++)
		ck_assert_uint_eq(((uint8_t *)data.gathered)[i], 0x33);
	op_data_free(&data);
	ceov_op_release(op);
	rig.workspaces[0]->executor.ops = &cei_executor_host;
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("kept");
	TCase *all = tcase_create("kept");

	tcase_set_timeout(all, 60);
	tcase_add_checked_fixture(all, set_up, NULL);
	tcase_add_loop_test(all, test_the_product_keeps_them, 0, 2);
	tcase_add_loop_test(all, test_else_they_are_copied, 0, 2);
	tcase_add_loop_test(all, test_each_rank_for_itself, 0, 2);
	tcase_add_loop_test(all, test_they_are_not_wanted, 0, 2);
	tcase_add_test(all, test_a_product_alone_keeps_nothing);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
