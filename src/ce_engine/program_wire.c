/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Programs to bytes and back, by the cursors of wire.h, which check bounds. */

#include "ce_engine/program_wire.h"

#include <assert.h>
#include <string.h>

#include "ipc/wire.h"

#define HEAD_BYTES     16u
#define FIELDS_BYTES   68u
#define MOVER_BYTES    24u
#define BUFFER_BYTES   36u
#define SIGNAL_BYTES   12u
#define MARK_BYTES     16u
#define TRANSFER_BYTES (2u * 20u + 16u + 3u * MARK_BYTES + 16u)
#define ROUTE_BYTES    (40u + CEI_ROUTE_WHY_BYTES)      /* without its ways */
#define WAY_BYTES      40u

/* What follows the head takes, but for routes and their ways. Numbers in the bounds of
 * numbers_fit() do not overflow it. */
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
		n += (size_t)program->routes[i].route.n_ways * WAY_BYTES;
	return n;
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
	cei_wire_put_u32(writer, transfer->mover);
	cei_wire_put_u32(writer, transfer->has_direct);
	cei_wire_put_u32(writer, transfer->direction);
	cei_wire_put_u32(writer, transfer->route);
}

static void put_buffer(struct cei_writer *writer, const struct cei_program_buffer *buffer)
{
	cei_wire_put_u32(writer, buffer->rank);
	cei_wire_put_u32(writer, buffer->flags);
	cei_wire_put_u32(writer, buffer->kind);
	cei_wire_put_u32(writer, buffer->gpu);
	cei_wire_put_u32(writer, buffer->place);
	cei_wire_put_u64(writer, buffer->start);
	cei_wire_put_u64(writer, buffer->size_bytes);
}

static void put_mover(struct cei_writer *writer, const struct cei_program_mover *mover)
{
	cei_wire_put_u32(writer, mover->flags);
	cei_wire_put_u32(writer, mover->moves);
	cei_wire_put_u32(writer, mover->gpu);
	cei_wire_put_u32(writer, mover->place);
	cei_wire_put_u64(writer, mover->may_drive);
}

static void put_way(struct cei_writer *writer, const struct cei_route_way *way)
{
	cei_wire_put_u32(writer, way->sort);
	cei_wire_put_u32(writer, way->via);
	cei_wire_put_u32(writer, way->engines[0]);
	cei_wire_put_u32(writer, way->engines[1]);
	cei_wire_put_u64(writer, way->bytes);
	cei_wire_put_u64(writer, way->bytes_per_s);
	cei_wire_put_u64(writer, way->t0_ns);
}

/* What follows the end of the text is 0. */
static void put_route(struct cei_writer *writer, const struct cei_program_route *route)
{
	char why[CEI_ROUTE_WHY_BYTES] = "";
	uint32_t i;

	memcpy(why, route->route.why, strnlen(route->route.why, sizeof(why) - 1));
	cei_wire_put_u32(writer, route->from);
	cei_wire_put_u32(writer, route->to);
	cei_wire_put_u64(writer, route->bytes);
	cei_wire_put_u64(writer, route->may_drive);
	cei_wire_put_u32(writer, route->no_direct);
	cei_wire_put_u32(writer, route->route.n_ways);
	cei_wire_put_u64(writer, route->route.expected_ns);
	cei_wire_put_bytes(writer, why, sizeof(why));
	for (i = 0; i < route->route.n_ways; i++)
		put_way(writer, &route->route.ways[i]);
}

static void put_fields(struct cei_writer *writer, const struct cei_program *program)
{
	cei_wire_put_u32(writer, program->rank);
	cei_wire_put_u32(writer, program->n_ranks);
	cei_wire_put_u64(writer, program->max_chunk_bytes);
	cei_wire_put_u64(writer, program->mark_group_bytes);
	cei_wire_put_u32(writer, program->urgency);
	cei_wire_put_u32(writer, program->has_template);
	cei_wire_put_u32(writer, program->keeps_order);
	cei_wire_put_u32(writer, program->rule);
	cei_wire_put_u32(writer, program->floating);
	cei_wire_put_u32(writer, program->n_movers);
	cei_wire_put_u32(writer, program->n_buffers);
	cei_wire_put_u32(writer, program->n_signals);
	cei_wire_put_u32(writer, program->n_transfers);
	cei_wire_put_u32(writer, program->n_expected);
	cei_wire_put_u32(writer, program->n_routes);
}

void cei_program_write(const struct cei_program *program, void *bytes)
{
	struct cei_writer writer = cei_writer_on(bytes, cei_program_bytes(program));
	uint32_t i;

	cei_wire_put_u32(&writer, CEI_PROGRAM_MAGIC);
	cei_wire_put_u32(&writer, CEI_PROGRAM_VERSION);
	cei_wire_put_u64(&writer, body_bytes(program));
	put_fields(&writer, program);
	for (i = 0; i < program->n_movers; i++)
		put_mover(&writer, &program->movers[i]);
	for (i = 0; i < program->n_buffers; i++)
		put_buffer(&writer, &program->buffers[i]);
	for (i = 0; i < program->n_signals; i++) {
		cei_wire_put_u32(&writer, program->signals[i].rank);
		cei_wire_put_u32(&writer, program->signals[i].n_counters);
		cei_wire_put_u32(&writer, program->signals[i].flags);
	}
	for (i = 0; i < program->n_transfers; i++)
		put_transfer(&writer, &program->transfers[i]);
	for (i = 0; i < program->n_expected; i++)
		put_mark(&writer, &program->expected[i]);
	for (i = 0; i < program->n_routes; i++)
		put_route(&writer, &program->routes[i]);
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
	ret_transfer->mover = cei_wire_get_u32(reader);
	ret_transfer->has_direct = cei_wire_get_u32(reader);
	ret_transfer->direction = cei_wire_get_u32(reader);
	ret_transfer->route = cei_wire_get_u32(reader);
}

static void get_buffer(struct cei_reader *reader, struct cei_program_buffer *ret_buffer)
{
	ret_buffer->rank = cei_wire_get_u32(reader);
	ret_buffer->flags = cei_wire_get_u32(reader);
	ret_buffer->kind = cei_wire_get_u32(reader);
	ret_buffer->gpu = cei_wire_get_u32(reader);
	ret_buffer->place = cei_wire_get_u32(reader);
	ret_buffer->start = cei_wire_get_u64(reader);
	ret_buffer->size_bytes = cei_wire_get_u64(reader);
}

static void get_mover(struct cei_reader *reader, struct cei_program_mover *ret_mover)
{
	ret_mover->flags = cei_wire_get_u32(reader);
	ret_mover->moves = cei_wire_get_u32(reader);
	ret_mover->gpu = cei_wire_get_u32(reader);
	ret_mover->place = cei_wire_get_u32(reader);
	ret_mover->may_drive = cei_wire_get_u64(reader);
}

static void get_way(struct cei_reader *reader, struct cei_route_way *ret_way)
{
	uint32_t sort = cei_wire_get_u32(reader);

	if (sort > CEI_ROUTE_MIDDLE)
		reader->failed = 1;
	ret_way->sort = (uint8_t)sort;
	ret_way->via = cei_wire_get_u32(reader);
	ret_way->engines[0] = cei_wire_get_u32(reader);
	ret_way->engines[1] = cei_wire_get_u32(reader);
	ret_way->bytes = cei_wire_get_u64(reader);
	ret_way->bytes_per_s = cei_wire_get_u64(reader);
	ret_way->t0_ns = cei_wire_get_u64(reader);
}

/* Ends within its room, and is followed by nothing. */
static void get_why(struct cei_reader *reader, char *ret_why)
{
	size_t i;

	cei_wire_get_bytes(reader, ret_why, CEI_ROUTE_WHY_BYTES);
	for (i = strnlen(ret_why, CEI_ROUTE_WHY_BYTES); i < CEI_ROUTE_WHY_BYTES; i++)
		if (ret_why[i])
			reader->failed = 1;
	if (ret_why[CEI_ROUTE_WHY_BYTES - 1])
		reader->failed = 1;
	ret_why[CEI_ROUTE_WHY_BYTES - 1] = 0;
}

static void get_route(struct cei_reader *reader, struct cei_program_route *ret_route)
{
	uint32_t i;

	ret_route->from = cei_wire_get_u32(reader);
	ret_route->to = cei_wire_get_u32(reader);
	ret_route->bytes = cei_wire_get_u64(reader);
	ret_route->may_drive = cei_wire_get_u64(reader);
	ret_route->no_direct = cei_wire_get_u32(reader);
	ret_route->route.n_ways = cei_wire_get_u32(reader);
	ret_route->route.expected_ns = cei_wire_get_u64(reader);
	get_why(reader, ret_route->route.why);
	if (ret_route->route.n_ways > CEI_ROUTE_WAYS_MAX) {
		reader->failed = 1;
		return;
	}
	for (i = 0; i < ret_route->route.n_ways; i++)
		get_way(reader, &ret_route->route.ways[i]);
}

static void get_fields(struct cei_reader *reader, struct cei_program *ret_program)
{
	ret_program->rank = cei_wire_get_u32(reader);
	ret_program->n_ranks = cei_wire_get_u32(reader);
	ret_program->max_chunk_bytes = cei_wire_get_u64(reader);
	ret_program->mark_group_bytes = cei_wire_get_u64(reader);
	ret_program->urgency = cei_wire_get_u32(reader);
	ret_program->has_template = cei_wire_get_u32(reader);
	ret_program->keeps_order = cei_wire_get_u32(reader);
	ret_program->rule = cei_wire_get_u32(reader);
	ret_program->floating = cei_wire_get_u32(reader);
	ret_program->n_movers = cei_wire_get_u32(reader);
	ret_program->n_buffers = cei_wire_get_u32(reader);
	ret_program->n_signals = cei_wire_get_u32(reader);
	ret_program->n_transfers = cei_wire_get_u32(reader);
	ret_program->n_expected = cei_wire_get_u32(reader);
	ret_program->n_routes = cei_wire_get_u32(reader);
}

/* No transfer names more than two buffers, three signals and one route. */
static int numbers_fit(const struct cei_program *program)
{
	return program->n_movers <= CEI_PROGRAM_MOVERS_MAX &&
		program->n_routes <= program->n_transfers &&
		program->n_transfers <= CEI_PROGRAM_TRANSFERS_MAX &&
		program->n_expected <= CEI_PROGRAM_TRANSFERS_MAX &&
		program->n_buffers <= 2 * program->n_transfers &&
		program->n_signals <= 3 * program->n_transfers;
}

static void get_lists(struct cei_reader *reader, struct cei_program *program)
{
	uint32_t i;

	for (i = 0; i < program->n_movers; i++)
		get_mover(reader, &program->movers[i]);
	for (i = 0; i < program->n_buffers; i++)
		get_buffer(reader, &program->buffers[i]);
	for (i = 0; i < program->n_signals; i++) {
		program->signals[i].rank = cei_wire_get_u32(reader);
		program->signals[i].n_counters = cei_wire_get_u32(reader);
		program->signals[i].flags = cei_wire_get_u32(reader);
	}
	for (i = 0; i < program->n_transfers; i++)
		get_transfer(reader, &program->transfers[i]);
	for (i = 0; i < program->n_expected; i++)
		program->expected[i] = get_mark(reader);
	for (i = 0; !reader->failed && i < program->n_routes; i++)
		get_route(reader, &program->routes[i]);
}

/* Whether so many bytes may hold the lists, whatever ways the routes have. */
static int lists_fit(const struct cei_program *program, size_t n_bytes)
{
	size_t least = fixed_bytes(program), routes = (size_t)program->n_routes;

	return n_bytes >= least + routes * ROUTE_BYTES &&
		n_bytes <= least + routes * (ROUTE_BYTES + CEI_ROUTE_WAYS_MAX * WAY_BYTES);
}

static int read_body(struct cei_reader *reader, size_t n_bytes, struct cei_program *program)
{
	int r;

	get_fields(reader, program);
	if (reader->failed || !numbers_fit(program) || !lists_fit(program, n_bytes))
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
