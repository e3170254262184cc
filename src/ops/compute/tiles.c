/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Makes the list of a GEMM's tiles: by rank and piece, or in turns, then by product, and within a
 * piece in an order that uses caches well. */

#include "ops/compute/tiles.h"

#include <stdlib.h>
#include <string.h>

#define COUNTERS_LIMIT ((uint64_t)CEI_GEMM_NONE)
#define EXTENT_MAX     (UINT64_C(1) << 31)      /* limit of all ranks' rows, and of columns */
#define TILES_MAX      (UINT64_C(1) << 26)      /* a list of 2 GiB; more must be a mistake */

/* Tiles that run at the same time share most operands if they form a square. The kernel executes 66
 * pairs of tiles at a time, so the list goes through the grid in bands about 8 pairs high. */
#define BAND_MAX 8u

/* One piece of a rank's rows or columns, with what its tiles need. */
struct stretch {
	uint32_t rank;
	uint32_t piece;
	uint64_t rank_row;              /* first row of the rank, in all ranks' rows */
	uint64_t rank_column;           /* first column of the rank, if columns are divided */
	struct cei_cut_piece of;            /* the rows and columns of the piece; of product 0, if
					 * there are several */
	uint64_t n_blocks;              /* blocks of as many rows as a tile has; the last one
					 * may have fewer */
	uint32_t n_arrivals;            /* how many tiles count themselves at the piece's mark */
};

/* A rank, by its place in the order of ranks (rank_at()), and one of its pieces. */
struct turn {
	uint32_t step;
	uint32_t piece;
};

/* A position in the grid of one piece and one product. */
struct spot {
	uint64_t group;                 /* index of a group of `pair` row blocks */
	uint64_t column;                /* index of a tile column */
};

uint64_t cei_ceiling(uint64_t n, uint64_t divisor)
{
	return n / divisor + (n % divisor != 0);
}

/* --- pieces ---------------------------------------------------------------- */

static uint64_t lesser(uint64_t x, uint64_t y)
{
	return x < y ? x : y;
}

static uint64_t equal_before(uint64_t rows, uint32_t n_pieces, uint32_t piece)
{
	uint64_t share = cei_ceiling(rows, n_pieces);
	uint64_t rounded = cei_ceiling(share, CEI_PIECE_ROWS) * CEI_PIECE_ROWS;

	if (share && cei_ceiling(rows, rounded) == cei_ceiling(rows, share))
		share = rounded;
	return piece * share;
}

/* A piece with a wave has rows, because a wave has at least one block of rows. */
static uint64_t waves_before(const struct cei_row_cut *cut, uint64_t rows, uint32_t n_pieces,
			     uint32_t piece)
{
	uint64_t n_tiles = cei_ceiling(rows, cut->block_rows) * cut->block_tiles;
	uint64_t n_waves = cei_ceiling(n_tiles, cut->wave_tiles);
	uint64_t waves = piece * (n_waves / n_pieces) + lesser(piece, n_waves % n_pieces);

	return waves * cut->wave_tiles / cut->block_tiles * cut->block_rows;
}

/* Returns how many steps of rows come before a piece of a growing cut: one for each piece, and of
 * `spare` further ones a share that rises with the number of the piece. */
static uint64_t growing_before(uint64_t spare, uint64_t n_pieces, uint64_t piece)
{
	return piece + spare * piece * (piece + 1) / (n_pieces * (n_pieces + 1));
}

/* A shrinking cut has the sizes of a growing one from the last piece to the first. */
static uint64_t tapered_before(const struct cei_row_cut *cut, uint64_t rows, uint32_t n_pieces,
			       uint32_t piece)
{
	uint64_t step = cei_ceiling(rows, CEI_PIECE_ROWS) >= n_pieces ? CEI_PIECE_ROWS : 1;
	uint64_t n_steps = cei_ceiling(rows, step);
	uint64_t spare = n_steps > n_pieces ? n_steps - n_pieces : 0;

	if (cut->kind == CEOV_CUT_GROWING || !spare)
		return growing_before(spare, n_pieces, piece) * step;
	return (n_steps - growing_before(spare, n_pieces, n_pieces - piece)) * step;
}

/* Returns how many of the rows come before a piece; n_pieces stands for a piece behind the last. */
static uint64_t rows_before(const struct cei_row_cut *cut, uint64_t rows, uint32_t n_pieces,
			    uint32_t piece)
{
	uint64_t row = rows;

	if (piece == n_pieces)
		return rows;
	switch (cut->kind) {
	case CEOV_CUT_CHOOSE:
	case CEOV_CUT_EQUAL:     row = equal_before(rows, n_pieces, piece); break;
	case CEOV_CUT_WAVES:     row = waves_before(cut, rows, n_pieces, piece); break;
	case CEOV_CUT_SHRINKING:
	case CEOV_CUT_GROWING:   row = tapered_before(cut, rows, n_pieces, piece); break;
	case CEOV_CUT_COLUMNS:   row = piece ? rows : 0; break;
	}
	return lesser(row, rows);
}

uint64_t cei_piece_rows(const struct cei_row_cut *cut, uint64_t rows, uint32_t n_pieces,
			uint32_t piece, uint64_t *ret_n_rows)
{
	uint64_t row = rows_before(cut, rows, n_pieces, piece);

	*ret_n_rows = rows_before(cut, rows, n_pieces, piece + 1) - row;
	return row;
}

uint64_t cei_cut_most_rows(const struct cei_row_cut *cut, uint64_t rows, uint32_t n_pieces)
{
	uint64_t most = 0, n_rows;
	uint32_t i;

	for (i = 0; i < n_pieces; i++) {
		(void)cei_piece_rows(cut, rows, n_pieces, i, &n_rows);
		most = n_rows > most ? n_rows : most;
	}
	return most;
}

/* Returns how many of the columns come before a piece. */
static uint64_t columns_before(const struct cei_row_cut *cut, uint64_t columns, uint32_t n_pieces,
			       uint32_t piece)
{
	uint64_t n_steps = cei_ceiling(columns, cut->step_columns);
	uint64_t steps = piece * (n_steps / n_pieces) + lesser(piece, n_steps % n_pieces);

	return lesser(steps * cut->step_columns, columns);
}

struct cei_cut_piece cei_piece_of(const struct cei_row_cut *cut, uint64_t rows, uint64_t columns,
			      uint32_t n_pieces, uint32_t piece)
{
	struct cei_cut_piece of = { .n_columns = columns };

	if (cut->kind != CEOV_CUT_COLUMNS || n_pieces == 1) {
		of.row = cei_piece_rows(cut, rows, n_pieces, piece, &of.n_rows);
		return of;
	}
	of.column = columns_before(cut, columns, n_pieces, piece);
	of.n_columns = columns_before(cut, columns, n_pieces, piece + 1) - of.column;
	of.n_rows = of.n_columns ? rows : 0;
	return of;
}

int cei_cut_takes(const struct cei_row_cut *cut, uint32_t n_pieces, struct cei_tile_shape shape)
{
	return cut->kind != CEOV_CUT_COLUMNS || n_pieces == 1 ||
		(shape.columns && cut->step_columns % shape.columns == 0);
}

/* --- checking the arguments -------------------------------------------- */

static int fits(const uint64_t *extents, uint32_t n)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < n; i++) {
		if (extents[i] > EXTENT_MAX - sum)
			return 0;
		sum += extents[i];
	}
	return 1;
}

static int check_extents(const struct cei_tiles_args *args)
{
	uint32_t i;

	if (args->parts)
		return fits(&args->rows[args->rank], 1) && fits(args->parts, args->n_ranks)
			? 0 : CEOV_ERR_INVALID;
	for (i = 0; i < args->n_products; i++)
		if (!fits(&args->columns[i], 1))
			return CEOV_ERR_INVALID;
	return fits(args->rows, args->n_ranks) ? 0 : CEOV_ERR_INVALID;
}

/* Only what leaves can be cut by columns: what comes are rows of A. */
static int check_cut(const struct cei_tiles_args *args)
{
	if (args->cut.kind != CEOV_CUT_COLUMNS || args->n_pieces == 1)
		return 0;
	return args->cut.step_columns && args->scatters && !args->exchanges &&
		cei_cut_takes(&args->cut, args->n_pieces, args->shape) ? 0 : CEOV_ERR_INVALID;
}

static int check(const struct cei_tiles_args *args)
{
	if (!args || !args->rows || !args->columns)
		return CEOV_ERR_INVALID;
	if (args->rank >= args->n_ranks || !args->n_pieces ||
	    (uint64_t)args->n_ranks * args->n_pieces >= COUNTERS_LIMIT)
		return CEOV_ERR_INVALID;
	if (!args->n_products || args->n_products > CEI_GEMM_B_MAX ||
	    (args->scatters && args->n_products != 1) ||
	    ((args->exchanges || args->sums_leave) && !args->scatters) ||
	    (args->exchanges && args->sums_leave) || (args->own_between && !args->sums_leave) ||
	    (args->tells && (args->scatters || args->n_ranks != 1 || args->n_products != 1)) ||
	    (args->parts && !args->exchanges && !args->sums_leave))
		return CEOV_ERR_INVALID;
	if (!args->shape.rows || args->shape.rows > UINT16_MAX ||
	    !args->shape.columns || (args->pair != 1 && args->pair != 2))
		return CEOV_ERR_INVALID;
	if ((unsigned)args->order > CEOV_ORDER_TURNS ||
	    (args->order == CEOV_ORDER_COLUMNS && args->band_rows))
		return CEOV_ERR_INVALID;
	return check_cut(args) ? CEOV_ERR_INVALID : check_extents(args);
}

/* Returns how many tiles lie beside each other in a piece of a product. */
static uint64_t columns_of(const struct cei_tiles_args *args, const struct stretch *stretch,
			   uint32_t product)
{
	return cei_ceiling(product ? args->columns[product] : stretch->of.n_columns,
			   args->shape.columns);
}

/* Returns the sum of the extents of all ranks before this one. */
static uint64_t before(const uint64_t *extents, uint32_t rank)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < rank; i++)
		sum += extents[i];
	return sum;
}

/* --- one tile -------------------------------------------------------------- */

static void arrive(const struct cei_tiles_args *args, const struct stretch *stretch,
		   struct cei_gemm_tile *tile)
{
	tile->arrive = (uint16_t)(stretch->rank * args->n_pieces + stretch->piece);
	tile->n_arrivals = stretch->n_arrivals;
}

static void mark_gather(const struct cei_tiles_args *args,
			const struct stretch *stretch, struct cei_gemm_tile *tile)
{
	if (stretch->rank == args->rank) {
		tile->a = CEI_GEMM_A_OWN;
		tile->a_row -= (uint32_t)stretch->rank_row;
		if (args->tells && args->waits && tile->n_rows)
			arrive(args, stretch, tile);
		return;
	}
	tile->a = CEI_GEMM_A_GATHERED;
	if (args->waits)
		tile->await = (uint16_t)(stretch->rank * args->n_pieces +
					 stretch->piece);
}

/* Tiles of own rows add what the other ranks have computed, unless there is nothing to add. */
static void mark_own(const struct cei_tiles_args *args, const struct stretch *stretch,
		     struct cei_gemm_tile *tile)
{
	tile->c_row -= (uint32_t)stretch->rank_row;
	tile->column -= (uint32_t)stretch->rank_column;
	if (!args->waits || args->exchanges || args->n_ranks == 1 || !tile->n_rows)
		return;
	tile->reduce = (uint16_t)stretch->piece;
	if (args->sums_leave)
		arrive(args, stretch, tile);
}

static void mark_scatter(const struct cei_tiles_args *args,
			 const struct stretch *stretch, struct cei_gemm_tile *tile)
{
	tile->a = CEI_GEMM_A_OWN;
	if (stretch->rank == args->rank) {
		mark_own(args, stretch, tile);
		return;
	}
	tile->c = CEI_GEMM_C_PARTIAL;
	tile->b = args->parts != NULL;
	if (args->waits && tile->n_rows)
		arrive(args, stretch, tile);
}

/* Makes the tile for one block of rows and one column of tiles. If the block lies behind the
 * piece's last one, the tile only completes a pair: it stores nothing, and reads what its partner
 * reads. */
static struct cei_gemm_tile make_tile(const struct cei_tiles_args *args,
				      const struct stretch *stretch, uint64_t block,
				      uint64_t column, uint32_t product)
{
	uint64_t shape_rows = args->shape.rows, row, left;
	uint64_t at = stretch->of.column + column * args->shape.columns; /* in the rank's part */
	struct cei_gemm_tile tile;

	memset(&tile, 0, sizeof(tile));
	tile.await = tile.arrive = tile.reduce = CEI_GEMM_NONE;
	if (block < stretch->n_blocks) {
		left = stretch->of.n_rows - block * shape_rows;
		tile.n_rows = (uint16_t)(left < shape_rows ? left : shape_rows);
	} else {
		block = stretch->n_blocks - 1;
	}
	row = stretch->rank_row + stretch->of.row + block * shape_rows;
	tile.a_row = tile.c_row = (uint32_t)row;
	tile.column = (uint32_t)(stretch->rank_column + at);
	if (args->parts)
		tile.n_columns = (uint32_t)(args->parts[stretch->rank] - at);
	tile.b = tile.c = (uint8_t)product;
	if (args->scatters)
		mark_scatter(args, stretch, &tile);
	else
		mark_gather(args, stretch, &tile);
	return tile;
}

/* --- the order of tiles ---------------------------------------------------- */

static uint64_t pairs_of_band(uint32_t band_rows, struct cei_tile_shape shape, uint32_t pair)
{
	uint64_t n = band_rows / ((uint64_t)shape.rows * pair);

	if (!band_rows)
		return BAND_MAX;
	return n ? n : 1;
}

uint64_t cei_tiles_band(uint32_t band_rows, struct cei_tile_shape shape, uint32_t pair)
{
	return pairs_of_band(band_rows, shape, pair) * shape.rows * pair;
}

/* Returns how many groups the bands of a piece with n_groups groups have, but for the last one,
 * which may have fewer. */
static uint64_t height_of(const struct cei_tiles_args *args, uint64_t n_groups)
{
	uint64_t most = pairs_of_band(args->band_rows, args->shape, args->pair);

	if (args->order == CEOV_ORDER_COLUMNS || !n_groups)
		return n_groups;
	return cei_ceiling(n_groups, cei_ceiling(n_groups, most));
}

/* Returns the i-th position in the grid. The grid is cut into bands of nearly equal height; the
 * order goes band by band, and in a band column by column, so that successive tiles form nearly a
 * square. */
static struct spot spot_at(uint64_t i, uint64_t n_groups, uint64_t n_columns, uint64_t height)
{
	uint64_t top = i / (height * n_columns) * height;
	struct spot spot;

	i -= top * n_columns;
	if (height > n_groups - top)
		height = n_groups - top;
	spot.group = top + i % height;
	spot.column = i / height;
	return spot;
}

/* Appends a piece's tiles to `to`, or only counts them if `to` is NULL. Returns how many there are,
 * as walk_turn() and walk() do for a turn and for all turns; the last one stops when there are more
 * than TILES_MAX. */
static uint64_t walk_piece(const struct cei_tiles_args *args,
			   const struct stretch *stretch, struct cei_gemm_tile *to)
{
	uint64_t n_groups = cei_ceiling(stretch->n_blocks, args->pair);
	uint64_t height = height_of(args, n_groups), n_columns, i, n = 0;
	uint32_t product, half;
	struct spot spot;

	for (product = 0; product < args->n_products && n <= TILES_MAX; product++) {
		n_columns = columns_of(args, stretch, product);
		for (i = 0; to && i < n_groups * n_columns; i++) {
			spot = spot_at(i, n_groups, n_columns, height);
			for (half = 0; half < args->pair; half++)
				*to++ = make_tile(args, stretch,
						  spot.group * args->pair + half,
						  spot.column, product);
		}
		n += n_groups * n_columns * args->pair;
	}
	return n;
}

/* Returns the rank whose rows come i-th where it goes rank after rank: an all-gather takes
 * the own rows first and then rows in the order of arrival; a reduce-scatter takes rows in the
 * order of sending, and the own rows last. */
static uint32_t rank_at(const struct cei_tiles_args *args, uint32_t i)
{
	if (args->scatters)
		return (args->rank + 1 + i) % args->n_ranks;
	return (args->rank + args->n_ranks - i) % args->n_ranks;
}

/* Returns which piece comes at-th if own pieces come between those of peers: behind the first
 * pieces of peers all others, each followed by the own piece before it, and then the last own
 * one. */
static struct turn turn_between(const struct cei_tiles_args *args, uint32_t at)
{
	uint32_t n_others = args->n_ranks - 1, piece, step;

	if (at < n_others)
		return (struct turn){ at, 0 };
	at -= n_others;
	piece = at / args->n_ranks + 1;
	step = at % args->n_ranks;
	if (piece == args->n_pieces || step == n_others)
		return (struct turn){ n_others, piece - 1 };
	return (struct turn){ step, piece };
}

/* Returns which piece comes at-th, of all ranks' pieces. */
static struct turn turn_at(const struct cei_tiles_args *args, uint32_t at)
{
	uint32_t n_others = args->n_ranks - 1;
	uint32_t own_step = args->scatters ? n_others : 0, own_at = own_step * args->n_pieces;
	struct turn turn = { at / args->n_pieces, at % args->n_pieces };

	if (args->order == CEOV_ORDER_TURNS && args->own_between)
		return turn_between(args, at);
	if (args->order != CEOV_ORDER_TURNS || turn.step == own_step)
		return turn;
	at -= at >= own_at ? args->n_pieces : 0;        /* now its place among the peers' pieces */
	turn.step = at % n_others + !args->scatters;
	turn.piece = at / n_others;
	return turn;
}

static uint64_t walk_turn(const struct cei_tiles_args *args, struct turn turn,
			  struct cei_gemm_tile *to)
{
	struct stretch stretch = { .rank = rank_at(args, turn.step), .piece = turn.piece };
	uint64_t columns = args->parts ? args->parts[stretch.rank] : args->columns[0];

	if (args->parts)
		stretch.rank_column = before(args->parts, stretch.rank);
	else
		stretch.rank_row = before(args->rows, stretch.rank);
	stretch.of = cei_piece_of(&args->cut, args->rows[stretch.rank], columns, args->n_pieces,
				  stretch.piece);
	stretch.n_blocks = cei_ceiling(stretch.of.n_rows, args->shape.rows);
	stretch.n_arrivals = (uint32_t)(stretch.n_blocks * columns_of(args, &stretch, 0));
	return walk_piece(args, &stretch, to);
}

static uint64_t walk(const struct cei_tiles_args *args, struct cei_gemm_tile *to)
{
	uint32_t n_turns = args->n_ranks * args->n_pieces, at;
	uint64_t n = 0;

	for (at = 0; at < n_turns && n <= TILES_MAX; at++)
		n += walk_turn(args, turn_at(args, at), to ? to + n : NULL);
	return n;
}

static int has_whole_halves(const struct cei_tiles *tiles, uint32_t shape_rows)
{
	uint32_t i;

	for (i = 0; i < tiles->n_tiles; i++)
		if (2 * tiles->tile[i].n_rows % shape_rows)
			return 0;
	return 1;
}

static uint32_t count_free(const struct cei_tiles *tiles)
{
	uint32_t n = 0;

	while (n < tiles->n_tiles && tiles->tile[n].reduce == CEI_GEMM_NONE)
		n++;
	return n;
}

int cei_tiles_init(struct cei_tiles *tiles, const struct cei_tiles_args *args)
{
	uint64_t n;
	int r = tiles ? check(args) : CEOV_ERR_INVALID;

	if (r)
		return r;
	memset(tiles, 0, sizeof(*tiles));
	n = walk(args, NULL);
	if (n > TILES_MAX)
		return CEOV_ERR_INVALID;
	if (!n)
		return 0;
	tiles->tile = malloc(n * sizeof(*tiles->tile));
	if (!tiles->tile)
		return CEOV_ERR_NO_MEMORY;
	tiles->n_tiles = (uint32_t)walk(args, tiles->tile);
	tiles->n_free = count_free(tiles);
	tiles->has_whole_halves = has_whole_halves(tiles, args->shape.rows);
	return 0;
}

void cei_tiles_fini(struct cei_tiles *tiles)
{
	if (!tiles)
		return;
	free(tiles->tile);
	memset(tiles, 0, sizeof(*tiles));
}
