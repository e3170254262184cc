/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * The order of runs on streams: each run follows the one before it, whatever their streams.
 *
 * Outside of graphs an event behind the last run gives this order. A graph that is being captured
 * can wait only for events that were recorded in the same capture, so it has an event of its own.
 * Whether that capture is still going on only the driver knows: a stream of the library's is made a
 * part of the capture, and is asked. No work is ever queued on that stream.
 */

#include "ops/exec_cuda/execute_cuda.h"

#include <string.h>

struct capture {
	CUstreamCaptureStatus status;
	cuuint64_t            id;       /* unique in this process; not set if nothing is captured */
};

/* Asks which capture the stream is a part of; a NULL stream is a part of none. */
static int capture_of(const struct cei_gpu_executor *own, CUstream stream,
		      struct capture *ret_capture)
{
	CUresult result = CUDA_SUCCESS;

	memset(ret_capture, 0, sizeof(*ret_capture));
	ret_capture->status = CU_STREAM_CAPTURE_STATUS_NONE;
	if (stream)
		result = own->cuda->calls.capture_info(stream, &ret_capture->status,
						       &ret_capture->id);
	return cei_gpu_executor_check(own, result, "asking for a stream's capture");
}

static int refuse(const struct cei_gpu_executor *own, const char *fault)
{
	return cei_raise(own->cuda->report, CEOV_ERR_STATE, 0, "rank %u: GPU %u: %s", own->rank,
			 own->gpu, fault);
}

/* --- outside of graphs ------------------------------------------------------------------ */

static int follow_last(const struct cei_gpu_executor *own, CUstream stream)
{
	const struct cei_gpu_executor *last = own->order->last;

	if (!last)
		return 0;
	return cei_gpu_executor_check(
		own, own->cuda->calls.stream_wait_event(stream, last->mark, 0),
		"following the run before");
}

static int mark_last(struct cei_gpu_executor *own, CUstream stream)
{
	CUresult result = own->cuda->calls.event_record(own->mark, stream);

	if (result == CUDA_SUCCESS)
		own->order->last = own;
	return cei_gpu_executor_check(own, result, "recording the end of a run");
}

/* --- in a graph that is being captured --------------------------------------------------- */

/* On the same stream the run before comes first anyway, and an edge in the graph would only cost
 * time. Streams are compared by their handles, because the driver does not tell a stream's id while
 * it captures. A stream that is in a capture is not destroyed before it has joined another one. */
static int follow_captured(const struct cei_gpu_executor *own, CUstream stream)
{
	if (stream == own->order->captured_on)
		return 0;
	return cei_gpu_executor_check(
		own, own->cuda->calls.stream_wait_event(stream, own->order->captured, 0),
		"following the captured run before");
}

static CUresult make_order(const struct cei_cuda_calls *calls, struct cei_gpu_order *order)
{
	CUresult result = CUDA_SUCCESS;

	if (!order->captured)
		result = calls->event_create(&order->captured, CU_EVENT_DISABLE_TIMING);
	if (result == CUDA_SUCCESS && !order->inside)
		result = calls->stream_create(&order->inside, CU_STREAM_NON_BLOCKING, 0);
	return result;
}

static int mark_captured(const struct cei_gpu_executor *own, CUstream stream)
{
	const struct cei_cuda_calls *calls = &own->cuda->calls;
	struct cei_gpu_order *order = own->order;
	struct capture open;
	CUresult result = make_order(calls, order);
	int r;

	if (result == CUDA_SUCCESS)
		result = calls->event_record(order->captured, stream);
	order->captured_on = stream;
	r = cei_gpu_executor_check(own, result, "marking the end of a captured run");
	if (!r)
		r = capture_of(own, order->inside, &open);
	if (r || open.status != CU_STREAM_CAPTURE_STATUS_NONE)
		return r;
	return cei_gpu_executor_check(
		own, calls->stream_wait_event(order->inside, order->captured, 0),
		"joining the capture of a run");
}

/* Returns why a run in the capture `here` cannot be ordered behind those in the capture `open`, or
 * NULL: it can. */
static const char *order_fault(const struct capture *here, const struct capture *open)
{
	if (here->status == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
		return "the capture of the stream is invalid: end it, and capture again";
	if (open->status == CU_STREAM_CAPTURE_STATUS_NONE ||
	    (here->status != CU_STREAM_CAPTURE_STATUS_NONE && here->id == open->id))
		return NULL;
	return "a graph with runs of this workspace, or of one that it follows, is still being "
		"captured: end that capture before further runs";
}

/* --- the executor's functions ------------------------------------------------------------- */

static int follow(struct cei_gpu_executor *own, CUstream stream)
{
	struct capture here, open;
	const char *fault;
	int r = capture_of(own, stream, &here);

	if (!r)
		r = capture_of(own, own->order->inside, &open);
	if (r)
		return r;
	fault = order_fault(&here, &open);
	if (fault)
		return refuse(own, fault);
	if (here.status == CU_STREAM_CAPTURE_STATUS_NONE)
		return follow_last(own, stream);
	return open.status == CU_STREAM_CAPTURE_STATUS_NONE ? 0 : follow_captured(own, stream);
}

static int mark(struct cei_gpu_executor *own, CUstream stream)
{
	struct capture here;
	int r = capture_of(own, stream, &here);

	if (r)
		return r;
	return here.status == CU_STREAM_CAPTURE_STATUS_NONE ? mark_last(own, stream)
		: mark_captured(own, stream);
}

static int in_context(struct cei_gpu_executor *own, CUstream stream,
		      int (*step)(struct cei_gpu_executor *own, CUstream stream))
{
	struct cei_cuda_hold hold;
	int r = cei_cuda_push(own->cuda, own->gpu, &hold);

	if (r)
		return r;
	r = step(own, stream);
	cei_cuda_pop(own->cuda, &hold);
	return r;
}

int cei_gpu_follow_mark(struct cei_executor *executor, void *stream)
{
	return in_context(executor->private, stream, follow);
}

int cei_gpu_mark_stream(struct cei_executor *executor, void *stream)
{
	return in_context(executor->private, stream, mark);
}

void cei_gpu_order_close(struct cei_gpu_executor *own)
{
	const struct cei_cuda_calls *calls = &own->cuda->calls;
	struct cei_gpu_order *order = &own->own_order;

	if (own->order && own->order->last == own)
		own->order->last = NULL;
	if (order->inside)
		(void)calls->stream_destroy(order->inside);
	if (order->captured)
		(void)calls->event_destroy(order->captured);
}
