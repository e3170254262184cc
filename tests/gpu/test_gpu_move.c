/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * All-gather and all-to-all on GPUs, launched by the engine and queued by the calling
 * thread: even and uneven blocks, pairs of ranks that have none, in place, late ranks, two
 * streams, operands that are overwritten at once, graphs, a rank that does not come.
 *
 *   CEOVERLAP_GPU_MOVES   shapes for each kind of workspace (default 30)
 */

#include "gpu_graph.h"
#include "gpu_op_rig.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "ops/op.h"
#include "unit/move_rig.h"

#define SHAPES       30u
#define SHAPE_RUNS   4u
#define LIMIT        (UINT64_C(8) << 20)        /* bytes of a block */
#define LARGE        (UINT64_C(8) << 20)
#define SMALL        (UINT64_C(64) << 10)
#define SPARSE_RUNS  60u
#define REUSE_RUNS   6u
#define REUSE_ROUNDS 4u
#define STREAM_RUNS  40u
#define REPLAYS      60u
#define MOVES        3u
#define DEADLINE_NS  TESTING_SECOND
#define END_NS       (2 * TESTING_SECOND)
#define ALIGN_BYTES  UINT64_C(256)
#define GUARD_WORDS  UINT64_C(32)
#define GUARD_SEED   UINT64_C(0x6a09e667f3bcc909)
#define WORD         sizeof(uint64_t)

static struct gpu_op_rig rig;
static uint32_t n_all;                  /* ranks where a case does not say */

/* --- operands and results -------------------------------------------------- */

struct data {                           /* of one rank */
	struct gpu_op_rank     *rank;
	const struct move_case *one;    /* outlives it */
	char                   *source; /* in place: a part of target */
	char                   *target; /* guarded */
};

static uint64_t target_bytes(const struct data *data)
{
	return move_arrives_at(data->one, data->one->n_ranks, data->rank->rank);
}

/* From the rank's arena. */
static char *take(struct gpu_op_rank *rank, uint64_t n_bytes)
{
	char *taken = rank->arena + rank->used_bytes;

	rank->used_bytes += (n_bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
	ck_assert_uint_le(rank->used_bytes, GPU_OP_ARENA_BYTES);
	return taken;
}

static struct data make_data(struct gpu_op_rank *rank, const struct move_case *one)
{
	struct data data = { .rank = rank, .one = one };

	ck_assert_uint_le(move_scratch(one), GPU_OP_SCRATCH);
	data.target = take(rank, target_bytes(&data) + GUARD_WORDS * WORD);
	data.source = one->is_in_place
		? data.target + move_arrives_at(one, rank->rank, rank->rank)
		: take(rank, move_leaves_at(one, rank->rank, one->n_ranks));
	return data;
}

static void fill_words(const struct data *data, enum gpu_stream stream, char *p,
		       uint64_t n_bytes, uint64_t seed)
{
	struct gpu_words words = { p, n_bytes / WORD, seed };

	if (words.n_words)
		gpu_fill(&data->rank->gpu, stream, &words);
}

static void check_words(const struct data *data, char *p, uint64_t n_bytes, uint64_t seed)
{
	struct gpu_words words = { p, n_bytes / WORD, seed };

	if (words.n_words)
		gpu_check(&data->rank->gpu, &words);
}

/* Queues: the operand of that number. */
static void fill_source(const struct data *data, enum gpu_stream stream, uint64_t number)
{
	const struct move_case *one = data->one;
	uint32_t own = data->rank->rank, n = one->is_gather ? 1 : one->n_ranks, target;

	for (target = 0; target < n; target++)
		fill_words(data, stream, data->source + move_leaves_at(one, own, target),
			   move_block(one, own, target),
			   move_seed(one, number, own, target));
}

/* Queues: rubbish where the result will be, then the operand, which may be there. */
static void fill(const struct data *data, enum gpu_stream stream, uint64_t number)
{
	fill_words(data, stream, data->target, target_bytes(data), ~GUARD_SEED);
	fill_words(data, stream, data->target + target_bytes(data), GUARD_WORDS * WORD,
		   GUARD_SEED);
	fill_source(data, stream, number);
}

static int run(const struct data *data, ceov_op *op, enum gpu_stream stream)
{
	struct ceov_move_run run = { .struct_bytes = sizeof(run) };

	run.stream = data->rank->gpu.streams[stream];
	run.source = data->source;
	run.target = data->target;
	return ceov_move_run(op, &run);
}

static void turn(const struct data *data, ceov_op *op, enum gpu_stream stream,
		 uint64_t number)
{
	char text[400];
	int r;

	fill(data, stream, number);
	r = run(data, op, stream);
	if (!r)
		return;
	move_describe(data->one, text, sizeof(text));
	ck_abort_msg("rank %u: %s: run: %s", data->rank->rank, text, ceov_strerror(r));
}

/* When the stream is idle. */
static void check(const struct data *data, enum gpu_stream stream, uint64_t number)
{
	const struct move_case *one = data->one;
	uint32_t own = data->rank->rank, source;

	gpu_idle(&data->rank->gpu, stream);
	for (source = 0; source < one->n_ranks; source++)
		check_words(data, data->target + move_arrives_at(one, source, own),
			    move_block(one, source, own),
			    move_seed(one, number, source, own));
	check_words(data, data->target + target_bytes(data), GUARD_WORDS * WORD, GUARD_SEED);
}

static ceov_op *create(const struct move_case *one, ceov_workspace *workspace)
{
	ceov_op *op = NULL;

	ck_assert_int_eq(move_create(one, workspace, &op), 0);
	return op;
}

/* Of both kinds of workspace. */
static void each_mode(uint32_t n_ranks, const char *name,
		      void (*body)(struct gpu_op_rank *rank, const void *arg))
{
	struct gpu_op_mode mode = { name, 0, 0, 0 };

	gpu_op_open(&rig, n_ranks);
	for (; mode.is_capturable < 2; mode.is_capturable++)
		gpu_op_each(&rig, body, &mode);
	gpu_op_close(&rig);
}

/* --- shapes ---------------------------------------------------------------- */

static void try_shape(struct gpu_op_rank *rank, ceov_workspace *workspace,
		      const struct move_case *one, uint64_t *random)
{
	ceov_op *op = create(one, workspace);
	struct data data;
	uint64_t how;
	uint32_t i;

	rank->used_bytes = 0;
	data = make_data(rank, one);
	gpu_op_meet(rank);
	for (i = 0; i < SHAPE_RUNS; i++) {
		how = testing_random(random);
		if (testing_below(random, 2 * one->n_ranks) == rank->rank)
			gpu_op_be_late(rank, GPU_CONSUME, &how);
		turn(&data, op, GPU_CONSUME, i);
		if (i % 2)
			check(&data, GPU_CONSUME, i);
	}
	ck_assert_int_eq(ceov_workspace_status(workspace), 0);
	gpu_op_meet(rank);
	ceov_op_release(op);
}

/* All ranks draw the same numbers: shapes, and who is late. */
static void try_shapes(struct gpu_op_rank *rank, const void *arg)
{
	ceov_workspace *workspace = gpu_op_workspace(rank, arg);
	uint32_t n = gpu_setting("CEOVERLAP_GPU_MOVES", SHAPES), i;
	uint64_t random = testing_seed();
	struct move_case one;

	for (i = 0; i < n; i++) {
		one = move_case_random(&random, rank->rig->n_ranks,
				       i % 3 ? LIMIT / 16 : LIMIT);
		if (i < 2)              /* and two plain ones */
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

/* A ring, or one pair: those that nothing arrives from must not run ahead of a rank that
 * is late. Many runs are queued, each with a result of its own. */
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
	struct data data[SPARSE_RUNS];
	ceov_op *op = create(one, workspace);
	uint32_t i;

	rank->used_bytes = 0;
	for (i = 0; i < SPARSE_RUNS; i++)
		data[i] = make_data(rank, one);
	gpu_op_meet(rank);
	for (i = 0; i < SPARSE_RUNS; i++) {
		if (testing_below(&random, 6) == 0)
			gpu_op_be_late(rank, GPU_CONSUME, &random);
		turn(&data[i], op, GPU_CONSUME, i);
	}
	for (i = 0; i < SPARSE_RUNS; i++)
		check(&data[i], GPU_CONSUME, i);
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

/* --- operands are free behind the run -------------------------------------- */

/* One rank sends much and its peers little: its bytes leave long after what arrives there
 * is copied. */
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

/* Runs are queued without a stop: what fills the next one's operand overwrites the last
 * one's. */
static void reuse(struct gpu_op_rank *rank, ceov_workspace *workspace,
		  const struct move_case *one)
{
	ceov_op *op = create(one, workspace);
	struct data data[REUSE_RUNS];
	uint32_t round, i, number = 0;

	rank->used_bytes = 0;
	for (i = 0; i < REUSE_RUNS; i++) {
		data[i] = make_data(rank, one);
		data[i].source = data[0].source;
	}
	gpu_op_meet(rank);
	for (round = 0; round < REUSE_ROUNDS; round++, number += REUSE_RUNS) {
		for (i = 0; i < REUSE_RUNS; i++)
			turn(&data[i], op, GPU_CONSUME, number + i);
		fill_source(&data[0], GPU_CONSUME, number + REUSE_RUNS);
		for (i = 0; i < REUSE_RUNS; i++)
			check(&data[i], GPU_CONSUME, number + i);
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

/* Of medium size: in place, uneven with pairs and own blocks that have none, cut. */
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

/* Runs on two streams by turns follow each other; each stream has memory of its own. A
 * sum in between shares the halves. */
static void use_streams(struct gpu_op_rank *rank, const void *arg)
{
	static const enum gpu_stream streams[2] = { GPU_CONSUME, GPU_PRODUCE };
	ceov_workspace *workspace = gpu_op_workspace(rank, arg);
	struct op_case sum = gpu_op_case_plain(OP_ALL_REDUCE, rank->rig->n_ranks);
	struct move_case one[2];
	struct gpu_op_data summed;
	ceov_op *ops[2], *other = NULL;
	struct data data[2];
	uint32_t i, which;

	rank->used_bytes = 0;
	gpu_op_data_make(rank, &sum, &summed);
	ck_assert_int_eq(op_case_create(&sum, workspace, &other), 0);
	for (i = 0; i < 2; i++) {
		one[i] = plain(1 + i, rank->rig->n_ranks);
		data[i] = make_data(rank, &one[i]);
		ops[i] = create(&one[i], workspace);
	}
	gpu_op_meet(rank);
	for (i = 0; i < STREAM_RUNS; i++) {
		which = i % 2;
		turn(&data[which], ops[which], streams[which], i);
		if (i % 5 == 0)
			gpu_op_data_turn(&summed, other, GPU_CONSUME, i);
		if (i % 10 < 9)
			continue;
		check(&data[0], streams[0], i - 1);
		check(&data[1], streams[1], i);
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

/* --- graphs ---------------------------------------------------------------- */

struct player {
	struct gpu_op_rank *rank;
	uint32_t            n;          /* runs of the graph: the first of these */
	struct move_case    cases[MOVES];
	ceov_op            *ops[MOVES];
	struct data         captured[MOVES];
	struct data         beside;     /* of the last case, in a run that is not captured */
	struct gpu_graph    graph;
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
		player->captured[i] = make_data(rank, &player->cases[i]);
	}
	player->beside = make_data(rank, &player->cases[MOVES - 1]);
	gpu_op_meet(rank);
	gpu_graph_begin(&player->graph, &rank->gpu, GPU_CONSUME);
	for (i = 0; i < player->n; i++)
		ck_assert_int_eq(run(&player->captured[i], player->ops[i], GPU_CONSUME), 0);
	gpu_graph_end(&player->graph);
	gpu_op_meet(rank);
}

/* New operands for each replay; now and then a run outside the graph, or a late rank. */
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
			fill(&player->captured[i], GPU_CONSUME, number_of(k, i));
		gpu_graph_launch(&player->graph);
		for (i = 0; (k < 3 || k % 10 == 9) && i < player->n; i++)
			check(&player->captured[i], GPU_CONSUME, number_of(k, i));
		if (k % 7)
			continue;
		turn(&player->beside, player->ops[MOVES - 1], GPU_CONSUME,
		     number_of(k, MOVES));
		if (k % 21 == 0)
			check(&player->beside, GPU_CONSUME, number_of(k, MOVES));
	}
}

static void play_all(struct gpu_op_rank *rank, const void *arg)
{
	const struct gpu_op_mode mode = { "graphs", 1, 0, 0 };
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

/* --- ends, and the rest ---------------------------------------------------- */

static void expect_end(struct gpu_op_rank *rank, ceov_workspace *workspace, int r)
{
	if (!r) {
		gpu_idle(&rank->gpu, GPU_CONSUME);
		r = gpu_op_error(rank, workspace);
	}
	ck_assert_msg(r == CEOV_ERR_TIMEOUT || r == CEOV_ERR_ABORTED, "rank %u: %s",
		      rank->rank, ceov_strerror(r));
}

/* Rank 0 makes one run only: the others' next one ends, and streams go on. */
static void miss_one(struct gpu_op_rank *rank, const void *arg)
{
	const struct gpu_op_mode *plain_mode = arg;
	struct gpu_op_mode mode = { plain_mode->name, plain_mode->is_capturable, DEADLINE_NS, 0 };
	ceov_workspace *workspace = gpu_op_workspace(rank, &mode);
	struct move_case one = plain(1, rank->rig->n_ranks);
	ceov_op *op = create(&one, workspace);
	struct data data;
	uint64_t begin;

	rank->used_bytes = 0;
	data = make_data(rank, &one);
	gpu_op_meet(rank);
	turn(&data, op, GPU_CONSUME, 1);
	check(&data, GPU_CONSUME, 1);
	gpu_op_meet(rank);
	begin = cei_now_ns();
	if (rank->rank)
		expect_end(rank, workspace, run(&data, op, GPU_CONSUME));
	ck_assert_uint_lt(cei_now_ns() - begin, DEADLINE_NS + END_NS);
	gpu_op_meet(rank);
	expect_end(rank, workspace, run(&data, op, GPU_CONSUME));
	gpu_op_meet(rank);
	ceov_op_release(op);
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_a_rank_does_not_come)
{
	each_mode(n_all, "ends", miss_one);
}
END_TEST

/* One rank alone may tune: nothing is measured and nobody waited for. */
static void tune_alone(struct gpu_op_rank *rank, const void *arg)
{
	ceov_workspace *workspace = gpu_op_workspace(rank, arg);
	struct move_case one = plain(2, rank->rig->n_ranks);
	ceov_op *op = create(&one, workspace);
	struct ceov_move_run null_stream = { .struct_bytes = sizeof(null_stream) };
	struct data data;

	rank->used_bytes = 0;
	data = make_data(rank, &one);
	if (!rank->rank) {
		ck_assert_int_eq(ceov_op_tune(op, rank->gpu.streams[GPU_CONSUME]), 0);
		ck_assert_uint_eq(op->choice.n_pieces, one.n_pieces);
		null_stream.source = data.source;
		null_stream.target = data.target;
		ck_assert_int_eq(ceov_move_run(op, &null_stream), CEOV_ERR_INVALID);
	}
	turn(&data, op, GPU_CONSUME, 7);
	check(&data, GPU_CONSUME, 7);
	gpu_op_meet(rank);
	ceov_op_release(op);
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_tuning_leaves_moves_alone)
{
	each_mode(2, "tune", tune_alone);
}
END_TEST

static Suite *suite(uint32_t n_gpus)
{
	Suite *made = suite_create("gpu move");
	TCase *all = tcase_create("move");

	n_all = n_gpus < GPU_OP_RANKS_MAX ? n_gpus : GPU_OP_RANKS_MAX;
	tcase_set_timeout(all, 100);
	tcase_add_loop_test(all, test_blocks_arrive, n_all == 2, 2);
	tcase_add_test(all, test_nobody_runs_ahead);
	tcase_add_test(all, test_operands_are_free_behind_the_run);
	tcase_add_test(all, test_two_streams);
	tcase_add_loop_test(all, test_graphs_are_replayed, n_all == 2, 2);
	tcase_add_test(all, test_a_rank_does_not_come);
	tcase_add_test(all, test_tuning_leaves_moves_alone);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return gpu_main(2, suite);
}
