/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* All-to-all with blocks of different sizes, some of them empty, within a node and between nodes:
 * every byte arrives at its place, nothing else is written, and all counters rise. */

#include <stddef.h>
#include <string.h>

#include <ceoverlap/collective.h>

#include "unit/nodes_rig.h"

#define RANKS     5u
#define PIECES    3u
#define LAUNCHES  4u
#define BLOCK_MAX 9000u
#define OFFSET    48u           /* of all blocks, in source and target */
#define BYTES     (OFFSET + RANKS * (BLOCK_MAX + 64u))
#define UNTOUCHED 0x5a

static struct {
	struct nodes      nodes;
	struct ceov_block blocks[RANKS][RANKS];         /* [source][target] */
	ceov_buffer      *source[RANKS];
	ceov_buffer      *target[RANKS][RANKS];         /* [finder][rank]; likewise below */
	ceov_signal      *arrived[RANKS][RANKS];
	ceov_signal      *free[RANKS][RANKS];
	ceov_plan        *plan[RANKS];
	ceov_ticket       ticket[RANKS];
} group;

/* From one rank to another; one block is empty, and one has a single byte. */
static uint64_t draw_size(uint32_t from, uint32_t to, uint64_t *random)
{
	if (from == 1 && to == 2)
		return 0;
	if (from == 3 && !to)
		return 1;
	return testing_below(random, 3) ? testing_below(random, BLOCK_MAX)
		: testing_below(random, 3) * 10;
}

/* Sizes at random; blocks lie in an order that is not that of ranks, with gaps. */
static void draw_blocks(uint64_t *random)
{
	uint64_t at_target[RANKS] = { 0 }, at_source;
	struct ceov_block *block;
	uint32_t i, k;

	for (i = RANKS; i-- > 0; ) {
		at_source = 0;
		for (k = RANKS; k-- > 0; ) {
			block = &group.blocks[i][k];
			block->bytes = draw_size(i, k, random);
			block->source_offset_bytes = at_source;
			block->target_offset_bytes = at_target[k];
			at_source += block->bytes + testing_below(random, 64);
			at_target[k] += block->bytes + testing_below(random, 64);
		}
	}
}

static void make_memory(uint32_t rank)
{
	struct nodes *nodes = &group.nodes;

	group.source[rank] = testing_buffer(nodes_context(nodes, rank), rank, BYTES);
	group.target[rank][rank] = nodes_buffer(nodes, rank, "target", BYTES);
	group.arrived[rank][rank] = nodes_signal(nodes, rank, "arrived", RANKS * PIECES);
	group.free[rank][rank] = nodes_signal(nodes, rank, "free", RANKS * PIECES);
}

static void find(uint32_t finder, uint32_t rank)
{
	struct nodes *nodes = &group.nodes;

	if (nodes->node_of[finder] == nodes->node_of[rank]) {
		group.target[finder][rank] = group.target[rank][rank];
		group.arrived[finder][rank] = group.arrived[rank][rank];
		group.free[finder][rank] = group.free[rank][rank];
		return;
	}
	group.target[finder][rank] = nodes_find_buffer(nodes, finder, rank, "target");
	group.arrived[finder][rank] = nodes_find_signal(nodes, finder, rank, "arrived");
	group.free[finder][rank] = nodes_find_signal(nodes, finder, rank, "free");
}

static struct ceov_all_to_all exchange_of(uint32_t rank)
{
	struct ceov_all_to_all exchange = { .struct_bytes = sizeof(exchange) };

	exchange.n_pieces = PIECES;
	exchange.source = group.source[rank];
	exchange.source_offset_bytes = OFFSET;
	exchange.targets = group.target[rank];
	exchange.target_offset_bytes = OFFSET;
	exchange.arrived = group.arrived[rank];
	exchange.free = group.free[rank];
	exchange.blocks = group.blocks[rank];
	return exchange;
}

static void open_group(void)
{
	static const uint32_t node_of[RANKS] = { 0, 0, 1, 1, 1 };
	uint32_t i, k;

	memset(&group, 0, sizeof(group));
	nodes_open_mixed(&group.nodes, 2, RANKS, node_of);
	for (i = 0; i < RANKS; i++)
		make_memory(i);
	for (i = 0; i < RANKS; i++) {
		for (k = 0; k < RANKS; k++)
			if (k != i)
				find(i, k);
		group.plan[i] = testing_plan(nodes_context(&group.nodes, i), i);
	}
}

static uint64_t seed_of(uint32_t from, uint32_t to, uint64_t base)
{
	return testing_seed() + base * UINT64_C(1000003) + from * 1009 + to * 31;
}

static void send(uint32_t rank, uint64_t base)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch), .base = base };
	uint8_t *source = ceov_buffer_base(group.source[rank], rank);
	const struct ceov_block *block;
	uint32_t i;

	for (i = 0; i < RANKS; i++) {
		block = &group.blocks[rank][i];
		testing_fill(source + OFFSET + block->source_offset_bytes, block->bytes,
			     seed_of(rank, i, base));
	}
	ck_assert_int_eq(ceov_launch(group.plan[rank], &launch, &group.ticket[rank]), 0);
}

/* Takes each block out of the expected image of the target, and checks that only blocks were
 * written. */
static void take(uint32_t rank, uint64_t base)
{
	uint8_t *target = ceov_buffer_base(group.target[rank][rank], rank), *place;
	const struct ceov_block *block;
	uint32_t i;

	for (i = 0; i < RANKS * PIECES; i++)
		nodes_await(group.arrived[rank][rank], i, base + 1);
	for (i = 0; i < RANKS; i++) {
		block = &group.blocks[i][rank];
		place = target + OFFSET + block->target_offset_bytes;
		ck_assert_uint_eq(testing_check(place, block->bytes, seed_of(i, rank, base)),
				  block->bytes);
		memset(place, UNTOUCHED, block->bytes);
	}
	ck_assert_uint_eq(testing_check_same(target, BYTES, UNTOUCHED), BYTES);
	for (i = 0; i < RANKS * PIECES; i++)
		ck_assert_int_eq(ceov_signal_raise(group.free[rank][rank], i, base + 1), 0);
}

START_TEST(test_uneven_blocks)
{
	uint64_t random = testing_seed() + (uint64_t)_i, base;
	struct ceov_all_to_all exchange;
	uint32_t i;

	open_group();
	draw_blocks(&random);
	for (i = 0; i < RANKS; i++) {
		exchange = exchange_of(i);
		ck_assert_int_eq(ceov_plan_add_all_to_all(group.plan[i], &exchange), 0);
		ck_assert_int_eq(ceov_plan_commit(group.plan[i]), 0);
		memset(ceov_buffer_base(group.target[i][i], i), UNTOUCHED, BYTES);
	}
	for (base = 0; base < testing_share(LAUNCHES); base++) {
		for (i = 0; i < RANKS; i++)
			send(i, base);
		for (i = 0; i < RANKS; i++)
			take(i, base);
		for (i = 0; i < RANKS; i++)
			ck_assert_int_eq(ceov_wait(nodes_context(&group.nodes, i),
						   group.ticket[i], TESTING_PATIENCE), 0);
	}
	nodes_close(&group.nodes);
}
END_TEST

static void refused(const struct ceov_all_to_all *exchange, const char *words)
{
	struct ceov_failure failure;

	ck_assert_int_eq(ceov_plan_add_all_to_all(group.plan[0], exchange), CEOV_ERR_INVALID);
	failure = testing_failure(nodes_context(&group.nodes, 0));
	ck_assert_msg(strstr(failure.text, words) != NULL, "%s", failure.text);
}

START_TEST(test_refusals)
{
	struct ceov_all_to_all exchange;

	open_group();
	exchange = exchange_of(0);
	exchange.block_bytes = 16;
	refused(&exchange, "block_bytes must be 0");
	exchange.block_bytes = 0;
	group.blocks[0][3].target_offset_bytes = UINT64_MAX - 8;
	refused(&exchange, "rank 3: the size or offset of its block overflows");
	group.blocks[0][3].target_offset_bytes = 0;
	exchange.blocks = NULL;
	refused(&exchange, "no bytes or no pieces");
	/* a caller with an older header has no blocks, whatever lies behind its struct */
	exchange.blocks = group.blocks[0];
	exchange.struct_bytes = offsetof(struct ceov_all_to_all, blocks);
	refused(&exchange, "no bytes or no pieces");
	exchange.block_bytes = 16;
	exchange.n_pieces = 1;
	ck_assert_int_eq(ceov_plan_add_all_to_all(group.plan[0], &exchange), 0);
	nodes_close(&group.nodes);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("blocks");
	TCase *all = tcase_create("blocks");

	tcase_set_timeout(all, 60);
	tcase_add_loop_test(all, test_uneven_blocks, 0, 5);
	tcase_add_test(all, test_refusals);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
