/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Captures, instantiates and replays graphs, so that the suites need no CUDA headers. */

#include "gpu_graph.h"

#include <string.h>

#include "base/cuda_table.h"

static void check(const struct gpu_graph *graph, CUresult result, const char *what)
{
	if (result != CUDA_SUCCESS)
		(void)cei_cuda_raise(graph->cuda, result, CEOV_NOBODY, "%s", what);
	ck_assert_msg(result == CUDA_SUCCESS, "GPU %u: %s: error %d", graph->gpu->index, what,
		      (int)result);
}

static CUstream stream_of(const struct gpu_graph *graph)
{
	return graph->gpu->streams[graph->stream];
}

static void enter(const struct gpu_graph *graph, struct cei_cuda_hold *hold)
{
	ck_assert_int_eq(cei_cuda_push(graph->cuda, graph->gpu->index, hold), 0);
}

void gpu_graph_begin(struct gpu_graph *graph, struct gpu *gpu, enum gpu_stream stream)
{
	const char *why = "";
	struct cei_cuda_hold hold;

	memset(graph, 0, sizeof(*graph));
	graph->gpu = gpu;
	graph->stream = stream;
	cei_report_init(&graph->report, NULL, NULL);
	ck_assert_msg(!cei_cuda_open(&graph->report, &graph->cuda, &why), "%s", why);
	enter(graph, &hold);
	check(graph, graph->cuda->calls.capture_begin(stream_of(graph),
						      CU_STREAM_CAPTURE_MODE_GLOBAL),
	      "cuStreamBeginCapture");
	cei_cuda_pop(graph->cuda, &hold);
}

void gpu_graph_end(struct gpu_graph *graph)
{
	const struct cei_cuda_calls *calls = &graph->cuda->calls;
	CUgraphExec executable = NULL;
	struct cei_cuda_hold hold;
	CUgraph captured = NULL;

	enter(graph, &hold);
	check(graph, calls->capture_end(stream_of(graph), &captured), "cuStreamEndCapture");
	check(graph, calls->graph_instantiate(&executable, captured, 0),
	      "cuGraphInstantiateWithFlags");
	check(graph, calls->graph_destroy(captured), "cuGraphDestroy");
	cei_cuda_pop(graph->cuda, &hold);
	graph->executable = executable;
}

void gpu_graph_go_on(struct gpu_graph *graph, enum gpu_stream from, enum gpu_stream to)
{
	const struct cei_cuda_calls *calls = &graph->cuda->calls;
	struct cei_cuda_hold hold;
	CUevent event = NULL;

	enter(graph, &hold);
	check(graph, calls->event_create(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
	check(graph, calls->event_record(event, graph->gpu->streams[from]), "cuEventRecord");
	check(graph, calls->stream_wait_event(graph->gpu->streams[to], event, 0),
	      "cuStreamWaitEvent");
	check(graph, calls->event_destroy(event), "cuEventDestroy");
	cei_cuda_pop(graph->cuda, &hold);
}

void gpu_graph_launch(const struct gpu_graph *graph)
{
	struct cei_cuda_hold hold;

	enter(graph, &hold);
	check(graph, graph->cuda->calls.graph_launch(graph->executable, stream_of(graph)),
	      "cuGraphLaunch");
	cei_cuda_pop(graph->cuda, &hold);
}

void gpu_graph_free(struct gpu_graph *graph)
{
	struct cei_cuda_hold hold;

	enter(graph, &hold);
	check(graph, graph->cuda->calls.graph_exec_destroy(graph->executable),
	      "cuGraphExecDestroy");
	cei_cuda_pop(graph->cuda, &hold);
	cei_cuda_close(graph->cuda);
	cei_report_fini(&graph->report);
}
