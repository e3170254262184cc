/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Opens what measuring an operator needs: workspaces, NCCL and cuBLAS for a case; operators, memory
 * and data for a row. */

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/bench/blas.h"
#include "tools/bench/group.h"
#include "tools/bench/overlap/overlap.h"

/* --- shapes --------------------------------------------------------------- */

/* Distributes units evenly. If they do not divide evenly, the first ranks get one more. */
static void share_out(uint64_t total, uint64_t unit, uint32_t n_ranks, uint64_t *parts)
{
	uint64_t units = total / unit;
	uint32_t i;

	for (i = 0; i < n_ranks; i++)
		parts[i] = (units / n_ranks + (i < units % n_ranks)) * unit;
}

static void set_shape(struct bench_overlap *o, const struct bench_overlap_shape *shape)
{
	struct bench_rank *rank = o->rank;
	uint32_t i;

	o->shape = *shape;
	o->first_row = 0;
	o->is_even = 1;
	if (bench_overlap_is_plain(o))
		share_out(shape->bytes / 2, 8, rank->n_ranks, o->rows);
	else
		share_out(shape->m, 1, rank->n_ranks, o->rows);
	for (i = 0; i < rank->n_ranks; i++) {
		if (i < rank->rank)
			o->first_row += o->rows[i];
		o->is_even = o->is_even && o->rows[i] == o->rows[0];
	}
	for (i = 0; o->rows_of && i < rank->n_ranks * rank->n_ranks; i++)
		o->rows_of[i] = o->rows[i % rank->n_ranks] * (bench_overlap_is_move(o) ? 2 : 1);
	o->n_result = o->rows[rank->rank];
	if (o->test == OVERLAP_AG_GEMM || o->test == OVERLAP_GEMM_AR)
		o->n_result = shape->m * shape->n;
	else if (o->test == OVERLAP_GEMM_RS)
		o->n_result *= shape->n;
	else if (bench_overlap_is_a2a(o))
		o->n_result *= rank->n_ranks * shape->n;
	else if (o->test == OVERLAP_EMBEDDING)
		o->n_result *= rank->n_ranks * shape->n * shape->k;
	else if (o->test == OVERLAP_ALL_TO_ALL)
		o->n_result *= rank->n_ranks;
	else if (o->test == OVERLAP_ALL_REDUCE || o->test == OVERLAP_ALL_GATHER)
		o->n_result = shape->bytes / 2;
}

int bench_overlap_is_by_node(const struct bench_overlap *o)
{
	return o->options->by_node && bench_overlap_is_sum(o) && o->rank->n_nodes > 1;
}

/* The shape as each operator takes it. */
struct shapes {
	struct ceov_ag_gemm  ag_gemm;
	struct ceov_gemm_rs  gemm_rs;
	struct ceov_gemm_ar  gemm_ar;
	struct ceov_gemm_a2a gemm_a2a;
	struct ceov_a2a_gemm a2a_gemm;
	struct ceov_reduce   reduce;
	struct ceov_move     move;
};

static struct shapes shapes_of(const struct bench_overlap *o)
{
	const struct ceov_op_tuning *tuning = o->options->is_tuned ? &o->options->tuning : NULL;
	uint32_t is_k_by_n = o->options->b_is_k_by_n;
	uint64_t m = o->shape.m, k = o->shape.k, n = o->shape.n;

	return (struct shapes){
		.ag_gemm = { .struct_bytes = sizeof(struct ceov_ag_gemm), .dtype = CEOV_BF16,
			     .rows = o->rows, .k = k, .n_gemms = 1, .n = { n },
			     .tuning = tuning, .b_is_k_by_n = is_k_by_n },
		.gemm_rs = { .struct_bytes = sizeof(struct ceov_gemm_rs), .dtype = CEOV_BF16,
			     .rows = o->rows, .k = k, .n = n,
			     .tuning = tuning, .b_is_k_by_n = is_k_by_n },
		.gemm_ar = { .struct_bytes = sizeof(struct ceov_gemm_ar), .dtype = CEOV_BF16,
			     .m = m, .k = k, .n = n,
			     .tuning = tuning, .b_is_k_by_n = is_k_by_n },
		.gemm_a2a = { .struct_bytes = sizeof(struct ceov_gemm_a2a), .dtype = CEOV_BF16,
			      .rows_of = o->rows_of, .k = k, .n = n,
			      .tuning = tuning, .b_is_k_by_n = is_k_by_n },
		.a2a_gemm = { .struct_bytes = sizeof(struct ceov_a2a_gemm), .dtype = CEOV_BF16,
			      .rows_of = o->rows_of, .k = k, .n = n,
			      .tuning = tuning, .b_is_k_by_n = is_k_by_n },
		.reduce = { .struct_bytes = sizeof(struct ceov_reduce), .dtype = CEOV_BF16,
			    .counts = o->rows, .tuning = tuning,
			    .by_node = (uint32_t)bench_overlap_is_by_node(o) },
		.move = { .struct_bytes = sizeof(struct ceov_move), .bytes = o->rows_of,
			  .tuning = tuning },
	};
}

static uint64_t scratch_bytes(const struct bench_overlap *o)
{
	const struct shapes as = shapes_of(o);
	uint32_t n_ranks = o->rank->n_ranks;

	switch (o->test) {
	case OVERLAP_GEMM_A2A: return ceov_gemm_a2a_scratch_bytes(&as.gemm_a2a, n_ranks);
	case OVERLAP_A2A_GEMM: return ceov_a2a_gemm_scratch_bytes(&as.a2a_gemm, n_ranks);
	case OVERLAP_AG_GEMM: return ceov_ag_gemm_scratch_bytes(&as.ag_gemm, n_ranks);
	case OVERLAP_GEMM_RS: return ceov_gemm_rs_scratch_bytes(&as.gemm_rs, n_ranks);
	case OVERLAP_GEMM_AR: return ceov_gemm_ar_scratch_bytes(&as.gemm_ar, n_ranks);
	case OVERLAP_REDUCE_SCATTER:
		return ceov_reduce_scatter_scratch_bytes(&as.reduce, n_ranks);
	case OVERLAP_ALL_REDUCE: return ceov_all_reduce_scratch_bytes(&as.reduce, n_ranks);
	case OVERLAP_ALL_GATHER: return ceov_all_gather_scratch_bytes(&as.move, n_ranks);
	case OVERLAP_ALL_TO_ALL: return ceov_all_to_all_scratch_bytes(&as.move, n_ranks);
	case OVERLAP_EMBEDDING: return bench_embedding_scratch_bytes(o);
	case OVERLAP_DISPATCH:
	case OVERLAP_COMBINE: return bench_experts_scratch_bytes(o);
	}
	return 0;
}

static int create_op(struct bench_overlap *o, ceov_workspace *workspace, ceov_op **ret_op)
{
	const struct shapes as = shapes_of(o);

	switch (o->test) {
	case OVERLAP_GEMM_A2A: return ceov_gemm_a2a_create(workspace, &as.gemm_a2a, ret_op);
	case OVERLAP_A2A_GEMM: return ceov_a2a_gemm_create(workspace, &as.a2a_gemm, ret_op);
	case OVERLAP_AG_GEMM: return ceov_ag_gemm_create(workspace, &as.ag_gemm, ret_op);
	case OVERLAP_GEMM_RS: return ceov_gemm_rs_create(workspace, &as.gemm_rs, ret_op);
	case OVERLAP_GEMM_AR: return ceov_gemm_ar_create(workspace, &as.gemm_ar, ret_op);
	case OVERLAP_REDUCE_SCATTER:
		return ceov_reduce_scatter_create(workspace, &as.reduce, ret_op);
	case OVERLAP_ALL_REDUCE: return ceov_all_reduce_create(workspace, &as.reduce, ret_op);
	case OVERLAP_ALL_GATHER: return ceov_all_gather_create(workspace, &as.move, ret_op);
	case OVERLAP_ALL_TO_ALL: return ceov_all_to_all_create(workspace, &as.move, ret_op);
	case OVERLAP_EMBEDDING: return bench_embedding_create(o, workspace, ret_op);
	case OVERLAP_DISPATCH:
	case OVERLAP_COMBINE: return bench_experts_create(o, workspace, ret_op);
	}
	return CEOV_ERR_INVALID;
}

/* Returns the size of the memory that NCCL uses: the gathered A, the whole product, the input of a
 * sum, or all blocks of a move. */
static uint64_t nccl_bytes(const struct bench_overlap *o)
{
	if (o->test == OVERLAP_AG_GEMM)
		return o->shape.m * o->shape.k * 2;
	if (bench_overlap_is_experts(o->test))
		return bench_experts_nccl_bytes(o);
	return o->shape.model ? o->shape.m * o->shape.n * 2 : o->shape.bytes;
}

/* --- opening and closing a case ------------------------------------------- */

static int open_nccl(struct bench_overlap *o, int is_ce, uint64_t n_bytes)
{
	struct bench_rank *rank = o->rank;
	const char *why = "";
	int r = CEOV_NONE;

	if (bench_overlap_is_a2a(o) || o->test == OVERLAP_EMBEDDING)
		why = "its all-to-all is not among what is compared";
	else if (is_ce && o->test != OVERLAP_AG_GEMM && !bench_overlap_is_move(o))
		why = bench_overlap_is_experts(o->test) ? "its sends need SMs"
			: "its sums need SMs";
	else
		r = bench_nccl_open(rank, is_ce, n_bytes, &o->nccl[is_ce], &why);
	if (r != CEOV_NONE)
		return r;
	if (!rank->rank)
		bench_note(rank->options, "%s: NCCL %s is left out: %s",
			   bench_overlap_name(o->test), is_ce ? "zero-CTA" : "default", why);
	return 0;
}

static int open_blas(struct bench_overlap *o)
{
	struct bench_rank *rank = o->rank;
	const char *why = "";
	int r = CEOV_NONE;

	if (bench_overlap_is_plain(o) || o->test == OVERLAP_EMBEDDING ||
	    bench_overlap_is_experts(o->test))
		return 0;
	if (rank->is_gpu && !o->options->without_blas)
		r = bench_blas_open(rank, o->options->blas_path, &o->blas, &why);
	else
		why = rank->is_gpu ? "as asked" : "it needs GPUs";
	if (r != CEOV_NONE)
		return r;
	if (!rank->rank)
		bench_note(rank->options, "%s: cuBLAS is left out: %s",
			   bench_overlap_name(o->test), why);
	return 0;
}

/* Returns whether rows of graphs are measured. If they are left out, rank 0 says why. */
static int takes_graphs(const struct bench_overlap *o)
{
	const char *why = NULL;

	if (!o->options->graphs || !o->rank->is_gpu)
		return 0;
	if (bench_overlap_is_experts(o->test))
		why = "a run counts its rows, which no graph holds";
	else if (o->rank->n_nodes > 1)
		why = "they hold no transfers to other nodes";
	if (why && !o->rank->rank)
		bench_note(o->rank->options, "%s: graphs are left out: %s",
			   bench_overlap_name(o->test), why);
	return !why;
}

int bench_overlap_open(struct bench_overlap *o, const struct bench_overlap_shape *shapes,
		       uint32_t n_shapes)
{
	uint64_t scratch_max = 0, nccl_max = 0, bytes;
	uint32_t i;
	int r = 0;

	if (bench_overlap_is_a2a(o) || bench_overlap_is_move(o)) {
		o->rows_of = calloc((size_t)o->rank->n_ranks * o->rank->n_ranks,
				    sizeof(*o->rows_of));
		if (!o->rows_of)
			return bench_fail(o->rank, CEOV_ERR_NO_MEMORY, "a list of rows");
	}
	for (i = 0; i < n_shapes; i++) {
		set_shape(o, &shapes[i]);
		bytes = scratch_bytes(o);
		if (!bytes)
			return bench_fail(o->rank, CEOV_ERR_INVALID, "the operator refuses "
					  "the shape");
		scratch_max = bytes > scratch_max ? bytes : scratch_max;
		bytes = nccl_bytes(o);
		nccl_max = bytes > nccl_max ? bytes : nccl_max;
	}
	if (o->options->streams || !o->rank->is_gpu)
		r = bench_open_workspace(o->rank, 0, scratch_max, &o->workspaces[0]);
	if (!r && takes_graphs(o))
		r = bench_open_workspace(o->rank, 1, scratch_max, &o->workspaces[1]);
	if (!r)
		r = open_blas(o);
	if (!r)
		r = open_nccl(o, 0, nccl_max);
	if (!r)
		r = open_nccl(o, 1, nccl_max);
	return r ? r : bench_meet(o->rank);
}

int bench_overlap_close(struct bench_overlap *o)
{
	int i, r = 0, s;

	bench_nccl_close(o->nccl[1]);
	bench_nccl_close(o->nccl[0]);
	bench_blas_close(o->blas);
	free(o->rows_of);
	o->rows_of = NULL;
	for (i = 0; i < 2; i++) {
		if (!o->workspaces[i])
			continue;
		s = bench_release_workspace(o->workspaces[i]);
		r = r ? r : s;
	}
	/* a workspace that a peer still maps is released when the context closes */
	return r == CEOV_PENDING ? 0 : r;
}

/* --- opening and closing a row -------------------------------------------- */

uint64_t bench_overlap_seed(const struct bench_overlap *o, uint32_t rank, uint32_t operand)
{
	return o->seed + (rank * 2 + operand + 1) * UINT64_C(0x100000000001);
}

void *bench_overlap_stream(const struct bench_overlap *o)
{
	return o->rank->is_gpu ? bench_stream(o->rank->device, BENCH_STREAM_MAIN) : NULL;
}

static int get(struct bench_overlap *o, uint64_t n_values, uint64_t value_bytes,
	       void **ret_at)
{
	return bench_allocate(o->rank->device, n_values * value_bytes, ret_at);
}

static int get_operands(struct bench_overlap *o)
{
	const struct bench_overlap_shape *shape = &o->shape;
	struct bench_overlap_memory *memory = &o->memory;
	uint64_t own = o->rows[o->rank->rank], rows = bench_overlap_result_rows(o);
	int r;

	if (bench_overlap_is_plain(o))
		return get(o, o->test == OVERLAP_ALL_GATHER ? own : shape->bytes / 2, 2,
			   &memory->a);
	r = get(o, shape->n * shape->k, 2, &memory->b);
	if (o->test == OVERLAP_AG_GEMM) {
		r = r ? r : get(o, own * shape->k, 2, &memory->a);
		r = r ? r : get(o, shape->m * shape->k, 2, &memory->whole);
		if (o->options->gathers)
			r = r ? r : get(o, shape->m * shape->k, 2, &memory->gathered);
		return r;
	}
	r = r ? r : get(o, shape->m * shape->k, 2, &memory->a);
	if (o->test == OVERLAP_A2A_GEMM)
		return r ? r : get(o, bench_overlap_product_rows(o) * shape->k, 2,
				   &memory->whole);
	r = r ? r : get(o, shape->m * shape->n, 2, &memory->product);
	r = r ? r : get(o, rows * shape->k, 2, &memory->peer_a);
	return r ? r : get(o, shape->n * shape->k, 2, &memory->peer_b);
}

static int get_memory(struct bench_overlap *o)
{
	int r = get_operands(o);

	if (!r)
		r = get(o, o->n_result, 2, &o->memory.c);
	if (!r)
		r = get(o, o->n_result, 2, &o->memory.other);
	if (!r)
		r = get(o, o->n_result, 4, &o->memory.reference);
	return r ? bench_fail(o->rank, r, "memory of a row") : 0;
}

static void drop_memory(struct bench_overlap *o)
{
	struct bench_overlap_memory *memory = &o->memory;
	void *const all[] = { memory->a, memory->whole, memory->b, memory->c, memory->other,
		memory->gathered, memory->product, memory->reference, memory->peer_a,
		memory->peer_b };
	size_t i;

	for (i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (all[i])
			bench_release(o->rank->device, all[i]);
	memset(memory, 0, sizeof(*memory));
}

static int make_from(struct bench_overlap *o, void *at, uint64_t first, uint64_t n,
		     uint64_t seed)
{
	struct bench_values values = { .at = at, .first = first, .n = n, .seed = seed };

	return bench_make_values(o->rank->device, &values);
}

static int make(struct bench_overlap *o, void *at, uint64_t n, uint64_t seed)
{
	return make_from(o, at, 0, n, seed);
}

/* Generates all of A that the rank gets: of rank r its operand a, or in an all-to-all those rows of
 * it that are for this rank. */
static int make_whole(struct bench_overlap *o, void *whole)
{
	int is_a2a = bench_overlap_is_a2a(o);
	uint64_t first = is_a2a ? o->first_row * o->shape.k : 0, n;
	uint16_t *at = whole;
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < o->rank->n_ranks; i++) {
		n = o->rows[is_a2a ? o->rank->rank : i] * o->shape.k;
		r = make_from(o, at, first, n, bench_overlap_seed(o, i, 0));
		at += n;
	}
	return r;
}

static int make_data(struct bench_overlap *o)
{
	uint32_t own = o->rank->rank;
	uint64_t seed = bench_overlap_seed(o, own, 0), n = o->shape.m * o->shape.k;
	int i, r;

	if (o->test == OVERLAP_ALL_GATHER)
		n = o->rows[own];
	else if (bench_overlap_is_plain(o))
		n = o->shape.bytes / 2;
	else if (o->test == OVERLAP_AG_GEMM)
		n = o->rows[own] * o->shape.k;
	r = make(o, o->memory.a, n, seed);
	if (!r && o->memory.b)
		r = make(o, o->memory.b, o->shape.n * o->shape.k,
			 bench_overlap_seed(o, own, 1));
	if (!r && o->memory.whole)
		r = make_whole(o, o->memory.whole);
	for (i = 0; !r && i < 2; i++) {
		if (!o->nccl[i])
			continue;
		if (o->test == OVERLAP_AG_GEMM)         /* NCCL's all-gather is in place */
			r = make(o, (uint16_t *)bench_nccl_target(o->nccl[i]) +
				 o->first_row * o->shape.k, n, seed);
		else if (o->test == OVERLAP_ALL_GATHER)
			r = make(o, (uint16_t *)bench_nccl_target(o->nccl[i]) + o->first_row,
				 n, seed);
		else if (bench_overlap_is_plain(o))
			r = make(o, bench_nccl_source(o->nccl[i]), n, seed);
	}
	return r;
}

static int open_ops(struct bench_overlap *o)
{
	int i, r = 0;

	for (i = 0; !r && i < 2; i++) {
		if (!o->workspaces[i])
			continue;
		r = create_op(o, o->workspaces[i], &o->ops[i]);
		if (!r)
			r = bench_meet(o->rank);
		if (!r && o->options->tunes && o->rank->is_gpu)
			r = ceov_op_tune(o->ops[i], bench_stream(o->rank->device,
								 BENCH_STREAM_MAIN));
		if (!r && o->options->explains && !o->rank->rank) {
			fflush(stdout);
			r = ceov_op_explain(o->ops[i], STDOUT_FILENO);
		}
	}
	return r ? bench_fail(o->rank, r, "creating the operator") : bench_meet(o->rank);
}

int bench_overlap_open_row(struct bench_overlap *o, const struct bench_overlap_shape *shape)
{
	int r;

	set_shape(o, shape);
	o->seed += UINT64_C(0x3000000000000003);
	if (o->test == OVERLAP_EMBEDDING || bench_overlap_is_experts(o->test)) {
		r = open_ops(o);
		if (r)
			return r;
		return o->test == OVERLAP_EMBEDDING ? bench_embedding_open(o)
			: bench_experts_open(o);
	}
	r = get_memory(o);
	if (!r)
		r = make_data(o);
	return r ? r : open_ops(o);
}

int bench_overlap_close_row(struct bench_overlap *o)
{
	int i, r = bench_meet(o->rank);

	bench_embedding_close(o);
	bench_experts_close(o);
	for (i = 0; i < 2; i++) {
		ceov_op_release(o->ops[i]);
		o->ops[i] = NULL;
	}
	drop_memory(o);
	return r ? r : bench_meet(o->rank);
}
