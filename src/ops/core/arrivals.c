/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Takes blocks that have arrived out of scratch memory. */

#include "ops/core/arrivals.h"

struct cei_cut_piece cei_arrivals_part(const struct cei_run *run, uint64_t rows, uint64_t columns,
				       uint32_t first, uint32_t n)
{
	const struct cei_choice *choice = &run->op->choice;
	struct cei_cut_piece of, last;

	of = cei_piece_of(&choice->cut, rows, columns, choice->n_pieces, first);
	last = cei_piece_of(&choice->cut, rows, columns, choice->n_pieces, first + n - 1);
	of.n_rows = last.row + last.n_rows - of.row;
	of.n_columns = last.column + last.n_columns - of.column;
	return of;
}

uint64_t cei_arrivals_rows(const struct cei_run *run, uint64_t rows, uint32_t first, uint32_t n,
			   uint64_t *ret_n_rows)
{
	struct cei_cut_piece of = cei_arrivals_part(run, rows, 0, first, n);

	*ret_n_rows = of.n_rows;
	return of.row;
}

/* Returns how many pieces of a source's block have rows; those without rows come last. */
static uint32_t count_pieces(const ceov_op *op, const struct cei_arrivals *arrivals,
			     uint32_t source)
{
	uint64_t columns = arrivals->columns ? arrivals->columns(op, source) : 0;
	uint64_t rows = arrivals->rows(op, source);
	uint32_t n_pieces = op->choice.n_pieces, piece, n = 0;

	for (piece = 0; piece < n_pieces; piece++)
		n += cei_piece_of(&op->choice.cut, rows, columns, n_pieces, piece).n_rows != 0;
	return n;
}

static int take_block(const struct cei_run *run, const struct cei_arrivals *arrivals,
		      uint32_t source, int is_last)
{
	uint32_t n = count_pieces(run->op, arrivals, source), piece;
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
