/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Encodes and decodes messages between rails. Every byte goes through the two cursors, so bounds
 * are checked in one place. */

#include "net/far_wire.h"

#include <assert.h>
#include <string.h>

#include "base/cursor.h"

_Static_assert(CEI_FAR_HEAD_BYTES + 4 + CEI_FAR_NOTE_MAX <= CEI_TRANSPORT_MESSAGE_MAX,
	       "every note fits in a message");

/* --- parts --------------------------------------------------------------- */

/* Writes a text and fills its field with 0, so that no uninitialised memory leaves the
 * process. */
static void put_text(struct cei_writer *writer, const char *text, size_t room_bytes)
{
	static const char zeros[CEI_FAR_TEXT_BYTES];
	size_t n_bytes = strnlen(text, room_bytes - 1);

	assert(room_bytes <= sizeof(zeros));
	cei_wire_put_bytes(writer, text, n_bytes);
	cei_wire_put_bytes(writer, zeros, room_bytes - n_bytes);
}

static void get_text(struct cei_reader *reader, char *ret_text, size_t room_bytes)
{
	cei_wire_get_bytes(reader, ret_text, room_bytes);
	if (ret_text[room_bytes - 1]) {
		ret_text[room_bytes - 1] = 0;
		reader->failed = 1;
	}
}

static void fail_if(struct cei_reader *reader, int is_wrong)
{
	if (is_wrong)
		reader->failed = 1;
}

static void put_hello(struct cei_writer *writer, const struct cei_far_hello *hello)
{
	cei_wire_put_u64(writer, hello->instance[0]);
	cei_wire_put_u64(writer, hello->instance[1]);
	put_text(writer, hello->library, sizeof(hello->library));
	put_text(writer, hello->transport, sizeof(hello->transport));
}

static void get_hello(struct cei_reader *reader, struct cei_far_hello *ret_hello)
{
	ret_hello->instance[0] = cei_wire_get_u64(reader);
	ret_hello->instance[1] = cei_wire_get_u64(reader);
	get_text(reader, ret_hello->library, sizeof(ret_hello->library));
	get_text(reader, ret_hello->transport, sizeof(ret_hello->transport));
}

static void get_refuse(struct cei_reader *reader, struct cei_far_refuse *ret_refuse)
{
	ret_refuse->error = (int32_t)cei_wire_get_u32(reader);
	get_text(reader, ret_refuse->text, sizeof(ret_refuse->text));
	/* later versions may define more errors, but 0 and above mean success */
	fail_if(reader, ret_refuse->error >= 0);
}

static void put_piece(struct cei_writer *writer, const struct cei_far_piece *piece)
{
	cei_wire_put_u64(writer, piece->sequence);
	cei_wire_put_u32(writer, piece->region);
	cei_wire_put_u64(writer, piece->offset);
	cei_wire_put_u64(writer, piece->row_bytes);
	cei_wire_put_u64(writer, piece->n_rows);
	cei_wire_put_u64(writer, piece->pitch_bytes);
}

/* Returns whether the piece has rows that do not overlap, and an end that can be told. */
static int is_shape(const struct cei_far_piece *piece)
{
	uint64_t extent;

	if (!piece->row_bytes || !piece->n_rows || piece->pitch_bytes < piece->row_bytes)
		return 0;
	if (piece->n_rows == 1 && piece->pitch_bytes != piece->row_bytes)
		return 0;
	return !__builtin_mul_overflow(piece->n_rows, piece->pitch_bytes, &extent) &&
	       extent <= UINT64_MAX - piece->offset;
}

static void get_piece(struct cei_reader *reader, struct cei_far_piece *ret_piece)
{
	ret_piece->sequence = cei_wire_get_u64(reader);
	ret_piece->region = cei_wire_get_u32(reader);
	ret_piece->offset = cei_wire_get_u64(reader);
	ret_piece->row_bytes = cei_wire_get_u64(reader);
	ret_piece->n_rows = cei_wire_get_u64(reader);
	ret_piece->pitch_bytes = cei_wire_get_u64(reader);
	fail_if(reader, !ret_piece->sequence || !is_shape(ret_piece));
}

static void put_mark(struct cei_writer *writer, const struct cei_far_mark *mark)
{
	cei_wire_put_u64(writer, mark->sequence);
	cei_wire_put_u64(writer, mark->after);
	cei_wire_put_u32(writer, mark->region);
	cei_wire_put_u32(writer, mark->index);
	cei_wire_put_u64(writer, mark->value);
}

static void get_mark(struct cei_reader *reader, struct cei_far_mark *ret_mark)
{
	ret_mark->sequence = cei_wire_get_u64(reader);
	ret_mark->after = cei_wire_get_u64(reader);
	ret_mark->region = cei_wire_get_u32(reader);
	ret_mark->index = cei_wire_get_u32(reader);
	ret_mark->value = cei_wire_get_u64(reader);
	fail_if(reader, ret_mark->after >= ret_mark->sequence);
}

static void get_beat(struct cei_reader *reader, struct cei_far_beat *ret_beat)
{
	ret_beat->is_question = cei_wire_get_u32(reader);
	ret_beat->n_parked = cei_wire_get_u32(reader);
	ret_beat->n_landed_bytes = cei_wire_get_u64(reader);
	fail_if(reader, ret_beat->is_question > 1);
}

static void get_note(struct cei_reader *reader, struct cei_far_note *ret_note)
{
	ret_note->n_bytes = cei_wire_get_u32(reader);
	if (reader->failed || !ret_note->n_bytes || ret_note->n_bytes > CEI_FAR_NOTE_MAX ||
	    ret_note->n_bytes != reader->n_bytes - reader->at) {
		reader->failed = 1;
		return;
	}
	ret_note->bytes = reader->bytes + reader->at;
	reader->at += ret_note->n_bytes;
}

/* --- whole messages ------------------------------------------------------ */

static void put_body(struct cei_writer *writer, const struct cei_far_message *message)
{
	switch ((enum cei_far_type)message->type) {
	case CEI_FAR_HELLO:
		put_hello(writer, &message->hello);
		break;
	case CEI_FAR_REFUSE:
		cei_wire_put_u32(writer, (uint32_t)message->refuse.error);
		put_text(writer, message->refuse.text, sizeof(message->refuse.text));
		break;
	case CEI_FAR_PIECE:
		put_piece(writer, &message->piece);
		break;
	case CEI_FAR_MARK:
		put_mark(writer, &message->mark);
		break;
	case CEI_FAR_ACK:
		cei_wire_put_u64(writer, message->ack);
		break;
	case CEI_FAR_BEAT:
		cei_wire_put_u32(writer, message->beat.is_question);
		cei_wire_put_u32(writer, message->beat.n_parked);
		cei_wire_put_u64(writer, message->beat.n_landed_bytes);
		break;
	case CEI_FAR_NOTE:
		cei_wire_put_u32(writer, message->note.n_bytes);
		cei_wire_put_bytes(writer, message->note.bytes, message->note.n_bytes);
		break;
	case CEI_FAR_BYE:
		break;
	}
}

static void get_body(struct cei_reader *reader, struct cei_far_message *ret_message)
{
	switch ((enum cei_far_type)ret_message->type) {
	case CEI_FAR_HELLO:
		get_hello(reader, &ret_message->hello);
		return;
	case CEI_FAR_REFUSE:
		get_refuse(reader, &ret_message->refuse);
		return;
	case CEI_FAR_PIECE:
		get_piece(reader, &ret_message->piece);
		return;
	case CEI_FAR_MARK:
		get_mark(reader, &ret_message->mark);
		return;
	case CEI_FAR_ACK:
		ret_message->ack = cei_wire_get_u64(reader);
		return;
	case CEI_FAR_BEAT:
		get_beat(reader, &ret_message->beat);
		return;
	case CEI_FAR_NOTE:
		get_note(reader, &ret_message->note);
		return;
	case CEI_FAR_BYE:
		return;
	}
	reader->failed = 1;     /* an unknown type */
}

uint32_t cei_far_encode(const struct cei_far_message *message, uint8_t *bytes)
{
	struct cei_writer head = cei_writer_on(bytes, CEI_FAR_HEAD_BYTES);
	struct cei_writer body = cei_writer_on(bytes + CEI_FAR_HEAD_BYTES,
					       CEI_TRANSPORT_MESSAGE_MAX - CEI_FAR_HEAD_BYTES);

	put_body(&body, message);
	cei_wire_put_u32(&head, CEI_FAR_MAGIC);
	cei_wire_put_u32(&head, CEI_FAR_VERSION);
	cei_wire_put_u32(&head, message->type);
	cei_wire_put_u32(&head, (uint32_t)body.at);
	cei_wire_put_u64(&head, message->group);
	cei_wire_put_u32(&head, message->source);
	cei_wire_put_u32(&head, message->target);
	cei_wire_put_u64(&head, message->incarnation);
	cei_wire_put_u64(&head, message->heard);
	assert(!head.failed && !body.failed && head.at == CEI_FAR_HEAD_BYTES);
	assert(message->type != CEI_FAR_PIECE || head.at + body.at <= CEI_TRANSPORT_HEAD_MAX);
	return (uint32_t)(head.at + body.at);
}

int cei_far_decode(const void *bytes, size_t n_bytes, struct cei_far_message *ret_message)
{
	struct cei_reader reader = cei_reader_on(bytes, n_bytes);
	uint32_t magic, n_body_bytes;

	memset(ret_message, 0, sizeof(*ret_message));
	magic = cei_wire_get_u32(&reader);
	ret_message->version = cei_wire_get_u32(&reader);
	ret_message->type = cei_wire_get_u32(&reader);
	n_body_bytes = cei_wire_get_u32(&reader);
	ret_message->group = cei_wire_get_u64(&reader);
	ret_message->source = cei_wire_get_u32(&reader);
	ret_message->target = cei_wire_get_u32(&reader);
	ret_message->incarnation = cei_wire_get_u64(&reader);
	ret_message->heard = cei_wire_get_u64(&reader);
	if (reader.failed || magic != CEI_FAR_MAGIC || !ret_message->incarnation ||
	    n_body_bytes != reader.n_bytes - reader.at)
		return CEOV_ERR_INVALID;
	if (ret_message->version != CEI_FAR_VERSION && ret_message->type != CEI_FAR_REFUSE)
		return CEOV_ERR_VERSION;
	get_body(&reader, ret_message);
	return cei_reader_end(&reader);
}

uint64_t cei_far_piece_extent(const struct cei_far_piece *piece)
{
	return (piece->n_rows - 1) * piece->pitch_bytes + piece->row_bytes;
}

uint64_t cei_far_piece_bytes(const struct cei_far_piece *piece)
{
	return piece->n_rows * piece->row_bytes;
}

const char *cei_far_type_text(uint32_t type)
{
	static const char *const texts[] = {
		[CEI_FAR_HELLO] = "HELLO", [CEI_FAR_REFUSE] = "REFUSE",
		[CEI_FAR_PIECE] = "PIECE", [CEI_FAR_MARK] = "MARK", [CEI_FAR_ACK] = "ACK",
		[CEI_FAR_BEAT] = "BEAT", [CEI_FAR_NOTE] = "NOTE",
		[CEI_FAR_BYE] = "BYE",
	};

	return type && type < sizeof(texts) / sizeof(texts[0]) ? texts[type] : "unknown";
}
