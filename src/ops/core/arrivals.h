/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_ARRIVALS_H
#define CEI_ARRIVALS_H

/*
 * Takes what peers have sent into scratch memory from there, in the order in which it arrives if
 * all ranks are equally fast. What a source sends is a block of rows, which is cut into the op's
 * pieces.
 */

#include "ops/core/run.h"

struct cei_arrivals {
	/* Returns how many rows the block from `source` has; 0: nothing comes from there. */
	uint64_t (*rows)(const ceov_op *op, uint32_t source);

	/* Queues that pieces first to first + n - 1 of the block are awaited and then taken. */
	int      (*take)(const struct cei_run *run, uint32_t source, uint32_t first, uint32_t n);
};

/* Finds the rows of pieces first to first + n - 1 of a block that has `rows` rows. Returns the
 * number of the first one, counted within the block, and sets *ret_n_rows. For take(). */
uint64_t cei_arrivals_rows(const struct cei_run *run, uint64_t rows, uint32_t first, uint32_t n,
			   uint64_t *ret_n_rows);

/* Takes the blocks of all other ranks: each as a whole, except that the last one is taken piece by
 * piece, so that only its last piece is left to be taken behind all arrivals. */
int  cei_arrivals_take(const struct cei_run *run, const struct cei_arrivals *arrivals);

#endif /* CEI_ARRIVALS_H */
