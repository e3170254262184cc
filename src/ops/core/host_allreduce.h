/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_HOST_ALLREDUCE_H
#define CEI_HOST_ALLREDUCE_H

/*
 * All-reduce of numbers on the host, in rounds, by which ranks agree on a tuning. A round
 * is also a barrier: no rank leaves it before all have entered it.
 *
 * Each rank has a signal with two counters, used alternately. In round r (from 1) a rank raises its
 * counter r % 2 to r << 40 | its number, awaits the same counter of every peer, and reads the
 * peer's number there. No counter is raised again before every rank has read it: a rank enters
 * round r + 2 only after round r + 1, which ends only after every rank has finished round r.
 *
 * Facts are numbers that each rank knows before it exports its signal. Each fact has a counter of
 * its own, which holds one more than the fact, so that 0 says that nothing was heard so far: what
 * this rank knows of a counter of another node is what that node has said last.
 */

#include <stdint.h>

#include <ceoverlap/ceoverlap.h>

#include "ops/shape.h"

#define CEI_ALLREDUCE_VALUE_BITS 40u
#define CEI_ALLREDUCE_VALUE_MAX ((UINT64_C(1) << CEI_ALLREDUCE_VALUE_BITS) - 1)

#define CEI_ALLREDUCE_ROUND_COUNTERS 2u

enum cei_allreduce_fact {               /* facts about the rank's GPU; a value of 0: not known */
	CEI_ALLREDUCE_SMS,              /* SMs that the rank's kernels may use */
	CEI_ALLREDUCE_COPY_RATE,        /* rate of copies to another GPU, bytes per second */
	CEI_ALLREDUCE_COPY_T0,          /* cei_allreduce_turned() of the ns that a copy to another
					 * GPU takes beyond its bytes */
	CEI_ALLREDUCE_REACH,            /* 1: it reaches the memory of all GPUs of its machine */
	CEI_ALLREDUCE_KERNELS,          /* 1: it has the library's kernels */
	CEI_ALLREDUCE_OWN_SMS,          /* 1: its workspace does not share SMs with others, and has
					 * a number of them of its own where ranks share a GPU */
	CEI_ALLREDUCE_PACKETS,          /* 1: stores of 16 bytes to peers' memory arrive whole: its
					 * bytes go to all of them by NVLink, or stay in its GPU */
	CEI_ALLREDUCE_QUEUES,           /* 1: its calling thread can queue what a run transfers */
	CEI_ALLREDUCE_FACTS
};

/* Counters of each rank's signal: first those for rounds, then those for facts. */
#define CEI_ALLREDUCE_COUNTERS (CEI_ALLREDUCE_ROUND_COUNTERS + CEI_ALLREDUCE_FACTS)

struct cei_allreduce {
	ceov_context *context;
	uint32_t      rank;
	uint32_t      n_ranks;
	uint64_t      facts[CEI_ALLREDUCE_FACTS]; /* of this rank; larger values count as
						 * CEI_ALLREDUCE_VALUE_MAX */
	uint64_t      round;                    /* number of the last round; only one thread at a
						 * time may make rounds */
	ceov_signal  *signals[CEI_OP_RANKS_MAX];   /* [rank]; in host memory */
};

struct cei_allreduce_range {
	uint64_t min;
	uint64_t max;
};

/* Turns a number into a fact whose lowest value is that of the largest number, and such a fact back
 * into the number. 0 stays 0, which is not known; so becomes what does not fit. */
static inline uint64_t cei_allreduce_turned(uint64_t value)
{
	return value && value < CEI_ALLREDUCE_VALUE_MAX ? CEI_ALLREDUCE_VALUE_MAX - value : 0;
}

/* Publishes this rank's facts; call it before the signal is exported. */
int  cei_allreduce_tell_facts(const struct cei_allreduce *allreduce);

/* Returns the lowest value that any rank has for a fact; all ranks get the same result. 0: at least
 * one rank does not know it. The signals of all ranks must have been found. CEOV_PENDING: the fact
 * of a rank of another node has not come by deadline_ns (base/clock.h); call again. */
int  cei_allreduce_least(const struct cei_allreduce *allreduce, enum cei_allreduce_fact fact,
			 uint64_t deadline_ns, uint64_t *ret_least);

/* Makes one round: passes on this rank's number (at most CEI_ALLREDUCE_VALUE_MAX), and returns the
 * lowest and the highest number of all ranks; all ranks get the same result. Waits at most
 * timeout_ns for each peer, else raises CEOV_ERR_TIMEOUT. After an error ranks may be in
 * different rounds, so the caller must abort the signals. */
int  cei_allreduce_range(struct cei_allreduce *allreduce, uint64_t value, uint64_t timeout_ns,
			 struct cei_allreduce_range *ret_range);

#endif /* CEI_HOST_ALLREDUCE_H */
