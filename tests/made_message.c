/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "made_message.h"

#include <stdlib.h>
#include <string.h>

#include "ipc/group/messages.h"
#include "ipc/service_wire.h"
#include "net/far_wire.h"
#include "net/store_wire.h"

#define TRIES_MAX 1000000u              /* until a value makes sense: a few are usual */

static const struct cei_field export_fields[] = {
	{ CEI_U32, CEI_AT(made_export, type) },
};
static const struct cei_layout export_head = CEI_LAYOUT(export_fields, made_export, NULL);
static const struct cei_field content_fields[] = {
	{ CEI_LIST, CEI_AT(made_content, described), CEI_COUNT(made_content, n),
	  .least = 1, .of = &cei_described_layout },
};
static const struct cei_message_kind export_kinds[] = {
	[1] = { "export", CEI_LAYOUT(content_fields, made_content, NULL) },
};

const struct cei_protocol made_exports = {
	.n_bytes_max = CEI_GROUP_BYTES_MAX,
	.body_at = offsetof(struct made_export, content),
	.head = &export_head,
	CEI_KINDS(export_kinds),
};

static const struct cei_field record_fields[] = {
	{ CEI_U32, CEI_AT(made_record, type) },
};
static const struct cei_layout record_head = CEI_LAYOUT(record_fields, made_record, NULL);
static const struct cei_field records_fields[] = {
	{ CEI_LIST, CEI_AT(made_records, record), CEI_COUNT(made_records, n),
	  .least = 1, .of = &cei_record_layout },
};
static const struct cei_message_kind record_kinds[] = {
	[1] = { "record", CEI_LAYOUT(records_fields, made_records, NULL) },
};

static const struct cei_protocol made_records = {
	.n_bytes_max = CEI_RECORD_BYTES_MAX,
	.body_at = offsetof(struct made_record, records),
	.head = &record_head,
	CEI_KINDS(record_kinds),
};

const struct made_protocol made_protocols[] = {
	{ "store", &cei_store_protocol },
	{ "daemon", &cei_service_protocol },
	{ "export", &made_exports },
	{ "rail", &cei_far_protocol },
	{ "record", &made_records },
	{ "group", &cei_group_protocol },
};
const uint32_t made_n_protocols = sizeof(made_protocols) / sizeof(made_protocols[0]);

static const uint8_t zeros[MADE_VIEW_MAX];

static uint64_t draw(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	return *state ^= *state << 17;
}

static uint64_t draw_within(uint64_t *state, uint64_t least, uint64_t most)
{
	uint64_t span = most - least, offset = draw(state);

	offset >>= draw(state) % 64;
	switch (draw(state) % 8) {
	case 0:  return most;
	case 1:  return least;
	case 2:  return least + (offset <= span ? offset : span / 2);
	default: offset = draw(state) % 4; return least + (offset <= span ? offset : 0);
	}
}

static void set_number(uint64_t *state, const struct cei_field *field, char *member)
{
	uint64_t number, least = (uint64_t)field->least, most = cei_field_most(field);
	size_t n = field->kind == CEI_U64 ? 8 : 4, i;

	if (field->kind == CEI_I32)
		most = (uint64_t)field->most;
	for (i = 0; i < field->room; i += n) {
		number = draw_within(state, least, most);
		if (field->kind == CEI_I32 && field->least <= 0 && field->most >= 0 &&
		    draw(state) % 2)
			number = 0;
		memcpy(member + i, &number, n);
	}
}

static void fill(uint64_t *state, const struct cei_layout *layout, char *value);

static void set_counted(uint64_t *state, const struct cei_field *field, char *value)
{
	size_t n_number = field->kind == CEI_REST ? 8 : 4;
	uint64_t i, most = cei_field_most(field), n;
	const uint8_t *view = zeros;

	if (field->kind >= CEI_VIEW && most > MADE_VIEW_MAX)
		most = MADE_VIEW_MAX;
	n = draw_within(state, (uint64_t)field->least, most);
	memcpy(value + field->count_at, &n, n_number);
	if (field->kind >= CEI_VIEW)
		memcpy(value + field->at, &view, sizeof(view));
	for (i = 0; field->kind == CEI_BYTES && i < n; i++)
		value[field->at + i] = (char)draw(state);
	for (i = 0; field->kind == CEI_LIST && i < n; i++)
		made_value(state, field->of, value + field->at + i * field->of->n_bytes);
}

static void set_field(uint64_t *state, const struct cei_field *field, char *value)
{
	uint64_t i;

	if (field->kind <= CEI_I32) {
		set_number(state, field, value + field->at);
	} else if (field->kind == CEI_TEXT) {
		i = draw_within(state, (uint64_t)field->least, cei_field_most(field));
		memset(value + field->at, 'a' + (int)(draw(state) % 26), i);
	} else if (field->kind == CEI_RAW) {
		for (i = 0; i + 1 < field->room; i++)   /* some are texts */
			value[field->at + i] = (char)draw(state);
	} else {
		set_counted(state, field, value);
	}
}

static void fill(uint64_t *state, const struct cei_layout *layout, char *value)
{
	const struct cei_field *field = layout->fields, *end = field + layout->n_fields;
	int32_t is_left_out;

	memset(value, 0, layout->n_bytes);
	for (; field < end; field++) {
		memcpy(&is_left_out, value + field->unless_at, sizeof(is_left_out));
		if (!field->unless_at || !is_left_out)
			set_field(state, field, value);
	}
}

void made_value(uint64_t *state, const struct cei_layout *layout, void *ret_value)
{
	uint32_t i;

	for (i = 0; i < TRIES_MAX; i++) {
		fill(state, layout, ret_value);
		if (!layout->makes_sense || layout->makes_sense(ret_value))
			return;
	}
	abort();
}

void made_message(uint64_t *state, const struct cei_protocol *protocol, uint32_t type,
		  void *ret_message)
{
	const struct cei_field *row = &protocol->head->fields[protocol->magic ? 2 : 0];

	made_value(state, protocol->head, ret_message);
	memcpy((char *)ret_message + row->at, &type, sizeof(type));
	made_value(state, cei_message_body(protocol, type),
		   (char *)ret_message + protocol->body_at);
}

size_t made_bytes(const struct cei_protocol *protocol, const void *message, uint8_t *bytes)
{
	const struct cei_field *row = &protocol->head->fields[protocol->magic ? 2 : 0], *last;
	const char *value = (const char *)message + protocol->body_at;
	size_t n_bytes = cei_encode(protocol, message, bytes);
	const struct cei_layout *body;
	const uint8_t *rest;
	uint64_t n_rest;
	uint32_t type;

	memcpy(&type, (const char *)message + row->at, sizeof(type));
	body = cei_message_body(protocol, type);
	if (!body->n_fields || body->fields[body->n_fields - 1].kind != CEI_REST)
		return n_bytes;
	last = &body->fields[body->n_fields - 1];
	memcpy(&n_rest, value + last->count_at, sizeof(n_rest));
	memcpy(&rest, value + last->at, sizeof(rest));
	memcpy(bytes + n_bytes, rest, (size_t)n_rest);
	return n_bytes + (size_t)n_rest;
}
