/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What products whose columns are divided among ranks have in common. */

#include "ops/gemm/columns.h"

#include "ops/compute/dtype.h"
#include "ops/core/workspace.h"
#include "ops/gemm/a2a.h"
#include "ops/gemm/product.h"
#include "ops/tuning/candidates.h"
#include "ops/tuning/selector.h"

const char *cei_columns_lacks(const ceov_workspace *workspace, const struct cei_op_shape *shape,
			      const struct ceov_op_tuning *tuning, const struct cei_rates *rates)
{
	const struct cei_executor *executor = &workspace->executor;
	const char *fault = cei_product_lacks(workspace, shape, tuning, rates);
	struct cei_tile_shape given;

	if (fault || !shape->a2a.is_by_columns)
		return fault;
	if (!rates->has_tiles)
		return "columns are divided, and there is no kernel for this GPU; divide rows";
	if (!tuning || !tuning->tile_rows || cei_selector_is_direct(tuning->mode))
		return NULL;
	given.rows = tuning->tile_rows;
	given.columns = tuning->tile_columns;
	return executor->ops->pair(executor, given) == rates->pair ? NULL
		: "tuning: columns are divided, and cuBLAS has to compute tiles of that shape; "
		  "set another one";
}

/* Returns the rates with which the shape's tiles are chosen. */
static struct cei_rates rates_for(const struct cei_op_shape *shape, const struct cei_rates *rates)
{
	struct cei_rates taken = *rates;

	if (shape->a2a.is_by_columns)
		taken.has_library = 0;
	return taken;
}

void cei_columns_choose(const struct cei_choose_args *args, struct cei_choice *choice)
{
	struct cei_rates rates = rates_for(args->shape, args->rates);
	struct cei_choose_args taken = { args->shape, &rates, args->given };

	cei_product_choose(&taken, choice);
}

void cei_columns_candidates(const struct cei_listing *listing)
{
	struct cei_rates rates = rates_for(listing->shape, listing->rates);
	struct cei_listing taken = *listing;

	taken.rates = &rates;
	cei_product_candidates(&taken);
}

struct cei_matrix cei_columns_of_b(const struct cei_op_shape *shape, uint32_t rank, const char *b)
{
	const uint64_t *columns = shape->a2a.columns;
	uint64_t part = columns[rank], k = shape->product.k;
	uint64_t first = cei_a2a_sum(columns, rank) * CEI_DTYPE16_BYTES;
	struct cei_matrix matrix;

	if (!shape->product.b_is_k_by_n)
		return cei_product_matrix(b + first * k, part, k);
	matrix = cei_product_matrix(b + first, part ? k : 0, part);
	matrix.pitch = cei_a2a_sum(columns, shape->n_ranks);
	return matrix;
}
