/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Sets of ranks, also at word boundaries. */

#include "base/rank_set.h"
#include "testing.h"

START_TEST(test_every_rank_by_itself)
{
	struct cei_rank_set set = { { 0 } };
	uint32_t rank, other;

	for (rank = 0; rank < CEI_RANKS_MAX; rank += rank % 4096 == 130 ? 3900 : 1) {
		cei_rank_set_add(&set, rank);
		ck_assert(cei_rank_set_has(&set, rank));
		for (other = rank + 1; other < CEI_RANKS_MAX && other <= rank + 64; other++)
			ck_assert(!cei_rank_set_has(&set, other));
		ck_assert(!rank || !cei_rank_set_has(&set, rank - 1));
		cei_rank_set_remove(&set, rank);
		ck_assert(!cei_rank_set_has(&set, rank));
	}
}
END_TEST

START_TEST(test_ranks_that_cannot_be_are_never_in)
{
	struct cei_rank_set set = { { 0 } };

	cei_rank_set_add(&set, CEI_RANKS_MAX);
	cei_rank_set_add(&set, UINT32_MAX);
	ck_assert(!cei_rank_set_has(&set, CEI_RANKS_MAX));
	ck_assert(!cei_rank_set_has(&set, UINT32_MAX));
	ck_assert_uint_eq(cei_rank_set_missing(&set, 0, CEI_RANKS_MAX), 0);
	cei_rank_set_remove(&set, UINT32_MAX);
}
END_TEST

START_TEST(test_what_is_missing)
{
	struct cei_rank_set set = { { 0 } };
	uint32_t rank;

	for (rank = 0; rank < CEI_RANKS_MAX; rank++)
		cei_rank_set_add(&set, rank);
	ck_assert_uint_eq(cei_rank_set_missing(&set, 0, CEI_RANKS_MAX), CEI_RANKS_MAX);
	cei_rank_set_remove(&set, 5);
	cei_rank_set_remove(&set, CEI_RANKS_MAX - 1);
	ck_assert_uint_eq(cei_rank_set_missing(&set, 0, CEI_RANKS_MAX), 5);
	ck_assert_uint_eq(cei_rank_set_missing(&set, 6, CEI_RANKS_MAX), CEI_RANKS_MAX - 1);
	ck_assert_uint_eq(cei_rank_set_missing(&set, 6, CEI_RANKS_MAX - 1),
			  CEI_RANKS_MAX - 1);
	ck_assert_uint_eq(cei_rank_set_missing(&set, 0, 5), 5);
	ck_assert_uint_eq(cei_rank_set_missing(&set, 9, 5), 5);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("rank set");
	TCase *all = tcase_create("rank set");

	tcase_add_test(all, test_every_rank_by_itself);
	tcase_add_test(all, test_ranks_that_cannot_be_are_never_in);
	tcase_add_test(all, test_what_is_missing);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
