/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Divides the sum of a GEMM + all-reduce among ranks, and places the parts in scratch. */

#include "ops/gemm/ar_parts.h"

#include "ops/compute/dtype.h"
#include "ops/compute/tiles.h"
#include "ops/gemm/a2a.h"

#define PLACE_ALIGN_BYTES 256u

/* Parts of the product begin at multiples of these, as long as every rank gets one: rows of half a
 * tile, and the columns that a tile stores at once. */
#define ROW_STEP    64u
#define COLUMN_STEP 64u

/* Distributes `total` evenly, in units of `step` if there is one for each rank, else in units of
 * `least`, of which total is a multiple. The last rank that gets any may get less than a unit. */
static void divide(uint64_t total, uint64_t step, uint64_t least, const struct cei_op_shape *shape,
		   uint64_t parts[CEI_OP_RANKS_MAX])
{
	uint64_t n_ranks = shape->n_ranks, unit = total / step < n_ranks ? least : step;
	uint64_t units = cei_ceiling(total, unit), n, rank;

	for (rank = 0; rank < n_ranks; rank++) {
		n = (units / n_ranks + (rank < units % n_ranks)) * unit;
		parts[rank] = n < total ? n : total;
		total -= parts[rank];
	}
}

void cei_ar_divide_rows(struct cei_op_shape *shape, uint64_t m)
{
	divide(m, ROW_STEP, 1, shape, shape->rows);
}

/* The cost model sees all rows of the widest part (a2a.h). */
void cei_ar_divide_columns(struct cei_op_shape *shape, uint64_t m)
{
	struct cei_a2a_shape *a2a = &shape->a2a;
	uint32_t i;

	a2a->is_by_columns = 1;
	divide(shape->product.n[0], COLUMN_STEP, CEI_AR_COLUMNS_LEAST, shape, a2a->columns);
	shape->product.n[0] = cei_a2a_most(a2a->columns, shape->n_ranks);
	for (i = 0; i < shape->n_ranks; i++)
		shape->rows[i] = m;
}

uint64_t cei_ar_m(const struct cei_op_shape *shape)
{
	return shape->a2a.is_by_columns ? shape->rows[0] : cei_op_all_rows(shape);
}

uint64_t cei_ar_n(const struct cei_op_shape *shape)
{
	return shape->a2a.is_by_columns ? cei_a2a_sum(shape->a2a.columns, shape->n_ranks)
		: shape->product.n[0];
}

uint64_t cei_ar_part_columns(const struct cei_op_shape *shape, uint32_t rank)
{
	return shape->a2a.is_by_columns ? shape->a2a.columns[rank] : shape->product.n[0];
}

uint64_t cei_ar_part_rows(const struct cei_op_shape *shape, uint32_t rank)
{
	return cei_ar_part_columns(shape, rank) ? shape->rows[rank] : 0;
}

uint64_t cei_ar_part_row_bytes(const struct cei_op_shape *shape, uint32_t rank)
{
	return cei_ar_part_columns(shape, rank) * CEI_DTYPE16_BYTES;
}

uint64_t cei_ar_part_bytes(const struct cei_op_shape *shape, uint32_t rank)
{
	return cei_ar_part_rows(shape, rank) * cei_ar_part_row_bytes(shape, rank);
}

uint64_t cei_ar_all_bytes(const struct cei_op_shape *shape)
{
	return cei_ar_m(shape) * cei_ar_n(shape) * CEI_DTYPE16_BYTES;
}

uint64_t cei_ar_part_in_c(const struct cei_op_shape *shape, uint32_t rank)
{
	return shape->a2a.is_by_columns
		? cei_a2a_sum(shape->a2a.columns, rank) * CEI_DTYPE16_BYTES
		: cei_op_rows_before(shape, rank) * shape->product.n[0] * CEI_DTYPE16_BYTES;
}

static uint64_t aligned(uint64_t n_bytes)
{
	return cei_ceiling(n_bytes, PLACE_ALIGN_BYTES) * PLACE_ALIGN_BYTES;
}

uint64_t cei_ar_staging_at(const struct cei_op_shape *shape)
{
	return aligned(cei_ar_all_bytes(shape));
}

uint64_t cei_ar_sums_at(const struct cei_op_shape *shape, uint32_t rank)
{
	uint64_t widest_bytes = shape->product.n[0] * CEI_DTYPE16_BYTES, at;
	uint32_t i;

	at = cei_ar_staging_at(shape) +
		aligned(shape->n_ranks * cei_op_most_rows(shape) * widest_bytes);
	for (i = 0; i < rank; i++)
		at += cei_ar_part_bytes(shape, i);
	return at;
}
