/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PARTS_H
#define CEI_PARTS_H

/* Where the parts of sums and their pieces are. The part of a rank is what it gets of the sum. */

#include "ops/core/op.h"

#define CEI_SUM_STEP 8u                 /* numbers of elements are multiples of it */

/* Returns the bytes of so many elements. */
uint64_t cei_sum_bytes(const struct cei_op_shape *shape, uint64_t n_elements);

/* Returns the offset, in elements, of a rank's part in the operand `source`. */
uint64_t cei_sum_part_at(const struct cei_op_shape *shape, uint32_t rank);

/* Returns how many elements of `source` are used, from its first one to the end of the last
 * part. */
uint64_t cei_sum_source_elements(const struct cei_op_shape *shape);

/* Returns how many elements a piece of a rank's part has, as kernels/reduce.h describes; never
 * 0. */
uint64_t cei_sum_piece_elements(const ceov_op *op, uint32_t rank);

/* Returns how many elements one piece of a rank's part has, and in *ret_at the offset of the piece
 * in the part. Pieces behind the end of a short part have 0. */
uint64_t cei_sum_piece_of(const ceov_op *op, uint32_t rank, uint32_t piece, uint64_t *ret_at);

/* Returns the offset of the gathered sums of an all-reduce in a half of scratch, in bytes: how many
 * bytes what ranks send to be added needs. */
uint64_t cei_sum_gather_at(const struct cei_op_shape *shape);

/* Returns the bytes of the longest part, which is what a slot for anybody's part has. */
uint64_t cei_sum_slot_bytes(const struct cei_op_shape *shape);

#endif /* CEI_PARTS_H */
