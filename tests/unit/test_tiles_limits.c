/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests arguments of tile lists that are refused, and those at the limits. */

#include <check.h>
#include <string.h>

#include "ops/compute/tiles.h"
#include "testing.h"

struct asked {
	struct cei_tiles_args args;
	uint64_t                  rows[3];
	uint64_t                  columns[CEI_GEMM_B_MAX];
};

static struct asked plain(void)
{
	struct asked asked;

	memset(&asked, 0, sizeof(asked));
	asked.args.rank = 1;
	asked.args.n_ranks = 3;
	asked.args.n_pieces = 2;
	asked.args.n_products = 2;
	asked.args.shape.rows = 128;
	asked.args.shape.columns = 256;
	asked.args.pair = 1;
	asked.args.waits = 1;
	asked.rows[0] = asked.rows[1] = asked.rows[2] = 200;
	asked.columns[0] = asked.columns[1] = 300;
	return asked;
}

static struct cei_tiles answer(struct asked *asked)
{
	struct cei_tiles tiles;

	asked->args.rows = asked->rows;
	asked->args.columns = asked->columns;
	ck_assert_int_eq(cei_tiles_init(&tiles, &asked->args), 0);
	return tiles;
}

/* Asserts that the arguments are refused, and restores valid ones. */
static void refuse(struct asked *asked)
{
	struct cei_tiles tiles;

	asked->args.rows = asked->rows;
	asked->args.columns = asked->columns;
	ck_assert_int_eq(cei_tiles_init(&tiles, &asked->args), CEOV_ERR_INVALID);
	*asked = plain();
}

START_TEST(test_questions_that_make_no_sense_are_refused)
{
	struct asked asked = plain();

	asked.args.rank = 3;
	refuse(&asked);
	asked.args.n_ranks = 0;
	refuse(&asked);
	asked.args.n_pieces = 0;
	refuse(&asked);
	asked.args.n_products = 0;
	refuse(&asked);
	asked.args.n_products = CEI_GEMM_B_MAX + 1;
	refuse(&asked);
	asked.args.scatters = 1;
	refuse(&asked);
	asked.args.order = CEOV_ORDER_TURNS + 1;
	refuse(&asked);
	asked.args.order = CEOV_ORDER_COLUMNS;
	asked.args.band_rows = 128;             /* but there are no bands */
	refuse(&asked);
	asked.args.exchanges = 1;               /* but rows are gathered */
	refuse(&asked);
	asked.args.sums_leave = 1;              /* but rows are gathered */
	refuse(&asked);
	asked.args.scatters = asked.args.exchanges = asked.args.sums_leave = 1;
	asked.args.n_products = 1;              /* but nothing is summed in an all-to-all */
	refuse(&asked);
	asked.args.scatters = asked.args.own_between = 1;
	asked.args.n_products = 1;              /* but own tiles have no mark that sums await */
	refuse(&asked);
	asked.args.scatters = asked.args.n_products = 1;
	asked.args.parts = asked.columns;       /* but rows of sums stay where they are */
	refuse(&asked);
	asked.args.tells = asked.args.n_products = 1;   /* but there are several ranks */
	refuse(&asked);
	asked.args.tells = asked.args.n_ranks = 1;      /* but two products */
	asked.args.rank = 0;
	refuse(&asked);
	asked.args.tells = asked.args.scatters = asked.args.n_products = asked.args.n_ranks = 1;
	asked.args.rank = 0;
	refuse(&asked);
	asked.args.pair = 0;
	refuse(&asked);
	asked.args.pair = 3;
	refuse(&asked);
	asked.args.shape.rows = 0;
	refuse(&asked);
	asked.args.shape.rows = 65536;
	refuse(&asked);
	asked.args.shape.columns = 0;
	refuse(&asked);
}
END_TEST

START_TEST(test_sizes_that_do_not_fit_are_refused)
{
	struct asked asked = plain();
	struct cei_tiles tiles;

	asked.args.n_pieces = 21845;            /* three times that would be CEI_GEMM_NONE */
	refuse(&asked);
	asked.args.n_pieces = UINT32_MAX;
	refuse(&asked);
	asked.rows[2] = (UINT64_C(1) << 31) - 399;
	refuse(&asked);
	asked.rows[0] = UINT64_MAX;
	refuse(&asked);
	asked.columns[1] = (UINT64_C(1) << 31) + 1;
	refuse(&asked);
	asked.rows[0] = asked.columns[0] = asked.columns[1] = UINT64_C(1) << 30;
	asked.args.shape.rows = asked.args.shape.columns = 1;
	refuse(&asked);
	memset(asked.rows, 0, sizeof(asked.rows));
	asked.rows[0] = asked.columns[0] = asked.columns[1] = UINT64_C(1) << 31;
	asked.columns[2] = asked.columns[3] = UINT64_C(1) << 31;
	asked.args.n_products = 4;              /* 2^64 tiles */
	asked.args.n_pieces = 1;
	asked.args.shape.rows = asked.args.shape.columns = 1;
	refuse(&asked);
	asked.args.n_pieces = 21844;
	asked.rows[2] = (UINT64_C(1) << 31) - 400;
	asked.args.shape.rows = 65535;
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
	ck_assert_int_eq(cei_tiles_init(NULL, &asked.args), CEOV_ERR_INVALID);
	ck_assert_int_eq(cei_tiles_init(&tiles, NULL), CEOV_ERR_INVALID);
	asked.args.rows = NULL;
	ck_assert_int_eq(cei_tiles_init(&tiles, &asked.args), CEOV_ERR_INVALID);
	asked.args.rows = asked.rows;
	asked.args.columns = NULL;
	ck_assert_int_eq(cei_tiles_init(&tiles, &asked.args), CEOV_ERR_INVALID);
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

/* --- pieces in whole halves of tiles --------------------------------------- */

struct cut {
	uint64_t rows[2];
	uint32_t n_pieces;
	int      is_whole;              /* for tiles of 128 rows */
};

static const struct cut cuts[] = {
	{ { 128, 256 }, 1, 1 }, { { 64, 192 }, 1, 1 }, { { 0, 64 }, 1, 1 },
	{ { 128, 200 }, 1, 0 }, { { 1, 128 }, 1, 0 },
	{ { 192, 192 }, 2, 1 },         /* pieces of 128 and 64 */
	{ { 256, 100 }, 2, 0 },
	{ { 320, 320 }, 4, 0 },         /* 80 rows per piece; with 128 a piece would be empty */
};

START_TEST(test_whole_halves)
{
	const struct cut *cut = &cuts[_i];
	struct asked asked = plain();
	struct cei_tiles tiles;

	asked.args.n_ranks = 2;
	asked.args.rank = 1;
	asked.args.n_pieces = cut->n_pieces;
	asked.args.shape.rows = asked.args.shape.columns = 128;
	asked.args.pair = 2;
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
