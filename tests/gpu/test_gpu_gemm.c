/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Products with B as n x k and as k x n: by our own kernel in every tile shape and by
 * cuBLAS, of sizes that fill tiles, their boxes and steps of k, and of others. On one GPU,
 * where nothing is waited for, and on all. Random shapes are in test_gpu_ops.c.
 */

#include "gpu_op_rig.h"

#include <stdio.h>

#define TURNS 2u

struct size {
	uint64_t n;
	uint64_t k;
};

/* Columns come in boxes of 64 and tiles of 128, 192 and 256, k in steps of 16 and 64. */
static const struct size sizes[] = {
	{ 256, 256 }, { 768, 64 }, { 8, 8 }, { 72, 200 }, { 136, 24 }, { 200, 328 },
	{ 264, 72 }, { 392, 1000 }, { 1032, 136 },
};

static const uint32_t tiles[][2] = {
	{ 128, 256 }, { 128, 192 }, { 128, 128 },
	{ GPU_OP_WIDE_ROWS, GPU_OP_WIDE_COLUMNS },      /* cuBLAS; the last one */
};

#define N_SIZES (uint32_t)(sizeof(sizes) / sizeof(sizes[0]))
#define N_TILES (uint32_t)(sizeof(tiles) / sizeof(tiles[0]))

static struct gpu_op_rig rig;
static uint32_t n_all;

static struct op_case case_of(uint32_t i, int b_is_k_by_n, uint32_t n_ranks)
{
	const struct size *size = &sizes[i / 2 % N_SIZES];
	const uint32_t *tile = tiles[i / 2 / N_SIZES];
	struct op_case one = op_case_of(i % 2 ? OP_GEMM_RS : OP_AG_GEMM, n_ranks, 300,
					size->k, size->n);

	one.rows[0] = 256;
	one.dtype = i % 3 ? CEOV_BF16 : CEOV_FP16;
	one.b_is_k_by_n = b_is_k_by_n;
	one.tuning.way = i % 5 ? CEOV_WAY_OVERLAP : CEOV_WAY_SEQUENCE;
	one.tuning.tile_rows = tile[0];
	one.tuning.tile_columns = tile[1];
	return one;
}

static void try_one(struct gpu_op_rank *rank, ceov_workspace *workspace,
		    const struct op_case *one, uint64_t number)
{
	struct gpu_op_data data;
	ceov_op *op = NULL;
	uint32_t turn;

	rank->used_bytes = 0;
	gpu_op_data_make(rank, one, &data);
	ck_assert_int_eq(op_case_create(one, workspace, &op), 0);
	gpu_op_meet(rank);
	for (turn = 0; turn < TURNS; turn++) {
		gpu_op_data_turn(&data, op, GPU_CONSUME, number + turn);
		gpu_op_data_check(&data, GPU_CONSUME, number + turn);
	}
	ck_assert_int_eq(ceov_workspace_status(workspace), 0);
	gpu_op_meet(rank);
	ceov_op_release(op);
}

static void try_all(struct gpu_op_rank *rank, const void *arg)
{
	const struct gpu_op_mode mode = { "gemm", 0, 0, 0 };
	const int *b_is_k_by_n = arg;
	ceov_workspace *workspace = gpu_op_workspace(rank, &mode);
	int has_library = gpu_op_has_library(workspace);
	uint32_t n = 2 * N_SIZES * (has_library ? N_TILES : N_TILES - 1), i;
	struct op_case one;

	for (i = 0; i < n; i++) {
		one = case_of(i, *b_is_k_by_n, rank->rig->n_ranks);
		try_one(rank, workspace, &one, TURNS * i);
	}
	if (!rank->rank)
		printf("%u ranks, B as k x n %d: %u shapes, cuBLAS %s\n", rank->rig->n_ranks,
		       *b_is_k_by_n, n, has_library ? "too" : "is not here");
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_on_one_gpu)
{
	gpu_op_open(&rig, 1);
	gpu_op_each(&rig, try_all, &_i);
	gpu_op_close(&rig);
}
END_TEST

START_TEST(test_on_all_gpus)
{
	gpu_op_open(&rig, n_all);
	gpu_op_each(&rig, try_all, &_i);
	gpu_op_close(&rig);
}
END_TEST

static Suite *suite(uint32_t n_gpus)
{
	Suite *made = suite_create("gpu gemm");
	TCase *one = tcase_create("one"), *all = tcase_create("all");

	n_all = n_gpus < GPU_OP_RANKS_MAX ? n_gpus : GPU_OP_RANKS_MAX;
	tcase_set_timeout(one, 100);
	tcase_add_loop_test(one, test_on_one_gpu, 0, 2);
	suite_add_tcase(made, one);
	tcase_set_timeout(all, 100);
	if (n_all > 1)
		tcase_add_loop_test(all, test_on_all_gpus, 0, 2);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return gpu_main(1, suite);
}
