/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_AGREED_H
#define CEI_AGREED_H

/*
 * Ranks compare an operator before its first run. The first runs of a workspace's operators are
 * numbered at each rank, and those of one number have to be of operators that are alike. A rank
 * says before its first run what the operator is, and waits until each peer has said the same
 * before its own first run of this number, or something else: then the run is refused, at all ranks
 * and for the same reason.
 *
 * In a process that holds several ranks, one thread may make their runs one after another. So GPU
 * ranks there wait only until a peer has created such an operator and not run it. If the peer then
 * comes with another one, only the peer is refused, and this rank waits until its deadline.
 *
 * What a rank says are counters in host memory (host_allreduce.h). Each rises to number << 32 | 4
 * bytes. Of an operator that was created they hold a hash of its description, which has everything
 * that has to be alike, at a place that the hash decides; of a first run the hash, and the
 * description for errors.
 */

#include <pthread.h>
#include <stdint.h>

#define CEI_AGREE_SLOTS      512u       /* of operators that were created */
#define CEI_AGREE_RUNS       32u        /* the last first runs: a rank is at most 16 runs ahead */
#define CEI_AGREE_TEXT_WORDS 48u        /* of 4 bytes each, with a NUL at the end */

#define CEI_AGREE_COUNTERS   (CEI_AGREE_SLOTS + CEI_AGREE_RUNS * (1 + CEI_AGREE_TEXT_WORDS))

/* The operators of a rank's workspace that were created and have not run, by the hash's slot. */
struct cei_agree_slot {
	uint32_t hash;                  /* of all of them; 1: they differ */
	uint32_t n;
	uint64_t n_said;                /* how often the slot's counter was raised */
};

struct cei_agree {
	pthread_mutex_t       lock;     /* guards slots */
	struct cei_agree_slot slots[CEI_AGREE_SLOTS];
	pthread_mutex_t       first;    /* held while a first run is compared */
	uint64_t              n_first;  /* first runs. Guarded by `first` */
};

#endif /* CEI_AGREED_H */
