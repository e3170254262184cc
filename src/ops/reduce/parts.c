/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Where parts of sums and their pieces are. */

#include "ops/reduce/parts.h"

#include "ops/compute/dtype.h"
#include "ops/reduce/by_node.h"

#define GATHER_ALIGN_BYTES 256u

uint64_t cei_sum_bytes(const struct cei_op_shape *shape, uint64_t n_elements)
{
	return n_elements * cei_dtype_bytes(shape->dtype);
}

uint64_t cei_sum_part_at(const struct cei_op_shape *shape, uint32_t rank)
{
	return shape->sum.stride ? rank * shape->sum.stride : cei_op_rows_before(shape, rank);
}

uint64_t cei_sum_source_elements(const struct cei_op_shape *shape)
{
	uint32_t last = shape->n_ranks - 1;

	while (last && !shape->rows[last])
		last--;
	return cei_sum_part_at(shape, last) + shape->rows[last];
}

uint64_t cei_sum_piece_elements(const ceov_op *op, uint32_t rank)
{
	uint64_t n_pieces = op->choice.n_pieces;
	uint64_t share = (op->shape.rows[rank] + n_pieces - 1) / n_pieces;

	if (!share)
		return CEI_SUM_STEP;
	return (share + CEI_SUM_STEP - 1) / CEI_SUM_STEP * CEI_SUM_STEP;
}

uint64_t cei_sum_piece_of(const ceov_op *op, uint32_t rank, uint32_t piece, uint64_t *ret_at)
{
	uint64_t share = cei_sum_piece_elements(op, rank), n = op->shape.rows[rank];
	uint64_t at = piece * share < n ? piece * share : n;

	*ret_at = at;
	return n - at < share ? n - at : share;
}

uint64_t cei_sum_slot_bytes(const struct cei_op_shape *shape)
{
	return cei_sum_bytes(shape, cei_op_most_rows(shape));
}

uint64_t cei_sum_gather_at(const struct cei_op_shape *shape)
{
	uint64_t n_slots = shape->n_ranks * (shape->sum.by_node ? CEI_BY_NODE_SLOTS : 1);

	return (n_slots * cei_sum_slot_bytes(shape) + GATHER_ALIGN_BYTES - 1) /
		GATHER_ALIGN_BYTES * GATHER_ALIGN_BYTES;
}
