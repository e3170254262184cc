/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_TILES_H
#define CEI_TILES_H

/*
 * The order of a GEMM's tiles: which waits for which piece, which arrives where. Pure:
 * shapes in, a list out; the host's GEMM and the kernel execute the same one.
 *
 * A rank's rows are cut into n_pieces pieces (cei_piece_rows); a tile never straddles
 * two pieces. Counters: source rank * n_pieces + piece (awaited), target rank *
 * n_pieces + piece (ready).
 *
 *   all-gather      own rows first, waiting for nothing, then rank - 1, rank - 2, ...:
 *                   the order in which rotated senders arrive here. Within a rank
 *                   piece by piece; of a piece all products, all columns.
 *   reduce-scatter  rows of rank + 1 first, then rank + 2, ..., own rows last: those
 *                   add what the others sent.
 */

#include <stdint.h>

#include "kernels/gemm.h"

struct cei_tile_shape {
	uint32_t rows;
	uint32_t columns;
};

struct cei_tiles_args {
	uint32_t              rank;
	uint32_t              n_ranks;
	const uint64_t       *rows;             /* of each rank */
	uint32_t              n_pieces;         /* of each rank's rows, at least 1 */
	uint32_t              n_products;       /* reduce-scatter: 1 */
	const uint64_t       *columns;          /* of each product */
	struct cei_tile_shape shape;
	uint32_t              pair;             /* tiles that are executed together: 1 or 2. With
						 * 2 the list consists of pairs in one column: see
						 * gemm.h */
	int                   waits;            /* 0: tiles neither await nor arrive: for
						 * sequences, and for measurements */
	int                   scatters;         /* 0: all-gather; 1: reduce-scatter */
};

struct cei_tiles {
	struct cei_gemm_tile *tile;             /* freed by cei_tiles_fini() */
	uint32_t              n_tiles;          /* a multiple of pair */
	int                   has_whole_halves; /* every tile's n_rows is all of the shape's, half
						 * of them, or 0 */
};

/* A list of tiles and the executor's copy of it. */
struct cei_tile_list {
	struct cei_tiles tiles;
	void            *held;
};

/* n / divisor, rounded up. */
uint64_t cei_ceiling(uint64_t n, uint64_t divisor);

/* The rows of one piece of a rank that has `rows`. All pieces but the last have an equal
 * share, rounded up, and further rounded up to a multiple of CEI_PIECE_ROWS where that
 * leaves no further piece empty; the last pieces may have fewer rows, or none. Returns the
 * piece's first row (relative to the rank's) and sets *ret_n_rows. */
#define CEI_PIECE_ROWS    64u
#define CEI_OP_PIECES_MAX 32u          /* of every operator */
uint64_t cei_piece_rows(uint64_t rows, uint32_t n_pieces, uint32_t piece,
			uint64_t *ret_n_rows);

/* INVALID: a size does not fit the tile's fields; NO_MEMORY. Not raised, because the caller
 * knows the context. */
int  cei_tiles_init(struct cei_tiles *tiles, const struct cei_tiles_args *args);
void cei_tiles_fini(struct cei_tiles *tiles);

#endif /* CEI_TILES_H */
