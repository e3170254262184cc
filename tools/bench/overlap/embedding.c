/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Embedding bags + all-to-all as a case of ceoverlap-bench overlap. A row's shape are m samples of
 * all ranks, n columns of a table and k tables of each rank. Its methods, in place of cuBLAS and
 * NCCL: all look-ups of a rank alone, our all-to-all of as many bytes alone, and ours with
 * everything looked up before anything is sent.
 *
 * Every rank can draw the bags and tables of all others, and computes the expected result by itself
 * by the same look-ups, rank after rank, without sending anything. So it is equal in every bit.
 */

#include <stdlib.h>
#include <string.h>

#include <ceoverlap/embedding.h>

#include "ops/embedding/layout.h"
#include "tools/bench/group.h"
#include "tools/bench/overlap/overlap.h"

#define TABLES_MAX 2048u                /* of all ranks */
#define BAG_MAX    16u                  /* bags have 0 to this many indices */
#define VALUE_BYTES 2u                  /* of a bf16 */

struct arrays {
	uint32_t              n_local[BENCH_RANKS_MAX];
	uint64_t              dims[TABLES_MAX];
	uint64_t              rows[TABLES_MAX];
	struct ceov_op_tuning tuning;
};

/* Bags where jobs can read them. */
struct bags {
	int64_t *indices;
	int64_t *offsets;
	void    *held_indices;          /* the executor's copies; NULL: it reads the list */
	void    *held_offsets;
	uint64_t n_indices;
};

struct bench_embedding {
	struct bags bags;
	ceov_op    *sequences[2];       /* for calls on a stream, for graphs */
	ceov_op    *moves[2];
	uint64_t   *blocks;             /* bytes that each rank sends to each */
};

/* --- the shape --------------------------------------------------------------------- */

static uint64_t table_rows(const struct bench_overlap *o)
{
	return o->rank->is_gpu ? UINT64_C(1) << 20 : 1000;
}

/* Bytes of a sample's vectors of the tables of one rank. */
static uint64_t width(const struct bench_overlap *o)
{
	return o->shape.n * o->shape.k * VALUE_BYTES;
}

/* Returns the operator's shape, whose arrays are in *arrays; its tables are none if there are too
 * many, so that it is refused. */
static struct ceov_embedding shape_of(const struct bench_overlap *o, struct arrays *arrays,
				      enum ceov_op_mode mode)
{
	uint32_t n_ranks = o->rank->n_ranks, i;
	uint64_t k = o->shape.k <= TABLES_MAX / n_ranks ? o->shape.k : 0;

	memset(arrays, 0, sizeof(*arrays));
	for (i = 0; i < n_ranks; i++)
		arrays->n_local[i] = (uint32_t)k;
	for (i = 0; i < n_ranks * k; i++) {
		arrays->dims[i] = o->shape.n;
		arrays->rows[i] = table_rows(o);
	}
	arrays->tuning = o->options->tuning;
	if (mode == CEOV_MODE_SEQUENCE)
		arrays->tuning = (struct ceov_op_tuning){
			.struct_bytes = sizeof(arrays->tuning), .mode = mode };
	return (struct ceov_embedding){
		.struct_bytes = sizeof(struct ceov_embedding),
		.dtype = CEOV_BF16,
		.pooling = CEOV_POOL_SUM,
		.samples = o->rows,
		.n_local = arrays->n_local,
		.dims = arrays->dims,
		.rows = arrays->rows,
		.tuning = &arrays->tuning,
	};
}

/* The all-to-all alone needs no more than the operator. */
uint64_t bench_embedding_scratch_bytes(const struct bench_overlap *o)
{
	struct arrays arrays;
	struct ceov_embedding shape = shape_of(o, &arrays, CEOV_MODE_CHOOSE);

	return ceov_embedding_a2a_scratch_bytes(&shape, o->rank->n_ranks);
}

int bench_embedding_create(const struct bench_overlap *o, ceov_workspace *workspace,
			   ceov_op **ret_op)
{
	struct arrays arrays;
	struct ceov_embedding shape = shape_of(o, &arrays, CEOV_MODE_CHOOSE);

	return ceov_embedding_a2a_create(workspace, &shape, ret_op);
}

/* --- bags and tables ---------------------------------------------------------------- */

static void drop_bags(struct cei_executor *executor, struct bags *bags)
{
	executor->ops->drop(executor, bags->held_indices);
	executor->ops->drop(executor, bags->held_offsets);
	free(bags->indices);
	free(bags->offsets);
	memset(bags, 0, sizeof(*bags));
}

/* Draws the bags of a rank and gives the executor a copy. Cleaned up by drop_bags(). */
static int draw_bags(const struct bench_overlap *o, struct cei_executor *executor, uint32_t rank,
		     struct bags *bags)
{
	uint64_t random = bench_overlap_seed(o, rank, 0), n_bags = o->shape.m * o->shape.k, i;
	int r;

	memset(bags, 0, sizeof(*bags));
	bags->offsets = calloc(n_bags + 1, sizeof(int64_t));
	if (!bags->offsets)
		return CEOV_ERR_NO_MEMORY;
	for (i = 0; i < n_bags; i++)
		bags->offsets[i + 1] = bags->offsets[i] +
			(int64_t)(bench_random(&random) % (BAG_MAX + 1));
	bags->n_indices = (uint64_t)bags->offsets[n_bags];
	bags->indices = calloc(bags->n_indices + 1, sizeof(int64_t));
	if (!bags->indices)
		return CEOV_ERR_NO_MEMORY;
	for (i = 0; i < bags->n_indices; i++)
		bags->indices[i] = (int64_t)(bench_random(&random) % table_rows(o));
	r = executor->ops->hold(executor, bags->offsets, (n_bags + 1) * sizeof(int64_t),
				&bags->held_offsets);
	return r ? r : executor->ops->hold(executor, bags->indices,
					   bags->n_indices * sizeof(int64_t), &bags->held_indices);
}

static struct ceov_embedding_bags operand_of(const struct bags *bags)
{
	return (struct ceov_embedding_bags){
		.n_indices = bags->n_indices,
		.indices = bags->held_indices ? bags->held_indices : bags->indices,
		.offsets = bags->held_offsets ? bags->held_offsets : bags->offsets,
	};
}

static int make_tables(struct bench_overlap *o, uint32_t rank, void *at)
{
	struct bench_values values = {
		.at = at,
		.n = o->shape.k * table_rows(o) * o->shape.n,
		.seed = bench_overlap_seed(o, rank, 1),
	};

	return bench_make_values(o->rank->device, &values);
}

/* --- methods ------------------------------------------------------------------------ */

/* Looks up a part by the op's executor. */
static int look_up(const struct bench_overlap *o, ceov_op *op, const struct bags *bags,
		   const void *tables, const struct cei_embedding_part *part)
{
	struct cei_executor *executor = &op->workspace->executor;
	const struct ceov_embedding_bags operand = operand_of(bags);
	struct cei_run run = { .op = op };
	struct cei_embedding_job job = cei_embedding_job(&run, &operand);

	job.rows = tables;
	return part->n ? executor->ops->embedding->look_up(executor, bench_overlap_stream(o), &job,
							   part) : 0;
}

/* Looks up everything that the operator does, into memory of its own. */
static int look_up_all(const struct bench_overlap *o, ceov_op *op)
{
	const struct cei_embedding_part part = {
		.n = o->shape.m,
		.vectors = o->memory.product,
		.pitch_bytes = width(o),
	};

	return look_up(o, op, &o->embedding->bags, o->memory.b, &part);
}

static int run_op(const struct bench_overlap *o, ceov_op *op, void *pooled)
{
	struct ceov_embedding_a2a_run run = {
		.struct_bytes = sizeof(run),
		.stream = bench_overlap_stream(o),
		.tables = o->memory.b,
		.bags = operand_of(&o->embedding->bags),
		.pooled = pooled,
	};

	return ceov_embedding_a2a_run(op, &run);
}

static int run_move(const struct bench_overlap *o, ceov_op *op)
{
	struct ceov_move_run run = {
		.struct_bytes = sizeof(run),
		.stream = bench_overlap_stream(o),
		.source = o->memory.product,
		.target = o->memory.peer_a,
	};

	return ceov_move_run(op, &run);
}

int bench_embedding_is_there(enum bench_overlap_method method)
{
	return method == OVERLAP_GEMM || method == OVERLAP_COMM || method == OVERLAP_SEQUENCE ||
		method == OVERLAP_OURS;
}

int bench_embedding_once(struct bench_overlap *o, enum bench_overlap_method method, int is_graph)
{
	const struct bench_embedding *embedding = o->embedding;

	if (method == OVERLAP_GEMM)
		return look_up_all(o, o->ops[is_graph]);
	if (method == OVERLAP_COMM)
		return run_move(o, embedding->moves[is_graph]);
	if (method == OVERLAP_SEQUENCE)
		return run_op(o, embedding->sequences[is_graph], o->memory.peer_a);
	return run_op(o, o->ops[is_graph], o->memory.c);
}

/* --- the expected result -------------------------------------------------------------- */

/* Fills in the columns of a rank's tables. */
static int refer_rank(struct bench_overlap *o, ceov_op *op, uint32_t rank)
{
	struct cei_executor *executor = &op->workspace->executor;
	struct bags bags;
	struct cei_embedding_part part = {
		.first = o->first_row,
		.n = o->rows[o->rank->rank],
		.vectors = (char *)o->memory.reference + rank * width(o),
		.pitch_bytes = o->rank->n_ranks * width(o),
	};
	int r = make_tables(o, rank, o->memory.peer_b);

	if (r)
		return r;
	r = draw_bags(o, executor, rank, &bags);
	if (!r)
		r = look_up(o, op, &bags, o->memory.peer_b, &part);
	if (!r && o->rank->is_gpu)
		r = bench_stream_sync(o->rank->device, BENCH_STREAM_MAIN);
	drop_bags(executor, &bags);
	return r;
}

int bench_embedding_refer(struct bench_overlap *o)
{
	ceov_op *op = o->ops[0] ? o->ops[0] : o->ops[1];
	uint32_t rank;
	int r = 0;

	for (rank = 0; !r && rank < o->rank->n_ranks; rank++)
		r = refer_rank(o, op, rank);
	return r;
}

/* --- opening and closing a row -------------------------------------------------------- */

static int get_memory(struct bench_overlap *o)
{
	struct bench_overlap_memory *memory = &o->memory;
	uint64_t tables = o->shape.k * table_rows(o) * o->shape.n * VALUE_BYTES;
	uint64_t result = o->n_result * VALUE_BYTES;
	struct bench_device *device = o->rank->device;
	int r = bench_allocate(device, tables, &memory->b);

	r = r ? r : bench_allocate(device, tables, &memory->peer_b);
	r = r ? r : bench_allocate(device, o->shape.m * width(o), &memory->product);
	r = r ? r : bench_allocate(device, result, &memory->c);
	r = r ? r : bench_allocate(device, result, &memory->other);
	r = r ? r : bench_allocate(device, result, &memory->peer_a);
	return r ? r : bench_allocate(device, result, &memory->reference);
}

static int list_blocks(struct bench_overlap *o)
{
	uint32_t n = o->rank->n_ranks, i;

	o->embedding->blocks = calloc((size_t)n * n, sizeof(uint64_t));
	if (!o->embedding->blocks)
		return CEOV_ERR_NO_MEMORY;
	for (i = 0; i < n * n; i++)
		o->embedding->blocks[i] = o->rows[i % n] * width(o);
	return 0;
}

static int create_others(struct bench_overlap *o, int is_graph)
{
	struct bench_embedding *embedding = o->embedding;
	struct arrays arrays;
	struct ceov_embedding shape = shape_of(o, &arrays, CEOV_MODE_SEQUENCE);
	struct ceov_move move = { .struct_bytes = sizeof(move), .bytes = embedding->blocks };
	int r = ceov_embedding_a2a_create(o->workspaces[is_graph], &shape,
					  &embedding->sequences[is_graph]);

	return r ? r : ceov_all_to_all_create(o->workspaces[is_graph], &move,
					      &embedding->moves[is_graph]);
}

int bench_embedding_open(struct bench_overlap *o)
{
	ceov_op *op = o->ops[0] ? o->ops[0] : o->ops[1];
	int i, r;

	o->embedding = calloc(1, sizeof(*o->embedding));
	if (!o->embedding)
		return bench_fail(o->rank, CEOV_ERR_NO_MEMORY, "an embedding");
	r = get_memory(o);
	if (!r)
		r = make_tables(o, o->rank->rank, o->memory.b);
	if (!r)
		r = draw_bags(o, &op->workspace->executor, o->rank->rank, &o->embedding->bags);
	if (!r)
		r = list_blocks(o);
	for (i = 0; !r && i < 2; i++)
		if (o->workspaces[i])
			r = create_others(o, i);
	return r ? bench_fail(o->rank, r, "opening an embedding") : bench_meet(o->rank);
}

void bench_embedding_close(struct bench_overlap *o)
{
	struct bench_embedding *embedding = o->embedding;
	ceov_op *op = o->ops[0] ? o->ops[0] : o->ops[1];
	int i;

	if (!embedding)
		return;
	for (i = 0; i < 2; i++) {
		ceov_op_release(embedding->sequences[i]);
		ceov_op_release(embedding->moves[i]);
	}
	drop_bags(&op->workspace->executor, &embedding->bags);
	free(embedding->blocks);
	free(embedding);
	o->embedding = NULL;
}
