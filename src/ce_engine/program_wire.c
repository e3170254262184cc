/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Programs to bytes and back, by the cursors of wire.h, which check bounds. */

#include "ce_engine/program_wire.h"

#include <assert.h>
#include <string.h>

#include "ipc/wire.h"

#define HEAD_BYTES     16u
#define FIELDS_BYTES   40u
#define BUFFER_BYTES   24u
#define SIGNAL_BYTES   8u
#define MARK_BYTES     16u
#define TRANSFER_BYTES (2u * 20u + 16u + 3u * MARK_BYTES)

/* What follows the head takes. Numbers in the bounds of numbers_fit() do not overflow it. */
static size_t body_bytes(const struct cei_program *program)
{
	return FIELDS_BYTES + (size_t)program->n_buffers * BUFFER_BYTES +
		(size_t)program->n_signals * SIGNAL_BYTES +
		(size_t)program->n_transfers * TRANSFER_BYTES +
		(size_t)program->n_expected * MARK_BYTES;
}

size_t cei_program_bytes(const struct cei_program *program)
{
	return HEAD_BYTES + body_bytes(program);
}

/* --- writing ------------------------------------------------------------- */

static void put_mark(struct cei_writer *writer, const struct cei_program_mark *mark)
{
	cei_wire_put_u32(writer, mark->signal);
	cei_wire_put_u32(writer, mark->counter);
	cei_wire_put_u64(writer, mark->value);
}

static void put_spot(struct cei_writer *writer, const struct cei_program_spot *spot)
{
	cei_wire_put_u32(writer, spot->buffer);
	cei_wire_put_u64(writer, spot->offset_bytes);
	cei_wire_put_u64(writer, spot->pitch_bytes);
}

static void put_transfer(struct cei_writer *writer,
			 const struct cei_program_transfer *transfer)
{
	put_spot(writer, &transfer->source);
	put_spot(writer, &transfer->target);
	cei_wire_put_u64(writer, transfer->row_bytes);
	cei_wire_put_u64(writer, transfer->n_rows);
	put_mark(writer, &transfer->source_ready);
	put_mark(writer, &transfer->target_free);
	put_mark(writer, &transfer->then);
}

static void put_fields(struct cei_writer *writer, const struct cei_program *program)
{
	cei_wire_put_u32(writer, program->rank);
	cei_wire_put_u32(writer, program->n_ranks);
	cei_wire_put_u64(writer, program->max_chunk_bytes);
	cei_wire_put_u32(writer, program->has_template);
	cei_wire_put_u32(writer, program->floating);
	cei_wire_put_u32(writer, program->n_buffers);
	cei_wire_put_u32(writer, program->n_signals);
	cei_wire_put_u32(writer, program->n_transfers);
	cei_wire_put_u32(writer, program->n_expected);
}

void cei_program_write(const struct cei_program *program, void *bytes)
{
	struct cei_writer writer = cei_writer_on(bytes, cei_program_bytes(program));
	uint32_t i;

	cei_wire_put_u32(&writer, CEI_PROGRAM_MAGIC);
	cei_wire_put_u32(&writer, CEI_PROGRAM_VERSION);
	cei_wire_put_u64(&writer, body_bytes(program));
	put_fields(&writer, program);
	for (i = 0; i < program->n_buffers; i++) {
		cei_wire_put_u32(&writer, program->buffers[i].rank);
		cei_wire_put_u32(&writer, program->buffers[i].flags);
		cei_wire_put_u64(&writer, program->buffers[i].start);
		cei_wire_put_u64(&writer, program->buffers[i].size_bytes);
	}
	for (i = 0; i < program->n_signals; i++) {
		cei_wire_put_u32(&writer, program->signals[i].rank);
		cei_wire_put_u32(&writer, program->signals[i].n_counters);
	}
	for (i = 0; i < program->n_transfers; i++)
		put_transfer(&writer, &program->transfers[i]);
	for (i = 0; i < program->n_expected; i++)
		put_mark(&writer, &program->expected[i]);
	assert(!writer.failed && writer.at == writer.n_room);
}

/* --- reading ------------------------------------------------------------- */

static struct cei_program_mark get_mark(struct cei_reader *reader)
{
	struct cei_program_mark mark;

	mark.signal = cei_wire_get_u32(reader);
	mark.counter = cei_wire_get_u32(reader);
	mark.value = cei_wire_get_u64(reader);
	return mark;
}

static struct cei_program_spot get_spot(struct cei_reader *reader)
{
	struct cei_program_spot spot;

	spot.buffer = cei_wire_get_u32(reader);
	spot.offset_bytes = cei_wire_get_u64(reader);
	spot.pitch_bytes = cei_wire_get_u64(reader);
	return spot;
}

static void get_transfer(struct cei_reader *reader, struct cei_program_transfer *ret_transfer)
{
	ret_transfer->source = get_spot(reader);
	ret_transfer->target = get_spot(reader);
	ret_transfer->row_bytes = cei_wire_get_u64(reader);
	ret_transfer->n_rows = cei_wire_get_u64(reader);
	ret_transfer->source_ready = get_mark(reader);
	ret_transfer->target_free = get_mark(reader);
	ret_transfer->then = get_mark(reader);
}

static void get_fields(struct cei_reader *reader, struct cei_program *ret_program)
{
	ret_program->rank = cei_wire_get_u32(reader);
	ret_program->n_ranks = cei_wire_get_u32(reader);
	ret_program->max_chunk_bytes = cei_wire_get_u64(reader);
	ret_program->has_template = cei_wire_get_u32(reader);
	ret_program->floating = cei_wire_get_u32(reader);
	ret_program->n_buffers = cei_wire_get_u32(reader);
	ret_program->n_signals = cei_wire_get_u32(reader);
	ret_program->n_transfers = cei_wire_get_u32(reader);
	ret_program->n_expected = cei_wire_get_u32(reader);
}

/* No transfer names more than two buffers and three signals. */
static int numbers_fit(const struct cei_program *program)
{
	return program->n_transfers <= CEI_PROGRAM_TRANSFERS_MAX &&
		program->n_expected <= CEI_PROGRAM_TRANSFERS_MAX &&
		program->n_buffers <= 2 * program->n_transfers &&
		program->n_signals <= 3 * program->n_transfers;
}

static void get_lists(struct cei_reader *reader, struct cei_program *program)
{
	uint32_t i;

	for (i = 0; i < program->n_buffers; i++) {
		program->buffers[i].rank = cei_wire_get_u32(reader);
		program->buffers[i].flags = cei_wire_get_u32(reader);
		program->buffers[i].start = cei_wire_get_u64(reader);
		program->buffers[i].size_bytes = cei_wire_get_u64(reader);
	}
	for (i = 0; i < program->n_signals; i++) {
		program->signals[i].rank = cei_wire_get_u32(reader);
		program->signals[i].n_counters = cei_wire_get_u32(reader);
	}
	for (i = 0; i < program->n_transfers; i++)
		get_transfer(reader, &program->transfers[i]);
	for (i = 0; i < program->n_expected; i++)
		program->expected[i] = get_mark(reader);
}

static int read_body(struct cei_reader *reader, size_t n_bytes, struct cei_program *program)
{
	int r;

	get_fields(reader, program);
	if (reader->failed || !numbers_fit(program) || body_bytes(program) != n_bytes)
		return CEOV_ERR_INVALID;
	r = cei_program_alloc(program);
	if (r)
		return r;
	get_lists(reader, program);
	r = cei_reader_end(reader);
	return r ? r : cei_program_verify(program);
}

int cei_program_read(const void *bytes, size_t n_bytes, struct cei_program *ret_program)
{
	struct cei_reader reader = cei_reader_on(bytes, n_bytes);
	struct cei_program program;
	uint64_t n_body_bytes;
	uint32_t magic, version;
	int r;

	memset(&program, 0, sizeof(program));
	magic = cei_wire_get_u32(&reader);
	version = cei_wire_get_u32(&reader);
	n_body_bytes = cei_wire_get_u64(&reader);
	if (reader.failed)
		return CEOV_ERR_INVALID;
	if (magic != CEI_PROGRAM_MAGIC || version != CEI_PROGRAM_VERSION)
		return CEOV_ERR_VERSION;
	if (n_body_bytes != n_bytes - reader.at)
		return CEOV_ERR_INVALID;
	r = read_body(&reader, n_bytes - reader.at, &program);
	if (r)
		cei_program_fini(&program);
	else
		*ret_program = program;
	return r;
}
