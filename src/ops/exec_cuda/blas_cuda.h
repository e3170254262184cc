/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_BLAS_CUDA_H
#define CEI_BLAS_CUDA_H

/*
 * Matrix products by cuBLAS. The library is opened at run time, and this header needs neither
 * cuda.h nor cuBLAS's headers. Without cuBLAS only sequences of communication and GEMM, and shapes
 * for which there is no kernel of our own, are not supported.
 *
 * The environment variable CEOVERLAP_CUBLAS names the file of the library; otherwise
 * libcublas.so.13, .12 and .so are tried.
 */

#include <stdint.h>

#include <ceoverlap/ops.h>

#include "base/cuda_driver.h"

struct cei_blas;

struct cei_blas_gemm {
	void           *stream;         /* CUstream of the GPU; may be capturing */
	enum ceov_dtype dtype;          /* of A, B and C; sums are fp32 throughout */
	uint64_t        m;              /* if m or n is 0, nothing is done */
	uint64_t        n;
	uint64_t        k;              /* at least 1 */
	const void     *a;              /* m x k, row-major without gaps, in GPU memory */
	const void     *b;              /* n x k, or k x n */
	void           *c;              /* the result, m x n; must not overlap a or b */
	int             b_is_k_by_n;    /* 1: b is k x n and C = A B; 0: C = A B^T */
};

/*
 * Creates a cuBLAS handle for the GPU, and allocates 32 MiB of the GPU's memory as cuBLAS's
 * workspace. CEOV_NONE (without an error line): cuBLAS cannot be loaded, or does not work on that
 * GPU; *ret_why says why, in words that stay valid. CEOV_ERR_CUDA: the driver reports an error, and
 * the failure's native code is a CUresult. Because the function allocates, it must not be called
 * while kernels of the GPU await something that this thread raises. Any thread.
 */
int  cei_blas_open(struct cei_cuda *cuda, uint32_t gpu, struct cei_blas **ret_blas,
		   const char **ret_why);

/* Frees the handle and its workspace. All products of the handle must have ended. NULL is
 * allowed. */
void cei_blas_close(struct cei_blas *blas);

/*
 * Queues C = A B^T, or A B. All products of a handle use the same workspace, so only one thread may
 * use it at a time, and a caller who changes streams must order them. The function makes the GPU's
 * primary context current while it runs. The first product of a shape may load a kernel, which
 * waits for the GPU: call cei_blas_load() before kernels await marks.
 *
 * CEOV_ERR_INVALID: k is 0, a size is above 2^31 - 1, or the type is not supported.
 * CEOV_ERR_CUDA: cuBLAS reports an error.
 */
int  cei_blas_gemm(struct cei_blas *blas, const struct cei_blas_gemm *gemm);

/* Loads the kernels that the product needs, and computes nothing. Reads dtype, sizes and
 * b_is_k_by_n of gemm. May wait for the GPU. The thread rules and errors are those of
 * cei_blas_gemm(); in addition, CEOV_ERR_CUDA if the driver reports an error. */
int  cei_blas_load(struct cei_blas *blas, const struct cei_blas_gemm *gemm);

#endif /* CEI_BLAS_CUDA_H */
