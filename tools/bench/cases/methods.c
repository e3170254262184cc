/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * How each method runs a collective: ours polled and gated, raw driver calls (on host ranks
 * memcpy()), and NCCL's two modes.
 */

#include <stdatomic.h>
#include <string.h>

#include <ceoverlap/collective.h>

#include "base/clock.h"
#include "tools/bench/cases/collective.h"

#define WAIT_NS UINT64_C(60000000000)

/* The ready signal that our method raises; NULL: launches follow the stream instead. */
static ceov_signal *ready_of(const struct bench_set *set, uint32_t method)
{
	if (method == BENCH_METHOD_FOLLOW)
		return NULL;
	return set->ready[method == BENCH_METHOD_GATED];
}

static int add_template(struct bench_collective *c, struct bench_set *set, uint32_t method)
{
	ceov_signal *ready = ready_of(set, method);
	uint32_t own = c->rank->rank;
	ceov_buffer *targets[BENCH_RANKS_MAX];

	memcpy(targets, set->target.by_rank, sizeof(targets));
	if (c->pattern == BENCH_ALL_GATHER) {
		struct ceov_all_gather gather = {
			.struct_bytes = sizeof(gather),
			.shard_bytes = c->bytes,
			.n_pieces = c->n_pieces,
			.source = set->target.by_rank[own],
			.source_offset_bytes = own * c->bytes,
			.targets = targets,
			.ready = ready,
			.arrived = set->arrived.by_rank,
			.free = set->free.by_rank,
			.nodes = method == BENCH_METHOD_RING ? CEOV_NODES_RING
				: CEOV_NODES_DIRECT,
		};

		return ceov_plan_add_all_gather(set->plan[method], &gather);
	}
	targets[own] = NULL;
	struct ceov_all_to_all exchange = {
		.struct_bytes = sizeof(exchange),
		.block_bytes = c->bytes,
		.n_pieces = c->n_pieces,
		.source = c->source.by_rank[own],
		.targets = targets,
		.ready = ready,
		.arrived = set->arrived.by_rank,
		.free = set->free.by_rank,
	};

	return ceov_plan_add_all_to_all(set->plan[method], &exchange);
}

static int open_plan(struct bench_collective *c, struct bench_set *set, uint32_t method)
{
	const struct ceov_plan_options options = {
		.struct_bytes = sizeof(options),
		.mark_group_bytes = c->rank->options->mark_group_bytes,
	};
	int r = ceov_plan_create(c->rank->context, c->rank->rank, &options, &set->plan[method]);

	if (!r)
		r = add_template(c, set, method);
	return r ? r : ceov_plan_commit(set->plan[method]);
}

int bench_methods_open_plans(struct bench_collective *c)
{
	uint32_t i, k;
	int r = 0;

	for (i = 0; !r && i < c->n_sets; i++)
		for (k = 0; !r && k <= BENCH_METHOD_RING; k++)
			if (c->runs[k])
				r = open_plan(c, &c->sets[i], k);
	if (!r && c->runs[BENCH_METHOD_WITHIN])
		r = bench_levels_open_plans(c);
	return r;
}

void bench_methods_close_plans(struct bench_collective *c)
{
	uint32_t i, k;

	for (i = 0; i < c->n_sets; i++)
		for (k = 0; k <= BENCH_METHOD_RING; k++) {
			ceov_plan_release(c->sets[i].plan[k]);
			c->sets[i].plan[k] = NULL;
		}
	if (c->runs[BENCH_METHOD_WITHIN])
		bench_levels_close_plans(c);
}

/* --- our methods --------------------------------------------------------- */

/* Lists the marks of a set's signal that blocks of other ranks raise at this rank. */
static uint32_t marks_of(const struct bench_collective *c, ceov_signal *signal, uint64_t value,
			 struct ceov_mark *marks)
{
	uint32_t source, piece, n = 0;

	for (source = 0; source < c->rank->n_ranks; source++)
		for (piece = 0; source != c->rank->rank && piece < c->n_pieces; piece++)
			marks[n++] = (struct ceov_mark){ signal, source * c->n_pieces +
				piece, value };
	return n;
}

/* Lists one mark per piece. All of them are raised together, because all data is ready at once. */
static uint32_t ready_marks(const struct bench_collective *c, ceov_signal *ready,
			    struct ceov_mark *marks)
{
	uint32_t i;

	for (i = 0; i < c->n_pieces; i++)
		marks[i] = (struct ceov_mark){ ready, i, 1 };
	return c->n_pieces;
}

#define MARKS_MAX (BENCH_RANKS_MAX * 64u)

/* Begins one launch of ours: raises the ready marks on the caller's stream, or lets the launch
 * follow the stream. */
static int begin_ours(struct bench_collective *c, struct bench_set *set, enum bench_method method,
		      uint64_t base)
{
	struct bench_rank *rank = c->rank;
	void *stream = bench_stream(rank->device, BENCH_STREAM_MAIN);
	struct ceov_mark marks[MARKS_MAX];
	struct ceov_launch launch = {
		.struct_bytes = sizeof(launch),
		.base = base,
		.producer_stream = method == BENCH_METHOD_GATED ? stream : NULL,
		.after_stream = method == BENCH_METHOD_FOLLOW ? stream : NULL,
	};
	int r = 0;

	if (method != BENCH_METHOD_FOLLOW)
		r = ceov_stream_raise(rank->context, rank->rank, stream, marks,
				      ready_marks(c, ready_of(set, method), marks), base);
	do {
		if (!r)
			r = ceov_launch(set->plan[method], &launch, NULL);
	} while (r == CEOV_FULL && !(r = 0));
	return r;
}

static int ours_gpu(struct bench_collective *c, enum bench_method method, int is_last)
{
	struct bench_set *set = &c->sets[c->n_ours++ % c->n_sets];
	struct ceov_mark marks[MARKS_MAX];
	struct bench_rank *rank = c->rank;
	void *stream = bench_stream(rank->device, BENCH_STREAM_MAIN);
	void *side = bench_stream(rank->device, BENCH_STREAM_SIDE);
	uint64_t base = set->n_launches++;
	uint32_t n = marks_of(c, set->arrived.by_rank[rank->rank], 1, marks);
	int r = begin_ours(c, set, method, base);

	if (!r)
		r = ceov_stream_wait(rank->context, rank->rank, stream, marks, n, base);
	if (!r && is_last)
		r = bench_time_end(rank->device);
	if (!r)
		r = bench_stream_follow(rank->device, BENCH_STREAM_SIDE, BENCH_STREAM_MAIN);
	n = marks_of(c, set->free.by_rank[rank->rank], 1, marks);
	return r ? r : ceov_stream_raise(rank->context, rank->rank, side, marks, n, base);
}

/* Raises marks of this rank by the calling thread. */
static int raise_marks(const struct ceov_mark *marks, uint32_t n, uint64_t base)
{
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < n; i++)
		r = ceov_signal_raise(marks[i].signal, marks[i].index, base + 1);
	return r;
}

/* Waits for what arrives. Over nodes also for the launch, which passes it on from the target. */
static int await_ours(struct bench_collective *c, struct bench_set *set, uint64_t base,
		      ceov_ticket ticket)
{
	struct bench_rank *rank = c->rank;
	struct ceov_mark marks[MARKS_MAX];
	uint32_t i, n = marks_of(c, set->arrived.by_rank[rank->rank], 1, marks);
	int r = 0;

	for (i = 0; !r && i < n; i++)
		r = ceov_signal_wait(marks[i].signal, marks[i].index, base + 1,
				     bench_patience_ns(rank));
	return r || !c->is_far ? r : ceov_wait(rank->context, ticket, bench_patience_ns(rank));
}

static int ours_host(struct bench_collective *c, enum bench_method method)
{
	struct bench_set *set = &c->sets[c->n_ours++ % c->n_sets];
	struct ceov_mark marks[MARKS_MAX];
	struct bench_rank *rank = c->rank;
	struct ceov_launch launch = {
		.struct_bytes = sizeof(launch),
		.base = set->n_launches++,
		.producer_stream = method == BENCH_METHOD_GATED ? rank : NULL,
	};
	ceov_ticket ticket = { 0 };
	uint32_t n = ready_marks(c, ready_of(set, method), marks);
	int r = raise_marks(marks, n, launch.base);

	if (!r)
		r = ceov_launch(set->plan[method], &launch, &ticket);
	if (!r)
		r = await_ours(c, set, launch.base, ticket);
	n = marks_of(c, set->free.by_rank[rank->rank], 1, marks);
	return r ? r : raise_marks(marks, n, launch.base);
}

/* --- raw driver calls ---------------------------------------------------- */

static uint32_t raw_copies(const struct bench_collective *c, const struct bench_set *set,
			   struct bench_copy *copies, void **flags)
{
	struct bench_rank *rank = c->rank;
	uint32_t own = rank->rank, step, target;
	const char *source;

	for (step = 1; step < rank->n_ranks; step++) {
		target = (own + step) % rank->n_ranks;
		source = c->pattern == BENCH_ALL_GATHER
			? (char *)bench_address(rank, set->target.by_rank[own]) +
			own * c->bytes
			: (char *)bench_address(rank, c->source.by_rank[own]) +
			target * c->bytes;
		copies[step - 1] = (struct bench_copy){
			.target = (char *)bench_address(rank, set->target.by_rank[target]) +
				own * c->bytes,
			.source = source,
			.row_bytes = c->bytes,
			.n_rows = 1,
		};
		flags[step - 1] = (uint64_t *)bench_address(rank, c->flags.by_rank[target]) +
			own;
	}
	return rank->n_ranks - 1;
}

static uint32_t own_flags(const struct bench_collective *c, void **flags)
{
	struct bench_rank *rank = c->rank;
	uint64_t *own = bench_address(rank, c->flags.by_rank[rank->rank]);
	uint32_t i, n = 0;

	for (i = 0; i < rank->n_ranks; i++)
		if (i != rank->rank)
			flags[n++] = own + i;
	return n;
}

static int raw_gpu(struct bench_collective *c, int is_last)
{
	struct bench_set *set = &c->sets[++c->n_raw % c->n_sets];
	struct bench_copy copies[BENCH_RANKS_MAX];
	void *flags[BENCH_RANKS_MAX];
	struct bench_rank *rank = c->rank;
	uint32_t n = raw_copies(c, set, copies, flags);
	int r;

	r = bench_stream_follow(rank->device, BENCH_STREAM_COPY, BENCH_STREAM_MAIN);
	if (!r)
		r = bench_raw_copies(rank->device, BENCH_STREAM_COPY, copies, n);
	if (!r)
		r = bench_raw_flags(rank->device, BENCH_STREAM_COPY, flags, n, c->n_raw);
	n = own_flags(c, flags);
	if (!r)
		r = bench_raw_waits(rank->device, BENCH_STREAM_MAIN, flags, n, c->n_raw);
	return !r && is_last ? bench_time_end(rank->device) : r;
}

static int raw_host(struct bench_collective *c)
{
	struct bench_set *set = &c->sets[++c->n_raw % c->n_sets];
	struct bench_copy copies[BENCH_RANKS_MAX];
	void *flags[BENCH_RANKS_MAX];
	uint32_t i, n = raw_copies(c, set, copies, flags);
	uint64_t deadline = cei_deadline(WAIT_NS);
	struct cei_backoff backoff;

	for (i = 0; i < n; i++) {
		memcpy(copies[i].target, copies[i].source, copies[i].row_bytes);
		/* release: pairs with the acquire below, in the target's process */
		atomic_store_explicit((_Atomic uint64_t *)flags[i], c->n_raw,
				      memory_order_release);
	}
	n = own_flags(c, flags);
	cei_backoff_reset(&backoff);
	for (i = 0; i < n;) {
		if (atomic_load_explicit((_Atomic uint64_t *)flags[i],
					 memory_order_acquire) >= c->n_raw) {
			i++;
			continue;
		}
		if (cei_now_ns() > deadline)
			return CEOV_ERR_TIMEOUT;
		cei_backoff_step(&backoff);
	}
	return 0;
}

/* --- all methods --------------------------------------------------------- */

static int nccl_once(struct bench_collective *c, enum bench_method method, int is_last)
{
	void *stream = bench_stream(c->rank->device, BENCH_STREAM_MAIN);
	int r = c->pattern == BENCH_ALL_GATHER
		? bench_nccl_all_gather(c->nccl[method], c->bytes, stream)
		: bench_nccl_all_to_all(c->nccl[method], c->bytes, stream);

	return !r && is_last ? bench_time_end(c->rank->device) : r;
}

int bench_methods_once(struct bench_collective *c, enum bench_method method, int is_last)
{
	switch (method) {
	case BENCH_METHOD_POLLED:
	case BENCH_METHOD_GATED:
	case BENCH_METHOD_FOLLOW:
	case BENCH_METHOD_RING:
		return c->rank->is_gpu && !c->is_far ? ours_gpu(c, method, is_last)
			: ours_host(c, method);
	case BENCH_METHOD_WITHIN:
		return bench_levels_once(c, BENCH_LEVEL_WITHIN);
	case BENCH_METHOD_BETWEEN:
		return bench_levels_once(c, BENCH_LEVEL_BETWEEN);
	case BENCH_METHOD_RAW:
		return c->rank->is_gpu ? raw_gpu(c, is_last) : raw_host(c);
	case BENCH_METHOD_NCCL_SM:
	case BENCH_METHOD_NCCL_CE:
		return nccl_once(c, method, is_last);
	case BENCH_METHODS:
		break;
	}
	return CEOV_ERR_INVALID;
}
