/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BENCH_GROUP_H
#define BENCH_GROUP_H

/* Shared objects that every rank creates and every rank finds, as arrays indexed by rank.
 * All ranks make the same calls in the same order. */

#include "bench.h"

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

/* Releases the buffers between two barriers, so that nobody releases what another still
 * uses. */
int  bench_drop_buffers(struct bench_rank *rank, struct bench_buffers *buffers);
int  bench_drop_signals(struct bench_rank *rank, struct bench_signals *signals);

/* Waits a while for peers that still map it; CEOV_PENDING: they do for too long. */
int  bench_release_buffer(ceov_buffer *buffer);
int  bench_release_signal(ceov_signal *signal);

/* The next random number; *state begins as the seed. */
uint64_t bench_random(uint64_t *state);

/* The place of this rank's memory. */
struct ceov_place bench_place(const struct bench_rank *rank);

/* Address at which this rank's copies reach another rank's buffer (or our own). */
void *bench_address(const struct bench_rank *rank, const ceov_buffer *buffer);

/* The pattern's seed for a block from source to target in a round. */
uint64_t bench_seed(const struct bench_rank *rank, uint32_t source, uint32_t target,
		    uint64_t round);

/* The next size from -b to -e; 0 after the last. */
uint64_t bench_next_size(const struct bench_options *options, uint64_t bytes);

#endif /* BENCH_GROUP_H */
