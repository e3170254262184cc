/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* How each method of an operator runs: as one call, or as a graph of several. */

#include <string.h>

#include "ops/gemm/product.h"
#include "tools/bench/blas.h"
#include "tools/bench/overlap/overlap.h"

/* --- our operator --------------------------------------------------------- */

/* The operands of a run call. */
union operands {
	struct ceov_ag_gemm_run  ag_gemm;
	struct ceov_gemm_rs_run  gemm_rs;
	struct ceov_gemm_ar_run  gemm_ar;
	struct ceov_gemm_a2a_run gemm_a2a;
	struct ceov_a2a_gemm_run a2a_gemm;
	struct ceov_reduce_run   reduce;
	struct ceov_move_run     move;
};

/* Fills the operands that the test's run call takes. */
static union operands operands_of(const struct bench_overlap *o)
{
	void *a = o->memory.a, *b = o->memory.b, *c = o->memory.c;
	void *stream = bench_overlap_stream(o);
	union operands of;

	memset(&of, 0, sizeof(of));
	switch (o->test) {
	case OVERLAP_AG_GEMM:
		of.ag_gemm = (struct ceov_ag_gemm_run){ sizeof(of.ag_gemm), stream, a, { b }, { c },
							o->memory.gathered };
		break;
	case OVERLAP_GEMM_RS:
		of.gemm_rs = (struct ceov_gemm_rs_run){ sizeof(of.gemm_rs), stream, a, b, c };
		break;
	case OVERLAP_GEMM_AR:
		of.gemm_ar = (struct ceov_gemm_ar_run){ sizeof(of.gemm_ar), stream, a, b, c };
		break;
	case OVERLAP_GEMM_A2A:
		of.gemm_a2a = (struct ceov_gemm_a2a_run){ sizeof(of.gemm_a2a), stream, a, b, c };
		break;
	case OVERLAP_A2A_GEMM:
		of.a2a_gemm = (struct ceov_a2a_gemm_run){ sizeof(of.a2a_gemm), stream, a, b, c };
		break;
	case OVERLAP_REDUCE_SCATTER:
	case OVERLAP_ALL_REDUCE:
		of.reduce = (struct ceov_reduce_run){ sizeof(of.reduce), stream, a, c };
		break;
	case OVERLAP_ALL_GATHER:
	case OVERLAP_ALL_TO_ALL:
		of.move = (struct ceov_move_run){ sizeof(of.move), stream, a, c };
		break;
	case OVERLAP_EMBEDDING:
	case OVERLAP_DISPATCH:
	case OVERLAP_COMBINE: break;
	}
	return of;
}

static int ours(struct bench_overlap *o, ceov_op *op)
{
	union operands of = operands_of(o);

	switch (o->test) {
	case OVERLAP_AG_GEMM:  return ceov_ag_gemm_run(op, &of.ag_gemm);
	case OVERLAP_GEMM_RS:  return ceov_gemm_rs_run(op, &of.gemm_rs);
	case OVERLAP_GEMM_AR:  return ceov_gemm_ar_run(op, &of.gemm_ar);
	case OVERLAP_GEMM_A2A: return ceov_gemm_a2a_run(op, &of.gemm_a2a);
	case OVERLAP_A2A_GEMM: return ceov_a2a_gemm_run(op, &of.a2a_gemm);
	case OVERLAP_ALL_GATHER:
	case OVERLAP_ALL_TO_ALL: return ceov_move_run(op, &of.move);
	case OVERLAP_EMBEDDING:
	case OVERLAP_DISPATCH:
	case OVERLAP_COMBINE: return CEOV_ERR_INVALID;
	case OVERLAP_REDUCE_SCATTER:
	case OVERLAP_ALL_REDUCE: break;
	}
	return ceov_reduce_run(op, &of.reduce);
}

static int ours_gemm(struct bench_overlap *o, ceov_op *op)
{
	union operands of = operands_of(o);

	return cei_op_gemm_alone(op, &of);
}

/* --- NCCL, cuBLAS and sequences of both ----------------------------------- */

static int multiply(struct bench_overlap *o, const void *a, void *c)
{
	struct bench_product product = {
		.a = a,
		.b = o->memory.b,
		.c = c,
		.m = bench_overlap_product_rows(o),
		.n = o->shape.n,
		.k = o->shape.k,
		.b_is_k_by_n = o->options->b_is_k_by_n,
	};

	return bench_blas_multiply(o->blas, &product);
}

static int gemm(struct bench_overlap *o)
{
	return o->memory.whole
		? multiply(o, o->memory.whole, o->memory.other)
		: multiply(o, o->memory.a, o->memory.product);
}

static int communicate(struct bench_overlap *o, struct bench_nccl *nccl)
{
	void *stream = bench_overlap_stream(o);

	switch (o->test) {
	case OVERLAP_AG_GEMM:
		return bench_nccl_all_gather(nccl, o->rows[0] * o->shape.k * 2, stream);
	case OVERLAP_GEMM_RS:
		return bench_nccl_reduce_scatter(nccl, o->rows[0] * o->shape.n, BENCH_NCCL_BF16,
						 stream);
	case OVERLAP_GEMM_AR:
		return bench_nccl_all_reduce(nccl, o->n_result, BENCH_NCCL_BF16, stream);
	case OVERLAP_REDUCE_SCATTER:
		return bench_nccl_reduce_scatter(nccl, o->rows[0], BENCH_NCCL_BF16, stream);
	case OVERLAP_ALL_REDUCE:
		return bench_nccl_all_reduce(nccl, o->shape.bytes / 2, BENCH_NCCL_BF16,
					     stream);
	case OVERLAP_ALL_GATHER:
		return bench_nccl_all_gather(nccl, o->rows[0] * 2, stream);
	case OVERLAP_ALL_TO_ALL:
		return bench_nccl_all_to_all(nccl, o->rows[0] * 2, stream);
	case OVERLAP_GEMM_A2A:
	case OVERLAP_A2A_GEMM:
	case OVERLAP_EMBEDDING:
	case OVERLAP_DISPATCH:
	case OVERLAP_COMBINE: break;            /* without NCCL, or by its sends */
	}
	return CEOV_ERR_INVALID;
}

static int sequence(struct bench_overlap *o, struct bench_nccl *nccl)
{
	int r;

	if (o->test == OVERLAP_AG_GEMM) {
		r = communicate(o, nccl);
		return r ? r : multiply(o, bench_nccl_target(nccl), o->memory.other);
	}
	r = multiply(o, o->memory.a, bench_nccl_source(nccl));
	return r ? r : communicate(o, nccl);
}

int bench_overlap_once(struct bench_overlap *o, enum bench_overlap_method method, int is_graph)
{
	if (o->test == OVERLAP_EMBEDDING)
		return bench_embedding_once(o, method, is_graph);
	if (bench_overlap_is_experts(o->test))
		return bench_experts_once(o, method);
	switch (method) {
	case OVERLAP_GEMM:        return gemm(o);
	case OVERLAP_OURS_GEMM:   return ours_gemm(o, o->ops[is_graph]);
	case OVERLAP_COMM:        return communicate(o, o->nccl[0]);
	case OVERLAP_COMM_CE:     return communicate(o, o->nccl[1]);
	case OVERLAP_SEQUENCE:    return sequence(o, o->nccl[0]);
	case OVERLAP_SEQUENCE_CE: return sequence(o, o->nccl[1]);
	case OVERLAP_OURS:        return ours(o, o->ops[is_graph]);
	case OVERLAP_METHODS:     break;
	}
	return CEOV_ERR_INVALID;
}

int bench_overlap_calls(struct bench_overlap *o, enum bench_overlap_method method, int is_graph)
{
	uint32_t i;
	int r = 0;

	if (is_graph)
		return bench_graph_launch(o->rank->device, o->graphs[method]);
	for (i = 0; !r && i < OVERLAP_CALLS; i++)
		r = bench_overlap_once(o, method, 0);
	return r;
}

/* --- available methods ------------------------------------------------------- */

static int is_there(const struct bench_overlap *o, enum bench_overlap_method method)
{
	int has_nccl = o->nccl[0] && o->is_even, has_ce = o->nccl[1] && o->is_even;

	if (o->test == OVERLAP_EMBEDDING)
		return bench_embedding_is_there(method);
	if (bench_overlap_is_experts(o->test))
		return bench_experts_is_there(o, method);
	if (o->test == OVERLAP_ALL_REDUCE || o->test == OVERLAP_GEMM_AR)
		has_nccl = o->nccl[0] != NULL;
	switch (method) {
	case OVERLAP_GEMM:        return o->blas != NULL;
	case OVERLAP_OURS_GEMM:   return o->rank->is_gpu && !bench_overlap_is_plain(o);
	case OVERLAP_COMM:        return has_nccl;
	case OVERLAP_COMM_CE:     return has_ce;
	case OVERLAP_SEQUENCE:    return has_nccl && o->blas;
	case OVERLAP_SEQUENCE_CE: return has_ce && o->blas;
	case OVERLAP_OURS:        return 1;
	case OVERLAP_METHODS:     break;
	}
	return 0;
}

/* Captures a method into a graph. One call before the capture loads modules, which cannot be loaded
 * during a capture. */
static int capture(struct bench_overlap *o, enum bench_overlap_method method)
{
	struct bench_device *device = o->rank->device;
	uint32_t i;
	int r = bench_overlap_once(o, method, 1), s;

	if (!r)
		r = bench_stream_sync(device, BENCH_STREAM_MAIN);
	if (!r)
		r = bench_capture_begin(device);
	if (r)
		return r;
	for (i = 0; !r && i < OVERLAP_CALLS; i++)
		r = bench_overlap_once(o, method, 1);
	s = bench_capture_end(device, r ? NULL : &o->graphs[method]);
	return r ? r : s;
}

/* Prepares a method. Methods that this machine or shape does not support are left out,
 * except ours, which must work. */
static int open_method(struct bench_overlap *o, enum bench_overlap_method method, int is_graph)
{
	struct bench_rank *rank = o->rank;
	int r, failed = 0;

	if (is_graph)
		r = capture(o, method);
	else
		r = bench_overlap_once(o, method, 0);
	if (r && method == OVERLAP_OURS)
		return bench_fail(rank, r, is_graph ? "capturing ours" : "a first run of ours");
	if (bench_any(rank, r != 0, &failed))
		return CEOV_ERR_ABORTED;
	if (failed && !rank->rank)
		bench_note(rank->options, "%s: method %u is left out %s: it failed",
			   bench_overlap_name(o->test), (unsigned)method,
			   is_graph ? "of graphs" : "of streams");
	o->runs[is_graph][method] = !failed;
	return bench_overlap_settle(o);
}

int bench_overlap_open_methods(struct bench_overlap *o)
{
	uint32_t method;
	int is_graph, r = 0;

	memset(o->runs, 0, sizeof(o->runs));
	for (is_graph = 0; is_graph < 2; is_graph++)
		for (method = 0; !r && o->ops[is_graph] && method < OVERLAP_METHODS; method++)
			if (is_there(o, (enum bench_overlap_method)method))
				r = open_method(o, (enum bench_overlap_method)method, is_graph);
	return r;
}

void bench_overlap_close_methods(struct bench_overlap *o)
{
	uint32_t method;

	for (method = 0; method < OVERLAP_METHODS; method++) {
		if (o->graphs[method])
			bench_graph_drop(o->rank->device, o->graphs[method]);
		o->graphs[method] = NULL;
	}
}
