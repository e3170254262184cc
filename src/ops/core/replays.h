/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_REPLAYS_H
#define CEI_REPLAYS_H

/*
 * Which captured runs come again. What such a run queues is the same whenever its op, its
 * half of scratch and its operands are: so the second time a graph is made of it, and from
 * then on one call queues it, at less than half of the calling thread's time. Here is what
 * was seen; capture_cuda.c makes the graphs.
 *
 * Bounded: where all entries are in use, other runs are queued as the first time.
 */

#include <stdint.h>

#include <ceoverlap/ops.h>

#define CEI_REPLAYS_MAX          128u
#define CEI_REPLAYS_STALE        1024u  /* runs: who was not seen in so many gives way */
#define CEI_REPLAY_OPERANDS_MAX  128u   /* bytes: of every kind's run struct */

/* What a run queues depends on these. */
struct cei_replay_key {
	const ceov_op *op;
	uint32_t       half;
	uint32_t       n_bytes;         /* of operands */
	const void    *operands;        /* the struct of the run call */
};

struct cei_replay {
	const ceov_op *op;
	uint32_t       half;
	uint32_t       n_bytes;
	unsigned char  operands[CEI_REPLAY_OPERANDS_MAX];       /* the kind's run struct, the
						 * stream with it */
	uint64_t       hash;            /* of the above */
	uint64_t       last;            /* when it was seen last, in runs */
	uint64_t       n_seen;
	void          *graph;           /* the caller's; NULL: none yet */
};

/* All zeros: nothing was seen. */
struct cei_replays {
	struct cei_replay replay[CEI_REPLAYS_MAX];
	uint32_t          n;
	uint64_t          n_runs;
};

/* Counts the run and returns its entry, n_seen with it; it stands until the next call. NULL:
 * there is no room. *ret_dropped: the graph of an entry that gave way, or NULL. */
struct cei_replay *cei_replays_see(struct cei_replays *replays,
				   const struct cei_replay_key *key, void **ret_dropped);

/* Takes away an entry of the op, or any where op is NULL. 0: there is none; else 1, and
 * *ret_dropped is its graph or NULL. */
int cei_replays_forget(struct cei_replays *replays, const ceov_op *op, void **ret_dropped);

#endif /* CEI_REPLAYS_H */
