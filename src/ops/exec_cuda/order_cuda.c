/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Outside of graphs an event behind the last run gives the order. A graph that is being captured
 * can wait only for events that were recorded in the same capture, so it has an event of its own.
 * Whether that capture is still going on only the driver knows: a stream of the library's is made a
 * part of the capture, and is asked. No work is ever queued on that stream.
 */

#include "ops/exec_cuda/order_cuda.h"

#include <string.h>

struct capture {
	CUstreamCaptureStatus status;
	cuuint64_t            id;       /* unique in this process; not set if nothing is captured */
};

static int check(const struct cei_gpu_order *order, CUresult result, const char *what)
{
	if (result == CUDA_SUCCESS)
		return 0;
	return cei_cuda_raise(order->cuda, result, order->rank, "rank %u: GPU %u: %s", order->rank,
			      order->gpu, what);
}

/* Asks which capture the stream is a part of; a NULL stream is a part of none. */
static int capture_of(const struct cei_gpu_order *order, CUstream stream,
		      struct capture *ret_capture)
{
	CUresult result = CUDA_SUCCESS;

	memset(ret_capture, 0, sizeof(*ret_capture));
	ret_capture->status = CU_STREAM_CAPTURE_STATUS_NONE;
	if (stream)
		result = order->cuda->calls.capture_info(stream, &ret_capture->status,
							 &ret_capture->id);
	return check(order, result, "asking for a stream's capture");
}

/* --- outside of graphs ------------------------------------------------------------------ */

/* Returns the stream's id, or 0: it is not known. A new stream may have the handle of one that was
 * destroyed, but not its id. CU_STREAM_PER_THREAD is another stream in each thread, and the
 * driver's manual does not say whose id it would tell. */
static unsigned long long id_of(const struct cei_gpu_order *order, CUstream stream)
{
	unsigned long long id = 0;

	if (stream == CU_STREAM_PER_THREAD ||
	    order->cuda->calls.stream_id(stream, &id) != CUDA_SUCCESS)
		return 0;
	return id;
}

static int follow_last(const struct cei_gpu_order *order, CUstream stream)
{
	const struct cei_gpu_order *last = order->leader->last;

	if (!last || (last->mark_on && last->mark_on == order->followed_id))
		return 0;
	return check(order, order->cuda->calls.stream_wait_event(stream, last->mark, 0),
		     "following the run before");
}

static int mark_last(struct cei_gpu_order *order, CUstream stream)
{
	CUresult result = order->cuda->calls.event_record(order->mark, stream);

	if (result == CUDA_SUCCESS) {
		order->leader->last = order;
		order->mark_on = order->followed_id;
	}
	return check(order, result, "recording the end of a run");
}

/* --- in a graph that is being captured --------------------------------------------------- */

/* On the same stream the run before comes first anyway, and an edge in the graph would only cost
 * time. Streams are compared by their handles, because the driver does not tell a stream's id while
 * it captures. A stream that is in a capture is not destroyed before it has joined another one. */
static int follow_captured(const struct cei_gpu_order *order, CUstream stream)
{
	const struct cei_gpu_order *leader = order->leader;

	if (stream == leader->captured_on)
		return 0;
	return check(order, order->cuda->calls.stream_wait_event(stream, leader->captured, 0),
		     "following the captured run before");
}

static CUresult make_captured(struct cei_gpu_order *leader)
{
	const struct cei_cuda_calls *calls = &leader->cuda->calls;
	CUresult result = CUDA_SUCCESS;

	if (!leader->captured)
		result = calls->event_create(&leader->captured, CU_EVENT_DISABLE_TIMING);
	if (result == CUDA_SUCCESS && !leader->inside)
		result = calls->stream_create(&leader->inside, CU_STREAM_NON_BLOCKING, 0);
	return result;
}

static int mark_captured(const struct cei_gpu_order *order, CUstream stream)
{
	const struct cei_cuda_calls *calls = &order->cuda->calls;
	struct cei_gpu_order *leader = order->leader;
	struct capture open;
	CUresult result = make_captured(leader);
	int r;

	if (result == CUDA_SUCCESS)
		result = calls->event_record(leader->captured, stream);
	leader->captured_on = stream;
	r = check(order, result, "marking the end of a captured run");
	if (!r)
		r = capture_of(order, leader->inside, &open);
	if (r || open.status != CU_STREAM_CAPTURE_STATUS_NONE)
		return r;
	return check(order, calls->stream_wait_event(leader->inside, leader->captured, 0),
		     "joining the capture of a run");
}

/* Refuses a run in the capture `here` if it cannot be ordered behind those in the capture `open`,
 * before anything has changed. */
static int check_captures(const struct cei_gpu_order *order, const struct capture *here,
			  const struct capture *open)
{
	struct cei_report *report = order->cuda->report;

	if (here->status == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
		return cei_raise(report, CEOV_ERR_STATE, 0,
				 "rank %u: GPU %u: the capture of the stream is invalid: end it, "
				 "and capture again", order->rank, order->gpu);
	if (open->status == CU_STREAM_CAPTURE_STATUS_NONE ||
	    (here->status != CU_STREAM_CAPTURE_STATUS_NONE && here->id == open->id))
		return 0;
	return cei_raise(report, CEOV_ERR_STATE, 0,
			 "rank %u: GPU %u: a graph with runs of %s is still being captured: end "
			 "that capture before further runs", order->rank, order->gpu, order->whose);
}

/* --- the order's functions ---------------------------------------------------------------- */

/* Keeps what was asked about the stream of a run until its mark: each question to the driver is a
 * part of the thread's time of a call. */
static void keep(struct cei_gpu_order *order, CUstream stream, const struct capture *here)
{
	order->is_captured = here->status != CU_STREAM_CAPTURE_STATUS_NONE;
	order->followed_on = stream;
	order->followed_id = order->is_captured ? 0 : id_of(order, stream);
}

int cei_gpu_order_follow(struct cei_gpu_order *order, CUstream stream)
{
	struct capture here, open;
	int r = capture_of(order, stream, &here);

	order->followed_on = NULL;
	if (!r)
		r = capture_of(order, order->leader->inside, &open);
	if (!r)
		r = check_captures(order, &here, &open);
	if (r)
		return r;
	keep(order, stream, &here);
	if (!order->is_captured)
		return follow_last(order, stream);
	return open.status == CU_STREAM_CAPTURE_STATUS_NONE ? 0 : follow_captured(order, stream);
}

int cei_gpu_order_mark(struct cei_gpu_order *order, CUstream stream)
{
	struct capture here;
	int r = 0;

	if (!stream || stream != order->followed_on) {
		r = capture_of(order, stream, &here);
		if (r)
			return r;
		keep(order, stream, &here);
	}
	order->followed_on = NULL;
	return order->is_captured ? mark_captured(order, stream) : mark_last(order, stream);
}

int cei_gpu_order_open(struct cei_gpu_order *order, struct cei_cuda *cuda, uint32_t gpu,
		       uint32_t rank, const char *whose)
{
	order->cuda = cuda;
	order->gpu = gpu;
	order->rank = rank;
	order->whose = whose;
	if (!order->leader)
		order->leader = order;
	return check(order, cuda->calls.event_create(&order->mark, CU_EVENT_DISABLE_TIMING),
		     "an event");
}

void cei_gpu_order_close(struct cei_gpu_order *order)
{
	if (!order->cuda)
		return;
	if (order->leader->last == order)
		order->leader->last = NULL;
	if (order->inside)
		(void)order->cuda->calls.stream_destroy(order->inside);
	if (order->captured)
		(void)order->cuda->calls.event_destroy(order->captured);
	if (order->mark)
		(void)order->cuda->calls.event_destroy(order->mark);
}
