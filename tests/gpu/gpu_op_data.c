/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Cases, operands and references of operators on GPUs.
 *
 * HOW FAR OFF A RESULT MAY BE
 * Numbers are stored rounded to the nearest: that is off by at most u = 2^-8 (bf16), 2^-11
 * (fp16) or 2^-24 (fp32) of their size, or by half of the least fp16. With P_s the product
 * of rank s, and Z the sum of the sizes of all its products a b:
 *
 *   all-gather + GEMM      u |P| + e Z; with an all-to-all before or behind a GEMM, too
 *   GEMM + reduce-scatter  u |sum of P_s| + sum of (u |P_s| + e Z_s): each partial sum is
 *                          stored before it is sent (the own one where cuBLAS made it)
 *   sums                   u |sum| + e Z, both of them scaled as the sum is; by node each
 *                          addend adds u times its size, since a node's sum is stored, too
 *
 * e is what sums in fp32 lose: 2^-22 for every step of 16 products (fp32 itself rounds
 * by 2^-24 of a sum that is never larger than Z; matrix units cut off instead, and see
 * fewer bits while they align), and as much for each of a few steps at the end, where
 * ranks' sums are added. The reference adds up in double and is exact beside that. Where
 * k is 2048, u |P| is some 2^-6 (bf16) and e Z some 2^-8; one product that is missing or
 * taken twice is some 2^-4, one row that is another's some 2^2.
 */

#include "gpu_op_check.h"

#include <stdio.h>
#include <string.h>

#include "kernels/fill.h"
#include "ops/compute/dtype.h"

#define GUARD_WORDS   UINT64_C(32)
#define GUARD_SEED    UINT64_C(0x6a09e667f3bcc909)
#define BLOCKS_MAX    UINT64_C(4096)
#define NEAR_RESULT   0u
#define SAME_RESULT   1u

/* --- words -------------------------------------------------------------- */

static void describe(const struct op_case *one, char *text, size_t n_bytes)
{
	static const char *const sorts[OP_SORTS] = {
		"ag_gemm", "gemm_rs", "reduce_scatter", "all_reduce", "gemm_a2a", "a2a_gemm",
		"gemm_ar"
	};
	const struct ceov_op_tuning *tuning = &one->tuning;
	size_t at;
	uint32_t i;

	at = (size_t)snprintf(text, n_bytes, "%s %s rows", sorts[one->sort],
			      cei_dtype_name(one->dtype));
	for (i = 0; i < one->n_ranks && at < n_bytes; i++)
		at += (size_t)snprintf(text + at, n_bytes - at, " %llu",
				       (unsigned long long)one->rows[i]);
	for (i = 0; i < one->n_gemms && at < n_bytes; i++)
		at += (size_t)snprintf(text + at, n_bytes - at, " n %llu",
				       (unsigned long long)one->n[i]);
	if (at < n_bytes)
		snprintf(text + at, n_bytes - at, " stride %llu scale %g spread %u%s k %llu%s "
			 "mode %d pieces %u cut %d chunk %llu tiles %ux%u blocks %u order %d "
			 "band %u SMs %u", (unsigned long long)one->stride, (double)one->scale,
			 one->spread, one->by_columns ? " by columns" : "",
			 (unsigned long long)one->k, one->b_is_k_by_n ? " x n" : "",
			 (int)tuning->mode, tuning->n_pieces, (int)tuning->cut,
			 (unsigned long long)tuning->chunk_bytes, tuning->tile_rows,
			 tuning->tile_columns, tuning->n_reduce_blocks, (int)tuning->tile_order,
			 tuning->band_rows, tuning->n_gemm_blocks);
}

/* --- sizes ----------------------------------------------------------------- */

static uint64_t all_rows(const struct op_case *one)
{
	return op_case_before(one, one->n_ranks);
}

static uint32_t blocks_for(uint64_t n)
{
	uint64_t blocks = (n + GPU_THREADS - 1) / GPU_THREADS;

	return (uint32_t)(blocks > BLOCKS_MAX ? BLOCKS_MAX : blocks ? blocks : 1);
}

/* --- memory of operands and results ---------------------------------------- */

static struct gpu_words guard_of(void *results, uint64_t n_bytes)
{
	struct gpu_words words = { (char *)results + n_bytes, GUARD_WORDS, GUARD_SEED };

	return words;
}

static void *take_results(struct gpu_op_rank *rank, uint64_t n_bytes)
{
	void *results = gpu_op_take(rank, n_bytes + GUARD_WORDS * sizeof(uint64_t));
	struct gpu_words guard = guard_of(results, n_bytes);

	gpu_fill(&rank->gpu, GPU_CONTROL, &guard);
	return results;
}

void gpu_op_data_make(struct gpu_op_rank *rank, const struct op_case *one,
		      struct gpu_op_data *ret_data)
{
	struct gpu_op_data data = { .rank = rank, .one = one };
	uint32_t i;

	ck_assert_uint_le(op_case_scratch(one), GPU_OP_SCRATCH);
	data.a = gpu_op_take(rank, op_case_a_elements(one, rank->rank) *
			     cei_dtype_bytes(one->dtype));
	for (i = 0; i < one->n_gemms; i++) {
		data.b[i] = gpu_op_take(rank, one->n[i] * one->k * CEI_DTYPE16_BYTES);
		data.c_bytes[i] = op_case_c_elements(one, rank->rank, i) *
			cei_dtype_bytes(one->dtype);
		data.c[i] = take_results(rank, data.c_bytes[i]);
	}
	if (one->sort == OP_AG_GEMM && one->wants_gathered) {
		data.gathered_bytes = all_rows(one) * one->k * CEI_DTYPE16_BYTES;
		data.gathered = take_results(rank, data.gathered_bytes);
	}
	gpu_idle(&rank->gpu, GPU_CONTROL);
	*ret_data = data;
}

/* --- operands -------------------------------------------------------------- */

/* Seeds of operands are 2^32 numbers apart, so that they do not overlap. */
void gpu_op_fill(const struct gpu_op_data *data, enum gpu_stream stream, void *p,
		 const struct gpu_operand *operand, uint64_t number)
{
	struct cei_fill made;

	if (!operand->n)
		return;
	memset(&made, 0, sizeof(made));
	made.p = p;
	made.n = operand->n;
	made.first = operand->first;
	made.seed = testing_seed() + ((number * 64 + operand->rank * 8 + operand->which) << 32);
	made.kind = data->one->dtype == CEOV_BF16 ? CEI_FILL_BF16 :
		data->one->dtype == CEOV_FP16 ? CEI_FILL_FP16 : CEI_FILL_FP32;
	gpu_launch(&data->rank->gpu, stream, "cei_fill", blocks_for(made.n), &made);
}

void gpu_op_data_fill(const struct gpu_op_data *data, enum gpu_stream stream, uint64_t number)
{
	const struct op_case *one = data->one;
	struct gpu_operand operand = { .rank = data->rank->rank };
	uint32_t i;

	operand.n = op_case_a_elements(one, operand.rank);
	gpu_op_fill(data, stream, data->a, &operand, number);
	for (i = 0; !op_is_sum(one->sort) && i < one->n_gemms; i++) {
		operand.which = 1 + i;
		operand.n = one->n[i] * one->k;
		gpu_op_fill(data, stream, data->b[i], &operand, number);
	}
}

static void spoil(const struct gpu_op_data *data, enum gpu_stream stream, void *p,
		  uint64_t n_bytes)
{
	struct gpu_words words = { p, n_bytes / sizeof(uint64_t), ~GUARD_SEED };

	if (words.n_words)
		gpu_fill(&data->rank->gpu, stream, &words);
}

void gpu_op_data_spoil(const struct gpu_op_data *data, enum gpu_stream stream)
{
	uint32_t i;

	for (i = 0; i < data->one->n_gemms; i++)
		spoil(data, stream, data->c[i], data->c_bytes[i]);
	spoil(data, stream, data->gathered, data->gathered_bytes);
}

/* --- runs ------------------------------------------------------------------ */

static int run_ag_gemm(const struct gpu_op_data *data, ceov_op *op, void *stream)
{
	struct ceov_ag_gemm_run run = { .struct_bytes = sizeof(run), .stream = stream };
	uint32_t i;

	run.a = data->a;
	for (i = 0; i < data->one->n_gemms; i++) {
		run.b[i] = data->b[i];
		run.c[i] = data->c[i];
	}
	run.gathered = data->gathered;
	return ceov_ag_gemm_run(op, &run);
}

int gpu_op_data_run(const struct gpu_op_data *data, ceov_op *op, enum gpu_stream stream)
{
	struct ceov_gemm_rs_run gemm_rs = { .struct_bytes = sizeof(gemm_rs) };
	struct ceov_gemm_ar_run gemm_ar = { .struct_bytes = sizeof(gemm_ar) };
	struct ceov_reduce_run reduce = { .struct_bytes = sizeof(reduce) };
	void *queue = data->rank->gpu.streams[stream];

	if (op_is_a2a(data->one->sort))
		return gpu_op_a2a_run(data, op, queue);
	if (data->one->sort == OP_AG_GEMM)
		return run_ag_gemm(data, op, queue);
	if (data->one->sort == OP_GEMM_RS) {
		gemm_rs.stream = queue;
		gemm_rs.a = data->a;
		gemm_rs.b = data->b[0];
		gemm_rs.c = data->c[0];
		return ceov_gemm_rs_run(op, &gemm_rs);
	}
	if (data->one->sort == OP_GEMM_AR) {
		gemm_ar.stream = queue;
		gemm_ar.a = data->a;
		gemm_ar.b = data->b[0];
		gemm_ar.c = data->c[0];
		return ceov_gemm_ar_run(op, &gemm_ar);
	}
	reduce.stream = queue;
	reduce.source = data->a;
	reduce.target = data->c[0];
	return ceov_reduce_run(op, &reduce);
}

void gpu_op_data_turn(const struct gpu_op_data *data, ceov_op *op, enum gpu_stream stream,
		      uint64_t number)
{
	char text[300];
	int r;

	gpu_op_data_fill(data, stream, number);
	gpu_op_data_spoil(data, stream);
	r = gpu_op_data_run(data, op, stream);
	if (!r)
		return;
	describe(data->one, text, sizeof(text));
	ck_abort_msg("rank %u: %s: run: %s", data->rank->rank, text, ceov_strerror(r));
}

/* --- expected results ------------------------------------------------------ */

static uint64_t larger(uint64_t x, uint64_t y)
{
	return x > y ? x : y;
}

/* Allocates memory for the largest part that is checked at once. */
static struct gpu_op_check begin_check(const struct gpu_op_data *data, uint64_t number)
{
	struct gpu_op_check check = { .data = data, .number = number };
	const struct op_case *one = data->one;
	struct gpu_op_rank *rank = data->rank;
	uint64_t rows = 0, n = 1, i;

	for (i = 0; i < one->n_ranks; i++)
		rows = larger(rows, one->rows[i]);
	rows += op_is_a2a(one->sort);           /* a block may have one row where ranks have none */
	if (one->sort == OP_ALL_REDUCE || one->sort == OP_GEMM_AR)
		rows = all_rows(one);
	for (i = 0; !op_is_sum(one->sort) && i < one->n_gemms; i++)
		n = larger(n, one->n[i]);
	check.used_bytes = rank->used_bytes;
	check.a = gpu_op_take(rank, rows * (op_is_sum(one->sort) ? 1 : one->k) *
			      cei_dtype_bytes(one->dtype));
	check.b = gpu_op_take(rank, n * one->k * CEI_DTYPE16_BYTES);
	check.part = gpu_op_take(rank, (rows + n) * one->k * CEI_DTYPE16_BYTES);
	check.sum = gpu_op_take(rank, rows * n * sizeof(*check.sum));
	check.slack = gpu_op_take(rank, rows * n * sizeof(*check.slack));
	return check;
}

static float rounding_of(const struct op_case *one)
{
	return one->dtype == CEOV_BF16 ? 0x1p-8f : one->dtype == CEOV_FP16 ? 0x1p-11f : 0x1p-24f;
}

void gpu_op_refer(const struct gpu_op_check *check, uint64_t n_rows, uint64_t n, int adds)
{
	const struct op_case *one = check->data->one;
	struct cei_kernel_reference reference;

	memset(&reference, 0, sizeof(reference));
	reference.a = check->a;
	reference.b = op_is_sum(one->sort) ? NULL : check->b;
	reference.n_rows = n_rows;
	reference.n = n;
	reference.k = one->k;
	reference.sum = check->sum;
	reference.slack = check->slack;
	reference.dtype = one->dtype;
	reference.adds = (uint32_t)adds;
	reference.b_is_k_by_n = (uint32_t)one->b_is_k_by_n;
	reference.scale = op_case_scale(one, check->data->rank->rank);
	reference.rounding = one->sort == OP_GEMM_RS || one->sort == OP_GEMM_AR || one->node_of
		? rounding_of(one) : 0;
	reference.accumulation = 0x1p-22f * (float)(one->k / 16 + 4 + one->n_ranks);
	if (n_rows && n)
		gpu_launch(&check->data->rank->gpu, GPU_CONTROL, "cei_kernel_reference",
			   blocks_for(n_rows * n), &reference);
}

/* Computes the product of source's rows from `first` on and its B. The first call for a sum sets
 * it, later calls add to it. */
static void add_reference(const struct gpu_op_check *check, uint32_t source, uint64_t first,
			  uint64_t n_rows, uint64_t n)
{
	const struct op_case *one = check->data->one;
	uint64_t width = op_is_sum(one->sort) ? 1 : one->k;
	struct gpu_operand a = { source, 0, first * width, n_rows * width };

	gpu_op_fill(check->data, GPU_CONTROL, check->a, &a, check->number);
	gpu_op_refer(check, n_rows, n, one->sort != OP_AG_GEMM && source);
}

static void blame(const struct gpu_op_check *check, const void *x, const char *what,
		  const struct gpu_result *seen)
{
	const struct op_case *one = check->data->one;
	struct gpu *gpu = &check->data->rank->gpu;
	float value = 0, slack = 0;
	uint64_t n_bytes = cei_dtype_bytes(one->dtype);
	uint32_t bits = 0;
	double sum = 0;
	char text[300];

	gpu_move(gpu, &bits, (const char *)x + seen->first_wrong * n_bytes, n_bytes);
	gpu_move(gpu, &sum, check->sum + seen->first_wrong, sizeof(sum));
	gpu_move(gpu, &slack, check->slack + seen->first_wrong, sizeof(slack));
	cei_dtype_widen(one->dtype, &value, &bits, 1);
	describe(one, text, sizeof(text));
	ck_abort_msg("rank %u: %s: %s: %llu results are wrong, the first of them is number "
		     "%llu: %g instead of %g (slack %g); operands %llu",
		     check->data->rank->rank, text, what, seen->n_wrong, seen->first_wrong,
		     (double)value, sum, (double)slack, (unsigned long long)check->number);
}

void gpu_op_check_near(const struct gpu_op_check *check, const void *x, uint64_t n,
		       const char *what)
{
	struct gpu *gpu = &check->data->rank->gpu;
	struct cei_kernel_near near;
	struct gpu_result seen;

	if (!n)
		return;
	gpu_reset(gpu, NEAR_RESULT);
	memset(&near, 0, sizeof(near));
	near.x = x;
	near.sum = check->sum;
	near.slack = check->slack;
	near.n = n;
	near.dtype = check->data->one->dtype;
	near.rounding = rounding_of(check->data->one);
	near.least = 0x1p-25f * (float)(1 + check->data->one->n_ranks);
	near.n_wrong = &gpu->results[NEAR_RESULT].n_wrong;
	near.first_wrong = &gpu->results[NEAR_RESULT].first_wrong;
	gpu_launch(gpu, GPU_CONTROL, "cei_kernel_compare_near", blocks_for(n), &near);
	seen = gpu_result(gpu, NEAR_RESULT);
	if (seen.n_wrong)
		blame(check, x, what, &seen);
}

/* Asserts that all bits are equal. The kernel also finds the largest difference, which is not used
 * here. fp32 is compared as two halves. */
static void check_bits(const struct gpu_op_data *data, const void *x, const void *y,
		       uint64_t n_bytes, const char *what)
{
	struct gpu *gpu = &data->rank->gpu;
	struct gpu_result *result = &gpu->results[SAME_RESULT];
	struct cei_kernel_compare_bf16 compare;
	unsigned long long n_unlike;
	char text[300];

	if (!n_bytes)
		return;
	gpu_reset(gpu, SAME_RESULT);
	memset(&compare, 0, sizeof(compare));
	compare.x = x;
	compare.y = y;
	compare.n = n_bytes / CEI_DTYPE16_BYTES;
	compare.ret_difference = &result->status;
	compare.ret_largest = &result->pad;
	compare.ret_n_unlike = &result->n_wrong;
	gpu_launch(gpu, GPU_CONTROL, "cei_kernel_compare_bf16", blocks_for(compare.n),
		   &compare);
	n_unlike = gpu_result(gpu, SAME_RESULT).n_wrong;
	describe(data->one, text, sizeof(text));
	ck_assert_msg(!n_unlike, "rank %u: %s: %s: %llu of %llu 16-bit words differ",
		      data->rank->rank, text, what, n_unlike,
		      (unsigned long long)compare.n);
}

static void check_ag_gemm(const struct gpu_op_check *check)
{
	const struct gpu_op_data *data = check->data;
	const struct op_case *one = data->one;
	struct gpu_operand b = { .rank = data->rank->rank };
	uint64_t first, rows;
	uint32_t source, i;
	char what[64];

	for (i = 0; i < one->n_gemms; i++) {
		b.which = 1 + i;
		b.n = one->n[i] * one->k;
		gpu_op_fill(data, GPU_CONTROL, check->b, &b, check->number);
		for (source = 0; source < one->n_ranks; source++) {
			rows = one->rows[source];
			first = op_case_before(one, source);
			snprintf(what, sizeof(what), "product %u of rank %u's rows", i, source);
			add_reference(check, source, 0, rows, one->n[i]);
			gpu_op_check_near(check, (const uint16_t *)data->c[i] + first * one->n[i],
				   rows * one->n[i], what);
			if (data->gathered && !i)
				check_bits(data, (const uint16_t *)data->gathered +
					   first * one->k, check->a,
					   rows * one->k * CEI_DTYPE16_BYTES, "gathered");
		}
	}
}

/* Checks a sum over all ranks' contributions to this rank's results. */
static void check_sum(const struct gpu_op_check *check)
{
	const struct gpu_op_data *data = check->data;
	const struct op_case *one = data->one;
	uint32_t own = data->rank->rank, source;
	int is_all = one->sort == OP_ALL_REDUCE || one->sort == OP_GEMM_AR;
	uint64_t n = op_is_sum(one->sort) ? 1 : one->n[0];
	uint64_t rows = op_case_c_elements(one, own, 0) / n;
	struct gpu_operand b = { .which = 1, .n = op_is_sum(one->sort) ? 0 : n * one->k };

	for (source = 0; source < one->n_ranks; source++) {
		b.rank = source;
		gpu_op_fill(data, GPU_CONTROL, check->b, &b, check->number);
		add_reference(check, source, is_all ? 0 : op_case_part_at(one, source, own),
			      rows, n);
	}
	gpu_op_check_near(check, data->c[0], rows * n, "the sum");
}

static void check_guard(const struct gpu_op_data *data, void *results, uint64_t n_bytes)
{
	struct gpu_words guard = guard_of(results, n_bytes);

	if (results)
		gpu_check(&data->rank->gpu, &guard);
}

void gpu_op_data_check(const struct gpu_op_data *data, enum gpu_stream stream, uint64_t number)
{
	struct gpu_op_check check;
	uint32_t i;

	gpu_op_idle(data->rank, stream);
	check = begin_check(data, number);
	if (data->one->sort == OP_AG_GEMM)
		check_ag_gemm(&check);
	else if (op_is_a2a(data->one->sort))
		gpu_op_a2a_check(&check);
	else
		check_sum(&check);
	for (i = 0; i < data->one->n_gemms; i++)
		check_guard(data, data->c[i], data->c_bytes[i]);
	check_guard(data, data->gathered, data->gathered_bytes);
	data->rank->used_bytes = check.used_bytes;
}

void gpu_op_data_keep(const struct gpu_op_data *data, enum gpu_stream stream,
		      const struct gpu_op_data *kept)
{
	uint32_t i;

	gpu_op_idle(data->rank, stream);
	for (i = 0; i < data->one->n_gemms; i++)
		if (data->c_bytes[i])
			gpu_move(&data->rank->gpu, kept->c[i], data->c[i], data->c_bytes[i]);
}

void gpu_op_data_same(const struct gpu_op_data *data, enum gpu_stream stream,
		      const struct gpu_op_data *kept)
{
	uint32_t i;

	gpu_op_idle(data->rank, stream);
	for (i = 0; i < data->one->n_gemms; i++)
		check_bits(data, data->c[i], kept->c[i], data->c_bytes[i], "repeated");
}
