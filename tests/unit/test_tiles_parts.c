/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests lists of tiles of products whose columns are divided among ranks: the tiles of each rank's
 * part store all of it, name its marks, and come in the order in which parts are sent. */

#include <check.h>
#include <string.h>

#include "ops/compute/tiles.h"
#include "testing.h"

#define RANKS_MAX    5u
#define PIECES_MAX   4u
#define ROWS_MAX     120u
#define PART_MAX     90u
#define ROUNDS       1000u

struct asked {
	struct cei_tiles_args args;
	struct cei_tiles      tiles;
	uint64_t              rows[RANKS_MAX];
	uint64_t              parts[RANKS_MAX];
	uint64_t              first[RANKS_MAX + 1];     /* [rank]: first column of its part; the
							 * last entry: all columns */
};

/* [row * columns + column]: whether the tiles of the part at hand store the element */
static unsigned char stored[ROWS_MAX * RANKS_MAX * PART_MAX];

static void ask(struct asked *asked, uint64_t *random)
{
	struct cei_tiles_args *args = &asked->args;
	uint64_t rows = testing_below(random, ROWS_MAX + 1);
	uint32_t i;

	memset(asked, 0, sizeof(*asked));
	args->n_ranks = 1 + (uint32_t)testing_below(random, RANKS_MAX);
	args->rank = (uint32_t)testing_below(random, args->n_ranks);
	args->n_pieces = 1 + (uint32_t)testing_below(random, PIECES_MAX);
	args->n_products = args->scatters = 1;
	args->exchanges = testing_below(random, 2) != 0;
	args->sums_leave = !args->exchanges;
	args->own_between = args->sums_leave && testing_below(random, 2);
	args->order = args->own_between ? CEOV_ORDER_TURNS : CEOV_ORDER_BANDS;
	args->waits = testing_below(random, 4) != 0;
	args->pair = 1 + (uint32_t)testing_below(random, 2);
	args->shape.rows = 1 + (uint32_t)testing_below(random, 60);
	args->shape.columns = 1 + (uint32_t)testing_below(random, 60);
	args->cut.kind = testing_below(random, 2) ? CEOV_CUT_GROWING : CEOV_CUT_EQUAL;
	args->cut.step_columns = args->shape.columns * (1 + testing_below(random, 2));
	if (args->sums_leave && testing_below(random, 2))
		args->cut.kind = CEOV_CUT_COLUMNS;
	for (i = 0; i < args->n_ranks; i++) {
		asked->rows[i] = rows;
		if (testing_below(random, 4))
			asked->parts[i] = testing_below(random, PART_MAX + 1);
		asked->first[i + 1] = asked->first[i] + asked->parts[i];
	}
	args->rows = asked->rows;
	args->parts = args->columns = asked->parts;
	ck_assert_int_eq(cei_tiles_init(&asked->tiles, args), 0);
}

/* Records failures instead of asserting, because each assertion of Check costs a system call. */
static void hold(int is_so, const char *what)
{
	if (!is_so)
		ck_abort_msg("not so: %s", what);
}

/* Returns the rank of the part that a tile is for: the part in which its first column lies. */
static uint32_t rank_of(const struct asked *asked, const struct cei_gemm_tile *tile)
{
	uint32_t rank = 0;

	if (tile->c != CEI_GEMM_C_PARTIAL)
		return asked->args.rank;
	while (tile->column >= asked->first[rank + 1])
		rank++;
	return rank;
}

static uint32_t piece_of(const struct asked *asked, const struct cei_gemm_tile *tile)
{
	uint32_t rank = rank_of(asked, tile), piece = 0;
	uint64_t column = tile->column -
		(tile->c == CEI_GEMM_C_PARTIAL ? asked->first[rank] : 0);
	struct cei_cut_piece of;

	for (;; piece++) {
		of = cei_piece_of(&asked->args.cut, asked->rows[0], asked->parts[rank],
				  asked->args.n_pieces, piece);
		if (tile->a_row >= of.row && tile->a_row < of.row + of.n_rows &&
		    column >= of.column && column < of.column + of.n_columns)
			break;
	}
	hold(tile->a_row + tile->n_rows <= of.row + of.n_rows, "a tile stays in its piece");
	return piece;
}

static void check_tile(const struct asked *asked, const struct cei_gemm_tile *tile)
{
	const struct cei_tiles_args *args = &asked->args;
	uint32_t rank = rank_of(asked, tile), piece = piece_of(asked, tile);
	int is_own = rank == args->rank, sums = is_own && args->sums_leave && args->n_ranks > 1;
	int arrives = args->waits && (!is_own || sums) && tile->n_rows;
	uint64_t from = is_own ? 0 : asked->first[rank];

	hold(tile->a == CEI_GEMM_A_OWN && tile->a_row == tile->c_row, "rows are of the own A");
	hold(tile->b == !is_own && tile->c == (is_own ? 0 : CEI_GEMM_C_PARTIAL),
	     "the own part is product 0, the others are product 1");
	hold(tile->column >= from && tile->column < from + asked->parts[rank] &&
	     (tile->column - from) % args->shape.columns == 0, "parts are cut by the shape");
	hold(tile->n_columns == from + asked->parts[rank] - tile->column,
	     "the part ends behind so many columns");
	hold(tile->await == CEI_GEMM_NONE, "it awaits no rows of A");
	hold(tile->reduce == (arrives && sums ? piece : CEI_GEMM_NONE),
	     "own tiles of an all-reduce add what has come for their piece");
	hold(tile->arrive == (arrives ? rank * args->n_pieces + piece : CEI_GEMM_NONE),
	     "it arrives at the mark of its part's piece");
	hold(tile->n_rows || args->pair == 2, "only half a pair is empty");
}

static void store(const struct asked *asked, const struct cei_gemm_tile *tile, uint64_t from)
{
	uint64_t columns = asked->first[asked->args.n_ranks], row, column, end;

	end = from + tile->column + asked->args.shape.columns;
	end = end < columns ? end : columns;
	for (row = tile->c_row; row < tile->c_row + tile->n_rows; row++)
		for (column = from + tile->column; column < end; column++)
			stored[row * columns + column] = 1;
}

/* Asserts that the tiles of one piece of a rank's part store all of that, and nothing else of the
 * part or before it. */
static void check_part(const struct asked *asked, uint32_t rank, uint32_t piece)
{
	const struct cei_tiles_args *args = &asked->args;
	uint64_t columns = asked->first[args->n_ranks], row, column, begin;
	uint64_t from = rank == args->rank ? asked->first[rank] : 0;
	struct cei_cut_piece of;
	const struct cei_gemm_tile *tile;
	uint32_t i, n = 0, n_wanted = 0;

	memset(stored, 0, sizeof(stored));
	for (i = 0; i < asked->tiles.n_tiles; i++) {
		tile = &asked->tiles.tile[i];
		if (rank_of(asked, tile) != rank || piece_of(asked, tile) != piece)
			continue;
		store(asked, tile, from);
		n += tile->n_rows != 0;
		n_wanted = tile->n_arrivals > n_wanted ? tile->n_arrivals : n_wanted;
	}
	of = cei_piece_of(&args->cut, asked->rows[0], asked->parts[rank], args->n_pieces, piece);
	begin = asked->first[rank] + of.column;
	for (row = 0; row < asked->rows[0]; row++)
		for (column = 0; column < asked->first[rank + 1]; column++)
			hold(stored[row * columns + column] ==
			     (row >= of.row && row < of.row + of.n_rows && column >= begin &&
			      column < begin + of.n_columns),
			     "the piece's tiles store the piece, and nothing else of the part");
	if (rank == args->rank && (args->exchanges || args->n_ranks == 1))
		n = 0;                  /* they arrive nowhere */
	hold(n_wanted == (args->waits ? n : 0), "n_arrivals counts tiles");
}

START_TEST(test_the_tiles_of_a_part_store_it)
{
	uint64_t random = testing_seed();
	struct asked asked;
	uint32_t round, i, piece;

	for (round = 0; round < ROUNDS; round++) {
		ask(&asked, &random);
		for (i = 0; i < asked.tiles.n_tiles; i++)
			check_tile(&asked, &asked.tiles.tile[i]);
		for (i = 0; i < asked.args.n_ranks; i++)
			for (piece = 0; piece < asked.args.n_pieces; piece++)
				check_part(&asked, i, piece);
		cei_tiles_fini(&asked.tiles);
	}
}
END_TEST

/* Returns a number that must not fall along the list. */
static uint32_t turn_of(const struct asked *asked, const struct cei_gemm_tile *tile)
{
	const struct cei_tiles_args *args = &asked->args;
	uint32_t rank = rank_of(asked, tile), piece = piece_of(asked, tile);
	uint32_t step = (args->n_ranks + rank - args->rank - 1) % args->n_ranks;

	if (args->own_between)
		return (2 * piece + (rank == args->rank ? 3 : 0)) * RANKS_MAX + step;
	return step * PIECES_MAX + piece;
}

START_TEST(test_parts_come_in_the_order_of_sending)
{
	uint64_t random = testing_seed(), turn, last;
	struct asked asked;
	uint32_t round, i;

	for (round = 0; round < ROUNDS; round++) {
		ask(&asked, &random);
		for (i = 0, last = 0; i < asked.tiles.n_tiles; i++, last = turn) {
			turn = turn_of(&asked, &asked.tiles.tile[i]);
			hold(turn >= last, "the next rank's part first, own columns last or "
			     "one piece behind");
		}
		cei_tiles_fini(&asked.tiles);
	}
}
END_TEST

START_TEST(test_parts_that_do_not_fit_are_refused)
{
	uint64_t random = testing_seed();
	struct asked asked;

	do {
		ask(&asked, &random);
		cei_tiles_fini(&asked.tiles);
	} while (asked.args.n_ranks < 3);
	asked.parts[0] = asked.parts[1] = (UINT64_C(1) << 30) + 8;
	ck_assert_int_eq(cei_tiles_init(&asked.tiles, &asked.args), CEOV_ERR_INVALID);
	memset(asked.parts, 0, sizeof(asked.parts));
	asked.rows[asked.args.rank] = (UINT64_C(1) << 31) + 8;
	ck_assert_int_eq(cei_tiles_init(&asked.tiles, &asked.args), CEOV_ERR_INVALID);
}
END_TEST

int main(void)
{
	Suite *made = suite_create("tiles_parts");
	TCase *all = tcase_create("parts");

	tcase_set_timeout(all, 120);
	tcase_add_test(all, test_the_tiles_of_a_part_store_it);
	tcase_add_test(all, test_parts_come_in_the_order_of_sending);
	tcase_add_test(all, test_parts_that_do_not_fit_are_refused);
	suite_add_tcase(made, all);
	return testing_run(made);
}
