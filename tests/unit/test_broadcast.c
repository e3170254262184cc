/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Broadcasts over one node and several, over a simulated network with delays: every byte of every
 * launch reaches every rank but the root, and each rank knows only ranks to which it may send. */

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include <ceoverlap/collective.h>

#include "unit/nodes_rig.h"

#define GUARD     64u           /* bytes around targets that must stay untouched */
#define UNTOUCHED 0xa5
#define LAUNCHES  2u

struct layout {
	uint32_t n_nodes;
	uint32_t n_ranks;
	uint32_t node_of[NODES_RANKS_MAX];
};

static const struct layout layouts[] = {
	{ 1, 4, { 0, 0, 0, 0 } },
	{ 2, 4, { 0, 0, 1, 1 } },
	{ 3, 6, { 0, 0, 1, 1, 2, 2 } },
	{ 4, 4, { 0, 1, 2, 3 } },
	{ 2, 4, { 0, 0, 0, 1 } },
	{ 3, 8, { 0, 1, 0, 2, 1, 0, 0, 2 } },
};
#define N_LAYOUTS (sizeof(layouts) / sizeof(layouts[0]))

static struct {
	struct nodes  nodes;
	struct layout layout;
	uint32_t      root;
	uint32_t      n_pieces;
	uint64_t      bytes;
	ceov_buffer  *source;
	ceov_signal  *ready;
	ceov_buffer  *targets[NODES_RANKS_MAX][NODES_RANKS_MAX];        /* [finder][rank] */
	ceov_signal  *arrived[NODES_RANKS_MAX][NODES_RANKS_MAX];
	ceov_signal  *free[NODES_RANKS_MAX][NODES_RANKS_MAX];
	ceov_plan    *plan[NODES_RANKS_MAX];
	ceov_ticket   ticket[NODES_RANKS_MAX];
} group;

static uint32_t index_of(uint32_t rank)
{
	uint32_t i, n = 0;

	for (i = 0; i < rank; i++)
		n += group.layout.node_of[i] == group.layout.node_of[rank];
	return n;
}

static uint32_t n_beside(uint32_t rank)
{
	uint32_t i, n = 0;

	for (i = 0; i < group.layout.n_ranks; i++)
		n += group.layout.node_of[i] == group.layout.node_of[rank];
	return n;
}

static int is_beside(uint32_t a, uint32_t b)
{
	return group.layout.node_of[a] == group.layout.node_of[b];
}

/* Neighbours; and from the root's node, one rank of each other node. */
static int needs(uint32_t finder, uint32_t rank)
{
	if (is_beside(finder, rank))
		return rank != group.root;
	return is_beside(finder, group.root) &&
		index_of(finder) % n_beside(rank) == index_of(rank);
}

/* Those to whom the finder's node sends on what the finder sends: all ranks of other nodes. */
static int needs_free(uint32_t finder, uint32_t rank)
{
	return needs(finder, rank) || (is_beside(finder, group.root) && rank != group.root);
}

static void make_memory(uint32_t rank)
{
	struct nodes *nodes = &group.nodes;
	uint64_t all = group.bytes + 2 * GUARD;

	group.targets[rank][rank] = nodes_buffer(nodes, rank, "target", all);
	memset(ceov_buffer_base(group.targets[rank][rank], rank), UNTOUCHED, all);
	group.arrived[rank][rank] = nodes_signal(nodes, rank, "arrived", group.n_pieces);
	group.free[rank][rank] = nodes_signal(nodes, rank, "free", group.n_pieces);
}

static void find(uint32_t finder, uint32_t rank)
{
	struct nodes *nodes = &group.nodes;

	if (is_beside(finder, rank)) {
		group.targets[finder][rank] = group.targets[rank][rank];
		group.arrived[finder][rank] = group.arrived[rank][rank];
		group.free[finder][rank] = group.free[rank][rank];
		return;
	}
	if (needs(finder, rank)) {
		group.targets[finder][rank] = nodes_find_buffer(nodes, finder, rank, "target");
		group.arrived[finder][rank] = nodes_find_signal(nodes, finder, rank, "arrived");
	}
	group.free[finder][rank] = nodes_find_signal(nodes, finder, rank, "free");
}

static struct ceov_broadcast broadcast_of(uint32_t rank)
{
	struct ceov_broadcast broadcast = { .struct_bytes = sizeof(broadcast) };

	broadcast.bytes = group.bytes;
	broadcast.n_pieces = group.n_pieces;
	broadcast.root = group.root;
	if (rank == group.root) {
		broadcast.source = group.source;
		broadcast.source_offset_bytes = 32;
		broadcast.ready = group.ready;
	}
	broadcast.targets = group.targets[rank];
	broadcast.target_offset_bytes = GUARD;
	broadcast.arrived = group.arrived[rank];
	broadcast.free = group.free[rank];
	return broadcast;
}

static void open_group(const struct layout *layout, uint32_t root, uint32_t n_pieces,
		       uint64_t bytes)
{
	uint32_t i, k;

	memset(&group, 0, sizeof(group));
	group.layout = *layout;
	group.root = root;
	group.n_pieces = n_pieces;
	group.bytes = bytes;
	nodes_open_mixed(&group.nodes, layout->n_nodes, layout->n_ranks, layout->node_of);
	group.source = testing_buffer(nodes_context(&group.nodes, root), root, bytes + 32);
	group.ready = testing_signal(nodes_context(&group.nodes, root), root, n_pieces);
	for (i = 0; i < layout->n_ranks; i++)
		make_memory(i);
	for (i = 0; i < layout->n_ranks; i++) {
		for (k = 0; k < layout->n_ranks; k++)
			if (k != i && needs_free(i, k))
				find(i, k);
		group.plan[i] = testing_plan(nodes_context(&group.nodes, i), i);
	}
}

static void commit_all(void)
{
	struct ceov_broadcast broadcast;
	uint32_t i;

	for (i = 0; i < group.layout.n_ranks; i++) {
		broadcast = broadcast_of(i);
		ck_assert_int_eq(ceov_plan_add_broadcast(group.plan[i], &broadcast), 0);
		ck_assert_int_eq(ceov_plan_commit(group.plan[i]), 0);
	}
}

static uint64_t seed_of(uint64_t base)
{
	return testing_seed() + base * UINT64_C(1000003);
}

/* Checks what the rank got, and overwrites it. */
static void take(uint32_t rank, uint64_t base)
{
	uint8_t *target = ceov_buffer_base(group.targets[rank][rank], rank);
	uint64_t i;

	if (rank != group.root) {
		ck_assert_uint_eq(testing_check(target + GUARD, group.bytes, seed_of(base)),
				  group.bytes);
		memset(target + GUARD, UNTOUCHED, group.bytes);
	}
	ck_assert_uint_eq(testing_check_same(target, group.bytes + 2 * GUARD, UNTOUCHED),
			  group.bytes + 2 * GUARD);
	for (i = 0; i < group.n_pieces; i++)
		ck_assert_int_eq(ceov_signal_raise(group.free[rank][rank], (uint32_t)i,
						   base + 1), 0);
}

static void run_launch(uint64_t base)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch), .base = base };
	uint8_t *source = ceov_buffer_base(group.source, group.root);
	uint32_t i, k;

	for (i = 0; i < group.layout.n_ranks; i++)
		ck_assert_int_eq(ceov_launch(group.plan[i], &launch, &group.ticket[i]), 0);
	testing_fill(source + 32, group.bytes, seed_of(base));
	for (k = 0; k < group.n_pieces; k++)
		ck_assert_int_eq(ceov_signal_raise(group.ready, k, base + 1), 0);
	for (i = 0; i < group.layout.n_ranks; i++)
		for (k = 0; i != group.root && k < group.n_pieces; k++)
			nodes_await(group.arrived[i][i], k, base + 1);
	for (i = 0; i < group.layout.n_ranks; i++)
		ck_assert_int_eq(ceov_wait(nodes_context(&group.nodes, i), group.ticket[i],
					   TESTING_PATIENCE), 0);
	for (i = 0; i < group.layout.n_ranks; i++)
		take(i, base);
}

/* A size of which each of the pieces, which are rounded up to 16 bytes, has at least one byte: a
 * broadcast with an empty piece is refused. */
static uint64_t any_bytes(uint64_t *random, uint32_t n_pieces)
{
	return 16 * n_pieces * n_pieces + testing_below(random, 30000);
}

START_TEST(test_every_layout_and_root)
{
	const struct layout *layout = &layouts[_i];
	uint64_t random = testing_seed() + (uint64_t)_i, base;
	uint32_t step = layout->n_ranks / testing_share(layout->n_ranks);
	uint32_t root, n_pieces;

	for (root = 0; root < layout->n_ranks; root += step) {
		n_pieces = 1 + (uint32_t)testing_below(&random, 6);
		open_group(layout, root, n_pieces, any_bytes(&random, n_pieces));
		commit_all();
		nodes_delay(&group.nodes, &random);
		for (base = 0; base < testing_share(LAUNCHES); base++)
			run_launch(base);
		nodes_close(&group.nodes);
	}
}
END_TEST

static void launch(uint32_t rank)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch) };

	ck_assert_int_eq(ceov_launch(group.plan[rank], &launch, &group.ticket[rank]), 0);
}

/* Of two pieces, rank 0 sends the first one to the other node, and rank 1, which has not launched
 * its plan at first, the second one. */
START_TEST(test_pieces_are_dealt_to_the_ranks_of_the_node)
{
	uint64_t value;
	uint32_t i;

	open_group(&layouts[1], 0, 2, 4096);
	commit_all();
	testing_fill((uint8_t *)ceov_buffer_base(group.source, 0) + 32, group.bytes, 1);
	for (i = 0; i < 2; i++)
		ck_assert_int_eq(ceov_signal_raise(group.ready, i, 1), 0);
	for (i = 0; i < 4; i++)
		if (i != 1)
			launch(i);
	nodes_await(group.arrived[1][1], 1, 1);
	for (i = 1; i < 4; i++)
		nodes_await(group.arrived[i][i], 0, 1);
	usleep(20000);
	for (i = 2; i < 4; i++) {
		ck_assert_int_eq(ceov_signal_value(group.arrived[i][i], 1, &value), 0);
		ck_assert_uint_eq(value, 0);
	}
	launch(1);
	for (i = 0; i < 4; i++)
		ck_assert_int_eq(ceov_wait(nodes_context(&group.nodes, i), group.ticket[i],
					   TESTING_PATIENCE), 0);
	nodes_close(&group.nodes);
}
END_TEST

/* Rank 1, to which the root gives the second piece, has freed it, but rank 2 has not, to which rank
 * 1 has still to send the first launch's piece. So the root keeps the next one. */
START_TEST(test_a_piece_stays_until_its_carrier_has_sent_it_on)
{
	struct ceov_launch later = { .struct_bytes = sizeof(later), .base = 1 };
	uint64_t value;
	uint32_t i;

	open_group(&layouts[0], 0, 2, 4096);
	commit_all();
	launch(0);
	for (i = 0; i < 2; i++)
		ck_assert_int_eq(ceov_signal_raise(group.ready, i, 1), 0);
	ck_assert_int_eq(ceov_wait(nodes_context(&group.nodes, 0), group.ticket[0],
				   TESTING_PATIENCE), 0);
	for (i = 0; i < 2; i++)
		ck_assert_int_eq(ceov_signal_raise(group.free[1][1], i, 1), 0);
	ck_assert_int_eq(ceov_launch(group.plan[0], &later, &group.ticket[0]), 0);
	for (i = 0; i < 2; i++)
		ck_assert_int_eq(ceov_signal_raise(group.ready, i, 2), 0);
	nodes_await(group.arrived[1][1], 0, 2);
	usleep(20000);
	ck_assert_int_eq(ceov_signal_value(group.arrived[1][1], 1, &value), 0);
	ck_assert_uint_eq(value, 1);
	for (i = 0; i < 4; i++)
		ck_assert_int_eq(ceov_signal_raise(group.free[2 + i / 2][2 + i / 2], i % 2, 1), 0);
	ck_assert_int_eq(ceov_wait(nodes_context(&group.nodes, 0), group.ticket[0],
				   TESTING_PATIENCE), 0);
	nodes_close(&group.nodes);
}
END_TEST

static void refused(uint32_t rank, const struct ceov_broadcast *wrong, const char *words)
{
	struct ceov_failure failure;

	ck_assert_int_eq(ceov_plan_add_broadcast(group.plan[rank], wrong), CEOV_ERR_INVALID);
	failure = testing_failure(nodes_context(&group.nodes, rank));
	ck_assert_msg(strstr(failure.text, words) != NULL, "%s", failure.text);
}

START_TEST(test_refusals)
{
	struct ceov_broadcast wrong;

	/* rank 1 sends to rank 3, rank 3 to rank 2 */
	open_group(&layouts[1], 0, 4, 4096);
	wrong = broadcast_of(0);
	wrong.root = 4;
	refused(0, &wrong, "rank 4: the root is no rank of the group");
	wrong = broadcast_of(0);
	wrong.bytes = 0;
	refused(0, &wrong, "no bytes or no pieces");
	wrong = broadcast_of(0);
	wrong.bytes = 48;
	refused(0, &wrong, "more pieces than there are bytes for");
	wrong = broadcast_of(1);
	group.targets[1][3] = NULL;
	refused(1, &wrong, "rank 3: no target buffer");
	wrong = broadcast_of(3);
	group.arrived[3][3] = NULL;
	refused(3, &wrong, "rank 3: its arrived signal is missing");
	group.free[3][2] = NULL;
	refused(3, &wrong, "rank 2: its free signal is missing");
	nodes_close(&group.nodes);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("broadcast");
	TCase *all = tcase_create("broadcast");

	tcase_set_timeout(all, 60);
	tcase_add_loop_test(all, test_every_layout_and_root, 0, N_LAYOUTS);
	tcase_add_test(all, test_pieces_are_dealt_to_the_ranks_of_the_node);
	tcase_add_test(all, test_a_piece_stays_until_its_carrier_has_sent_it_on);
	tcase_add_test(all, test_refusals);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
