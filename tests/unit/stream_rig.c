/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "stream_rig.h"

#include <stdio.h>
#include <string.h>

#include "backend/host.h"
#include "ce_engine/engine/engine.h"
#include "ce_engine/objects/context.h"

/* --- playing the stream ---------------------------------------------------- */

static void note(struct played_stream *stream, char what, uint32_t n)
{
	size_t used = strlen(stream->log);

	if (n)
		(void)snprintf(stream->log + used, sizeof(stream->log) - used, "%c%u ", what, n);
}

static void do_copies(const struct cei_stream_work *work)
{
	const struct cei_piece *piece;
	uint64_t row;
	uint32_t i;

	for (i = 0; i < work->n_pieces; i++) {
		piece = &work->pieces[i];
		for (row = 0; row < piece->n_rows; row++)
			memcpy((void *)(uintptr_t)(piece->target +
						   row * piece->target_pitch_bytes),
			       (const void *)(uintptr_t)(piece->source +
							 row * piece->source_pitch_bytes),
			       piece->row_bytes);
	}
}

static void do_posts(const struct cei_stream_work *work)
{
	uint64_t *counter;
	uint32_t i;

	for (i = 0; i < work->n_posts; i++) {
		counter = (uint64_t *)(uintptr_t)work->posts[i].counter;
		*counter = work->value_at ? *(const uint64_t *)(uintptr_t)work->value_at
			: work->posts[i].value;
	}
}

static int stream_queue(struct cei_backend *backend, void *token,
			const struct cei_stream_work *work)
{
	struct played_stream *stream = token;
	uint32_t i;

	if (stream->is_capturing)
		return cei_raise(backend->site->report, CEOV_ERR_INVALID, 0, "captured");
	ck_assert_uint_le(work->n_awaits, CEI_LANE_BATCH);
	ck_assert_uint_le(work->n_pieces, CEI_LANE_BATCH);
	for (i = 0; i < work->n_awaits; i++)
		ck_assert_uint_ge(*(const uint64_t *)(uintptr_t)work->awaits[i].counter,
				  work->awaits[i].value);
	if (!stream->is_dry)
		do_copies(work);
	do_posts(work);
	stream->n_pieces += work->n_pieces;
	note(stream, 'w', work->n_awaits);
	note(stream, 'c', work->n_pieces);
	note(stream, 'r', work->n_posts);
	return 0;
}

/* --- opening and closing --------------------------------------------------- */

void stream_rig_open(struct stream_rig *rig)
{
	memset(rig, 0, sizeof(*rig));
	rig->context = testing_open_turned(2, NULL);
	rig->ops = cei_backend_host;
	rig->ops.caps |= CEI_CAP_STREAMS;
	rig->ops.stream_queue = stream_queue;
	rig->context->works.engines[0].backend->ops = &rig->ops;
	rig->ready = testing_signal(rig->context, 0, STREAM_RIG_PARTS);
	rig->arrived = testing_signal(rig->context, 0, STREAM_RIG_MARKS);
	rig->source = testing_buffer(rig->context, 1, STREAM_RIG_SIZE);
	rig->target = testing_buffer(rig->context, 0, STREAM_RIG_SIZE);
	testing_fill(ceov_buffer_base(rig->source, 1), STREAM_RIG_SIZE, testing_seed());
	testing_fill(rig->bytes, STREAM_RIG_SIZE, testing_seed());
	rig->plan = testing_plan(rig->context, 0);
}

void stream_rig_close(struct stream_rig *rig)
{
	ceov_close(rig->context);
}

struct ceov_transfer stream_rig_part(const struct stream_rig *rig, uint32_t i)
{
	struct ceov_transfer transfer = testing_transfer(rig->source, rig->target,
							 STREAM_RIG_BYTES);

	transfer.source.offset_bytes = transfer.target.offset_bytes = i * STREAM_RIG_BYTES;
	return transfer;
}

struct ceov_transfer stream_rig_part_behind(const struct stream_rig *rig, uint32_t i,
					uint32_t ready)
{
	struct ceov_transfer transfer = stream_rig_part(rig, i);

	transfer.source_ready = testing_mark(rig->ready, ready, 1);
	return transfer;
}

void stream_rig_add_raise(const struct stream_rig *rig, uint32_t index)
{
	struct ceov_transfer transfer = testing_transfer(NULL, NULL, 0);

	transfer.then = testing_mark(rig->arrived, index, 1);
	testing_add(rig->plan, &transfer);
}

void stream_rig_commit(const struct stream_rig *rig)
{
	ck_assert_int_eq(ceov_plan_commit(rig->plan), 0);
}

int stream_rig_queue(struct stream_rig *rig)
{
	rig->stream.log[0] = 0;
	return ceov_plan_queue(rig->plan, &rig->stream, STREAM_RIG_BASE);
}

void stream_rig_queue_ready(struct stream_rig *rig, const char *log)
{
	uint32_t i;

	for (i = 0; i < STREAM_RIG_PARTS; i++)
		ck_assert_int_eq(ceov_signal_raise(rig->ready, i, STREAM_RIG_BASE + 1), 0);
	ck_assert_int_eq(stream_rig_queue(rig), 0);
	ck_assert_str_eq(rig->stream.log, log);
}

uint64_t stream_rig_arrived(const struct stream_rig *rig, uint32_t index)
{
	uint64_t value;

	ck_assert_int_eq(ceov_signal_value(rig->arrived, index, &value), 0);
	return value;
}
