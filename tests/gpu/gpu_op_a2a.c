/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Runs and references of products with an all-to-all on GPUs. */

#include "gpu_op_check.h"

#include <stdio.h>

#include "ops/compute/dtype.h"

int gpu_op_a2a_run(const struct gpu_op_data *data, ceov_op *op, void *stream)
{
	struct ceov_gemm_a2a_run gemm_a2a = { .struct_bytes = sizeof(gemm_a2a) };
	struct ceov_a2a_gemm_run a2a_gemm = { .struct_bytes = sizeof(a2a_gemm) };

	if (data->one->sort == OP_GEMM_A2A) {
		gemm_a2a.stream = stream;
		gemm_a2a.a = data->a;
		gemm_a2a.b = data->b[0];
		gemm_a2a.c = data->c[0];
		return ceov_gemm_a2a_run(op, &gemm_a2a);
	}
	a2a_gemm.stream = stream;
	a2a_gemm.a = data->a;
	a2a_gemm.b = data->b[0];
	a2a_gemm.c = data->c[0];
	return ceov_a2a_gemm_run(op, &a2a_gemm);
}

static void fill_b(const struct gpu_op_check *check, uint32_t rank)
{
	const struct op_case *one = check->data->one;
	const struct gpu_operand b = { .rank = rank, .which = 1, .n = one->n[0] * one->k };

	gpu_op_fill(check->data, GPU_CONTROL, check->b, &b, check->number);
}

/* Copies n_rows rows of `width` numbers, with these numbers from one row to the next. */
struct rows {
	uint64_t n_rows;
	uint64_t width;
	uint64_t to_pitch;
	uint64_t from_pitch;
};

static void move_rows(const struct gpu_op_check *check, void *to, const void *from,
		      const struct rows *rows)
{
	uint64_t i;

	gpu_idle(&check->data->rank->gpu, GPU_CONTROL);
	for (i = 0; rows->width && i < rows->n_rows; i++)
		gpu_move(&check->data->rank->gpu,
			 (char *)to + i * rows->to_pitch * CEI_DTYPE16_BYTES,
			 (const char *)from + i * rows->from_pitch * CEI_DTYPE16_BYTES,
			 rows->width * CEI_DTYPE16_BYTES);
}

/* Returns the check with that part of B that this rank's columns of the product need. */
static struct gpu_op_check with_part_of_b(const struct gpu_op_check *check)
{
	const struct op_case *one = check->data->one;
	uint32_t own = check->data->rank->rank;
	uint64_t first = op_case_parts_before(one, own);
	const struct rows rows = { one->k, op_case_part(one, own), op_case_part(one, own),
				   one->n[0] };
	struct gpu_op_check made = *check;

	if (!one->b_is_k_by_n) {
		made.b = (char *)check->b + first * one->k * CEI_DTYPE16_BYTES;
		return made;
	}
	move_rows(check, check->part, (const char *)check->b + first * CEI_DTYPE16_BYTES, &rows);
	made.b = check->part;
	return made;
}

/* Checks the block from source, which is a part of its product, or of its A. */
static void check_block(const struct gpu_op_check *check, uint32_t source)
{
	const struct op_case *one = check->data->one;
	uint32_t own = check->data->rank->rank;
	uint64_t rows = op_case_block(one, source, own), n = one->n[0];
	struct gpu_operand a = { .rank = source, .n = rows * one->k };
	struct gpu_op_check taken = *check;
	char what[64];

	a.first = op_case_leaves(one, source, own) * one->k;
	fill_b(check, one->sort == OP_GEMM_A2A ? source : own);
	gpu_op_fill(check->data, GPU_CONTROL, check->a, &a, check->number);
	if (one->by_columns) {
		n = op_case_part(one, own);
		taken = with_part_of_b(check);
	}
	gpu_op_refer(&taken, rows, n, 0);
	snprintf(what, sizeof(what), "the block of rank %u", source);
	gpu_op_check_near(&taken, (const uint16_t *)check->data->c[0] +
			  op_case_arrives(one, source, own) * n, rows * n, what);
}

/* Checks a product whose columns of A have come from all ranks. */
static void check_gathered_columns(const struct gpu_op_check *check)
{
	const struct op_case *one = check->data->one;
	uint32_t own = check->data->rank->rank, source;
	struct rows rows = { .n_rows = one->rows[own], .to_pitch = one->k };
	struct gpu_operand a = { .rank = 0 };

	for (source = 0; source < one->n_ranks; source++) {
		rows.width = rows.from_pitch = op_case_part(one, source);
		a.rank = source;
		a.first = op_case_leaves(one, source, own) * rows.width;
		a.n = rows.n_rows * rows.width;
		gpu_op_fill(check->data, GPU_CONTROL, check->part, &a, check->number);
		move_rows(check, (char *)check->a + op_case_parts_before(one, source) *
			  CEI_DTYPE16_BYTES, check->part, &rows);
	}
	fill_b(check, own);
	gpu_op_refer(check, rows.n_rows, one->n[0], 0);
	gpu_op_check_near(check, check->data->c[0], rows.n_rows * one->n[0], "the product");
}

void gpu_op_a2a_check(const struct gpu_op_check *check)
{
	const struct op_case *one = check->data->one;
	uint32_t source;

	if (one->by_columns && one->sort == OP_A2A_GEMM) {
		check_gathered_columns(check);
		return;
	}
	for (source = 0; source < one->n_ranks; source++)
		check_block(check, source);
}
