/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * cuBLAS, opened at run time. The few declarations that this needs follow cuBLAS's
 * published ABI (cublas_api.h of 12 and 13); nothing of cuBLAS is needed to build.
 */

#include "tools/bench/blas.h"

#include <stdlib.h>

#include "tools/bench/library.h"

#define BLAS_N           0
#define BLAS_T           1
#define BLAS_R_32F       0              /* cudaDataType */
#define BLAS_R_16BF      14
#define BLAS_COMPUTE_32F 68
#define BLAS_DEFAULT     (-1)           /* cuBLAS's heuristics choose the algorithm */

/* The workspace size that PyTorch uses on Hopper. */
#define WORKSPACE_BYTES  (UINT64_C(32) << 20)

struct blas_calls {
	int         (*create)(void **handle);
	int         (*destroy)(void *handle);
	int         (*set_stream)(void *handle, void *stream);
	int         (*set_workspace)(void *handle, void *workspace, size_t n_bytes);
	const char *(*status_name)(int status);
	int         (*gemm)(void *handle, int trans_a, int trans_b, int m, int n, int k,
			    const void *alpha, const void *a, int a_type, int lda,
			    const void *b, int b_type, int ldb, const void *beta,
			    void *c, int c_type, int ldc, int compute, int algorithm);
};

struct bench_blas {
	void                *library;
	struct blas_calls    calls;
	void                *handle;
	struct bench_device *device;
	void                *workspace;
	uint32_t             rank;
};

static int check(const struct bench_blas *blas, int status, const char *what)
{
	if (!status)
		return 0;
	fprintf(stderr, "ceoverlap-bench: rank %u: cuBLAS %s: %s\n", blas->rank, what,
		blas->calls.status_name(status));
	return CEOV_ERR_CUDA;
}

/* Searches the loader's path, then the folders of the toolkit and of Python's packages. */
static int load(struct bench_blas *blas, const char *path)
{
	static const char *const names[] = {
		"libcublas.so.13",
		"libcublas.so.12",
		"libcublas.so",
		"/usr/local/cuda/lib64/libcublas.so",
		"/usr/local/cuda/lib/libcublas.so",
		"/usr/lib/python3*/site-packages/nvidia/c*/lib/libcublas.so.1[23]",
		"/usr/local/lib/python3*/*-packages/nvidia/c*/lib/libcublas.so.1[23]",
		"/opt/*/.venv/lib/python3*/site-packages/nvidia/c*/lib/libcublas.so.1[23]",
		NULL
	};
	const struct bench_symbol wanted[] = {
		{ "cublasCreate_v2", &blas->calls.create },
		{ "cublasDestroy_v2", &blas->calls.destroy },
		{ "cublasSetStream_v2", &blas->calls.set_stream },
		{ "cublasSetWorkspace_v2", &blas->calls.set_workspace },
		{ "cublasGetStatusName", &blas->calls.status_name },
		{ "cublasGemmEx", &blas->calls.gemm },
	};

	blas->library = bench_library_open(path, names);
	if (!blas->library)
		return CEOV_NONE;
	return bench_library_find(blas->library, wanted,
				  sizeof(wanted) / sizeof(wanted[0]));
}

int bench_blas_open(struct bench_rank *rank, const char *path,
		    struct bench_blas **ret_blas, const char **ret_why)
{
	struct bench_blas *blas = calloc(1, sizeof(*blas));
	void *stream = bench_stream(rank->device, BENCH_STREAM_MAIN);
	int r;

	if (!blas)
		return CEOV_ERR_NO_MEMORY;
	blas->rank = rank->rank;
	blas->device = rank->device;
	r = load(blas, path);
	if (r) {
		*ret_why = "libcublas of 12 or 13 was not found (--cublas PATH)";
		goto fail;
	}
	r = check(blas, blas->calls.create(&blas->handle), "cublasCreate");
	if (!r)
		r = bench_allocate(rank->device, WORKSPACE_BYTES, &blas->workspace);
	/* in this order, because setting the stream resets the workspace */
	if (!r)
		r = check(blas, blas->calls.set_stream(blas->handle, stream),
			  "cublasSetStream");
	if (!r)
		r = check(blas, blas->calls.set_workspace(blas->handle, blas->workspace,
							  WORKSPACE_BYTES),
			  "cublasSetWorkspace");
	if (r)
		goto fail;
	*ret_blas = blas;
	return 0;
fail:
	bench_blas_close(blas);
	return r;
}

void bench_blas_close(struct bench_blas *blas)
{
	if (!blas)
		return;
	if (blas->handle)
		(void)check(blas, blas->calls.destroy(blas->handle), "cublasDestroy");
	if (blas->workspace)
		bench_release(blas->device, blas->workspace);
	/* the library stays loaded, as NCCL does in bench/cases/nccl.c */
	free(blas);
}

/* cuBLAS is column-major, so C^T = B A^T is computed with row-major A and B read as their
 * transposes. A row-major k x n B is read as n x k. */
int bench_blas_multiply(struct bench_blas *blas, const struct bench_product *product)
{
	const float alpha = 1, beta = product->adds ? 1 : 0;
	const int is_kn = product->b_is_k_by_n;

	if (!product->m || !product->n)
		return 0;
	return check(blas, blas->calls.gemm(
		blas->handle, is_kn ? BLAS_N : BLAS_T, BLAS_N, (int)product->n,
		(int)product->m, (int)product->k, &alpha, product->b, BLAS_R_16BF,
		(int)(is_kn ? product->n : product->k),
		product->a, BLAS_R_16BF, (int)product->k, &beta, product->c,
		product->c_is_float ? BLAS_R_32F : BLAS_R_16BF, (int)product->n,
		BLAS_COMPUTE_32F, BLAS_DEFAULT), "cublasGemmEx");
}
