/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Takes blocks that have arrived out of scratch memory. */

#include "ops/core/arrivals.h"

uint64_t cei_arrivals_rows(const struct cei_run *run, uint64_t rows, uint32_t first, uint32_t n,
			   uint64_t *ret_n_rows)
{
	const struct cei_choice *choice = &run->op->choice;
	uint64_t n_last, row = cei_piece_rows(&choice->cut, rows, choice->n_pieces, first, &n_last);
	uint64_t last = cei_piece_rows(&choice->cut, rows, choice->n_pieces, first + n - 1,
				       &n_last);

	*ret_n_rows = last + n_last - row;
	return row;
}

/* Returns how many pieces of a block have rows; those without rows come last. */
static uint32_t count_pieces(const struct cei_choice *choice, uint64_t rows)
{
	uint32_t piece, n = 0;
	uint64_t n_rows;

	for (piece = 0; piece < choice->n_pieces; piece++) {
		(void)cei_piece_rows(&choice->cut, rows, choice->n_pieces, piece, &n_rows);
		n += n_rows != 0;
	}
	return n;
}

static int take_block(const struct cei_run *run, const struct cei_arrivals *arrivals,
		      uint32_t source, int is_last)
{
	uint32_t n = count_pieces(&run->op->choice, arrivals->rows(run->op, source));
	uint32_t piece;
	int r = 0;

	if (!is_last)
		return n ? arrivals->take(run, source, 0, n) : 0;
	for (piece = 0; !r && piece < n; piece++)
		r = arrivals->take(run, source, piece, 1);
	return r;
}

int cei_arrivals_take(const struct cei_run *run, const struct cei_arrivals *arrivals)
{
	uint32_t rank = run->op->workspace->rank, n_ranks = run->op->shape.n_ranks, i;
	int r = 0;

	for (i = 1; !r && i < n_ranks; i++)
		r = take_block(run, arrivals, (rank + n_ranks - i) % n_ranks, i == n_ranks - 1);
	return r;
}
