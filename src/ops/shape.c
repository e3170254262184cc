/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Computes sizes of operators, and checks them. */

#include "ops/shape.h"

#include <string.h>

#include "ops/kind.h"

uint64_t cei_op_rows_before(const struct cei_op_shape *shape, uint32_t rank)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < rank; i++)
		sum += shape->rows[i];
	return sum;
}

uint64_t cei_op_all_rows(const struct cei_op_shape *shape)
{
	return cei_op_rows_before(shape, shape->n_ranks);
}

uint64_t cei_op_most_rows(const struct cei_op_shape *shape)
{
	uint64_t most = 0;
	uint32_t i;

	for (i = 0; i < shape->n_ranks; i++)
		if (shape->rows[i] > most)
			most = shape->rows[i];
	return most;
}

uint64_t cei_op_block(const struct cei_op_shape *shape, uint32_t source, uint32_t target)
{
	return shape->blocks[source * shape->n_ranks + target];
}

uint64_t cei_op_block_leaves(const struct cei_op_shape *shape, uint32_t source,
			     uint32_t target)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < target; i++)
		sum += cei_op_block(shape, source, i);
	return sum;
}

uint64_t cei_op_block_arrives(const struct cei_op_shape *shape, uint32_t source,
			      uint32_t target)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < source; i++)
		sum += cei_op_block(shape, i, target);
	return sum;
}

void cei_op_take_rows(struct cei_op_shape *shape, const uint64_t *rows, uint32_t n_ranks)
{
	if (!rows || !n_ranks || n_ranks > CEI_OP_RANKS_MAX)
		return;
	shape->n_ranks = n_ranks;
	memcpy(shape->rows, rows, n_ranks * sizeof(*rows));
}

const char *cei_op_rows_fault(const struct cei_op_shape *shape, uint64_t max, uint32_t step)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < shape->n_ranks; i++) {
		if (shape->rows[i] > max - sum)
			return "there are too many rows or elements";
		if (shape->rows[i] % step)
			return "counts must be multiples of 8";
		sum += shape->rows[i];
	}
	return sum ? NULL : "all ranks together have no rows or elements";
}

const char *cei_op_dtype_fault(const struct cei_op_shape *shape)
{
	if (shape->dtype == CEOV_BF16 || shape->dtype == CEOV_FP16 ||
	    shape->dtype == CEOV_FP32)
		return NULL;
	return "dtype is none of enum ceov_dtype";
}

const char *cei_op_shape_fault(const struct cei_op_shape *shape)
{
	if (shape->fault)
		return shape->fault;
	if (!shape->n_ranks)
		return "no rows or counts or bytes";
	return shape->kind->fault(shape);
}
