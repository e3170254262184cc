/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The tables of messages between rails. */

#include "net/far_wire.h"

_Static_assert(CEI_FAR_HEAD_BYTES + 12 + CEI_FAR_NOTE_MAX <= CEI_TRANSPORT_MESSAGE_MAX,
	       "every note fits in a message");

static const struct cei_field hello_fields[] = {
	{ CEI_U64, CEI_AT(cei_far_hello, instance) },
	{ CEI_TEXT, CEI_AT(cei_far_hello, library) },
	{ CEI_TEXT, CEI_AT(cei_far_hello, transport) },
};

/* Later versions may define more errors, but 0 and above mean success. */
static const struct cei_field refuse_fields[] = {
	{ CEI_I32, CEI_AT(cei_far_refuse, error), .least = INT32_MIN, .most = -1 },
	{ CEI_TEXT, CEI_AT(cei_far_refuse, text) },
};

/* Returns whether the piece has rows that do not overlap, and an end that can be told. */
static int is_piece(const void *value)
{
	const struct cei_far_piece *piece = value;
	uint64_t extent;

	if (piece->pitch_bytes < piece->row_bytes)
		return 0;
	if (piece->n_rows == 1 && piece->pitch_bytes != piece->row_bytes)
		return 0;
	return !__builtin_mul_overflow(piece->n_rows, piece->pitch_bytes, &extent) &&
	       extent <= UINT64_MAX - piece->offset;
}

static const struct cei_field piece_fields[] = {
	{ CEI_U64, CEI_AT(cei_far_piece, sequence), .least = 1 },
	{ CEI_U32, CEI_AT(cei_far_piece, region) },
	{ CEI_U64, CEI_AT(cei_far_piece, offset) },
	{ CEI_U64, CEI_AT(cei_far_piece, row_bytes), .least = 1 },
	{ CEI_U64, CEI_AT(cei_far_piece, n_rows), .least = 1 },
	{ CEI_U64, CEI_AT(cei_far_piece, pitch_bytes) },
};

static int is_mark(const void *value)
{
	const struct cei_far_mark *mark = value;

	return mark->after < mark->sequence;
}

static const struct cei_field mark_fields[] = {
	{ CEI_U64, CEI_AT(cei_far_mark, sequence) },
	{ CEI_U64, CEI_AT(cei_far_mark, after) },
	{ CEI_U32, CEI_AT(cei_far_mark, region) },
	{ CEI_U32, CEI_AT(cei_far_mark, index) },
	{ CEI_U64, CEI_AT(cei_far_mark, value) },
};

static const struct cei_field beat_fields[] = {
	{ CEI_U32, CEI_AT(cei_far_beat, is_question), .most = 1 },
	{ CEI_U32, CEI_AT(cei_far_beat, n_parked) },
	{ CEI_U64, CEI_AT(cei_far_beat, n_landed_bytes) },
};

static const struct cei_field note_fields[] = {
	{ CEI_U64, CEI_AT(cei_far_note, number), .least = 1 },
	{ CEI_VIEW, CEI_AT(cei_far_note, bytes), CEI_COUNT(cei_far_note, n_bytes),
	  .least = 1, .most = CEI_FAR_NOTE_MAX },
};

static int is_clock(const void *value)
{
	const struct cei_far_clock *clock = value;

	return clock->what == CEI_FAR_CLOCK_TELL || (!clock->heard_ns && !clock->told_ns);
}

static const struct cei_field clock_fields[] = {
	{ CEI_U32, CEI_AT(cei_far_clock, what), .least = CEI_FAR_CLOCK_ASK,
	  .most = CEI_FAR_CLOCK_END },
	{ CEI_U64, CEI_AT(cei_far_clock, number), .least = 1 },
	{ CEI_U64, CEI_AT(cei_far_clock, heard_ns) },
	{ CEI_U64, CEI_AT(cei_far_clock, told_ns) },
};

static const struct cei_message_kind kinds[] = {
	[CEI_FAR_HELLO] = { "HELLO", CEI_LAYOUT(hello_fields, cei_far_hello, NULL) },
	[CEI_FAR_REFUSE] = { "REFUSE", CEI_LAYOUT(refuse_fields, cei_far_refuse, NULL) },
	[CEI_FAR_PIECE] = { "PIECE", CEI_LAYOUT(piece_fields, cei_far_piece, is_piece) },
	[CEI_FAR_MARK] = { "MARK", CEI_LAYOUT(mark_fields, cei_far_mark, is_mark) },
	[CEI_FAR_ACK] = { "ACK", CEI_ONE_U64 },
	[CEI_FAR_BEAT] = { "BEAT", CEI_LAYOUT(beat_fields, cei_far_beat, NULL) },
	[CEI_FAR_NOTE] = { "NOTE", CEI_LAYOUT(note_fields, cei_far_note, NULL) },
	[CEI_FAR_BYE] = { "BYE", CEI_ONE_U64 },
	[CEI_FAR_CLOCK] = { "CLOCK", CEI_LAYOUT(clock_fields, cei_far_clock, is_clock) },
};

static const struct cei_field head_fields[] = {
	{ CEI_U32, CEI_AT(cei_far_message, magic) },
	{ CEI_U32, CEI_AT(cei_far_message, version) },
	{ CEI_U32, CEI_AT(cei_far_message, type) },
	{ CEI_U32, CEI_AT(cei_far_message, n_bytes) },
	{ CEI_U64, CEI_AT(cei_far_message, group) },
	{ CEI_U32, CEI_AT(cei_far_message, source) },
	{ CEI_U32, CEI_AT(cei_far_message, target) },
	{ CEI_U64, CEI_AT(cei_far_message, one), .least = 1, .most = 1 },
	{ CEI_U64, CEI_AT(cei_far_message, has_heard), .most = 1 },
};
static const struct cei_layout head = CEI_LAYOUT(head_fields, cei_far_message, NULL);

const struct cei_protocol cei_far_protocol = {
	.magic = CEI_FAR_MAGIC,
	.version = CEI_FAR_VERSION,
	.other_magic = CEOV_ERR_INVALID,
	.has_length = 1,
	.refusal = CEI_FAR_REFUSE,
	.n_bytes_max = CEI_TRANSPORT_MESSAGE_MAX,
	.body_at = offsetof(struct cei_far_message, hello),
	.head = &head,
	CEI_KINDS(kinds),
};

uint64_t cei_far_piece_extent(const struct cei_far_piece *piece)
{
	return (piece->n_rows - 1) * piece->pitch_bytes + piece->row_bytes;
}

uint64_t cei_far_piece_bytes(const struct cei_far_piece *piece)
{
	return piece->n_rows * piece->row_bytes;
}
