/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Makes whole plans into the work of streams. */

#include "ce_engine/exec/lower.h"

#include "ce_engine/program/program_cut.h"

/* Most marks of a run that are not waited for again; of further ones each step's are. */
#define WAITED_MAX 64u

/* Steps that are queued together: their waits, then one batch of copies, then the posts. */
struct batch {
	const struct cei_stream_run *run;
	const struct cei_step       *last;      /* the step whose marks further steps of the batch
						 * have, too; NULL: no step was added yet */
	uint64_t                     n_bytes;   /* of its steps */
	uint32_t                     n_awaits;
	uint32_t                     n_pieces;
	uint32_t                     n_posts;
	struct cei_await             awaits[CEI_LANE_BATCH];
	struct cei_piece             pieces[CEI_LANE_BATCH];
	struct cei_post              posts[CEI_LANE_BATCH];
	uint32_t                     n_waited;
	const struct cei_counter    *waited[WAITED_MAX]; /* marks of the run, of this batch or
							  * earlier ones */
};

static int flush(struct batch *batch)
{
	const struct cei_stream_run *run = batch->run;
	const struct cei_stream_work work = {
		.awaits = batch->awaits,
		.pieces = batch->pieces,
		.posts = batch->posts,
		.n_awaits = batch->n_awaits,
		.n_pieces = batch->n_pieces,
		.n_posts = batch->n_posts,
		.value_at = run->value_at,
	};

	batch->n_awaits = batch->n_pieces = batch->n_posts = 0;
	batch->n_bytes = 0;
	if (!work.n_awaits && !work.n_pieces && !work.n_posts)
		return 0;
	return run->backend->ops->stream_queue(run->backend, run->stream, &work);
}

static int is_alike(const struct cei_counter *counter, const struct cei_counter *other)
{
	return cei_counter_is_same(counter, other) &&
	       (!counter->signal || counter->value == other->value);
}

/* Whether the step may stand in the batch: its marks are those of the steps before it, or it is a
 * raise alone. A copy without marks does not join copies that wait, since copies of a batch have no
 * order: what a plan copies behind all others, such as an own shard, would go beside them. */
static int belongs(const struct batch *batch, const struct cei_step *step)
{
	const struct cei_step *last = batch->last;
	int waits = step->source_ready.signal || step->target_free.signal;

	if (!last || step->n_also)
		return 0;
	return (!waits && !step->piece.n_rows) ||
	       (is_alike(&step->source_ready, &last->source_ready) &&
		is_alike(&step->target_free, &last->target_free));
}

/* Whether the stream has waited for the mark in this run. Counters only rise, so once is enough.
 * The exception: after an abort has written its poison, a peer's late raise may overwrite it with a
 * smaller value. The run has failed then, and nobody uses its data. */
static int has_waited(const struct batch *batch, const struct cei_counter *counter)
{
	uint32_t i;

	for (i = 0; i < batch->n_waited; i++)
		if (cei_counter_is_same(batch->waited[i], counter) &&
		    batch->waited[i]->value >= counter->value)
			return 1;
	return 0;
}

static void add_await(struct batch *batch, const struct cei_counter *counter)
{
	if (!counter->signal || has_waited(batch, counter))
		return;
	batch->awaits[batch->n_awaits++] = cei_lower_await(counter, batch->run->base);
	if (batch->n_waited < WAITED_MAX)
		batch->waited[batch->n_waited++] = counter;
}

static int has_room(const struct batch *batch, uint64_t n_bytes)
{
	return !batch->n_posts ||
	       (batch->n_posts < CEI_LANE_BATCH &&
		batch->n_bytes + n_bytes <= batch->run->plan->program.mark_group_bytes);
}

/* Whether the batch can wait for the marks of one more step: it does nothing but wait so far. */
static int may_wait_more(const struct batch *batch)
{
	return !batch->n_pieces && !batch->n_posts && batch->n_awaits + 2 <= CEI_LANE_BATCH;
}

/* Adds the marks that the step awaits beside its target_free, in a batch that only waits so far. */
static int add_also(struct batch *batch, const struct cei_step *step)
{
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < step->n_also; i++) {
		if (batch->n_awaits == CEI_LANE_BATCH)
			r = flush(batch);
		add_await(batch, &step->also[i].counter);
	}
	return r;
}

/* Begins a new batch where the step waits for other marks, or does not fit in. */
static int make_room(struct batch *batch, const struct cei_step *step, uint64_t n_bytes)
{
	int r = 0;

	if (belongs(batch, step))
		return has_room(batch, n_bytes) ? 0 : flush(batch);
	if (!may_wait_more(batch))
		r = flush(batch);
	batch->last = step;
	add_await(batch, &step->source_ready);
	add_await(batch, &step->target_free);
	return r ? r : add_also(batch, step);
}

/* Adds a piece as a whole, or row by row if its pitch is larger than the driver allows. */
static int add_pieces(struct batch *batch, const struct cei_piece *piece)
{
	uint64_t i, n = piece->row_bytes ? cei_split_count(piece, UINT64_MAX) : 0;
	int r = 0;

	for (i = 0; !r && i < n; i++) {
		if (batch->n_pieces == CEI_LANE_BATCH)
			r = flush(batch);
		batch->pieces[batch->n_pieces++] = cei_split_at(piece, UINT64_MAX, i);
	}
	return r;
}

static int add_step(struct batch *batch, const struct cei_step *step)
{
	const struct cei_stream_run *run = batch->run;
	struct cei_piece piece = cei_lower_piece(step, &step->piece, run->floating);
	uint64_t n_bytes = piece.row_bytes * piece.n_rows;
	int r = make_room(batch, step, n_bytes);

	if (!r)
		r = add_pieces(batch, &piece);
	batch->n_bytes += n_bytes;
	if (!r && step->then.signal)
		batch->posts[batch->n_posts++] = cei_lower_post(&step->then, run->base);
	return r;
}

int cei_lower_to_stream(const struct cei_stream_run *run)
{
	struct batch batch;
	uint32_t i;
	int r = 0;

	batch.run = run;
	batch.last = NULL;
	batch.n_waited = 0;
	batch.n_bytes = 0;
	batch.n_awaits = batch.n_pieces = batch.n_posts = 0;
	for (i = 0; !r && i < run->plan->program.n_transfers; i++)
		if (!run->value_at || run->plan->steps[i].piece.n_rows)
			r = add_step(&batch, &run->plan->steps[i]);
	return r ? r : flush(&batch);
}
