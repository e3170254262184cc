/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BENCH_COLLECTIVE_H
#define BENCH_COLLECTIVE_H

/* One collective over all ranks, and the methods that are compared: collective.c
 * measures, methods.c implements each method, levels.c the parts of one over nodes. */

#include "tools/bench/group.h"

enum bench_method {
	BENCH_METHOD_POLLED,
	BENCH_METHOD_GATED,
	BENCH_METHOD_FOLLOW,
	BENCH_METHOD_RING,              /* polled, shards going from node to node */
	BENCH_METHOD_RAW,
	BENCH_METHOD_NCCL_SM,
	BENCH_METHOD_NCCL_CE,
	BENCH_METHOD_WITHIN,            /* enum bench_level, alone */
	BENCH_METHOD_BETWEEN,
	BENCH_METHODS,
};

enum bench_pattern { BENCH_ALL_GATHER, BENCH_ALL_TO_ALL };

/* The two parts of an all-gather over nodes, each in a plan of its own: what a rank sends to its
 * own node, which is its shard and what it passes on, and what it sends to other nodes. */
enum bench_level { BENCH_LEVEL_WITHIN, BENCH_LEVEL_BETWEEN, BENCH_LEVELS };

struct bench_levels {
	struct bench_signals arrived[BENCH_LEVELS];
	ceov_plan           *plan[BENCH_LEVELS];
	uint64_t             n_launches[BENCH_LEVELS];
	/* whether this rank gets the shard of that rank on that level */
	uint8_t              gets[BENCH_LEVELS][BENCH_RANKS_MAX];
};

struct bench_set {                            /* one target and its signals and plans */
	struct bench_buffers target;
	struct bench_signals arrived;   /* signals of each target's rank */
	struct bench_signals free;
	ceov_signal         *ready[2];  /* [polled, gated] */
	ceov_plan           *plan[BENCH_METHOD_RING + 1];       /* indexed by our methods; NULL:
								 * the method does not run */
	uint64_t             n_launches;
};

struct bench_collective {
	struct bench_rank   *rank;
	enum bench_pattern         pattern;
	uint64_t             bytes;     /* size of a shard or block */
	uint32_t             n_pieces;
	uint32_t             n_sets;    /* launches take turns with so many targets */
	struct bench_set     sets[BENCH_TARGETS_MAX];
	struct bench_buffers source;    /* sources of the all-to-all */
	struct bench_buffers flags;     /* for raw calls: one 64-bit flag per source rank */
	uint64_t             n_raw;
	uint64_t             n_ours;    /* launches of ours so far, which selects the next set */
	struct bench_levels  levels;
	int                  is_far;    /* ranks are on several nodes: ours is polled by host
					 * threads, and there are no raw calls and no NCCL */
	struct bench_nccl   *nccl[BENCH_METHODS];
	int                  runs[BENCH_METHODS];
	int                  wrong[BENCH_METHODS];
	uint64_t             round;     /* rises with every check; seeds its data */
};

/* Commits, and releases, the plans of every set for the current size. */
int  bench_methods_open_plans(struct bench_collective *c);
void bench_methods_close_plans(struct bench_collective *c);

/* Queues (GPU) or runs (host) one launch; the last one of a sample also ends the clock. */
int  bench_methods_once(struct bench_collective *c, enum bench_method method, int is_last);

/* The levels of an all-gather. They write to the first set's targets. */
int  bench_levels_open(struct bench_collective *c);
int  bench_levels_close(struct bench_collective *c);
int  bench_levels_open_plans(struct bench_collective *c);
void bench_levels_close_plans(struct bench_collective *c);

/* Runs one launch of a level: returns when what this rank sends and gets so has arrived. */
int  bench_levels_once(struct bench_collective *c, enum bench_level level);

#endif /* BENCH_COLLECTIVE_H */
