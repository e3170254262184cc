/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_BLAS_CUDA_H
#define CEI_BLAS_CUDA_H

/*
 * Matrix products by cuBLAS, for sequences of communication and GEMM. The library is opened
 * at run time; without it only those modes are missing. Needs neither cuda.h nor cuBLAS's
 * headers.
 *
 * CEOVERLAP_CUBLAS: the library's file, instead of libcublas.so.13, .12 and .so
 */

#include <stdint.h>

#include <ceoverlap/ops.h>

#include "base/cuda_driver.h"

struct cei_blas;

struct cei_blas_gemm {
	void           *stream;         /* CUstream of the GPU; may be capturing */
	enum ceov_dtype dtype;          /* of A, B and C; sums are fp32 throughout */
	uint64_t        m;              /* 0: nothing is done */
	uint64_t        n;              /* likewise */
	uint64_t        k;              /* at least 1 */
	const void     *a;              /* m x k, row-major without gaps, in GPU memory */
	const void     *b;              /* n x k, or k x n */
	void           *c;              /* m x n, written; overlaps neither */
	int             b_is_k_by_n;    /* 1: b is k x n and C = A B */
};

/*
 * Creates a cuBLAS handle for the GPU, and allocates 32 MiB of its memory as cuBLAS's
 * workspace. CEOV_NONE (without an error line): there is no cuBLAS to load, or it cannot
 * begin on that GPU; *ret_why says why, in words that stay valid. CEOV_ERR_CUDA: the driver
 * reports an error; native is a CUresult. Because it allocates, it must not be called while
 * kernels of the GPU await what this thread raises. Any thread.
 */
int  cei_blas_open(struct cei_cuda *cuda, uint32_t gpu, struct cei_blas **ret_blas,
		   const char **ret_why);

/* Frees the handle and its workspace; its products must have ended. NULL is allowed. */
void cei_blas_close(struct cei_blas *blas);

/*
 * Queues C = A B^T, or A B. One thread and one stream at a time, because all products use
 * the same workspace: a caller who changes streams orders them. Makes the GPU's primary
 * context current meanwhile. The first product of a shape may load a kernel, which waits
 * for the GPU: call cei_blas_load() before kernels await marks.
 *
 * CEOV_ERR_INVALID: k is 0, a size is above 2^31 - 1, or the type is not supported.
 * CEOV_ERR_CUDA: cuBLAS reports an error.
 */
int  cei_blas_gemm(struct cei_blas *blas, const struct cei_blas_gemm *gemm);

/* Loads the kernels of such a product without computing anything. Reads dtype, sizes and
 * b_is_k_by_n of gemm. May wait for the GPU. Threads and errors are those of
 * cei_blas_gemm(), and CEOV_ERR_CUDA where the driver reports an error. */
int  cei_blas_load(struct cei_blas *blas, const struct cei_blas_gemm *gemm);

#endif /* CEI_BLAS_CUDA_H */
