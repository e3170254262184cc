/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests properties of tile lists for any arguments: every element is computed once, no tile crosses
 * pieces, and every wait and arrival belongs to the right tile, in the promised order. */

#include <check.h>
#include <string.h>

#include "ops/compute/tiles.h"
#include "testing.h"

#define RANKS_MAX    6u
#define PIECES_MAX   5u
#define ROWS_MAX     300u               /* rows of a rank */
#define COLUMNS_MAX  200u
#define COUNTERS_MAX (RANKS_MAX * PIECES_MAX)

struct asked {
	struct cei_tiles_args args;
	uint64_t                  rows[RANKS_MAX];
	uint64_t                  columns[CEI_GEMM_B_MAX];
	uint64_t                  n_rows;       /* rows of all ranks together */
	uint64_t                  own_row;      /* the first of this rank's rows */
};

/* The rows of a tile, computed independently of the piece and rank that the tile names. */
struct found {
	uint64_t row;                   /* index among all ranks' rows */
	uint32_t rank;
	uint32_t piece;
	uint64_t left;                  /* rows of the piece that are left from `row` on */
	uint64_t left_columns;          /* likewise, from the tile's column on */
};

static struct cei_row_cut pick_cut(uint64_t *random)
{
	struct cei_row_cut cut = {
		.kind = (enum ceov_op_cut)testing_below(random, CEOV_CUT_GROWING + 1),
		.block_rows = CEI_PIECE_ROWS * (1 + testing_below(random, 4)),
		.block_tiles = 1 + testing_below(random, 80),
	};

	cut.wave_tiles = cut.block_tiles + testing_below(random, 80);
	return cut;
}

static struct asked ask(uint64_t *random)
{
	struct asked asked;
	struct cei_tiles_args *args = &asked.args;
	uint32_t i;

	memset(&asked, 0, sizeof(asked));
	args->n_ranks = 1 + (uint32_t)testing_below(random, RANKS_MAX);
	args->rank = (uint32_t)testing_below(random, args->n_ranks);
	args->n_pieces = 1 + (uint32_t)testing_below(random, PIECES_MAX);
	args->cut = pick_cut(random);
	args->scatters = testing_below(random, 2) != 0;
	args->exchanges = args->scatters && testing_below(random, 2);
	args->sums_leave = args->scatters && !args->exchanges && testing_below(random, 2);
	args->own_between = args->sums_leave && testing_below(random, 2);
	args->waits = testing_below(random, 4) != 0;
	args->order = (enum ceov_op_order)testing_below(random, CEOV_ORDER_TURNS + 1);
	if (args->order != CEOV_ORDER_COLUMNS && testing_below(random, 2))
		args->band_rows = (uint32_t)testing_below(random, 2 * ROWS_MAX);
	args->n_products = args->scatters ? 1 :
		1 + (uint32_t)testing_below(random, CEI_GEMM_B_MAX);
	args->pair = 1 + (uint32_t)testing_below(random, 2);
	args->shape.rows = 1 + (uint32_t)testing_below(random, 130);
	args->shape.columns = 1 + (uint32_t)testing_below(random, 130);
	for (i = 0; i < args->n_ranks; i++) {
		if (testing_below(random, 5))
			asked.rows[i] = testing_below(random, ROWS_MAX + 1);
		asked.own_row += i < args->rank ? asked.rows[i] : 0;
		asked.n_rows += asked.rows[i];
	}
	for (i = 0; i < args->n_products; i++)
		if (testing_below(random, 9))
			asked.columns[i] = testing_below(random, COLUMNS_MAX + 1);
	if (args->scatters && !args->exchanges && testing_below(random, 2)) {
		args->cut.kind = CEOV_CUT_COLUMNS;
		args->cut.step_columns = args->shape.columns * (1 + testing_below(random, 3));
	}
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

/* Records failures instead of asserting, because each assertion of Check costs a system call. */
static void hold(int is_so, const char *what)
{
	if (!is_so)
		ck_abort_msg("not so: %s", what);
}

static struct found find(const struct asked *asked, const struct cei_gemm_tile *tile)
{
	const struct cei_tiles_args *args = &asked->args;
	struct found found = { .row = tile->a_row };
	struct cei_cut_piece of = { .n_rows = 0 };
	uint64_t row;

	if (!args->scatters && tile->a == CEI_GEMM_A_OWN)
		found.row += asked->own_row;
	hold(found.row < asked->n_rows, "a_row is a row");
	for (row = found.row; row >= asked->rows[found.rank]; found.rank++)
		row -= asked->rows[found.rank];
	for (; found.piece < args->n_pieces; found.piece++) {
		of = cei_piece_of(&args->cut, asked->rows[found.rank], asked->columns[tile->b],
				  args->n_pieces, found.piece);
		if (row >= of.row && row < of.row + of.n_rows && tile->column >= of.column &&
		    tile->column < of.column + of.n_columns)
			break;
	}
	hold(found.piece < args->n_pieces, "the row is in a piece");
	found.left = of.row + of.n_rows - row;
	found.left_columns = of.column + of.n_columns - tile->column;
	return found;
}

static int is_own(const struct asked *asked, const struct found *found)
{
	return found->rank == asked->args.rank;
}

/* Runs the check with random arguments. pair 0: with any of them. */
static void check_answers(uint32_t pair, void (*check)(const struct asked *asked,
						       const struct cei_tiles *tiles))
{
	uint64_t random = testing_seed();
	struct cei_tiles tiles;
	struct asked asked;
	uint32_t i;

	for (i = 0; i < 3000; i++) {
		asked = ask(&random);
		asked.args.pair = pair ? pair : asked.args.pair;
		tiles = answer(&asked);
		check(&asked, &tiles);
		cei_tiles_fini(&tiles);
	}
}

/* --- every element once ------------------------------------------------------ */

struct cover {
	uint64_t       n_rows;
	uint64_t       n_columns;
	unsigned char *n;               /* number of tiles that contain each element */
};

static unsigned char n_of[CEI_GEMM_C_MAX][RANKS_MAX * ROWS_MAX * COLUMNS_MAX];

static struct cover cover_of(const struct asked *asked, uint32_t c)
{
	const struct cei_tiles_args *args = &asked->args;
	struct cover cover = { 0, 0, NULL };

	if (args->scatters && (c == 0 || c == CEI_GEMM_C_PARTIAL)) {
		cover.n_rows = c ? asked->n_rows : asked->rows[args->rank];
		cover.n_columns = asked->columns[0];
	} else if (!args->scatters && c < args->n_products) {
		cover.n_rows = asked->n_rows;
		cover.n_columns = asked->columns[c];
	}
	cover.n = n_of[c];
	memset(cover.n, 0, cover.n_rows * cover.n_columns);
	return cover;
}

static void add(const struct asked *asked, const struct cei_gemm_tile *tile,
		struct cover *cover)
{
	uint64_t columns = asked->args.shape.columns, row, column;

	hold(tile->n_rows <= asked->args.shape.rows, "rows are of the shape");
	hold(tile->column < cover->n_columns, "the column is in C");
	hold(tile->column % columns == 0, "columns are cut by the shape");
	hold(tile->c_row + tile->n_rows <= cover->n_rows, "rows are in C");
	if (columns > cover->n_columns - tile->column)
		columns = cover->n_columns - tile->column;
	for (row = tile->c_row; row < tile->c_row + tile->n_rows; row++)
		for (column = tile->column; column < tile->column + columns; column++)
			cover->n[row * cover->n_columns + column]++;
}

static void check_cover(struct asked *asked)
{
	struct cei_tiles tiles = answer(asked);
	struct cover covers[CEI_GEMM_C_MAX];
	uint64_t own_end = asked->own_row + asked->rows[asked->args.rank];
	uint64_t row, i, wanted;
	uint32_t c;

	for (c = 0; c < CEI_GEMM_C_MAX; c++)
		covers[c] = cover_of(asked, c);
	for (i = 0; i < tiles.n_tiles; i++) {
		hold(tiles.tile[i].c < CEI_GEMM_C_MAX, "c is a C");
		add(asked, &tiles.tile[i], &covers[tiles.tile[i].c]);
	}
	for (c = 0; c < CEI_GEMM_C_MAX; c++) {
		for (i = 0; i < covers[c].n_rows * covers[c].n_columns; i++) {
			row = i / covers[c].n_columns;
			/* own rows are not sent, so they need no partial sums */
			wanted = c != CEI_GEMM_C_PARTIAL || row < asked->own_row ||
				row >= own_end;
			if (covers[c].n[i] != wanted)
				ck_abort_msg("C %u, row %u is in %u tiles", c, (unsigned)row,
					     covers[c].n[i]);
		}
	}
	cei_tiles_fini(&tiles);
}

START_TEST(test_every_element_is_in_one_tile)
{
	uint64_t random = testing_seed();
	struct asked asked;
	uint32_t i;

	for (i = 0; i < 1000; i++) {
		asked = ask(&random);
		check_cover(&asked);
	}
}
END_TEST

/* --- waits and arrivals of tiles --------------------------------------------- */

static void check_operands(const struct asked *asked, const struct cei_gemm_tile *tile)
{
	struct found found = find(asked, tile);
	uint64_t row = found.row;

	hold(tile->n_rows <= found.left, "a tile stays in its piece");
	hold(found.left_columns >= asked->args.shape.columns ||
	     tile->column + found.left_columns == asked->columns[tile->b],
	     "it reaches beyond its piece's columns only where there are no more");
	hold(!tile->reserved && !tile->n_columns, "nothing else is set");
	hold(tile->b < asked->args.n_products, "b is a product");
	if (!asked->args.scatters) {
		hold(tile->a == (is_own(asked, &found) ? CEI_GEMM_A_OWN :
				 CEI_GEMM_A_GATHERED), "gather: own rows of the own A");
		hold(tile->c == tile->b, "gather: each product has its C");
	} else {
		hold(tile->a == CEI_GEMM_A_OWN, "scatter: all rows of the own A");
		hold(tile->c == (is_own(asked, &found) ? 0 : CEI_GEMM_C_PARTIAL),
		     "scatter: others' rows are partial sums");
		row -= is_own(asked, &found) ? asked->own_row : 0;
	}
	hold(tile->c_row == row, "c_row is the row of a_row");
}

static void check_marks(const struct asked *asked, const struct cei_gemm_tile *tile)
{
	const struct cei_tiles_args *args = &asked->args;
	struct found found = find(asked, tile);
	uint32_t counter = found.rank * args->n_pieces + found.piece;
	uint32_t await = CEI_GEMM_NONE, arrive = CEI_GEMM_NONE, reduce = CEI_GEMM_NONE;

	if (args->waits && !args->scatters && !is_own(asked, &found))
		await = counter;
	if (args->waits && args->scatters && tile->n_rows) {
		if (!is_own(asked, &found))
			arrive = counter;
		else if (args->n_ranks > 1 && !args->exchanges)
			reduce = found.piece;
		if (reduce != CEI_GEMM_NONE && args->sums_leave)
			arrive = counter;
	}
	hold(tile->await == await, "await is the piece's, or none");
	hold(tile->arrive == arrive, "arrive is the piece's, or none");
	hold(tile->reduce == reduce, "reduce is the piece, or none");
}

static void check_arrivals(const struct asked *asked, const struct cei_tiles *tiles)
{
	uint32_t n[COUNTERS_MAX] = { 0 }, i;
	const struct cei_gemm_tile *tile;

	for (i = 0; i < tiles->n_free; i++)
		hold(tiles->tile[i].reduce == CEI_GEMM_NONE, "free tiles add no partial sums");
	hold(i == tiles->n_tiles || tiles->tile[i].reduce != CEI_GEMM_NONE,
	     "the tile behind the free ones adds partial sums");
	for (i = 0; i < tiles->n_tiles; i++) {
		tile = &tiles->tile[i];
		if (tile->arrive != CEI_GEMM_NONE)
			n[tile->arrive]++;
	}
	for (i = 0; i < tiles->n_tiles; i++) {
		tile = &tiles->tile[i];
		hold(tile->n_arrivals == (tile->arrive == CEI_GEMM_NONE ? 0 :
					  n[tile->arrive]), "n_arrivals counts tiles");
	}
	/* every piece with elements has a tile that arrives */
	for (i = 0; i < asked->args.n_ranks && tiles->n_tiles; i++)
		if (asked->args.scatters && asked->args.waits && asked->rows[i] &&
		    (i != asked->args.rank ||
		     (asked->args.sums_leave && asked->args.n_ranks > 1)))
			hold(n[i * asked->args.n_pieces], "its piece is arrived at");
}

static void check_tiles(const struct asked *asked, const struct cei_tiles *tiles)
{
	uint32_t i;

	for (i = 0; i < tiles->n_tiles; i++) {
		check_operands(asked, &tiles->tile[i]);
		check_marks(asked, &tiles->tile[i]);
		hold(tiles->tile[i].n_rows || asked->args.pair == 2,
		     "only half a pair is empty");
	}
	check_arrivals(asked, tiles);
}

START_TEST(test_tiles_name_their_rows_and_marks)
{
	check_answers(0, check_tiles);
}
END_TEST

START_TEST(test_without_waits_only_the_marks_are_missing)
{
	uint64_t random = testing_seed();
	struct cei_tiles with, without;
	struct asked asked;
	uint32_t i, j;

	for (i = 0; i < 1000; i++) {
		asked = ask(&random);
		asked.args.waits = 1;
		with = answer(&asked);
		asked.args.waits = 0;
		without = answer(&asked);
		ck_assert_uint_eq(with.n_tiles, without.n_tiles);
		for (j = 0; j < with.n_tiles; j++) {
			with.tile[j].await = with.tile[j].arrive = CEI_GEMM_NONE;
			with.tile[j].reduce = CEI_GEMM_NONE;
			with.tile[j].n_arrivals = 0;
		}
		ck_assert(!with.n_tiles || !memcmp(with.tile, without.tile, with.n_tiles *
						   sizeof(*with.tile)));
		cei_tiles_fini(&with);
		cei_tiles_fini(&without);
	}
}
END_TEST

/* --- order ------------------------------------------------------------------- */

/* Returns a number that must not fall along the list. */
static uint64_t turn_of(const struct asked *asked, const struct cei_gemm_tile *tile)
{
	const struct cei_tiles_args *args = &asked->args;
	struct found found = find(asked, tile);
	uint32_t step = (args->n_ranks + args->rank - found.rank) % args->n_ranks;

	if (args->scatters)
		step = (args->n_ranks + found.rank - args->rank - 1) %
			args->n_ranks;
	if (args->order != CEOV_ORDER_TURNS)
		return ((uint64_t)step << 32) + ((uint64_t)found.piece << 16) + tile->b;
	if (args->own_between)          /* an own piece is one behind */
		return (2 * (uint64_t)found.piece + (is_own(asked, &found) ? 3 : 0)) << 48 |
			(uint64_t)step << 16 | tile->b;
	if (!is_own(asked, &found))
		return ((uint64_t)found.piece + 1) << 48 | (uint64_t)step << 16 | tile->b;
	return (args->scatters ? (uint64_t)args->n_pieces + 1 : 0) << 48 |
		(uint64_t)found.piece << 16 | tile->b;
}

static void check_order(const struct asked *asked, const struct cei_tiles *tiles)
{
	uint64_t turn, last = 0;
	uint32_t i;

	for (i = 0; i < tiles->n_tiles; i++) {
		turn = turn_of(asked, &tiles->tile[i]);
		hold(turn >= last, "tiles come in their order");
		last = turn;
	}
}

START_TEST(test_ranks_pieces_and_products_in_order)
{
	check_answers(0, check_order);
}
END_TEST

static void check_pair(const struct asked *asked, const struct cei_gemm_tile *first)
{
	const struct cei_gemm_tile *second = first + 1;
	struct found found = find(asked, first);
	uint32_t rows = asked->args.shape.rows;

	hold(first->n_rows, "the first has rows");
	hold(first->column == second->column && first->b == second->b, "they share B");
	hold(first->a == second->a && first->c == second->c, "of one A, in one C");
	hold(first->await == second->await, "both wait for one piece");
	if (second->n_rows) {
		hold(first->n_rows == rows, "the first is full");
		hold(second->a_row == first->a_row + rows, "the second reads what follows");
		hold(second->c_row == first->c_row + rows, "and writes what follows");
	} else {
		hold(found.left <= rows, "the second is missing at the end only");
		hold(second->a_row == first->a_row, "it reads what the first reads");
		hold(second->c_row == first->c_row, "its place is the first's");
	}
}

static void check_pairs(const struct asked *asked, const struct cei_tiles *tiles)
{
	uint32_t i;

	hold(tiles->n_tiles % 2 == 0, "no half is missing");
	for (i = 0; i < tiles->n_tiles; i += 2)
		check_pair(asked, &tiles->tile[i]);
}

START_TEST(test_pairs_have_one_column_and_neighbouring_rows)
{
	check_answers(2, check_pairs);
}
END_TEST

/* Returns the most rows and columns of tiles that n successive pairs touch. */
static uint32_t most_touched(const struct cei_tiles *tiles, uint32_t n,
			     const struct cei_tile_shape *shape)
{
	uint32_t begin, i, n_touched, most = 0;
	unsigned char rows[64], columns[64];

	for (begin = 0; begin + n <= tiles->n_tiles / 2; begin++) {
		memset(rows, 0, sizeof(rows));
		memset(columns, 0, sizeof(columns));
		for (i = begin; i < begin + n; i++) {
			rows[tiles->tile[2 * i].a_row / shape->rows / 2] = 1;
			columns[tiles->tile[2 * i].column / shape->columns] = 1;
		}
		for (i = 0, n_touched = 0; i < 64; i++)
			n_touched += rows[i] + columns[i];
		most = n_touched > most ? n_touched : most;
	}
	return most;
}

/* A tile may not reach into the next piece of columns, and only what leaves is cut like that. */
START_TEST(test_pieces_of_columns_that_are_refused)
{
	struct cei_tiles tiles;
	struct asked asked;

	memset(&asked, 0, sizeof(asked));
	asked.args.n_ranks = asked.args.n_pieces = 2;
	asked.args.n_products = asked.args.pair = asked.args.scatters = 1;
	asked.args.shape.rows = asked.args.shape.columns = 24;
	asked.args.cut.kind = CEOV_CUT_COLUMNS;
	asked.args.cut.step_columns = 48;
	asked.rows[0] = asked.columns[0] = 100;
	tiles = answer(&asked);
	cei_tiles_fini(&tiles);
	asked.args.shape.columns = 32;
	ck_assert_int_eq(cei_tiles_init(&tiles, &asked.args), CEOV_ERR_INVALID);
	asked.args.n_pieces = 1;                /* nothing lies behind it */
	tiles = answer(&asked);
	cei_tiles_fini(&tiles);
	asked.args.cut.step_columns = 0;
	asked.args.scatters = 0;
	tiles = answer(&asked);
	cei_tiles_fini(&tiles);
	asked.args.n_pieces = 2;
	asked.args.cut.step_columns = 32;
	ck_assert_int_eq(cei_tiles_init(&tiles, &asked.args), CEOV_ERR_INVALID);
	asked.args.scatters = asked.args.exchanges = 1;
	ck_assert_int_eq(cei_tiles_init(&tiles, &asked.args), CEOV_ERR_INVALID);
	asked.args.exchanges = 0;
	asked.args.cut.step_columns = 0;
	ck_assert_int_eq(cei_tiles_init(&tiles, &asked.args), CEOV_ERR_INVALID);
}
END_TEST

START_TEST(test_what_runs_together_shares_operands)
{
	struct asked asked;
	struct cei_tiles tiles;

	memset(&asked, 0, sizeof(asked));
	asked.args.n_ranks = asked.args.n_pieces = asked.args.n_products = 1;
	asked.args.pair = 2;
	asked.args.shape.rows = 128;
	asked.args.shape.columns = 256;
	asked.rows[0] = 256 * 32;
	asked.columns[0] = 256 * 32;
	tiles = answer(&asked);
	/* 8 x 9 within a band; across two bands both of them, and their corners */
	ck_assert_uint_le(most_touched(&tiles, 66, &asked.args.shape), 16 + 10);
	cei_tiles_fini(&tiles);
	asked.rows[0] = 256 * 9;                /* bands of 5 and 4 pairs, not of 8 and 1 */
	tiles = answer(&asked);
	ck_assert_uint_eq(tiles.tile[10].column, 256);
	cei_tiles_fini(&tiles);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("tiles");
	TCase *all = tcase_create("tiles");

	tcase_set_timeout(all, 120);
	tcase_add_test(all, test_every_element_is_in_one_tile);
	tcase_add_test(all, test_tiles_name_their_rows_and_marks);
	tcase_add_test(all, test_without_waits_only_the_marks_are_missing);
	tcase_add_test(all, test_ranks_pieces_and_products_in_order);
	tcase_add_test(all, test_pairs_have_one_column_and_neighbouring_rows);
	tcase_add_test(all, test_pieces_of_columns_that_are_refused);
	tcase_add_test(all, test_what_runs_together_shares_operands);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
