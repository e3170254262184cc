/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* How each way makes a collective: a channel, an operator of the same sizes, and NCCL; of each
 * plain calls, and a graph of them. */

#include "tools/bench/cases/channel.h"

#include <stdlib.h>
#include <string.h>

const struct bench_call_kind bench_call_kinds[BENCH_CALL_KINDS] = {
	{ "all_gather",     CEOV_ALL_GATHER,     0, 0 },
	{ "reduce_scatter", CEOV_REDUCE_SCATTER, 1, 1 },
	{ "all_reduce",     CEOV_ALL_REDUCE,     1, 0 },
	{ "all_to_all",     CEOV_ALL_TO_ALL,     0, 1 },
};

struct bench_call_row bench_call_row(uint32_t at)
{
	return (struct bench_call_row){ at / (2 * BENCH_WAYS),
		(enum bench_way)(at / 2 % BENCH_WAYS), (int)(at % 2) };
}

uint64_t bench_call_values(const struct bench_calls *c)
{
	return c->bytes / sizeof(float);
}

uint64_t bench_call_count(const struct bench_calls *c, uint32_t kind)
{
	return bench_call_values(c) *
		(bench_call_kinds[kind].kind == CEOV_ALL_REDUCE ? c->rank->n_ranks : 1);
}

static void *stream_of(const struct bench_calls *c)
{
	return c->rank->is_gpu ? bench_stream(c->rank->device, BENCH_STREAM_MAIN) : NULL;
}

/* --- operators ------------------------------------------------------------------ */

/* What an operator of the current size is made of; bytes or values for each rank or pair. */
struct shapes {
	struct ceov_move   move;
	struct ceov_reduce sum;
};

static struct shapes shapes_of(struct bench_calls *c, uint32_t kind)
{
	uint64_t size = bench_call_kinds[kind].is_sum ? bench_call_values(c) : c->bytes;
	uint32_t i, n = c->rank->n_ranks * c->rank->n_ranks;

	for (i = 0; i < n; i++)
		c->sizes[i] = size;
	return (struct shapes){
		.move = { .struct_bytes = sizeof(struct ceov_move), .bytes = c->sizes },
		.sum = { .struct_bytes = sizeof(struct ceov_reduce), .dtype = CEOV_FP32,
			 .counts = c->sizes },
	};
}

/* 0: the operator does not take the current size. */
static uint64_t op_scratch_bytes(struct bench_calls *c, uint32_t kind)
{
	const struct shapes as = shapes_of(c, kind);
	uint32_t n_ranks = c->rank->n_ranks;

	switch (bench_call_kinds[kind].kind) {
	case CEOV_ALL_GATHER: return ceov_all_gather_scratch_bytes(&as.move, n_ranks);
	case CEOV_ALL_TO_ALL: return ceov_all_to_all_scratch_bytes(&as.move, n_ranks);
	case CEOV_REDUCE_SCATTER: return ceov_reduce_scatter_scratch_bytes(&as.sum, n_ranks);
	default: return ceov_all_reduce_scratch_bytes(&as.sum, n_ranks);
	}
}

static int create_op(struct bench_calls *c, uint32_t kind)
{
	const struct shapes as = shapes_of(c, kind);
	ceov_op **op = &c->ops[kind];

	switch (bench_call_kinds[kind].kind) {
	case CEOV_ALL_GATHER: return ceov_all_gather_create(c->workspace, &as.move, op);
	case CEOV_ALL_TO_ALL: return ceov_all_to_all_create(c->workspace, &as.move, op);
	case CEOV_REDUCE_SCATTER: return ceov_reduce_scatter_create(c->workspace, &as.sum, op);
	default: return ceov_all_reduce_create(c->workspace, &as.sum, op);
	}
}

static int run_op(struct bench_calls *c, uint32_t kind)
{
	const struct ceov_move_run move = { sizeof(move), stream_of(c), c->source, c->target };
	const struct ceov_reduce_run sum = { sizeof(sum), stream_of(c), c->source, c->target };

	return bench_call_kinds[kind].is_sum ? ceov_reduce_run(c->ops[kind], &sum)
		: ceov_move_run(c->ops[kind], &move);
}

/* --- all ways -------------------------------------------------------------------- */

/* All-gathers of NCCL and of the pool are in place. */
static void *source_of(const struct bench_calls *c, const struct bench_call_row *row)
{
	uint64_t own = c->rank->rank * c->bytes;
	int is_gather = bench_call_kinds[row->kind].kind == CEOV_ALL_GATHER;

	if (row->way == BENCH_WAY_NCCL)
		return is_gather ? (char *)bench_nccl_target(c->nccl) + own
			: bench_nccl_source(c->nccl);
	return is_gather && row->way == BENCH_WAY_POOL ? (char *)c->pool_target + own : c->source;
}

static int run_channel(struct bench_calls *c, const struct bench_call_row *row)
{
	int is_pooled = row->way == BENCH_WAY_POOL;
	const struct ceov_call call = {
		.struct_bytes = sizeof(call),
		.kind = bench_call_kinds[row->kind].kind,
		.dtype = CEOV_FP32,
		.source = source_of(c, row),
		.target = is_pooled ? c->pool_target : c->target,
		.count = bench_call_count(c, row->kind),
		.stream = stream_of(c),
	};

	return ceov_channel_run(is_pooled ? c->pooled : c->channel, &call, 1);
}

static int run_nccl(struct bench_calls *c, uint32_t kind)
{
	uint64_t count = bench_call_count(c, kind);
	void *stream = stream_of(c);

	switch (bench_call_kinds[kind].kind) {
	case CEOV_ALL_GATHER: return bench_nccl_all_gather(c->nccl, c->bytes, stream);
	case CEOV_ALL_TO_ALL: return bench_nccl_all_to_all(c->nccl, c->bytes, stream);
	case CEOV_REDUCE_SCATTER:
		return bench_nccl_reduce_scatter(c->nccl, count, BENCH_NCCL_FLOAT, stream);
	default: return bench_nccl_all_reduce(c->nccl, count, BENCH_NCCL_FLOAT, stream);
	}
}

static int run_once(struct bench_calls *c, const struct bench_call_row *row)
{
	switch (row->way) {
	case BENCH_WAY_CHANNEL:
	case BENCH_WAY_POOL:    return run_channel(c, row);
	case BENCH_WAY_OP:      return run_op(c, row->kind);
	case BENCH_WAY_NCCL:    return run_nccl(c, row->kind);
	case BENCH_WAYS:        break;
	}
	return CEOV_ERR_INVALID;
}

int bench_ways_calls(struct bench_calls *c, uint32_t at, uint32_t n)
{
	const struct bench_call_row row = bench_call_row(at);
	uint32_t i;
	int r = 0;

	if (row.is_graph)
		return bench_graph_launch(c->rank->device, c->graphs[at]);
	for (i = 0; !r && i < n; i++)
		r = run_once(c, &row);
	return r;
}

int bench_ways_settle(struct bench_calls *c)
{
	struct bench_device *device = c->rank->device;
	int r;

	if (!c->rank->is_gpu)
		return 0;
	r = bench_stream_sync(device, BENCH_STREAM_MAIN);
	if (!r)
		r = bench_stream_sync(device, BENCH_STREAM_SIDE);
	if (!r)
		r = ceov_channel_status(c->channel);
	if (!r && c->pooled)
		r = ceov_channel_status(c->pooled);
	return r || !c->workspace ? r : ceov_workspace_status(c->workspace);
}

void *bench_ways_target(const struct bench_calls *c, uint32_t at)
{
	switch (bench_call_row(at).way) {
	case BENCH_WAY_NCCL: return bench_nccl_target(c->nccl);
	case BENCH_WAY_POOL: return c->pool_target;
	default:             return c->target;
	}
}

void *bench_ways_source(const struct bench_calls *c, uint32_t at)
{
	const struct bench_call_row row = bench_call_row(at);

	return source_of(c, &row);
}

/* --- opening and closing ---------------------------------------------------------- */

/* One that serves all kinds and sizes; none where operators take no size. */
static int open_workspace(struct bench_calls *c)
{
	const struct bench_options *options = c->rank->options;
	uint64_t bytes, bytes_max = 0;
	uint32_t kind;

	for (c->bytes = options->begin_bytes; c->bytes;
	     c->bytes = bench_next_size(options, c->bytes))
		for (kind = 0; kind < BENCH_CALL_KINDS; kind++) {
			bytes = op_scratch_bytes(c, kind);
			bytes_max = bytes > bytes_max ? bytes : bytes_max;
		}
	return bytes_max ? bench_open_workspace(c->rank, 1, bytes_max, &c->workspace) : 0;
}

static int open_pool(struct bench_calls *c, uint64_t bytes_max)
{
	const struct ceov_pool_config config = CEOV_POOL_CONFIG_INIT;
	int r = bench_create_channel(c->rank, &c->pooled);

	if (!r)
		r = ceov_channel_connect(c->pooled, bench_patience_ns(c->rank));
	if (!r)
		r = ceov_pool_create(c->pooled, &config, &c->pool);
	if (!r)
		r = bench_meet(c->rank);
	if (!r)
		r = ceov_pool_connect(c->pool, bench_patience_ns(c->rank));
	if (!r)
		r = ceov_pool_alloc(c->pool, bytes_max * c->rank->n_ranks, &c->pool_target);
	return r ? bench_fail(c->rank, r, "a channel with a pool") : 0;
}

int bench_ways_open(struct bench_calls *c, uint64_t bytes_max)
{
	struct bench_rank *rank = c->rank;
	const char *why = "";
	int r;

	if (!rank->is_gpu)
		return 0;
	c->sizes = calloc((size_t)rank->n_ranks * rank->n_ranks, sizeof(*c->sizes));
	if (!c->sizes)
		return bench_fail(rank, CEOV_ERR_NO_MEMORY, "sizes of operators");
	r = open_pool(c, bytes_max);
	if (!r)
		r = open_workspace(c);
	if (r)
		return r;
	r = bench_nccl_open(rank, 0, bytes_max * rank->n_ranks, &c->nccl, &why);
	if (r == CEOV_NONE && !rank->rank)
		bench_note(c->rank->options, "channel: NCCL is left out: %s", why);
	return r == CEOV_NONE ? 0 : r;
}

int bench_ways_close(struct bench_calls *c)
{
	int r = c->workspace ? bench_release_workspace(c->workspace) : 0;

	bench_nccl_close(c->nccl);
	free(c->sizes);
	if (!ceov_pool_release(c->pool))
		(void)ceov_channel_release(c->pooled);
	return r == CEOV_PENDING ? 0 : r;       /* the context releases it, and the pool */
}

/* One call before the capture loads what cannot be loaded in one. */
static int capture(struct bench_calls *c, uint32_t at)
{
	struct bench_device *device = c->rank->device;
	const struct bench_call_row row = bench_call_row(at);
	uint32_t i;
	int r = run_once(c, &row), s;

	if (!r)
		r = bench_ways_settle(c);
	if (!r)
		r = bench_capture_begin(device);
	if (r)
		return r;
	for (i = 0; !r && i < BENCH_CALLS; i++)
		r = run_once(c, &row);
	s = bench_capture_end(device, r ? NULL : &c->graphs[at]);
	return r ? r : s;
}

/* Smaller calls, and sums, go as through any channel. */
static int takes_pool(const struct bench_calls *c, const struct bench_call_row *row)
{
	return row->way == BENCH_WAY_POOL && c->pool && !row->is_graph &&
		!bench_call_kinds[row->kind].is_sum && c->bytes >= CEOV_POOL_CALL_BYTES;
}

static int open_row(struct bench_calls *c, uint32_t at)
{
	const struct bench_call_row row = bench_call_row(at);
	int r;

	c->runs[at] = row.way == BENCH_WAY_CHANNEL || takes_pool(c, &row) ||
		(row.way == BENCH_WAY_OP && c->ops[row.kind]) ||
		(row.way == BENCH_WAY_NCCL && c->nccl);
	if (row.is_graph)
		c->runs[at] &= c->rank->is_gpu;
	if (!row.is_graph || !c->runs[at])
		return 0;
	r = capture(c, at);
	/* A graph is made while no kernel of a peer waits for this rank. */
	return r ? bench_fail(c->rank, r, "capturing calls") : bench_meet(c->rank);
}

int bench_ways_open_size(struct bench_calls *c)
{
	uint32_t kind, at;
	int r = 0;

	for (kind = 0; !r && c->workspace && kind < BENCH_CALL_KINDS; kind++)
		if (op_scratch_bytes(c, kind))
			r = create_op(c, kind);
	if (r)
		return bench_fail(c->rank, r, "creating an operator");
	r = bench_meet(c->rank);
	for (at = 0; !r && at < BENCH_CALL_ROWS; at++)
		r = open_row(c, at);
	return r;
}

int bench_ways_close_size(struct bench_calls *c)
{
	uint32_t kind, at;
	int r = bench_meet(c->rank);

	for (at = 0; at < BENCH_CALL_ROWS; at++) {
		if (c->graphs[at])
			bench_graph_drop(c->rank->device, c->graphs[at]);
		c->graphs[at] = NULL;
	}
	for (kind = 0; kind < BENCH_CALL_KINDS; kind++) {
		ceov_op_release(c->ops[kind]);
		c->ops[kind] = NULL;
	}
	return r ? r : bench_meet(c->rank);
}
