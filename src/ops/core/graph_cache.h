/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_GRAPH_CACHE_H
#define CEI_GRAPH_CACHE_H

/*
 * Finds repeated runs in capturable workspaces. The operations that such a run queues
 * depend only on its op, its half of scratch and its operands. So a graph is made of a run
 * when it comes for the second time, and from then on one call queues it, which takes less
 * than half of the calling thread's time. This is the table of runs; capture_cuda.c makes
 * the graphs.
 *
 * The table is bounded: while all its entries are in use, other runs are queued operation
 * by operation.
 */

#include <stdint.h>

#include <ceoverlap/ops.h>

#define CEI_GRAPH_CACHE_MAX      128u
#define CEI_GRAPH_CACHE_STALE    1024u  /* entries unused for so many runs may be replaced */
#define CEI_GRAPH_OPERANDS_MAX   128u   /* the largest run struct */

/* All that determines which operations a run queues. */
struct cei_graph_key {
	const ceov_op *op;
	uint32_t       half;
	uint32_t       n_bytes;         /* of operands */
	const void    *operands;        /* the struct of the run call */
};

struct cei_graph_entry {
	const ceov_op *op;
	uint32_t       half;
	uint32_t       n_bytes;
	unsigned char  operands[CEI_GRAPH_OPERANDS_MAX];        /* copy of the kind's run struct,
								 * which includes the stream */
	uint64_t       hash;            /* of the key */
	uint64_t       last;            /* number of the run that used it last */
	uint64_t       n_seen;
	void          *graph;           /* belongs to the caller; NULL: none yet */
};

/* The table of runs; all zeros: empty. */
struct cei_graph_cache {
	struct cei_graph_entry entries[CEI_GRAPH_CACHE_MAX];
	uint32_t          n;
	uint64_t          n_runs;
};

/* Counts the run and returns its entry, valid until the next call. NULL: there is no room.
 * *ret_dropped: the graph of an entry that was replaced, or NULL. */
struct cei_graph_entry *cei_graph_cache_see(struct cei_graph_cache *graphs,
					    const struct cei_graph_key *key, void **ret_dropped);

/* Removes one entry of the op, or of any op where op is NULL. 0: there is none; else 1, and
 * *ret_dropped is its graph or NULL. */
int cei_graph_cache_forget(struct cei_graph_cache *graphs, const ceov_op *op, void **ret_dropped);

#endif /* CEI_GRAPH_CACHE_H */
