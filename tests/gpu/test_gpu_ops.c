/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Operators on GPUs: random shapes and tunings, late ranks, operands that are overwritten
 * at once, two workspaces, processes. Graphs and failures: test_gpu_op_graphs.c.
 *
 *   CEOVERLAP_GPU_OP_SHAPES   shapes for each operator and kind of workspace (default 40)
 */

#include "gpu_op_rig.h"
#include "gpu_process.h"

#include <stdio.h>

#include "base/clock.h"

#define SHAPES        40u
#define SHAPE_RUNS    5u
#define LATE_ROUNDS   50u
#define REUSE_RUNS    6u
#define REUSE_ROUNDS  4u
#define PAIR_ROUNDS   60u
#define LOPSIDED_MODES 3u
#define PROCESS_SHAPES 4u
#define HELD_RESULT   4u                /* result slot of the kernel that holds SMs */
#define HELD_SMS      48u
#define HELD_MORE     8u                /* SMs held in addition, times the rank */
#define HELD_THREADS  1024u
#define HELD_RUNS     4u
#define HELD_NS       (60 * TESTING_SECOND)

static struct gpu_op_rig rig;
static uint32_t n_all;                  /* number of ranks if a case does not give one */

/* --- shapes ---------------------------------------------------------------- */

/* Runs one shape. Operands differ from run to run; the last two runs use the operands of the first
 * one again and must give the same bits. */
static void try_shape(struct gpu_op_rank *rank, ceov_workspace *workspace,
		      const struct op_case *one, uint64_t number)
{
	static const uint32_t operands[SHAPE_RUNS] = { 0, 1, 2, 0, 0 };
	struct gpu_op_data data, kept;
	ceov_op *op = NULL;
	uint32_t i;

	rank->used_bytes = 0;
	gpu_op_data_make(rank, one, &data);
	gpu_op_data_make(rank, one, &kept);
	ck_assert_int_eq(op_case_create(one, workspace, &op), 0);
	gpu_op_meet(rank);
	for (i = 0; i < SHAPE_RUNS; i++) {
		gpu_op_data_turn(&data, op, GPU_CONSUME, number + operands[i]);
		if (i < 3)
			gpu_op_data_check(&data, GPU_CONSUME, number + operands[i]);
		else
			gpu_op_data_same(&data, GPU_CONSUME, &kept);
		if (!i)
			gpu_op_data_keep(&data, GPU_CONSUME, &kept);
	}
	ck_assert_int_eq(ceov_workspace_status(workspace), 0);
	gpu_op_meet(rank);
	ceov_op_release(op);
}

/* Rounds numbers of rows to multiples, which most real shapes have and which gathered rows need to
 * be stored during the multiplication (gemm.h). */
static void round_rows(struct op_case *one)
{
	uint32_t i;

	for (i = 0; i < one->n_ranks; i++)
		one->rows[i] = (one->rows[i] + 63) / 64 * 64;
}

/* Makes a GEMM + all-reduce one of few rows, which SMs sum in one step or in two. */
static void make_direct(struct op_case *one, uint64_t *random)
{
	uint32_t i;

	for (i = 0; i < one->n_ranks; i++)
		one->rows[i] = testing_below(random, 96 / one->n_ranks);
	one->rows[0]++;
	memset(&one->tuning, 0, sizeof(one->tuning));
	one->tuning.struct_bytes = sizeof(one->tuning);
	one->tuning.mode = testing_below(random, 2) ? CEOV_MODE_DIRECT : CEOV_MODE_TWO_SHOT;
	one->tuning.n_reduce_blocks = (uint32_t)testing_below(random, 9);
}

static int can_have_sm_lane(enum op_sort sort)
{
	uint32_t i, n = 0;

	for (i = 0; i < GPU_OP_LANE_SORTS; i++)
		n += gpu_op_lane_sorts[i] == sort;
	return n != 0;
}

/* Lets SMs make the transfers, which they do only where all ranks have rows. */
static void make_sm_lane(struct op_case *one, uint64_t *random)
{
	uint32_t n_pieces = one->tuning.n_pieces, i;
	enum ceov_op_cut cut = one->tuning.cut;

	for (i = 0; i < one->n_ranks; i++)
		one->rows[i] = one->sort == OP_GEMM_AR ? 300 + testing_below(random, 200)
			: one->rows[i] + !one->rows[i];
	if (one->sort == OP_GEMM_AR) {  /* more than one kernel would sum, divided by rows */
		one->by_columns = 0;
		one->n[0] = 1024 + 8 * testing_below(random, 64);
	}
	memset(&one->tuning, 0, sizeof(one->tuning));
	one->tuning.struct_bytes = sizeof(one->tuning);
	one->tuning.mode = CEOV_MODE_DIRECT;
	one->tuning.n_pieces = n_pieces;
	one->tuning.cut = cut;
	one->tuning.n_reduce_blocks = (uint32_t)testing_below(random, 18);
}

/* Makes a product and its transfers one after the other, of which at most 4 MiB go from rank to
 * rank. */
static void make_whole(struct op_case *one, uint64_t *random)
{
	struct ceov_op_tuning drawn = one->tuning;
	uint32_t i;

	for (i = 0; !op_is_a2a(one->sort) && i < one->n_ranks; i++)
		one->rows[i] = one->rows[i] % 1024 + !i;
	memset(&one->tuning, 0, sizeof(one->tuning));
	one->tuning.struct_bytes = sizeof(one->tuning);
	one->tuning.mode = CEOV_MODE_TWO_SHOT;
	one->tuning.tile_rows = drawn.tile_rows;
	one->tuning.tile_columns = drawn.tile_columns;
	one->tuning.tile_order = drawn.tile_order;
	one->tuning.band_rows = drawn.band_rows;
	one->tuning.n_reduce_blocks = (uint32_t)testing_below(random, 18);
}

struct shapes {
	struct gpu_op_mode mode;
	uint32_t           n;           /* number of shapes for each operator */
};

static void try_shapes(struct gpu_op_rank *rank, const void *arg)
{
	const struct shapes *shapes = arg;
	ceov_workspace *workspace = gpu_op_workspace(rank, &shapes->mode);
	int has_library = gpu_op_has_library(workspace);
	uint64_t random = testing_seed();
	struct op_case one;
	uint32_t i;

	for (i = 0; i < shapes->n * OP_SORTS; i++) {
		one = op_case_large(&random, rank->rig->n_ranks,
					 (enum op_sort)(i % OP_SORTS), has_library);
		if (one.k && i / OP_SORTS % 2)
			round_rows(&one);
		if (one.sort == OP_GEMM_AR && i / OP_SORTS % 4 == 1)
			make_direct(&one, &random);
		else if (op_case_can_be_whole(&one) && i / OP_SORTS % 4 > 1)
			make_whole(&one, &random);
		else if (can_have_sm_lane(one.sort) && i / OP_SORTS % 2 &&
			 gpu_op_has_sm_lane(workspace))
			make_sm_lane(&one, &random);
		try_shape(rank, workspace, &one, 4 * i);
	}
	if (!rank->rank)
		printf("%u ranks: %u shapes of each operator, cuBLAS %s\n",
		       rank->rig->n_ranks, shapes->n,
		       has_library ? "too" : "is not here");
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_shapes_are_right_and_bits_repeat)
{
	const struct shapes shapes = {
		{ "shapes", 0, 0, 0 }, gpu_setting("CEOVERLAP_GPU_OP_SHAPES", SHAPES)
	};

	gpu_op_open(&rig, n_all);
	gpu_op_each(&rig, try_shapes, &shapes);
	gpu_op_close(&rig);
}
END_TEST

/* Tests fewer shapes. */
START_TEST(test_shapes_on_two_gpus)
{
	struct shapes shapes = {
		{ "shapes", 0, 0, 0 }, gpu_setting("CEOVERLAP_GPU_OP_SHAPES", SHAPES) / 4 + 1
	};

	gpu_op_open(&rig, 2);
	gpu_op_each(&rig, try_shapes, &shapes);
	gpu_op_close(&rig);
}
END_TEST

/* --- late ranks ------------------------------------------------------------ */

/* All ranks draw the same random numbers: which rank is late, and by how much. */
static void run_late(struct gpu_op_rank *rank, const void *arg)
{
	ceov_workspace *workspace = gpu_op_workspace(rank, arg);
	uint64_t random = testing_seed(), victim, how;
	struct gpu_op_plain made;
	uint32_t i, which;

	gpu_op_plain_make(rank, workspace, &made);
	for (i = 0; i < LATE_ROUNDS; i++) {
		which = (uint32_t)testing_below(&random, OP_SORTS);
		victim = testing_below(&random, rank->rig->n_ranks);
		how = testing_random(&random);
		if (victim == rank->rank)
			gpu_op_be_late(rank, GPU_CONSUME, &how);
		gpu_op_data_turn(&made.data[which], made.ops[which], GPU_CONSUME, i);
		if (i % 3 == 0 || i + 1 == LATE_ROUNDS)
			gpu_op_data_check(&made.data[which], GPU_CONSUME, i);
	}
	gpu_op_plain_release(rank, &made);
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_a_late_rank)
{
	struct gpu_op_mode mode = { "late", 0, 0, 0 };

	gpu_op_open(&rig, n_all);
	gpu_op_each(&rig, run_late, &mode);
	gpu_op_close(&rig);
}
END_TEST

/* --- operands are free when the run has ended ------------------------------ */

/* Makes a case in which one rank's operands are large and its peers' small: the rank still sends
 * long after its own kernel could have ended. */
static struct op_case lopsided(uint32_t i, uint32_t n_ranks)
{
	static const enum ceov_op_mode modes[LOPSIDED_MODES] = {
		CEOV_MODE_OVERLAP, CEOV_MODE_SEQUENCE, CEOV_MODE_DIRECT
	};
	enum op_sort sort = (enum op_sort)(i % OP_SORTS);
	struct op_case one = gpu_op_case_plain(sort, n_ranks);
	uint32_t r;

	one.tuning.mode = modes[i / OP_SORTS];
	one.tuning.n_pieces = one.tuning.mode == CEOV_MODE_SEQUENCE ? 1 : 4;
	for (r = 0; r < n_ranks; r++)
		one.rows[r] = 64;
	if (sort == OP_AG_GEMM) {
		one.rows[i % n_ranks] = 3000;
		one.k = 2048;
		one.n[0] = 64;
	} else if (!op_is_sum(sort)) {
		one.rows[i % n_ranks] = 1500;
		if (sort == OP_A2A_GEMM)
			one.k = 2048;
	} else {
		one.rows[i % n_ranks] = UINT64_C(2) << 20;
	}
	return one;
}

/* Queues runs without waiting, so that filling the next operands overwrites the previous ones. Each
 * run has its own results, which are checked at the end. */
static void reuse(struct gpu_op_rank *rank, ceov_workspace *workspace,
		  const struct op_case *one, uint64_t number)
{
	struct gpu_op_data data[REUSE_RUNS];
	ceov_op *op = NULL;
	uint32_t round, i, k;

	rank->used_bytes = 0;
	for (i = 0; i < REUSE_RUNS; i++) {
		gpu_op_data_make(rank, one, &data[i]);
		data[i].a = data[0].a;
		for (k = 0; k < one->n_gemms; k++)
			data[i].b[k] = data[0].b[k];
	}
	ck_assert_int_eq(op_case_create(one, workspace, &op), 0);
	gpu_op_meet(rank);
	for (round = 0; round < REUSE_ROUNDS; round++, number += REUSE_RUNS) {
		for (i = 0; i < REUSE_RUNS; i++)
			gpu_op_data_turn(&data[i], op, GPU_CONSUME, number + i);
		gpu_op_data_fill(&data[0], GPU_CONSUME, number + REUSE_RUNS);
		for (i = 0; i < REUSE_RUNS; i++)
			gpu_op_data_check(&data[i], GPU_CONSUME, number + i);
	}
	gpu_op_meet(rank);
	ceov_op_release(op);
}

static void reuse_each(struct gpu_op_rank *rank, const void *arg)
{
	ceov_workspace *workspace = gpu_op_workspace(rank, arg);
	struct op_case one;
	uint32_t i;

	for (i = 0; i < LOPSIDED_MODES * OP_SORTS; i++) {
		one = lopsided(i, rank->rig->n_ranks);
		if (one.tuning.mode == CEOV_MODE_DIRECT &&
		    ((one.sort != OP_AG_GEMM && one.sort != OP_GEMM_RS) ||
		     !gpu_op_has_sm_lane(workspace)))
			continue;
		reuse(rank, workspace, &one, 1000 * i);
	}
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_operands_are_free_behind_the_run)
{
	struct gpu_op_mode mode = { "reuse", 0, 0, 0 };

	gpu_op_open(&rig, n_all);
	gpu_op_each(&rig, reuse_each, &mode);
	gpu_op_close(&rig);
}
END_TEST

/* --- two workspaces -------------------------------------------------------- */

/* Makes a case with so few tiles and blocks that kernels of two operators fit on a GPU together, in
 * any order: see FLIGHT in ops.h. */
static struct op_case small(uint32_t which, uint32_t i, uint32_t n_ranks)
{
	enum op_sort sort = (enum op_sort)((2 * which + i) % OP_SORTS);
	struct op_case one = gpu_op_case_plain(sort, n_ranks);
	uint32_t r;

	for (r = 0; one.k && r < n_ranks; r++)
		one.rows[r] = 100 + 8 * r;
	if (one.k) {
		one.n[0] = 256;
		one.tuning.n_pieces = 2;
		one.tuning.tile_rows = 128;
		one.tuning.tile_columns = 256;
	}
	one.tuning.n_reduce_blocks = 16;
	return one;
}

struct lane {                           /* a workspace and its operators, whose runs have a
					 * stream of their own */
	ceov_workspace    *workspace;
	enum gpu_stream    stream;
	struct op_case     cases[2];
	struct gpu_op_data data[2];
	ceov_op           *ops[2];
};

static void make_lane(struct gpu_op_rank *rank, uint32_t which, struct lane *lane)
{
	uint32_t i;

	for (i = 0; i < 2; i++) {
		lane->cases[i] = small(which, i, rank->rig->n_ranks);
		gpu_op_data_make(rank, &lane->cases[i], &lane->data[i]);
		ck_assert_int_eq(op_case_create(&lane->cases[i], lane->workspace,
						&lane->ops[i]), 0);
	}
}

/* Queues runs of both workspaces, in a different order on each rank. */
static void alternate(struct gpu_op_rank *rank, struct lane *lanes, uint64_t *random)
{
	uint32_t round, turn, which, i;

	for (round = 0; round < PAIR_ROUNDS; round++) {
		i = round / 2 % 2;
		which = (uint32_t)testing_below(random, 2);
		for (turn = 0; turn < 2; turn++, which = 1 - which)
			gpu_op_data_turn(&lanes[which].data[i], lanes[which].ops[i],
					 lanes[which].stream, round + 1000 * which);
		for (which = 0; round % 5 == 4 && which < 2; which++)
			gpu_op_data_check(&lanes[which].data[i], lanes[which].stream,
					  round + 1000 * which);
	}
	gpu_idle(&rank->gpu, lanes[0].stream);
	gpu_idle(&rank->gpu, lanes[1].stream);
}

static void run_two(struct gpu_op_rank *rank, const void *arg)
{
	const struct gpu_op_mode *modes = arg;
	struct lane lanes[2] = { { .stream = GPU_CONSUME }, { .stream = GPU_PRODUCE } };
	uint64_t random = testing_seed() + rank->rank;
	uint32_t which, i;

	for (which = 0; which < 2; which++)
		lanes[which].workspace = gpu_op_workspace(rank, &modes[which]);
	rank->used_bytes = 0;
	for (which = 0; which < 2; which++)
		make_lane(rank, which, &lanes[which]);
	gpu_op_meet(rank);
	alternate(rank, lanes, &random);
	gpu_op_meet(rank);
	for (which = 0; which < 2; which++) {
		for (i = 0; i < 2; i++)
			ceov_op_release(lanes[which].ops[i]);
		gpu_op_workspace_release(rank, lanes[which].workspace);
	}
}

START_TEST(test_two_workspaces_on_two_streams)
{
	static const struct gpu_op_mode modes[2] = {
		{ "one", 0, 0, 2 }, { "two", 0, 0, 2 }
	};

	gpu_op_open(&rig, n_all);
	gpu_op_each(&rig, run_two, modes);
	gpu_op_close(&rig);
}
END_TEST

/* --- SMs held by another kernel -------------------------------------------- */

/* Holds SMs: starts blocks so large that the GEMM's blocks do not fit beside them, one per SM on an
 * idle GPU. Returns when they run. */
static void hold_sms(struct gpu_op_rank *rank, uint32_t n_blocks)
{
	struct gpu_result *words = &rank->gpu.results[HELD_RESULT];
	uint64_t deadline = cei_deadline(TESTING_PATIENCE), timeout_ns = HELD_NS;
	const uint32_t *stop_word = &words->pad;
	uint32_t *n_started = &words->status;
	void *arguments[] = { &stop_word, &timeout_ns, &n_started };
	const struct cei_module_launch launch = {
		.name = "cei_kernel_spin",
		.n_blocks = n_blocks,
		.n_threads = HELD_THREADS,
		.arguments = arguments,
	};

	gpu_reset(&rank->gpu, HELD_RESULT);
	gpu_launch_as(&rank->gpu, GPU_WAIT, &launch);
	while (gpu_result(&rank->gpu, HELD_RESULT).status < n_blocks)
		ck_assert_uint_lt(cei_now_ns(), deadline);
}

static void let_go(struct gpu_op_rank *rank)
{
	const uint32_t stop = 1;

	ck_assert_msg(!gpu_is_idle(&rank->gpu, GPU_WAIT), "the SMs were not held so long");
	gpu_move(&rank->gpu, &rank->gpu.results[HELD_RESULT].pad, &stop, sizeof(stop));
	gpu_idle(&rank->gpu, GPU_WAIT);
}

/* Makes a case with more pairs of tiles than clusters, so that a pair left to a cluster without an
 * SM would never be computed. */
static struct op_case wide(uint32_t n_ranks)
{
	struct op_case one = op_case_of(OP_GEMM_RS, n_ranks, 1024, 512, 2048);

	one.tuning.mode = CEOV_MODE_OVERLAP;
	one.tuning.n_pieces = 4;
	one.tuning.tile_rows = 128;
	one.tuning.tile_columns = 128;
	return one;
}

/* Holds some SMs of every rank, in different numbers. The free SMs must compute the tiles that
 * peers wait for, although they have tiles of their own that wait for peers. */
static void run_beside_others(struct gpu_op_rank *rank, const void *arg)
{
	ceov_workspace *workspace = gpu_op_workspace(rank, arg);
	struct op_case one = wide(rank->rig->n_ranks);
	struct gpu_op_data data;
	ceov_op *op = NULL;
	uint32_t i;

	rank->used_bytes = 0;
	gpu_op_data_make(rank, &one, &data);
	ck_assert_int_eq(op_case_create(&one, workspace, &op), 0);
	gpu_op_meet(rank);
	hold_sms(rank, HELD_SMS + HELD_MORE * rank->rank);
	gpu_op_meet(rank);
	for (i = 0; i < HELD_RUNS; i++) {
		gpu_op_data_turn(&data, op, GPU_CONSUME, i);
		gpu_op_data_check(&data, GPU_CONSUME, i);
	}
	gpu_op_meet(rank);
	let_go(rank);
	gpu_op_data_turn(&data, op, GPU_CONSUME, i);    /* once more with all SMs free */
	gpu_op_data_check(&data, GPU_CONSUME, i);
	ck_assert_int_eq(ceov_workspace_status(workspace), 0);
	gpu_op_meet(rank);
	ceov_op_release(op);
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_others_hold_sms)
{
	struct gpu_op_mode mode = { "held", 0, 0, 0 };

	gpu_op_open(&rig, n_all);
	for (; mode.shares_sms < 2; mode.shares_sms++)
		gpu_op_each(&rig, run_beside_others, &mode);
	gpu_op_close(&rig);
}
END_TEST

/* --- processes ------------------------------------------------------------- */

static void be_process(uint32_t rank)
{
	struct shapes shapes = { { "shapes", 0, 0, 0 }, PROCESS_SHAPES };
	char path[200];

	testing_path("group", path, sizeof(path));
	gpu_op_open_one(&rig, rank, n_all, path);
	gpu_op_each(&rig, try_shapes, &shapes);
	gpu_op_close(&rig);
}

START_TEST(test_a_process_for_each_rank)
{
	gpu_process_each(n_all, be_process);
}
END_TEST

static Suite *suite(uint32_t n_ranks)
{
	Suite *made = suite_create("gpu ops");
	TCase *shapes = tcase_create("shapes");        /* alone with CK_RUN_CASE, for many seeds */
	TCase *all = tcase_create("ops");
	TCase *processes = tcase_create("ops in processes");
	TCase *beside = tcase_create("ops beside others");

	n_all = n_ranks < GPU_OP_RANKS_MAX ? n_ranks : GPU_OP_RANKS_MAX;
	tcase_set_timeout(shapes, 100);
	tcase_add_test(shapes, test_shapes_are_right_and_bits_repeat);
	if (n_all > 2)
		tcase_add_test(shapes, test_shapes_on_two_gpus);
	suite_add_tcase(made, shapes);
	tcase_set_timeout(all, 100);
	tcase_add_test(all, test_a_late_rank);
	tcase_add_test(all, test_operands_are_free_behind_the_run);
	suite_add_tcase(made, all);
	tcase_set_timeout(processes, 100);
	tcase_add_test(processes, test_a_process_for_each_rank);
	suite_add_tcase(made, processes);
	tcase_set_timeout(beside, 100);
	/* needs kernels that run at the same time on one GPU, which a sanitizer may not allow */
	tcase_set_tags(beside, "concurrent");
	tcase_add_test(beside, test_two_workspaces_on_two_streams);
	if (gpu_n_sharing(n_all) > 1)
		printf("left out: others hold SMs, of which ranks that share a GPU need all\n");
	else
		tcase_add_test(beside, test_others_hold_sms);
	suite_add_tcase(made, beside);
	return made;
}

int main(void)
{
	return gpu_main_ranks(suite);
}
