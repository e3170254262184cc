/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_HOST_ALLREDUCE_H
#define CEI_HOST_ALLREDUCE_H

/*
 * All-reduce of numbers on the host, in rounds, by which ranks agree on a tuning. A round
 * is also a barrier: no rank leaves it before all have entered it.
 *
 * Each rank has a signal of two counters, used alternately: in round r (from 1) it raises
 * counter r % 2 to r << 40 | its number, awaits the same counter of every peer, and reads
 * the number there. A counter is not raised again before it was read: round r + 2 begins
 * after r + 1, which begins after everybody has read round r.
 *
 * Facts are numbers that each rank knows before it exports its signal. They have counters
 * of their own, and whoever has found the signal can read them without waiting.
 */

#include <stdint.h>

#include <ceoverlap/ceoverlap.h>

#include "ops/shape.h"

#define CEI_ALLREDUCE_VALUE_BITS 40u
#define CEI_ALLREDUCE_VALUE_MAX ((UINT64_C(1) << CEI_ALLREDUCE_VALUE_BITS) - 1)

#define CEI_ALLREDUCE_ROUND_COUNTERS 2u

enum cei_allreduce_fact {               /* facts about the rank's GPU; 0: not known */
	CEI_ALLREDUCE_SMS,              /* SMs that the rank's kernels may use */
	CEI_ALLREDUCE_COPY_RATE,        /* rate of copies to another GPU, bytes per second */
	CEI_ALLREDUCE_FACTS
};

/* Counters of each rank's signal: those of rounds, then those of facts. */
#define CEI_ALLREDUCE_COUNTERS (CEI_ALLREDUCE_ROUND_COUNTERS + CEI_ALLREDUCE_FACTS)

struct cei_allreduce {
	ceov_context *context;
	uint32_t      rank;
	uint32_t      n_ranks;
	uint64_t      facts[CEI_ALLREDUCE_FACTS]; /* of this rank; larger values count as
						 * CEI_ALLREDUCE_VALUE_MAX */
	uint64_t      round;                    /* number of the last round; only one thread at a
						 * time makes rounds */
	ceov_signal  *signals[CEI_OP_RANKS_MAX];   /* the signals of all ranks, by rank; in host
						 * memory */
};

struct cei_allreduce_range {
	uint64_t min;
	uint64_t max;
};

/* Publishes this rank's facts; call it before the signal is exported. */
int  cei_allreduce_tell_facts(const struct cei_allreduce *allreduce);

/* The least value of a fact over all ranks, the same at each of them; 0: some rank does not
 * know it. Requires all ranks' signals. */
int  cei_allreduce_least(const struct cei_allreduce *allreduce, enum cei_allreduce_fact fact,
			 uint64_t *ret_least);

/* One round with a number of at most CEI_ALLREDUCE_VALUE_MAX: returns the least and the largest
 * number of all ranks, the same at each of them. Waits at most timeout_ns for each peer:
 * CEOV_ERR_TIMEOUT, raised. After an error ranks may be in different rounds: abort the
 * signals. */
int  cei_allreduce_range(struct cei_allreduce *allreduce, uint64_t value, uint64_t timeout_ns,
			 struct cei_allreduce_range *ret_range);

#endif /* CEI_HOST_ALLREDUCE_H */
