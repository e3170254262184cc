/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Arguments of tile lists that are refused, and those at the limits. */

#include <check.h>
#include <string.h>

#include "ops/compute/tiles.h"
#include "testing.h"

struct asked {
	struct cei_tiles_question question;
	uint64_t                  rows[3];
	uint64_t                  columns[CEI_GEMM_B_MAX];
};

static struct asked plain(void)
{
	struct asked asked;

	memset(&asked, 0, sizeof(asked));
	asked.question.rank = 1;
	asked.question.n_ranks = 3;
	asked.question.n_pieces = 2;
	asked.question.n_products = 2;
	asked.question.shape.rows = 128;
	asked.question.shape.columns = 256;
	asked.question.pair = 1;
	asked.question.waits = 1;
	asked.rows[0] = asked.rows[1] = asked.rows[2] = 200;
	asked.columns[0] = asked.columns[1] = 300;
	return asked;
}

static struct cei_tiles answer(struct asked *asked)
{
	struct cei_tiles tiles;

	asked->question.rows = asked->rows;
	asked->question.columns = asked->columns;
	ck_assert_int_eq(cei_tiles_init(&tiles, &asked->question), 0);
	return tiles;
}

/* Expects a refusal, and restores valid arguments. */
static void refuse(struct asked *asked)
{
	struct cei_tiles tiles;

	asked->question.rows = asked->rows;
	asked->question.columns = asked->columns;
	ck_assert_int_eq(cei_tiles_init(&tiles, &asked->question), CEOV_ERR_INVALID);
	*asked = plain();
}

START_TEST(test_questions_that_make_no_sense_are_refused)
{
	struct asked asked = plain();

	asked.question.rank = 3;
	refuse(&asked);
	asked.question.n_ranks = 0;
	refuse(&asked);
	asked.question.n_pieces = 0;
	refuse(&asked);
	asked.question.n_products = 0;
	refuse(&asked);
	asked.question.n_products = CEI_GEMM_B_MAX + 1;
	refuse(&asked);
	asked.question.scatters = 1;
	refuse(&asked);
	asked.question.pair = 0;
	refuse(&asked);
	asked.question.pair = 3;
	refuse(&asked);
	asked.question.shape.rows = 0;
	refuse(&asked);
	asked.question.shape.rows = 65536;
	refuse(&asked);
	asked.question.shape.columns = 0;
	refuse(&asked);
}
END_TEST

START_TEST(test_sizes_that_do_not_fit_are_refused)
{
	struct asked asked = plain();
	struct cei_tiles tiles;

	asked.question.n_pieces = 21845;        /* three times that would be CEI_GEMM_NONE */
	refuse(&asked);
	asked.question.n_pieces = UINT32_MAX;
	refuse(&asked);
	asked.rows[2] = (UINT64_C(1) << 31) - 399;
	refuse(&asked);
	asked.rows[0] = UINT64_MAX;
	refuse(&asked);
	asked.columns[1] = (UINT64_C(1) << 31) + 1;
	refuse(&asked);
	asked.rows[0] = asked.columns[0] = asked.columns[1] = UINT64_C(1) << 30;
	asked.question.shape.rows = asked.question.shape.columns = 1;
	refuse(&asked);
	memset(asked.rows, 0, sizeof(asked.rows));
	asked.rows[0] = asked.columns[0] = asked.columns[1] = UINT64_C(1) << 31;
	asked.columns[2] = asked.columns[3] = UINT64_C(1) << 31;
	asked.question.n_products = 4;          /* 2^64 tiles */
	asked.question.n_pieces = 1;
	asked.question.shape.rows = asked.question.shape.columns = 1;
	refuse(&asked);
	asked.question.n_pieces = 21844;
	asked.rows[2] = (UINT64_C(1) << 31) - 400;
	asked.question.shape.rows = 65535;
	tiles = answer(&asked);
	ck_assert_uint_gt(tiles.n_tiles, 21844);
	cei_tiles_fini(&tiles);
}
END_TEST

START_TEST(test_what_is_missing_is_refused)
{
	struct asked asked = plain();
	struct cei_tiles tiles = answer(&asked);

	cei_tiles_fini(&tiles);
	ck_assert_int_eq(cei_tiles_init(NULL, &asked.question), CEOV_ERR_INVALID);
	ck_assert_int_eq(cei_tiles_init(&tiles, NULL), CEOV_ERR_INVALID);
	asked.question.rows = NULL;
	ck_assert_int_eq(cei_tiles_init(&tiles, &asked.question), CEOV_ERR_INVALID);
	asked.question.rows = asked.rows;
	asked.question.columns = NULL;
	ck_assert_int_eq(cei_tiles_init(&tiles, &asked.question), CEOV_ERR_INVALID);
	cei_tiles_fini(NULL);
}
END_TEST

START_TEST(test_nothing_to_do_is_an_empty_list)
{
	struct asked asked = plain();
	struct cei_tiles tiles;

	asked.columns[0] = asked.columns[1] = 0;
	tiles = answer(&asked);
	ck_assert_uint_eq(tiles.n_tiles, 0);
	cei_tiles_fini(&tiles);
	asked = plain();
	memset(asked.rows, 0, sizeof(asked.rows));
	tiles = answer(&asked);
	ck_assert_uint_eq(tiles.n_tiles, 0);
	cei_tiles_fini(&tiles);
	cei_tiles_fini(&tiles);
}
END_TEST

/* --- whole halves ---------------------------------------------------------- */

struct cut {
	uint64_t rows[2];
	uint32_t n_pieces;
	int      is_whole;              /* in tiles of 128 rows */
};

static const struct cut cuts[] = {
	{ { 128, 256 }, 1, 1 }, { { 64, 192 }, 1, 1 }, { { 0, 64 }, 1, 1 },
	{ { 128, 200 }, 1, 0 }, { { 1, 128 }, 1, 0 },
	{ { 192, 192 }, 2, 1 },         /* 128 and 64 */
	{ { 256, 100 }, 2, 0 },
	{ { 320, 320 }, 4, 0 },         /* 80 each: 128 would leave a piece empty */
};

START_TEST(test_whole_halves)
{
	const struct cut *cut = &cuts[_i];
	struct asked asked = plain();
	struct cei_tiles tiles;

	asked.question.n_ranks = 2;
	asked.question.rank = 1;
	asked.question.n_pieces = cut->n_pieces;
	asked.question.shape.rows = asked.question.shape.columns = 128;
	asked.question.pair = 2;
	memcpy(asked.rows, cut->rows, sizeof(cut->rows));
	tiles = answer(&asked);
	ck_assert_int_eq(tiles.has_whole_halves, cut->is_whole);
	cei_tiles_fini(&tiles);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("tiles_limits");
	TCase *all = tcase_create("tiles_limits");

	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_questions_that_make_no_sense_are_refused);
	tcase_add_test(all, test_sizes_that_do_not_fit_are_refused);
	tcase_add_test(all, test_what_is_missing_is_refused);
	tcase_add_test(all, test_nothing_to_do_is_an_empty_list);
	tcase_add_loop_test(all, test_whole_halves, 0, sizeof(cuts) / sizeof(cuts[0]));
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
