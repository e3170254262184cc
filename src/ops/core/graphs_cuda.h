/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_GRAPHS_CUDA_H
#define CEI_GRAPHS_CUDA_H

/*
 * The graphs that a capturable workspace makes of repeated runs (graph_cache.h). Only one thread at
 * a time may use them.
 *
 * A graph with copies is bound to the allocations that it copies from and to, and not only to
 * their addresses: where memory was given back to the driver and other memory came at the same
 * address, its launch may fail and take the CUDA context with it. So the driver is asked for the
 * number of each allocation, which never comes again.
 */

#include "ops/core/graph_cache.h"
#include "ops/core/run.h"
#include "ops/exec_cuda/execute_cuda.h"

struct cei_graphs {
	struct cei_gpu_executor *gpu;
	CUstream                 beside;        /* on which graphs are captured */
	struct cei_graph_cache   cache;         /* its graphs are of type CUgraphExec */
	int                      makes_none;    /* 1: do not try to make graphs, because that
						 * failed or might block */
	/* Queues the operations of a run on its stream. */
	int                    (*queue)(void *arg, const struct cei_run *run);
	void                    *queue_arg;
};

/* Launches the run as a cached graph, if there is one or one can be made now; *ret_is_queued says
 * whether it did. On a stream that the user is capturing it does nothing. *ret_dropped is a graph
 * that is not needed any more and that the caller destroys, or NULL. */
int  cei_graphs_run(struct cei_graphs *graphs, const struct cei_run *run, void **ret_dropped,
		    int *ret_is_queued);

/* Destroys a graph; NULL is allowed. */
void cei_graphs_drop(struct cei_graphs *graphs, void *graph);

/* Destroys the graphs of an op (NULL: of all ops). */
void cei_graphs_forget(struct cei_graphs *graphs, const ceov_op *op);

/* The number of cached graphs. */
uint32_t cei_graphs_n(const struct cei_graphs *graphs);

#endif /* CEI_GRAPHS_CUDA_H */
