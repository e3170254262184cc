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
 *
 * A call of a run must not wait for kernels of the user, but cuGraphInstantiate() waits for all of
 * the GPU, and meanwhile launches of other threads wait, too, when the driver takes more memory for
 * graphs: measured on an H200, driver 580, at the 32nd graph that exists in a context and at each
 * 43rd after it; captures and launches never wait (docs/results/2xh200.md). So as many
 * graphs as the cache holds are made beforehand, while the workspace is created. These spare graphs
 * are never launched: they keep memory of the driver's. One of them is destroyed right before each
 * graph is made, which then takes its place. Graphs that are dropped leave their place free, so a
 * workspace's graphs, spare ones and free places are always CEI_GRAPH_CACHE_MAX together, and need
 * no more memory unless others in the process take the free places.
 */

#include "ops/core/graph_cache.h"
#include "ops/core/running.h"
#include "ops/exec_cuda/execute_cuda.h"

/* Queues operations of a run on its stream. */
typedef int cei_graphs_queue(void *arg, const struct cei_run *run);

struct cei_graphs {
	struct cei_gpu_executor *gpu;
	CUstream                 beside;        /* on which graphs are captured */
	struct cei_graph_cache   cache;         /* its graphs are of type CUgraphExec */
	int                      makes_none;    /* 1: do not try to make graphs, because that
						 * failed or might block */
	cei_graphs_queue        *queue;         /* queues all operations of a run */
	void                    *queue_arg;
	void                    *spares[CEI_GRAPH_CACHE_MAX];   /* CUgraphExec: spare graphs */
	uint32_t                 n_spares;
};

/* Makes spare graphs of what `queue` queues for a run of which only the stream is set. May wait for
 * all kernels of the GPU, whose context must be current. If it fails, there are fewer spare graphs,
 * or none: then a run that makes a graph may wait. */
void cei_graphs_reserve(struct cei_graphs *graphs, cei_graphs_queue *queue);

/* Launches the run as a cached graph, if there is one or one can be made now; *ret_is_queued says
 * whether it did. On a stream that the user is capturing it does nothing. *ret_dropped is a graph
 * that is not needed any more and that the caller destroys, or NULL. */
int  cei_graphs_run(struct cei_graphs *graphs, const struct cei_run *run, void **ret_dropped,
		    int *ret_is_queued);

/* Destroys a graph; NULL is allowed. */
void cei_graphs_drop(struct cei_graphs *graphs, void *graph);

/* Destroys the graphs of an op (NULL: of all ops). */
void cei_graphs_forget(struct cei_graphs *graphs, const ceov_op *op);

/* Destroys all graphs, the spare ones, too. */
void cei_graphs_close(struct cei_graphs *graphs);

/* The number of cached graphs. */
uint32_t cei_graphs_n(const struct cei_graphs *graphs);

#endif /* CEI_GRAPHS_CUDA_H */
