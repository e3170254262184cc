/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests the table of the graphs that repeated runs use, with fake graphs. */

#include <check.h>
#include <stdlib.h>

#include "ops/core/op.h"
#include "ops/core/graph_cache.h"
#include "testing.h"

#define N_OPS 3u

static struct cei_graph_cache *replays;
static ceov_op ops[N_OPS];
static struct cei_graph_memory memory;          /* of all runs */

static void set_up(void)
{
	replays = calloc(1, sizeof(*replays));
	memory = (struct cei_graph_memory){ { 0 } };
	ck_assert_ptr_nonnull(replays);
}

static void tear_down(void)
{
	free(replays);
}

/* Makes operands from numbers instead of addresses. */
static struct ceov_reduce_run operands_of(uint64_t number)
{
	const struct ceov_reduce_run operands = {
		.struct_bytes = sizeof(operands),
		.stream = (void *)(uintptr_t)1,
		.source = (const void *)(uintptr_t)(number << 8),
		.target = (void *)(uintptr_t)(number << 8 | 16),
	};

	return operands;
}

static struct cei_graph_entry *see(uint32_t op, uint32_t half, uint64_t number,
				   void **ret_dropped)
{
	struct ceov_reduce_run operands = operands_of(number);
	const struct cei_graph_key key = {
		&ops[op], half, sizeof(operands), &operands, &memory
	};

	return cei_graph_cache_see(replays, &key, ret_dropped);
}

static struct cei_graph_entry *see_kept(uint32_t op, uint32_t half, uint64_t number)
{
	void *dropped;
	struct cei_graph_entry *entry = see(op, half, number, &dropped);

	ck_assert_ptr_null(dropped);
	return entry;
}

START_TEST(test_the_same_run_is_known_again)
{
	struct cei_graph_entry *entry;
	uint32_t i;

	for (i = 1; i < 5; i++) {
		entry = see_kept(0, 1, 7);
		ck_assert_uint_eq(entry->n_seen, i);
		ck_assert_ptr_eq(entry->graph, i > 1 ? replays : NULL);
		entry->graph = replays;
	}
	ck_assert_uint_eq(replays->n, 1);
}
END_TEST

START_TEST(test_what_is_different_is_another)
{
	ck_assert_uint_eq(see_kept(0, 0, 1)->n_seen, 1);
	ck_assert_uint_eq(see_kept(1, 0, 1)->n_seen, 1);
	ck_assert_uint_eq(see_kept(0, 1, 1)->n_seen, 1);
	ck_assert_uint_eq(see_kept(0, 0, 2)->n_seen, 1);
	ck_assert_uint_eq(replays->n, 4);
	ck_assert_uint_eq(see_kept(0, 0, 1)->n_seen, 2);
}
END_TEST

/* Another run's operands begin with the same bytes. */
START_TEST(test_a_shorter_run_is_another)
{
	struct ceov_reduce_run operands = operands_of(1);
	const struct cei_graph_key key = {
		&ops[0], 0, sizeof(operands) - sizeof(void *), &operands, &memory
	};
	void *dropped;

	ck_assert_uint_eq(see_kept(0, 0, 1)->n_seen, 1);
	ck_assert_uint_eq(cei_graph_cache_see(replays, &key, &dropped)->n_seen, 1);
}
END_TEST

/* The operands' addresses stay, but one of them is another allocation's now. */
START_TEST(test_memory_that_comes_again_is_another)
{
	struct cei_graph_entry *entry = see_kept(0, 0, 1);
	void *dropped;

	entry->graph = replays;
	memory.ids[CEI_OPERANDS_MAX - 1] = 5;
	ck_assert_ptr_eq(see(0, 0, 1, &dropped), entry);
	ck_assert_ptr_eq(dropped, replays);
	ck_assert_ptr_null(entry->graph);
	ck_assert_uint_eq(entry->n_seen, 1);
	ck_assert_uint_eq(replays->n, 1);
	entry->graph = replays;
	ck_assert_uint_eq(see_kept(0, 0, 1)->n_seen, 2);
	ck_assert_ptr_eq(entry->graph, replays);
}
END_TEST

START_TEST(test_operands_that_are_too_long_are_not_kept)
{
	static const char operands[CEI_GRAPH_OPERANDS_MAX + 8];
	const struct cei_graph_key key = { &ops[0], 0, sizeof(operands), operands, &memory };
	void *dropped = replays;

	ck_assert_ptr_null(cei_graph_cache_see(replays, &key, &dropped));
	ck_assert_ptr_null(dropped);
	ck_assert_uint_eq(replays->n, 0);
}
END_TEST

static void fill_table(void)
{
	uint64_t i;

	for (i = 0; i < CEI_GRAPH_CACHE_MAX; i++) {
		struct cei_graph_entry *entry = see_kept(0, 0, i);

		ck_assert_ptr_nonnull(entry);
		entry->graph = &replays->entries[i];
	}
}

/* When the cache is full, new runs do not replace the cached ones. */
START_TEST(test_there_is_an_end_of_room)
{
	uint64_t i;

	fill_table();
	for (i = 0; i < 3 * CEI_GRAPH_CACHE_MAX; i++) {
		ck_assert_ptr_null(see_kept(0, 1, i));
		ck_assert_ptr_nonnull(see_kept(0, 0, i % CEI_GRAPH_CACHE_MAX)->graph);
	}
	ck_assert_uint_eq(replays->n, CEI_GRAPH_CACHE_MAX);
}
END_TEST

START_TEST(test_what_was_not_seen_for_long_gives_way)
{
	struct cei_graph_entry *entry;
	uint64_t i, old = 5 * (uint64_t)_i;
	void *dropped;

	fill_table();
	for (i = 0; i < CEI_GRAPH_CACHE_STALE - CEI_GRAPH_CACHE_MAX + old; i++) /* all but `old` */
		(void)see_kept(0, 0, (old + 1 + i % (CEI_GRAPH_CACHE_MAX - 1)) %
			       CEI_GRAPH_CACHE_MAX);
	entry = see(0, 1, 0, &dropped);
	ck_assert_ptr_eq(dropped, &replays->entries[old]);
	ck_assert_ptr_nonnull(entry);
	ck_assert_ptr_null(entry->graph);
	ck_assert_uint_eq(entry->n_seen, 1);
	ck_assert_ptr_null(see_kept(0, 1, 1));  /* the oldest entry now was used later */
	ck_assert_ptr_null(see_kept(0, 0, old));
}
END_TEST

/* Returns how many entries were dropped, of one op or, with NULL, of all. */
static uint32_t forget(const ceov_op *op)
{
	uint32_t n = 0;
	void *graph;

	while (cei_graph_cache_forget(replays, op, &graph))
		n += graph == replays;
	return n;
}

START_TEST(test_an_op_is_forgotten)
{
	uint64_t i;

	for (i = 0; i < 30; i++)
		see_kept((uint32_t)i % N_OPS, 0, i)->graph = i < 24 ? replays : NULL;
	ck_assert_uint_eq(forget(&ops[1]), 8);
	ck_assert_uint_eq(replays->n, 20);
	ck_assert_uint_eq(see_kept(1, 0, 1)->n_seen, 1);
	ck_assert_uint_eq(see_kept(2, 0, 2)->n_seen, 2);
	ck_assert_uint_eq(forget(NULL), 16);
	ck_assert_uint_eq(replays->n, 0);
}
END_TEST

int main(void)
{
	Suite *made = suite_create("replays");
	TCase *all = tcase_create("replays");

	tcase_add_checked_fixture(all, set_up, tear_down);
	tcase_add_test(all, test_the_same_run_is_known_again);
	tcase_add_test(all, test_what_is_different_is_another);
	tcase_add_test(all, test_a_shorter_run_is_another);
	tcase_add_test(all, test_memory_that_comes_again_is_another);
	tcase_add_test(all, test_operands_that_are_too_long_are_not_kept);
	tcase_add_test(all, test_there_is_an_end_of_room);
	tcase_add_loop_test(all, test_what_was_not_seen_for_long_gives_way, 0, 2);
	tcase_add_test(all, test_an_op_is_forgotten);
	suite_add_tcase(made, all);
	return testing_run(made);
}
