/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Queues work of the cuda backend on streams of the application: waits, copies, posts and events.
 * In a graph, posts read their values from memory at each replay. Any thread may call these
 * functions; they restore its current CUDA context.
 */

#include "backend/cuda_place.h"
#include "base/clock.h"

/* What stream_enter() changed in the calling thread. */
struct stream_hold {
	struct cei_cuda_hold hold;
	int                  is_foreign;        /* 1: the stream's own context is current, on top
						 * of ours */
};

static void stream_leave(struct cei_cuda_backend *own, const struct stream_hold *hold)
{
	CUcontext context;

	if (hold->is_foreign)
		(void)own->cuda->calls.ctx_pop(&context);
	cei_cuda_pop(own->cuda, &hold->hold);
}

/* If a stream does not belong to our CUDA context, such as a stream of a green context, makes its
 * own context current, because driver calls with the stream need that. Refuses a stream of another
 * GPU. */
static int enter_foreign(struct cei_cuda_backend *own, CUcontext context,
			 struct stream_hold *hold)
{
	CUdevice device = -1;
	CUresult result;

	result = own->cuda->calls.ctx_push(context);
	if (result == CUDA_SUCCESS) {
		hold->is_foreign = 1;
		result = own->cuda->calls.ctx_device(&device);
	}
	if (result != CUDA_SUCCESS)
		return cei_cuda_raise(own->cuda, result, own->rank,
				      "GPU %u: the context of a stream", own->gpu);
	if (device != own->cuda->gpus[own->gpu].device)
		return cei_raise(own->cuda->report, CEOV_ERR_INVALID, 0,
				 "rank %u is on GPU %u, but the stream belongs to GPU %d",
				 own->rank, own->gpu, (int)device);
	return 0;
}

static int stream_enter(struct cei_cuda_backend *own, CUstream stream,
			struct stream_hold *hold)
{
	CUcontext context = NULL;
	CUresult result;
	int r;

	if (!stream || stream == CU_STREAM_LEGACY)
		return cei_raise(own->cuda->report, CEOV_ERR_INVALID, 0,
				 "rank %u: the NULL stream waits for all others and "
				 "cannot wait for marks: create a stream", own->rank);
	r = cei_cuda_push(own->cuda, own->gpu, &hold->hold);
	if (r)
		return r;
	hold->is_foreign = 0;
	result = own->cuda->calls.stream_ctx(stream, &context);
	if (result != CUDA_SUCCESS)
		r = cei_cuda_raise(own->cuda, result, own->rank,
				   "GPU %u: a caller's stream", own->gpu);
	else if (context != own->context)
		r = enter_foreign(own, context, hold);
	if (r)
		stream_leave(own, hold);
	return r;
}

struct op_list {
	struct cei_cuda_backend *own;
	CUstream                 stream;
	uint32_t                 n;
	CUstreamBatchMemOpParams ops[CEI_CUDA_OPS_MAX];
};

static int flush_ops(struct op_list *list)
{
	struct cei_cuda_backend *own = list->own;
	CUresult result;
	uint32_t n = list->n;

	list->n = 0;
	if (!n)
		return 0;
	result = own->cuda->calls.stream_batch(list->stream, n, list->ops, 0);
	if (result != CUDA_SUCCESS)
		return cei_cuda_raise(own->cuda, result, own->rank,
				      "GPU %u: %u memory operations on a caller's stream",
				      own->gpu, n);
	return 0;
}

static int next_op(struct op_list *list, CUstreamBatchMemOpParams **ret_op)
{
	int r = 0;

	if (list->n == CEI_CUDA_OPS_MAX)
		r = flush_ops(list);
	*ret_op = &list->ops[list->n++];
	return r;
}

static int wait_on(struct op_list *list, const struct cei_stream_work *work)
{
	struct cei_cuda_backend *own = list->own;
	struct cei_wait wait = cei_cuda_waits_begin(own, list->stream);
	CUstreamBatchMemOpParams *op;
	uint32_t i;
	int r = 0;

	for (i = 0; i < work->n_awaits && !r; i++) {
		r = next_op(list, &op);
		cei_cuda_wait_op(own, op, &work->awaits[i]);
	}
	if (!r && wait.wants_mark) {
		r = next_op(list, &op);
		cei_cuda_waits_mark_op(own, &wait, op);
	}
	if (!r)
		r = flush_ops(list);
	if (r)
		cei_waits_leave(own->waits, &wait);
	return r;
}

/* Reserves a group of slots for the copies of one call. The caller holds group_lock. */
static int take_group(struct cei_cuda_backend *own, uint32_t *ret_group)
{
	uint64_t deadline = cei_deadline(CEI_CUDA_ACCESS_NS);
	uint32_t group = own->next_group;
	struct cei_backoff backoff;
	CUresult result;

	cei_backoff_reset(&backoff);
	for (;;) {
		result = own->cuda->calls.event_query(own->group_events[group]);
		if (result != CUDA_ERROR_NOT_READY)
			break;
		if (cei_now_ns() >= deadline)
			return cei_raise(own->cuda->report, CEOV_ERR_TIMEOUT, 0,
					 "rank %u: GPU %u: %u raises on callers' streams "
					 "have not run within 5 s: too many are queued",
					 own->rank, own->gpu, CEI_CUDA_GROUPS);
		cei_backoff_step(&backoff);
	}
	if (result != CUDA_SUCCESS)
		return cei_cuda_raise(own->cuda, result, own->rank,
				      "GPU %u: an earlier raise on a stream", own->gpu);
	own->next_group = (group + 1) % CEI_CUDA_GROUPS;
	*ret_group = group;
	return 0;
}

/* Raises up to CEI_CUDA_GROUP_SLOTS counters by copies. */
static int post_group(struct cei_cuda_backend *own, CUstream stream,
		      const struct cei_post *posts, uint32_t n_posts)
{
	const struct cei_cuda_calls *calls = &own->cuda->calls;
	CUresult result = CUDA_SUCCESS;
	CUresult marked;
	uint32_t group = 0;
	uint64_t *slots;
	uint32_t i;
	int r;

	r = take_group(own, &group);
	if (r)
		return r;
	slots = own->pinned->slots[group];
	for (i = 0; i < n_posts && result == CUDA_SUCCESS; i++) {
		if (!cei_cuda_flag_copies(own, CEI_CUDA_FLAG_COPY, posts[i].counter))
			continue;
		slots[i] = posts[i].value;
		result = calls->copy(posts[i].counter, (CUdeviceptr)(uintptr_t)&slots[i],
				     sizeof(slots[i]), stream);
	}
	/* Also after a failure, because copies that were queued before it still read their
	 * slots. */
	marked = calls->event_record(own->group_events[group], stream);
	if (result == CUDA_SUCCESS)
		result = marked;
	if (result != CUDA_SUCCESS)
		return cei_cuda_raise(own->cuda, result, own->rank,
				      "GPU %u: raising by copies on a caller's stream",
				      own->gpu);
	return 0;
}

/* Refuses a stream that is being captured. Its graph would copy from these slots at every replay,
 * when other work uses them. */
static int refuse_capture(struct cei_cuda_backend *own, CUstream stream, const char *what)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUresult result;

	result = own->cuda->calls.stream_is_capturing(stream, &status);
	if (result != CUDA_SUCCESS)
		return cei_cuda_raise(own->cuda, result, own->rank,
				      "GPU %u: a caller's stream", own->gpu);
	if (status != CU_STREAM_CAPTURE_STATUS_NONE)
		return cei_raise(own->cuda->report, CEOV_ERR_INVALID, 0,
				 "rank %u: the stream is being captured: %s", own->rank,
				 what);
	return 0;
}

static int post_by_copies(struct cei_cuda_backend *own, CUstream stream,
			  const struct cei_post *posts, uint32_t n_posts)
{
	uint32_t part;
	int r;

	r = refuse_capture(own, stream, "raises cannot be, where counters are raised "
			   "by copies (CEOVERLAP_FLAG)");
	for (; n_posts && !r; n_posts -= part, posts += part) {
		part = n_posts < CEI_CUDA_GROUP_SLOTS ? n_posts : CEI_CUDA_GROUP_SLOTS;
		pthread_mutex_lock(&own->group_lock);
		r = post_group(own, stream, posts, part);
		pthread_mutex_unlock(&own->group_lock);
	}
	return r;
}

static int post_by_writes(struct op_list *list, enum cei_cuda_flag_form form,
			  const struct cei_post *post)
{
	CUstreamBatchMemOpParams *op;
	int r = 0;

	if (!cei_cuda_flag_copies(list->own, form, post->counter)) {
		r = next_op(list, &op);
		cei_cuda_write_op(op, post->counter, post->value);
	}
	if (!r && post->word) {
		r = next_op(list, &op);
		cei_cuda_write_op(op, post->word, post->value);
	}
	return r;
}

static int post_on(struct op_list *list, const struct cei_stream_work *work)
{
	enum cei_cuda_flag_form form = cei_cuda_flag_form(list->own);
	uint32_t i;
	int r = 0;

	if (form == CEI_CUDA_FLAG_COPY)
		r = post_by_copies(list->own, list->stream, work->posts, work->n_posts);
	for (i = 0; i < work->n_posts && !r; i++)
		r = post_by_writes(list, form, &work->posts[i]);
	return r ? r : flush_ops(list);
}

/* Queues the copies as a batch, which a graph cannot contain. */
static int copy_on(struct cei_cuda_backend *own, CUstream stream,
		   const struct cei_stream_work *work)
{
	struct cei_cuda_copies copies;
	CUresult result = cei_cuda_copy_gapped(own->cuda, stream, work->pieces, work->n_pieces,
					       &copies);

	if (result == CUDA_SUCCESS && copies.n)
		result = cei_cuda_copy_batch(own->cuda, stream, &copies);
	if (result == CUDA_SUCCESS)
		return 0;
	return cei_cuda_raise(own->cuda, result, own->rank,
			      "GPU %u: %u copies on a caller's stream", own->gpu,
			      work->n_pieces);
}

static int queue_now(struct cei_cuda_backend *own, CUstream stream,
		     const struct cei_stream_work *work)
{
	struct op_list list;
	int r = 0;

	list.own = own;
	list.stream = stream;
	list.n = 0;
	if (work->n_pieces || !(work->n_awaits || work->n_posts))
		r = refuse_capture(own, stream, "queued copies cannot be");
	if (!r && work->n_awaits)
		r = wait_on(&list, work);
	if (!r && work->n_pieces)
		r = copy_on(own, stream, work);
	if (!r && work->n_posts)
		r = post_on(&list, work);
	return r;
}

static CUresult copy_value(struct cei_cuda_backend *own, CUstream stream, uint64_t address,
			   uint64_t value_at)
{
	return own->cuda->calls.copy(address, value_at, sizeof(uint64_t), stream);
}

/* Queues the work by calls that work both while the stream is being captured and while it is
 * not. */
static int queue_for_graphs(struct cei_cuda_backend *own, CUstream stream,
			    const struct cei_stream_work *work)
{
	const struct cei_cuda_calls *calls = &own->cuda->calls;
	struct cei_cuda_copies copies;
	CUresult result = CUDA_SUCCESS;
	uint32_t i;

	for (i = 0; i < work->n_awaits && result == CUDA_SUCCESS; i++)
		result = calls->stream_wait_value(stream, work->awaits[i].counter,
						  work->awaits[i].value,
						  CU_STREAM_WAIT_VALUE_GEQ);
	if (result == CUDA_SUCCESS)
		result = cei_cuda_copy_gapped(own->cuda, stream, work->pieces,
					      work->n_pieces, &copies);
	if (result == CUDA_SUCCESS)
		result = cei_cuda_copy_each(own->cuda, stream, &copies);
	for (i = 0; i < work->n_posts && result == CUDA_SUCCESS; i++) {
		result = copy_value(own, stream, work->posts[i].counter, work->value_at);
		if (result == CUDA_SUCCESS && work->posts[i].word)
			result = copy_value(own, stream, work->posts[i].word, work->value_at);
	}
	if (result == CUDA_SUCCESS)
		return 0;
	return cei_cuda_raise(own->cuda, result, own->rank,
			      "GPU %u: waits, copies and raises that a graph may hold",
			      own->gpu);
}

int cei_cuda_stream_queue(struct cei_backend *backend, void *stream,
			  const struct cei_stream_work *work)
{
	struct cei_cuda_backend *own = cei_cuda_backend_of(backend);
	struct stream_hold hold;
	int r = stream_enter(own, stream, &hold);

	if (r)
		return r;
	r = work->value_at ? queue_for_graphs(own, stream, work)
		: queue_now(own, stream, work);
	stream_leave(own, &hold);
	return r;
}

/* --- events -------------------------------------------------------------- */

int cei_cuda_event_open(struct cei_backend *backend, void **ret_event)
{
	struct cei_cuda_backend *own = cei_cuda_backend_of(backend);
	struct cei_cuda_hold hold;
	CUevent event = NULL;
	CUresult result;
	int r;

	r = cei_cuda_push(own->cuda, own->gpu, &hold);
	if (r)
		return r;
	result = own->cuda->calls.event_create(&event, CU_EVENT_DISABLE_TIMING);
	cei_cuda_pop(own->cuda, &hold);
	if (result != CUDA_SUCCESS)
		return cei_cuda_raise(own->cuda, result, own->rank,
				      "GPU %u: creating an event", own->gpu);
	*ret_event = event;
	return 0;
}

void cei_cuda_event_close(struct cei_backend *backend, void *event)
{
	struct cei_cuda_backend *own = cei_cuda_backend_of(backend);
	CUresult result;

	if (!event)
		return;
	result = own->cuda->calls.event_destroy(event);
	if (result != CUDA_SUCCESS)
		(void)cei_cuda_raise(own->cuda, result, own->rank,
				     "GPU %u: destroying an event", own->gpu);
}

int cei_cuda_event_record(struct cei_backend *backend, void *event, void *stream)
{
	struct cei_cuda_backend *own = cei_cuda_backend_of(backend);
	struct stream_hold hold;
	CUresult result = CUDA_SUCCESS;
	int r;

	r = stream_enter(own, stream, &hold);
	if (r)
		return r;
	r = refuse_capture(own, stream, "after_stream cannot be");
	if (!r)
		result = own->cuda->calls.event_record(event, stream);
	stream_leave(own, &hold);
	if (r || result == CUDA_SUCCESS)
		return r;
	return cei_cuda_raise(own->cuda, result, own->rank,
			      "GPU %u: marking a point of the caller's stream", own->gpu);
}
