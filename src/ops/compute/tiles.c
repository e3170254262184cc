/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Lists a GEMM's tiles: by rank, piece and product, and within a piece in an order that
 * uses caches well. */

#include "ops/compute/tiles.h"

#include <stdlib.h>
#include <string.h>

#define COUNTERS_LIMIT ((uint64_t)CEI_GEMM_NONE)
#define EXTENT_MAX     (UINT64_C(1) << 31)      /* rows of all ranks; columns */
#define TILES_MAX      (UINT64_C(1) << 26)      /* a list of 2 GiB; more must be a mistake */

/* Concurrent tiles share operands best where they form a square. The kernel has 66 pairs of
 * blocks, so bands are about 8 high. */
#define BAND_MAX 8u

/* One piece of a rank's rows. */
struct stretch {
	uint32_t rank;
	uint32_t piece;
	uint64_t rank_row;              /* first row of the rank, in all ranks' rows */
	uint64_t row;                   /* first row of the piece, in the rank's rows */
	uint64_t n_rows;
	uint64_t n_blocks;              /* row blocks of a tile's height; the last may be cut */
	uint32_t n_arrivals;            /* tiles of the piece that have rows */
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

uint64_t cei_piece_rows(uint64_t rows, uint32_t n_pieces, uint32_t piece,
			uint64_t *ret_n_rows)
{
	uint64_t share = cei_ceiling(rows, n_pieces);
	uint64_t rounded = cei_ceiling(share, CEI_PIECE_ROWS) * CEI_PIECE_ROWS;
	uint64_t row;

	if (share && cei_ceiling(rows, rounded) == cei_ceiling(rows, share))
		share = rounded;
	row = piece * share < rows ? piece * share : rows;
	*ret_n_rows = rows - row < share ? rows - row : share;
	return row;
}

/* --- the question ---------------------------------------------------------- */

static int check_extents(const struct cei_tiles_question *question)
{
	uint64_t n_rows = 0;
	uint32_t i;

	for (i = 0; i < question->n_ranks; i++) {
		if (question->rows[i] > EXTENT_MAX - n_rows)
			return CEOV_ERR_INVALID;
		n_rows += question->rows[i];
	}
	for (i = 0; i < question->n_products; i++)
		if (question->columns[i] > EXTENT_MAX)
			return CEOV_ERR_INVALID;
	return 0;
}

static int check(const struct cei_tiles_question *question)
{
	if (!question || !question->rows || !question->columns)
		return CEOV_ERR_INVALID;
	if (question->rank >= question->n_ranks || !question->n_pieces ||
	    (uint64_t)question->n_ranks * question->n_pieces >= COUNTERS_LIMIT)
		return CEOV_ERR_INVALID;
	if (!question->n_products || question->n_products > CEI_GEMM_B_MAX ||
	    (question->scatters && question->n_products != 1))
		return CEOV_ERR_INVALID;
	if (!question->shape.rows || question->shape.rows > UINT16_MAX ||
	    !question->shape.columns || (question->pair != 1 && question->pair != 2))
		return CEOV_ERR_INVALID;
	return check_extents(question);
}

static uint64_t columns_of(const struct cei_tiles_question *question, uint32_t product)
{
	return cei_ceiling(question->columns[product], question->shape.columns);
}

static uint64_t rank_row(const struct cei_tiles_question *question, uint32_t rank)
{
	uint64_t row = 0;
	uint32_t i;

	for (i = 0; i < rank; i++)
		row += question->rows[i];
	return row;
}

/* --- what a tile says ------------------------------------------------------ */

static void mark_gather(const struct cei_tiles_question *question,
			const struct stretch *stretch, struct cei_gemm_tile *tile)
{
	if (stretch->rank == question->rank) {
		tile->a = CEI_GEMM_A_OWN;
		tile->a_row -= (uint32_t)stretch->rank_row;
		return;
	}
	tile->a = CEI_GEMM_A_GATHERED;
	if (question->waits)
		tile->await = (uint16_t)(stretch->rank * question->n_pieces +
					 stretch->piece);
}

static void mark_scatter(const struct cei_tiles_question *question,
			 const struct stretch *stretch, struct cei_gemm_tile *tile)
{
	tile->a = CEI_GEMM_A_OWN;
	if (stretch->rank == question->rank) {
		tile->c_row -= (uint32_t)stretch->rank_row;
		if (question->waits && question->n_ranks > 1 && tile->n_rows)
			tile->reduce = (uint16_t)stretch->piece;
		return;
	}
	tile->c = CEI_GEMM_C_PARTIAL;
	if (!question->waits || !tile->n_rows)
		return;
	tile->arrive = (uint16_t)(stretch->rank * question->n_pieces + stretch->piece);
	tile->n_arrivals = stretch->n_arrivals;
}

/* The tile of a row block. A block behind the piece's last one completes a pair: it stores
 * nothing, and reads what its partner reads. */
static struct cei_gemm_tile make_tile(const struct cei_tiles_question *question,
				      const struct stretch *stretch, uint64_t block,
				      uint64_t column, uint32_t product)
{
	uint64_t shape_rows = question->shape.rows, row, left;
	struct cei_gemm_tile tile;

	memset(&tile, 0, sizeof(tile));
	tile.await = tile.arrive = tile.reduce = CEI_GEMM_NONE;
	if (block < stretch->n_blocks) {
		left = stretch->n_rows - block * shape_rows;
		tile.n_rows = (uint16_t)(left < shape_rows ? left : shape_rows);
	} else {
		block = stretch->n_blocks - 1;
	}
	row = stretch->rank_row + stretch->row + block * shape_rows;
	tile.a_row = tile.c_row = (uint32_t)row;
	tile.column = (uint32_t)(column * question->shape.columns);
	tile.b = tile.c = (uint8_t)product;
	if (question->scatters)
		mark_scatter(question, stretch, &tile);
	else
		mark_gather(question, stretch, &tile);
	return tile;
}

/* --- the walk -------------------------------------------------------------- */

/* The i-th of n_groups x n_columns positions: in bands of nearly equal height, each column
 * by column, so that successive tiles form a near square. */
static struct spot spot_at(uint64_t i, uint64_t n_groups, uint64_t n_columns)
{
	uint64_t height = cei_ceiling(n_groups, cei_ceiling(n_groups, BAND_MAX));
	uint64_t top = i / (height * n_columns) * height;
	struct spot spot;

	i -= top * n_columns;
	if (height > n_groups - top)
		height = n_groups - top;
	spot.group = top + i % height;
	spot.column = i / height;
	return spot;
}

/* Appends a piece's tiles to `to`, or only counts them where it is NULL. Returns the
 * number, like the functions below, which stop beyond TILES_MAX. */
static uint64_t walk_piece(const struct cei_tiles_question *question,
			   const struct stretch *stretch, struct cei_gemm_tile *to)
{
	uint64_t n_groups = cei_ceiling(stretch->n_blocks, question->pair);
	uint64_t n_columns, i, n = 0;
	uint32_t product, half;
	struct spot spot;

	for (product = 0; product < question->n_products && n <= TILES_MAX; product++) {
		n_columns = columns_of(question, product);
		for (i = 0; to && i < n_groups * n_columns; i++) {
			spot = spot_at(i, n_groups, n_columns);
			for (half = 0; half < question->pair; half++)
				*to++ = make_tile(question, stretch,
						  spot.group * question->pair + half,
						  spot.column, product);
		}
		n += n_groups * n_columns * question->pair;
	}
	return n;
}

static uint64_t walk_rank(const struct cei_tiles_question *question, uint32_t rank,
			  struct cei_gemm_tile *to)
{
	struct stretch stretch = { .rank = rank, .rank_row = rank_row(question, rank) };
	uint64_t n = 0;

	for (; stretch.piece < question->n_pieces; stretch.piece++) {
		stretch.row = cei_piece_rows(question->rows[rank], question->n_pieces,
					     stretch.piece, &stretch.n_rows);
		stretch.n_blocks = cei_ceiling(stretch.n_rows, question->shape.rows);
		stretch.n_arrivals = (uint32_t)(stretch.n_blocks * columns_of(question, 0));
		n += walk_piece(question, &stretch, to ? to + n : NULL);
		if (n > TILES_MAX)
			break;
	}
	return n;
}

/* The i-th rank in the order of tiles.h: gathered rows in the order of arrival, scattered
 * rows in the order of sending, the own rank first or last. */
static uint32_t rank_at(const struct cei_tiles_question *question, uint32_t i)
{
	if (question->scatters)
		return (question->rank + 1 + i) % question->n_ranks;
	return (question->rank + question->n_ranks - i) % question->n_ranks;
}

static uint64_t walk(const struct cei_tiles_question *question, struct cei_gemm_tile *to)
{
	uint64_t n = 0;
	uint32_t i;

	for (i = 0; i < question->n_ranks && n <= TILES_MAX; i++)
		n += walk_rank(question, rank_at(question, i), to ? to + n : NULL);
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

int cei_tiles_init(struct cei_tiles *tiles, const struct cei_tiles_question *question)
{
	uint64_t n;
	int r = tiles ? check(question) : CEOV_ERR_INVALID;

	if (r)
		return r;
	memset(tiles, 0, sizeof(*tiles));
	n = walk(question, NULL);
	if (n > TILES_MAX)
		return CEOV_ERR_INVALID;
	if (!n)
		return 0;
	tiles->tile = malloc(n * sizeof(*tiles->tile));
	if (!tiles->tile)
		return CEOV_ERR_NO_MEMORY;
	tiles->n_tiles = (uint32_t)walk(question, tiles->tile);
	tiles->has_whole_halves = has_whole_halves(tiles, question->shape.rows);
	return 0;
}

void cei_tiles_fini(struct cei_tiles *tiles)
{
	if (!tiles)
		return;
	free(tiles->tile);
	memset(tiles, 0, sizeof(*tiles));
}
