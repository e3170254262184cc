/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Computes products that are no list of tiles but one whole C: by the kernel for few rows where it
 * suits, else by cuBLAS. */

#include <stdio.h>

#include "kernels/few_rows.h"
#include "ops/exec_cuda/execute_cuda.h"

#define NAME_BYTES 40

static int is_few_rows(const struct cei_gpu_executor *own, const struct cei_gemm_job *job)
{
	return own->has_kernels && !job->b_is_k_by_n && job->c[0].rows <= CEI_FEW_ROWS_MAX;
}

/* Writes the name of the kernel for the job's dtype and rows. */
static void name_kernel(char *name, const struct cei_gemm_job *job)
{
	uint32_t rows = 16;

	while (rows < job->c[0].rows)
		rows *= 2;
	snprintf(name, NAME_BYTES, "cei_few_rows_%s_%u",
		 job->dtype == CEOV_BF16 ? "bf16" : "fp16", rows);
}

static int multiply_few_rows(struct cei_gpu_executor *own, void *stream,
			     const struct cei_gemm_job *job)
{
	struct cei_few_rows product = {
		.a = job->a[CEI_GEMM_A_OWN].base,
		.b = job->b[0].base,
		.c = (void *)(uintptr_t)job->c[0].base,
		.m = (uint32_t)job->c[0].rows,
		.n = (uint32_t)job->c[0].columns,
		.k = (uint32_t)job->k,
	};
	void *arguments[] = { &product };
	char name[NAME_BYTES];
	struct cei_module_launch launch = {
		.name = name,
		.n_threads = CEI_FEW_ROWS_THREADS,
		.stream = stream,
		.arguments = arguments,
	};

	name_kernel(name, job);
	launch.n_blocks = (product.n + CEI_FEW_ROWS_COLUMNS - 1) / CEI_FEW_ROWS_COLUMNS *
		CEI_FEW_ROWS_CLUSTER;
	return cei_module_launch(own->module, &launch);
}

static struct cei_blas_gemm blas_of(const struct cei_gemm_job *job, void *stream)
{
	const struct cei_blas_gemm gemm = {
		.stream = stream,
		.dtype = job->dtype,
		.m = job->c[0].rows,
		.n = job->c[0].columns,
		.k = job->k,
		.a = job->a[CEI_GEMM_A_OWN].base,
		.b = job->b[0].base,
		.c = (void *)(uintptr_t)job->c[0].base,
		.b_is_k_by_n = job->b_is_k_by_n,
	};

	return gemm;
}

int cei_gpu_can_whole(const struct cei_gpu_executor *own, const struct cei_gemm_job *job)
{
	return job->is_whole && (is_few_rows(own, job) || own->blas);
}

int cei_gpu_load_whole(struct cei_gpu_executor *own, const struct cei_gemm_job *job)
{
	const struct cei_blas_gemm gemm = blas_of(job, NULL);

	return is_few_rows(own, job) ? 0 : cei_blas_load(own->blas, &gemm);
}

int cei_gpu_multiply_whole(struct cei_gpu_executor *own, void *stream,
			   const struct cei_gemm_job *job)
{
	const struct cei_blas_gemm gemm = blas_of(job, stream);

	if (!job->c[0].rows || !job->c[0].columns)
		return 0;
	return is_few_rows(own, job) ? multiply_few_rows(own, stream, job)
		: cei_blas_gemm(own->blas, &gemm);
}
