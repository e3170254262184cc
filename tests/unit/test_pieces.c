/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests how the rows or columns of a rank are cut into pieces. */

#include <check.h>

#include "ops/compute/tiles.h"
#include "testing.h"

/* Records failures instead of asserting, because each assertion of Check costs a system call. */
static void hold(int is_so, const char *what)
{
	if (!is_so)
		ck_abort_msg("not so: %s", what);
}

static struct cei_row_cut pick_waves(uint64_t *random)
{
	struct cei_row_cut cut = {
		.kind = CEOV_CUT_WAVES,
		.block_rows = CEI_PIECE_ROWS * (1 + testing_below(random, 4)),
		.block_tiles = 1 + testing_below(random, 80),
	};

	cut.wave_tiles = cut.block_tiles + testing_below(random, 80);
	return cut;
}

/* What holds for every cut. Returns how many pieces have rows. */
static uint32_t check_any_pieces(const struct cei_row_cut *cut, uint64_t rows, uint32_t n_pieces)
{
	uint64_t all = 0, row, n_rows;
	uint32_t piece, n_full = 0;

	for (piece = 0; piece < n_pieces; piece++) {
		row = cei_piece_rows(cut, rows, n_pieces, piece, &n_rows);
		hold(row == all, "pieces follow each other");
		hold(!n_rows || n_full == piece, "pieces without rows come last");
		all += n_rows;
		n_full += n_rows != 0;
		hold(rows < (uint64_t)CEI_PIECE_ROWS * n_pieces || all % CEI_PIECE_ROWS == 0 ||
		     all == rows || cut->kind <= CEOV_CUT_EQUAL, "pieces end at such multiples");
	}
	hold(all == rows, "all rows are shared out");
	return n_full;
}

static uint64_t rows_of(const struct cei_row_cut *cut, uint64_t rows, uint32_t n_pieces,
			uint32_t piece)
{
	uint64_t n_rows;

	(void)cei_piece_rows(cut, rows, n_pieces, piece, &n_rows);
	return n_rows;
}

/* A piece, which ends a wave, has no more tiles than its waves compute, and one more block of rows
 * would have; the first pieces have the most waves. */
static void check_waves(const struct cei_row_cut *cut, uint64_t rows, uint32_t n_pieces)
{
	uint64_t n_blocks = cei_ceiling(rows, cut->block_rows), end = 0, waves, before = 0;
	uint64_t n_waves = cei_ceiling(n_blocks * cut->block_tiles, cut->wave_tiles);
	uint32_t piece, n_full = check_any_pieces(cut, rows, n_pieces);

	hold(n_full == (n_waves < n_pieces ? n_waves : n_pieces), "each wave can be a piece");
	for (piece = 0; piece + 1 < n_full; piece++) {
		end += rows_of(cut, rows, n_pieces, piece) / cut->block_rows;
		waves = cei_ceiling(end * cut->block_tiles, cut->wave_tiles);
		hold(waves - before == n_waves / n_pieces + (piece < n_waves % n_pieces),
		     "waves are divided evenly");
		hold((end + 1) * cut->block_tiles > waves * cut->wave_tiles, "waves are full");
		before = waves;
	}
}

/* No piece is larger than one before it, or with a growing cut behind it, by more than the
 * rounding; with many rows sizes are nearly in proportion. */
static void check_tapered(const struct cei_row_cut *cut, uint64_t rows, uint32_t n_pieces)
{
	uint32_t piece, n_full = check_any_pieces(cut, rows, n_pieces), weight;
	uint64_t all_weights = (uint64_t)n_pieces * (n_pieces + 1) / 2, n_rows, least;

	hold(n_full == (rows < n_pieces ? rows : n_pieces), "no piece is empty without need");
	for (piece = 0; rows && piece < n_pieces; piece++) {
		n_rows = rows_of(cut, rows, n_pieces, piece);
		weight = cut->kind == CEOV_CUT_GROWING ? piece + 1 : n_pieces - piece;
		least = rows * weight / all_weights;
		hold(n_rows <= least + 3 * CEI_PIECE_ROWS * n_pieces / 2 &&
		     n_rows + 3 * CEI_PIECE_ROWS * n_pieces / 2 >= least,
		     "sizes are in proportion");
	}
}

START_TEST(test_unequal_pieces)
{
	static const struct cei_row_cut shrinking = { .kind = CEOV_CUT_SHRINKING };
	static const struct cei_row_cut growing = { .kind = CEOV_CUT_GROWING };
	static const struct cei_row_cut waves = { CEOV_CUT_WAVES, 256, 28, 66, 0 };
	uint64_t random = testing_seed(), rows;
	struct cei_row_cut cut;
	uint32_t i, n;

	for (i = 0; i < 20000; i++) {
		rows = testing_below(&random, i % 2 ? 500 : 100000);
		n = 1 + (uint32_t)testing_below(&random, CEI_OP_PIECES_MAX);
		cut = pick_waves(&random);
		check_waves(&cut, rows, n);
		check_tapered(&shrinking, rows, n);
		check_tapered(&growing, rows, n);
	}
	ck_assert_uint_eq(rows_of(&shrinking, 1024, 4, 0), 6 * 64);
	ck_assert_uint_eq(rows_of(&shrinking, 1024, 4, 3), 2 * 64);
	ck_assert_uint_eq(rows_of(&growing, 1024, 4, 0), 2 * 64);
	ck_assert_uint_eq(rows_of(&growing, 100, 4, 0), 10);    /* less than 64 rows a piece */
	ck_assert_uint_eq(rows_of(&growing, 3, 4, 2), 1);
	ck_assert_uint_eq(rows_of(&growing, 3, 4, 3), 0);
	/* 5 blocks of 28 tiles are more than 2 waves of 66, so a third begins with the fifth */
	ck_assert_uint_eq(rows_of(&waves, 1200, 3, 0), 2 * 256);
	ck_assert_uint_eq(rows_of(&waves, 1200, 3, 1), 2 * 256);
	ck_assert_uint_eq(rows_of(&waves, 1200, 3, 2), 1200 - 4 * 256);
	ck_assert_uint_eq(rows_of(&waves, 1200, 2, 0), 4 * 256);
}
END_TEST

static void check_pieces(uint64_t rows, uint32_t n_pieces)
{
	static const struct cei_row_cut equal = { .kind = CEOV_CUT_EQUAL };
	uint64_t share = (rows + n_pieces - 1) / n_pieces, all = 0, first, row, n_rows;
	uint32_t piece, n_full = 0;

	cei_piece_rows(&equal, rows, n_pieces, 0, &first);
	hold(first >= share && first < share + CEI_PIECE_ROWS, "piece 0 has its share");
	for (piece = 0; piece < n_pieces; piece++) {
		row = cei_piece_rows(&equal, rows, n_pieces, piece, &n_rows);
		hold(row == all, "pieces follow each other");
		hold(n_rows == first || (n_rows < first && all + n_rows == rows),
		     "only at the end pieces have less");
		all += n_rows;
		n_full += n_rows != 0;
	}
	hold(all == rows, "all rows are shared out");
	if (!rows)
		return;
	/* as many pieces have rows as without rounding; shares are rounded only where no
	 * piece becomes empty */
	hold(n_full == (rows + share - 1) / share, "rounding empties no piece");
	share = (share + CEI_PIECE_ROWS - 1) / CEI_PIECE_ROWS * CEI_PIECE_ROWS;
	hold(first == share || n_full == 1 || (rows + share - 1) / share < n_full,
	     "shares are rounded where they can");
}

START_TEST(test_pieces_share_out_all_rows)
{
	static const struct cei_row_cut equal = { .kind = CEOV_CUT_CHOOSE };
	uint64_t random = testing_seed(), n_rows;
	uint32_t i;

	for (i = 0; i < 20000; i++)
		check_pieces(testing_below(&random, i % 2 ? 500 : 100000),
			     1 + (uint32_t)testing_below(&random, 40));
	ck_assert_uint_eq(cei_piece_rows(&equal, 100, 2, 1, &n_rows), 64);
	ck_assert_uint_eq(n_rows, 36);
	ck_assert_uint_eq(cei_piece_rows(&equal, 64, 2, 1, &n_rows), 32);
	ck_assert_uint_eq(n_rows, 32);
	ck_assert_uint_eq(cei_piece_rows(&equal, UINT64_C(1) << 40, 4, 3, &n_rows),
			  UINT64_C(3) << 38);
	ck_assert_uint_eq(n_rows, UINT64_C(1) << 38);
}
END_TEST

/* Returns how many pieces have columns. */
static uint32_t check_columns(const struct cei_row_cut *cut, uint64_t rows, uint64_t columns,
			      uint32_t n_pieces)
{
	uint64_t step = cut->step_columns, all = 0, least = columns, widest = 0;
	struct cei_cut_piece of;
	uint32_t piece, n_full = 0;

	for (piece = 0; piece < n_pieces; piece++) {
		of = cei_piece_of(cut, rows, columns, n_pieces, piece);
		hold(of.row == 0 && of.n_rows == (of.n_columns ? rows : 0), "of all rows, or none");
		hold(of.column == all, "pieces follow each other");
		hold(!of.n_columns || (of.column % step == 0 && n_full == piece),
		     "pieces begin with steps, and those without columns come last");
		all += of.n_columns;
		n_full += of.n_columns != 0;
		widest = of.n_columns > widest ? of.n_columns : widest;
		least = of.n_columns < least && all < columns ? of.n_columns : least;
	}
	hold(all == columns, "all columns are shared out");
	hold(!columns || widest <= least + step, "evenly");
	return n_full;
}

START_TEST(test_pieces_of_columns)
{
	struct cei_row_cut cut = { .kind = CEOV_CUT_COLUMNS };
	uint64_t random = testing_seed(), columns, n_steps;
	uint32_t i, n;

	for (i = 0; i < 20000; i++) {
		columns = 1 + testing_below(&random, i % 2 ? 500 : 100000);
		n = 1 + (uint32_t)testing_below(&random, CEI_OP_PIECES_MAX);
		cut.step_columns = 1 + testing_below(&random, 1000);
		n_steps = cei_ceiling(columns, cut.step_columns);
		hold(check_columns(&cut, testing_below(&random, 3), columns, n) ==
		     (n_steps < n ? n_steps : n), "no piece is empty while there are steps");
	}
	cut.step_columns = 768;
	ck_assert_uint_eq(cei_piece_of(&cut, 9, 4096, 4, 1).column, 1536);
	ck_assert_uint_eq(cei_piece_of(&cut, 9, 4096, 4, 1).n_columns, 1536);
	ck_assert_uint_eq(cei_piece_of(&cut, 9, 4096, 4, 3).n_columns, 256);
	ck_assert_uint_eq(cei_cut_most_rows(&cut, 9, 4), 9);
}
END_TEST

/* Other cuts leave columns alone. */
START_TEST(test_pieces_of_rows_have_all_columns)
{
	const struct cei_row_cut cut = { .kind = (enum ceov_op_cut)_i };
	struct cei_cut_piece of;
	uint64_t n_rows;
	uint32_t piece;

	for (piece = 0; piece < 5; piece++) {
		of = cei_piece_of(&cut, 700, 4096, 5, piece);
		ck_assert_uint_eq(of.row, cei_piece_rows(&cut, 700, 5, piece, &n_rows));
		ck_assert_uint_eq(of.n_rows, n_rows);
		ck_assert_uint_eq(of.column, 0);
		ck_assert_uint_eq(of.n_columns, 4096);
	}
}
END_TEST

START_TEST(test_tiles_that_a_cut_takes)
{
	struct cei_row_cut cut = { .kind = CEOV_CUT_COLUMNS, .step_columns = 64 };
	struct cei_tile_shape narrow = { 7, 16 }, odd = { 7, 24 }, wide = { 7, 128 };

	ck_assert(cei_cut_takes(&cut, 2, narrow));
	ck_assert(!cei_cut_takes(&cut, 2, odd));
	ck_assert(!cei_cut_takes(&cut, 2, wide));
	ck_assert(cei_cut_takes(&cut, 1, wide));
	cut.kind = CEOV_CUT_GROWING;
	ck_assert(cei_cut_takes(&cut, 2, odd));
}
END_TEST

int main(void)
{
	Suite *made = suite_create("pieces");
	TCase *all = tcase_create("all");

	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_unequal_pieces);
	tcase_add_test(all, test_pieces_share_out_all_rows);
	tcase_add_test(all, test_pieces_of_columns);
	tcase_add_loop_test(all, test_pieces_of_rows_have_all_columns, CEOV_CUT_CHOOSE,
			    CEOV_CUT_WAVES);
	tcase_add_loop_test(all, test_pieces_of_rows_have_all_columns, CEOV_CUT_SHRINKING,
			    CEOV_CUT_GROWING + 1);
	tcase_add_test(all, test_tiles_that_a_cut_takes);
	suite_add_tcase(made, all);
	return testing_run(made);
}
