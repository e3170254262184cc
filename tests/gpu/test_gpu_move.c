/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * All-gather and all-to-all on GPUs, launched by the engine and queued by the calling
 * thread: even and uneven blocks, pairs of ranks that have none, in place, late ranks, two
 * streams, runs queued ahead on them, operands that are overwritten at once, graphs, a
 * rank that does not come.
 *
 *   CEOVERLAP_GPU_MOVES   shapes for each kind of workspace (default 30)
 */

#include "gpu_graph.h"
#include "gpu_move_data.h"

#include "base/clock.h"
#include "ops/core/op.h"

#define SHAPES       30u
#define SHAPE_RUNS   4u
#define LIMIT        (UINT64_C(8) << 20)        /* largest number of bytes in a block */
#define LARGE        (UINT64_C(8) << 20)
#define SMALL        (UINT64_C(64) << 10)
#define SPARSE_RUNS  60u
#define REUSE_RUNS   6u
#define REUSE_ROUNDS 4u
#define STREAM_RUNS  40u
#define QUEUES       40u
#define QUEUE_ROUNDS 3u                         /* rounds queued without waiting in between */
#define ROUND_RUNS   4u
#define REPLAYS      60u
#define MOVES        3u
#define DEADLINE_NS  TESTING_SECOND
#define END_NS       (2 * TESTING_SECOND)

static struct gpu_op_rig rig;
static uint32_t n_all;                  /* number of ranks if a case does not give one */

static ceov_op *create(const struct move_case *one, ceov_workspace *workspace)
{
	ceov_op *op = NULL;

	ck_assert_int_eq(move_create(one, workspace, &op), 0);
	return op;
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

/* --- shapes ---------------------------------------------------------------- */

static void try_shape(struct gpu_op_rank *rank, ceov_workspace *workspace,
		      const struct move_case *one, uint64_t *random)
{
	ceov_op *op = create(one, workspace);
	struct gpu_move_data data;
	uint64_t how;
	uint32_t i;

	rank->used_bytes = 0;
	data = gpu_move_data_make(rank, one);
	gpu_op_meet(rank);
	for (i = 0; i < SHAPE_RUNS; i++) {
		how = testing_random(random);
		if (testing_below(random, 2 * one->n_ranks) == rank->rank)
			gpu_op_be_late(rank, GPU_CONSUME, &how);
		gpu_move_data_turn(&data, op, GPU_CONSUME, i);
		if (i % 2)
			gpu_move_data_check(&data, GPU_CONSUME, i);
	}
	ck_assert_int_eq(ceov_workspace_status(workspace), 0);
	gpu_op_meet(rank);
	ceov_op_release(op);
}

/* All ranks draw the same random numbers, for shapes and for which rank is late. */
static void try_shapes(struct gpu_op_rank *rank, const void *arg)
{
	ceov_workspace *workspace = gpu_op_workspace(rank, arg);
	uint32_t n = gpu_setting("CEOVERLAP_GPU_MOVES", SHAPES), i;
	uint64_t random = testing_seed();
	struct move_case one;

	for (i = 0; i < n; i++) {
		one = move_case_random(&random, rank->rig->n_ranks,
				       i % 3 ? LIMIT / 16 : LIMIT);
		if (i < 2)              /* the first two cases are plain ones */
			one = move_case_of((int)i, rank->rig->n_ranks, LIMIT);
		try_shape(rank, workspace, &one, &random);
	}
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_blocks_arrive)
{
	each_mode(_i ? n_all : 2, "shapes", try_shapes);
}
END_TEST

/* --- pairs without bytes --------------------------------------------------- */

/* Makes a case in which only neighbours in a ring, or a single pair of ranks, exchange bytes. Ranks
 * that receive nothing must not run ahead of a late rank. Many runs are queued, each with its own
 * result. */
static struct move_case sparse(int is_ring, uint32_t n_ranks)
{
	struct move_case one = move_case_of(0, n_ranks, 0);
	uint32_t rank;

	for (rank = 0; rank < (is_ring ? n_ranks : 1); rank++)
		one.bytes[rank * n_ranks + (rank + 1) % n_ranks] = SMALL << rank;
	one.n_pieces = 2;
	return one;
}

static void run_sparse(struct gpu_op_rank *rank, ceov_workspace *workspace,
		       const struct move_case *one)
{
	uint64_t random = testing_seed() + rank->rank;
	struct gpu_move_data data[SPARSE_RUNS];
	ceov_op *op = create(one, workspace);
	uint32_t i;

	rank->used_bytes = 0;
	for (i = 0; i < SPARSE_RUNS; i++)
		data[i] = gpu_move_data_make(rank, one);
	gpu_op_meet(rank);
	for (i = 0; i < SPARSE_RUNS; i++) {
		if (testing_below(&random, 6) == 0)
			gpu_op_be_late(rank, GPU_CONSUME, &random);
		gpu_move_data_turn(&data[i], op, GPU_CONSUME, i);
	}
	for (i = 0; i < SPARSE_RUNS; i++)
		gpu_move_data_check(&data[i], GPU_CONSUME, i);
	gpu_op_meet(rank);
	ceov_op_release(op);
}

static void run_sparse_each(struct gpu_op_rank *rank, const void *arg)
{
	ceov_workspace *workspace = gpu_op_workspace(rank, arg);
	struct move_case one;
	int is_ring;

	for (is_ring = 0; is_ring < 2; is_ring++) {
		one = sparse(is_ring, rank->rig->n_ranks);
		run_sparse(rank, workspace, &one);
	}
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_nobody_runs_ahead)
{
	each_mode(n_all, "sparse", run_sparse_each);
}
END_TEST

/* --- operands are free when the run has ended ------------------------------ */

/* Makes a case in which one rank sends much and its peers little: the rank still sends long after
 * all that it receives has arrived. */
static struct move_case lopsided(uint32_t i, uint32_t n_ranks)
{
	struct move_case one = move_case_of((int)i % 2, n_ranks, SMALL);
	uint32_t large = i % n_ranks, k;

	for (k = 0; !one.is_gather && k < n_ranks; k++)
		one.bytes[large * n_ranks + k] = LARGE;
	if (one.is_gather)
		one.bytes[large] = LARGE;
	return one;
}

/* Queues runs without waiting, so that filling the next operand overwrites the previous one. */
static void reuse(struct gpu_op_rank *rank, ceov_workspace *workspace,
		  const struct move_case *one)
{
	ceov_op *op = create(one, workspace);
	struct gpu_move_data data[REUSE_RUNS];
	uint32_t round, i, number = 0;

	rank->used_bytes = 0;
	for (i = 0; i < REUSE_RUNS; i++) {
		data[i] = gpu_move_data_make(rank, one);
		data[i].source = data[0].source;
	}
	gpu_op_meet(rank);
	for (round = 0; round < REUSE_ROUNDS; round++, number += REUSE_RUNS) {
		for (i = 0; i < REUSE_RUNS; i++)
			gpu_move_data_turn(&data[i], op, GPU_CONSUME, number + i);
		gpu_move_data_fill_source(&data[0], GPU_CONSUME, number + REUSE_RUNS);
		for (i = 0; i < REUSE_RUNS; i++)
			gpu_move_data_check(&data[i], GPU_CONSUME, number + i);
	}
	gpu_op_meet(rank);
	ceov_op_release(op);
}

static void reuse_each(struct gpu_op_rank *rank, const void *arg)
{
	ceov_workspace *workspace = gpu_op_workspace(rank, arg);
	struct move_case one;
	uint32_t i;

	for (i = 0; i < 4; i++) {
		one = lopsided(i, rank->rig->n_ranks);
		reuse(rank, workspace, &one);
	}
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_operands_are_free_behind_the_run)
{
	each_mode(n_all, "reuse", reuse_each);
}
END_TEST

/* --- streams --------------------------------------------------------------- */

/* Makes a case of medium size: in place, uneven with empty pairs and blocks, or cut into pieces. */
static struct move_case plain(uint32_t i, uint32_t n_ranks)
{
	struct move_case one = move_case_of(i % 2 == 0, n_ranks, SMALL);
	uint32_t k;

	one.is_in_place = i == 0;
	one.n_pieces = i == 2 ? 4 : 0;
	if (i == 2) {
		one.bytes[0] = 16 * SMALL;
		one.bytes[1] = 0;
	}
	for (k = 0; i == 1 && k < n_ranks * n_ranks; k++)
		one.bytes[k] = k * 5 % 3 * (SMALL + k * MOVE_STEP);
	return one;
}

/* Queues runs on two streams alternately; each stream has its own memory. A sum in between uses the
 * same scratch slots. */
static void use_streams(struct gpu_op_rank *rank, const void *arg)
{
	static const enum gpu_stream streams[2] = { GPU_CONSUME, GPU_PRODUCE };
	ceov_workspace *workspace = gpu_op_workspace(rank, arg);
	struct op_case sum = gpu_op_case_plain(OP_ALL_REDUCE, rank->rig->n_ranks);
	struct move_case one[2];
	struct gpu_op_data summed;
	ceov_op *ops[2], *other = NULL;
	struct gpu_move_data data[2];
	uint32_t i, which;

	rank->used_bytes = 0;
	gpu_op_data_make(rank, &sum, &summed);
	ck_assert_int_eq(op_case_create(&sum, workspace, &other), 0);
	for (i = 0; i < 2; i++) {
		one[i] = plain(1 + i, rank->rig->n_ranks);
		data[i] = gpu_move_data_make(rank, &one[i]);
		ops[i] = create(&one[i], workspace);
	}
	gpu_op_meet(rank);
	for (i = 0; i < STREAM_RUNS; i++) {
		which = i % 2;
		gpu_move_data_turn(&data[which], ops[which], streams[which], i);
		if (i % 5 == 0)
			gpu_op_data_turn(&summed, other, GPU_CONSUME, i);
		if (i % 10 < 9)
			continue;
		gpu_move_data_check(&data[0], streams[0], i - 1);
		gpu_move_data_check(&data[1], streams[1], i);
		gpu_op_data_check(&summed, GPU_CONSUME, i - 4);
	}
	gpu_op_meet(rank);
	ceov_op_release(ops[0]);
	ceov_op_release(ops[1]);
	ceov_op_release(other);
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_two_streams)
{
	each_mode(n_all, "streams", use_streams);
}
END_TEST

/* --- runs queued ahead on two streams --------------------------------------- */

enum { RUN_X, RUN_Y, RUN_Z };

/* X's second run waits for its first one, whose stream is late. Y follows it on a stream whose lane
 * Z has returned. */
static const struct {
	uint32_t        op;
	enum gpu_stream stream;
} round_runs[ROUND_RUNS] = {
	{ RUN_X, GPU_CONSUME }, { RUN_Z, GPU_PRODUCE },
	{ RUN_X, GPU_PRODUCE }, { RUN_Y, GPU_PRODUCE },
};

struct queue {
	struct gpu_op_rank  *rank;
	struct move_case     cases[MOVES];      /* the cases have different sizes */
	ceov_op             *ops[MOVES];
	struct gpu_move_data data[QUEUE_ROUNDS][ROUND_RUNS];
};

static void make_queue(struct queue *queue, ceov_workspace *workspace)
{
	struct gpu_op_rank *rank = queue->rank;
	uint32_t n_ranks = rank->rig->n_ranks, i, k;

	queue->cases[RUN_X] = plain(1, n_ranks);
	queue->cases[RUN_Y] = plain(2, n_ranks);
	queue->cases[RUN_Z] = move_case_of(1, n_ranks, 5 * SMALL);
	for (i = 0; i < MOVES; i++)
		queue->ops[i] = create(&queue->cases[i], workspace);
	rank->used_bytes = 0;
	for (k = 0; k < QUEUE_ROUNDS; k++)
		for (i = 0; i < ROUND_RUNS; i++)
			queue->data[k][i] = gpu_move_data_make(
				rank, &queue->cases[round_runs[i].op]);
	gpu_op_meet(rank);
}

/* Queues the runs of several rounds. Run i of round k has number first + k * ROUND_RUNS + i. */
static void fill_queue(const struct queue *queue, uint64_t first, uint64_t *random)
{
	uint32_t k, i;

	for (k = 0; k < QUEUE_ROUNDS; k++) {
		gpu_op_be_late(queue->rank, GPU_CONSUME, random);
		for (i = 0; i < ROUND_RUNS; i++)
			gpu_move_data_turn(&queue->data[k][i], queue->ops[round_runs[i].op],
					   round_runs[i].stream, first + k * ROUND_RUNS + i);
	}
}

static void check_queue(const struct queue *queue, uint64_t first)
{
	uint32_t k, i;

	for (k = 0; k < QUEUE_ROUNDS; k++)
		for (i = 0; i < ROUND_RUNS; i++)
			gpu_move_data_check(&queue->data[k][i], round_runs[i].stream,
					    first + k * ROUND_RUNS + i);
}

static void queue_ahead(struct gpu_op_rank *rank, const void *arg)
{
	ceov_workspace *workspace = gpu_op_workspace(rank, arg);
	uint64_t random = testing_seed() + rank->rank;
	struct queue queue = { .rank = rank };
	uint32_t i;

	make_queue(&queue, workspace);
	for (i = 0; i < QUEUES; i++) {
		fill_queue(&queue, (uint64_t)i * QUEUE_ROUNDS * ROUND_RUNS, &random);
		check_queue(&queue, (uint64_t)i * QUEUE_ROUNDS * ROUND_RUNS);
	}
	ck_assert_int_eq(ceov_workspace_status(workspace), 0);
	gpu_op_meet(rank);
	for (i = 0; i < MOVES; i++)
		ceov_op_release(queue.ops[i]);
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_queued_runs_keep_their_order)
{
	each_mode(n_all, "order", queue_ahead);
}
END_TEST

/* --- graphs ---------------------------------------------------------------- */

struct player {
	struct gpu_op_rank  *rank;
	uint32_t             n;         /* the graph holds the first n of these runs */
	struct move_case     cases[MOVES];
	ceov_op             *ops[MOVES];
	struct gpu_move_data captured[MOVES];
	struct gpu_move_data beside;    /* data of the last case, for a run outside the graph */
	struct gpu_graph     graph;
};

static uint64_t number_of(uint32_t replay, uint32_t run)
{
	return replay * (MOVES + 1) + run;
}

static void make_player(struct player *player, ceov_workspace *workspace)
{
	struct gpu_op_rank *rank = player->rank;
	uint32_t i;

	rank->used_bytes = 0;
	for (i = 0; i < MOVES; i++) {
		player->cases[i] = plain(i, rank->rig->n_ranks);
		player->ops[i] = create(&player->cases[i], workspace);
		player->captured[i] = gpu_move_data_make(rank, &player->cases[i]);
	}
	player->beside = gpu_move_data_make(rank, &player->cases[MOVES - 1]);
	gpu_op_meet(rank);
	gpu_graph_begin(&player->graph, &rank->gpu, GPU_CONSUME);
	for (i = 0; i < player->n; i++)
		ck_assert_int_eq(gpu_move_data_run(&player->captured[i], player->ops[i],
						   GPU_CONSUME), 0);
	gpu_graph_end(&player->graph);
	gpu_op_meet(rank);
}

/* Fills new operands for each replay. Sometimes a run outside the graph comes in between, or a rank
 * is late. */
static void play(struct player *player)
{
	uint64_t random = testing_seed(), how;
	uint32_t k, i;

	for (k = 0; k < REPLAYS; k++) {
		how = testing_random(&random);
		if (testing_below(&random, 4 * player->rank->rig->n_ranks) ==
		    player->rank->rank)
			gpu_op_be_late(player->rank, GPU_CONSUME, &how);
		for (i = 0; i < player->n; i++)
			gpu_move_data_fill(&player->captured[i], GPU_CONSUME, number_of(k, i));
		gpu_graph_launch(&player->graph);
		for (i = 0; (k < 3 || k % 10 == 9) && i < player->n; i++)
			gpu_move_data_check(&player->captured[i], GPU_CONSUME, number_of(k, i));
		if (k % 7)
			continue;
		gpu_move_data_turn(&player->beside, player->ops[MOVES - 1], GPU_CONSUME,
				   number_of(k, MOVES));
		if (k % 21 == 0)
			gpu_move_data_check(&player->beside, GPU_CONSUME, number_of(k, MOVES));
	}
}

static void play_all(struct gpu_op_rank *rank, const void *arg)
{
	const struct gpu_op_mode mode = { "graphs", 0, 0, 0 };
	ceov_workspace *workspace = gpu_op_workspace(rank, &mode);
	struct player player = { .rank = rank };
	uint32_t i;

	(void)arg;
	for (player.n = 1; player.n <= MOVES; player.n++) {
		make_player(&player, workspace);
		play(&player);
		ck_assert_int_eq(ceov_workspace_status(workspace), 0);
		gpu_idle(&rank->gpu, GPU_CONSUME);
		gpu_op_meet(rank);
		gpu_graph_free(&player.graph);
		for (i = 0; i < MOVES; i++)
			ceov_op_release(player.ops[i]);
	}
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_graphs_are_replayed)
{
	gpu_op_open(&rig, _i ? n_all : 2);
	gpu_op_each(&rig, play_all, NULL);
	gpu_op_close(&rig);
}
END_TEST

/* --- failures, and tuning -------------------------------------------------- */

static void expect_end(struct gpu_op_rank *rank, ceov_workspace *workspace, int r)
{
	if (!r) {
		gpu_idle(&rank->gpu, GPU_CONSUME);
		r = gpu_op_error(rank, workspace);
	}
	ck_assert_msg(r == CEOV_ERR_TIMEOUT || r == CEOV_ERR_ABORTED, "rank %u: %s",
		      rank->rank, ceov_strerror(r));
}

/* Rank 0 makes only one run: the second run of the other ranks fails, and their streams go on. */
static void miss_one(struct gpu_op_rank *rank, const void *arg)
{
	const struct gpu_op_mode *plain_mode = arg;
	struct gpu_op_mode mode = { plain_mode->name, DEADLINE_NS, 0, 0 };
	ceov_workspace *workspace = gpu_op_workspace(rank, &mode);
	struct move_case one = plain(1, rank->rig->n_ranks);
	ceov_op *op = create(&one, workspace);
	struct gpu_move_data data;
	uint64_t begin;

	rank->used_bytes = 0;
	data = gpu_move_data_make(rank, &one);
	gpu_op_meet(rank);
	gpu_move_data_turn(&data, op, GPU_CONSUME, 1);
	gpu_move_data_check(&data, GPU_CONSUME, 1);
	gpu_op_meet(rank);
	begin = cei_now_ns();
	if (rank->rank)
		expect_end(rank, workspace, gpu_move_data_run(&data, op, GPU_CONSUME));
	ck_assert_uint_lt(cei_now_ns() - begin, DEADLINE_NS + END_NS);
	gpu_op_meet(rank);
	expect_end(rank, workspace, gpu_move_data_run(&data, op, GPU_CONSUME));
	gpu_op_meet(rank);
	ceov_op_release(op);
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_a_rank_does_not_come)
{
	each_mode(n_all, "ends", miss_one);
}
END_TEST

/* One rank tunes alone an op whose blocks are too large for the direct mode: nothing is measured,
 * and no peer is waited for. */
static void tune_alone(struct gpu_op_rank *rank, const void *arg)
{
	ceov_workspace *workspace = gpu_op_workspace(rank, arg);
	struct move_case one = move_case_of(0, rank->rig->n_ranks, LARGE);
	ceov_op *op = create(&one, workspace);
	uint32_t n_pieces = op->choice.n_pieces;
	struct ceov_move_run null_stream = { .struct_bytes = sizeof(null_stream) };
	struct gpu_move_data data;

	rank->used_bytes = 0;
	data = gpu_move_data_make(rank, &one);
	if (!rank->rank) {
		ck_assert_int_eq(ceov_op_tune(op, rank->gpu.streams[GPU_CONSUME]), 0);
		ck_assert_uint_eq(op->choice.n_pieces, n_pieces);
		ck_assert(!op->is_tuned);
		null_stream.source = data.source;
		null_stream.target = data.target;
		ck_assert_int_eq(ceov_move_run(op, &null_stream), CEOV_ERR_INVALID);
	}
	gpu_move_data_turn(&data, op, GPU_CONSUME, 7);
	gpu_move_data_check(&data, GPU_CONSUME, 7);
	gpu_op_meet(rank);
	ceov_op_release(op);
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_tuning_leaves_large_moves_alone)
{
	each_mode(2, "tune", tune_alone);
}
END_TEST

static Suite *suite(uint32_t n_ranks)
{
	Suite *made = suite_create("gpu move");
	TCase *all = tcase_create("move"), *ahead = tcase_create("move ahead");

	n_all = n_ranks < GPU_OP_RANKS_MAX ? n_ranks : GPU_OP_RANKS_MAX;
	tcase_set_timeout(all, 100);
	tcase_add_loop_test(all, test_blocks_arrive, n_all == 2, 2);
	tcase_add_test(all, test_nobody_runs_ahead);
	tcase_add_test(all, test_operands_are_free_behind_the_run);
	tcase_add_test(all, test_two_streams);
	tcase_add_loop_test(all, test_graphs_are_replayed, n_all == 2, 2);
	tcase_add_test(all, test_a_rank_does_not_come);
	tcase_add_test(all, test_tuning_leaves_large_moves_alone);
	suite_add_tcase(made, all);
	/* needs two streams of one GPU that wait for peers at once: see check_sanitizer.sh */
	tcase_set_tags(ahead, "concurrent");
	tcase_set_timeout(ahead, 100);
	tcase_add_test(ahead, test_queued_runs_keep_their_order);
	suite_add_tcase(made, ahead);
	return made;
}

int main(void)
{
	return gpu_main_ranks(suite);
}
