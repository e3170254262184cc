/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "base/codec.h"

#include <assert.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

#define LENGTH_AT 12u                   /* behind magic, version and type */
#define TYPE_ROW  2u                    /* in the table of a head that begins with a magic */
#define LENGTH_ROW 3u

const struct cei_field cei_one_u32[] = { { CEI_U32, .room = sizeof(uint32_t) } };
const struct cei_field cei_one_u64[] = { { CEI_U64, .room = sizeof(uint64_t) } };

/* --- members ---------------------------------------------------------------------- */

static uint32_t u32_at(const void *value, size_t at)
{
	uint32_t number;

	memcpy(&number, (const char *)value + at, sizeof(number));
	return number;
}

static uint64_t u64_at(const void *value, size_t at)
{
	uint64_t number;

	memcpy(&number, (const char *)value + at, sizeof(number));
	return number;
}

static int is_there(const struct cei_field *field, const void *value)
{
	return !field->unless_at || !u32_at(value, field->unless_at);
}

uint64_t cei_field_most(const struct cei_field *field)
{
	if (field->most)
		return (uint64_t)field->most;
	switch (field->kind) {
	case CEI_U32:   return UINT32_MAX;
	case CEI_TEXT:  return field->room - 1u;
	case CEI_BYTES: return field->room;
	case CEI_LIST:  return field->room / field->of->n_bytes;
	case CEI_I32:   return 0;
	default:        return UINT64_MAX;
	}
}

/* --- to bytes --------------------------------------------------------------------- */

/* No byte behind the text leaves the process. */
static void put_text(struct cei_writer *writer, const char *text, size_t room)
{
	static const uint8_t zeros[256];
	size_t n = strnlen(text, room - 1);

	assert(room <= sizeof(zeros));
	cei_wire_put_bytes(writer, text, n);
	cei_wire_put_bytes(writer, zeros, room - n);
}

static void put_field(struct cei_writer *writer, const struct cei_field *field, const char *value)
{
	const char *member = value + field->at;
	const uint8_t *view;
	uint32_t i, n;

	switch (field->kind) {
	case CEI_U32:
	case CEI_I32:
		for (i = 0; i < field->room; i += 4)
			cei_wire_put_u32(writer, u32_at(member, i));
		return;
	case CEI_U64:
		for (i = 0; i < field->room; i += 8)
			cei_wire_put_u64(writer, u64_at(member, i));
		return;
	case CEI_TEXT:
		put_text(writer, member, field->room);
		return;
	case CEI_RAW:
		cei_wire_put_bytes(writer, member, field->room);
		return;
	case CEI_REST:
		return;
	}
	n = u32_at(value, field->count_at);
	cei_wire_put_u32(writer, n);
	if (field->kind == CEI_BYTES)
		cei_wire_put_bytes(writer, member, n);
	for (i = 0; field->kind == CEI_LIST && i < n; i++)
		cei_put_layout(writer, field->of, member + i * field->of->n_bytes);
	if (field->kind == CEI_VIEW) {
		memcpy(&view, member, sizeof(view));
		cei_wire_put_bytes(writer, view, n);
	}
}

void cei_put_layout(struct cei_writer *writer, const struct cei_layout *layout,
		    const void *value)
{
	uint32_t i;

	for (i = 0; i < layout->n_fields; i++)
		if (is_there(&layout->fields[i], value))
			put_field(writer, &layout->fields[i], value);
}

/* --- from bytes ------------------------------------------------------------------- */

static int is_within(const struct cei_field *field, uint64_t number)
{
	return number >= (uint64_t)field->least && number <= cei_field_most(field);
}

static void get_u64s(struct cei_reader *reader, const struct cei_field *field, char *member)
{
	uint64_t number;
	uint32_t i;

	for (i = 0; i < field->room; i += sizeof(number)) {
		number = cei_wire_get_u64(reader);
		memcpy(member + i, &number, sizeof(number));
		if (number < (uint64_t)field->least ||
		    (field->most && number > (uint64_t)field->most))
			reader->failed = 1;
	}
}

static void get_u32s(struct cei_reader *reader, const struct cei_field *field, char *member)
{
	int64_t most = field->most || field->kind == CEI_I32 ? field->most : UINT32_MAX, wide;
	uint32_t number, i;

	for (i = 0; i < field->room; i += sizeof(number)) {
		number = cei_wire_get_u32(reader);
		memcpy(member + i, &number, sizeof(number));
		wide = field->kind == CEI_I32 ? (int64_t)(int32_t)number : (int64_t)number;
		if (wide < field->least || wide > most)
			reader->failed = 1;
	}
}

static void get_text(struct cei_reader *reader, const struct cei_field *field, char *text)
{
	size_t i, n;

	cei_wire_get_bytes(reader, text, field->room);
	n = strnlen(text, field->room);
	reader->failed |= !is_within(field, n);
	for (i = n; i < field->room; i++)
		reader->failed |= text[i] != 0;
}

static void get_view(struct cei_reader *reader, char *member, uint64_t n)
{
	const uint8_t *bytes = reader->bytes + reader->at;

	if (n > reader->n_bytes - reader->at) {
		reader->failed = 1;
		return;
	}
	memcpy(member, &bytes, sizeof(bytes));
	reader->at += (size_t)n;
}

static void get_fields(struct cei_reader *reader, const struct cei_layout *layout, char *value);

static void get_counted(struct cei_reader *reader, const struct cei_field *field, char *value)
{
	char *member = value + field->at;
	uint32_t n = cei_wire_get_u32(reader), i;

	memcpy(value + field->count_at, &n, sizeof(n));
	reader->failed |= !is_within(field, n);
	if (reader->failed)
		return;
	if (field->kind == CEI_BYTES)
		cei_wire_get_bytes(reader, member, n);
	else if (field->kind == CEI_VIEW)
		get_view(reader, member, n);
	else
		for (i = 0; i < n && !reader->failed; i++)
			get_fields(reader, field->of, member + i * field->of->n_bytes);
}

static void get_field(struct cei_reader *reader, const struct cei_field *field, char *value)
{
	uint64_t n_rest = reader->n_bytes - reader->at;

	switch (field->kind) {
	case CEI_U32:
	case CEI_I32:
		get_u32s(reader, field, value + field->at);
		return;
	case CEI_U64:
		get_u64s(reader, field, value + field->at);
		return;
	case CEI_TEXT:
		get_text(reader, field, value + field->at);
		return;
	case CEI_RAW:
		cei_wire_get_bytes(reader, value + field->at, field->room);
		return;
	case CEI_REST:
		memcpy(value + field->count_at, &n_rest, sizeof(n_rest));
		reader->failed |= !is_within(field, n_rest);
		get_view(reader, value + field->at, n_rest);
		return;
	default:
		get_counted(reader, field, value);
	}
}

static void get_fields(struct cei_reader *reader, const struct cei_layout *layout, char *value)
{
	uint32_t i;

	for (i = 0; i < layout->n_fields && !reader->failed; i++)
		if (is_there(&layout->fields[i], value))
			get_field(reader, &layout->fields[i], value);
	if (!reader->failed && layout->makes_sense && !layout->makes_sense(value))
		reader->failed = 1;
}

void cei_get_layout(struct cei_reader *reader, const struct cei_layout *layout, void *ret_value)
{
	memset(ret_value, 0, layout->n_bytes);
	get_fields(reader, layout, ret_value);
	if (reader->failed)
		memset(ret_value, 0, layout->n_bytes);
}

/* --- messages --------------------------------------------------------------------- */

const struct cei_layout *cei_message_body(const struct cei_protocol *protocol, uint32_t type)
{
	if (type >= protocol->n_kinds || !protocol->kinds[type].name)
		return NULL;
	return &protocol->kinds[type].body;
}

const char *cei_message_name(const struct cei_protocol *protocol, uint32_t type)
{
	return cei_message_body(protocol, type) ? protocol->kinds[type].name : "unknown";
}

static uint32_t head_u32(const struct cei_protocol *protocol, const void *message, uint32_t row)
{
	return u32_at(message, protocol->head->fields[row].at);
}

static uint32_t type_of(const struct cei_protocol *protocol, const void *message)
{
	return head_u32(protocol, message, protocol->magic ? TYPE_ROW : 0);
}

/* Of a body without REST: 0. */
static uint64_t n_rest(const struct cei_layout *body, const void *value)
{
	const struct cei_field *last;

	if (!body->n_fields)
		return 0;
	last = &body->fields[body->n_fields - 1];
	return last->kind == CEI_REST ? u64_at(value, last->count_at) : 0;
}

size_t cei_encode(const struct cei_protocol *protocol, const void *message, uint8_t *bytes)
{
	const struct cei_layout *body = cei_message_body(protocol, type_of(protocol, message));
	struct cei_writer writer = cei_writer_on(bytes, protocol->n_bytes_max), again = writer;
	const void *value = (const char *)message + protocol->body_at;
	uint64_t n_body;
	size_t n_head;

	cei_put_layout(&writer, protocol->head, message);
	n_head = writer.at;
	assert(body);
	cei_put_layout(&writer, body, value);
	assert(!writer.failed);
	n_body = writer.at - n_head + n_rest(body, value);
	if (protocol->magic) {
		cei_wire_put_u32(&again, protocol->magic);
		cei_wire_put_u32(&again, protocol->version);
	}
	again.at = LENGTH_AT;
	if (protocol->has_length && protocol->head->fields[LENGTH_ROW].kind == CEI_U64)
		cei_wire_put_u64(&again, n_body);
	else if (protocol->has_length)
		cei_wire_put_u32(&again, (uint32_t)n_body);
	return writer.at;
}

int cei_decode_head(const struct cei_protocol *protocol, struct cei_reader *reader,
		    void *ret_message)
{
	uint32_t type;

	cei_get_layout(reader, protocol->head, ret_message);
	if (reader->failed)
		return CEOV_ERR_INVALID;
	type = type_of(protocol, ret_message);
	if (protocol->magic && head_u32(protocol, ret_message, 0) != protocol->magic)
		return protocol->other_magic;
	if (protocol->magic && head_u32(protocol, ret_message, 1) != protocol->version &&
	    (!type || type != protocol->refusal))
		return CEOV_ERR_VERSION;
	return cei_message_body(protocol, type) ? 0 : CEOV_ERR_INVALID;
}

static int has_its_length(const struct cei_protocol *protocol, const struct cei_reader *reader,
			  const void *message)
{
	const struct cei_field *field = &protocol->head->fields[LENGTH_ROW];

	if (!protocol->has_length)
		return 1;
	return reader->n_bytes - reader->at == (field->kind == CEI_U64 ?
						u64_at(message, field->at) :
						u32_at(message, field->at));
}

int cei_decode_body(const struct cei_protocol *protocol, struct cei_reader *reader,
		    void *ret_message)
{
	const struct cei_layout *body = cei_message_body(protocol, type_of(protocol, ret_message));

	if (!has_its_length(protocol, reader, ret_message))
		return CEOV_ERR_INVALID;
	get_fields(reader, body, (char *)ret_message + protocol->body_at);
	return cei_reader_end(reader);
}

int cei_decode(const struct cei_protocol *protocol, const void *bytes, size_t n_bytes,
	       void *ret_message)
{
	struct cei_reader reader = cei_reader_on(bytes, n_bytes);
	int r = cei_decode_head(protocol, &reader, ret_message);

	return r ? r : cei_decode_body(protocol, &reader, ret_message);
}

/* --- lengths ---------------------------------------------------------------------- */

void cei_layout_bytes(const struct cei_layout *layout, uint64_t *ret_least, uint64_t *ret_most)
{
	const struct cei_field *field = layout->fields, *end = field + layout->n_fields;
	uint64_t least, most, number;

	*ret_least = *ret_most = 0;
	for (; field < end; field++) {
		least = most = field->room;
		if (field->kind >= CEI_BYTES) {
			number = field->kind == CEI_REST ? 0 : sizeof(uint32_t);
			least = most = 1;
			if (field->kind == CEI_LIST)
				cei_layout_bytes(field->of, &least, &most);
			least = number + least * (uint64_t)field->least;
			most = number + most * cei_field_most(field);
		}
		*ret_least += field->unless_at ? 0 : least;
		*ret_most += most;
	}
}
