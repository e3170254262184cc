/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BENCH_SHARE_PAIR_H
#define BENCH_SHARE_PAIR_H

/* Two ranks of one process, and a plan that sends a block from rank 0 to rank 1. Each launch waits,
 * polled, for a mark that a host thread raises, and raises another one behind the block. One
 * thread. Functions return 0 or an error of the library, which bench_pair_failure() describes. */

#include "tools/bench/bench.h"

struct bench_pair_config {
	struct ceov_place  places[2];   /* of ranks 0 and 1 */
	uint64_t           n_bytes;     /* of a block, a multiple of 8 */
	uint64_t           chunk_bytes; /* 0: the library chooses */
	enum ceov_urgency  urgency;
	const char        *daemon;      /* socket of the daemon that carries out the plan, and
					 * without which it is refused; NULL: this process does */
};

struct bench_pair {
	struct bench_pair_config config;
	ceov_context            *context;
	struct bench_device     *devices[2];
	ceov_buffer             *buffers[2];
	ceov_signal             *ready, *arrived;       /* of one counter, which rises by 1 with
							 * each launch */
	ceov_plan               *plan;
	uint64_t                 n_launches;
};

/* Opens the context and commits the plan. Changes CEOVERLAP_DAEMON and CEOVERLAP_DAEMON_STRICT in
 * the environment of this process. Close the pair after a failure, too. */
int  bench_pair_open(struct bench_pair *pair, const struct bench_pair_config *config);
void bench_pair_close(struct bench_pair *pair);

/* With no launch in flight: writes new data to the source, and other data to the target. */
int  bench_pair_fill(struct bench_pair *pair, uint64_t seed);

/* The same; counts the words of the target that are not those of bench_pair_fill(). */
int  bench_pair_verify(struct bench_pair *pair, uint64_t seed, uint64_t *ret_n_wrong);

/* Raises the mark, and launches. Waits until deadline_ns if too many launches are in flight. */
int  bench_pair_launch(struct bench_pair *pair, uint64_t deadline_ns, ceov_ticket *ret_ticket);

/* Waits until the block of the last launch has arrived; until that launch has ended.
 * CEOV_ERR_TIMEOUT: not by deadline_ns. */
int  bench_pair_await(struct bench_pair *pair, uint64_t deadline_ns);
int  bench_pair_wait(struct bench_pair *pair, ceov_ticket ticket, uint64_t deadline_ns);

/* The library's words about the first failure since the last call; "" if there are none. */
void bench_pair_failure(const struct bench_pair *pair, char text[CEOV_FAILURE_TEXT_BYTES]);

#endif /* BENCH_SHARE_PAIR_H */
