/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Checks results. Every rank can generate every other rank's operands and computes the expected
 * result in fp32 by itself: on the host with plain loops, on a GPU with cuBLAS. NCCL's result is
 * compared with the same, and its error is reported.
 */

#include <math.h>
#include <string.h>

#include "tools/bench/blas.h"
#include "tools/bench/overlap/overlap.h"

/* Stands for NaN and infinity, which samples cannot hold. */
#define ERROR_MAX 1e30

/*
 * Returns the tolerance relative to the largest value. A bf16 result is within 2^-8 (0.0039) of
 * the sum that it was rounded from. Products that are summed over ranks are rounded before the sum
 * as well, each partial sum by up to 2^-8 of itself; so are sums of a node's ranks that are sent to
 * another node. Wrong or missing pieces differ by about the largest value. What is only moved stays
 * as it is, as in a dispatch.
 */
double bench_overlap_tolerance(const struct bench_overlap *o)
{
	if (bench_overlap_is_move(o) || o->test == OVERLAP_DISPATCH)
		return 0;
	return o->test == OVERLAP_GEMM_RS || o->test == OVERLAP_GEMM_AR ||
		bench_overlap_is_by_node(o) ? 0.008 : 0.004;
}

/* --- the expected result -------------------------------------------------- */

static int make(struct bench_overlap *o, const struct bench_values *values)
{
	return bench_make_values(o->rank->device, values);
}

static int multiply(struct bench_overlap *o, const struct bench_product *product)
{
	int r;

	if (!o->rank->is_gpu) {
		bench_host_multiply(product);
		return 0;
	}
	r = bench_blas_multiply(o->blas, product);
	return r ? r : bench_stream_sync(o->rank->device, BENCH_STREAM_MAIN);
}

/* Computes this rank's rows, or all rows, of all ranks' products: their sum, or one below the
 * other. */
static int refer_rows_of_all(struct bench_overlap *o)
{
	struct bench_overlap_memory *memory = &o->memory;
	struct bench_product product = {
		.a = memory->peer_a,
		.b = memory->peer_b,
		.c = memory->reference,
		.m = bench_overlap_result_rows(o),
		.n = o->shape.n,
		.k = o->shape.k,
		.c_is_float = 1,
		.b_is_k_by_n = o->options->b_is_k_by_n,
	};
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < o->rank->n_ranks; i++) {
		struct bench_values a = {
			.at = memory->peer_a,
			.n = product.m * product.k,
			.seed = bench_overlap_seed(o, i, 0),
			.first = bench_overlap_first_row(o) * product.k,
		};
		struct bench_values b = {
			.at = memory->peer_b,
			.n = product.n * product.k,
			.seed = bench_overlap_seed(o, i, 1),
		};

		r = make(o, &a);
		if (!r)
			r = make(o, &b);
		product.adds = i && !bench_overlap_is_a2a(o);
		if (!r)
			r = multiply(o, &product);
		if (bench_overlap_is_a2a(o))
			product.c = (float *)product.c + product.m * product.n;
	}
	return r;
}

static int refer_sum(struct bench_overlap *o)
{
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < o->rank->n_ranks; i++) {
		struct bench_values values = {
			.at = o->memory.reference,
			.n = o->n_result,
			.seed = bench_overlap_seed(o, i, 0),
			.first = o->test == OVERLAP_ALL_REDUCE ? 0 : o->first_row,
			.kind = i ? BENCH_VALUES_ADD : BENCH_VALUES_FLOAT,
		};

		r = make(o, &values);
	}
	return r;
}

/* Generates what a move brings: the values of each rank, in an all-to-all those for this rank. */
static int refer_move(struct bench_overlap *o)
{
	int is_gather = o->test == OVERLAP_ALL_GATHER;
	float *at = o->memory.reference;
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < o->rank->n_ranks; i++) {
		struct bench_values values = {
			.at = at,
			.n = o->rows[is_gather ? i : o->rank->rank],
			.seed = bench_overlap_seed(o, i, 0),
			.first = is_gather ? 0 : o->first_row,
			.kind = BENCH_VALUES_FLOAT,
		};

		r = make(o, &values);
		at += values.n;
	}
	return r;
}

int bench_overlap_refer(struct bench_overlap *o)
{
	struct bench_product product = {
		.a = o->memory.whole,
		.b = o->memory.b,
		.c = o->memory.reference,
		.m = bench_overlap_product_rows(o),
		.n = o->shape.n,
		.k = o->shape.k,
		.c_is_float = 1,
		.b_is_k_by_n = o->options->b_is_k_by_n,
	};

	if (bench_overlap_is_move(o))
		return refer_move(o);
	if (o->test == OVERLAP_EMBEDDING)
		return bench_embedding_refer(o);
	if (bench_overlap_is_experts(o->test))
		return bench_experts_refer(o);
	if (bench_overlap_is_sum(o))
		return refer_sum(o);
	if (o->rank->is_gpu && !o->blas)
		return CEOV_NONE;
	return o->memory.whole ? multiply(o, &product) : refer_rows_of_all(o);
}

/* --- comparison with the expected result ---------------------------------- */

int bench_overlap_settle(struct bench_overlap *o)
{
	int r = 0;

	if (o->rank->is_gpu)
		r = bench_stream_sync(o->rank->device, BENCH_STREAM_MAIN);
	return r ? r : bench_meet(o->rank);
}

static int measure_error(struct bench_overlap *o, const void *result, double *ret_error)
{
	struct bench_compare compare = {
		.x = result,
		.y = o->memory.reference,
		.n = o->n_result,
		.y_is_float = o->test != OVERLAP_EMBEDDING,
	};
	int r = bench_compare(o->rank->device, &compare);
	double error = compare.largest > 0 ? compare.difference / compare.largest
		: compare.difference;

	*ret_error = isfinite(error) && error < ERROR_MAX ? error : ERROR_MAX;
	return r;
}

/* Runs our operator into targets filled with other data, so that parts that it does not write
 * show. */
static int run_ours(struct bench_overlap *o, int is_graph)
{
	struct bench_device *device = o->rank->device;
	int r = bench_fill(device, o->memory.c, o->n_result * 2 / 8 * 8, ~o->seed);

	if (!r && o->memory.gathered)
		r = bench_fill(device, o->memory.gathered,
			       o->shape.m * o->shape.k * 2 / 8 * 8, ~o->seed);
	if (!r && o->experts)
		r = bench_experts_spoil(o);
	if (!r)
		r = bench_meet(o->rank);
	if (!r)
		r = is_graph ? bench_overlap_calls(o, OVERLAP_OURS, 1)
			: bench_overlap_once(o, OVERLAP_OURS, 0);
	if (!r)
		r = bench_overlap_settle(o);
	return r ? bench_fail(o->rank, r, "a run of ours") : 0;
}

/* Keeps the first run's result for comparison. */
static int keep(struct bench_overlap *o)
{
	struct bench_copy copy = {
		.target = o->memory.other,
		.source = o->memory.c,
		.row_bytes = o->n_result * 2,
		.n_rows = 1,
	};
	int r;

	if (!o->n_result)
		return 0;
	if (!o->rank->is_gpu) {
		memcpy(copy.target, copy.source, copy.row_bytes);
		return 0;
	}
	r = bench_raw_copies(o->rank->device, BENCH_STREAM_MAIN, &copy, 1);
	return r ? r : bench_stream_sync(o->rank->device, BENCH_STREAM_MAIN);
}

/* Checks the gathered A. It is only moved, so every bit must be equal. */
static int check_gathered(struct bench_overlap *o, uint64_t *n_unlike)
{
	struct bench_compare compare = {
		.x = o->memory.gathered,
		.y = o->memory.whole,
		.n = o->shape.m * o->shape.k,
	};
	int r;

	if (!o->memory.gathered)
		return 0;
	r = bench_compare(o->rank->device, &compare);
	*n_unlike += compare.n_unlike;
	return r;
}

static int check_ours(struct bench_overlap *o, int is_graph, uint32_t slot)
{
	struct bench_compare compare = {
		.x = o->memory.c,
		.y = o->memory.other,
		.n = o->n_result,
	};
	double error = 0;
	int r = run_ours(o, is_graph);

	if (!r)
		r = measure_error(o, o->memory.c, &error);
	if (!r)
		r = keep(o);
	if (!r)
		r = run_ours(o, is_graph);
	if (!r)
		r = bench_compare(o->rank->device, &compare);
	if (!r)
		r = check_gathered(o, &compare.n_unlike);
	if (!r && o->experts)
		r = bench_experts_check(o, &compare.n_unlike);
	bench_sample(o->rank, OVERLAP_MODE_ERROR + (uint32_t)is_graph, slot, error);
	bench_sample(o->rank, OVERLAP_MODE_UNLIKE + (uint32_t)is_graph, slot,
		     (double)compare.n_unlike);
	return r;
}

static int check_nccl(struct bench_overlap *o, int is_ce, double *error)
{
	enum bench_overlap_method method = is_ce ? OVERLAP_SEQUENCE_CE : OVERLAP_SEQUENCE;
	double found = 0;
	int r;

	if (bench_overlap_is_plain(o))
		method = is_ce ? OVERLAP_COMM_CE : OVERLAP_COMM;
	if (!o->nccl[is_ce] || (is_ce && bench_overlap_is_sum(o)) || !o->runs[0][method] ||
	    o->experts)
		return 0;
	r = bench_overlap_once(o, method, 0);
	if (!r)
		r = bench_overlap_settle(o);
	if (!r)
		r = measure_error(o, o->test == OVERLAP_AG_GEMM ? o->memory.other
				  : bench_nccl_target(o->nccl[is_ce]), &found);
	*error = found > *error ? found : *error;
	return r;
}

int bench_overlap_check(struct bench_overlap *o, int is_graph, uint32_t slot)
{
	double error = 0;
	int r = check_ours(o, is_graph, slot);

	if (!r && !is_graph)
		r = check_nccl(o, 0, &error);
	if (!r && !is_graph)
		r = check_nccl(o, 1, &error);
	bench_sample(o->rank, OVERLAP_MODE_ERROR_NCCL + (uint32_t)is_graph, slot, error);
	return r ? r : bench_meet(o->rank);
}
