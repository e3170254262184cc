/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_WAITS_H
#define CEI_WAITS_H

/*
 * Counts the streams of a GPU that wait for marks because of calls of this process.
 *
 * The driver serves all streams of a context through a few hardware queues (8; see
 * CUDA_DEVICE_MAX_CONNECTIONS). A stream that waits holds one of them. When waiting
 * streams hold all of them, no kernel starts any more on that GPU, and no copy within
 * its memory, because such a copy is a kernel, too. Large copies over PCIe or NVLink go on;
 * small ones to the GPU, and memory operations, do not always (measured on H100 and H200
 * with driver 580; see cuda_queues.c). The kernel that cannot start may be the very one that
 * would raise the mark. So waiting streams are counted, and from a bound on launches are
 * polled instead of gated, and copies are made such that they need no such queue.
 *
 * The hardware queues belong to the process and not to one of our contexts, so the counts
 * are the process's as well, and stay until it ends. All calls: any thread, no driver call.
 *
 * A lane says itself when its wait is over, and takes no lock for that. A stream of the
 * application is asked to write the number of its wait to memory behind the wait. That write
 * takes time on the stream, so the first CEI_WAITS_UNMARKED streams are counted without one,
 * as waiting until their next wait: the count may be too high by that many, never too low.
 */

#include <stdatomic.h>
#include <stdint.h>

#define CEI_WAITS_GPUS_MAX 64u

/* Streams that are counted separately. Further ones are not counted, which does no harm,
 * because this many is far above every bound. */
#define CEI_WAITS_SLOTS    128u

#define CEI_WAITS_UNMARKED 2u

/* If so many streams once waited at the same time, the process has more streams than
 * hardware queues, or soon will. Streams that share a queue then go on sharing it, also when
 * few of them wait: with 64 streams and 32 queues a copy was blocked although only a few
 * streams waited (measured on H200 with driver 580). */
#define CEI_WAITS_MANY     8u

/* the driver's default number of hardware queues */
#define CEI_WAITS_QUEUES   8u
#define CEI_WAITS_QUEUES_MAX 32u

struct cei_waits;

/* One stream's wait. */
struct cei_wait {
	uint32_t slot;                  /* CEI_WAITS_SLOTS: the wait is not counted */
	int      is_new;                /* the stream was not waiting before */
	int      wants_mark;            /* the stream should write `number` to the slot's word
					 * behind its wait */
	uint64_t number;
};

/* The counts of a GPU; NULL where gpu >= CEI_WAITS_GPUS_MAX: nothing is counted then, and
 * the calls below take that. */
struct cei_waits *cei_waits_of(uint32_t gpu);

/* The words that streams write to, one for each slot, and how many bytes they are: whole
 * pages that stay for the life of the process, because a stream of the application may write
 * there at any later time. The caller makes them known to the driver, and says so by the
 * second call; before that no mark is asked for. */
_Atomic uint64_t *cei_waits_words(struct cei_waits *waits, uint64_t *ret_n_bytes);
void              cei_waits_allow_marks(struct cei_waits *waits);

/* The stream (any handle that names it) is about to wait, behind all earlier waits of
 * its own. */
struct cei_wait cei_waits_enter(struct cei_waits *waits, const void *stream);

/* The wait has ended, or was never queued. A later wait of the same stream stays counted. */
void cei_waits_leave(struct cei_waits *waits, const struct cei_wait *wait);

/* One more lane waits; one less does. Neither takes a lock. */
void cei_waits_lane_begin(struct cei_waits *waits);
void cei_waits_lane_end(struct cei_waits *waits);

/* How many streams and lanes may be waiting now. */
uint32_t cei_waits_count(struct cei_waits *waits);

/* Whether fewer than bound are waiting. Mostly takes no lock. */
int  cei_waits_is_below(struct cei_waits *waits, uint32_t bound);

/* Returns whether at least n streams, n being the smaller of `bound` and CEI_WAITS_MANY, wait
 * or once waited at the same time: then streams share hardware queues, and a copy in such a
 * queue can be blocked by a stream that waits. The result stays 1 when none waits any more,
 * because a stream may begin to wait while a copy is under way. Mostly takes no lock. */
int  cei_waits_may_block(struct cei_waits *waits, uint32_t bound);

/* Hardware queues of this process: CUDA_DEVICE_MAX_CONNECTIONS, from 1 to 32, else 8. */
uint32_t cei_waits_n_queues(void);

/* How many streams may wait: n_queues less n_reserved, which the application's own work
 * needs, and at least 1. */
uint32_t cei_waits_bound(uint32_t n_queues, uint32_t n_reserved);

#endif /* CEI_WAITS_H */
