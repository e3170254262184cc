/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_GPU_GRAPH_H
#define CEI_GPU_GRAPH_H

/* CUDA graphs captured from a rig's stream. Asserts with Check. */

#include "base/cuda_driver.h"
#include "base/report.h"
#include "gpu_rig.h"

struct gpu_graph {
	struct gpu       *gpu;
	enum gpu_stream   stream;       /* of replays; at first that of the capture */
	struct cei_report report;
	struct cei_cuda  *cuda;
	void             *executable;   /* CUgraphExec */
};

/* Capture what the calling thread queues on the stream between begin and end, in CUDA's global
 * mode, which restricts the whole process most, as frameworks do. gpu_graph_end() makes the graph
 * executable. */
void gpu_graph_begin(struct gpu_graph *graph, struct gpu *gpu, enum gpu_stream stream);
void gpu_graph_end(struct gpu_graph *graph);

/* Orders what is queued on `to` from now on behind what is on `from`. In the graph that is being
 * captured from one of them that makes `to` a branch, or joins a branch again. */
void gpu_graph_go_on(struct gpu_graph *graph, enum gpu_stream from, enum gpu_stream to);

/* Queues a replay of the graph on graph->stream. */
void gpu_graph_launch(const struct gpu_graph *graph);

/* Frees the graph; its replays must have ended. */
void gpu_graph_free(struct gpu_graph *graph);

#endif /* CEI_GPU_GRAPH_H */
