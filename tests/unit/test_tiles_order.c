/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests the order of the tiles of one rank's pieces: bands of rows, and columns. The order of ranks
 * and pieces is in test_tiles.c; here it is executed, by ranks that wait for each other. */

#include <check.h>
#include <string.h>

#include "ops/compute/tiles.h"
#include "testing.h"

#define ROUNDS       3000u
#define PIECES_MAX   4u
#define ROWS_MAX     2000u
#define COLUMNS_MAX  300u
#define DEFAULT_PAIRS 8u                /* how high bands are at most, as tiles.h says */

struct asked {
	struct cei_tiles_args args;
	uint64_t              rows;
	uint64_t              columns;
	struct cei_tiles      tiles;
};

static void answer(struct asked *asked)
{
	asked->args.rows = &asked->rows;
	asked->args.columns = &asked->columns;
	ck_assert_int_eq(cei_tiles_init(&asked->tiles, &asked->args), 0);
}

static void ask(struct asked *asked, uint64_t *random)
{
	struct cei_tiles_args *args = &asked->args;

	memset(asked, 0, sizeof(*asked));
	args->n_ranks = args->n_products = 1;
	args->n_pieces = 1 + (uint32_t)testing_below(random, PIECES_MAX);
	args->pair = 1 + (uint32_t)testing_below(random, 2);
	args->shape.rows = 1 + (uint32_t)testing_below(random, 64);
	args->shape.columns = 1 + (uint32_t)testing_below(random, 64);
	args->order = (enum ceov_op_order)testing_below(random, CEOV_ORDER_TURNS + 1);
	if (args->order != CEOV_ORDER_COLUMNS && testing_below(random, 3))
		args->band_rows = (uint32_t)testing_below(random, ROWS_MAX);
	asked->rows = testing_below(random, ROWS_MAX);
	asked->columns = 1 + testing_below(random, COLUMNS_MAX);
}

/* Records failures instead of asserting, because each assertion of Check costs a system call. */
static void hold(int is_so, const char *what)
{
	if (!is_so)
		ck_abort_msg("not so: %s", what);
}

/* A walk through the list, which has to have the expected tiles one after another. */
struct walk {
	const struct asked *asked;
	uint32_t            at;
	uint64_t            first;      /* the piece's first row */
};

/* Takes the next group, a tile or a pair. */
static void take(struct walk *walk, uint64_t group, uint64_t column)
{
	const struct cei_tiles_args *args = &walk->asked->args;
	const struct cei_gemm_tile *tile = &walk->asked->tiles.tile[walk->at];

	hold(walk->at + args->pair <= walk->asked->tiles.n_tiles, "the list goes on");
	hold(tile->a_row == walk->first + group * args->pair * args->shape.rows, "its rows");
	hold(tile->column == column * args->shape.columns, "its column");
	hold(args->pair == 1 || tile[1].column == tile->column, "a pair stays together");
	walk->at += args->pair;
}

static void take_band(struct walk *walk, uint64_t top, uint64_t end)
{
	const struct asked *asked = walk->asked;
	uint64_t column, group;

	for (column = 0; column * asked->args.shape.columns < asked->columns; column++)
		for (group = top; group < end; group++)
			take(walk, group, column);
}

/* Takes a piece, whose groups are divided among as few bands as the height allows, all but the last
 * one equally high. */
static void take_piece(struct walk *walk, uint64_t n_rows)
{
	const struct cei_tiles_args *args = &walk->asked->args;
	uint64_t rows = (uint64_t)args->shape.rows * args->pair, n = (n_rows + rows - 1) / rows;
	uint64_t most = args->band_rows ? args->band_rows / rows : DEFAULT_PAIRS, height, top;
	uint64_t n_bands;

	most = args->order == CEOV_ORDER_COLUMNS ? n : most;
	n_bands = most ? (n + most - 1) / most : n;
	height = n_bands ? (n + n_bands - 1) / n_bands : 0;
	for (top = 0; top < n; top += height)
		take_band(walk, top, top + height < n ? top + height : n);
}

static void check(const struct asked *asked)
{
	struct walk walk = { .asked = asked };
	uint64_t n_rows;
	uint32_t piece;

	for (piece = 0; piece < asked->args.n_pieces; piece++) {
		walk.first = cei_piece_rows(&asked->args.cut, asked->rows,
					    asked->args.n_pieces, piece, &n_rows);
		take_piece(&walk, n_rows);
	}
	hold(walk.at == asked->tiles.n_tiles, "there are no further tiles");
}

START_TEST(test_bands_and_columns)
{
	uint64_t random = testing_seed();
	struct asked asked;
	uint32_t i;

	for (i = 0; i < ROUNDS; i++) {
		ask(&asked, &random);
		answer(&asked);
		check(&asked);
		cei_tiles_fini(&asked.tiles);
	}
}
END_TEST

/* What is chosen where nothing is asked for: bands of 8 pairs. */
START_TEST(test_the_default)
{
	uint64_t random = testing_seed();
	struct asked open, given;
	uint32_t i;

	for (i = 0; i < ROUNDS / 10; i++) {
		ask(&open, &random);
		open.args.order = CEOV_ORDER_CHOOSE;
		open.args.band_rows = 0;
		given = open;
		given.args.order = CEOV_ORDER_BANDS;
		given.args.band_rows = given.args.shape.rows * given.args.pair * DEFAULT_PAIRS;
		answer(&open);
		answer(&given);
		hold(open.tiles.n_tiles == given.tiles.n_tiles, "equally many tiles");
		hold(!open.tiles.n_tiles ||
		     !memcmp(open.tiles.tile, given.tiles.tile,
			     open.tiles.n_tiles * sizeof(*open.tiles.tile)), "the same tiles");
		cei_tiles_fini(&open.tiles);
		cei_tiles_fini(&given.tiles);
	}
}
END_TEST

START_TEST(test_bands_are_of_whole_pairs)
{
	const struct cei_tile_shape shape = { 128, 256 };

	ck_assert_uint_eq(cei_tiles_band(0, shape, 2), 2048);
	ck_assert_uint_eq(cei_tiles_band(1, shape, 2), 256);
	ck_assert_uint_eq(cei_tiles_band(1279, shape, 2), 1024);
	ck_assert_uint_eq(cei_tiles_band(1280, shape, 2), 1280);
	ck_assert_uint_eq(cei_tiles_band(UINT32_MAX, shape, 1), UINT32_MAX / 128 * UINT64_C(128));
}
END_TEST

/* --- ranks that wait for each other ----------------------------------------- */

#define RANKS_MAX    5u
#define WORKERS_MAX  4u
#define COUNTERS_MAX (RANKS_MAX * PIECES_MAX)
#define NOTHING      UINT32_MAX

/* A rank that executes its list as a GPU does: workers take tiles in the list's order, each with
 * one further tile in hand while it waits, if they claim tiles. */
struct worked {
	struct cei_tiles_args args;
	uint64_t              columns;
	struct cei_tiles      tiles;
	uint32_t              n_workers;
	int                   claims;
	uint32_t              n_claimed;
	uint32_t              present[WORKERS_MAX], next[WORKERS_MAX];
	uint32_t              n_arrived[COUNTERS_MAX];
	int                   is_raised[COUNTERS_MAX];
	uint32_t              n_done;
};

static uint64_t rows_of[RANKS_MAX];

static void take_work(struct worked *rank, uint32_t worker, uint32_t turn)
{
	uint32_t at = rank->claims ? rank->n_claimed++ : turn;

	rank->next[worker] = at < rank->tiles.n_tiles ? at : NOTHING;
}

/* Lets a worker begin the tile that it has in hand, and take another one in hand. */
static void go_on(struct worked *rank, uint32_t worker)
{
	rank->present[worker] = rank->next[worker];
	if (rank->present[worker] != NOTHING)
		take_work(rank, worker, rank->present[worker] + rank->n_workers);
}

static void begin_work(struct worked *rank, uint32_t self, uint32_t n_ranks, uint64_t *random)
{
	uint32_t i;

	memset(rank, 0, sizeof(*rank));
	rank->columns = 1 + testing_below(random, 90);
	rank->n_workers = 1 + (uint32_t)testing_below(random, WORKERS_MAX);
	rank->claims = (int)testing_below(random, 2);
	rank->args.rank = self;
	rank->args.n_ranks = n_ranks;
	rank->args.rows = rows_of;
	rank->args.columns = &rank->columns;
	rank->args.n_products = rank->args.pair = rank->args.waits = 1;
	rank->args.scatters = rank->args.sums_leave = 1;
	rank->args.shape.rows = 16 + (uint32_t)testing_below(random, 64);
	rank->args.shape.columns = 30;
	rank->args.order = (enum ceov_op_order)testing_below(random, CEOV_ORDER_TURNS + 1);
	rank->args.own_between = testing_below(random, 4) != 0;
	for (i = 0; i < WORKERS_MAX; i++)
		rank->present[i] = rank->next[i] = NOTHING;
}

static int may_end(const struct worked *ranks, const struct worked *rank,
		   const struct cei_gemm_tile *tile)
{
	uint32_t n_pieces = rank->args.n_pieces, i;

	for (i = 0; tile->reduce != CEI_GEMM_NONE && i < rank->args.n_ranks; i++)
		if (i != rank->args.rank &&
		    !ranks[i].is_raised[rank->args.rank * n_pieces + tile->reduce])
			return 0;
	return 1;
}

/* Ends a worker's tile if what it awaits is there; returns whether it did. */
static int work(const struct worked *ranks, struct worked *rank, uint32_t worker)
{
	const struct cei_gemm_tile *tile = &rank->tiles.tile[rank->present[worker]];

	if (rank->present[worker] == NOTHING || !may_end(ranks, rank, tile))
		return 0;
	if (tile->arrive != CEI_GEMM_NONE)
		rank->is_raised[tile->arrive] =
			++rank->n_arrived[tile->arrive] == tile->n_arrivals;
	rank->n_done++;
	go_on(rank, worker);
	return 1;
}

static uint32_t work_all(struct worked *ranks, uint32_t n_ranks)
{
	uint32_t rank, worker, n = 0;

	for (rank = 0; rank < n_ranks; rank++)
		for (worker = 0; worker < ranks[rank].n_workers; worker++)
			n += (uint32_t)work(ranks, &ranks[rank], worker);
	return n;
}

static void try_ranks(uint64_t *random)
{
	static struct worked ranks[RANKS_MAX];
	uint32_t n_ranks = 1 + (uint32_t)testing_below(random, RANKS_MAX), i, worker;
	uint32_t n_pieces = 1 + (uint32_t)testing_below(random, PIECES_MAX);
	enum ceov_op_cut cut = testing_below(random, 2) ? CEOV_CUT_SHRINKING : CEOV_CUT_EQUAL;

	for (i = 0; i < n_ranks; i++)
		rows_of[i] = testing_below(random, 4) ? testing_below(random, 300) : 0;
	for (i = 0; i < n_ranks; i++) {
		begin_work(&ranks[i], i, n_ranks, random);
		ranks[i].args.n_pieces = n_pieces;
		ranks[i].args.cut.kind = cut;
		ck_assert_int_eq(cei_tiles_init(&ranks[i].tiles, &ranks[i].args), 0);
		for (worker = 0; worker < ranks[i].n_workers; worker++) {
			take_work(&ranks[i], worker, worker);
			go_on(&ranks[i], worker);
		}
	}
	while (work_all(ranks, n_ranks))
		;
	for (i = 0; i < n_ranks; i++) {
		hold(ranks[i].n_done == ranks[i].tiles.n_tiles, "no rank waits for ever");
		cei_tiles_fini(&ranks[i].tiles);
	}
}

/* Whatever the order of each rank, how many tiles it executes at a time, and how early it claims
 * them. Copies are made at once. */
START_TEST(test_no_order_locks_ranks)
{
	uint64_t random = testing_seed();
	uint32_t i;

	for (i = 0; i < ROUNDS; i++)
		try_ranks(&random);
}
END_TEST

int main(void)
{
	Suite *made = suite_create("order of tiles");
	TCase *all = tcase_create("order");

	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_bands_and_columns);
	tcase_add_test(all, test_the_default);
	tcase_add_test(all, test_bands_are_of_whole_pairs);
	tcase_add_test(all, test_no_order_locks_ranks);
	suite_add_tcase(made, all);
	return testing_run(made);
}
