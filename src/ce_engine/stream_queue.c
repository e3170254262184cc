/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * ceov_plan_queue: a plan as work of a caller's stream. While a stream waits, the driver
 * may hold back all that the process submits later, on any stream (the first launch of a
 * kernel that is not loaded yet does so, and cudaFree()); so nothing that the wait needs
 * is left for later here.
 */

#include <inttypes.h>

#include "ce_engine/context.h"
#include "ce_engine/signal.h"
#include "ce_engine/plan.h"
#include "ce_engine/split.h"

static const char call[] = "ceov_plan_queue";

/* What goes together: behind the same waits, as one batch of copies, then the raises. */
struct batch {
	struct cei_backend     *backend;
	void                   *stream;
	uint64_t                base;
	const struct cei_step  *first;          /* whose marks it waits for; NULL: none yet */
	uint32_t                n_pieces;
	uint32_t                n_posts;
	uint64_t                n_bytes;        /* since marks were raised, at most ... */
	uint64_t                bytes_max;      /* ... unless a transfer alone has more */
	struct cei_piece        pieces[CEI_LANE_BATCH];
	struct cei_post         posts[CEI_LANE_BATCH];
};

/* --- checks ---------------------------------------------------------------------------- */

static struct cei_report *report_of(const struct ceov_plan *plan)
{
	return &plan->object.context->report;
}

static int check_waits(const struct ceov_plan *plan, uint32_t i)
{
	const struct cei_counter *marks[2] = { &plan->steps[i].source_ready,
					       &plan->steps[i].target_free };
	uint32_t k;

	for (k = 0; k < 2; k++) {
		if (!marks[k]->signal ||
		    (marks[k]->address && cei_signal_frees_streams(marks[k]->signal)))
			continue;
		return cei_raise(report_of(plan), CEOV_ERR_NO_ROUTE, 0,
				 "%s: transfer %u: %s: a stream of rank %u cannot wait for "
				 "counters of rank %u's signal, which are %s: launch the plan, "
				 "or wait for a signal of the own rank", call, i,
				 k ? "target_free" : "source_ready", plan->program.rank,
				 marks[k]->signal->rank,
				 marks[k]->address ? "in another process' GPU"
						   : "out of reach");
	}
	return 0;
}

static int check_steps(const struct ceov_plan *plan)
{
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < plan->program.n_transfers; i++) {
		if (!plan->program.transfers[i].has_direct)
			return cei_raise(report_of(plan), CEOV_ERR_INVALID, 0,
					 "%s: transfer %u has no direct way: launch the plan",
					 call, i);
		r = check_waits(plan, i);
	}
	return r;
}

static int check_plan(const struct ceov_plan *plan)
{
	if (plan->floating)
		return cei_raise(report_of(plan), CEOV_ERR_INVALID, 0,
				 "%s: the plan has a floating buffer: launch it", call);
	if (plan->triggers.waits_ahead != CEOV_NOBODY)
		return cei_raise(report_of(plan), CEOV_ERR_INVALID, 0,
				 "%s: transfer %u waits for a mark of one behind it, which a "
				 "stream would never come to: launch the plan, or add them "
				 "the other way round", call, plan->triggers.waits_ahead);
	return check_steps(plan);
}

static int check_base(struct ceov_plan *plan, uint64_t base)
{
	struct cei_report_hold hold = { .is_open = 0 };
	uint32_t n;
	int r;

	pthread_mutex_lock(&plan->lock);
	n = plan->run.n_in_flight;
	r = cei_plan_check_base(plan, base, call, &hold);
	pthread_mutex_unlock(&plan->lock);
	cei_report_hold_end(report_of(plan), &hold);
	if (r || !n)
		return r;
	return cei_raise(report_of(plan), CEOV_ERR_STATE, 0,
			 "%s: %u launches of the plan are in flight: wait for them", call, n);
}

static void keep_base(struct ceov_plan *plan, uint64_t base)
{
	pthread_mutex_lock(&plan->lock);
	plan->run.last_base = base;
	pthread_mutex_unlock(&plan->lock);
}

/* By what counters hold now: what else the stream raises until then is not known. */
static int check_falls(const struct ceov_plan *plan, uint64_t base)
{
	const struct cei_counter *then;
	uint32_t i;

	for (i = 0; i < plan->program.n_transfers; i++) {
		then = &plan->steps[i].then;
		if (then->signal && cei_counter_falls(then, base + then->value))
			return cei_raise(report_of(plan), CEOV_ERR_INVALID, 0,
					 "%s: transfer %u would lower %s to %" PRIu64, call, i,
					 cei_counter_text(then).text, base + then->value);
	}
	return 0;
}

static int check_queue(struct ceov_plan *plan, void *stream, uint64_t base,
		       struct cei_backend **ret_backend)
{
	int r = cei_object_check(plan, &cei_plan_type, call);

	if (r)
		return r;
	if (plan->builder)
		return cei_raise(report_of(plan), CEOV_ERR_STATE, 0,
				 "%s: the plan is not committed", call);
	r = cei_context_stream(plan->object.context, plan->program.rank, stream, call, ret_backend);
	if (!r)
		r = check_plan(plan);
	if (!r)
		r = check_base(plan, base);
	if (!r)
		r = cei_plan_check_parties(plan, call);
	return r ? r : check_falls(plan, base);
}

/* --- queueing -------------------------------------------------------------------------- */

static int copy(struct batch *batch)
{
	uint32_t n = batch->n_pieces;

	batch->n_pieces = 0;
	if (!n)
		return 0;
	return batch->backend->ops->stream_copy(batch->backend, batch->stream, batch->pieces,
						n);
}

static int flush(struct batch *batch)
{
	uint32_t n = batch->n_posts;
	int r = copy(batch);

	batch->n_posts = 0;
	batch->n_bytes = 0;
	if (r || !n)
		return r;
	return batch->backend->ops->stream_post(batch->backend, batch->stream, batch->posts,
						n);
}

/* Nothing to wait for, or the same as the batch. */
static int has_waited(const struct cei_counter *waited, const struct cei_counter *counter)
{
	return !counter->signal ||
	       (waited->signal == counter->signal && waited->index == counter->index &&
		waited->value == counter->value);
}

static int belongs(const struct batch *batch, const struct cei_step *step)
{
	return batch->first && has_waited(&batch->first->source_ready, &step->source_ready) &&
	       has_waited(&batch->first->target_free, &step->target_free);
}

static void add_await(const struct batch *batch, const struct cei_counter *counter,
		      struct cei_await *awaits, uint32_t *n)
{
	if (!counter->signal)
		return;
	awaits[*n].counter = counter->address;
	awaits[*n].value = batch->base + counter->value;
	awaits[*n].abort_word = NULL;           /* streams leave by poison */
	++*n;
}

static int begin(struct batch *batch, const struct cei_step *step)
{
	struct cei_await awaits[2];
	uint32_t n = 0;
	int r = flush(batch);

	batch->first = step;
	add_await(batch, &step->source_ready, awaits, &n);
	add_await(batch, &step->target_free, awaits, &n);
	if (r || !n)
		return r;
	return batch->backend->ops->stream_wait(batch->backend, batch->stream, awaits, n);
}

/* Whole, or row by row where the driver refuses the pitch. */
static int add_pieces(struct batch *batch, const struct cei_piece *piece)
{
	uint64_t i, n = piece->row_bytes ? cei_split_count(piece, UINT64_MAX) : 0;
	int r = 0;

	for (i = 0; !r && i < n; i++) {
		if (batch->n_pieces == CEI_LANE_BATCH)
			r = copy(batch);
		batch->pieces[batch->n_pieces++] = cei_split_at(piece, UINT64_MAX, i);
	}
	return r;
}

static int add_step(struct batch *batch, const struct cei_step *step)
{
	uint64_t n_bytes = step->piece.row_bytes * step->piece.n_rows;
	struct cei_post *post;
	int r = 0;

	if (!belongs(batch, step))
		r = begin(batch, step);
	else if (batch->n_posts == CEI_LANE_BATCH ||
		 (batch->n_posts && batch->n_bytes + n_bytes > batch->bytes_max))
		r = flush(batch);
	batch->n_bytes += n_bytes;
	if (!r)
		r = add_pieces(batch, &step->piece);
	if (r || !step->then.signal)
		return r;
	post = &batch->posts[batch->n_posts++];
	post->counter = step->then.address;
	post->word = step->then.word;
	post->value = batch->base + step->then.value;
	return 0;
}

int ceov_plan_queue(ceov_plan *plan, void *stream, uint64_t base)
{
	struct batch batch;
	uint32_t i;
	int r = check_queue(plan, stream, base, &batch.backend);

	if (r)
		return r;
	batch.stream = stream;
	batch.base = base;
	batch.first = NULL;
	batch.n_pieces = batch.n_posts = 0;
	batch.n_bytes = 0;
	batch.bytes_max = plan->program.mark_group_bytes;
	/* The backend's own refusals, before the first wait is queued. */
	r = batch.backend->ops->stream_copy(batch.backend, stream, NULL, 0);
	if (!r)
		keep_base(plan, base);
	for (i = 0; !r && i < plan->program.n_transfers; i++)
		r = add_step(&batch, &plan->steps[i]);
	return r ? r : flush(&batch);
}
