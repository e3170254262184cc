/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Compares products by cuBLAS with the host's in fp32. Skipped without cuBLAS. */

#include "gpu_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cuda_driver.h"
#include "ops/compute/dtype.h"
#include "ops/exec_cuda/blas_cuda.h"

static struct gpu gpu;
static struct cei_report report;
static struct cei_cuda *cuda;

struct product {
	uint64_t m, n, k;
	int      b_is_k_by_n;
};

static const struct product products[] = {
	{ 1, 8, 8, 0 }, { 64, 64, 64, 0 }, { 33, 72, 200, 0 }, { 300, 128, 512, 0 },
	{ 512, 512, 40, 0 }, { 1, 8, 8, 1 }, { 64, 64, 64, 1 }, { 33, 72, 200, 1 },
	{ 300, 200, 512, 1 }, { 512, 512, 40, 1 },
};

#define N_PRODUCTS (int)(sizeof(products) / sizeof(products[0]))

static void set_up(void)
{
	const char *why = "";

	gpu_open(&gpu, 0);
	cei_report_init(&report, NULL, NULL);
	ck_assert_msg(!cei_cuda_open(&report, &cuda, &why), "%s", why);
}

static void tear_down(void)
{
	cei_cuda_close(cuda);
	cei_report_fini(&report);
	gpu_close(&gpu);
}

static struct cei_blas *open_blas(void)
{
	struct cei_blas *blas = NULL;
	const char *why = "";

	ck_assert_msg(!cei_blas_open(cuda, 0, &blas, &why), "%s", why);
	return blas;
}

/* A matrix of numbers in [-1, 1): their bits, and their values. */
struct matrix {
	uint64_t  n;
	uint16_t *bits;
	float    *values;
	void     *device;
};

static struct matrix make_matrix(enum ceov_dtype dtype, uint64_t n, uint64_t *state)
{
	struct matrix made = { n, calloc(n, 2), calloc(n, sizeof(float)), NULL };
	uint64_t i;

	ck_assert(made.bits && made.values);
	for (i = 0; i < n; i++)
		made.values[i] = (float)testing_below(state, 1u << 20) / (1u << 19) - 1.0f;
	cei_dtype_narrow(dtype, made.bits, made.values, n);
	cei_dtype_widen(dtype, made.values, made.bits, n);
	made.device = gpu_allocate(&gpu, 2 * n);
	gpu_move(&gpu, made.device, made.bits, 2 * n);
	return made;
}

static void drop_matrix(struct matrix *matrix)
{
	gpu_free(&gpu, matrix->device);
	free(matrix->bits);
	free(matrix->values);
}

static double magnitude(double x)
{
	return x < 0 ? -x : x;
}

/* Asserts that a value is right up to one rounding to bf16 and another order of the fp32 sums. */
static void check_value(const struct matrix *a, const struct matrix *b,
			const struct matrix *c, uint64_t at, const struct product *size)
{
	const float *row = a->values + at / size->n * size->k;
	const uint64_t step = size->b_is_k_by_n ? size->n : 1;
	const float *column = b->values + at % size->n * (size->b_is_k_by_n ? 1 : size->k);
	const double seen = (double)c->values[at];
	double sum = 0.0, all = 0.0, product;
	uint64_t i;

	for (i = 0; i < size->k; i++) {
		product = (double)row[i] * (double)column[i * step];
		sum += product;
		all += magnitude(product);
	}
	ck_assert_msg(magnitude(seen - sum) <= magnitude(sum) / 256 + all / 16384,
		      "%llu x %llu x %llu, B as k x n %d: element %llu is %g, not %g",
		      (unsigned long long)size->m, (unsigned long long)size->n,
		      (unsigned long long)size->k, size->b_is_k_by_n,
		      (unsigned long long)at, seen, sum);
}

static void multiply_and_check(struct cei_blas *blas, enum ceov_dtype dtype,
			       const struct product *size)
{
	uint64_t state = testing_seed(), i;
	struct matrix a = make_matrix(dtype, size->m * size->k, &state);
	struct matrix b = make_matrix(dtype, size->n * size->k, &state);
	struct matrix c = make_matrix(dtype, size->m * size->n, &state);
	const struct cei_blas_gemm gemm = {
		gpu.streams[GPU_CONSUME], dtype, size->m, size->n, size->k, a.device,
		b.device, c.device, size->b_is_k_by_n
	};
	uint16_t *again = calloc(c.n, 2);

	ck_assert_ptr_nonnull(again);
	ck_assert_int_eq(cei_blas_load(blas, &gemm), 0);        /* loading does not read the
								 * operands */
	gpu_move(&gpu, again, c.device, 2 * c.n);
	ck_assert_int_eq(memcmp(again, c.bits, 2 * c.n), 0);
	ck_assert_int_eq(cei_blas_gemm(blas, &gemm), 0);
	gpu_idle(&gpu, GPU_CONSUME);
	gpu_move(&gpu, c.bits, c.device, 2 * c.n);
	ck_assert_int_eq(cei_blas_gemm(blas, &gemm), 0);
	gpu_idle(&gpu, GPU_CONSUME);
	gpu_move(&gpu, again, c.device, 2 * c.n);
	ck_assert_int_eq(memcmp(again, c.bits, 2 * c.n), 0);
	cei_dtype_widen(dtype, c.values, c.bits, c.n);
	for (i = 0; i < c.n; i++)
		check_value(&a, &b, &c, i, size);
	free(again);
	drop_matrix(&a);
	drop_matrix(&b);
	drop_matrix(&c);
}

START_TEST(test_products_are_the_hosts)
{
	struct cei_blas *blas = open_blas();
	int i;

	for (i = 0; i < N_PRODUCTS; i++)
		multiply_and_check(blas, _i ? CEOV_FP16 : CEOV_BF16, &products[i]);
	cei_blas_close(blas);
}
END_TEST

START_TEST(test_products_that_cannot_be_are_refused)
{
	struct cei_blas *blas = open_blas();
	struct cei_blas_gemm gemm = {
		gpu.streams[GPU_CONSUME], CEOV_BF16, 0, 8, 8, NULL, NULL, NULL, 0
	};

	ck_assert_int_eq(cei_blas_gemm(blas, &gemm), 0);
	ck_assert_int_eq(cei_blas_load(blas, &gemm), 0);
	gemm.m = 8;
	gemm.k = 0;
	ck_assert_int_eq(cei_blas_load(blas, &gemm), CEOV_ERR_INVALID);
	ck_assert_int_eq(cei_blas_gemm(blas, &gemm), CEOV_ERR_INVALID);
	gemm.k = UINT64_C(1) << 31;
	ck_assert_int_eq(cei_blas_gemm(blas, &gemm), CEOV_ERR_INVALID);
	gemm.k = 8;
	gemm.dtype = (enum ceov_dtype)7;
	ck_assert_int_eq(cei_blas_gemm(blas, &gemm), CEOV_ERR_INVALID);
	cei_blas_close(blas);
	cei_blas_close(NULL);
}
END_TEST

START_TEST(test_a_file_that_is_no_cublas_is_none)
{
	struct cei_blas *blas = NULL;
	const char *why = NULL;

	ck_assert_int_eq(setenv("CEOVERLAP_CUBLAS", "/nowhere/libcublas.so", 1), 0);
	ck_assert_int_eq(cei_blas_open(cuda, 0, &blas, &why), CEOV_NONE);
	ck_assert_ptr_nonnull(strstr(why, "CEOVERLAP_CUBLAS"));
	ck_assert_int_eq(setenv("CEOVERLAP_CUBLAS", "libc.so.6", 1), 0);
	ck_assert_int_eq(cei_blas_open(cuda, 0, &blas, &why), CEOV_NONE);
	ck_assert_ptr_nonnull(strstr(why, "lacks"));
	ck_assert_ptr_null(blas);
}
END_TEST

/* Returns whether cuBLAS is missing, found out in a child process. Other errors are left to the
 * tests. */
static int is_missing(void)
{
	struct cei_blas *blas = NULL;
	const char *why = "";
	int status = 0;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (!child) {
		cei_report_init(&report, NULL, NULL);
		if (cei_cuda_open(&report, &cuda, &why) ||
		    cei_blas_open(cuda, 0, &blas, &why) != CEOV_NONE)
			_exit(0);
		printf("skipped: %s\n", why);
		fflush(stdout);
		_exit(1);
	}
	return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
		WEXITSTATUS(status) == 1;
}

static Suite *suite(uint32_t n_gpus)
{
	Suite *made = suite_create("gpu blas");
	TCase *all = tcase_create("blas");

	(void)n_gpus;
	tcase_add_checked_fixture(all, set_up, tear_down);
	tcase_set_timeout(all, 60);
	tcase_add_loop_test(all, test_products_are_the_hosts, 0, 2);
	tcase_add_test(all, test_products_that_cannot_be_are_refused);
	tcase_add_test(all, test_a_file_that_is_no_cublas_is_none);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	if (gpu_count() && is_missing())
		return GPU_SKIPPED;
	return gpu_main(1, suite);
}
