/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_COLUMNS_H
#define CEI_COLUMNS_H

/*
 * Products that are stored in parts, one for each rank, each a range of the product's columns
 * (shape->a2a.is_by_columns). Tiles begin at the parts, which cuBLAS does not support here, so
 * these products need the library's own kernels. For shapes whose rows are divided the functions do
 * what those of all products do (product.h).
 */

#include <stdint.h>

#include "ops/compute/executor.h"
#include "ops/shape.h"

struct cei_choice;                      /* selector.h */
struct cei_choose_args;
struct cei_rates;
struct cei_listing;                     /* candidates.h */

/* Functions that kinds set in their struct cei_op_kind and struct cei_op_trial. */
const char *cei_columns_lacks(const ceov_workspace *workspace, const struct cei_op_shape *shape,
			      const struct ceov_op_tuning *tuning, const struct cei_rates *rates);
void cei_columns_choose(const struct cei_choose_args *args, struct cei_choice *choice);
void cei_columns_candidates(const struct cei_listing *listing);

/* Returns the columns of the product that a rank's part has, in the matrix B that begins at b. The
 * base is NULL if the part has no columns. */
struct cei_matrix cei_columns_of_b(const struct cei_op_shape *shape, uint32_t rank, const char *b);

#endif /* CEI_COLUMNS_H */
