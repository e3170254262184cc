/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests tuning of operators on GPUs, in both kinds of workspace: the chosen candidate computes the
 * same results, and a stored result is used without measuring. */

#include "gpu_op_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ops/core/capture_cuda.h"
#include "ops/core/op.h"

#define TUNED 6u

static struct gpu_op_rig rig;
static uint32_t n_all;

static void set_up(void)
{
	char folder[200];

	testing_path("cache", folder, sizeof(folder));
	setenv("XDG_CACHE_HOME", folder, 1);
}

static void tear_down(void)
{
	char path[200];

	testing_path("cache/ceoverlap/tunings", path, sizeof(path));
	unlink(path);
	*strrchr(path, '/') = 0;
	rmdir(path);
	*strrchr(path, '/') = 0;
	rmdir(path);
}

static struct op_case case_of(uint32_t i, uint32_t n_ranks)
{
	switch (i) {
	case 0:  return op_case_of(OP_AG_GEMM, n_ranks, 1024, 1024, 2048);
	case 1:  return op_case_of(OP_GEMM_RS, n_ranks, 1024, 1024, 2048);
	case 2:  return op_case_of(OP_GEMM_A2A, n_ranks, 1024, 1024, 2048);
	case 3:  return op_case_of(OP_A2A_GEMM, n_ranks, 1024, 1024, 2048);
	case 4:  return op_case_of(OP_GEMM_AR, n_ranks, 1024, 1024, 2048);
	default: return op_case_of(OP_ALL_REDUCE, n_ranks, 1 << 20, 0, 0);
	}
}

static uint32_t n_graphs(const ceov_workspace *workspace)
{
	return workspace->capture ? cei_capture_n_graphs(workspace->capture) : 0;
}

/* Creates and tunes an op of the case, and checks its results before and after. Returns the choice;
 * *ret_n_runs: how many runs it took. */
static struct cei_choice tune(struct gpu_op_rank *rank, ceov_workspace *workspace,
			      const struct op_case *one, uint64_t *ret_n_runs)
{
	void *stream = rank->gpu.streams[GPU_CONSUME];
	struct gpu_op_data data;
	struct cei_choice choice;
	ceov_op *op = NULL;
	uint32_t i;

	rank->used_bytes = 0;
	gpu_op_data_make(rank, one, &data);
	ck_assert_int_eq(op_case_create(one, workspace, &op), 0);
	gpu_op_meet(rank);
	for (i = 0; i < 2 * CEI_OP_HALVES; i++) {       /* enough runs that they are cached as
							 * graphs */
		gpu_op_data_turn(&data, op, GPU_CONSUME, i);
		gpu_op_data_check(&data, GPU_CONSUME, i);
	}
	ck_assert_uint_eq(n_graphs(workspace), gpu_op_n_graphs(rank->rig, CEI_OP_HALVES));
	*ret_n_runs = workspace->n_runs;
	ck_assert_int_eq(ceov_op_tune(op, stream), 0);
	*ret_n_runs = workspace->n_runs - *ret_n_runs;
	ck_assert(op->is_tuned);
	choice = op->choice;
	ck_assert(!*ret_n_runs || !n_graphs(workspace));        /* tuning replaced the op, whose
								 * cached graphs are dropped */
	for (i = 0; i < 2 * CEI_OP_HALVES; i++) {
		gpu_op_data_turn(&data, op, GPU_CONSUME, 10 + i);
		gpu_op_data_check(&data, GPU_CONSUME, 10 + i);
	}
	ck_assert_int_eq(ceov_workspace_status(workspace), 0);
	gpu_op_meet(rank);
	ceov_op_release(op);
	gpu_op_meet(rank);
	return choice;
}

static void expect_same(const struct cei_choice *x, const struct cei_choice *y)
{
	ck_assert_int_eq(x->mode, y->mode);
	ck_assert_uint_eq(x->n_pieces, y->n_pieces);
	ck_assert_uint_eq(x->shape.rows, y->shape.rows);
	ck_assert_uint_eq(x->shape.columns, y->shape.columns);
	ck_assert_uint_eq(x->n_reduce_blocks, y->n_reduce_blocks);
}

static void tune_each(struct gpu_op_rank *rank, const void *arg)
{
	ceov_workspace *workspace = gpu_op_workspace(rank, arg);
	struct cei_choice first, second;
	struct op_case one;
	uint64_t n_runs;
	uint32_t i;

	for (i = 0; i < TUNED; i++) {
		one = case_of(i, rank->rig->n_ranks);
		one.b_is_k_by_n = one.sort == OP_GEMM_RS;
		first = tune(rank, workspace, &one, &n_runs);
		ck_assert_uint_gt(n_runs, 0);
		ck_assert_ptr_nonnull(strstr(first.text, "tuned: "));
		ck_assert_ptr_nonnull(strstr(first.text, "the model's choice"));
		if (!rank->rank)
			printf("%u ranks, %u runs measured\n%s", rank->rig->n_ranks,
			       (unsigned)n_runs, first.text);
		second = tune(rank, workspace, &one, &n_runs);
		ck_assert_uint_eq(n_runs, 0);
		expect_same(&first, &second);
	}
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_tuned_once)
{
	const struct gpu_op_mode mode = { "tune", 0, 0, 0 };

	gpu_op_open(&rig, n_all);
	gpu_op_each(&rig, tune_each, &mode);
	gpu_op_close(&rig);
}
END_TEST

static Suite *suite(uint32_t n_ranks)
{
	Suite *made = suite_create("gpu tune");
	TCase *all = tcase_create("tune");

	n_all = n_ranks < GPU_OP_RANKS_MAX ? n_ranks : GPU_OP_RANKS_MAX;
	tcase_set_timeout(all, 100);
	tcase_add_checked_fixture(all, set_up, tear_down);
	tcase_add_test(all, test_tuned_once);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return gpu_main_ranks(suite);
}
