/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Operators in CUDA graphs, replayed between runs outside of graphs, with late ranks; and
 * how runs of both kinds of workspace end when a rank is missing or a thread aborts.
 */

#include "gpu_graph.h"
#include "gpu_op_rig.h"

#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "ops/core/workspace.h"

#define REPLAYS     100u
#define RUNS_MAX    4u
#define DEADLINE_NS TESTING_SECOND
#define END_NS      (2 * TESTING_SECOND)        /* after an abort or the deadline, streams must be
						 * idle within this time */
#define ABORT_US    50000
#define GOOD_RUNS   5u                     /* enough runs that the next one is a cached graph if the
					    * calling thread queues runs */

static struct gpu_op_rig rig;
static uint32_t n_all;

/* --- graphs ---------------------------------------------------------------- */

struct sequence {                       /* the runs of one graph, in order */
	uint32_t     n;
	enum op_sort sorts[RUNS_MAX];
	int          how;               /* 1: products are computed by cuBLAS; 2: those that can be
					 * are made one after the other with their transfers */
	int          is_branched;       /* every second run is in another branch of the graph, and
					 * only the library orders the branches */
};

static const struct sequence sequences[] = {
	{ 1, { OP_AG_GEMM }, 0, 0 },
	{ 1, { OP_GEMM_RS }, 0, 0 },
	{ 1, { OP_ALL_REDUCE }, 0, 0 },
	{ 1, { OP_GEMM_A2A }, 0, 0 },
	{ 1, { OP_GEMM_AR }, 0, 0 },
	{ 2, { OP_GEMM_AR, OP_GEMM_RS }, 0, 0 },
	{ 2, { OP_GEMM_A2A, OP_A2A_GEMM }, 0, 0 },
	{ 2, { OP_AG_GEMM, OP_GEMM_RS }, 0, 0 },
	{ 3, { OP_AG_GEMM, OP_GEMM_RS, OP_ALL_REDUCE }, 0, 0 },
	{ 4, { OP_GEMM_RS, OP_REDUCE_SCATTER, OP_GEMM_RS, OP_AG_GEMM }, 0, 0 },
	{ 2, { OP_AG_GEMM, OP_GEMM_RS }, 1, 0 },
	{ 2, { OP_GEMM_AR, OP_AG_GEMM }, 1, 0 },
	{ 2, { OP_ALL_REDUCE, OP_ALL_REDUCE }, 0, 1 },
	{ 3, { OP_AG_GEMM, OP_GEMM_RS, OP_ALL_REDUCE }, 0, 1 },
	{ 4, { OP_GEMM_RS, OP_GEMM_AR, OP_GEMM_A2A, OP_AG_GEMM }, 0, 1 },
	{ 1, { OP_AG_GEMM }, 2, 0 },
	{ 1, { OP_GEMM_RS }, 2, 0 },
	{ 4, { OP_A2A_GEMM, OP_GEMM_A2A, OP_GEMM_RS, OP_AG_GEMM }, 2, 0 },
	{ 3, { OP_AG_GEMM, OP_ALL_REDUCE, OP_AG_GEMM }, 2, 1 },
};

#define N_SEQUENCES (sizeof(sequences) / sizeof(sequences[0]))

/* Data of a graph's runs. Each run of the graph, and each run outside it, has its own memory; runs
 * of one kind share an op. */
struct player {
	struct gpu_op_rank    *rank;
	ceov_workspace        *workspace;
	const struct sequence *sequence;
	struct op_case         cases[OP_SORTS];
	ceov_op               *ops[OP_SORTS];
	struct gpu_op_data     captured[RUNS_MAX];
	struct gpu_op_data     beside[OP_SORTS];
	struct gpu_graph       graph;
};

static void make_whole(struct op_case *one)
{
	if (one->sort == OP_A2A_GEMM)
		one->by_columns = 0;
	if (!op_case_can_be_whole(one))
		return;
	one->tuning.mode = CEOV_MODE_TWO_SHOT;
	one->tuning.n_pieces = 1;
}

static void make_player(struct player *player)
{
	const struct sequence *sequence = player->sequence;
	struct gpu_op_rank *rank = player->rank;
	struct op_case *one;
	uint32_t i;

	for (i = 0; i < OP_SORTS; i++) {
		one = &player->cases[i];
		*one = gpu_op_case_plain((enum op_sort)i, rank->rig->n_ranks);
		if (sequence->how == 2)
			make_whole(one);
		if (sequence->how == 1 && one->k) {
			one->tuning.tile_rows = OP_WIDE_ROWS;
			one->tuning.tile_columns = OP_WIDE_COLUMNS;
		}
		player->ops[i] = NULL;
		ck_assert_int_eq(op_case_create(one, player->workspace, &player->ops[i]), 0);
		gpu_op_data_make(rank, one, &player->beside[i]);
	}
	for (i = 0; i < sequence->n; i++)
		gpu_op_data_make(rank, &player->cases[sequence->sorts[i]],
				 &player->captured[i]);
	gpu_op_meet(rank);
}

static void capture(struct player *player)
{
	const struct sequence *sequence = player->sequence;
	uint32_t i;
	int r;

	gpu_graph_begin(&player->graph, &player->rank->gpu, GPU_CONSUME);
	if (sequence->is_branched)
		gpu_graph_go_on(&player->graph, GPU_CONSUME, GPU_PRODUCE);
	for (i = 0; i < sequence->n; i++) {
		r = gpu_op_data_run(&player->captured[i], player->ops[sequence->sorts[i]],
				    sequence->is_branched && i % 2 ? GPU_PRODUCE : GPU_CONSUME);
		ck_assert_msg(!r, "rank %u: run %u of a capture: %s", player->rank->rank, i,
			      ceov_strerror(r));
	}
	if (sequence->is_branched)
		gpu_graph_go_on(&player->graph, GPU_PRODUCE, GPU_CONSUME);
	gpu_graph_end(&player->graph);
	gpu_op_meet(player->rank);
}

/* Returns the number from which a run's operands are generated; no two runs have the same one. */
static uint64_t number_of(uint32_t replay, uint32_t run)
{
	return replay * 16 + run;
}

/* Fills new operands, then replays the graph. */
static void replay(struct player *player, uint32_t k)
{
	uint32_t i;

	for (i = 0; i < player->sequence->n; i++) {
		gpu_op_data_fill(&player->captured[i], GPU_CONSUME, number_of(k, i));
		gpu_op_data_spoil(&player->captured[i], GPU_CONSUME);
	}
	gpu_graph_launch(&player->graph);
}

static void check_replay(struct player *player, uint32_t k)
{
	uint32_t i;

	for (i = 0; i < player->sequence->n; i++)
		gpu_op_data_check(&player->captured[i], GPU_CONSUME, number_of(k, i));
	ck_assert_int_eq(ceov_workspace_status(player->workspace), 0);
}

/* Queues replays. After every seventh comes a run outside the graph; now and then a rank is
 * delayed; between checks no rank waits. */
static void play(struct player *player)
{
	uint64_t random = testing_seed(), how, victim;
	uint32_t k, sort = 0;

	for (k = 0; k < REPLAYS; k++) {
		how = testing_random(&random);
		victim = testing_below(&random, 8 * player->rank->rig->n_ranks);
		if (victim == player->rank->rank)
			gpu_op_be_late(player->rank, GPU_CONSUME, &how);
		replay(player, k);
		if (k < 2 || k + 1 == REPLAYS)
			check_replay(player, k);
		if (k % 7)
			continue;
		if (victim == player->rank->rank + player->rank->rig->n_ranks)
			gpu_op_be_late(player->rank, GPU_CONSUME, &how);
		sort = k / 7 % OP_SORTS;
		gpu_op_data_turn(&player->beside[sort], player->ops[sort], GPU_CONSUME,
				 number_of(k, RUNS_MAX));
		if (k % 21 == 0)
			gpu_op_data_check(&player->beside[sort], GPU_CONSUME,
					  number_of(k, RUNS_MAX));
	}
}

static void release_player(struct player *player)
{
	uint32_t i;

	gpu_idle(&player->rank->gpu, GPU_CONSUME);
	gpu_op_meet(player->rank);
	gpu_graph_free(&player->graph);
	for (i = 0; i < OP_SORTS; i++)
		ceov_op_release(player->ops[i]);
}

static void play_all(struct gpu_op_rank *rank, const void *arg)
{
	const struct gpu_op_mode mode = { "graphs", 0, 0, 0 };
	struct player player = { .rank = rank };
	uint32_t i;

	(void)arg;
	player.workspace = gpu_op_workspace(rank, &mode);
	for (i = 0; i < N_SEQUENCES; i++) {
		player.sequence = &sequences[i];
		if (player.sequence->how == 1 && !gpu_op_has_library(player.workspace))
			continue;
		rank->used_bytes = 0;
		make_player(&player);
		capture(&player);
		play(&player);
		release_player(&player);
	}
	gpu_op_workspace_release(rank, player.workspace);
}

START_TEST(test_graphs_are_replayed)
{
	gpu_op_open(&rig, _i ? n_all : 2);
	gpu_op_each(&rig, play_all, NULL);
	gpu_op_close(&rig);
}
END_TEST

/* Replays two graphs alternately. One has an odd number of runs, so that the scratch slot with
 * which the other one begins changes. */
static void play_by_turns(struct gpu_op_rank *rank, const void *arg)
{
	static const uint32_t which[2] = { 0, 4 };
	const struct gpu_op_mode mode = { "turns", 0, 0, 0 };
	struct player players[2] = { { .rank = rank }, { .rank = rank } };
	uint64_t random = testing_seed();
	uint32_t k, i;

	(void)arg;
	players[0].workspace = players[1].workspace = gpu_op_workspace(rank, &mode);
	rank->used_bytes = 0;
	for (i = 0; i < 2; i++) {
		players[i].sequence = &sequences[which[i]];
		make_player(&players[i]);
		capture(&players[i]);
	}
	for (k = 0; k < REPLAYS; k++) {
		i = (uint32_t)testing_below(&random, 2);
		replay(&players[i], k);
		if (k % 10 == 9)
			check_replay(&players[i], k);
	}
	for (i = 0; i < 2; i++)
		release_player(&players[i]);
	gpu_op_workspace_release(rank, players[0].workspace);
}

START_TEST(test_two_graphs_by_turns)
{
	gpu_op_open(&rig, n_all);
	gpu_op_each(&rig, play_by_turns, NULL);
	gpu_op_close(&rig);
}
END_TEST

/* --- failures -------------------------------------------------------------- */

struct ending {
	const char   *name;
	int           by_graph;         /* the run that fails is a replay */
	int           is_abort;         /* an abort ends the run; else a missing rank does */
};

struct mortal {                         /* one rank's operator in a test of failures */
	struct gpu_op_rank *rank;
	ceov_workspace     *workspace;
	struct op_case      one;
	struct gpu_op_data  data;
	ceov_op            *op;
	int                 by_graph;
	struct gpu_graph    graph;
};

static void make_mortal(struct mortal *mortal)
{
	struct gpu_op_rank *rank = mortal->rank;

	rank->used_bytes = 0;
	gpu_op_data_make(rank, &mortal->one, &mortal->data);
	ck_assert_int_eq(op_case_create(&mortal->one, mortal->workspace, &mortal->op), 0);
	gpu_op_meet(rank);
	if (!mortal->by_graph)
		return;
	gpu_graph_begin(&mortal->graph, &rank->gpu, GPU_CONSUME);
	ck_assert_int_eq(gpu_op_data_run(&mortal->data, mortal->op, GPU_CONSUME), 0);
	gpu_graph_end(&mortal->graph);
	gpu_op_meet(rank);
}

static int run_mortal(struct mortal *mortal)
{
	if (!mortal->by_graph)
		return gpu_op_data_run(&mortal->data, mortal->op, GPU_CONSUME);
	gpu_graph_launch(&mortal->graph);
	return 0;
}

static void expect_error(const struct mortal *mortal, const struct ending *ending, int r)
{
	int is_right = r == CEOV_ERR_ABORTED || (!ending->is_abort && r == CEOV_ERR_TIMEOUT);

	ck_assert_msg(is_right, "%s: sort %d: rank %u: %s", ending->name,
		      (int)mortal->one.sort, mortal->rank->rank, ceov_strerror(r));
}

/* Makes a run that another rank does not make, and asserts that it ends, that the stream goes on,
 * and that the error is reported. */
static void run_in_vain(struct mortal *mortal, const struct ending *ending)
{
	uint64_t limit = END_NS + (ending->is_abort ? 0 : DEADLINE_NS);
	uint64_t begin = cei_now_ns(), took;
	int r = run_mortal(mortal);

	if (r)                          /* a peer's failure was found before this rank's call */
		expect_error(mortal, ending, r);
	gpu_idle(&mortal->rank->gpu, GPU_CONSUME);
	took = cei_now_ns() - begin;
	expect_error(mortal, ending, gpu_op_error(mortal->rank, mortal->workspace));
	ck_assert_msg(took < limit, "%s: sort %d: rank %u: idle after %llu us only",
		      ending->name, (int)mortal->one.sort, mortal->rank->rank,
		      (unsigned long long)took / 1000);
}

/* Asserts on each rank that further calls either return the error, or queue a run that ends with
 * it. */
static void expect_over(struct mortal *mortal, const struct ending *ending)
{
	int r = gpu_op_data_run(&mortal->data, mortal->op, GPU_CONSUME);

	if (r)
		expect_error(mortal, ending, r);
	gpu_idle(&mortal->rank->gpu, GPU_CONSUME);
	expect_error(mortal, ending, gpu_op_error(mortal->rank, mortal->workspace));
}

static void end_one(struct mortal *mortal, const struct ending *ending)
{
	struct gpu_op_rank *rank = mortal->rank;
	uint32_t absent = mortal->one.sort % rank->rig->n_ranks, i;

	make_mortal(mortal);
	for (i = 0; i < GOOD_RUNS; i++) {
		gpu_op_data_fill(&mortal->data, GPU_CONSUME, i);
		gpu_op_data_spoil(&mortal->data, GPU_CONSUME);
		ck_assert_int_eq(run_mortal(mortal), 0);
		gpu_op_data_check(&mortal->data, GPU_CONSUME, i);
	}
	gpu_op_meet(rank);
	if (rank->rank != absent) {
		run_in_vain(mortal, ending);
	} else if (ending->is_abort) {
		usleep(ABORT_US);
		cei_workspace_fail(mortal->workspace, CEOV_ERR_ABORTED);
	}
	gpu_op_meet(rank);
	expect_over(mortal, ending);
	gpu_op_meet(rank);
	if (mortal->by_graph)
		gpu_graph_free(&mortal->graph);
	ceov_op_release(mortal->op);
}

static void end_each(struct gpu_op_rank *rank, const void *arg)
{
	const struct ending *ending = arg;
	struct gpu_op_mode mode = { .name = NULL };
	struct mortal mortal = { .rank = rank, .by_graph = ending->by_graph };
	char name[40];
	uint32_t n_ranks = rank->rig->n_ranks, i;

	mode.name = name;
	mode.deadline_ns = ending->is_abort ? 0 : DEADLINE_NS;
	for (i = 0; i < OP_SORTS + GPU_OP_LANE_SORTS; i++) {
		snprintf(name, sizeof(name), "%s %u", ending->name, i);
		mortal.workspace = gpu_op_workspace(rank, &mode);
		mortal.op = NULL;
		mortal.one = i < OP_SORTS ? gpu_op_case_plain((enum op_sort)i, n_ranks)
			: gpu_op_case_lane(gpu_op_lane_sorts[i - OP_SORTS], n_ranks);
		if (i < OP_SORTS || gpu_op_has_sm_lane(mortal.workspace))
			end_one(&mortal, ending);
		gpu_op_workspace_release(rank, mortal.workspace);
	}
}

static const struct ending endings[] = {
	{ "absent",          0, 0 },
	{ "abort",           0, 1 },
	{ "absent replayed", 1, 0 },
	{ "abort replayed",  1, 1 },
};

/* Runs twice in a row on one context, which must still work after the first failure. */
START_TEST(test_a_rank_does_not_come_or_aborts)
{
	gpu_op_open(&rig, n_all);
	gpu_op_each(&rig, end_each, &endings[2 * _i]);
	gpu_op_each(&rig, end_each, &endings[2 * _i + 1]);
	gpu_op_close(&rig);
}
END_TEST

static Suite *suite(uint32_t n_ranks)
{
	Suite *made = suite_create("gpu op graphs");
	TCase *all = tcase_create("graphs");

	n_all = n_ranks < GPU_OP_RANKS_MAX ? n_ranks : GPU_OP_RANKS_MAX;
	tcase_set_timeout(all, 100);
	tcase_add_loop_test(all, test_graphs_are_replayed, n_all == 2, 2);
	tcase_add_test(all, test_two_graphs_by_turns);
	tcase_add_loop_test(all, test_a_rank_does_not_come_or_aborts, 0, 2);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return gpu_main_ranks(suite);
}
