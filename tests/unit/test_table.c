/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The hash table of embedded nodes. */

#include <check.h>

#include "base/table.h"
#include "testing.h"

#define NODES 3000u
#define KEYS  1000u             /* fewer: some nodes have the same */

static uint32_t n_with(const struct cei_table *table, uint64_t key)
{
	const struct cei_table_node *node;
	uint32_t n = 0;

	for (node = cei_table_first(table, key); node; node = cei_table_next(node))
		n++;
	return n;
}

START_TEST(test_nodes_are_found_by_their_keys_until_they_are_removed)
{
	static struct cei_table_node nodes[NODES];
	uint32_t i, key, n = 0, n_of[KEYS] = { 0 };
	uint8_t is_in[NODES] = { 0 };
	struct cei_table table = { 0 };
	uint64_t state = testing_seed();

	ck_assert_ptr_eq(cei_table_first(&table, 1), NULL);
	for (i = 0; i < 10 * NODES; i++) {
		struct cei_table_node *node = &nodes[testing_below(&state, NODES)];
		uint8_t *is_here = &is_in[node - nodes];

		ck_assert_int_eq(cei_table_reserve(&table, 1), 0);
		key = (uint32_t)testing_below(&state, KEYS);
		if (*is_here) {
			key = (uint32_t)(node->key / 7);
			cei_table_remove(&table, node);
		} else {
			cei_table_add(&table, node, key * UINT64_C(7));
		}
		n_of[key] += *is_here ? UINT32_MAX : 1;
		n += *is_here ? UINT32_MAX : 1;
		*is_here = !*is_here;
		ck_assert_uint_eq(n_with(&table, key * UINT64_C(7)), n_of[key]);
		ck_assert_uint_eq(table.n, n);
	}
	ck_assert_uint_ge(table.n_slots, table.n);
	for (key = 0; key < KEYS; key++)
		ck_assert_uint_eq(n_with(&table, key * UINT64_C(7)), n_of[key]);
	cei_table_fini(&table);
}
END_TEST

START_TEST(test_a_node_that_is_in_no_table_may_be_removed)
{
	struct cei_table_node in = { 0 }, out = { 0 };
	struct cei_table table = { 0 };

	cei_table_remove(&table, &out);
	ck_assert_int_eq(cei_table_reserve(&table, 1), 0);
	cei_table_add(&table, &in, 0);
	cei_table_remove(&table, &out);
	ck_assert_uint_eq(table.n, 1);
	ck_assert_ptr_eq(cei_table_first(&table, 0), &in);
	cei_table_fini(&table);
}
END_TEST

/* Without room for growing, too: the table is only slower then. */
START_TEST(test_more_nodes_than_there_was_room_for_are_found)
{
	static struct cei_table_node nodes[NODES];
	struct cei_table table = { 0 };
	uint32_t i, n_found = 0;

	ck_assert_int_eq(cei_table_reserve(&table, 1), 0);
	for (i = 0; i < NODES; i++)
		cei_table_add(&table, &nodes[i], cei_table_key(i, 3));
	for (i = 0; i < NODES; i++)
		n_found += cei_table_first(&table, cei_table_key(i, 3)) == &nodes[i];
	ck_assert_uint_eq(n_found, NODES);
	ck_assert_int_eq(cei_table_reserve(&table, 1), 0);
	ck_assert_uint_gt(table.n_slots, NODES);
	ck_assert_ptr_eq(cei_table_first(&table, cei_table_key(5, 3)), &nodes[5]);
	cei_table_fini(&table);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("table");
	TCase *tcase = tcase_create("table");

	tcase_add_test(tcase, test_nodes_are_found_by_their_keys_until_they_are_removed);
	tcase_add_test(tcase, test_a_node_that_is_in_no_table_may_be_removed);
	tcase_add_test(tcase, test_more_nodes_than_there_was_room_for_are_found);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
