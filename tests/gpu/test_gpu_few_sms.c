/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Operators that get fewer SMs than they would take: on streams of green contexts, and beside
 * another operator that waits for peers.
 */

#include <stdio.h>
#include <unistd.h>

#include "gpu_green.h"
#include "gpu_op_rig.h"

#define RUNS         4u
#define CROSSED_RUNS 10u
#define HEAD_START_US 5000u             /* until kernels that were queued hold their SMs */

static struct gpu_op_rig rig;
static uint32_t n_all;

/* Makes a product of which every cluster has tiles that await peers, if all SMs are there: of one
 * piece, so that each of these tiles awaits all of a peer's tiles. */
static struct op_case wide(enum op_sort sort)
{
	struct op_case one = op_case_of(sort, n_all, 2048, 256, 2048);

	one.tuning.mode = CEOV_MODE_OVERLAP;
	one.tuning.n_pieces = 1;
	one.tuning.tile_rows = 128;
	one.tuning.tile_columns = 128;
	return one;
}

static struct op_case directly(enum op_sort sort, enum ceov_op_mode mode, uint32_t n_blocks)
{
	struct op_case one = op_case_of(sort, n_all, 40000, 0, 0);

	one.dtype = CEOV_FP32;
	one.tuning.mode = mode;
	one.tuning.n_reduce_blocks = n_blocks;
	return one;
}

/* --- green contexts ------------------------------------------------------------ */

static void try_case(struct gpu_op_rank *rank, ceov_workspace *workspace,
		     const struct op_case *one)
{
	struct gpu_op_data data;
	ceov_op *op = NULL;
	uint32_t i;

	rank->used_bytes = 0;
	gpu_op_data_make(rank, one, &data);
	ck_assert_int_eq(op_case_create(one, workspace, &op), 0);
	gpu_op_meet(rank);
	for (i = 0; i < RUNS; i++) {
		gpu_op_data_turn(&data, op, GPU_CONSUME, i);
		gpu_op_data_check(&data, GPU_CONSUME, i);
	}
	gpu_op_meet(rank);
	ceov_op_release(op);
}

static void try_cases(struct gpu_op_rank *rank, ceov_workspace *workspace)
{
	struct op_case one;
	uint32_t i;

	for (i = 0; i < OP_SORTS; i++) {
		one = gpu_op_case_plain((enum op_sort)i, n_all);
		try_case(rank, workspace, &one);
	}
	one = wide(OP_GEMM_RS);
	try_case(rank, workspace, &one);
	one = wide(OP_GEMM_AR);
	try_case(rank, workspace, &one);
	one.tuning.n_pieces = 4;                /* own pieces between those of peers */
	one.tuning.tile_order = CEOV_ORDER_TURNS;
	try_case(rank, workspace, &one);
	one = directly(OP_ALL_REDUCE, CEOV_MODE_DIRECT, 32);
	try_case(rank, workspace, &one);
	one = directly(OP_ALL_REDUCE, CEOV_MODE_TWO_SHOT, 32);
	try_case(rank, workspace, &one);
	one = directly(OP_REDUCE_SCATTER, CEOV_MODE_DIRECT, 32);
	try_case(rank, workspace, &one);
	for (i = 0; gpu_op_has_sm_lane(workspace) && i < GPU_OP_LANE_SORTS; i++) {
		one = gpu_op_case_lane(gpu_op_lane_sorts[i], n_all);
		try_case(rank, workspace, &one);
	}
}

struct part {
	struct gpu_op_mode mode;
	uint32_t           n_sms;
};

static void run_in_part(struct gpu_op_rank *rank, const void *arg)
{
	const struct part *part = arg;
	ceov_workspace *workspace = gpu_op_workspace(rank, &part->mode);
	struct gpu_green green;

	gpu_green_begin(&green, &rank->gpu, GPU_CONSUME, part->n_sms, rank->rank);
	try_cases(rank, workspace);
	gpu_idle(&rank->gpu, GPU_CONSUME);
	gpu_op_workspace_release(rank, workspace);
	gpu_green_end(&green);
}

START_TEST(test_streams_of_green_contexts)
{
	static const struct part parts[] = {
		{ { "32", TESTING_PATIENCE / 2, 0, 1 }, 32 },
		{ { "16", TESTING_PATIENCE / 2, 0, 1 }, 16 },
		{ { "16 shared", TESTING_PATIENCE / 2, 1, 1 }, 16 },
	};
	uint32_t i;

	gpu_op_open(&rig, n_all);
	for (i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		gpu_op_each(&rig, run_in_part, &parts[i]);
	gpu_op_close(&rig);
}
END_TEST

/* --- two runs that wait -------------------------------------------------------- */

struct side {
	ceov_workspace    *workspace;
	struct op_case     one;
	struct gpu_op_data data;
	ceov_op           *op;
	enum gpu_stream    stream;
};

static void make_side(struct gpu_op_rank *rank, const struct gpu_op_mode *mode,
		      const struct op_case *one, enum gpu_stream stream, struct side *side)
{
	side->workspace = gpu_op_workspace(rank, mode);
	side->one = *one;
	side->stream = stream;
	side->op = NULL;
	gpu_op_data_make(rank, &side->one, &side->data);
	ck_assert_int_eq(op_case_create(&side->one, side->workspace, &side->op), 0);
}

static void begin(struct gpu_op_rank *rank, struct side *side)
{
	gpu_idle(&rank->gpu, side->stream);
	ck_assert_int_eq(gpu_op_data_run(&side->data, side->op, side->stream), 0);
}

/* Half of the ranks begin with the product, which takes all their SMs, and half with the sum, which
 * takes some SMs of each. Then the products' tiles that await nothing have to be computed on the
 * SMs that are left, so that the first ones end, and the sums find SMs. */
static void run_crossed(struct gpu_op_rank *rank, const void *arg)
{
	const struct gpu_op_mode *modes = arg;
	const struct op_case product = wide(OP_GEMM_RS);
	const struct op_case sum = directly(OP_ALL_REDUCE, CEOV_MODE_TWO_SHOT, 16);
	uint32_t first = rank->rank % 2, i, k;
	struct side sides[2];

	rank->used_bytes = 0;
	make_side(rank, &modes[0], &product, GPU_CONSUME, &sides[0]);
	make_side(rank, &modes[1], &sum, GPU_PRODUCE, &sides[1]);
	for (i = 0; i < CROSSED_RUNS; i++) {
		for (k = 0; k < 2; k++) {
			gpu_op_data_fill(&sides[k].data, sides[k].stream, i);
			gpu_op_data_spoil(&sides[k].data, sides[k].stream);
		}
		gpu_idle(&rank->gpu, GPU_CONSUME);
		gpu_idle(&rank->gpu, GPU_PRODUCE);
		gpu_op_meet(rank);
		begin(rank, &sides[first]);
		usleep(HEAD_START_US);
		begin(rank, &sides[!first]);
		for (k = 0; k < 2; k++)
			gpu_op_data_check(&sides[k].data, sides[k].stream, i);
	}
	gpu_op_meet(rank);
	for (k = 0; k < 2; k++) {
		ceov_op_release(sides[k].op);
		gpu_op_workspace_release(rank, sides[k].workspace);
	}
}

START_TEST(test_two_runs_that_wait)
{
	static const struct gpu_op_mode modes[2] = {
		{ "product", TESTING_PATIENCE / 2, 0, 2 },
		{ "sum", TESTING_PATIENCE / 2, 0, 2 }
	};

	gpu_op_open(&rig, n_all);
	gpu_op_each(&rig, run_crossed, modes);
	gpu_op_close(&rig);
}
END_TEST

static Suite *suite(uint32_t n_ranks)
{
	Suite *made = suite_create("gpu few sms");
	TCase *all = tcase_create("few SMs");

	n_all = n_ranks < GPU_OP_RANKS_MAX ? n_ranks : GPU_OP_RANKS_MAX;
	tcase_set_timeout(all, 150);
	/* needs kernels that run at the same time on one GPU, which a sanitizer may not allow */
	tcase_set_tags(all, "concurrent");
	if (gpu_green_is_there())
		tcase_add_test(all, test_streams_of_green_contexts);
	else
		printf("left out: the driver has no green contexts\n");
	tcase_add_test(all, test_two_runs_that_wait);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return gpu_main_ranks(suite);
}
