/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_GRAPH_CACHE_H
#define CEI_GRAPH_CACHE_H

/*
 * Recognises repeated runs in capturable workspaces. The operations that a run queues depend only
 * on its op, its half of scratch and its operands. So when a run comes for the second time, it is
 * made into a graph; from then on one call queues it, which takes less than half of the calling
 * thread's time. This file is the table of runs; capture_cuda.c makes the graphs.
 *
 * The table is bounded: while all its entries are in use, other runs are queued operation
 * by operation.
 */

#include <stdint.h>

#include <ceoverlap/ops.h>

#include "ops/core/running.h"

#define CEI_GRAPH_CACHE_MAX      128u
#define CEI_GRAPH_CACHE_STALE    1024u  /* an entry that so many runs did not use may be
					 * replaced */
#define CEI_GRAPH_OPERANDS_MAX   128u   /* bytes of the largest run struct */

/* Numbers of the allocations that hold a run's operands, each unique in the process; 0: unused. */
struct cei_graph_memory {
	uint64_t ids[CEI_OPERANDS_MAX];
};

/* All that determines which operations a run queues. Two runs with equal keys share a graph. */
struct cei_graph_key {
	const ceov_op *op;
	uint32_t       half;
	uint32_t       n_bytes;         /* of operands */
	const void    *operands;        /* the struct of the run call */
	const struct cei_graph_memory *memory;  /* the allocations behind its addresses */
};

struct cei_graph_entry {
	const ceov_op *op;
	uint32_t       half;
	uint32_t       n_bytes;
	unsigned char  operands[CEI_GRAPH_OPERANDS_MAX];        /* copy of the kind's run struct,
								 * which includes the stream */
	struct cei_graph_memory memory;
	uint64_t       last;            /* cei_graph_cache.n_runs when a run last used the entry */
	uint64_t       n_seen;          /* how many runs with this memory used the entry */
	void          *graph;           /* belongs to the caller; NULL: not made yet */
};

/* The table of runs. If all bytes are 0, it is empty. */
struct cei_graph_cache {
	struct cei_graph_entry entries[CEI_GRAPH_CACHE_MAX];
	uint32_t          n;            /* entries in use */
	uint64_t          n_runs;       /* runs counted so far */
};

/* Counts the run and returns its entry, which is valid until the next call. NULL: the table has no
 * room. *ret_dropped is the graph of an entry that was replaced, or whose addresses stand for other
 * memory now, or NULL. */
struct cei_graph_entry *cei_graph_cache_see(struct cei_graph_cache *graphs,
					    const struct cei_graph_key *key, void **ret_dropped);

/* Removes one entry of the op, or of any op if op is NULL. Returns 1 if it removed one, whose graph
 * (or NULL) is then in *ret_dropped; 0: there is no such entry. */
int cei_graph_cache_forget(struct cei_graph_cache *graphs, const ceov_op *op, void **ret_dropped);

#endif /* CEI_GRAPH_CACHE_H */
