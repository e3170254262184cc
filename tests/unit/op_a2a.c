/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Runs and expected results of products with an all-to-all. */

#include <stdlib.h>

#include "op_expect.h"

int op_a2a_run(const struct op_case *one, ceov_op *op, const struct op_data *data)
{
	struct ceov_gemm_a2a_run gemm_a2a = { .struct_bytes = sizeof(gemm_a2a) };
	struct ceov_a2a_gemm_run a2a_gemm = { .struct_bytes = sizeof(a2a_gemm) };

	if (one->sort == OP_GEMM_A2A) {
		gemm_a2a.a = data->a;
		gemm_a2a.b = data->b[0];
		gemm_a2a.c = data->c[0];
		return ceov_gemm_a2a_run(op, &gemm_a2a);
	}
	a2a_gemm.a = data->a;
	a2a_gemm.b = data->b[0];
	a2a_gemm.c = data->c[0];
	return ceov_a2a_gemm_run(op, &a2a_gemm);
}

struct factors {                        /* of one result, or of a part of its sum */
	const void *a;
	const void *b;
	uint64_t    at;                 /* the first factor in A */
	uint64_t    n;                  /* number of products */
	uint64_t    first;              /* the step of k of the first one */
	uint64_t    column;             /* of the product */
};

static double dot(const struct op_case *one, const struct factors *factors)
{
	double sum = 0;
	uint64_t i, k;

	for (i = 0; i < factors->n; i++) {
		k = factors->first + i;
		k = one->b_is_k_by_n ? k * one->n[0] + factors->column
			: factors->column * one->k + k;
		sum += (double)op_number(one, factors->a, factors->at + i) *
			(double)op_number(one, factors->b, k);
	}
	return sum;
}

/* Checks the block from source, which is a part of its product. */
static void check_block(const struct op_case *one, uint32_t source, uint32_t rank,
			const struct op_data *data, struct factors factors)
{
	uint64_t rows = op_case_block(one, source, rank), row, column, first = 0, width = one->n[0];
	uint64_t at = op_case_arrives(one, source, rank);
	struct op_sum expected = { 0, 0 };

	if (one->by_columns && one->sort == OP_GEMM_A2A) {
		width = op_case_part(one, rank);
		first = op_case_parts_before(one, rank);
	}
	for (row = 0; row < rows; row++) {
		for (column = 0; column < width; column++) {
			factors.at = (op_case_leaves(one, source, rank) + row) * one->k;
			factors.column = first + column;
			expected.value = dot(one, &factors);
			op_check_number(one, expected, data->c[0], (at + row) * width + column);
		}
	}
}

static void check_blocks(const struct op_case *one, uint32_t rank, uint64_t seed,
			 const struct op_data *data)
{
	struct factors factors = { .n = one->k };
	uint32_t source;
	void *a, *b;

	for (source = 0; source < one->n_ranks; source++) {
		a = op_make_a(one, source, seed);
		b = op_make_b(one, one->sort == OP_GEMM_A2A ? source : rank, seed, 0);
		factors.a = a;
		factors.b = b;
		check_block(one, source, rank, data, factors);
		free(a);
		free(b);
	}
}

/* Adds what the columns of `source` contribute to all results of this rank. */
static void add_columns(const struct op_case *one, uint32_t source, uint32_t rank,
			struct factors factors, struct op_sum *sums)
{
	uint64_t i, n = one->rows[rank] * one->n[0];

	factors.n = op_case_part(one, source);
	factors.first = op_case_parts_before(one, source);
	for (i = 0; i < n; i++) {
		factors.at = (op_case_leaves(one, source, rank) + i / one->n[0]) * factors.n;
		factors.column = i % one->n[0];
		sums[i].value += dot(one, &factors);
	}
}

/* Checks a product whose columns of A have come from all ranks. */
static void check_gathered_columns(const struct op_case *one, uint32_t rank, uint64_t seed,
				   const struct op_data *data)
{
	uint64_t n = one->rows[rank] * one->n[0], i;
	struct op_sum *sums = calloc(n + 1, sizeof(*sums));
	struct factors factors = { .b = data->b[0] };
	uint32_t source;
	void *a;

	ck_assert_ptr_nonnull(sums);
	for (source = 0; source < one->n_ranks; source++) {
		a = op_make_a(one, source, seed);
		factors.a = a;
		add_columns(one, source, rank, factors, sums);
		free(a);
	}
	for (i = 0; i < n; i++)
		op_check_number(one, sums[i], data->c[0], i);
	free(sums);
}

void op_a2a_check(const struct op_case *one, uint32_t rank, uint64_t seed,
		       const struct op_data *data)
{
	if (one->by_columns && one->sort == OP_A2A_GEMM)
		check_gathered_columns(one, rank, seed, data);
	else
		check_blocks(one, rank, seed, data);
}
