/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_GPU_ROUNDS_H
#define CEI_GPU_ROUNDS_H

/*
 * Many rounds of one transfer with new bytes in each, a dozen in flight: a producer
 * kernel that stays on rank 0's GPU, ceov_launch() for each round, and a consumer that
 * checks every word and frees the target.
 *
 *   KERNEL    a kernel that stays on rank 1's GPU awaits the mark, then checks
 *   STREAM    a stream of rank 1's GPU waits for the mark, then a kernel checks
 *   FORWARD   a lane of rank 1 waits for the mark, then its copy engine forwards the
 *             bytes to rank 0's GPU, where a kernel awaits that mark and checks
 */

#include "gpu_rig.h"

enum rounds_consumer { ROUNDS_KERNEL, ROUNDS_STREAM, ROUNDS_FORWARD, ROUNDS_CONSUMERS };

struct rounds {
	ceov_context        *context;   /* holds ranks 0 and 1 */
	struct gpu          *gpus;      /* the GPUs of ranks 0 and 1 */
	enum rounds_consumer consumer;
	int                  is_gated;  /* rank 0's launches are gated; else polled */
	uint32_t             n_rounds;
	uint64_t             n_words;   /* words per round */
	uint64_t             seed;
};

/* Returns the number of wrong words that the consumer read; everything else is asserted. */
unsigned long long rounds_run(const struct rounds *rounds, uint64_t *ret_ns);

const char *rounds_consumer_name(enum rounds_consumer consumer);

#endif /* CEI_GPU_ROUNDS_H */
