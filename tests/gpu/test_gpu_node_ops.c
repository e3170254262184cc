/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Operators of ranks on GPUs that are on several nodes: products, sums, sums by node and moves of
 * random shapes, operands that are overwritten at once, late ranks, tuning, a network that is cut.
 * All nodes are contexts of this process, over a simulated network and over UCX on TCP. With one
 * GPU all ranks share it.
 *
 *   CEOVERLAP_GPU_NODE_SHAPES   shapes for each operator and group (default 2)
 */

#include "gpu_move_data.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "net/ucx.h"
#include "ops/core/op.h"
#include "unit/nodes_rig.h"

#define SHAPES       2u
#define SHAPE_RUNS   3u
#define LATE_ROUNDS  30u
#define REUSE_RUNS   4u
#define REUSE_ROUNDS 3u
#define MOVE_LIMIT   (UINT64_C(8) << 20)        /* largest number of bytes in a block */
#define DEADLINE_NS  (10 * TESTING_SECOND)
#define END_NS       (5 * TESTING_SECOND)

static struct nodes nodes;
static struct gpu_op_rig rig;

/* --- groups ------------------------------------------------------------------------------ */

struct group {
	uint32_t n_nodes;
	uint32_t n_ranks;
	uint32_t node_of[GPU_OP_RANKS_MAX];
	int      is_ucx;
};

static const struct group groups[] = {
	{ 2, 2, { 0, 1 }, 0 }, { 2, 4, { 0, 0, 1, 1 }, 0 }, { 2, 3, { 0, 1, 1 }, 0 },
	{ 3, 4, { 0, 1, 1, 2 }, 0 }, { 2, 4, { 0, 1, 0, 1 }, 1 }, { 2, 2, { 0, 1 }, 1 },
};
#define GROUPS (int)(sizeof(groups) / sizeof(groups[0]))

static void open_group(const struct group *group)
{
	struct ceov_place places[GPU_OP_RANKS_MAX];
	ceov_context *contexts[GPU_OP_RANKS_MAX];
	struct nodes_map map = { .n_nodes = group->n_nodes, .n_ranks = group->n_ranks,
				 .node_of = group->node_of, .places = places };
	uint32_t i;

	for (i = 0; i < group->n_ranks; i++)
		places[i] = (struct ceov_place){ CEOV_PLACE_GPU, gpu_of_rank(i) };
	map.transport = group->is_ucx ? &cei_transport_ucx : NULL;
	nodes_open_map(&nodes, &map);
	for (i = 0; i < group->n_ranks; i++)
		contexts[i] = nodes_context(&nodes, i);
	gpu_op_open_in(&rig, group->n_ranks, contexts);
}

static void close_group(void)
{
	gpu_op_close(&rig);
	nodes_close(&nodes);
}

/* What each rank's thread runs on. */
struct task {
	struct gpu_op_mode  mode;
	const struct group *group;
};

static void run_group(const struct group *group, const char *name,
		      void (*body)(struct gpu_op_rank *rank, const void *arg))
{
	const struct task task = { { name, DEADLINE_NS, 0, 0 }, group };

	open_group(group);
	gpu_op_each(&rig, body, &task);
	close_group();
}

/* --- shapes ------------------------------------------------------------------------------ */

/* Operands and results differ from run to run. */
static void try_case(struct gpu_op_rank *rank, ceov_workspace *workspace,
		     const struct op_case *one, uint64_t number)
{
	uint64_t begin_ns = cei_now_ns();
	struct gpu_op_data data;
	ceov_op *op = NULL;
	uint32_t i;

	rank->used_bytes = 0;
	gpu_op_data_make(rank, one, &data);
	ck_assert_int_eq(op_case_create(one, workspace, &op), 0);
	gpu_op_meet(rank);
	for (i = 0; i < SHAPE_RUNS; i++) {
		gpu_op_data_turn(&data, op, GPU_CONSUME, number + i);
		gpu_op_data_check(&data, GPU_CONSUME, number + i);
	}
	gpu_op_status_check(rank, workspace);
	gpu_op_meet(rank);
	ceov_op_release(op);
	if (rank->rank == 0) {
		printf("%u ranks, sort %d, n %llu, k %llu: %.2f s\n", one->n_ranks,
		       (int)one->sort, (unsigned long long)one->n[0], (unsigned long long)one->k,
		       (double)(cei_now_ns() - begin_ns) / 1e9);
		fflush(stdout);
	}
}

/* About every other sum is by node. */
static void try_cases(struct gpu_op_rank *rank, const void *arg)
{
	const struct task *task = arg;
	uint32_t n = gpu_setting("CEOVERLAP_GPU_NODE_SHAPES", SHAPES), i;
	ceov_workspace *workspace = gpu_op_workspace(rank, &task->mode);
	int has_library = gpu_op_has_library(workspace);
	uint64_t random = testing_seed();
	struct op_case one;

	for (i = 0; i < n * OP_SORTS; i++) {
		one = op_case_large(&random, rank->rig->n_ranks,
					 (enum op_sort)(i % OP_SORTS), has_library);
		if (testing_below(&random, 2) && op_is_sum(one.sort))
			one.node_of = task->group->node_of;
		try_case(rank, workspace, &one, SHAPE_RUNS * i);
	}
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_operators_are_right)
{
	run_group(&groups[_i], "shapes", try_cases);
}
END_TEST

static void try_move(struct gpu_op_rank *rank, ceov_workspace *workspace,
		     const struct move_case *one, uint64_t number)
{
	struct gpu_move_data data;
	ceov_op *op = NULL;
	uint32_t i;

	rank->used_bytes = 0;
	data = gpu_move_data_make(rank, one);
	ck_assert_int_eq(move_create(one, workspace, &op), 0);
	gpu_op_meet(rank);
	for (i = 0; i < SHAPE_RUNS; i++) {
		gpu_move_data_turn(&data, op, GPU_CONSUME, number + i);
		gpu_move_data_check(&data, GPU_CONSUME, number + i);
	}
	gpu_op_status_check(rank, workspace);
	gpu_op_meet(rank);
	ceov_op_release(op);
}

static void try_moves(struct gpu_op_rank *rank, const void *arg)
{
	const struct task *task = arg;
	uint32_t n = gpu_setting("CEOVERLAP_GPU_NODE_SHAPES", SHAPES), i;
	ceov_workspace *workspace = gpu_op_workspace(rank, &task->mode);
	uint64_t random = testing_seed();
	struct move_case one;

	for (i = 0; i < 2 * n; i++) {
		one = move_case_random(&random, rank->rig->n_ranks, MOVE_LIMIT);
		try_move(rank, workspace, &one, SHAPE_RUNS * i);
	}
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_moves_are_right)
{
	run_group(&groups[_i], "moves", try_moves);
}
END_TEST

/* --- order of runs ------------------------------------------------------------------------- */

/* All ranks draw the same random numbers: which rank is late, and by how much. Most runs are queued
 * behind others. */
static void run_late(struct gpu_op_rank *rank, const void *arg)
{
	const struct task *task = arg;
	ceov_workspace *workspace = gpu_op_workspace(rank, &task->mode);
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
	run_group(&groups[_i], "late", run_late);
}
END_TEST

/* The operands are overwritten right behind each run's end on the stream, while a slow network may
 * still be sending: the run must not have ended then. */
static void reuse(struct gpu_op_rank *rank, ceov_workspace *workspace, const struct op_case *one,
		  uint64_t number)
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
	const struct task *task = arg;
	ceov_workspace *workspace = gpu_op_workspace(rank, &task->mode);
	struct op_case one;
	uint32_t i;

	for (i = 0; i < OP_SORTS; i++) {
		one = gpu_op_case_plain((enum op_sort)i, rank->rig->n_ranks);
		one.rows[0] *= 8;       /* rank 0 sends long after all else has ended */
		reuse(rank, workspace, &one, 1000 * i);
	}
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_operands_are_free_behind_the_run)
{
	run_group(&groups[_i], "reuse", reuse_each);
}
END_TEST

/* --- tuning, refusals, losses ---------------------------------------------------------------- */

static void tune(struct gpu_op_rank *rank, const void *arg)
{
	const struct task *task = arg;
	ceov_workspace *workspace = gpu_op_workspace(rank, &task->mode);
	struct op_case one = gpu_op_case_plain(OP_AG_GEMM, rank->rig->n_ranks);
	struct gpu_op_data data;
	ceov_op *op = NULL;

	one.tuning.mode = CEOV_MODE_CHOOSE;
	one.tuning.n_pieces = 0;
	rank->used_bytes = 0;
	gpu_op_data_make(rank, &one, &data);
	ck_assert_int_eq(op_case_create(&one, workspace, &op), 0);
	gpu_op_meet(rank);
	ck_assert_int_eq(ceov_op_tune(op, rank->gpu.streams[GPU_CONSUME]), 0);
	gpu_op_data_turn(&data, op, GPU_CONSUME, 1);
	gpu_op_data_check(&data, GPU_CONSUME, 1);
	gpu_op_meet(rank);
	ceov_op_release(op);
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_tuning)
{
	char folder[] = "/tmp/ceoverlap-tunings-XXXXXX", command[64];

	ck_assert_ptr_nonnull(mkdtemp(folder));
	ck_assert_int_eq(setenv("XDG_CACHE_HOME", folder, 1), 0);
	run_group(&groups[0], "tune", tune);
	snprintf(command, sizeof(command), "rm -r %s", folder);
	ck_assert_int_eq(system(command), 0);
}
END_TEST

START_TEST(test_captured_runs_are_refused)
{
	struct ceov_workspace_config config = { .struct_bytes = sizeof(config) };
	ceov_workspace *workspace = NULL;

	open_group(&groups[0]);
	config.name = "captured";
	config.scratch_bytes = 4096;
	config.is_capturable = 1;
	ck_assert_int_eq(ceov_workspace_create(nodes_context(&nodes, 0), &config, &workspace),
			 CEOV_ERR_INVALID);
	ck_assert_ptr_null(workspace);
	close_group();
}
END_TEST

/* Runs until the network is cut: then the runs of all ranks end with an error, and the streams are
 * free again. */
static void run_cut(struct gpu_op_rank *rank, const void *arg)
{
	const struct task *task = arg;
	ceov_workspace *workspace = gpu_op_workspace(rank, &task->mode);
	uint64_t deadline_ns = cei_deadline(NODES_TIMEOUT_NS + END_NS);
	struct gpu_op_plain made;
	uint32_t i;
	int r = 0;

	gpu_op_plain_make(rank, workspace, &made);
	for (i = 0; !r; i++) {
		ck_assert_uint_lt(cei_now_ns(), deadline_ns);
		gpu_op_data_fill(&made.data[i % OP_SORTS], GPU_CONSUME, i);
		r = gpu_op_data_run(&made.data[i % OP_SORTS], made.ops[i % OP_SORTS],
				    GPU_CONSUME);
		if (!r)
			gpu_idle(&rank->gpu, GPU_CONSUME);
		if (!r && !rank->rank && i == OP_SORTS)
			nodes_cut(&nodes, 0, 1);
	}
	ck_assert_msg(r == CEOV_ERR_PEER_LOST || r == CEOV_ERR_UNCERTAIN, "rank %u: %s",
		      rank->rank, ceov_strerror(r));
	gpu_op_meet(rank);
	for (i = 0; i < OP_SORTS; i++)
		ceov_op_release(made.ops[i]);
	(void)ceov_workspace_release(workspace); /* what a lost peer holds goes with the context */
	gpu_op_meet(rank);
}

START_TEST(test_a_cut_network_ends_runs)
{
	run_group(&groups[0], "cut", run_cut);
}
END_TEST

static Suite *suite(uint32_t n)
{
	Suite *made = suite_create("gpu node operators");
	TCase *all = tcase_create("operators"), *others = tcase_create("others");

	(void)n;                        /* each group has its own number of ranks */
	tcase_set_timeout(all, 120);
	tcase_add_loop_test(all, test_operators_are_right, 0, GROUPS);
	tcase_add_loop_test(all, test_moves_are_right, 0, GROUPS);
	tcase_add_loop_test(all, test_a_late_rank, 4, GROUPS);
	tcase_add_loop_test(all, test_operands_are_free_behind_the_run, 4, GROUPS);
	suite_add_tcase(made, all);
	tcase_set_timeout(others, 60);
	tcase_add_test(others, test_tuning);
	tcase_add_test(others, test_captured_runs_are_refused);
	tcase_add_test(others, test_a_cut_network_ends_runs);
	suite_add_tcase(made, others);
	return made;
}

int main(void)
{
	(void)setenv("CEOVERLAP_TRANSPORTS", "tcp", 0);
	(void)setenv("CEOVERLAP_TEST_RANKS", "4", 0);   /* the most that a group here has */
	return gpu_main_ranks(suite);
}
