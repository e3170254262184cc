/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Computes products on the host. The operands of a tile are widened to float once, and the inner
 * loop works on vectors. Rows are padded to a multiple of STRIP and columns to a multiple of LANES;
 * the results of the padding are not used. */

#include "ops/exec_host/host_gemm.h"

#include <stdlib.h>
#include <string.h>

#include "ops/compute/dtype.h"

#define LANES   8u                      /* columns that are summed together */
#define STRIP   4u                      /* rows that are summed together */
#define K_STEP  256u                    /* steps of k that are widened at a time */

typedef float lanes __attribute__((vector_size(LANES * sizeof(float)), may_alias));

static uint64_t round_up(uint64_t n, uint64_t to)
{
	return (n + to - 1) / to * to;
}

static void *take(uint64_t n_floats)
{
	uint64_t n_bytes = round_up(n_floats * sizeof(float), sizeof(lanes));

	return aligned_alloc(sizeof(lanes), n_bytes ? n_bytes : sizeof(lanes));
}

void cei_host_gemm_fini(struct cei_host_gemm *gemm)
{
	free(gemm->a);
	free(gemm->b);
	free(gemm->sum);
	free(gemm->row);
}

int cei_host_gemm_init(struct cei_host_gemm *gemm, const struct cei_gemm_job *job)
{
	uint64_t n_rows = 0, n_columns = 0, n;
	uint32_t i;

	for (i = 0; i < CEI_GEMM_C_MAX; i++) {
		n_rows = job->c[i].rows > n_rows ? job->c[i].rows : n_rows;
		n_columns = job->c[i].columns > n_columns ? job->c[i].columns : n_columns;
	}
	n_rows = round_up(n_rows < job->shape.rows ? n_rows : job->shape.rows, STRIP);
	n_columns = round_up(n_columns < job->shape.columns ? n_columns :
			     job->shape.columns, LANES);
	n = n_columns > K_STEP ? n_columns : K_STEP;
	gemm->a = take(n_rows * K_STEP);
	gemm->b = take(n_columns * K_STEP);
	gemm->sum = take(n_rows * n_columns);
	gemm->row = take(n);
	if (!gemm->a || !gemm->b || !gemm->sum || !gemm->row)
		return CEOV_ERR_NO_MEMORY;
	/* The padding takes part in the computation, so it must hold valid numbers. */
	memset(gemm->a, 0, n_rows * K_STEP * sizeof(float));
	memset(gemm->b, 0, n_columns * K_STEP * sizeof(float));
	return 0;
}

char *cei_matrix_at(const struct cei_matrix *matrix, uint64_t row, uint64_t column)
{
	return (char *)(uintptr_t)matrix->base +
		(row * cei_matrix_pitch(matrix) + column) * CEI_DTYPE16_BYTES;
}

float *cei_host_gemm_sum(const struct cei_host_gemm *gemm, uint64_t row)
{
	return gemm->sum + row * round_up(gemm->n_columns, LANES);
}

/* --- operands -------------------------------------------------------------- */

struct span {                           /* a range of k */
	uint64_t first;
	uint64_t n;
};

/* Returns the address in gemm->b of one element: column `column` of the tile, row `step` of the
 * present range of k. */
static float *b_at(const struct cei_host_gemm *gemm, uint64_t column, uint64_t step)
{
	return gemm->b + (column / LANES * K_STEP + step) * LANES + column % LANES;
}

static void lay_out_a(const struct cei_host_gemm *gemm, const struct cei_gemm_job *job,
		      const struct cei_gemm_tile *tile, struct span k)
{
	uint64_t i;

	for (i = 0; i < tile->n_rows; i++)
		cei_dtype_widen(job->dtype, gemm->a + i * K_STEP,
				cei_matrix_at(&job->a[tile->a], tile->a_row + i, k.first), k.n);
}

/* Widens a B that is stored as n x k: each stored row is a column of the product. */
static void lay_out_columns(const struct cei_host_gemm *gemm, const struct cei_gemm_job *job,
			    const struct cei_gemm_tile *tile, struct span k)
{
	uint64_t i, step;

	for (i = 0; i < gemm->n_columns; i++) {
		cei_dtype_widen(job->dtype, gemm->row,
				cei_matrix_at(&job->b[tile->b], tile->column + i, k.first), k.n);
		for (step = 0; step < k.n; step++)
			*b_at(gemm, i, step) = gemm->row[step];
	}
}

/* Widens a B that is stored as k x n: each stored row is one step of k. */
static void lay_out_steps(const struct cei_host_gemm *gemm, const struct cei_gemm_job *job,
			  const struct cei_gemm_tile *tile, struct span k)
{
	uint64_t i, step;

	for (step = 0; step < k.n; step++) {
		cei_dtype_widen(job->dtype, gemm->row,
				cei_matrix_at(&job->b[tile->b], k.first + step, tile->column),
				gemm->n_columns);
		for (i = 0; i < gemm->n_columns; i++)
			*b_at(gemm, i, step) = gemm->row[i];
	}
}

/* --- multiply -------------------------------------------------------------- */

/* Multiplies STRIP rows of A by one panel of B, and adds the products to the sums. `sum` points to
 * the first row's sums; those of the next row follow n_panels further on. */
static void multiply_strip(lanes *sum, uint64_t n_panels, const float *a, const lanes *b,
			   uint64_t n_k)
{
	lanes sum0 = sum[0], sum1 = sum[n_panels];
	lanes sum2 = sum[2 * n_panels], sum3 = sum[3 * n_panels];
	uint64_t k;

	for (k = 0; k < n_k; k++) {
		sum0 += a[k] * b[k];
		sum1 += a[K_STEP + k] * b[k];
		sum2 += a[2 * K_STEP + k] * b[k];
		sum3 += a[3 * K_STEP + k] * b[k];
	}
	sum[0] = sum0;
	sum[n_panels] = sum1;
	sum[2 * n_panels] = sum2;
	sum[3 * n_panels] = sum3;
}

void cei_host_gemm_multiply(struct cei_host_gemm *gemm, const struct cei_gemm_job *job,
			    const struct cei_gemm_tile *tile)
{
	uint64_t left = job->c[tile->c].columns - tile->column, row, panel, n_panels;
	uint64_t n_rows = round_up(tile->n_rows, STRIP);
	lanes *sum = (lanes *)gemm->sum;
	const lanes *b = (const lanes *)gemm->b;
	struct span k;

	gemm->n_columns = left < job->shape.columns ? left : job->shape.columns;
	n_panels = round_up(gemm->n_columns, LANES) / LANES;
	memset(sum, 0, n_rows * n_panels * sizeof(*sum));
	for (k.first = 0; k.first < job->k; k.first += k.n) {
		k.n = job->k - k.first < K_STEP ? job->k - k.first : K_STEP;
		lay_out_a(gemm, job, tile, k);
		if (job->b_is_k_by_n)
			lay_out_steps(gemm, job, tile, k);
		else
			lay_out_columns(gemm, job, tile, k);
		for (panel = 0; panel < n_panels; panel++)
			for (row = 0; row < n_rows; row += STRIP)
				multiply_strip(sum + row * n_panels + panel, n_panels,
					       gemm->a + row * K_STEP, b + panel * K_STEP,
					       k.n);
	}
}
