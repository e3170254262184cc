/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Makes graphs of repeated runs, as graphs_cuda.h says. */

#include "ops/core/graphs_cuda.h"

#include <string.h>

#include "ops/core/op.h"

/* Returns whether the stream belongs to the library's CUDA context. A stream of a green context
 * uses only that context's SMs; a graph made by the library would use other SMs, too. */
static int is_of_our_context(const struct cei_graphs *graphs, CUstream stream)
{
	const struct cei_cuda_calls *calls = &graphs->gpu->cuda->calls;
	CUcontext ours = NULL, context = NULL;

	return stream == CU_STREAM_LEGACY ||
	       (calls->ctx_get(&ours) == CUDA_SUCCESS &&
		calls->stream_ctx(stream, &context) == CUDA_SUCCESS && context == ours);
}

/* Captures what `queue` queues for the run. NULL: it cannot be captured. */
static CUgraph capture(struct cei_graphs *graphs, cei_graphs_queue *queue,
		       const struct cei_run *run)
{
	const struct cei_cuda_calls *calls = &graphs->gpu->cuda->calls;
	struct cei_run moved = *run;
	CUgraph graph = NULL;
	CUresult result;
	int r;

	/* relaxed mode, because this thread may load kernels that the job needs */
	if (calls->capture_begin(graphs->beside, CU_STREAM_CAPTURE_MODE_RELAXED) !=
	    CUDA_SUCCESS)
		return NULL;
	moved.stream = graphs->beside;
	r = queue(graphs->queue_arg, &moved);
	result = calls->capture_end(graphs->beside, &graph);    /* even if queueing failed */
	if (!r && result == CUDA_SUCCESS)
		return graph;
	if (graph)
		(void)calls->graph_destroy(graph);
	return NULL;
}

/* Makes a graph of the operations that the run queues, in the driver's memory of a spare one. NULL:
 * no graph can be made. When the graph is launched, its kernels get the priority of the stream of
 * the launch. */
static CUgraphExec make_graph(struct cei_graphs *graphs, const struct cei_run *run)
{
	const struct cei_cuda_calls *calls = &graphs->gpu->cuda->calls;
	CUgraphExec made = NULL;
	CUgraph graph = NULL;

	if (is_of_our_context(graphs, run->stream))
		graph = capture(graphs, graphs->queue, run);
	if (!graph)
		return NULL;
	if (graphs->n_spares)
		cei_graphs_drop(graphs, graphs->spares[--graphs->n_spares]);
	if (calls->graph_instantiate(&made, graph, 0) != CUDA_SUCCESS)
		made = NULL;
	(void)calls->graph_destroy(graph);
	return made;
}

/* If the graph is in flight, it still ends, according to the driver's manual. */
void cei_graphs_drop(struct cei_graphs *graphs, void *graph)
{
	struct cei_cuda_hold hold;

	/* Fails only after a sticky CUDA error; then the graph is gone already. */
	if (!graph || cei_cuda_push(graphs->gpu->cuda, graphs->gpu->gpu, &hold))
		return;
	(void)graphs->gpu->cuda->calls.graph_exec_destroy(graph);
	cei_cuda_pop(graphs->gpu->cuda, &hold);
}

/* Launches the graph of an entry. The graph is made when the entry's run comes for the second time.
 * Returns whether it was launched. If a launch fails, no further graphs are made. */
static int launch_graph(struct cei_graphs *graphs, const struct cei_run *run,
			struct cei_graph_entry *entry)
{
	if (entry->n_seen > 1 && !entry->graph && !graphs->makes_none) {
		entry->graph = make_graph(graphs, run);
		graphs->makes_none = !entry->graph;
	}
	if (!entry->graph)
		return 0;
	if (graphs->gpu->cuda->calls.graph_launch(entry->graph, run->stream) ==
	    CUDA_SUCCESS)
		return 1;
	cei_graphs_drop(graphs, entry->graph);
	entry->graph = NULL;
	graphs->makes_none = 1;
	return 0;
}

/* --- what a graph is bound to -------------------------------------------------------------- */

/* Returns whether a graph of the run has copies from or to the caller's memory. One kernel alone
 * has none: the driver keeps its parameters as bytes and knows of no addresses in them. */
static int has_copies(const struct cei_run *run)
{
	return !cei_selector_is_direct(run->op->choice.mode) || cei_op_has_sm_lane(run->op);
}

/* Asks for the numbers of the allocations of the caller's memory. Returns 0 if the driver does not
 * know them all. */
static int find_memory(const struct cei_graphs *graphs, const struct cei_run *run,
		       struct cei_graph_memory *ret_memory)
{
	const CUpointer_attribute wanted = CU_POINTER_ATTRIBUTE_BUFFER_ID;
	const struct cei_cuda_calls *calls = &graphs->gpu->cuda->calls;
	unsigned long long id;
	CUresult result;
	uint32_t i;

	memset(ret_memory, 0, sizeof(*ret_memory));
	for (i = 0; has_copies(run) && i < run->n_memory; i++) {
		id = 0;
		result = calls->pointer_attribute(&id, wanted,
						  (CUdeviceptr)(uintptr_t)run->memory[i]);
		if (result != CUDA_SUCCESS)
			return 0;
		ret_memory->ids[i] = id;
	}
	return 1;
}

/* --- the calls of capture_cuda.c ----------------------------------------------------------- */

void cei_graphs_reserve(struct cei_graphs *graphs, cei_graphs_queue *queue)
{
	const struct cei_cuda_calls *calls = &graphs->gpu->cuda->calls;
	const struct cei_run none = { .op = NULL };
	CUgraph graph = capture(graphs, queue, &none);
	CUgraphExec made;

	if (!graph)
		return;
	while (graphs->n_spares < CEI_GRAPH_CACHE_MAX &&
	       calls->graph_instantiate(&made, graph, 0) == CUDA_SUCCESS)
		graphs->spares[graphs->n_spares++] = made;
	(void)calls->graph_destroy(graph);
}

int cei_graphs_run(struct cei_graphs *graphs, const struct cei_run *run, void **ret_dropped,
		   int *ret_is_queued)
{
	struct cei_graph_memory memory;
	const struct cei_graph_key key = {
		run->op, run->half, run->operands_bytes, run->operands, &memory
	};
	struct cei_graph_entry *entry;
	struct cei_cuda_hold hold;
	int captures, r = cei_cuda_push(graphs->gpu->cuda, graphs->gpu->gpu, &hold);

	*ret_dropped = NULL;
	*ret_is_queued = 0;
	if (r)
		return r;
	r = cei_gpu_is_capturing(graphs->gpu, run->stream, &captures);
	if (!r && !captures && find_memory(graphs, run, &memory)) {
		entry = cei_graph_cache_see(&graphs->cache, &key, ret_dropped);
		*ret_is_queued = entry && launch_graph(graphs, run, entry);
	}
	cei_cuda_pop(graphs->gpu->cuda, &hold);
	return r;
}

void cei_graphs_forget(struct cei_graphs *graphs, const ceov_op *op)
{
	void *graph;

	while (cei_graph_cache_forget(&graphs->cache, op, &graph))
		cei_graphs_drop(graphs, graph);
}

void cei_graphs_close(struct cei_graphs *graphs)
{
	cei_graphs_forget(graphs, NULL);
	while (graphs->n_spares)
		cei_graphs_drop(graphs, graphs->spares[--graphs->n_spares]);
}

uint32_t cei_graphs_n(const struct cei_graphs *graphs)
{
	uint32_t i, n = 0;

	for (i = 0; i < graphs->cache.n; i++)
		n += graphs->cache.entries[i].graph != NULL;
	return n;
}
