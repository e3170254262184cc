/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Runs the backend cases on GPU 0, with CUDA streams and graphs. */

#include "backend_conformance.h"

#include "backend_rig.h"
#include "base/clock.h"
#include "base/cuda_table.h"

static void enter(struct cei_cuda_hold *hold)
{
	ck_assert_int_eq(cei_cuda_push(rig.site.cuda, 0, hold), 0);
}

/* Restores what enter() changed, and asserts success. */
static void leave(const struct cei_cuda_hold *hold, CUresult result, const char *what)
{
	cei_cuda_pop(rig.site.cuda, hold);
	ck_assert_msg(result == CUDA_SUCCESS, "%s: error %d", what, (int)result);
}

static const struct cei_cuda_calls *calls(void)
{
	return &rig.site.cuda->calls;
}

static void *stream_open(void)
{
	struct cei_cuda_hold hold;
	CUstream stream = NULL;

	enter(&hold);
	leave(&hold, calls()->stream_create(&stream, CU_STREAM_NON_BLOCKING, 0),
	      "cuStreamCreateWithPriority");
	return stream;
}

static void stream_close(void *stream)
{
	struct cei_cuda_hold hold;

	enter(&hold);
	leave(&hold, calls()->stream_destroy(stream), "cuStreamDestroy");
}

static void stream_idle(void *stream)
{
	struct cei_cuda_hold hold;

	enter(&hold);
	leave(&hold, cei_cuda_idle(rig.site.cuda, stream, cei_deadline(TESTING_PATIENCE)),
	      "cuStreamQuery");
}

static void capture_begin(void *stream)
{
	struct cei_cuda_hold hold;

	enter(&hold);
	leave(&hold, calls()->capture_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
	      "cuStreamBeginCapture");
}

static void *capture_end(void *stream)
{
	CUgraphExec executable = NULL;
	struct cei_cuda_hold hold;
	CUgraph captured = NULL;
	CUresult result;

	enter(&hold);
	result = calls()->capture_end(stream, &captured);
	if (result == CUDA_SUCCESS)
		result = calls()->graph_instantiate(&executable, captured, 0);
	if (result == CUDA_SUCCESS)
		result = calls()->graph_destroy(captured);
	leave(&hold, result, "a graph of what was captured");
	return executable;
}

static void graph_launch(void *graph, void *stream)
{
	struct cei_cuda_hold hold;

	enter(&hold);
	leave(&hold, calls()->graph_launch(graph, stream), "cuGraphLaunch");
}

static void graph_free(void *graph)
{
	struct cei_cuda_hold hold;

	enter(&hold);
	leave(&hold, calls()->graph_exec_destroy(graph), "cuGraphExecDestroy");
}

static const struct rig_streams streams = {
	.open = stream_open,
	.close = stream_close,
	.idle = stream_idle,
	.capture_begin = capture_begin,
	.capture_end = capture_end,
	.launch = graph_launch,
	.free = graph_free,
};

int main(void)
{
	rig.streams = &streams;
	return conformance_run(cei_backend_named("cuda"));
}
