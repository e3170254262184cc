/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests the tables of all protocols, and with random messages that they describe what they say. */

#include <stdlib.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

#include "made_message.h"
#include "testing.h"

#define N_ROUNDS  300u
#define LENGTH_AT 12u

static uint64_t state;
static uint8_t *bytes, *changed, *again;
static void *message, *back;

static void set_up(void)
{
	state = testing_seed() | 1;
	bytes = malloc(MADE_BYTES_MAX);
	changed = malloc(MADE_BYTES_MAX);
	again = malloc(MADE_BYTES_MAX);
	message = malloc(MADE_BYTES_MAX);
	back = malloc(MADE_BYTES_MAX);
	ck_assert(bytes && changed && again && message && back);
}

static void tear_down(void)
{
	free(bytes);
	free(changed);
	free(again);
	free(message);
	free(back);
}

/* --- the tables ------------------------------------------------------------------- */

static size_t n_count_bytes(const struct cei_field *field)
{
	return field->kind < CEI_BYTES ? 0 : field->kind == CEI_REST ? 8 : 4;
}

static void check_bounds(const struct cei_field *field)
{
	if (field->kind == CEI_I32) {
		ck_assert_int_ge(field->least, INT32_MIN);
		ck_assert_int_le(field->most, INT32_MAX);
		ck_assert_int_le(field->least, field->most);
		return;
	}
	ck_assert_int_ge(field->least, 0);
	ck_assert_uint_le((uint64_t)field->least, cei_field_most(field));
	if (field->kind == CEI_U32)
		ck_assert_uint_le(cei_field_most(field), UINT32_MAX);
	if (field->kind == CEI_TEXT)
		ck_assert_uint_lt(cei_field_most(field), field->room);
	if (field->kind == CEI_BYTES)
		ck_assert_uint_le(cei_field_most(field), field->room);
	if (field->kind == CEI_LIST)
		ck_assert_uint_le(cei_field_most(field) * field->of->n_bytes, field->room);
	if (field->kind >= CEI_VIEW) {
		ck_assert_uint_eq(field->room, sizeof(void *));
		ck_assert_int_gt(field->most, 0);
	}
}

/* Members lie in the struct, one behind the other, with the number of what is counted before it. */
static void check_layout(const struct cei_layout *layout)
{
	const struct cei_field *field = layout->fields, *end = field + layout->n_fields;
	size_t at = 0;

	for (; field < end; field++) {
		ck_assert_uint_ge(field->kind, CEI_U32);
		ck_assert_uint_le(field->kind, CEI_REST);
		if (n_count_bytes(field)) {
			ck_assert_uint_ge(field->count_at, at);
			at = field->count_at + n_count_bytes(field);
		}
		ck_assert_uint_ge(field->at, at);
		at = field->at + field->room;
		ck_assert_uint_eq(field->room % (field->kind == CEI_U64 ? 8 : 1), 0);
		if (field->kind == CEI_U32 || field->kind == CEI_I32)
			ck_assert_uint_eq(field->room % 4, 0);
		ck_assert_uint_lt(field->unless_at, at);
		ck_assert(field->kind != CEI_REST || field + 1 == end);
		ck_assert_int_eq(field->kind == CEI_LIST, field->of != NULL);
		check_bounds(field);
		if (field->of)
			check_layout(field->of);
	}
	ck_assert_uint_le(at, layout->n_bytes);
}

static uint64_t encoded_most(const struct cei_layout *layout)
{
	struct cei_layout before = *layout;
	uint64_t least, most;

	if (before.n_fields && before.fields[before.n_fields - 1].kind == CEI_REST)
		before.n_fields--;
	cei_layout_bytes(&before, &least, &most);
	return most;
}

static void check_protocol(const struct cei_protocol *protocol)
{
	const struct cei_field *rows = protocol->head->fields;
	const struct cei_layout *body;
	uint32_t type, i;

	check_layout(protocol->head);
	ck_assert_uint_le(protocol->head->n_bytes, MADE_BYTES_MAX);
	for (i = 0; i < (protocol->magic ? 3u : 1u) + (protocol->has_length ? 1u : 0u); i++)
		ck_assert(rows[i].kind == CEI_U32 || (i == 3 && rows[i].kind == CEI_U64));
	ck_assert(!protocol->has_length || protocol->magic);
	ck_assert_ptr_null(cei_message_body(protocol, 0));
	ck_assert_ptr_null(cei_message_body(protocol, protocol->n_kinds));
	for (type = 1; type < protocol->n_kinds; type++) {
		body = cei_message_body(protocol, type);
		ck_assert_ptr_nonnull(body);
		ck_assert_ptr_nonnull(protocol->kinds[type].name);
		check_layout(body);
		ck_assert_uint_le(protocol->body_at + body->n_bytes, protocol->head->n_bytes);
		ck_assert_uint_le(encoded_most(protocol->head) + encoded_most(body),
				  protocol->n_bytes_max);
	}
}

START_TEST(test_tables)
{
	uint32_t i;

	for (i = 0; i < made_n_protocols; i++)
		check_protocol(made_protocols[i].protocol);
}
END_TEST

/* --- whole messages ---------------------------------------------------------------- */

/* Decodes a copy in memory of just that size, so that a sanitizer sees who reads behind it. What a
 * message points to is in the copy, which is the next call's. */
static int decode(const struct cei_protocol *protocol, const uint8_t *input, size_t n_bytes)
{
	static uint8_t *copy;

	free(copy);
	copy = malloc(n_bytes ? n_bytes : 1);
	if (!copy)
		ck_abort();
	memcpy(copy, input, n_bytes);
	return cei_decode(protocol, copy, n_bytes, back);
}

/* Asserts that the bytes are refused, or are a message that encodes to the same bytes. */
static int is_accepted(const struct cei_protocol *protocol, const uint8_t *input, size_t n_bytes)
{
	int r = decode(protocol, input, n_bytes);

	if (r) {
		ck_assert(r == CEOV_ERR_INVALID || r == CEOV_ERR_VERSION);
		return 0;
	}
	ck_assert_uint_eq(made_bytes(protocol, back, again), n_bytes);
	if (protocol->magic)                    /* a refusal's version is its own */
		memcpy(again + 4, input + 4, 4);
	ck_assert_mem_eq(again, input, n_bytes);
	return 1;
}

static void check_message(const struct made_protocol *made, uint32_t type)
{
	const struct cei_protocol *protocol = made->protocol;
	size_t n_bytes, n;
	uint32_t i;

	made_message(&state, protocol, type, message);
	n_bytes = made_bytes(protocol, message, bytes);
	ck_assert_msg(is_accepted(protocol, bytes, n_bytes), "%s: a valid %s is refused",
		      made->name, protocol->kinds[type].name);
	for (n = 0; n < n_bytes; n += 1 + (n > 400 ? testing_below(&state, 400) : 0))
		if (decode(protocol, bytes, n) != CEOV_ERR_INVALID)
			ck_abort_msg("%s: a %s of %zu bytes is accepted when it is cut at %zu",
				     made->name, protocol->kinds[type].name, n_bytes, n);
	bytes[n_bytes] = 0;
	ck_assert_int_eq(decode(protocol, bytes, n_bytes + 1), CEOV_ERR_INVALID);
	for (i = 0; i < 20; i++) {
		memcpy(changed, bytes, n_bytes);
		n = testing_below(&state, n_bytes);
		changed[n] ^= (uint8_t)(1u << testing_below(&state, 8));
		is_accepted(protocol, changed, n_bytes);
	}
}

START_TEST(test_messages_come_back)
{
	const struct made_protocol *made = &made_protocols[_i];
	uint32_t type, round;

	for (type = 1; type < made->protocol->n_kinds; type++)
		for (round = 0; round < testing_share(N_ROUNDS); round++)
			check_message(made, type);
}
END_TEST

START_TEST(test_versions_and_types)
{
	const struct cei_protocol *protocol = made_protocols[_i].protocol;
	uint32_t type, at = protocol->magic ? 8 : 0;
	size_t n_bytes;

	for (type = 1; type < protocol->n_kinds; type++) {
		made_message(&state, protocol, type, message);
		n_bytes = made_bytes(protocol, message, bytes);
		bytes[at] = 0;
		ck_assert_int_eq(decode(protocol, bytes, n_bytes), CEOV_ERR_INVALID);
		bytes[at] = (uint8_t)protocol->n_kinds;
		ck_assert_int_eq(decode(protocol, bytes, n_bytes), CEOV_ERR_INVALID);
		bytes[at] = (uint8_t)type;
		if (!protocol->magic)
			continue;
		bytes[4] ^= 0x40;
		ck_assert_int_eq(decode(protocol, bytes, n_bytes),
				 type == protocol->refusal ? 0 : CEOV_ERR_VERSION);
		bytes[0] ^= 1;
		ck_assert_int_eq(decode(protocol, bytes, n_bytes),
				 protocol->other_magic);
	}
}
END_TEST

/* --- bounds ---------------------------------------------------------------------- */

/* A field of an encoded message. */
struct place {
	const struct cei_protocol *protocol;
	const struct cei_field    *field;
	size_t                     at;          /* in bytes, which are a valid message */
	size_t                     n_bytes;
};

static void assert_refused(const struct place *place, const uint8_t *input, size_t n_bytes)
{
	if (decode(place->protocol, input, n_bytes) != CEOV_ERR_INVALID)
		ck_abort_msg("a field of kind %u at byte %zu, of %lld to %llu, is accepted out of "
			     "bounds", place->field->kind, place->at,
			     (long long)place->field->least,
			     (unsigned long long)cei_field_most(place->field));
}

static void try_number(const struct place *place, uint64_t number)
{
	memcpy(changed, bytes, place->n_bytes);
	memcpy(changed + place->at, &number, place->field->kind == CEI_U64 ? 8 : 4);
	assert_refused(place, changed, place->n_bytes);
}

static void try_numbers(const struct place *place)
{
	const struct cei_field *field = place->field;
	int64_t lowest = field->kind == CEI_I32 ? INT32_MIN : 0;
	uint64_t most = field->kind == CEI_I32 ? (uint64_t)field->most : cei_field_most(field);

	if (field->least > lowest)
		try_number(place, (uint64_t)field->least - 1);
	if (most != (field->kind == CEI_I32 ? INT32_MAX :
		     field->kind == CEI_U32 ? UINT32_MAX : UINT64_MAX))
		try_number(place, most + 1);
}

/* The text is not ended, goes on behind its end, and is too short. */
static void try_text(const struct place *place)
{
	uint16_t room = place->field->room;

	memcpy(changed, bytes, place->n_bytes);
	memset(changed + place->at, 'x', room);
	assert_refused(place, changed, place->n_bytes);
	memset(changed + place->at, 0, room);
	changed[place->at] = 'x';
	changed[place->at + room - 1] = 'x';
	assert_refused(place, changed, place->n_bytes);
	memset(changed + place->at, 0, room);
	if (place->field->least)
		assert_refused(place, changed, place->n_bytes);
}

/* Replaces what is counted, which takes n_old bytes, by n of n_unit bytes each, and sets the
 * length. */
static void try_count(const struct place *place, size_t n_old, uint32_t n, size_t n_unit)
{
	size_t at = place->at, n_bytes = place->n_bytes - n_old + n * n_unit, i;
	uint32_t n_body;

	memcpy(changed, bytes, at);
	memcpy(changed + at, &n, sizeof(n));
	at += sizeof(n);
	for (i = 0; i < n; i++)
		memcpy(changed + at + i * n_unit, bytes + at, n_unit);
	memcpy(changed + at + n * n_unit, bytes + at + n_old, place->n_bytes - at - n_old);
	if (place->protocol->has_length) {
		memcpy(&n_body, bytes + LENGTH_AT, sizeof(n_body));
		n_body += (uint32_t)(n_bytes - place->n_bytes);
		memcpy(changed + LENGTH_AT, &n_body, sizeof(n_body));
	}
	assert_refused(place, changed, n_bytes);
}

static size_t try_layout(struct place *place, const struct cei_layout *layout, const char *value);

static void try_counted(struct place *place, const char *value)
{
	const struct cei_field *field = place->field;
	const struct cei_layout alone = { field, 1, 0, NULL };
	struct cei_writer writer = cei_writer_on(again, MADE_BYTES_MAX);
	struct place inner = *place;
	size_t n_all, n_unit = 1;
	uint32_t n;

	memcpy(&n, value + field->count_at, sizeof(n));
	cei_put_layout(&writer, &alone, value);
	n_all = writer.at - sizeof(n);
	if (field->kind == CEI_LIST && n) {
		inner.at += 4;
		n_unit = try_layout(&inner, field->of, value + field->at);
	}
	if (n)
		try_count(place, n_all, (uint32_t)cei_field_most(field) + 1, n_unit);
	if (field->least)
		try_count(place, n_all, (uint32_t)field->least - 1, n_unit);
}

/* Tries all fields of the value, which begins at place->at. Returns how many bytes it takes. */
static size_t try_layout(struct place *place, const struct cei_layout *layout, const char *value)
{
	struct cei_layout before = *layout;
	size_t begin = place->at;
	struct cei_writer writer;
	int32_t is_left_out;
	uint32_t i;

	for (i = 0; i <= layout->n_fields; i++) {
		before.n_fields = (uint16_t)i;
		writer = cei_writer_on(again, MADE_BYTES_MAX);
		cei_put_layout(&writer, &before, value);
		if (i == layout->n_fields)
			break;
		place->at = begin + writer.at;
		place->field = &layout->fields[i];
		memcpy(&is_left_out, value + place->field->unless_at, sizeof(is_left_out));
		if (place->field->unless_at && is_left_out)
			continue;
		if (place->field->kind <= CEI_I32)
			try_numbers(place);
		else if (place->field->kind == CEI_TEXT)
			try_text(place);
		else if (place->field->kind != CEI_RAW && place->field->kind != CEI_REST)
			try_counted(place, value);
	}
	place->at = begin;
	return writer.at;
}

/* Every field's bounds are kept, of those that a message of this type has. */
START_TEST(test_bounds)
{
	const struct cei_protocol *protocol = made_protocols[_i].protocol;
	struct place place = { .protocol = protocol };
	uint32_t type, round;

	for (type = 1; type < protocol->n_kinds; type++) {
		for (round = 0; round < testing_share(N_ROUNDS / 10); round++) {
			made_message(&state, protocol, type, message);
			place.n_bytes = made_bytes(protocol, message, bytes);
			ck_assert_int_eq(cei_decode(protocol, bytes, place.n_bytes, message), 0);
			place.at = 0;
			place.at = try_layout(&place, protocol->head, message);
			try_layout(&place, cei_message_body(protocol, type),
				   (const char *)message + protocol->body_at);
		}
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("messages");
	TCase *tcase = tcase_create("messages");
	int n = (int)made_n_protocols;

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, test_tables);
	tcase_add_loop_test(tcase, test_messages_come_back, 0, n);
	tcase_add_loop_test(tcase, test_versions_and_types, 0, n);
	tcase_add_loop_test(tcase, test_bounds, 0, n);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
