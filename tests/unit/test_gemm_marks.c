/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* GEMM with marks on host ranks: results and groups of random shapes, the order of marks, ranks
 * that make different runs, waits that end early or late, and what is refused. */

#include <check.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "ce_engine/objects/context.h"
#include "op_rig.h"
#include "ops/core/op.h"
#include "ops/gemm/product.h"
#include "ops/kinds.h"

#define SCRATCH UINT64_C(400000)
#define RUNS    4u
#define SHORT   UINT64_C(50000000)
#define NEVER   UINT64_C(99)

static struct testing_log log_;

static void set_up(void)
{
	testing_log_init(&log_);
}

/* --- a product ------------------------------------------------------------- */

/* The product of one rank, generated and checked as an all-gather + GEMM of a group of one. */
static struct op_case case_of(uint64_t m, uint64_t k, uint64_t n, uint32_t n_groups)
{
	struct op_case one = op_case_of(OP_AG_GEMM, 1, m, k, n);

	one.tuning.n_pieces = n_groups;
	return one;
}

static struct ceov_gemm_marks from_of(const struct op_case *one)
{
	struct ceov_gemm_marks from = { .struct_bytes = sizeof(from) };

	from.dtype = one->dtype;
	from.m = one->rows[0];
	from.k = one->k;
	from.n = one->n[0];
	from.tuning = &one->tuning;
	from.b_is_k_by_n = one->b_is_k_by_n;
	return from;
}

static ceov_op *made(const struct op_case *one, ceov_workspace *workspace)
{
	struct ceov_gemm_marks from = from_of(one);
	ceov_op *op = NULL;

	ck_assert_int_eq(ceov_gemm_marks_create(workspace, &from, &op), 0);
	return op;
}

static struct ceov_gemm_marks_run run_of(const struct op_data *data)
{
	struct ceov_gemm_marks_run run = { .struct_bytes = sizeof(run) };

	run.a = data->a;
	run.b = data->b[0];
	run.c = data->c[0];
	return run;
}

/* Makes a run with operands of its own, checks its results, and awaits all its groups. */
static void run_once(const struct op_case *one, ceov_op *op, uint64_t seed, uint64_t number)
{
	struct ceov_gemm_marks_run run;
	struct op_data data;
	uint32_t group;

	op_data_make(one, 0, seed, &data);
	run = run_of(&data);
	ck_assert_int_eq(ceov_gemm_marks_run(op, &run), 0);
	op_data_check(one, 0, seed, &data);
	for (group = 0; group < ceov_gemm_marks_groups(op); group++) {
		ck_assert_int_eq(ceov_gemm_marks_wait(op, number, group, NULL), 0);
		ck_assert_int_eq(ceov_gemm_marks_wait(op, 0, group, NULL), 0);
	}
	op_data_free(&data);
}

/* --- results and groups ---------------------------------------------------- */

/* The groups in order cover all rows, and none is empty. */
static void check_groups(const struct op_case *one, const ceov_op *op)
{
	uint64_t row = 0, first, n_rows;
	uint32_t group, n = ceov_gemm_marks_groups(op);

	ck_assert(n >= 1 && (!one->tuning.n_pieces || n <= one->tuning.n_pieces));
	for (group = 0; group < n; group++) {
		ck_assert_int_eq(ceov_gemm_marks_rows(op, group, &first, &n_rows), 0);
		ck_assert_uint_eq(first, row);
		ck_assert_uint_gt(n_rows, 0);
		row += n_rows;
	}
	ck_assert_uint_eq(row, one->rows[0]);
}

static struct op_case random_case(uint64_t *random)
{
	static const uint32_t tiles[] = { 1, 7, 16, 33, 64 };
	struct op_case one = case_of(1 + testing_below(random, testing_below(random, 2) ? 12 : 200),
				     8 + 8 * testing_below(random, 5),
				     8 + 8 * testing_below(random, 6),
				     (uint32_t)testing_below(random, 33));

	one.dtype = testing_below(random, 2) ? CEOV_BF16 : CEOV_FP16;
	one.b_is_k_by_n = (int)testing_below(random, 2);
	if (testing_below(random, 2)) {
		one.tuning.tile_rows = tiles[testing_below(random, 5)];
		one.tuning.tile_columns = tiles[testing_below(random, 5)];
	}
	op_case_pick_cut(&one, random, 4096);
	if (one.tuning.n_pieces < 2 && testing_below(random, 2))
		one.tuning.mode = CEOV_MODE_SEQUENCE;
	return one;
}

START_TEST(test_random_shapes)
{
	uint64_t random = testing_seed() + (uint64_t)_i;
	uint32_t n_ranks = 1 + (uint32_t)_i % 3, i;
	struct op_case one;
	struct op_rig rig;
	ceov_op *op;

	op_rig_open(&rig, n_ranks, SCRATCH, &log_);
	for (i = 0; i < 12; i++) {
		one = random_case(&random);
		op = made(&one, rig.workspaces[n_ranks - 1]);
		check_groups(&one, op);
		run_once(&one, op, 2 * i, 1);
		run_once(&one, op, 2 * i + 1, 2);
		ceov_op_release(op);
	}
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* Few rows make fewer groups than were asked for: of 4 groups of 2 rows, 5 rows leave one empty. */
START_TEST(test_groups_without_rows_are_none)
{
	struct op_case one = case_of(5, 16, 8, 4);
	struct op_rig rig;
	ceov_op *op;

	op_rig_open(&rig, 1, SCRATCH, &log_);
	op = made(&one, rig.workspaces[0]);
	ck_assert_uint_eq(ceov_gemm_marks_groups(op), 3);
	check_groups(&one, op);
	run_once(&one, op, 1, 1);
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* --- the order of marks ---------------------------------------------------- */

static const ceov_op *watched;          /* the op whose run is looked at */
static uint32_t n_watched;              /* groups that were looked at */

/* Computes the tiles of one group after another. Behind each its mark is reached, and that of the
 * next group is not. */
static int watched_gemm(struct cei_executor *executor, void *stream,
			const struct cei_gemm_job *job)
{
	uint32_t n_groups = ceov_gemm_marks_groups(watched), group, n = 0, at = 0;
	struct cei_gemm_job part = *job;
	struct cei_tiles tiles;
	uint64_t first, n_rows;
	int r = 0;

	for (group = 0; !r && group < n_groups; group++, at += n) {
		ck_assert_int_eq(ceov_gemm_marks_rows(watched, group, &first, &n_rows), 0);
		for (n = 0; at + n < job->tiles->n_tiles &&
		     job->tiles->tile[at + n].c_row < first + n_rows; n++)
			ck_assert_uint_eq(job->tiles->tile[at + n].arrive, group);
		tiles = *job->tiles;
		tiles.tile += at;
		tiles.n_tiles = n;
		part.tiles = &tiles;
		r = cei_executor_host.gemm(executor, stream, &part);
		ck_assert_int_eq(ceov_signal_wait(job->marks.ready, group, job->marks.value, 0),
				 0);
		if (group + 1 < n_groups)
			ck_assert_int_eq(ceov_signal_wait(job->marks.ready, group + 1,
							  job->marks.value, 0), CEOV_PENDING);
		n_watched++;
	}
	ck_assert_uint_eq(at, job->tiles->n_tiles);
	return r;
}

START_TEST(test_marks_come_group_by_group)
{
	struct cei_executor_ops ops = cei_executor_host;
	struct op_case one = case_of(300, 16, 72, 4);
	struct op_rig rig;
	ceov_op *op;
	uint32_t i;

	one.tuning.tile_rows = 16;
	one.tuning.tile_columns = 32;
	ops.gemm = watched_gemm;
	op_rig_open(&rig, 1, SCRATCH, &log_);
	op = made(&one, rig.workspaces[0]);
	ck_assert_uint_eq(ceov_gemm_marks_groups(op), 4);
	watched = op;
	n_watched = 0;
	rig.workspaces[0]->executor.ops = &ops;
	for (i = 0; i < RUNS; i++)
		run_once(&one, op, i, i + 1);
	rig.workspaces[0]->executor.ops = &cei_executor_host;
	ck_assert_uint_eq(n_watched, 4 * RUNS);
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* --- threads that wait ----------------------------------------------------- */

struct waiter {
	pthread_t thread;
	ceov_op  *op;
	uint64_t  run;
	int       result;
};

static void *wait_in_order(void *arg)
{
	struct waiter *waiter = arg;
	uint32_t group;

	for (group = 0; !waiter->result && group < ceov_gemm_marks_groups(waiter->op); group++)
		waiter->result = ceov_gemm_marks_wait(waiter->op, waiter->run, group, NULL);
	return NULL;
}

static void begin_waiting(struct waiter *waiter, ceov_op *op, uint64_t run)
{
	waiter->op = op;
	waiter->run = run;
	waiter->result = 0;
	ck_assert_int_eq(pthread_create(&waiter->thread, NULL, wait_in_order, waiter), 0);
}

/* A thread may wait before another one makes the run. */
START_TEST(test_waits_before_the_run)
{
	struct op_case one = case_of(200, 16, 24, 3);
	struct waiter waiter;
	struct op_rig rig;
	ceov_op *op;
	uint32_t i;

	op_rig_open(&rig, 1, SCRATCH, &log_);
	op = made(&one, rig.workspaces[0]);
	for (i = 0; i < RUNS; i++) {
		begin_waiting(&waiter, op, i + 1);
		usleep(i % 2 ? 0 : 3000);
		run_once(&one, op, i, i + 1);
		pthread_join(waiter.thread, NULL);
		ck_assert_int_eq(waiter.result, 0);
	}
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

START_TEST(test_a_run_that_nobody_makes)
{
	struct op_case one = case_of(20, 16, 24, 2);
	ceov_context *context = testing_open(1, &log_);
	ceov_workspace *workspace = op_workspace(context, 0, "late", SCRATCH, SHORT);
	uint64_t begun = cei_now_ns();
	ceov_op *op;

	ck_assert_int_eq(ceov_workspace_connect(workspace, TESTING_PATIENCE), 0);
	op = made(&one, workspace);
	ck_assert_int_eq(ceov_gemm_marks_wait(op, NEVER, 1, NULL), CEOV_ERR_TIMEOUT);
	ck_assert_uint_ge(cei_now_ns() - begun, SHORT);
	testing_log_has(&log_, "ceov_gemm_marks_wait: rank 0: group 1 of run 99", "deadline",
			NULL);
	run_once(&one, op, 1, 1);       /* the op can still be used */
	ceov_op_release(op);
	ck_assert_int_eq(ceov_workspace_release(workspace), 0);
	ceov_close(context);
}
END_TEST

/* An abort ends waits long before the deadline, and later ones at once. */
START_TEST(test_aborts_end_waits)
{
	struct op_case one = case_of(20, 16, 24, 1);
	struct ceov_gemm_marks_run run;
	struct waiter waiter;
	struct op_data data;
	struct op_rig rig;
	ceov_op *op;

	op_rig_open(&rig, 1, SCRATCH, &log_);
	op = made(&one, rig.workspaces[0]);
	begin_waiting(&waiter, op, NEVER);
	usleep(20000);
	ck_assert_int_eq(ceov_workspace_abort(rig.workspaces[0]), 0);
	pthread_join(waiter.thread, NULL);
	ck_assert_int_eq(waiter.result, CEOV_ERR_ABORTED);
	ck_assert_int_eq(ceov_gemm_marks_wait(op, NEVER, 0, NULL), CEOV_ERR_ABORTED);
	op_data_make(&one, 0, 1, &data);
	run = run_of(&data);
	ck_assert_int_eq(ceov_gemm_marks_run(op, &run), CEOV_ERR_ABORTED);
	op_data_free(&data);
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

static int failing_gemm(struct cei_executor *executor, void *stream,
			const struct cei_gemm_job *job)
{
	(void)stream;
	(void)job;
	return cei_raise(&executor->context->report, CEOV_ERR_NO_MEMORY, 0, "made to fail");
}

/* A run that could not be queued raises no marks, so nobody may wait for them. */
START_TEST(test_runs_that_fail)
{
	struct cei_executor_ops ops = cei_executor_host;
	struct op_case one = case_of(20, 16, 24, 1);
	struct ceov_gemm_marks_run run;
	struct op_data data;
	struct op_rig rig;
	ceov_op *op;

	ops.gemm = failing_gemm;
	op_rig_open(&rig, 1, SCRATCH, &log_);
	op = made(&one, rig.workspaces[0]);
	op_data_make(&one, 0, 1, &data);
	run = run_of(&data);
	rig.workspaces[0]->executor.ops = &ops;
	ck_assert_int_eq(ceov_gemm_marks_run(op, &run), CEOV_ERR_NO_MEMORY);
	rig.workspaces[0]->executor.ops = &cei_executor_host;
	ck_assert_int_eq(ceov_gemm_marks_wait(op, 0, 0, NULL), CEOV_ERR_NO_MEMORY);
	ck_assert_int_eq(ceov_workspace_status(rig.workspaces[0]), CEOV_ERR_NO_MEMORY);
	op_data_free(&data);
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* --- other runs of the workspace ------------------------------------------- */

/* Between the runs that all ranks make, each rank makes as many of its own as it likes. */
static void mix(const struct op_part *part)
{
	const struct op_case *shared = part->arg;
	ceov_workspace *workspace = part->rig->workspaces[part->rank];
	struct op_case one = case_of(30 + 7 * part->rank, 16, 24, 1 + part->rank);
	uint64_t random = testing_seed() + part->rank, n_own = 0;
	ceov_op *op = op_case_made(shared, workspace), *own = made(&one, workspace);
	struct op_data data;
	uint32_t i;

	for (i = 0; i < 3 * RUNS; i++) {
		while (testing_below(&random, 3))
			run_once(&one, own, testing_random(&random), ++n_own);
		if (testing_below(&random, 4) == 0)
			usleep((useconds_t)testing_below(&random, 4000));
		op_data_make(shared, part->rank, i, &data);
		ck_assert_int_eq(op_data_run(shared, op, &data), 0);
		op_data_check(shared, part->rank, i, &data);
		op_data_free(&data);
	}
	ck_assert_uint_eq(workspace->n_runs, 3 * RUNS);
	ceov_op_release(own);
	ceov_op_release(op);
}

START_TEST(test_ranks_make_different_runs)
{
	struct op_case shared = op_case_of(_i ? OP_GEMM_RS : OP_ALL_REDUCE, 3, 24, 16, 32);
	struct op_rig rig;

	op_rig_open(&rig, 3, SCRATCH, &log_);
	op_rig_each(&rig, mix, &shared);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* The product alone, as benchmarks measure it, raises no marks. */
START_TEST(test_the_product_alone)
{
	struct op_case one = case_of(100, 16, 24, 2);
	struct ceov_gemm_marks_run run;
	struct op_data data;
	struct op_rig rig;
	ceov_op *op;

	op_rig_open(&rig, 1, SCRATCH, &log_);
	op = made(&one, rig.workspaces[0]);
	op_data_make(&one, 0, 5, &data);
	run = run_of(&data);
	ck_assert_int_eq(cei_op_gemm_alone(op, &run), 0);
	op_data_check(&one, 0, 5, &data);
	op_data_free(&data);
	ck_assert_int_eq(ceov_gemm_marks_wait(op, 0, 0, NULL), CEOV_ERR_STATE);
	run_once(&one, op, 6, 1);
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* --- choices --------------------------------------------------------------- */

static struct cei_choice choice_of(uint64_t m)
{
	struct op_case one = case_of(m, 4096, 8192, 0);
	struct ceov_gemm_marks from = from_of(&one);
	struct cei_op_shape shape = { .kind = &cei_gemm_marks };
	struct cei_rates rates = cei_rates_gpu();
	struct cei_choice choice;

	(void)cei_gemm_marks.shape(&shape, &from, 8);
	ck_assert_ptr_null(cei_op_shape_fault(&shape));
	cei_selector_choose(&shape, &rates, NULL, &choice);
	return choice;
}

/* Groups have 4 MiB and 256 rows at least, and are 8 at most. */
START_TEST(test_number_of_groups_on_gpus)
{
	struct cei_choice choice = choice_of(16384);

	ck_assert_int_eq(choice.mode, CEOV_MODE_OVERLAP);
	ck_assert_uint_eq(choice.n_pieces, 8);
	ck_assert_uint_eq(choice.shape.rows, 128);
	ck_assert_ptr_nonnull(strstr(choice.text, "pieces: 8"));
	ck_assert_uint_eq(choice_of(1024).n_pieces, 4);
	ck_assert_uint_eq(choice_of(16).n_pieces, 1);
}
END_TEST

/* --- refusals -------------------------------------------------------------- */

static void expect_no_op(struct op_rig *rig, const struct ceov_gemm_marks *from,
			 const char *text)
{
	ceov_op *op = NULL;

	testing_log_clear(&log_);
	ck_assert_uint_eq(ceov_gemm_marks_scratch_bytes(from, 2), 0);
	ck_assert_int_eq(ceov_gemm_marks_create(rig->workspaces[0], from, &op),
			 CEOV_ERR_INVALID);
	ck_assert_ptr_null(op);
	testing_log_has(&log_, "ceov_gemm_marks_create", text, NULL);
}

START_TEST(test_shapes_that_are_refused)
{
	struct op_case one = case_of(8, 16, 64, 0);
	struct ceov_gemm_marks good = from_of(&one), from = good;
	struct op_rig rig;

	op_rig_open(&rig, 2, SCRATCH, &log_);
	ck_assert_uint_gt(ceov_gemm_marks_scratch_bytes(&good, 2), 0);
	ck_assert_uint_eq(ceov_gemm_marks_scratch_bytes(&good, 0), 0);
	ck_assert_uint_eq(ceov_gemm_marks_scratch_bytes(NULL, 2), 0);
	from.m = 0;
	expect_no_op(&rig, &from, "have no rows");
	from.m = UINT64_C(1) << 32;
	expect_no_op(&rig, &from, "too many rows");
	from = good;
	from.n = 12;
	expect_no_op(&rig, &from, "n must be a multiple of 8");
	from = good;
	from.k = 0;
	expect_no_op(&rig, &from, "k must be a multiple of 8");
	from = good;
	from.dtype = CEOV_FP32;
	expect_no_op(&rig, &from, "only sums take");
	from = good;
	from.b_is_k_by_n = 2;
	expect_no_op(&rig, &from, "b_is_k_by_n must be 0 or 1");
	from = good;
	from.struct_bytes--;
	expect_no_op(&rig, &from, "struct_bytes");
	ck_assert_int_eq(ceov_gemm_marks_create(rig.workspaces[0], &good, NULL),
			 CEOV_ERR_INVALID);
	one.tuning.n_pieces = 33;
	ck_assert_int_eq(ceov_gemm_marks_create(rig.workspaces[0], &good, &(ceov_op *){ NULL }),
			 CEOV_ERR_INVALID);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

static void expect_refusals(ceov_op *op, ceov_op *other)
{
	uint64_t first = 7, n_rows = 7;

	ck_assert_int_eq(ceov_gemm_marks_wait(op, 0, 0, NULL), CEOV_ERR_STATE);
	testing_log_has(&log_, "no run was begun", NULL, NULL);
	ck_assert_int_eq(ceov_gemm_marks_wait(op, 1, 2, NULL), CEOV_ERR_INVALID);
	testing_log_has(&log_, "there is no group 2, the op has 2", NULL, NULL);
	ck_assert_int_eq(ceov_gemm_marks_rows(op, 2, &first, &n_rows), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_gemm_marks_rows(op, 0, NULL, &n_rows), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_gemm_marks_rows(op, 0, &first, NULL), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_gemm_marks_wait(other, 1, 0, NULL), CEOV_ERR_INVALID);
	testing_log_has(&log_, "is a ceov_gemm_rs, which has no groups", NULL, NULL);
	ck_assert_int_eq(ceov_gemm_marks_rows(other, 0, &first, &n_rows), CEOV_ERR_INVALID);
	ck_assert_uint_eq(ceov_gemm_marks_groups(other), 0);
	ck_assert_uint_eq(ceov_gemm_marks_groups(NULL), 0);
	ck_assert_uint_eq(first, 7);
	ck_assert_uint_eq(n_rows, 7);
}

START_TEST(test_calls_that_are_refused)
{
	struct op_case one = case_of(8, 16, 64, 2);
	struct op_case scattered = op_case_of(OP_GEMM_RS, 1, 8, 16, 64);
	struct ceov_gemm_marks_run run;
	struct op_data data;
	ceov_op *op, *other;
	struct op_rig rig;

	op_rig_open(&rig, 1, SCRATCH, &log_);
	op = made(&one, rig.workspaces[0]);
	other = op_case_made(&scattered, rig.workspaces[0]);
	expect_refusals(op, other);
	op_data_make(&one, 0, 1, &data);
	run = run_of(&data);
	ck_assert_int_eq(ceov_gemm_marks_run(other, &run), CEOV_ERR_INVALID);
	run.c = (void *)data.a;
	ck_assert_int_eq(ceov_gemm_marks_run(op, &run), CEOV_ERR_INVALID);
	testing_log_has(&log_, "c overlaps a", NULL, NULL);
	run.c = NULL;
	ck_assert_int_eq(ceov_gemm_marks_run(op, &run), CEOV_ERR_INVALID);
	run_once(&one, op, 1, 1);       /* refused runs were not counted */
	op_data_free(&data);
	ceov_op_release(other);
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gemm_marks");
	TCase *all = tcase_create("gemm_marks");

	tcase_add_checked_fixture(all, set_up, NULL);
	tcase_set_timeout(all, 60);
	tcase_add_loop_test(all, test_random_shapes, 0, 6);
	tcase_add_test(all, test_groups_without_rows_are_none);
	tcase_add_test(all, test_marks_come_group_by_group);
	tcase_add_test(all, test_waits_before_the_run);
	tcase_add_test(all, test_a_run_that_nobody_makes);
	tcase_add_test(all, test_aborts_end_waits);
	tcase_add_test(all, test_runs_that_fail);
	tcase_add_loop_test(all, test_ranks_make_different_runs, 0, 2);
	tcase_add_test(all, test_the_product_alone);
	tcase_add_test(all, test_number_of_groups_on_gpus);
	tcase_add_test(all, test_shapes_that_are_refused);
	tcase_add_test(all, test_calls_that_are_refused);
	suite_add_tcase(suite, all);
	return testing_run(suite);
}
