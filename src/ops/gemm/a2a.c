/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Takes, checks and explains shapes of products with an all-to-all. */

#include "ops/gemm/a2a.h"

#include <string.h>

#include "ops/gemm/product.h"
#include "ops/kind.h"
#include "ops/tuning/selector.h"

#define COLUMN_STEP 8u

/* Drivers copy rows that are less than 2^31 bytes apart. */
#define COLUMNS_MAX ((UINT64_C(1) << 30) - COLUMN_STEP)

uint64_t cei_a2a_sum(const uint64_t *numbers, uint32_t n)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < n; i++)
		sum += numbers[i];
	return sum;
}

uint64_t cei_a2a_most(const uint64_t *numbers, uint32_t n)
{
	uint64_t most = 0;
	uint32_t i;

	for (i = 0; i < n; i++)
		most = numbers[i] > most ? numbers[i] : most;
	return most;
}

int cei_a2a_take(struct cei_op_shape *shape, const struct cei_a2a_from *from,
		      uint32_t n_ranks)
{
	struct cei_a2a_shape *a2a = &shape->a2a;

	cei_product_take(shape, from->dtype, from->k, from->n, from->b_is_k_by_n);
	if (!from->rows_of != (from->rows && from->columns) ||
	    !from->rows != !from->columns) {
		shape->fault = "set either rows_of, or both rows and columns";
		return 0;
	}
	if (!n_ranks || n_ranks > CEI_OP_RANKS_MAX)
		return 0;
	shape->n_ranks = n_ranks;
	shape->blocks = from->rows_of;
	if (from->rows_of)
		return 1;
	a2a->is_by_columns = 1;
	memcpy(a2a->rows, from->rows, n_ranks * sizeof(*from->rows));
	memcpy(a2a->columns, from->columns, n_ranks * sizeof(*from->columns));
	return 1;
}

/* Returns whether the sum of n numbers is at most max, and returns the sum. */
static int fits(const uint64_t *numbers, uint32_t n, uint64_t max, uint64_t *ret_sum)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < n; i++) {
		if (numbers[i] > max - sum)
			return 0;
		sum += numbers[i];
	}
	*ret_sum = sum;
	return 1;
}

static const char *columns_fault(const struct cei_op_shape *shape, uint64_t *ret_columns)
{
	const struct cei_a2a_shape *a2a = &shape->a2a;
	uint32_t i;

	for (i = 0; i < shape->n_ranks; i++)
		if (a2a->columns[i] % COLUMN_STEP)
			return "columns must be multiples of 8";
	if (!fits(a2a->columns, shape->n_ranks, COLUMNS_MAX, ret_columns))
		return "there are too many columns";
	return NULL;
}

const char *cei_a2a_fault(const struct cei_op_shape *shape)
{
	int is_by_columns = shape->a2a.is_by_columns;
	const uint64_t *numbers = is_by_columns ? shape->a2a.rows : shape->blocks;
	uint32_t n = is_by_columns ? shape->n_ranks : shape->n_ranks * shape->n_ranks;
	uint64_t rows = 0, columns = 0;
	const char *fault = NULL;

	if (!fits(numbers, n, CEI_EXTENT_MAX, &rows))
		return "there are too many rows";
	if (is_by_columns)
		fault = columns_fault(shape, &columns);
	if (!fault)
		fault = cei_product_fault(shape);
	if (!fault && rows > CEI_ELEMENTS_MAX / (columns + shape->product.n[0] + shape->product.k))
		fault = "a matrix has too many elements";
	return fault;
}

void cei_a2a_explain(const struct cei_choose_args *args, struct cei_choice *choice)
{
	const struct cei_op_shape *shape = args->shape;

	cei_choice_say_mode(args, choice);
	cei_choice_say_pieces(args, choice);
	cei_choice_say_cut(args, choice);
	cei_choice_say(choice, "tiles: %ux%u (%s)%s\n", choice->shape.rows,
		       choice->shape.columns, cei_choice_by(args->given->tile_rows),
		       shape->product.b_is_k_by_n ? ", B is k x n" : "");
	cei_product_say_order(args, choice);
	if (!shape->a2a.is_by_columns)
		cei_choice_say(choice, "divided: rows\n");
	else if (shape->kind->product->scatters)
		cei_choice_say(choice, "divided: columns\n");
	else
		cei_choice_say(choice, "divided: columns, so each piece of rows is a product of "
			       "its own, behind the parts of all ranks\n");
}
