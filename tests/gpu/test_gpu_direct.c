/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Direct modes on GPUs, in both kinds of workspace: sums and moves of random sizes and types, late
 * ranks, many runs queued without waiting, runs between those that copy engines carry out, graphs,
 * a process for each rank, and a rank that does not come.
 *
 *   CEOVERLAP_GPU_DIRECT_SHAPES   shapes for each kind of workspace (default 40)
 */

#include "gpu_graph.h"
#include "gpu_move_data.h"
#include "gpu_process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "ops/compute/sm_lane.h"
#include "ops/core/op.h"

#define SHAPES       40u
#define SHAPE_RUNS   6u
#define PARTS_MAX    UINT64_C(4096)     /* parts of sums, in steps of 8 elements, so that one-shot
					 * all-reduces stay below 1 MiB */
#define BLOCKS_MAX   (UINT64_C(256) << 10)
#define ITEMS        6u
#define QUEUED       40u
#define QUEUES       5u
#define REPLAYS      60u
#define DEADLINE_NS  TESTING_SECOND
#define END_NS       (2 * TESTING_SECOND)
#define PROCESSES    8u                 /* shapes that ranks of several processes try */

static struct gpu_op_rig rig;
static uint32_t n_all;

/* --- items: an operator of any kind with its data ---------------------------- */

enum sort {
	ONE_SHOT, TWO_SHOT, REDUCE_SCATTER, ALL_GATHER, ALL_TO_ALL, BY_ENGINES, SORTS
};

struct item {
	enum sort            sort;
	struct op_case       sum;
	struct move_case     move;
	struct gpu_op_data   sum_data;
	struct gpu_move_data move_data;
	ceov_op             *op;
};

static int is_move(const struct item *item)
{
	return item->sort == ALL_GATHER || item->sort == ALL_TO_ALL;
}

static void pick_sum(struct item *item, uint32_t n_ranks, uint64_t *random)
{
	static const enum ceov_dtype dtypes[] = { CEOV_BF16, CEOV_FP16, CEOV_FP32 };
	struct op_case *one = &item->sum;
	uint64_t n_steps = 0;
	uint32_t i;

	*one = op_case_of(item->sort == REDUCE_SCATTER ? OP_REDUCE_SCATTER : OP_ALL_REDUCE,
			  n_ranks, 0, 0, 0);
	one->dtype = dtypes[testing_below(random, 3)];
	for (i = 0; i < n_ranks; i++) {
		n_steps = testing_below(random, testing_below(random, 2) ? PARTS_MAX : 64);
		one->rows[i] = testing_below(random, 5) ? 8 * n_steps : 0;
	}
	one->rows[testing_below(random, n_ranks)] += 8;
	op_case_pick_stride(one, random);
	op_case_pick_scale(one, random);
	one->tuning.mode = item->sort == TWO_SHOT ? CEOV_MODE_TWO_SHOT
		: item->sort == BY_ENGINES ? CEOV_MODE_OVERLAP : CEOV_MODE_DIRECT;
	one->tuning.n_reduce_blocks = (uint32_t)testing_below(random, 12);
}

static void pick_move(struct item *item, uint32_t n_ranks, uint64_t *random)
{
	do
		item->move = move_case_random(random, n_ranks, testing_below(random, 2)
					      ? BLOCKS_MAX : 4096);
	while (item->move.is_gather != (item->sort == ALL_GATHER));
	item->move.n_pieces = 0;
	item->move.mode = CEOV_MODE_DIRECT;
	item->move.n_sms = (uint32_t)testing_below(random, 12);
}

/* Chooses a shape; all ranks draw the same random numbers. */
static void pick(struct item *item, enum sort sort, uint32_t n_ranks, uint64_t *random)
{
	memset(item, 0, sizeof(*item));
	item->sort = sort;
	if (is_move(item))
		pick_move(item, n_ranks, random);
	else
		pick_sum(item, n_ranks, random);
}

/* Takes memory for one run's operands and results. */
static void take(struct item *item, struct gpu_op_rank *rank)
{
	if (is_move(item))
		item->move_data = gpu_move_data_make(rank, &item->move);
	else
		gpu_op_data_make(rank, &item->sum, &item->sum_data);
}

static void create(struct item *item, ceov_workspace *workspace)
{
	if (is_move(item))
		ck_assert_int_eq(move_create(&item->move, workspace, &item->op), 0);
	else
		ck_assert_int_eq(op_case_create(&item->sum, workspace, &item->op), 0);
}

static void fill(const struct item *item, uint64_t number)
{
	if (is_move(item)) {
		gpu_move_data_fill(&item->move_data, GPU_CONSUME, number);
		return;
	}
	gpu_op_data_fill(&item->sum_data, GPU_CONSUME, number);
	gpu_op_data_spoil(&item->sum_data, GPU_CONSUME);
}

static int run(const struct item *item)
{
	return is_move(item) ? gpu_move_data_run(&item->move_data, item->op, GPU_CONSUME)
		: gpu_op_data_run(&item->sum_data, item->op, GPU_CONSUME);
}

static void turn(const struct item *item, uint64_t number)
{
	int r;

	fill(item, number);
	r = run(item);
	ck_assert_msg(!r, "a run of sort %d: %s", (int)item->sort, ceov_strerror(r));
}

static void check(const struct item *item, uint64_t number)
{
	if (is_move(item))
		gpu_move_data_check(&item->move_data, GPU_CONSUME, number);
	else
		gpu_op_data_check(&item->sum_data, GPU_CONSUME, number);
}

/* Runs body with both kinds of workspace. */
static void each_mode(uint32_t n_ranks, const char *name,
		      void (*body)(struct gpu_op_rank *rank, const void *arg))
{
	struct gpu_op_mode mode = { name, 0, 0, 0 };

	gpu_op_open(&rig, n_ranks);
	gpu_op_each(&rig, body, &mode);
	gpu_op_close(&rig);
}

/* Delays one rank's next run now and then. All ranks draw the same numbers. */
static void be_late(struct gpu_op_rank *rank, uint64_t *random)
{
	uint64_t how = testing_random(random);

	if (testing_below(random, 3 * rank->rig->n_ranks) == rank->rank)
		gpu_op_be_late(rank, GPU_CONSUME, &how);
}

/* --- shapes ---------------------------------------------------------------- */

static void try_shape(struct gpu_op_rank *rank, ceov_workspace *workspace, struct item *item,
		      uint64_t *random)
{
	uint32_t i;

	rank->used_bytes = 0;
	create(item, workspace);
	take(item, rank);
	gpu_op_meet(rank);
	for (i = 0; i < SHAPE_RUNS; i++) {
		be_late(rank, random);
		turn(item, i);
		if (i % 2)
			check(item, i);
	}
	ck_assert_int_eq(ceov_workspace_status(workspace), 0);
	gpu_op_meet(rank);
	ceov_op_release(item->op);
}

struct shapes {
	struct gpu_op_mode mode;
	uint32_t           n;
};

static void try_shapes(struct gpu_op_rank *rank, const void *arg)
{
	const struct shapes *shapes = arg;
	ceov_workspace *workspace = gpu_op_workspace(rank, &shapes->mode);
	uint64_t random = testing_seed();
	struct item item;
	uint32_t i;

	for (i = 0; i < shapes->n; i++) {
		pick(&item, (enum sort)(i % BY_ENGINES), rank->rig->n_ranks, &random);
		try_shape(rank, workspace, &item, &random);
	}
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_shapes)
{
	struct shapes shapes = {
		{ "shapes", 0, 0, 0 }, gpu_setting("CEOVERLAP_GPU_DIRECT_SHAPES", SHAPES)
	};

	gpu_op_open(&rig, _i ? n_all : 2);
	gpu_op_each(&rig, try_shapes, &shapes);
	gpu_op_close(&rig);
}
END_TEST

/* --- the same bits in every mode --------------------------------------------- */

static void compare_modes(struct gpu_op_rank *rank, const void *arg)
{
	static const enum ceov_op_mode modes[] = {
		CEOV_MODE_OVERLAP, CEOV_MODE_DIRECT, CEOV_MODE_TWO_SHOT
	};
	ceov_workspace *workspace = gpu_op_workspace(rank, arg);
	struct op_case one = op_case_of(OP_ALL_REDUCE, rank->rig->n_ranks, 20000, 0, 0);
	struct gpu_op_data data, kept;
	ceov_op *op;
	uint32_t i;

	rank->used_bytes = 0;
	gpu_op_data_make(rank, &one, &data);
	gpu_op_data_make(rank, &one, &kept);
	for (i = 0; i < 3; i++) {
		one.tuning.mode = modes[i];
		op = op_case_made(&one, workspace);
		gpu_op_meet(rank);
		gpu_op_data_turn(&data, op, GPU_CONSUME, 3);
		gpu_op_data_check(&data, GPU_CONSUME, 3);
		if (i)
			gpu_op_data_same(&data, GPU_CONSUME, &kept);
		else
			gpu_op_data_keep(&data, GPU_CONSUME, &kept);
		gpu_op_meet(rank);
		ceov_op_release(op);
	}
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_bits_are_those_of_other_modes)
{
	each_mode(n_all, "bits", compare_modes);
}
END_TEST

/* --- tuning ---------------------------------------------------------------- */

/* Tunes a sum and a move of few bytes, whose results are right afterwards, and prints what was
 * measured. */
static void tune(struct gpu_op_rank *rank, const void *arg)
{
	static const enum sort sorts[] = { BY_ENGINES, ALL_GATHER };
	ceov_workspace *workspace = gpu_op_workspace(rank, arg);
	void *stream = rank->gpu.streams[GPU_CONSUME];
	uint64_t random = testing_seed();
	struct item item;
	uint32_t i;

	for (i = 0; i < 2; i++) {
		rank->used_bytes = 0;
		pick(&item, sorts[i], rank->rig->n_ranks, &random);
		memset(&item.sum.tuning, 0, sizeof(item.sum.tuning));
		item.sum.tuning.struct_bytes = sizeof(item.sum.tuning);
		item.move.mode = CEOV_MODE_CHOOSE;
		item.move.n_sms = 0;
		create(&item, workspace);
		take(&item, rank);
		gpu_op_meet(rank);
		ck_assert_int_eq(ceov_op_tune(item.op, stream), 0);
		ck_assert(item.op->is_tuned);
		if (!rank->rank)
			printf("%s:\n%s", item.op->kind->name, item.op->choice.text);
		turn(&item, 1);
		turn(&item, 2);
		check(&item, 2);
		gpu_op_meet(rank);
		ceov_op_release(item.op);
	}
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_tuned)
{
	char folder[200];

	testing_path("cache", folder, sizeof(folder));
	setenv("XDG_CACHE_HOME", folder, 1);
	each_mode(n_all, "tune", tune);
	testing_path("cache/ceoverlap/tunings", folder, sizeof(folder));
	unlink(folder);
	*strrchr(folder, '/') = 0;
	rmdir(folder);
	*strrchr(folder, '/') = 0;
	rmdir(folder);
}
END_TEST

/* --- runs queued ahead, between those of copy engines ------------------------- */

/* Queues runs of all sorts in a random order, each with memory of its own, and checks them after
 * all were queued. */
static void queue_ahead(struct gpu_op_rank *rank, struct item *items, uint64_t *random)
{
	struct item queued[QUEUED];
	uint64_t used_bytes = rank->used_bytes;
	uint32_t i;

	for (i = 0; i < QUEUED; i++) {
		queued[i] = items[testing_below(random, ITEMS)];
		take(&queued[i], rank);
	}
	for (i = 0; i < QUEUED; i++) {
		be_late(rank, random);
		turn(&queued[i], i);
	}
	for (i = 0; i < QUEUED; i++)
		check(&queued[i], i);
	rank->used_bytes = used_bytes;
}

static void queue_each(struct gpu_op_rank *rank, const void *arg)
{
	ceov_workspace *workspace = gpu_op_workspace(rank, arg);
	uint64_t random = testing_seed();
	struct item items[ITEMS];
	uint32_t i;

	rank->used_bytes = 0;
	for (i = 0; i < ITEMS; i++) {
		pick(&items[i], (enum sort)(i % SORTS), rank->rig->n_ranks, &random);
		create(&items[i], workspace);
	}
	gpu_op_meet(rank);
	for (i = 0; i < QUEUES; i++)
		queue_ahead(rank, items, &random);
	ck_assert_int_eq(ceov_workspace_status(workspace), 0);
	gpu_op_meet(rank);
	for (i = 0; i < ITEMS; i++)
		ceov_op_release(items[i].op);
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_runs_queued_ahead)
{
	each_mode(n_all, "ahead", queue_each);
}
END_TEST

/* --- graphs ---------------------------------------------------------------- */

struct player {
	struct gpu_op_rank *rank;
	uint32_t            n;          /* the graph holds the first n items */
	struct item         items[ITEMS];
	struct item         beside;     /* the first item's op with other memory, for runs outside
					 * the graph */
	struct gpu_graph    graph;
};

/* Makes a graph of n runs; the first is of the sort `first`, each next one of the next sort. */
static void make_player(struct player *player, ceov_workspace *workspace, uint32_t first,
			uint64_t *random)
{
	struct gpu_op_rank *rank = player->rank;
	uint32_t i;

	rank->used_bytes = 0;
	for (i = 0; i < player->n; i++) {
		pick(&player->items[i], (enum sort)((first + i) % SORTS), rank->rig->n_ranks,
		     random);
		create(&player->items[i], workspace);
		take(&player->items[i], rank);
	}
	player->beside = player->items[0];
	take(&player->beside, rank);
	gpu_op_meet(rank);
	gpu_graph_begin(&player->graph, &rank->gpu, GPU_CONSUME);
	for (i = 0; i < player->n; i++)
		ck_assert_int_eq(run(&player->items[i]), 0);
	gpu_graph_end(&player->graph);
	gpu_op_meet(rank);
}

/* Fills new operands for each replay; checks some, and lets others follow each other at once. */
static void play(struct player *player, uint64_t *random)
{
	uint32_t k, i;

	for (k = 0; k < REPLAYS; k++) {
		be_late(player->rank, random);
		for (i = 0; i < player->n; i++)
			fill(&player->items[i], k * 16 + i);
		gpu_graph_launch(&player->graph);
		for (i = 0; (k < 3 || k % 10 == 9) && i < player->n; i++)
			check(&player->items[i], k * 16 + i);
		if (k % 7)
			continue;
		turn(&player->beside, k * 16 + 15);
		if (k % 21 == 0)
			check(&player->beside, k * 16 + 15);
	}
}

static void play_all(struct gpu_op_rank *rank, const void *arg)
{
	const struct gpu_op_mode mode = { "graphs", 0, 0, 0 };
	ceov_workspace *workspace = gpu_op_workspace(rank, &mode);
	struct player player = { .rank = rank };
	uint64_t random = testing_seed();
	uint32_t first, i;

	(void)arg;
	for (first = 0; first < SORTS; first++) {
		player.n = 1 + first % 3;       /* also graphs of a single run */
		make_player(&player, workspace, first, &random);
		play(&player, &random);
		ck_assert_int_eq(ceov_workspace_status(workspace), 0);
		gpu_idle(&rank->gpu, GPU_CONSUME);
		gpu_op_meet(rank);
		gpu_graph_free(&player.graph);
		for (i = 0; i < player.n; i++)
			ceov_op_release(player.items[i].op);
	}
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_graphs_are_replayed)
{
	gpu_op_open(&rig, n_all);
	gpu_op_each(&rig, play_all, NULL);
	gpu_op_close(&rig);
}
END_TEST

/* --- a process for each rank --------------------------------------------------- */

static void be_process(uint32_t rank)
{
	struct shapes shapes = { { "shapes", 0, 0, 0 }, PROCESSES };
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

/* --- failures -------------------------------------------------------------- */

static void expect_end(struct gpu_op_rank *rank, ceov_workspace *workspace, int r)
{
	if (!r) {
		gpu_idle(&rank->gpu, GPU_CONSUME);
		r = gpu_op_error(rank, workspace);
	}
	ck_assert_msg(r == CEOV_ERR_TIMEOUT || r == CEOV_ERR_ABORTED, "rank %u: %s",
		      rank->rank, ceov_strerror(r));
}

struct missing {
	struct gpu_op_mode mode;
	enum sort          sort;
};

/* Rank 0 makes only one run: the second run of the other ranks fails, and their streams go on. Then
 * rank 0 comes too late, and fails, too. */
static void miss_one(struct gpu_op_rank *rank, const void *arg)
{
	const struct missing *missing = arg;
	ceov_workspace *workspace = gpu_op_workspace(rank, &missing->mode);
	uint64_t random = testing_seed(), begin_ns;
	struct item item;

	rank->used_bytes = 0;
	pick(&item, missing->sort, rank->rig->n_ranks, &random);
	create(&item, workspace);
	take(&item, rank);
	gpu_op_meet(rank);
	turn(&item, 1);
	check(&item, 1);
	gpu_op_meet(rank);
	begin_ns = cei_now_ns();
	if (rank->rank)
		expect_end(rank, workspace, run(&item));
	ck_assert_uint_lt(cei_now_ns() - begin_ns, DEADLINE_NS + END_NS);
	gpu_op_meet(rank);
	expect_end(rank, workspace, run(&item));
	gpu_op_meet(rank);
	ceov_op_release(item.op);
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_a_rank_does_not_come)
{
	struct missing missing = { { "ends", DEADLINE_NS, 0, 0 }, (enum sort)_i };

	gpu_op_open(&rig, n_all);
	gpu_op_each(&rig, miss_one, &missing);
	gpu_op_close(&rig);
}
END_TEST

/* A kernel that waits for peers is refused beside a lane that would then find too few SMs. */
static void refuse_beside(struct gpu_op_rank *rank, const void *arg)
{
	ceov_workspace *workspace = gpu_op_workspace(rank, arg);
	struct cei_executor *executor = &workspace->executor;
	const struct cei_sm_lane_ops *lane = executor->ops->sm_lane;
	void *stream = rank->gpu.streams[GPU_CONSUME];
	uint64_t random = testing_seed();
	struct item item;

	rank->used_bytes = 0;
	pick(&item, ONE_SHOT, rank->rig->n_ranks, &random);
	create(&item, workspace);
	take(&item, rank);
	ck_assert_int_eq(lane->open(executor), 0);
	gpu_op_meet(rank);
	ck_assert_int_eq(lane->begin(executor, stream, (uint32_t)executor->n_sms), 0);
	ck_assert_int_eq(run(&item), CEOV_ERR_INVALID);
	ck_assert_int_eq(lane->end(executor, stream), 0);
	gpu_op_meet(rank);
	ceov_op_release(item.op);
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_no_kernel_waits_on_the_sms_of_a_lane)
{
	const struct gpu_op_mode mode = { "budget", DEADLINE_NS, 0, 0 };

	gpu_op_open(&rig, n_all);
	gpu_op_each(&rig, refuse_beside, &mode);
	gpu_op_close(&rig);
}
END_TEST

static Suite *suite(uint32_t n_ranks)
{
	Suite *made = suite_create("gpu direct");
	TCase *all = tcase_create("direct");

	n_all = n_ranks < GPU_OP_RANKS_MAX ? n_ranks : GPU_OP_RANKS_MAX;
	tcase_set_timeout(all, 100);
	tcase_add_loop_test(all, test_shapes, n_all == 2, 2);
	tcase_add_test(all, test_bits_are_those_of_other_modes);
	tcase_add_test(all, test_tuned);
	tcase_add_test(all, test_runs_queued_ahead);
	tcase_add_test(all, test_graphs_are_replayed);
	tcase_add_test(all, test_a_process_for_each_rank);
	tcase_add_loop_test(all, test_a_rank_does_not_come, 0, BY_ENGINES);
	tcase_add_test(all, test_no_kernel_waits_on_the_sms_of_a_lane);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return gpu_main_ranks(suite);
}
