/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Encodes and decodes programs by the cursors of base/cursor.h, which check bounds. */

#include "ce_engine/program/program_wire.h"

#include <assert.h>
#include <string.h>

#include "base/cursor.h"

#define HEAD_BYTES     16u
#define FIELDS_BYTES   68u
#define MOVER_BYTES    24u
#define BUFFER_BYTES   40u
#define SIGNAL_BYTES   16u
#define MARK_BYTES     16u
#define TRANSFER_BYTES (3u * 20u + 16u + 3u * MARK_BYTES + 20u)
#define ROUTE_BYTES    (40u + CEI_ROUTE_WHY_BYTES)      /* without its paths */
#define PATH_BYTES     40u

/* Bytes behind the head, without routes. Cannot overflow for numbers within numbers_fit(). */
static size_t fixed_bytes(const struct cei_program *program)
{
	return FIELDS_BYTES + (size_t)program->n_movers * MOVER_BYTES +
		(size_t)program->n_buffers * BUFFER_BYTES +
		(size_t)program->n_signals * SIGNAL_BYTES +
		(size_t)program->n_transfers * TRANSFER_BYTES +
		(size_t)program->n_expected * MARK_BYTES;
}

static size_t body_bytes(const struct cei_program *program)
{
	size_t n = fixed_bytes(program) + (size_t)program->n_routes * ROUTE_BYTES;
	uint32_t i;

	for (i = 0; i < program->n_routes; i++)
		n += (size_t)program->routes[i].route.n_paths * PATH_BYTES;
	return n;
}

size_t cei_program_bytes(const struct cei_program *program)
{
	return HEAD_BYTES + body_bytes(program);
}

/* --- fields, in either direction ------------------------------------------ */

/* Where fields go to, or come from: one of the two is NULL. */
struct codec {
	struct cei_writer *writer;
	struct cei_reader *reader;
};

static void code_u32(struct codec *codec, uint32_t *value)
{
	if (codec->writer)
		cei_wire_put_u32(codec->writer, *value);
	else
		*value = cei_wire_get_u32(codec->reader);
}

static void code_u64(struct codec *codec, uint64_t *value)
{
	if (codec->writer)
		cei_wire_put_u64(codec->writer, *value);
	else
		*value = cei_wire_get_u64(codec->reader);
}

static void code_head(struct codec *codec, struct cei_program *program)
{
	code_u32(codec, &program->rank);
	code_u32(codec, &program->n_ranks);
	code_u64(codec, &program->max_chunk_bytes);
	code_u64(codec, &program->mark_group_bytes);
	code_u32(codec, &program->urgency);
	code_u32(codec, &program->has_template);
	code_u32(codec, &program->keeps_order);
	code_u32(codec, &program->rule);
	code_u32(codec, &program->floating);
	code_u32(codec, &program->n_movers);
	code_u32(codec, &program->n_buffers);
	code_u32(codec, &program->n_signals);
	code_u32(codec, &program->n_transfers);
	code_u32(codec, &program->n_expected);
	code_u32(codec, &program->n_routes);
}

static void code_mover(struct codec *codec, struct cei_program_mover *mover)
{
	code_u32(codec, &mover->flags);
	code_u32(codec, &mover->moves);
	code_u32(codec, &mover->gpu);
	code_u32(codec, &mover->place);
	code_u64(codec, &mover->may_drive);
}

static void code_buffer(struct codec *codec, struct cei_program_buffer *buffer)
{
	code_u32(codec, &buffer->rank);
	code_u32(codec, &buffer->flags);
	code_u32(codec, &buffer->reached);
	code_u32(codec, &buffer->kind);
	code_u32(codec, &buffer->gpu);
	code_u32(codec, &buffer->place);
	code_u64(codec, &buffer->start);
	code_u64(codec, &buffer->size_bytes);
}

static void code_signal(struct codec *codec, struct cei_program_signal *signal)
{
	code_u32(codec, &signal->rank);
	code_u32(codec, &signal->n_counters);
	code_u32(codec, &signal->flags);
	code_u32(codec, &signal->reached);
}

static void code_mark(struct codec *codec, struct cei_program_mark *mark)
{
	code_u32(codec, &mark->signal);
	code_u32(codec, &mark->counter);
	code_u64(codec, &mark->value);
}

static void code_spot(struct codec *codec, struct cei_program_spot *spot)
{
	code_u32(codec, &spot->buffer);
	code_u64(codec, &spot->offset_bytes);
	code_u64(codec, &spot->pitch_bytes);
}

static void code_transfer(struct codec *codec, struct cei_program_transfer *transfer)
{
	code_spot(codec, &transfer->source);
	code_spot(codec, &transfer->target);
	code_u64(codec, &transfer->row_bytes);
	code_u64(codec, &transfer->n_rows);
	code_mark(codec, &transfer->source_ready);
	code_mark(codec, &transfer->target_free);
	code_mark(codec, &transfer->then);
	code_u32(codec, &transfer->is_counted);
	code_spot(codec, &transfer->count);
	code_u32(codec, &transfer->mover);
	code_u32(codec, &transfer->has_direct);
	code_u32(codec, &transfer->direction);
	code_u32(codec, &transfer->route);
}

static void code_path(struct codec *codec, struct cei_route_path *path)
{
	uint32_t kind = path->kind;

	code_u32(codec, &kind);
	if (codec->reader && kind > CEI_ROUTE_MIDDLE)
		codec->reader->failed = 1;
	path->kind = (uint8_t)kind;
	code_u32(codec, &path->via);
	code_u32(codec, &path->engines[0]);
	code_u32(codec, &path->engines[1]);
	code_u64(codec, &path->bytes);
	code_u64(codec, &path->bytes_per_s);
	code_u64(codec, &path->t0_ns);
}

/* The text must end within its field, with only 0 behind it. */
static void code_why(struct codec *codec, char *why)
{
	char text[CEI_ROUTE_WHY_BYTES] = "";
	size_t i;

	if (codec->writer) {
		memcpy(text, why, strnlen(why, sizeof(text) - 1));
		cei_wire_put_bytes(codec->writer, text, sizeof(text));
		return;
	}
	cei_wire_get_bytes(codec->reader, why, CEI_ROUTE_WHY_BYTES);
	for (i = strnlen(why, CEI_ROUTE_WHY_BYTES - 1); i < CEI_ROUTE_WHY_BYTES; i++) {
		if (why[i])
			codec->reader->failed = 1;
		why[i] = 0;
	}
}

static void code_route(struct codec *codec, struct cei_program_route *route)
{
	uint32_t i;

	code_u32(codec, &route->from);
	code_u32(codec, &route->to);
	code_u64(codec, &route->bytes);
	code_u64(codec, &route->may_drive);
	code_u32(codec, &route->no_direct);
	code_u32(codec, &route->route.n_paths);
	code_u64(codec, &route->route.expected_ns);
	code_why(codec, route->route.why);
	if (route->route.n_paths > CEI_ROUTE_PATHS_MAX) {       /* which only a reader finds */
		codec->reader->failed = 1;
		route->route.n_paths = 0;
	}
	for (i = 0; i < route->route.n_paths; i++)
		code_path(codec, &route->route.paths[i]);
}

static void code_lists(struct codec *codec, struct cei_program *program)
{
	uint32_t i;

	for (i = 0; i < program->n_movers; i++)
		code_mover(codec, &program->movers[i]);
	for (i = 0; i < program->n_buffers; i++)
		code_buffer(codec, &program->buffers[i]);
	for (i = 0; i < program->n_signals; i++)
		code_signal(codec, &program->signals[i]);
	for (i = 0; i < program->n_transfers; i++)
		code_transfer(codec, &program->transfers[i]);
	for (i = 0; i < program->n_expected; i++)
		code_mark(codec, &program->expected[i]);
	for (i = 0; i < program->n_routes; i++)
		code_route(codec, &program->routes[i]);
}

/* --- writing -------------------------------------------------------------- */

void cei_program_write(const struct cei_program *program, void *bytes)
{
	struct cei_writer writer = cei_writer_on(bytes, cei_program_bytes(program));
	struct codec codec = { &writer, NULL };
	struct cei_program copy = *program;     /* whose lists a writing codec only reads */

	cei_wire_put_u32(&writer, CEI_PROGRAM_MAGIC);
	cei_wire_put_u32(&writer, CEI_PROGRAM_VERSION);
	cei_wire_put_u64(&writer, body_bytes(program));
	code_head(&codec, &copy);
	code_lists(&codec, &copy);
	assert(!writer.failed && writer.at == writer.n_room);
}

/* --- reading -------------------------------------------------------------- */

/* A transfer names at most three buffers, three signals and one route. */
static int numbers_fit(const struct cei_program *program)
{
	return program->n_movers <= CEI_PROGRAM_MOVERS_MAX &&
		program->n_routes <= program->n_transfers &&
		program->n_transfers <= CEI_PROGRAM_TRANSFERS_MAX &&
		program->n_expected <= CEI_PROGRAM_TRANSFERS_MAX &&
		program->n_buffers <= 3 * program->n_transfers &&
		program->n_signals <= 3 * program->n_transfers;
}

/* Whether that many bytes can hold the lists, for any number of paths. */
static int lists_fit(const struct cei_program *program, size_t n_bytes)
{
	size_t least = fixed_bytes(program), routes = (size_t)program->n_routes;

	return n_bytes >= least + routes * ROUTE_BYTES &&
		n_bytes <= least + routes * (ROUTE_BYTES + CEI_ROUTE_PATHS_MAX * PATH_BYTES);
}

static int read_body(struct cei_reader *reader, size_t n_bytes, struct cei_program *program)
{
	struct codec codec = { NULL, reader };
	int r;

	code_head(&codec, program);
	if (reader->failed || !numbers_fit(program) || !lists_fit(program, n_bytes))
		return CEOV_ERR_INVALID;
	r = cei_program_alloc(program);
	if (r)
		return r;
	code_lists(&codec, program);
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
