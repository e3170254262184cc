/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Tests the cache of graphs in capturable workspaces: all kinds of operators with changing
 * operands, on a stream and on the legacy stream, with late ranks, with operators that are created
 * and released, and with memory that is. And that no call waits for kernels on other streams.
 */

#include "gpu_move_data.h"
#include "gpu_op_rig.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/cuda_table.h"
#include "ops/core/capture_cuda.h"
#include "ops/core/workspace.h"

#define ROUNDS 12u
#define HALVES 2u
#define ADDRESSES_MAX 32u               /* tried until memory has its address again */
#define MEMORY_ROUNDS 4u        /* how often memory is allocated, the first time included */
#define HELD_NS (200 * TESTING_MS)
#define MOVES  (1 + OP_SORTS % 2)   /* with operators of each kind an odd number of runs */

static struct gpu_op_rig rig;
static uint32_t n_all;

struct player {
	struct gpu_op_rank  *rank;
	ceov_workspace      *workspace;
	struct gpu_op_plain  plain;
	struct move_case     gather;
	struct gpu_move_data moved[MOVES];      /* by one op, to and from other memory */
	ceov_op             *move;
};

static uint32_t n_graphs(const struct player *player)
{
	return cei_capture_n_graphs(player->workspace->capture);
}

/* Queues an odd number of runs, so that each op uses the other scratch slot in the next round. */
static void play_round(struct player *player, uint32_t k)
{
	uint32_t i;

	for (i = 0; i < OP_SORTS; i++)
		gpu_op_data_turn(&player->plain.data[i], player->plain.ops[i], GPU_CONSUME, k);
	for (i = 0; i < MOVES; i++)
		gpu_move_data_turn(&player->moved[i], player->move, GPU_CONSUME, k);
}

static void check_round(struct player *player, uint32_t k)
{
	uint32_t i;

	for (i = 0; i < OP_SORTS; i++)
		gpu_op_data_check(&player->plain.data[i], GPU_CONSUME, k);
	for (i = 0; i < MOVES; i++)
		gpu_move_data_check(&player->moved[i], GPU_CONSUME, k);
	ck_assert_int_eq(ceov_workspace_status(player->workspace), 0);
}

/* Returns how many graphs should be cached after round k. */
static uint32_t expected_graphs(uint32_t k)
{
	if (k < HALVES)
		return 0;
	return gpu_op_n_graphs(&rig, (k < 2 * HALVES ? k - HALVES + 1 : HALVES) *
			       (OP_SORTS + MOVES));
}

/* Checks the first rounds one by one: plain runs, runs that become graphs, the first replays. The
 * other rounds are queued without waiting. */
static void play(struct player *player)
{
	uint64_t random = testing_seed(), how;
	uint32_t k, n_ranks = player->rank->rig->n_ranks;

	for (k = 0; k < ROUNDS; k++) {
		how = testing_random(&random);
		if (testing_below(&random, 2 * n_ranks) == player->rank->rank)
			gpu_op_be_late(player->rank, GPU_CONSUME, &how);
		play_round(player, k);
		if (k < 3 * HALVES || k + 1 == ROUNDS)
			check_round(player, k);
		ck_assert_uint_eq(n_graphs(player), expected_graphs(k));
	}
}

static void make_move(struct player *player)
{
	uint32_t i;

	player->gather = move_case_of(1, player->rank->rig->n_ranks, 4096);
	for (i = 0; i < MOVES; i++)
		player->moved[i] = gpu_move_data_make(player->rank, &player->gather);
	player->move = NULL;
	ck_assert_int_eq(move_create(&player->gather, player->workspace, &player->move), 0);
	gpu_op_meet(player->rank);
}

/* Frees the rank's arena and allocates it again at the same address. The driver may prefer another
 * gap of the address space: what it gives there is held until the address comes. */
static void take_again(struct gpu_op_rank *rank)
{
	void *before = rank->arena, *held[ADDRESSES_MAX];
	uint32_t n_held = 0;

	gpu_free(&rank->gpu, before);
	for (;;) {
		rank->arena = gpu_allocate(&rank->gpu, GPU_OP_ARENA_BYTES);
		if (rank->arena == before)
			break;
		ck_assert_uint_lt(n_held, ADDRESSES_MAX);
		held[n_held++] = rank->arena;
	}
	while (n_held)
		gpu_free(&rank->gpu, held[--n_held]);
}

/* Gives the rank's arena back and takes it again, and with it all operands. One rank at a time:
 * ranks that share a GPU would get each other's. */
static void give_back(struct player *player)
{
	struct gpu_op_rank *rank = player->rank;
	uint32_t i;

	gpu_idle(&rank->gpu, GPU_CONSUME);
	for (i = 0; i < rank->rig->n_ranks; i++) {
		gpu_op_meet(rank);
		if (i == rank->rank)
			take_again(rank);
	}
	gpu_op_meet(rank);
	rank->used_bytes = 0;
	for (i = 0; i < OP_SORTS; i++)
		gpu_op_data_make(rank, &player->plain.cases[i], &player->plain.data[i]);
	for (i = 0; i < MOVES; i++)
		player->moved[i] = gpu_move_data_make(rank, &player->gather);
	gpu_op_meet(rank);
}

static void play_over_memory(struct gpu_op_rank *rank, const void *arg)
{
	const struct gpu_op_mode mode = { "memory", 1, 0, 0, 0 };
	struct player player = { .rank = rank };
	uint32_t k, round;

	(void)arg;
	player.workspace = gpu_op_workspace(rank, &mode);
	gpu_op_plain_make(rank, player.workspace, &player.plain);
	make_move(&player);
	for (round = 0; round < MEMORY_ROUNDS; round++) {
		for (k = 0; k < 4 * HALVES; k++) {
			play_round(&player, round * 4 * HALVES + k);
			check_round(&player, round * 4 * HALVES + k);
		}
		ck_assert_uint_eq(n_graphs(&player),
				  gpu_op_n_graphs(&rig, HALVES * (OP_SORTS + MOVES)));
		give_back(&player);
	}
	gpu_op_plain_release(rank, &player.plain);
	ceov_op_release(player.move);
	gpu_op_workspace_release(rank, player.workspace);
}

START_TEST(test_memory_comes_again)
{
	gpu_op_open(&rig, n_all);
	gpu_op_each(&rig, play_over_memory, NULL);
	gpu_op_close(&rig);
}
END_TEST

/* Makes rounds while a kernel holds another stream: no call may wait for it, whether it queues
 * operations, makes a graph of them or launches one. */
static void play_beside_a_kernel(struct gpu_op_rank *rank, const void *arg)
{
	const struct gpu_op_mode mode = { "beside", 1, 0, 0, 0 };
	struct player player = { .rank = rank };
	uint64_t begin, took;
	uint32_t k;

	(void)arg;
	player.workspace = gpu_op_workspace(rank, &mode);
	gpu_op_plain_make(rank, player.workspace, &player.plain);
	make_move(&player);
	for (k = 0; k < 5 * HALVES; k++) {
		gpu_op_meet(rank);
		if (k)                  /* the first round loads the test's kernels */
			gpu_op_hold(rank, GPU_WAIT, HELD_NS);
		begin = cei_now_ns();
		play_round(&player, k);
		took = cei_now_ns() - begin;
		ck_assert_msg(!k || took < HELD_NS / 2, "rank %u: round %u: its calls took %llu us "
			      "beside a kernel of %llu us, with %u graphs", rank->rank, k,
			      (unsigned long long)took / 1000, (unsigned long long)HELD_NS / 1000,
			      n_graphs(&player));
		gpu_idle(&rank->gpu, GPU_CONSUME);
		ck_assert(!k || !gpu_is_idle(&rank->gpu, GPU_WAIT));
		gpu_idle(&rank->gpu, GPU_WAIT);
		check_round(&player, k);
	}
	gpu_op_plain_release(rank, &player.plain);
	ceov_op_release(player.move);
	gpu_op_workspace_release(rank, player.workspace);
}

START_TEST(test_no_call_waits_for_a_kernel)
{
	gpu_op_open(&rig, n_all);
	gpu_op_each(&rig, play_beside_a_kernel, NULL);
	gpu_op_close(&rig);
}
END_TEST

static void come_again(struct gpu_op_rank *rank, const void *arg)
{
	const int *is_legacy = arg;
	const struct gpu_op_mode mode = { "again", 1, 0, 0, 0 };
	struct player player = { .rank = rank };
	void *kept = rank->gpu.streams[GPU_CONSUME];

	player.workspace = gpu_op_workspace(rank, &mode);
	gpu_op_plain_make(rank, player.workspace, &player.plain);
	make_move(&player);
	if (*is_legacy)
		rank->gpu.streams[GPU_CONSUME] = CU_STREAM_LEGACY;
	play(&player);
	gpu_idle(&rank->gpu, GPU_CONSUME);
	rank->gpu.streams[GPU_CONSUME] = kept;
	gpu_op_plain_release(rank, &player.plain);
	ck_assert_uint_eq(n_graphs(&player), gpu_op_n_graphs(&rig, HALVES * MOVES));
	ceov_op_release(player.move);
	ck_assert_uint_eq(n_graphs(&player), 0);
	gpu_op_workspace_release(rank, player.workspace);
}

START_TEST(test_runs_come_again)
{
	gpu_op_open(&rig, n_all);
	gpu_op_each(&rig, come_again, &_i);
	gpu_op_close(&rig);
}
END_TEST

/* Creates another op at the same address and with the same operands: it must not get the first
 * one's graphs. */
static void make_anew(struct gpu_op_rank *rank, const void *arg)
{
	const struct gpu_op_mode mode = { "anew", 1, 0, 0, 0 };
	struct op_case one = gpu_op_case_plain(OP_ALL_REDUCE, rank->rig->n_ranks);
	ceov_workspace *workspace = gpu_op_workspace(rank, &mode);
	struct gpu_op_data data;
	uint32_t k, i;
	ceov_op *op;

	(void)arg;
	for (k = 0; k < 4; k++) {
		one.sort = k % 2 ? OP_REDUCE_SCATTER : OP_ALL_REDUCE;
		rank->used_bytes = 0;
		gpu_op_data_make(rank, &one, &data);
		op = op_case_made(&one, workspace);
		gpu_op_meet(rank);
		for (i = 0; i < 6; i++) {
			gpu_op_data_turn(&data, op, GPU_CONSUME, 6 * k + i);
			gpu_op_data_check(&data, GPU_CONSUME, 6 * k + i);
		}
		ck_assert_uint_eq(cei_capture_n_graphs(workspace->capture),
				  gpu_op_n_graphs(&rig, HALVES));
		gpu_op_meet(rank);
		ceov_op_release(op);
	}
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_ops_are_made_anew)
{
	gpu_op_open(&rig, n_all);
	gpu_op_each(&rig, make_anew, NULL);
	gpu_op_close(&rig);
}
END_TEST

static Suite *suite(uint32_t n_ranks)
{
	Suite *made = suite_create("gpu replays");
	TCase *all = tcase_create("replays");

	n_all = n_ranks < GPU_OP_RANKS_MAX ? n_ranks : GPU_OP_RANKS_MAX;
	tcase_set_timeout(all, 100);
	if (gpu_n_sharing(n_all) > 1)
		printf("left out: runs on the legacy stream, which is one for all ranks that "
		       "share a context\n");
	tcase_add_loop_test(all, test_runs_come_again, 0, gpu_n_sharing(n_all) > 1 ? 1 : 2);
	tcase_add_test(all, test_ops_are_made_anew);
	tcase_add_test(all, test_memory_comes_again);
	if (gpu_n_sharing(n_all) == 1)
		tcase_add_test(all, test_no_call_waits_for_a_kernel);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return gpu_main_ranks(suite);
}
