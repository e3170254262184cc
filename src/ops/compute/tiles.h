/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_TILES_H
#define CEI_TILES_H

/*
 * Lists the tiles of a GEMM in the order in which they are executed, each with the counter
 * that it awaits and the counter at which it arrives. The list depends on nothing but
 * shapes; the host's GEMM and the kernel execute the same list.
 *
 * A rank's rows are cut into n_pieces pieces (cei_piece_rows), or its columns are (cei_piece_of,
 * CEOV_CUT_COLUMNS); a tile never straddles two pieces. A tile awaits counter source rank *
 * n_pieces + piece, and arrives at counter target rank * n_pieces + piece.
 *
 *   all-gather      own rows first, which wait for nothing, then rank - 1, rank - 2, ...:
 *                   the order in which rows arrive, as each sender begins with the rank
 *                   behind its own. A rank's tiles are listed piece by piece; a piece has
 *                   the tiles of all products and columns.
 *   reduce-scatter  rows of rank + 1 first, then rank + 2, ...; own rows last, to which
 *                   the partial sums of the other ranks are added.
 *   all-reduce      as reduce-scatter, but tiles of own rows arrive, too, since their sums are
 *                   sent. Columns may be divided as in an all-to-all. In turns own pieces may come
 *                   between those of peers (own_between).
 *   all-to-all      as reduce-scatter, but nothing is added to own rows. If columns are divided
 *                   instead of rows, each rank's part is a range of the product's columns, of
 *                   which every piece of rows is sent. The own part is product 0, whose columns
 *                   begin with the part; all other tiles are of product 1, which has all columns.
 *                   The last tile of a part may reach into the next part. The kernel then
 *                   stores there what the tiles of that part store, too; the host's GEMM ends
 *                   at n_columns.
 *   marks           one rank's rows, piece by piece. Tiles await nothing and arrive at their
 *                   piece's counter.
 *
 * That is rank after rank. In turns (CEOV_ORDER_TURNS) the peers' first pieces come first, rank
 * after rank, then all second ones; own rows stay in front of them, or behind. The tiles of a piece
 * always follow each other, since cuBLAS counts arrivals piece by piece (gemm_blas_cuda.c).
 *
 * With own_between each own piece comes one piece behind, so that peers have the time of a piece to
 * send their partial sums of it, and its sums can leave before the product ends:
 *
 *   peers' pieces 0, peers' pieces 1, own piece 0, peers' pieces 2, own piece 1, ...,
 *   peers' pieces n - 1, own piece n - 2, own piece n - 1
 *
 * No order can dead-lock, also if ranks differ in it. What a tile of an all-gather awaits is copied
 * without any tile's help. What a tile of a reduce-scatter or an all-reduce awaits are partial sums
 * of own rows, which peers compute in tiles that await nothing. Without own_between these stand in
 * front of all tiles that do await, so whoever executes the list in its order gets to them.
 *
 * With it, give peers' piece p the number 2p and own piece p the number 2p + 3, and 0 to all
 * peers' pieces of a rank with another order, since nothing holds these up. Then every rank's list
 * is sorted by number, and an own tile awaits only tiles with lower numbers than its own. Of all
 * tiles of all ranks that are not computed yet, take those with the lowest number: what they await
 * has been computed, and so has all in front of them, so they can be computed. It does not matter
 * that several are executed at a time, nor that one is claimed early, as long as they are taken in
 * the list's order. Copies must not be held up either, so those of an op leave in the same order,
 * partial and final sums together (gemm_ar.c).
 */

#include <stdint.h>

#include <ceoverlap/ops.h>

#include "kernels/gemm.h"

struct cei_tile_shape {
	uint32_t rows;
	uint32_t columns;
};

#define CEI_PIECE_ROWS    64u
#define CEI_OP_PIECES_MAX 32u          /* the most pieces of any operator */

/* How the rows of a rank are cut into pieces. All ranks find the same pieces, so all fields are
 * from facts that they share. A zeroed struct stands for equal pieces. */
struct cei_row_cut {
	enum ceov_op_cut kind;          /* CEOV_CUT_CHOOSE counts as CEOV_CUT_EQUAL */
	/* For CEOV_CUT_WAVES, none of them 0: */
	uint64_t         block_rows;    /* rows that are computed together: those of a tile, or of
					 * a pair of them, in multiples of CEI_PIECE_ROWS */
	uint64_t         block_tiles;   /* tiles, or pairs, in such a block of rows; at most
					 * wave_tiles */
	uint64_t         wave_tiles;    /* tiles, or pairs, that are computed at once */
	/* For several pieces with CEOV_CUT_COLUMNS, not 0: */
	uint64_t         step_columns;  /* pieces begin at multiples of so many columns */
};

/* What a piece has of a rank's rows and columns, counted within the rank's. */
struct cei_cut_piece {
	uint64_t row;
	uint64_t n_rows;                /* 0: the piece is empty */
	uint64_t column;
	uint64_t n_columns;             /* not 0, unless the rank has no columns or the piece is
					 * empty */
};

struct cei_tiles_args {
	uint32_t              rank;
	uint32_t              n_ranks;
	const uint64_t       *rows;             /* of each rank; where columns are divided: for each
						 * rank all rows of the product */
	uint32_t              n_pieces;         /* of each rank's rows, at least 1 */
	struct cei_row_cut    cut;
	uint32_t              n_products;       /* reduce-scatter: 1 */
	const uint64_t       *columns;          /* of each product */
	struct cei_tile_shape shape;
	uint32_t              pair;             /* tiles that are executed together: 1 or 2. With
						 * 2 the list consists of pairs in one column: see
						 * gemm.h */
	int                   waits;            /* 0: tiles neither await nor raise a mark, for
						 * sequences and for measurements */
	int                   scatters;         /* 0: all-gather; 1: all others */
	int                   exchanges;        /* 1: all-to-all, with scatters 1 */
	int                   sums_leave;       /* 1: all-reduce, with scatters 1 */
	int                   own_between;      /* 1, with sums_leave: in turns own pieces come
						 * between those of peers. Only where a tile itself
						 * adds the partial sums that it awaits, and its
						 * mark is raised as soon as it is stored */
	int                   tells;            /* 1: marks, with scatters 0, one rank and one
						 * product */
	const uint64_t       *parts;            /* all-to-all and all-reduce: the columns of each
						 * rank's part, if columns are divided; NULL: rows
						 * are divided */
	enum ceov_op_order    order;            /* CEOV_ORDER_CHOOSE counts as CEOV_ORDER_BANDS */
	uint32_t              band_rows;        /* as in struct ceov_op_tuning */
};

struct cei_tiles {
	struct cei_gemm_tile *tile;             /* freed by cei_tiles_fini() */
	uint32_t              n_tiles;          /* a multiple of pair */
	uint32_t              n_free;           /* tiles in front of the first one that adds
						 * partial sums; n_tiles: none does */
	/* 1: every tile has no rows, half of cei_tiles_args.shape.rows, or all of them. */
	int                   has_whole_halves;
};

/* A list of tiles, and the copy that the executor made of it (hold()). */
struct cei_tile_list {
	struct cei_tiles tiles;
	void            *held;
};

/* Returns how many rows a band has at most: those of whole pairs of tiles. Not for
 * CEOV_ORDER_COLUMNS. band_rows: as in struct ceov_op_tuning. */
uint64_t cei_tiles_band(uint32_t band_rows, struct cei_tile_shape shape, uint32_t pair);

/* Returns n / divisor, rounded up. */
uint64_t cei_ceiling(uint64_t n, uint64_t divisor);

/* Finds the rows of one piece of a rank that has `rows` rows. Returns the number of the piece's
 * first row, counted within the rank, and sets *ret_n_rows. Pieces without rows come last. Sizes,
 * but that of the last piece with rows, depend on the cut:
 *   equal               one number of rows, rounded up to a multiple of CEI_PIECE_ROWS if this
 *                       leaves no further piece empty
 *   waves               the blocks of rows that so many whole waves compute; waves are divided
 *                       evenly, and the first pieces have one more
 *   shrinking, growing  multiples of CEI_PIECE_ROWS, one for each piece and the rest in proportion;
 *                       single rows if that would leave a piece empty
 *   columns             no rows are cut: the first piece counts as having all (cei_piece_of) */
uint64_t cei_piece_rows(const struct cei_row_cut *cut, uint64_t rows, uint32_t n_pieces,
			uint32_t piece, uint64_t *ret_n_rows);

/* Returns how many rows the largest piece has. */
uint64_t cei_cut_most_rows(const struct cei_row_cut *cut, uint64_t rows, uint32_t n_pieces);

/* Finds one piece of a rank that has so many rows and columns: the rows of cei_piece_rows() with
 * all columns, or with several pieces and CEOV_CUT_COLUMNS all rows and a range of columns. Ranges
 * are steps of cut->step_columns, shared out evenly; the first pieces have one step more, and
 * pieces without columns come last. */
struct cei_cut_piece cei_piece_of(const struct cei_row_cut *cut, uint64_t rows, uint64_t columns,
			      uint32_t n_pieces, uint32_t piece);

/* Returns whether tiles of that shape lie in one piece each. If columns are cut, tiles must not
 * reach into the next piece: they would add partial sums that have not come. */
int  cei_cut_takes(const struct cei_row_cut *cut, uint32_t n_pieces, struct cei_tile_shape shape);

/* Makes the list. CEOV_ERR_INVALID: a size does not fit the fields of a tile. CEOV_ERR_NO_MEMORY.
 * Errors are not raised, because only the caller knows the context. */
int  cei_tiles_init(struct cei_tiles *tiles, const struct cei_tiles_args *args);
void cei_tiles_fini(struct cei_tiles *tiles);

#endif /* CEI_TILES_H */
