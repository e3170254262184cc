/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The roster of a group on one node: processes are numbered in the order of their lowest ranks,
 * whatever the order of links and of a process's ranks. */

#include "net/node_meet.h"

#include "testing.h"

/* Ranks 4 and 1; 0, 5 and 3; 2. */
static const struct cei_party parties[3] = {
	{ 2, { 4, 1 } }, { 3, { 5, 0, 3 } }, { 1, { 2 } },
};
static const uint32_t numbers[3] = { 1, 0, 2 };
static const uint32_t lowest[3] = { 1, 0, 2 };

static void assert_roster(const struct cei_roster *roster, uint32_t own)
{
	uint32_t i, j;

	ck_assert_uint_eq(roster->n_ranks, 6);
	ck_assert_uint_eq(roster->n_processes, 3);
	ck_assert_uint_eq(roster->n_nodes, 1);
	ck_assert_uint_eq(roster->own, numbers[own]);
	ck_assert_uint_eq(roster->node_at[0], 0);
	ck_assert_uint_eq(roster->node_at[1], 3);
	for (i = 0; i < 3; i++) {
		ck_assert_uint_eq(roster->node_of[i], 0);
		ck_assert_uint_eq(roster->in_node[i], i);
		ck_assert_uint_eq(roster->first_rank[numbers[i]], lowest[i]);
		for (j = 0; j < parties[i].n_ranks; j++)
			ck_assert_uint_eq(roster->process_of[parties[i].ranks[j]], numbers[i]);
	}
}

START_TEST(test_processes_are_numbered_by_their_lowest_ranks)
{
	struct cei_links links = { .n_links = 0 };
	struct cei_site site = { .n_ranks = 6 };
	struct cei_node_roster roster;
	uint32_t own = (uint32_t)_i, i;

	site.n_members = parties[own].n_ranks;
	for (i = 0; i < site.n_members; i++)
		site.members[i].rank = parties[own].ranks[i];
	for (i = 3; i-- > 0;)
		if (i != own)
			links.links[links.n_links++].party = parties[i];
	cei_node_roster_make(&site, &links, &roster);
	assert_roster(&roster.roster, own);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("node_roster");
	TCase *all = tcase_create("node_roster");

	tcase_add_loop_test(all, test_processes_are_numbered_by_their_lowest_ranks, 0, 3);
	suite_add_tcase(suite, all);
	return testing_run(suite);
}
