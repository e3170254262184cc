/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Products with B as n x k and as k x n, computed by our own kernel in every tile shape and by
 * cuBLAS. Sizes do and do not fill tiles, the boxes in which tiles are loaded, and steps of k.
 * Products run on one GPU, where they wait for nothing, and on all. Also tests gathered rows that
 * the kernel stores while it multiplies, or that are copied. Random shapes are in test_gpu_ops.c.
 */

#include "gpu_op_rig.h"

#include <stdio.h>

#include "ops/core/workspace.h"

#define TURNS 2u

struct size {
	uint64_t n;
	uint64_t k;
};

/* The kernel loads columns in boxes of 64 and has tiles of 128, 192 and 256 columns; k advances in
 * steps of 16 and 64. */
static const struct size sizes[] = {
	{ 256, 256 }, { 768, 64 }, { 8, 8 }, { 72, 200 }, { 136, 24 }, { 200, 328 },
	{ 264, 72 }, { 392, 1000 }, { 1032, 136 },
};

static const uint32_t tiles[][2] = {
	{ 128, 256 }, { 128, 192 }, { 128, 128 },
	{ OP_WIDE_ROWS, OP_WIDE_COLUMNS },      /* the last size: for cuBLAS */
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
	one.tuning.mode = i % 5 ? CEOV_MODE_OVERLAP : CEOV_MODE_SEQUENCE;
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

/* --- gathered rows --------------------------------------------------------- */

struct keeping {
	uint64_t rows[GPU_OP_RANKS_MAX];
	uint32_t n_pieces;
	int      is_kept;               /* whether our kernel stores gathered rows: it does if the
					 * pieces' rows make whole halves of tiles, which holds with
					 * fewer ranks, too */
};

static const struct keeping keepings[] = {
	{ { 256, 128, 384, 128 }, 1, 1 },
	{ { 64, 192, 320, 64 }, 1, 1 },
	{ { 448, 0, 192, 384 }, 3, 1 },
	{ { 1024, 640, 0, 64 }, 1, 1 },
	{ { 200, 320, 64, 0 }, 1, 0 },
	{ { 1, 130, 256, 0 }, 2, 0 },
	{ { 300, 64, 8, 511 }, 4, 0 },
};

/* Values of k that end within a box, at the end of a box, and within the first box. */
static const uint64_t kept_k[] = { 1000, 640, 328, 64, 8 };

#define N_KEEPINGS (uint32_t)(sizeof(keepings) / sizeof(keepings[0]))
#define N_KEPT_K   (uint32_t)(sizeof(kept_k) / sizeof(kept_k[0]))

static uint32_t n_copies[GPU_OP_RANKS_MAX];     /* copies of gathered rows; each rank's thread
						 * counts its own */

static int count_copy(struct cei_executor *executor, void *stream, void *target,
		      const void *source, uint64_t n_bytes)
{
	n_copies[executor->rank]++;
	return cei_executor_cuda.copy(executor, stream, target, source, n_bytes);
}

static struct op_case kept_case(uint32_t i, int b_is_k_by_n, uint32_t n_ranks)
{
	const struct keeping *keeping = &keepings[i % N_KEEPINGS];
	const uint32_t *tile = tiles[i / N_KEEPINGS / N_KEPT_K];
	struct op_case one = op_case_of(OP_AG_GEMM, n_ranks, 0,
					kept_k[i / N_KEEPINGS % N_KEPT_K], 520);
	uint32_t r;

	for (r = 0; r < n_ranks; r++)
		one.rows[r] = keeping->rows[r];
	one.n_gemms = 1 + i % 3;
	one.n[1] = 72;
	one.n[2] = 264;
	one.dtype = i % 2 ? CEOV_BF16 : CEOV_FP16;
	one.b_is_k_by_n = b_is_k_by_n;
	one.wants_gathered = 1;
	one.tuning.mode = keeping->n_pieces > 1 || i % 4 ? CEOV_MODE_OVERLAP
							 : CEOV_MODE_SEQUENCE;
	one.tuning.n_pieces = keeping->n_pieces;
	one.tuning.tile_rows = tile[0];
	one.tuning.tile_columns = tile[1];
	return one;
}

static void keep_all(struct gpu_op_rank *rank, const void *arg)
{
	const int *b_is_k_by_n = arg;
	const struct gpu_op_mode mode = { "kept", 0, 0, 0 };
	ceov_workspace *workspace = gpu_op_workspace(rank, &mode);
	uint32_t n_tiles = gpu_op_has_library(workspace) ? N_TILES : N_TILES - 1, i, n;
	struct cei_executor_ops ops = cei_executor_cuda;
	struct op_case one;
	int is_kept;

	ops.copy = count_copy;
	workspace->executor.ops = &ops;
	n = n_tiles * N_KEEPINGS * N_KEPT_K;
	for (i = 0; i < n; i++) {
		one = kept_case(i, *b_is_k_by_n, rank->rig->n_ranks);
		is_kept = keepings[i % N_KEEPINGS].is_kept &&
			one.tuning.tile_rows != OP_WIDE_ROWS;
		n_copies[rank->rank] = 0;
		try_one(rank, workspace, &one, TURNS * i);
		ck_assert_msg((n_copies[rank->rank] == 0) == is_kept,
			      "rank %u: case %u: %u copies, kept by the kernel: %d",
			      rank->rank, i, n_copies[rank->rank], is_kept);
	}
	workspace->executor.ops = &cei_executor_cuda;
	if (!rank->rank)
		printf("%u ranks, B as k x n %d: gathered rows of %u shapes\n",
		       rank->rig->n_ranks, *b_is_k_by_n, n);
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_gathered_rows)
{
	gpu_op_open(&rig, n_all);
	gpu_op_each(&rig, keep_all, &_i);
	gpu_op_close(&rig);
}
END_TEST

static Suite *suite(uint32_t n_ranks)
{
	Suite *made = suite_create("gpu gemm");
	TCase *one = tcase_create("one"), *all = tcase_create("all");
	TCase *kept = tcase_create("kept");

	n_all = n_ranks < GPU_OP_RANKS_MAX ? n_ranks : GPU_OP_RANKS_MAX;
	tcase_set_timeout(one, 100);
	tcase_add_loop_test(one, test_on_one_gpu, 0, 2);
	suite_add_tcase(made, one);
	tcase_set_timeout(all, 100);
	if (n_all > 1)
		tcase_add_loop_test(all, test_on_all_gpus, 0, 2);
	suite_add_tcase(made, all);
	tcase_set_timeout(kept, 100);
	tcase_add_loop_test(kept, test_gathered_rows, 0, 2);
	suite_add_tcase(made, kept);
	return made;
}

int main(void)
{
	return gpu_main_ranks(suite);
}
