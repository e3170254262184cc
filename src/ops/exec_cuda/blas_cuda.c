/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* cuBLAS, opened at run time. One handle and one workspace for each GPU. */

#include "ops/exec_cuda/blas_cuda.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "base/cuda_table.h"

#define WORKSPACE_BYTES (UINT64_C(32) << 20)

/*
 * Values from cublas_api.h and library_types.h of CUDA 13.0, which are the same in CUDA 12.
 * cuBLAS's enums are passed as int, its handles and streams as pointers.
 */
enum {
	BLAS_SUCCESS = 0,               /* CUBLAS_STATUS_SUCCESS */
	BLAS_OP_N = 0,                  /* CUBLAS_OP_N */
	BLAS_OP_T = 1,                  /* CUBLAS_OP_T */
	BLAS_R_16F = 2,                 /* CUDA_R_16F */
	BLAS_R_16BF = 14,               /* CUDA_R_16BF */
	BLAS_COMPUTE_32F = 68,          /* CUBLAS_COMPUTE_32F */
	BLAS_GEMM_DEFAULT = -1,         /* CUBLAS_GEMM_DEFAULT */
	/* CUBLAS_DEFAULT_MATH (0) with CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION: if
	 * cuBLAS splits a sum over k, the parts stay fp32. */
	BLAS_FP32_SUMS = 16
};

struct blas_calls {
	int         (*create)(void **handle);
	int         (*destroy)(void *handle);
	int         (*set_stream)(void *handle, void *stream);
	int         (*set_workspace)(void *handle, void *workspace, size_t n_bytes);
	int         (*set_math_mode)(void *handle, int mode);
	int         (*gemm)(void *handle, int op_a, int op_b, int m, int n, int k,
			    const void *alpha, const void *a, int a_type, int lda,
			    const void *b, int b_type, int ldb, const void *beta,
			    void *c, int c_type, int ldc, int compute_type, int algo);
	const char *(*status_string)(int status);
};

struct cei_blas {
	struct cei_cuda  *cuda;
	uint32_t          gpu;
	void             *library;      /* the handle that dlopen() returned */
	struct blas_calls calls;
	void             *handle;       /* cublasHandle_t */
	CUdeviceptr       workspace;    /* 0: none */
};

static int raise_status(struct cei_blas *blas, int status, const char *what)
{
	return cei_raise(blas->cuda->report, CEOV_ERR_CUDA, status,
			 "GPU %u: cuBLAS: %s: %s (%d)", blas->gpu, what,
			 blas->calls.status_string(status), status);
}

/* --- the library --------------------------------------------------------- */

static int load_library(struct cei_blas *blas, const char **ret_why)
{
	static const char *const names[] = {
		"libcublas.so.13", "libcublas.so.12", "libcublas.so"
	};
	const char *named = secure_getenv("CEOVERLAP_CUBLAS");
	size_t i;

	if (named && *named) {
		blas->library = dlopen(named, RTLD_NOW | RTLD_LOCAL);
		*ret_why = "the file that CEOVERLAP_CUBLAS names cannot be loaded";
		return blas->library ? 0 : CEOV_NONE;
	}
	for (i = 0; i < sizeof(names) / sizeof(names[0]) && !blas->library; i++)
		blas->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	*ret_why = "no libcublas.so can be loaded: install cuBLAS, or name its file in "
		   "CEOVERLAP_CUBLAS";
	return blas->library ? 0 : CEOV_NONE;
}

/* Finds the library's functions. Copies their addresses by memcpy(), because C has no cast
 * from an object pointer to a function pointer. */
static int find_calls(struct cei_blas *blas, const char **ret_why)
{
	struct blas_calls *calls = &blas->calls;
	const struct { const char *name; void *call; } wanted[] = {
		{ "cublasCreate_v2", &calls->create },
		{ "cublasDestroy_v2", &calls->destroy },
		{ "cublasSetStream_v2", &calls->set_stream },
		{ "cublasSetWorkspace_v2", &calls->set_workspace },
		{ "cublasSetMathMode", &calls->set_math_mode },
		{ "cublasGemmEx", &calls->gemm },
		{ "cublasGetStatusString", &calls->status_string },
	};
	void *address;
	size_t i;

	for (i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		address = dlsym(blas->library, wanted[i].name);
		if (!address) {
			*ret_why = "the libcublas.so that was loaded lacks calls: CUDA 12 "
				   "or newer is needed";
			return CEOV_NONE;
		}
		memcpy(wanted[i].call, &address, sizeof(address));
	}
	return 0;
}

/* --- handles ------------------------------------------------------------- */

/* Creates the handle. The GPU's context must be current. A library that does not work is treated as
 * a library that is missing. */
static int make_handle(struct cei_blas *blas, const char **ret_why)
{
	CUresult result;
	int status;

	result = blas->cuda->calls.mem_alloc(&blas->workspace, WORKSPACE_BYTES);
	if (result != CUDA_SUCCESS) {
		blas->workspace = 0;
		return cei_cuda_raise(blas->cuda, result, CEOV_NOBODY,
				      "GPU %u: %llu bytes of workspace for cuBLAS",
				      blas->gpu, (unsigned long long)WORKSPACE_BYTES);
	}
	status = blas->calls.create(&blas->handle);
	if (status != BLAS_SUCCESS)
		blas->handle = NULL;
	else
		status = blas->calls.set_math_mode(blas->handle, BLAS_FP32_SUMS);
	if (status == BLAS_SUCCESS)
		return 0;
	*ret_why = blas->calls.status_string(status);   /* the library stays loaded */
	return CEOV_NONE;
}

int cei_blas_open(struct cei_cuda *cuda, uint32_t gpu, struct cei_blas **ret_blas,
		  const char **ret_why)
{
	struct cei_blas *blas = calloc(1, sizeof(*blas));
	struct cei_cuda_hold hold;
	int r;

	if (!blas)
		return cei_raise(cuda->report, CEOV_ERR_NO_MEMORY, 0,
				 "GPU %u: no memory for cuBLAS", gpu);
	blas->cuda = cuda;
	blas->gpu = gpu;
	r = load_library(blas, ret_why);
	if (!r)
		r = find_calls(blas, ret_why);
	if (!r)
		r = cei_cuda_push(cuda, gpu, &hold);
	if (r)
		goto fail;
	r = make_handle(blas, ret_why);
	cei_cuda_pop(cuda, &hold);
	if (r)
		goto fail;
	*ret_blas = blas;
	return 0;
fail:
	cei_blas_close(blas);
	return r;
}

/* Leaves the library loaded, because the driver has loaded the library's kernels, too. */
void cei_blas_close(struct cei_blas *blas)
{
	struct cei_cuda_hold hold;

	if (!blas)
		return;
	/* The push fails only after a sticky CUDA error; then the memory is gone already. */
	if ((blas->handle || blas->workspace) &&
	    !cei_cuda_push(blas->cuda, blas->gpu, &hold)) {
		if (blas->handle)
			(void)blas->calls.destroy(blas->handle);
		if (blas->workspace)
			(void)blas->cuda->calls.mem_free(blas->workspace);
		cei_cuda_pop(blas->cuda, &hold);
	}
	free(blas);
}

/* --- products ------------------------------------------------------------ */

static int is_size(uint64_t n)
{
	return n && n <= INT32_MAX;
}

/*
 * Queues C = A B^T (B is stored as n x k) or C = A B (B is stored as k x n). cuBLAS takes matrices
 * as column-major, so it sees the transpose of each of ours, and is asked for the transpose of C:
 * C^T = B A^T, for which it transposes the B that it sees, or C^T = B^T A^T, for which it does not.
 *
 * Setting the stream makes cuBLAS use a workspace that it allocates for each stream. So our own
 * workspace is set after that call: then nothing is allocated, and a captured graph uses our
 * address.
 */
static int multiply(struct cei_blas *blas, const struct cei_blas_gemm *gemm)
{
	const struct blas_calls *calls = &blas->calls;
	const int type = gemm->dtype == CEOV_BF16 ? BLAS_R_16BF : BLAS_R_16F;
	const int m = (int)gemm->m, n = (int)gemm->n, k = (int)gemm->k;
	const int op_b = gemm->b_is_k_by_n ? BLAS_OP_N : BLAS_OP_T;
	const int b_pitch = gemm->b_is_k_by_n ? n : k;
	const float one = 1.0f, zero = 0.0f;
	int status;

	status = calls->set_stream(blas->handle, gemm->stream);
	if (status != BLAS_SUCCESS)
		return raise_status(blas, status, "the stream is refused");
	status = calls->set_workspace(blas->handle, (void *)(uintptr_t)blas->workspace,
				      WORKSPACE_BYTES);
	if (status != BLAS_SUCCESS)
		return raise_status(blas, status, "the workspace is refused");
	status = calls->gemm(blas->handle, op_b, BLAS_OP_N, n, m, k, &one, gemm->b, type,
			     b_pitch, gemm->a, type, k, &zero, gemm->c, type, n,
			     BLAS_COMPUTE_32F, BLAS_GEMM_DEFAULT);
	if (status != BLAS_SUCCESS)
		return raise_status(blas, status, "the product is refused");
	return 0;
}

static int check(const struct cei_blas *blas, const struct cei_blas_gemm *gemm)
{
	if (!is_size(gemm->m) || !is_size(gemm->n) || !is_size(gemm->k))
		return cei_raise(blas->cuda->report, CEOV_ERR_INVALID, 0,
				 "GPU %u: a product of %llu x %llu x %llu: k must not be 0, "
				 "and cuBLAS takes sizes below 2^31", blas->gpu,
				 (unsigned long long)gemm->m, (unsigned long long)gemm->n,
				 (unsigned long long)gemm->k);
	if (gemm->dtype != CEOV_BF16 && gemm->dtype != CEOV_FP16)
		return cei_raise(blas->cuda->report, CEOV_ERR_INVALID, 0,
				 "GPU %u: a product of type %d: bf16 and fp16 are known",
				 blas->gpu, (int)gemm->dtype);
	return 0;
}

int cei_blas_gemm(struct cei_blas *blas, const struct cei_blas_gemm *gemm)
{
	struct cei_cuda_hold hold;
	int r;

	if (!gemm->m || !gemm->n)
		return 0;
	r = check(blas, gemm);
	if (!r)
		r = cei_cuda_push(blas->cuda, blas->gpu, &hold);
	if (r)
		return r;
	r = multiply(blas, gemm);
	cei_cuda_pop(blas->cuda, &hold);
	return r;
}

/* --- loading --------------------------------------------------------------- */

static int check_driver(const struct cei_blas *blas, CUresult result)
{
	if (result == CUDA_SUCCESS)
		return 0;
	return cei_cuda_raise(blas->cuda, result, CEOV_NOBODY,
			      "GPU %u: loading the kernels of a cuBLAS product", blas->gpu);
}

/* Instantiating a graph loads its kernels. */
static int instantiate(const struct cei_blas *blas, CUgraph graph)
{
	const struct cei_cuda_calls *calls = &blas->cuda->calls;
	CUgraphExec made = NULL;
	CUresult result = calls->graph_instantiate(&made, graph, 0);

	if (result == CUDA_SUCCESS)
		result = calls->graph_exec_destroy(made);
	return check_driver(blas, result);
}

/* Captures a product and discards the graph. The product never runs, so the workspace's address
 * stands for its operands. */
static int capture(struct cei_blas *blas, const struct cei_blas_gemm *gemm)
{
	const struct cei_cuda_calls *calls = &blas->cuda->calls;
	struct cei_blas_gemm made = *gemm;
	CUgraph graph = NULL;
	CUresult result;
	int r;

	made.a = made.b = made.c = (void *)(uintptr_t)blas->workspace;
	result = calls->capture_begin(made.stream, CU_STREAM_CAPTURE_MODE_RELAXED);
	if (result != CUDA_SUCCESS)
		return check_driver(blas, result);
	r = multiply(blas, &made);
	result = calls->capture_end(made.stream, &graph);       /* must be called after a failed
								 * capture, too */
	if (!r)
		r = check_driver(blas, result);
	if (!r)
		r = instantiate(blas, graph);
	if (graph)
		(void)calls->graph_destroy(graph);
	return r;
}

int cei_blas_load(struct cei_blas *blas, const struct cei_blas_gemm *gemm)
{
	struct cei_blas_gemm made = *gemm;
	struct cei_cuda_hold hold;
	CUstream stream = NULL;
	int r;

	if (!gemm->m || !gemm->n)
		return 0;
	r = check(blas, gemm);
	if (!r)
		r = cei_cuda_push(blas->cuda, blas->gpu, &hold);
	if (r)
		return r;
	r = check_driver(blas, blas->cuda->calls.stream_create(&stream,
							       CU_STREAM_NON_BLOCKING, 0));
	if (!r) {
		made.stream = stream;
		r = capture(blas, &made);
		(void)blas->cuda->calls.stream_destroy(stream);
	}
	cei_cuda_pop(blas->cuda, &hold);
	return r;
}
