/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_ARRIVALS_H
#define CEI_ARRIVALS_H

/*
 * Takes what peers have sent into scratch memory from there, in the order in which it arrives if
 * all ranks are equally fast. What a source sends is a block of rows, which is cut into the op's
 * pieces, by rows or by columns.
 */

#include "ops/core/run.h"

struct cei_arrivals {
	/* Returns how many rows the block from `source` has; 0: nothing comes from there. */
	uint64_t (*rows)(const ceov_op *op, uint32_t source);

	/* Returns how many columns it has. NULL: the kind has no pieces of columns. */
	uint64_t (*columns)(const ceov_op *op, uint32_t source);

	/* Queues that pieces first to first + n - 1 of the block are awaited and then taken. */
	int      (*take)(const struct cei_run *run, uint32_t source, uint32_t first, uint32_t n);
};

/* Finds the rows of pieces first to first + n - 1 of a block that has `rows` rows. Returns the
 * number of the first one, counted within the block, and sets *ret_n_rows. For take(). */
uint64_t cei_arrivals_rows(const struct cei_run *run, uint64_t rows, uint32_t first, uint32_t n,
			   uint64_t *ret_n_rows);

/* Finds what pieces first to first + n - 1 have of a block with so many rows and columns. None of
 * them is empty. */
struct cei_cut_piece cei_arrivals_part(const struct cei_run *run, uint64_t rows, uint64_t columns,
				       uint32_t first, uint32_t n);

/* Takes the blocks of all other ranks: each as a whole, except that the last one is taken piece by
 * piece, so that only its last piece is left to be taken behind all arrivals. */
int  cei_arrivals_take(const struct cei_run *run, const struct cei_arrivals *arrivals);

#endif /* CEI_ARRIVALS_H */
