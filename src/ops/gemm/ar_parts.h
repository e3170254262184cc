/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_AR_PARTS_H
#define CEI_AR_PARTS_H

/*
 * How the sum of a GEMM + all-reduce is divided among ranks, and where it lies in a half of
 * scratch. Each rank has a part of the sum, some of its rows or of its columns. A half holds, one
 * behind the other:
 *
 *   the product   this rank's, m x n, of which the parts of the other ranks are sent
 *   the staging   this rank's part as each other rank sends it, rank after rank
 *   the sums      part after part
 *
 * All functions depend on the shape alone, so all ranks find the same; offsets are in bytes.
 */

#include <stdint.h>

#include "ops/shape.h"

#define CEI_AR_COLUMNS_LEAST 8u         /* numbers of columns are multiples of it */

/* Divide the m rows of the sum, or its columns, whose number is product.n[0], and set the fields of
 * the shape that say so. n_ranks must be set. */
void cei_ar_divide_rows(struct cei_op_shape *shape, uint64_t m);
void cei_ar_divide_columns(struct cei_op_shape *shape, uint64_t m);

/* Return how many rows and columns the sum has. */
uint64_t cei_ar_m(const struct cei_op_shape *shape);
uint64_t cei_ar_n(const struct cei_op_shape *shape);

/* Return the size of a rank's part. It has 0 rows also if it has no columns. */
uint64_t cei_ar_part_columns(const struct cei_op_shape *shape, uint32_t rank);
uint64_t cei_ar_part_rows(const struct cei_op_shape *shape, uint32_t rank);
uint64_t cei_ar_part_row_bytes(const struct cei_op_shape *shape, uint32_t rank);
uint64_t cei_ar_part_bytes(const struct cei_op_shape *shape, uint32_t rank);

/* Returns the size of the sum. */
uint64_t cei_ar_all_bytes(const struct cei_op_shape *shape);

/* Returns the offset of a rank's part in a matrix that is laid out as C. */
uint64_t cei_ar_part_in_c(const struct cei_op_shape *shape, uint32_t rank);

/* Return the offsets of the staging and of a rank's sums in a half of scratch; of rank n_ranks: the
 * end of all sums. */
uint64_t cei_ar_staging_at(const struct cei_op_shape *shape);
uint64_t cei_ar_sums_at(const struct cei_op_shape *shape, uint32_t rank);

#endif /* CEI_AR_PARTS_H */
