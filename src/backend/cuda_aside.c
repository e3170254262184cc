/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Tells of large copies of a lane from another stream. A copy that follows the write of a submit's
 * number on the lane's own stream begins some 7 us after the copy before it; one that follows
 * nothing but the other copy begins after 4 us (docs/results/4xh200.md). So where a
 * daemon cuts a transfer into chunks, whose ends it must see, the numbers of all but the last go on
 * a stream aside, which waits for an event behind the copy.
 *
 * The stream aside waits for copies that have been queued, and for nothing else. It is not used
 * where streams that wait for marks may fill the GPU's hardware queues, since it could stand behind
 * one of them.
 */

#include "backend/cuda_place.h"

/* Smaller copies: two more calls of the driver cost more than is won. */
#define ASIDE_BYTES (UINT64_C(4) << 20)

int cei_cuda_aside_suits(struct cei_cuda_backend *own, const struct cei_cuda_lane *state)
{
	return state->aside.stream && !state->n_posts && !state->n_ops &&
	       state->n_bytes >= ASIDE_BYTES && !cei_cuda_queues_may_block(own);
}

CUresult cei_cuda_aside_open(struct cei_cuda_backend *own, struct cei_cuda_aside *aside)
{
	const struct cei_cuda_calls *calls = &own->cuda->calls;
	CUresult result;

	result = calls->stream_create(&aside->stream, CU_STREAM_NON_BLOCKING,
				      own->plain_priority);
	if (result == CUDA_SUCCESS)
		result = calls->event_create(&aside->event, CU_EVENT_DISABLE_TIMING);
	return result;
}

CUresult cei_cuda_aside_tell(struct cei_cuda_backend *own, struct cei_cuda_lane *state)
{
	const struct cei_cuda_calls *calls = &own->cuda->calls;
	CUstreamBatchMemOpParams op;
	CUresult result;

	result = calls->event_record(state->aside.event, state->stream);
	if (result == CUDA_SUCCESS)     /* the event is free again when this call has returned */
		result = calls->stream_wait_event(state->aside.stream, state->aside.event, 0);
	if (result != CUDA_SUCCESS)
		return result;
	cei_cuda_write_op(&op, (uint64_t)(uintptr_t)&state->page->done_aside,
			  state->n_submitted + 1);
	return calls->stream_batch(state->aside.stream, 1, &op, 0);
}

void cei_cuda_aside_close(struct cei_cuda_backend *own, struct cei_cuda_aside *aside)
{
	const struct cei_cuda_calls *calls = &own->cuda->calls;

	if (aside->event)
		(void)calls->event_destroy(aside->event);
	if (aside->stream)
		(void)calls->stream_destroy(aside->stream);
	aside->event = NULL;
	aside->stream = NULL;
}
