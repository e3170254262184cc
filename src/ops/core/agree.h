/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_AGREE_H
#define CEI_AGREE_H

/*
 * Numbers that all ranks tell each other on the host, round by round: what a tuning is
 * agreed with. A round is a meeting, too: nobody leaves it before all have come.
 *
 * Each rank has a signal of two counters, taken in turn: in round r (from 1) it raises
 * counter r % 2 to r << 40 | its number, awaits the same counter of every peer and reads
 * the number there. A counter is not raised again before it was read: round r + 2 begins
 * behind r + 1, and that behind everybody's reading in round r.
 *
 * Facts are numbers that each rank knows before it offers its signal; they have counters of
 * their own, and whoever has found the signal reads them without waiting.
 */

#include <stdint.h>

#include <ceoverlap/ceoverlap.h>

#include "base/site.h"

#define CEI_AGREE_VALUE_BITS 40u
#define CEI_AGREE_VALUE_MAX  ((UINT64_C(1) << CEI_AGREE_VALUE_BITS) - 1)

#define CEI_AGREE_ROUND_COUNTERS 2u

enum cei_agree_fact {                   /* about the rank's GPU; 0: not known */
	CEI_AGREE_SMS,                  /* that its kernels take */
	CEI_AGREE_COPY_RATE,            /* to another GPU, bytes per second */
	CEI_AGREE_FACTS
};

/* Of each rank's signal: those of facts stand behind those of rounds. */
#define CEI_AGREE_COUNTERS (CEI_AGREE_ROUND_COUNTERS + CEI_AGREE_FACTS)

struct cei_agree {
	ceov_context *context;
	uint32_t      rank;
	uint32_t      n_ranks;
	uint64_t      facts[CEI_AGREE_FACTS];   /* own ones; larger ones than
						 * CEI_AGREE_VALUE_MAX are told as that */
	uint64_t      round;                    /* the last one; one thread at a time */
	ceov_signal  *signals[CEI_RANKS_MAX];   /* the own one and peers', by rank; on the
						 * host, of whoever has this */
};

struct cei_agree_range {
	uint64_t min;
	uint64_t max;
};

/* Before the own signal is offered. */
int  cei_agree_tell_facts(const struct cei_agree *agree);

/* The least that any rank has told, the same at each of them; 0: some rank knows nothing. All
 * ranks' signals have been found. */
int  cei_agree_least(const struct cei_agree *agree, enum cei_agree_fact fact,
		     uint64_t *ret_least);

/* One round, with a number of at most CEI_AGREE_VALUE_MAX: the least and the largest of
 * all ranks' numbers, the same at each of them. Each peer is waited for at most
 * timeout_ns: CEOV_ERR_TIMEOUT, raised. An error leaves ranks in different rounds: abort
 * the signals. */
int  cei_agree_range(struct cei_agree *agree, uint64_t value, uint64_t timeout_ns,
		     struct cei_agree_range *ret_range);

#endif /* CEI_AGREE_H */
