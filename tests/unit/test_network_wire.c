/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Notes of networks to bytes and back, and bytes that are no notes. */

#include <string.h>

#include "net/network_wire.h"
#include "testing.h"

/* A note of each type, with values that fill their fields. */
static struct cei_note example(uint32_t type)
{
	struct cei_note note = { .type = type, .number = UINT64_MAX, .heard = 15 };
	uint32_t i;

	switch (type) {
	case CEI_NOTE_FIND:
		note.find.number = UINT64_MAX;
		note.find.rank = 65535;
		memset(note.find.name, 'n', sizeof(note.find.name) - 1);
		break;
	case CEI_NOTE_REPLY:
		note.reply.number = 7;
		note.reply.found.region = 8;
		note.reply.found.generation = 9;
		note.reply.found.kind = CEI_NETWORK_COUNTERS;
		note.reply.found.size_bytes = UINT64_MAX;
		note.reply.found.n_details = CEI_NETWORK_DETAILS_BYTES;
		memset(note.reply.found.details, 0xa5, CEI_NETWORK_DETAILS_BYTES);
		break;
	case CEI_NOTE_RAISE:
	case CEI_NOTE_ASK:
	case CEI_NOTE_VALUE:
		note.counter = (struct cei_note_counter){ 1, 2, CEOV_VALUE_LIMIT - 1, 4 };
		break;
	case CEI_NOTE_ABORT:
		note.abort.error = CEOV_ERR_UNCERTAIN;
		note.abort.blame = CEOV_NOBODY;
		note.abort.n = CEI_NETWORK_ABORTS_MAX;
		for (i = 0; i < note.abort.n; i++)
			note.abort.signals[i] = (struct cei_note_signal){ { i, i + 1 }, i + 2 };
		break;
	case CEI_NOTE_RENEW:
	case CEI_NOTE_RENEWED:
		note.renew.number = 1;
		note.renew.signal = (struct cei_note_signal){ { 3, 4 }, 5 };
		break;
	case CEI_NOTE_BARRIER:
		note.barrier.call = 6;
		note.barrier.round = CEI_NOTE_ROUNDS - 1;
		break;
	case CEI_NOTE_DROP:
		note.drop = 11;
		break;
	case CEI_NOTE_GONE:
		note.gone = (struct cei_note_gone){ 12, 1, 13 };
		break;
	case CEI_NOTE_CLOCK:
		note.clock = (struct cei_note_clock){ CEI_CLOCK_TELL, 13, UINT64_MAX, 14 };
		break;
	case CEI_NOTE_RAIL:
		note.rail.number = CEI_NETWORK_RAILS_MAX - 1;
		break;
	case CEI_NOTE_HEARD:
		note.number = 0;
		break;
	}
	return note;
}

/* _i: a type. */
START_TEST(test_each_note_comes_back)
{
	struct cei_note note = example((uint32_t)_i), back;
	uint8_t bytes[CEI_FAR_NOTE_MAX];
	uint32_t n = cei_note_encode(&note, bytes), i;

	ck_assert_uint_le(n, CEI_FAR_NOTE_MAX);
	ck_assert_int_eq(cei_note_decode(bytes, n, &back), 0);
	ck_assert_mem_eq(&note, &back, sizeof(note));
	for (i = 0; i < n; i++)
		ck_assert_int_eq(cei_note_decode(bytes, i, &back), CEOV_ERR_INVALID);
	bytes[n] = 0;
	ck_assert_int_eq(cei_note_decode(bytes, n + 1, &back), CEOV_ERR_INVALID);
}
END_TEST

static void refused(const struct cei_note *note)
{
	uint8_t bytes[CEI_FAR_NOTE_MAX];
	struct cei_note back;
	uint32_t n = cei_note_encode(note, bytes);

	ck_assert_int_eq(cei_note_decode(bytes, n, &back), CEOV_ERR_INVALID);
}

START_TEST(test_values_that_no_process_says_are_refused)
{
	struct cei_note note = example(CEI_NOTE_FIND);

	note.find.number = 0;
	refused(&note);
	note = example(CEI_NOTE_FIND);
	note.find.name[0] = 0;
	refused(&note);
	note = example(CEI_NOTE_FIND);
	note.find.name[CEI_NETWORK_NAME_BYTES - 1] = 'x';
	refused(&note);
	note = example(CEI_NOTE_REPLY);
	note.reply.result = CEOV_FULL;
	refused(&note);
	note = example(CEI_NOTE_REPLY);
	note.reply.found.region = 0;
	refused(&note);
	note = example(CEI_NOTE_REPLY);
	note.reply.found.kind = (enum cei_network_kind)3;
	refused(&note);
	note = example(CEI_NOTE_VALUE);
	note.counter.value = CEOV_VALUE_LIMIT;
	refused(&note);
	note = example(CEI_NOTE_ABORT);
	note.abort.error = 0;
	refused(&note);
	note = example(CEI_NOTE_ABORT);
	note.abort.n = 0;
	refused(&note);
	note = example(CEI_NOTE_GONE);
	note.gone.has_departed = 2;
	refused(&note);
	note = example(CEI_NOTE_GONE);
	note.gone.has_departed = 0;
	refused(&note);
	note = example(CEI_NOTE_BARRIER);
	note.barrier.round = CEI_NOTE_ROUNDS;
	refused(&note);
	note = example(CEI_NOTE_RAIL);
	note.rail.number = CEI_NETWORK_RAILS_MAX;
	refused(&note);
	note = example(CEI_NOTE_CLOCK);
	note.clock.what = CEI_CLOCK_ASK;        /* a question has no times */
	refused(&note);
	note.clock = (struct cei_note_clock){ CEI_CLOCK_END + 1, 1, 0, 0 };
	refused(&note);
	note.clock = (struct cei_note_clock){ CEI_CLOCK_ASK, 0, 0, 0 };
	refused(&note);
	note = example(CEI_NOTE_HEARD);
	note.number = 1;
	refused(&note);
	note.type = CEI_NOTE_HEARD + 1;
	refused(&note);
}
END_TEST

/* What was heard is changed alone. */
START_TEST(test_what_was_heard_is_changed_in_the_bytes)
{
	struct cei_note note = example(CEI_NOTE_VALUE), back;
	uint8_t bytes[CEI_FAR_NOTE_MAX];
	uint32_t n = cei_note_encode(&note, bytes);

	note.heard = UINT64_C(0x1122334455667788);
	cei_note_set_heard(bytes, note.heard);
	ck_assert_int_eq(cei_note_decode(bytes, n, &back), 0);
	ck_assert_mem_eq(&note, &back, sizeof(note));
}
END_TEST

/* Whatever the bytes are, what is decoded stays within its bounds. */
START_TEST(test_damaged_bytes_stay_within_bounds)
{
	uint8_t bytes[CEI_FAR_NOTE_MAX];
	uint64_t random = testing_seed();
	struct cei_note note;
	uint32_t i, n;

	for (i = 0; i < 200000; i++) {
		note = example(1 + i % CEI_NOTE_HEARD);
		n = cei_note_encode(&note, bytes);
		bytes[testing_below(&random, n)] = (uint8_t)testing_random(&random);
		bytes[testing_below(&random, n)] = (uint8_t)testing_random(&random);
		if (cei_note_decode(bytes, n, &note))
			continue;
		if (note.type == CEI_NOTE_ABORT)
			ck_assert_uint_le(note.abort.n, CEI_NETWORK_ABORTS_MAX);
		else if (note.type == CEI_NOTE_BARRIER)
			ck_assert_uint_lt(note.barrier.round, CEI_NOTE_ROUNDS);
		else if (note.type == CEI_NOTE_FIND)
			ck_assert_uint_lt(strnlen(note.find.name, CEI_NETWORK_NAME_BYTES),
					  CEI_NETWORK_NAME_BYTES);
		else if (note.type == CEI_NOTE_REPLY)
			ck_assert_uint_le(note.reply.found.n_details,
					  CEI_NETWORK_DETAILS_BYTES);
	}
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("network wire");
	TCase *all = tcase_create("network wire");

	tcase_add_loop_test(all, test_each_note_comes_back, CEI_NOTE_FIND, CEI_NOTE_HEARD + 1);
	tcase_add_test(all, test_values_that_no_process_says_are_refused);
	tcase_add_test(all, test_what_was_heard_is_changed_in_the_bytes);
	tcase_add_test(all, test_damaged_bytes_stay_within_bounds);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
