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
#include <string.h>

#include "base/clock.h"
#include "base/cuda_table.h"
#include "ops/core/capture_cuda.h"
#include "ops/core/workspace.h"

#define ROUNDS 12u
#define HALVES 2u
#define MEMORY_ROUNDS 4u        /* how often memory is allocated, the first time included */
#define HELD_NS (200 * TESTING_MS)
#define MOVES  (1 + OP_SORTS % 2)   /* with operators of each kind an odd number of runs */
#define MOVE_BYTES    UINT64_C(4096)
#define OPERAND_BYTES (UINT64_C(3) << 20)       /* more than a page: moves over several pages */
#define BLOCK_BYTES   (UINT64_C(20) << 20)      /* as PyTorch's allocator takes for tensors of less
						 * than 10 MiB */
#define PAGES         (uint32_t)(BLOCK_BYTES / GPU_PAGE_BYTES)
#define BLOCKS        ((uint32_t)OP_SORTS + MOVES)
#define HELD          32u                       /* blocks allocated until addresses come again */

/* Ways in which memory comes again at its address: allocated; mapped; mapped except where operands
 * of moves begin. So do PyTorch's expandable segments: they give back only pages that are all free,
 * and the first page of an operand may hold others, too. */
enum how { ALLOCATED, MAPPED, PARTLY_MAPPED, HOWS };

static const char *const how_names[HOWS] = { "allocated", "mapped", "partly mapped" };

static struct gpu_op_rig rig;
static uint32_t n_all;

struct player {
	struct gpu_op_rank  *rank;
	ceov_workspace      *workspace;
	struct gpu_op_plain  plain;
	struct move_case     gather;
	struct gpu_move_data moved[MOVES];      /* by one op, to and from other memory */
	ceov_op             *move;
	int                  how;               /* enum how; this and the next are of cases over
						 * memory that comes again */
	char                *blocks[BLOCKS];    /* each with the operands of an operator or move */
	uint32_t             n_again;           /* blocks that came again at their address */
	int                  knows_ids;         /* the driver numbers the blocks */
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

static void make_move(struct player *player, uint64_t n_bytes)
{
	uint32_t i;

	player->gather = move_case_of(1, player->rank->rig->n_ranks, n_bytes);
	for (i = 0; i < MOVES; i++)
		player->moved[i] = gpu_move_data_make(player->rank, &player->gather);
	player->move = NULL;
	ck_assert_int_eq(move_create(&player->gather, player->workspace, &player->move), 0);
	gpu_op_meet(player->rank);
}

/* --- memory that comes again --- */

static char *make_block(struct player *player)
{
	struct gpu *gpu = &player->rank->gpu;
	char *made;
	uint32_t i;

	if (player->how == ALLOCATED)
		return gpu_allocate(gpu, BLOCK_BYTES);
	made = gpu_reserve(gpu, BLOCK_BYTES);
	for (i = 0; i < PAGES; i++)
		gpu_map(gpu, made + i * GPU_PAGE_BYTES);
	return made;
}

static void free_block(struct player *player, char *block)
{
	struct gpu *gpu = &player->rank->gpu;
	uint32_t i;

	if (player->how == ALLOCATED) {
		gpu_free(gpu, block);
		return;
	}
	for (i = 0; i < PAGES; i++)
		gpu_unmap(gpu, block + i * GPU_PAGE_BYTES);
	gpu_unreserve(gpu, block, BLOCK_BYTES);
}

/* Returns a block that is held, and holds it no more: the wanted one, or any if that is NULL. NULL:
 * it is not held. */
static char *take(char **held, const char *wanted)
{
	char *taken = NULL;
	uint32_t i;

	for (i = 0; !taken && i < HELD; i++) {
		if (!held[i] || (wanted && held[i] != wanted))
			continue;
		taken = held[i];
		held[i] = NULL;
	}
	return taken;
}

/* Frees all blocks and allocates others, as PyTorch does. The driver may prefer other gaps of the
 * address space, so more are allocated than needed. */
static void allocate_again(struct player *player)
{
	char *held[HELD], *before[BLOCKS], *rest;
	uint32_t i;

	memcpy(before, player->blocks, sizeof(before));
	for (i = 0; i < BLOCKS; i++)
		free_block(player, before[i]);
	for (i = 0; i < HELD; i++)
		held[i] = make_block(player);
	for (i = 0; i < BLOCKS; i++)
		player->blocks[i] = take(held, before[i]);
	for (i = 0; i < BLOCKS; i++) {
		if (player->blocks[i])
			player->n_again++;
		else
			player->blocks[i] = take(held, NULL);
	}
	while ((rest = take(held, NULL)))
		free_block(player, rest);
}

static int is_in(const char *page, const char *p)
{
	return p >= page && p < page + GPU_PAGE_BYTES;
}

/* Returns whether the page goes back: in PARTLY_MAPPED none that an operand of a move begins in. */
static int goes_back(const struct player *player, const char *page)
{
	uint32_t i;

	for (i = 0; i < MOVES && player->how == PARTLY_MAPPED; i++)
		if (is_in(page, player->moved[i].source) || is_in(page, player->moved[i].target))
			return 0;
	return 1;
}

/* Calls change for each page that goes back. */
static void each_page(struct player *player, void (*change)(struct gpu *gpu, void *page))
{
	uint32_t i, k;
	char *page;

	for (i = 0; i < BLOCKS; i++) {
		for (k = 0; k < PAGES; k++) {
			page = player->blocks[i] + k * GPU_PAGE_BYTES;
			if (goes_back(player, page))
				change(&player->rank->gpu, page);
		}
	}
}

static void map_again(struct player *player)
{
	each_page(player, gpu_unmap);
	each_page(player, gpu_map);
	player->n_again += BLOCKS;
}

/* Gives memory back and takes it again, and prints what the driver says of it: without that, a
 * result that is wrong later says little. */
static void take_again(struct player *player)
{
	struct gpu *gpu = &player->rank->gpu;
	uint64_t ids[BLOCKS];
	uint32_t i, n_known = 0, n_same = 0, n_before = player->n_again;

	for (i = 0; i < BLOCKS; i++)
		ids[i] = gpu_memory_id(gpu, player->blocks[i]);
	if (player->how == ALLOCATED)
		allocate_again(player);
	else
		map_again(player);
	for (i = 0; i < BLOCKS; i++) {
		n_known += ids[i] != 0;
		n_same += ids[i] && gpu_memory_id(gpu, player->blocks[i]) == ids[i];
	}
	printf("%s memory, rank %u: of %u blocks %u came again at their addresses; the driver "
	       "knew numbers of %u, and %u kept theirs\n", how_names[player->how],
	       player->rank->rank, BLOCKS, player->n_again - n_before, n_known, n_same);
	fflush(stdout);
	ck_assert(player->how != ALLOCATED || (n_known == BLOCKS && !n_same));
}

/* Puts each operator's operands into a block. */
static void use_blocks(struct player *player)
{
	struct gpu_op_rank *rank = player->rank;
	char *arena = rank->arena;
	uint32_t i;

	for (i = 0; i < BLOCKS; i++) {
		rank->arena = player->blocks[i];
		rank->used_bytes = 0;
		if (i < OP_SORTS)
			gpu_op_data_make(rank, &player->plain.cases[i], &player->plain.data[i]);
		else
			player->moved[i - OP_SORTS] = gpu_move_data_make(rank, &player->gather);
		ck_assert_uint_le(rank->used_bytes, BLOCK_BYTES);
	}
	rank->arena = arena;
	gpu_op_meet(rank);
}

/* One rank at a time: ranks that share a GPU would get each other's blocks. */
static void give_back(struct player *player)
{
	struct gpu_op_rank *rank = player->rank;
	uint32_t i;

	gpu_idle(&rank->gpu, GPU_CONSUME);
	for (i = 0; i < rank->rig->n_ranks; i++) {
		gpu_op_meet(rank);
		if (i == rank->rank)
			take_again(player);
	}
	gpu_op_meet(rank);
	use_blocks(player);
}

/* Graphs of operands that came at other addresses stay cached beside those of the new ones. */
static void check_graphs(const struct player *player, uint32_t round)
{
	uint32_t n_elsewhere = round * BLOCKS - player->n_again, n = n_graphs(player);

	if (player->knows_ids)
		ck_assert_uint_ge(n, gpu_op_n_graphs(&rig, HALVES * BLOCKS));
	ck_assert_uint_le(n, gpu_op_n_graphs(&rig, HALVES * (BLOCKS + n_elsewhere)));
}

static void play_over_memory(struct gpu_op_rank *rank, const void *arg)
{
	const struct gpu_op_mode mode = { "memory", 0, 0, 0 };
	struct player player = { .rank = rank, .how = *(const int *)arg };
	uint32_t i, k, round;

	player.workspace = gpu_op_workspace(rank, &mode);
	gpu_op_plain_make(rank, player.workspace, &player.plain);
	make_move(&player, OPERAND_BYTES);
	for (i = 0; i < BLOCKS; i++)
		player.blocks[i] = make_block(&player);
	player.knows_ids = gpu_memory_id(&rank->gpu, player.blocks[0]) != 0;
	use_blocks(&player);
	for (round = 0; round < MEMORY_ROUNDS; round++) {
		if (round)
			give_back(&player);
		for (k = 0; k < 4 * HALVES; k++) {
			play_round(&player, round * 4 * HALVES + k);
			check_round(&player, round * 4 * HALVES + k);
		}
		check_graphs(&player, round);
	}
	ck_assert_msg(player.n_again, "rank %u: no memory came again at an address that it had, "
		      "so this case tested nothing", rank->rank);
	gpu_op_plain_release(rank, &player.plain);
	ceov_op_release(player.move);
	for (i = 0; i < BLOCKS; i++)
		free_block(&player, player.blocks[i]);
	gpu_op_workspace_release(rank, player.workspace);
}

START_TEST(test_memory_comes_again)
{
	gpu_op_open(&rig, n_all);
	gpu_op_each(&rig, play_over_memory, &_i);
	gpu_op_close(&rig);
}
END_TEST

/* --- other cases --- */

/* Makes rounds while a kernel holds another stream: no call may wait for it, whether it queues
 * operations, makes a graph of them or launches one. */
static void play_beside_a_kernel(struct gpu_op_rank *rank, const void *arg)
{
	const struct gpu_op_mode mode = { "beside", 0, 0, 0 };
	struct player player = { .rank = rank };
	uint64_t begin, took;
	uint32_t k;

	(void)arg;
	player.workspace = gpu_op_workspace(rank, &mode);
	gpu_op_plain_make(rank, player.workspace, &player.plain);
	make_move(&player, MOVE_BYTES);
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
	const struct gpu_op_mode mode = { "again", 0, 0, 0 };
	struct player player = { .rank = rank };
	void *kept = rank->gpu.streams[GPU_CONSUME];

	player.workspace = gpu_op_workspace(rank, &mode);
	gpu_op_plain_make(rank, player.workspace, &player.plain);
	make_move(&player, MOVE_BYTES);
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
	const struct gpu_op_mode mode = { "anew", 0, 0, 0 };
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
	tcase_add_loop_test(all, test_memory_comes_again, 0, HOWS);
	if (gpu_n_sharing(n_all) == 1)
		tcase_add_test(all, test_no_call_waits_for_a_kernel);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return gpu_main_ranks(suite);
}
