/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Sizes of operators, and what is refused of them. */

#include "ops/shape.h"

#include <string.h>

#include "ops/kinds.h"

/* Columns come in 16 bytes. */
#define COLUMN_STEP  8u
int cei_op_has_gemm(const struct cei_op_shape *shape)
{
	return shape->kind == &cei_ag_gemm || shape->kind == &cei_gemm_rs;
}

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

void cei_op_take_rows(struct cei_op_shape *shape, const uint64_t *rows, uint32_t n_ranks)
{
	if (!rows || !n_ranks || n_ranks > CEI_RANKS_MAX)
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

static const char *columns_fault(const struct cei_op_shape *shape)
{
	uint64_t most = shape->k;
	uint32_t i;

	if (!shape->n_products || shape->n_products > CEOV_OP_GEMMS_MAX)
		return "n_gemms must be 1 to 4";
	if (!shape->k || shape->k % COLUMN_STEP)
		return "k must be a multiple of 8, and not 0";
	for (i = 0; i < shape->n_products; i++)
		if (!shape->n[i] || shape->n[i] % COLUMN_STEP)
			return "n must be a multiple of 8, and not 0";
	for (i = 0; i < shape->n_products; i++)
		most = shape->n[i] > most ? shape->n[i] : most;
	if (most > CEI_EXTENT_MAX)
		return shape->k > CEI_EXTENT_MAX ? "k is above 2^31" : "n is above 2^31";
	if (shape->b_is_k_by_n != 0 && shape->b_is_k_by_n != 1)
		return "b_is_k_by_n must be 0 or 1";
	if (cei_op_all_rows(shape) > CEI_ELEMENTS_MAX / most)
		return "a matrix has too many elements";
	/* The kernel sees all sources' partial sums as one matrix, and counts its rows in
	 * 31 bits. */
	if (shape->kind == &cei_gemm_rs &&
	    cei_op_most_rows(shape) > CEI_EXTENT_MAX / shape->n_ranks)
		return "a rank has too many rows for the number of ranks";
	return NULL;
}

const char *cei_op_shape_fault(const struct cei_op_shape *shape)
{
	const char *fault;

	if (shape->fault)
		return shape->fault;
	if (!shape->n_ranks)
		return "no rows or counts or bytes";
	if (shape->kind->fault)
		return shape->kind->fault(shape);
	if (shape->dtype == CEOV_FP32)
		return "dtype is CEOV_FP32, which only sums take; products take CEOV_BF16 or "
			"CEOV_FP16";
	fault = cei_op_dtype_fault(shape);
	if (!fault)
		fault = cei_op_rows_fault(shape, CEI_EXTENT_MAX, 1);
	return fault ? fault : columns_fault(shape);
}
