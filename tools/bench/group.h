/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BENCH_GROUP_H
#define BENCH_GROUP_H

/* Shared objects that every rank creates and every rank finds, as arrays indexed by rank.
 * All ranks make the same calls in the same order. */

#include <ceoverlap/ops.h>

#include "tools/bench/bench.h"

struct bench_buffers {
	ceov_buffer *by_rank[BENCH_RANKS_MAX];
};

struct bench_signals {
	ceov_signal *by_rank[BENCH_RANKS_MAX];
};

int  bench_share_buffers(struct bench_rank *rank, uint64_t n_bytes,
			 struct bench_buffers *buffers);
int  bench_share_signals(struct bench_rank *rank, struct ceov_place place,
			 uint32_t n_counters, uint32_t flags,
			 struct bench_signals *signals);

/* Release the objects between two barriers, so that no rank releases an object that another rank
 * still uses. */
int  bench_drop_buffers(struct bench_rank *rank, struct bench_buffers *buffers);
int  bench_drop_signals(struct bench_rank *rank, struct bench_signals *signals);

/* Waits a while for peers that still map the object. CEOV_PENDING: a peer kept it mapped too
 * long. */
int  bench_release_buffer(ceov_buffer *buffer);
int  bench_release_workspace(ceov_workspace *workspace);

/* Opens a workspace for operators, connected. Ranks that share a GPU share its SMs out. */
int  bench_open_workspace(struct bench_rank *rank, int is_capturable, uint64_t scratch_bytes,
			  ceov_workspace **ret_workspace);

/* Returns the next random number. *state is the seed before the first call. */
uint64_t bench_random(uint64_t *state);

/* Returns the place of this rank's memory. */
struct ceov_place bench_place(const struct bench_rank *rank);

/* Returns where signals are that all ranks raise: host memory if there are several nodes, which do
 * not reach signals in the memory of GPUs. */
struct ceov_place bench_mark_place(const struct bench_rank *rank);

/* Returns the address at which this rank's copies reach the buffer, its own or another rank's. */
void *bench_address(const struct bench_rank *rank, const ceov_buffer *buffer);

/* Returns the pattern's seed for the block from source to target in a round. */
uint64_t bench_seed(const struct bench_rank *rank, uint32_t source, uint32_t target,
		    uint64_t round);

/* Returns the next size from -b to -e; 0 after the last. */
uint64_t bench_next_size(const struct bench_options *options, uint64_t bytes);

#endif /* BENCH_GROUP_H */
