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
#include "ipc/bootstrap.h"

#define CEI_AGREE_VALUE_BITS 40u
#define CEI_AGREE_VALUE_MAX  ((UINT64_C(1) << CEI_AGREE_VALUE_BITS) - 1)

enum cei_agree_fact {                   /* about the rank's GPU; 0: not known */
	CEI_AGREE_SMS,                  /* that its kernels take */
	CEI_AGREE_COPY_RATE,            /* to another GPU, bytes per second */
	CEI_AGREE_FACTS
};

struct cei_agree {
	ceov_context *context;
	uint32_t      rank;
	uint32_t      n_ranks;
	uint64_t      facts[CEI_AGREE_FACTS];   /* own ones; larger ones than
						 * CEI_AGREE_VALUE_MAX are told as that */
	uint64_t      round;                    /* the last one; one thread at a time */
	ceov_signal  *signals[CEI_RANKS_MAX];   /* the own one and peers', by rank */
};

struct cei_agree_range {
	uint64_t min;
	uint64_t max;
};

/* agree is zeroed, but for context, rank, n_ranks and facts: makes the own signal and offers
 * it under name; then looks for a peer's. CEOV_NONE: it has not been offered yet. */
int  cei_agree_open(struct cei_agree *agree, const char *name);
int  cei_agree_find(struct cei_agree *agree, const struct cei_lookup *lookup);

/* The least that any rank has told, the same at each of them; 0: some rank knows nothing. All
 * ranks' signals have been found. */
int  cei_agree_least(const struct cei_agree *agree, enum cei_agree_fact fact,
		     uint64_t *ret_least);

/* Lets go of a rank's signal; peers' go first. CEOV_PENDING: a peer maps it. */
int  cei_agree_release(struct cei_agree *agree, uint32_t rank);

/* Its signals, for an abort: at most CEI_RANKS_MAX. Returns how many. */
uint32_t cei_agree_signals(const struct cei_agree *agree, ceov_signal **ret_signals);

/* One round, with a number of at most CEI_AGREE_VALUE_MAX: the least and the largest of
 * all ranks' numbers, the same at each of them. Each peer is waited for at most
 * timeout_ns: CEOV_ERR_TIMEOUT, raised. An error leaves ranks in different rounds: abort
 * the signals. */
int  cei_agree_range(struct cei_agree *agree, uint64_t value, uint64_t timeout_ns,
		     struct cei_agree_range *ret_range);

#endif /* CEI_AGREE_H */
