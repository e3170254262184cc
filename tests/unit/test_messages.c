/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests the tables of all protocols, and with random messages that they describe what they say. */

#include <stdlib.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

#include "made_message.h"
#include "testing.h"

#define N_ROUNDS 300u

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

/* Asserts that the bytes are refused, or are a message that encodes to the same bytes. */
static int is_accepted(const struct cei_protocol *protocol, const uint8_t *input, size_t n_bytes)
{
	int r = cei_decode(protocol, input, n_bytes, back);

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
		ck_assert_msg(cei_decode(protocol, bytes, n, back) == CEOV_ERR_INVALID,
			      "%s: a %s of %zu bytes is accepted when it is cut at %zu",
			      made->name, protocol->kinds[type].name, n_bytes, n);
	bytes[n_bytes] = 0;
	ck_assert_int_eq(cei_decode(protocol, bytes, n_bytes + 1, back), CEOV_ERR_INVALID);
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
		ck_assert_int_eq(cei_decode(protocol, bytes, n_bytes, back), CEOV_ERR_INVALID);
		bytes[at] = (uint8_t)protocol->n_kinds;
		ck_assert_int_eq(cei_decode(protocol, bytes, n_bytes, back), CEOV_ERR_INVALID);
		bytes[at] = (uint8_t)type;
		if (!protocol->magic)
			continue;
		bytes[4] ^= 0x40;
		ck_assert_int_eq(cei_decode(protocol, bytes, n_bytes, back),
				 type == protocol->refusal ? 0 : CEOV_ERR_VERSION);
		bytes[0] ^= 1;
		ck_assert_int_eq(cei_decode(protocol, bytes, n_bytes, back),
				 protocol->other_magic);
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
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
