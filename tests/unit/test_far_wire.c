/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests the messages between rails as bytes: what we send comes back equal, and everything else
 * is refused. */

#include <check.h>
#include <string.h>

#include "net/far_wire.h"
#include "testing.h"

#define N_ROUNDS 20000u

static uint64_t state;
static uint8_t note_bytes[CEI_FAR_NOTE_MAX];

static uint32_t random_u32(void)
{
	return (uint32_t)testing_random(&state);
}

static void random_text(char *text, size_t room_bytes)
{
	size_t i, n_bytes = testing_below(&state, room_bytes);

	for (i = 0; i < n_bytes; i++)
		text[i] = (char)(1 + testing_below(&state, 255));
}

static void random_piece(struct cei_far_piece *piece)
{
	piece->sequence = 1 + (testing_random(&state) >> 1);
	piece->region = random_u32();
	piece->offset = testing_random(&state) >> 2;
	piece->row_bytes = 1 + testing_below(&state, 1 << 20);
	piece->n_rows = 1 + testing_below(&state, 1 << 20);
	piece->pitch_bytes = piece->row_bytes;
	if (piece->n_rows > 1)
		piece->pitch_bytes += testing_below(&state, 1 << 20);
}

static void random_body(struct cei_far_message *message)
{
	switch ((enum cei_far_type)message->type) {
	case CEI_FAR_HELLO:
		message->hello.instance[0] = testing_random(&state);
		message->hello.instance[1] = testing_random(&state);
		random_text(message->hello.library, sizeof(message->hello.library));
		random_text(message->hello.transport, sizeof(message->hello.transport));
		break;
	case CEI_FAR_REFUSE:
		message->refuse.error = -1 - (int32_t)testing_below(&state, 100);
		random_text(message->refuse.text, sizeof(message->refuse.text));
		break;
	case CEI_FAR_PIECE:
		random_piece(&message->piece);
		break;
	case CEI_FAR_MARK:
		message->mark.sequence = 1 + (testing_random(&state) >> 1);
		message->mark.after = testing_below(&state, message->mark.sequence);
		message->mark.region = random_u32();
		message->mark.index = random_u32();
		message->mark.value = testing_random(&state);
		break;
	case CEI_FAR_ACK:
		message->ack = testing_random(&state);
		break;
	case CEI_FAR_BEAT:
		message->beat.is_question = random_u32() & 1;
		message->beat.n_parked = random_u32();
		message->beat.n_landed_bytes = testing_random(&state);
		break;
	case CEI_FAR_NOTE:
		message->note.n_bytes = 1 + (uint32_t)testing_below(&state, CEI_FAR_NOTE_MAX);
		message->note.bytes = note_bytes;
		break;
	case CEI_FAR_BYE:
		break;
	}
}

static void random_message(struct cei_far_message *message, uint32_t type)
{
	memset(message, 0, sizeof(*message));
	message->type = type;
	message->version = CEI_FAR_VERSION;
	message->group = testing_random(&state);
	message->source = random_u32();
	message->target = random_u32();
	message->incarnation = 1 + (testing_random(&state) >> 1);
	message->heard = testing_random(&state);
	random_body(message);
}

static uint32_t random_type(void)
{
	return CEI_FAR_HELLO + (uint32_t)testing_below(&state, CEI_FAR_BYE);
}

/* Asserts that both messages say the same; a note's bytes are elsewhere after decoding. */
static void check_equal(struct cei_far_message *sent, struct cei_far_message *got)
{
	if (sent->type == CEI_FAR_NOTE) {
		ck_assert_uint_eq(sent->note.n_bytes, got->note.n_bytes);
		ck_assert_mem_eq(sent->note.bytes, got->note.bytes, got->note.n_bytes);
		got->note.bytes = sent->note.bytes;
	}
	ck_assert_mem_eq(sent, got, sizeof(*sent));
}

static void start(void)
{
	state = testing_seed();
	testing_fill(note_bytes, sizeof(note_bytes), state);
}

START_TEST(test_messages_come_back_equal)
{
	uint8_t bytes[CEI_TRANSPORT_MESSAGE_MAX];
	struct cei_far_message sent, got;
	uint32_t round, type, n_bytes;

	start();
	for (round = 0; round < N_ROUNDS; round++) {
		type = CEI_FAR_HELLO + round % CEI_FAR_BYE;
		random_message(&sent, type);
		n_bytes = cei_far_encode(&sent, bytes);
		if (type == CEI_FAR_PIECE)
			ck_assert_uint_le(n_bytes, CEI_TRANSPORT_HEAD_MAX);
		ck_assert_int_eq(cei_far_decode(bytes, n_bytes, &got), 0);
		check_equal(&sent, &got);
	}
}
END_TEST

START_TEST(test_messages_that_were_cut_or_made_longer_are_refused)
{
	uint8_t bytes[CEI_TRANSPORT_MESSAGE_MAX + 1] = { 0 };
	struct cei_far_message sent, got;
	uint32_t round, n_bytes;

	start();
	for (round = 0; round < N_ROUNDS; round++) {
		random_message(&sent, random_type());
		n_bytes = cei_far_encode(&sent, bytes);
		ck_assert_int_lt(cei_far_decode(bytes, testing_below(&state, n_bytes), &got), 0);
		ck_assert_int_lt(cei_far_decode(bytes, n_bytes + 1, &got), 0);
	}
}
END_TEST

/* Whatever is decoded from bytes that changed is a message that we could have sent. */
START_TEST(test_bytes_that_changed_are_refused_or_mean_something_valid)
{
	uint8_t bytes[CEI_TRANSPORT_MESSAGE_MAX], again[CEI_TRANSPORT_MESSAGE_MAX];
	uint32_t round, n_bytes, n_refused = 0;
	struct cei_far_message sent, got;

	start();
	for (round = 0; round < 10 * N_ROUNDS; round++) {
		random_message(&sent, random_type());
		n_bytes = cei_far_encode(&sent, bytes);
		bytes[testing_below(&state, n_bytes)] ^= (uint8_t)(1u << (round % 8));
		if (cei_far_decode(bytes, n_bytes, &got)) {
			n_refused++;
			continue;
		}
		ck_assert_uint_eq(cei_far_encode(&got, again), n_bytes);
	}
	ck_assert_uint_gt(n_refused, N_ROUNDS / 10);
}
END_TEST

START_TEST(test_random_bytes_are_refused)
{
	uint8_t bytes[CEI_TRANSPORT_MESSAGE_MAX];
	struct cei_far_message got;
	uint32_t round;

	start();
	for (round = 0; round < N_ROUNDS; round++) {
		testing_fill(bytes, sizeof(bytes), testing_random(&state));
		ck_assert_int_lt(cei_far_decode(bytes, testing_below(&state, sizeof(bytes)),
						&got), 0);
	}
}
END_TEST

/* Encodes the message, which no owner sends, and asserts that it is refused. */
static void refused(const struct cei_far_message *message)
{
	uint8_t bytes[CEI_TRANSPORT_MESSAGE_MAX];
	struct cei_far_message got;
	uint32_t n_bytes = cei_far_encode(message, bytes);

	ck_assert_int_eq(cei_far_decode(bytes, n_bytes, &got), CEOV_ERR_INVALID);
}

START_TEST(test_pieces_of_impossible_shape_are_refused)
{
	struct cei_far_message good, bad;

	start();
	random_message(&good, CEI_FAR_PIECE);
	good.piece.n_rows = 2;
	bad = good, bad.piece.sequence = 0, refused(&bad);
	bad = good, bad.piece.row_bytes = 0, refused(&bad);
	bad = good, bad.piece.n_rows = 0, refused(&bad);
	bad = good, bad.piece.pitch_bytes = bad.piece.row_bytes - 1, refused(&bad);
	bad = good, bad.piece.n_rows = UINT64_MAX / 2, bad.piece.pitch_bytes += 2, refused(&bad);
	bad = good, bad.piece.offset = UINT64_MAX - 1, refused(&bad);
	bad = good, bad.piece.n_rows = 1, bad.piece.pitch_bytes = bad.piece.row_bytes + 1;
	refused(&bad);
}
END_TEST

START_TEST(test_values_that_no_owner_sends_are_refused)
{
	struct cei_far_message bad;

	start();
	random_message(&bad, CEI_FAR_MARK);
	bad.mark.after = bad.mark.sequence, refused(&bad);
	random_message(&bad, CEI_FAR_BEAT);
	bad.beat.is_question = 2, refused(&bad);
	random_message(&bad, CEI_FAR_REFUSE);
	bad.refuse.error = 0, refused(&bad);
	random_message(&bad, CEI_FAR_NOTE);
	bad.note.n_bytes = 0, refused(&bad);
	random_message(&bad, CEI_FAR_BYE);
	bad.incarnation = 0, refused(&bad);
	bad.incarnation = 1, bad.type = CEI_FAR_BYE + 1, refused(&bad);
}
END_TEST

START_TEST(test_another_version_is_told_apart_and_may_refuse)
{
	uint8_t bytes[CEI_TRANSPORT_MESSAGE_MAX];
	struct cei_far_message sent, got;
	uint32_t type, n_bytes;

	start();
	for (type = CEI_FAR_HELLO; type <= CEI_FAR_BYE; type++) {
		random_message(&sent, type);
		n_bytes = cei_far_encode(&sent, bytes);
		bytes[4] = CEI_FAR_VERSION + 1;
		ck_assert_int_eq(cei_far_decode(bytes, n_bytes, &got),
				 type == CEI_FAR_REFUSE ? 0 : CEOV_ERR_VERSION);
		ck_assert_uint_eq(got.version, CEI_FAR_VERSION + 1);
		ck_assert_uint_eq(got.group, sent.group);
		ck_assert_uint_eq(got.source, sent.source);
		ck_assert_uint_eq(got.target, sent.target);
	}
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("far_wire");
	TCase *all = tcase_create("far_wire");

	tcase_add_test(all, test_messages_come_back_equal);
	tcase_add_test(all, test_messages_that_were_cut_or_made_longer_are_refused);
	tcase_add_test(all, test_bytes_that_changed_are_refused_or_mean_something_valid);
	tcase_add_test(all, test_random_bytes_are_refused);
	tcase_add_test(all, test_pieces_of_impossible_shape_are_refused);
	tcase_add_test(all, test_values_that_no_owner_sends_are_refused);
	tcase_add_test(all, test_another_version_is_told_apart_and_may_refuse);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
