/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BENCH_CHANNEL_H
#define BENCH_CHANNEL_H

/* The collectives of test channel, and the ways to make them that are compared: channel.c measures,
 * channel_ways.c makes the calls. */

#include <ceoverlap/pool.h>

#include "tools/bench/group.h"

#define BENCH_CALL_KINDS 4u
#define BENCH_CALLS      5u             /* in a sample, and in a graph */

/* The channel's pool makes large moves alone, which graphs do not hold. */
enum bench_way { BENCH_WAY_CHANNEL, BENCH_WAY_POOL, BENCH_WAY_OP, BENCH_WAY_NCCL, BENCH_WAYS };

/* One row of a size is a kind, a way, and whether a graph of BENCH_CALLS calls is replayed or each
 * call is made. Ways but the channel's, and graphs, are of GPUs alone. */
#define BENCH_CALL_ROWS (BENCH_CALL_KINDS * BENCH_WAYS * 2)

struct bench_call_row {
	uint32_t       kind;
	enum bench_way way;
	int            is_graph;
};

struct bench_call_kind {
	const char         *name;
	enum ceov_call_kind kind;
	int                 is_sum;
	int                 has_parts;  /* one for each rank, of which a rank gets its own alone */
};

struct bench_calls {
	struct bench_rank *rank;
	ceov_channel      *channel;
	ceov_channel      *pooled;      /* one with a pool, as the next; NULL: between host ranks */
	ceov_pool         *pool;
	void              *pool_target;
	ceov_workspace    *workspace;   /* NULL: no size is one that operators take */
	struct bench_nccl *nccl;        /* NULL: without NCCL */
	uint64_t           bytes;       /* of a shard, block or part */
	uint64_t          *sizes;       /* for shapes of operators: ranks x ranks */
	void              *source;      /* each has room for one from, or for, every rank */
	void              *target;
	void              *wanted;
	uint64_t           round;       /* rises with every check; seeds its data */
	ceov_op           *ops[BENCH_CALL_KINDS];       /* NULL: it does not take the size */
	void              *graphs[BENCH_CALL_ROWS];
	int                runs[BENCH_CALL_ROWS];
	int                wrong[BENCH_CALL_ROWS];
};

extern const struct bench_call_kind bench_call_kinds[BENCH_CALL_KINDS];

/* Which row has that number. */
struct bench_call_row bench_call_row(uint32_t at);

/* Values of a shard, block or part; what a call of that kind counts. */
uint64_t bench_call_values(const struct bench_calls *c);
uint64_t bench_call_count(const struct bench_calls *c, uint32_t kind);

/* Creates a channel with a name of its own. CEOV_NONE, at all ranks: the place of one has no
 * channels. */
int  bench_create_channel(struct bench_rank *rank, ceov_channel **ret_channel);

/* Open, and close, what ways other than the channel's need for all sizes up to the largest. */
int  bench_ways_open(struct bench_calls *c, uint64_t bytes_max);
int  bench_ways_close(struct bench_calls *c);

/* Make operators and graphs for the current size and find out which rows there are; drop them. All
 * ranks call these at once, when nothing is queued. */
int  bench_ways_open_size(struct bench_calls *c);
int  bench_ways_close_size(struct bench_calls *c);

/* Where calls of a row read and write. */
void *bench_ways_source(const struct bench_calls *c, uint32_t at);
void *bench_ways_target(const struct bench_calls *c, uint32_t at);

/* Makes n calls of a row, or launches its graph once, on the main stream. */
int  bench_ways_calls(struct bench_calls *c, uint32_t at, uint32_t n);

/* Waits until the streams are idle. Returns the error of a call that has failed there. */
int  bench_ways_settle(struct bench_calls *c);

#endif /* BENCH_CHANNEL_H */
