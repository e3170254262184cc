/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * The lanes of the cuda backend. Each lane is one stream, whatever its direction. cuda.c says which
 * driver calls the functions make. A lane that has failed once refuses everything after that, so
 * that no mark is raised behind a copy that did not happen.
 */

#include <string.h>

#include "backend/cuda_place.h"
#include "base/clock.h"

/* If a lane makes no progress for this long, the driver is asked whether the CUDA context is still
 * valid. */
#define LOOK_NS UINT64_C(10000000)

/* Where in scratch memory a lane warms up, and with how many bytes. The contents do not matter. */
#define SCRATCH_LANE  2048u
#define LANE_WARM_BYTES 64u

static struct cei_cuda_backend *backend_of(const struct cei_lane *lane)
{
	return cei_cuda_backend_of(lane->backend);
}

/* Records that the submit being filled has a wait. */
static void note_wait(const struct cei_lane *lane)
{
	struct cei_cuda_backend *own = backend_of(lane);
	struct cei_cuda_lane *state = lane->private;

	if (!state->waits_until)
		cei_waits_lane_begin(own->waits);
	state->waits_until = state->n_submitted + 1;
}

/* Records that n_done submits are done, and so their waits are over. */
static void went_on(const struct cei_lane *lane, uint64_t n_done)
{
	struct cei_cuda_backend *own = backend_of(lane);
	struct cei_cuda_lane *state = lane->private;

	if (!state->waits_until || n_done < state->waits_until)
		return;
	state->waits_until = 0;
	cei_waits_lane_end(own->waits);
}

static int break_lane(const struct cei_lane *lane, CUresult result, const char *what)
{
	struct cei_cuda_backend *own = backend_of(lane);
	struct cei_cuda_lane *state = lane->private;

	cei_cuda_note(own->cuda, own->gpu, result);
	if (!state->error)
		state->error = cei_cuda_raise(own->cuda, result, own->rank,
					      "GPU %u: lane %u: %s", own->gpu,
					      lane->index, what);
	return state->error;
}

/* Makes the lane's CUDA context current. In an engine's thread it stays current until a lane of
 * another GPU needs another context. With progress_by_caller the thread is the caller's, and
 * leave() restores the caller's context. */
static int enter(const struct cei_lane *lane, struct cei_cuda_hold *ret_hold)
{
	struct cei_cuda_backend *own = backend_of(lane);
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUcontext current = NULL;
	CUresult result;

	if (lane->backend->site->progress_by_caller)
		return cei_cuda_push(own->cuda, own->gpu, ret_hold);
	result = own->cuda->calls.ctx_get(&current);
	if (result == CUDA_SUCCESS && current == own->context)
		return 0;
	result = own->cuda->calls.ctx_set(own->context);
	if (result == CUDA_SUCCESS)
		result = own->cuda->calls.capture_mode(&mode);
	if (result != CUDA_SUCCESS)
		return break_lane(lane, result, "making the context current");
	return 0;
}

static void leave(const struct cei_lane *lane, const struct cei_cuda_hold *hold)
{
	if (lane->backend->site->progress_by_caller)
		cei_cuda_pop(backend_of(lane)->cuda, hold);
}

static int begin(const struct cei_lane *lane, uint32_t n, struct cei_cuda_hold *ret_hold)
{
	const struct cei_cuda_lane *state = lane->private;

	if (state->error)
		return state->error;
	if (state->n_submitted - state->n_reaped >= CEI_LANE_SUBMITS ||
	    n > CEI_LANE_BATCH - state->n_batch)
		return CEOV_FULL;
	return enter(lane, ret_hold);
}

/* Queues what must come before small writes of the lane; see cei_cuda_lead(). */
static CUresult lead(const struct cei_lane *lane)
{
	const struct cei_cuda_lane *state = lane->private;

	return cei_cuda_lead(backend_of(lane), state->stream, state->page->lead);
}

/* Gives recorded posts to the driver, so that later operations come after them. */
static CUresult flush(const struct cei_lane *lane)
{
	struct cei_cuda_lane *state = lane->private;
	unsigned int n = state->n_ops;
	CUresult result;

	state->n_ops = 0;
	if (!n)
		return CUDA_SUCCESS;
	result = lead(lane);
	if (result != CUDA_SUCCESS)
		return result;
	return backend_of(lane)->cuda->calls.stream_batch(state->stream, n, state->ops, 0);
}

/* Queues the lane's one-row copies. If there is only one, and it goes to or from host memory, a
 * plain call is used: it costs less, and the driver never makes a kernel of such a copy. */
static CUresult copy_rows(const struct cei_lane *lane)
{
	struct cei_cuda *cuda = backend_of(lane)->cuda;
	struct cei_cuda_lane *state = lane->private;
	struct cei_cuda_copies *copies = &state->copies;

	if (!copies->n)
		return CUDA_SUCCESS;
	if (copies->n == 1 && (lane->direction == CEI_DIRECTION_IN ||
			       lane->direction == CEI_DIRECTION_OUT))
		return cei_cuda_copy_each(cuda, state->stream, copies);
	return cei_cuda_copy_batch(cuda, state->stream, copies);
}

/* For lanes whose copies could be blocked by streams that wait. Queues copies within the GPU
 * through host memory, and small copies to the GPU as rows with gaps. Returns all other pieces in
 * ret_others. */
static CUresult copy_past_waits(const struct cei_lane *lane, const struct cei_piece *pieces,
				uint32_t n_pieces, struct cei_piece *ret_others,
				uint32_t *ret_n_others)
{
	struct cei_cuda_backend *own = backend_of(lane);
	struct cei_cuda_lane *state = lane->private;
	struct cei_cuda_bounce bounce = { own->cuda, state->stream, state->bounce,
					  CEI_CUDA_LANE_BOUNCE_BYTES };
	CUresult result = CUDA_SUCCESS;
	uint32_t i, n = 0;

	for (i = 0; i < n_pieces && result == CUDA_SUCCESS; i++)
		if (state->bounce && cei_cuda_piece_bounces(own, &pieces[i]))
			result = cei_cuda_copy_bouncing(&bounce, &pieces[i]);
		else if (cei_cuda_piece_needs_queue(own, &pieces[i]))
			result = cei_cuda_copy_as_rows(own->cuda, state->stream, &pieces[i]);
		else
			ret_others[n++] = pieces[i];
	*ret_n_others = n;
	return result;
}

static CUresult copy_all(const struct cei_lane *lane, const struct cei_piece *pieces,
			 uint32_t n_pieces)
{
	struct cei_cuda_lane *state = lane->private;
	struct cei_piece others[CEI_LANE_BATCH];
	CUresult result = flush(lane);

	if (result == CUDA_SUCCESS && cei_cuda_queues_may_block(backend_of(lane))) {
		result = copy_past_waits(lane, pieces, n_pieces, others, &n_pieces);
		pieces = others;
	}
	if (result == CUDA_SUCCESS)
		result = cei_cuda_copy_gapped(backend_of(lane)->cuda, state->stream, pieces,
					      n_pieces, &state->copies);
	if (result == CUDA_SUCCESS)
		result = copy_rows(lane);
	return result;
}

static int lane_copy(struct cei_lane *lane, const struct cei_piece *pieces, uint32_t n_pieces)
{
	struct cei_cuda_lane *state = lane->private;
	struct cei_cuda_hold hold;
	CUresult result;
	uint32_t i;
	int r;

	r = begin(lane, n_pieces, &hold);
	if (r)
		return r;
	state->n_batch += n_pieces;
	for (i = 0; i < n_pieces; i++)
		state->n_bytes += pieces[i].row_bytes * pieces[i].n_rows;
	result = copy_all(lane, pieces, n_pieces);
	leave(lane, &hold);
	return result == CUDA_SUCCESS ? 0 : break_lane(lane, result, "copy");
}

static int lane_wait(struct cei_lane *lane, const struct cei_await *await)
{
	struct cei_cuda_backend *own = backend_of(lane);
	struct cei_cuda_lane *state = lane->private;
	struct cei_cuda_hold hold;
	CUresult result;
	int r;

	r = begin(lane, 1, &hold);
	if (r)
		return r;
	state->n_batch++;
	note_wait(lane);
	result = flush(lane);
	if (result == CUDA_SUCCESS)
		result = own->cuda->calls.stream_wait_value(state->stream, await->counter,
							    await->value,
							    own->wait_flags);
	leave(lane, &hold);
	return result == CUDA_SUCCESS ? 0 : break_lane(lane, result, "wait");
}

static int lane_follow(struct cei_lane *lane, void *event)
{
	struct cei_cuda_lane *state = lane->private;
	struct cei_cuda_hold hold;
	CUresult result;
	int r;

	r = begin(lane, 0, &hold);
	if (r)
		return r;
	/* The stream may be waiting for the event, so the lane counts as one that waits. */
	note_wait(lane);
	result = flush(lane);
	if (result == CUDA_SUCCESS)
		result = backend_of(lane)->cuda->calls.stream_wait_event(state->stream,
									 event, 0);
	leave(lane, &hold);
	return result == CUDA_SUCCESS ? 0 : break_lane(lane, result, "follow");
}

/* Raises a counter by a copy of 8 bytes. The source is a slot of pinned memory that belongs to this
 * submit and post alone. */
static CUresult post_by_copy(const struct cei_lane *lane, const struct cei_post *post,
			     uint32_t index)
{
	const struct cei_cuda_lane *state = lane->private;
	uint64_t *slot =
		&state->page->slots[state->n_submitted % CEI_LANE_SUBMITS][index];

	*slot = post->value;
	return backend_of(lane)->cuda->calls.copy(post->counter,
						  (CUdeviceptr)(uintptr_t)slot,
						  sizeof(*slot), state->stream);
}

static CUresult post_all(const struct cei_lane *lane, const struct cei_post *posts,
			 uint32_t n_posts)
{
	struct cei_cuda_backend *own = backend_of(lane);
	enum cei_cuda_flag_form form = cei_cuda_flag_form(own);
	struct cei_cuda_lane *state = lane->private;
	CUresult result = CUDA_SUCCESS;
	uint32_t i;

	/* The copy is queued at once, so recorded posts must be given to the driver before. */
	if (form == CEI_CUDA_FLAG_COPY)
		result = flush(lane);
	if (form == CEI_CUDA_FLAG_COPY && result == CUDA_SUCCESS)
		result = lead(lane);
	for (i = 0; i < n_posts && result == CUDA_SUCCESS; i++) {
		if (cei_cuda_flag_copies(own, form, posts[i].counter))
			result = post_by_copy(lane, &posts[i], state->n_posts);
		else
			cei_cuda_write_op(&state->ops[state->n_ops++], posts[i].counter,
					  posts[i].value);
		if (posts[i].word)
			cei_cuda_write_op(&state->ops[state->n_ops++], posts[i].word,
					  posts[i].value);
		state->n_posts++;
	}
	return result;
}

static int lane_post(struct cei_lane *lane, const struct cei_post *posts, uint32_t n_posts)
{
	struct cei_cuda_lane *state = lane->private;
	struct cei_cuda_hold hold;
	CUresult result;
	int r;

	r = begin(lane, n_posts, &hold);
	if (r)
		return r;
	state->n_batch += n_posts;
	result = post_all(lane, posts, n_posts);
	leave(lane, &hold);
	return result == CUDA_SUCCESS ? 0 : break_lane(lane, result, "post");
}

/* Queues the write of the submit's number behind all that was appended. */
static CUresult write_number(const struct cei_lane *lane)
{
	struct cei_cuda_lane *state = lane->private;

	if (cei_cuda_aside_suits(backend_of(lane), state))
		return cei_cuda_aside_tell(backend_of(lane), state);
	cei_cuda_write_op(&state->ops[state->n_ops++],
			  (uint64_t)(uintptr_t)&state->page->done,
			  state->n_submitted + 1);
	return flush(lane);
}

static int lane_submit(struct cei_lane *lane)
{
	struct cei_cuda_lane *state = lane->private;
	struct cei_cuda_hold hold;
	CUresult result;
	int r;

	r = begin(lane, 0, &hold);
	if (r)
		return r;
	result = write_number(lane);
	leave(lane, &hold);
	if (result != CUDA_SUCCESS)
		return break_lane(lane, result, "submit");
	state->n_submitted++;
	state->n_batch = 0;
	state->n_posts = 0;
	state->n_bytes = 0;
	return 0;
}

/* From time to time asks the driver for an error while no submit ends. If the CUDA context is lost,
 * the stream never writes the number of a submit again. */
static int look_for_error(struct cei_lane *lane)
{
	struct cei_cuda_lane *state = lane->private;
	uint64_t now = cei_now_ns();
	struct cei_cuda_hold hold;
	CUresult result;
	int r;

	if (!state->look_at_ns)
		state->look_at_ns = now + LOOK_NS;
	if (now < state->look_at_ns)
		return 0;
	state->look_at_ns = now + LOOK_NS;
	r = enter(lane, &hold);
	if (r)
		return r;
	result = backend_of(lane)->cuda->calls.stream_query(state->stream);
	leave(lane, &hold);
	if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY)
		return break_lane(lane, result, "moving");
	return 0;
}

/* The submits of a lane end in order, so the larger of the two numbers is the last one. */
static uint64_t number_done(const struct cei_cuda_lane *state)
{
	/* acquire, both: pair with the write of the number that submit has queued on a stream */
	uint64_t own = atomic_load_explicit(&state->page->done, memory_order_acquire);
	uint64_t aside = atomic_load_explicit(&state->page->done_aside, memory_order_acquire);

	return own > aside ? own : aside;
}

static int lane_reap(struct cei_lane *lane, uint64_t *ret_n_done)
{
	struct cei_cuda_lane *state = lane->private;
	uint64_t n_done = number_done(state);

	*ret_n_done = n_done;
	went_on(lane, n_done);
	if (state->error)
		return state->error;
	if (n_done != state->n_reaped || n_done == state->n_submitted) {
		state->n_reaped = n_done;
		state->look_at_ns = 0;
		return 0;
	}
	return look_for_error(lane);
}

/* Waits for the operations of the lane. What was appended and not submitted is dropped: recorded
 * posts never reach the driver. */
static int lane_drain(struct cei_lane *lane, uint64_t deadline_ns)
{
	struct cei_cuda_backend *own = backend_of(lane);
	struct cei_cuda_lane *state = lane->private;
	struct cei_cuda_hold hold;
	CUresult result;
	int r;

	r = cei_cuda_push(own->cuda, own->gpu, &hold);
	if (r)
		return r;
	state->n_ops = 0;
	result = cei_cuda_idle(own->cuda, state->stream, deadline_ns);
	if (result == CUDA_SUCCESS && state->aside.stream)
		result = cei_cuda_idle(own->cuda, state->aside.stream, deadline_ns);
	cei_cuda_pop(own->cuda, &hold);
	if (result == CUDA_ERROR_NOT_READY)
		return cei_raise(own->cuda->report, CEOV_ERR_TIMEOUT, 0,
				 "rank %u: GPU %u: lane %u did not run dry: a copy "
				 "hangs, or a gate was not opened", own->rank, own->gpu,
				 lane->index);
	state->n_batch = 0;
	state->n_posts = 0;
	state->n_bytes = 0;
	went_on(lane, UINT64_MAX);
	/* A lost context accesses no memory any more. reap() returns its error. */
	if (result != CUDA_SUCCESS)
		(void)break_lane(lane, result, "draining");
	return 0;
}

/* Does nothing: operations on a stream cannot be taken back, and the caller releases waits by
 * poisoning their counters. */
static void lane_stop(struct cei_lane *lane)
{
	(void)lane;
}

/* If the context is lost, or cannot be made current, the lane counts as idle: it accesses no memory
 * any more. */
static int lane_is_idle(struct cei_lane *lane)
{
	struct cei_cuda_backend *own = backend_of(lane);
	const struct cei_cuda_lane *state = lane->private;
	struct cei_cuda_hold hold;
	CUresult result;

	if (!state->stream || cei_cuda_push(own->cuda, own->gpu, &hold))
		return 1;
	result = own->cuda->calls.stream_query(state->stream);
	cei_cuda_pop(own->cuda, &hold);
	cei_cuda_note(own->cuda, own->gpu, result);
	return result != CUDA_ERROR_NOT_READY;
}

/* Uses the stream once, on the copy engine that it will use, because the first use is slower. */
static CUresult warm_stream(const struct cei_lane *lane)
{
	struct cei_cuda_backend *own = backend_of(lane);
	struct cei_cuda_lane *state = lane->private;
	uint64_t scratch = own->scratch + SCRATCH_LANE;
	uint64_t pinned = (uint64_t)(uintptr_t)state->page->slots;
	const struct cei_piece piece = {
		.source = lane->direction == CEI_DIRECTION_IN ? pinned : scratch + LANE_WARM_BYTES,
		.target = lane->direction == CEI_DIRECTION_OUT ? pinned : scratch,
		.row_bytes = LANE_WARM_BYTES,
		.n_rows = 1,
	};
	CUresult result;

	result = copy_all(lane, &piece, 1);
	if (result != CUDA_SUCCESS)
		return result;
	cei_cuda_write_op(&state->ops[state->n_ops++],
			  (uint64_t)(uintptr_t)&state->page->done, 0);
	result = flush(lane);
	if (result != CUDA_SUCCESS)
		return result;
	return cei_cuda_idle(own->cuda, state->stream, cei_deadline(CEI_CUDA_ACCESS_NS));
}

static CUresult open_stream(const struct cei_lane *lane)
{
	struct cei_cuda_backend *own = backend_of(lane);
	const struct cei_cuda_calls *calls = &own->cuda->calls;
	struct cei_cuda_lane *state = lane->private;
	void *page = NULL;
	CUresult result;

	result = calls->stream_create(&state->stream, CU_STREAM_NON_BLOCKING,
				      lane->direction == CEI_DIRECTION_ANY ? own->gate_priority :
								     own->plain_priority);
	if (result != CUDA_SUCCESS)
		return result;
	result = calls->host_alloc(&page, sizeof(*state->page),
				   CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
	if (result != CUDA_SUCCESS)
		return result;
	memset(page, 0, sizeof(*state->page));
	state->page = page;
	if (lane->direction == CEI_DIRECTION_PEER || lane->direction == CEI_DIRECTION_ANY)
		result = calls->host_alloc(&state->bounce, CEI_CUDA_LANE_BOUNCE_BYTES,
					   CU_MEMHOSTALLOC_PORTABLE |
					   CU_MEMHOSTALLOC_DEVICEMAP);
	if (result == CUDA_SUCCESS && lane->direction == CEI_DIRECTION_PEER &&
	    lane->backend->site->has_clients)
		result = cei_cuda_aside_open(own, &state->aside);
	return result == CUDA_SUCCESS ? warm_stream(lane) : result;
}

static int lane_open(struct cei_lane *lane)
{
	struct cei_cuda_backend *own = backend_of(lane);
	struct cei_cuda_hold hold;
	CUresult result;
	int r;

	r = cei_cuda_push(own->cuda, own->gpu, &hold);
	if (r)
		return r;
	result = open_stream(lane);
	cei_cuda_pop(own->cuda, &hold);
	return result == CUDA_SUCCESS ? 0 : break_lane(lane, result, "opening");
}

/* Memory to which a stuck lane may still write is not freed. Errors are ignored, because no caller
 * could handle them. */
static void lane_close(struct cei_lane *lane)
{
	struct cei_cuda_backend *own = backend_of(lane);
	struct cei_cuda_lane *state = lane->private;
	struct cei_cuda_hold hold;
	int r;

	if (!state->stream)
		return;
	r = lane_drain(lane, cei_deadline(CEI_CUDA_ACCESS_NS));
	if (cei_cuda_push(own->cuda, own->gpu, &hold))
		return;
	cei_cuda_aside_close(own, &state->aside);
	(void)own->cuda->calls.stream_destroy(state->stream);
	state->stream = NULL;
	if (!r && state->page)
		(void)own->cuda->calls.host_free(state->page);
	if (!r && state->bounce)
		(void)own->cuda->calls.host_free(state->bounce);
	state->page = NULL;
	state->bounce = NULL;
	cei_cuda_pop(own->cuda, &hold);
}

const struct cei_lane_ops cei_cuda_lanes = {
	.lane_bytes = sizeof(struct cei_cuda_lane),
	.open       = lane_open,
	.close      = lane_close,
	.wait       = lane_wait,
	.follow     = lane_follow,
	.copy       = lane_copy,
	.post       = lane_post,
	.submit     = lane_submit,
	.reap       = lane_reap,
	.drain      = lane_drain,
	.stop       = lane_stop,
	.is_idle    = lane_is_idle,
};
