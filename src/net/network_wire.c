/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Notes to bytes and back. */

#include "net/network_wire.h"

#include <string.h>

#include <ceoverlap/ceoverlap.h>

#include "base/cursor.h"
#include "base/report.h"

/* --- to bytes ------------------------------------------------------------------- */

static void put_found(struct cei_writer *writer, const struct cei_network_found *found)
{
	cei_wire_put_u32(writer, found->region);
	cei_wire_put_u32(writer, found->kind);
	cei_wire_put_u64(writer, found->size_bytes);
	cei_wire_put_u32(writer, found->generation);
	cei_wire_put_u32(writer, found->n_details);
	cei_wire_put_bytes(writer, found->details, found->n_details);
}

static void put_signal(struct cei_writer *writer, const struct cei_note_signal *signal)
{
	cei_wire_put_u32(writer, signal->named.rank);
	cei_wire_put_u32(writer, signal->named.region);
	cei_wire_put_u32(writer, signal->generation);
}

static void put_abort(struct cei_writer *writer, const struct cei_note_abort *abort)
{
	uint32_t i;

	cei_wire_put_u32(writer, (uint32_t)abort->error);
	cei_wire_put_u32(writer, abort->blame);
	cei_wire_put_u32(writer, abort->n);
	for (i = 0; i < abort->n; i++)
		put_signal(writer, &abort->signals[i]);
}

static void put_clock(struct cei_writer *writer, const struct cei_note_clock *clock)
{
	cei_wire_put_u32(writer, clock->what);
	cei_wire_put_u64(writer, clock->number);
	cei_wire_put_u64(writer, clock->heard_ns);
	cei_wire_put_u64(writer, clock->told_ns);
}

static void put_body(struct cei_writer *writer, const struct cei_note *note)
{
	switch (note->type) {
	case CEI_NOTE_FIND:
		cei_wire_put_u64(writer, note->find.number);
		cei_wire_put_u32(writer, note->find.rank);
		cei_wire_put_bytes(writer, note->find.name, sizeof(note->find.name));
		break;
	case CEI_NOTE_REPLY:
		cei_wire_put_u64(writer, note->reply.number);
		cei_wire_put_u32(writer, (uint32_t)note->reply.result);
		if (!note->reply.result)
			put_found(writer, &note->reply.found);
		break;
	case CEI_NOTE_DROP:
		cei_wire_put_u32(writer, note->drop);
		break;
	case CEI_NOTE_RAISE:
	case CEI_NOTE_ASK:
	case CEI_NOTE_VALUE:
		cei_wire_put_u32(writer, note->counter.region);
		cei_wire_put_u32(writer, note->counter.index);
		cei_wire_put_u64(writer, note->counter.value);
		cei_wire_put_u32(writer, note->counter.generation);
		break;
	case CEI_NOTE_ABORT:
		put_abort(writer, &note->abort);
		break;
	case CEI_NOTE_RENEW:
	case CEI_NOTE_RENEWED:
		cei_wire_put_u64(writer, note->renew.number);
		put_signal(writer, &note->renew.signal);
		break;
	case CEI_NOTE_BARRIER:
		cei_wire_put_u64(writer, note->barrier.call);
		cei_wire_put_u32(writer, note->barrier.round);
		break;
	case CEI_NOTE_GONE:
		cei_wire_put_u32(writer, note->gone.rank);
		cei_wire_put_u32(writer, note->gone.has_departed);
		cei_wire_put_u64(writer, note->gone.n_barriers);
		break;
	case CEI_NOTE_CLOCK:
		put_clock(writer, &note->clock);
		break;
	case CEI_NOTE_RAIL:
		cei_wire_put_u32(writer, note->rail.number);
		break;
	case CEI_NOTE_HEARD:
		break;
	}
}

/* The head: type, number, heard. */
#define HEARD_AT 12u

uint32_t cei_note_encode(const struct cei_note *note, uint8_t *bytes)
{
	struct cei_writer writer = cei_writer_on(bytes, CEI_FAR_NOTE_MAX);

	cei_wire_put_u32(&writer, note->type);
	cei_wire_put_u64(&writer, note->number);
	cei_wire_put_u64(&writer, note->heard);
	put_body(&writer, note);
	return (uint32_t)writer.at;
}

void cei_note_set_heard(uint8_t *bytes, uint64_t heard)
{
	struct cei_writer writer = cei_writer_on(bytes + HEARD_AT, sizeof(heard));

	cei_wire_put_u64(&writer, heard);
}

/* --- from bytes -------------------------------------------------------------------- */

static uint32_t get_within(struct cei_reader *reader, uint32_t least, uint32_t most)
{
	uint32_t value = cei_wire_get_u32(reader);

	if (value >= least && value <= most)
		return value;
	reader->failed = 1;
	return least;
}

static uint64_t get_number(struct cei_reader *reader)
{
	uint64_t number = cei_wire_get_u64(reader);

	reader->failed |= !number;
	return number;
}

static void get_name(struct cei_reader *reader, char *ret_name)
{
	cei_wire_get_bytes(reader, ret_name, CEI_NETWORK_NAME_BYTES);
	if (!ret_name[0] || ret_name[CEI_NETWORK_NAME_BYTES - 1])
		reader->failed = 1;
}

static void get_found(struct cei_reader *reader, struct cei_network_found *ret_found)
{
	ret_found->region = get_within(reader, 1, UINT32_MAX);
	ret_found->kind = (enum cei_network_kind)get_within(reader, CEI_NETWORK_BYTES,
							    CEI_NETWORK_COUNTERS);
	ret_found->size_bytes = cei_wire_get_u64(reader);
	ret_found->generation = cei_wire_get_u32(reader);
	ret_found->n_details = get_within(reader, 0, CEI_NETWORK_DETAILS_BYTES);
	cei_wire_get_bytes(reader, ret_found->details, ret_found->n_details);
}

static void get_signal(struct cei_reader *reader, struct cei_note_signal *ret_signal)
{
	ret_signal->named.rank = cei_wire_get_u32(reader);
	ret_signal->named.region = cei_wire_get_u32(reader);
	ret_signal->generation = cei_wire_get_u32(reader);
}

static void get_abort(struct cei_reader *reader, struct cei_note_abort *ret_abort)
{
	uint32_t i;

	ret_abort->error = (int32_t)cei_wire_get_u32(reader);
	if (ret_abort->error >= 0 || ret_abort->error < CEI_ERROR_LOWEST)
		reader->failed = 1;
	ret_abort->blame = cei_wire_get_u32(reader);
	ret_abort->n = get_within(reader, 1, CEI_NETWORK_ABORTS_MAX);
	for (i = 0; i < ret_abort->n; i++)
		get_signal(reader, &ret_abort->signals[i]);
}

static void get_clock(struct cei_reader *reader, struct cei_note_clock *ret_clock)
{
	ret_clock->what = get_within(reader, CEI_CLOCK_ASK, CEI_CLOCK_END);
	ret_clock->number = get_number(reader);
	ret_clock->heard_ns = cei_wire_get_u64(reader);
	ret_clock->told_ns = cei_wire_get_u64(reader);
	if (ret_clock->what != CEI_CLOCK_TELL && (ret_clock->heard_ns || ret_clock->told_ns))
		reader->failed = 1;
}

static void get_body(struct cei_reader *reader, struct cei_note *ret_note)
{
	switch (ret_note->type) {
	case CEI_NOTE_FIND:
		ret_note->find.number = get_number(reader);
		ret_note->find.rank = cei_wire_get_u32(reader);
		get_name(reader, ret_note->find.name);
		break;
	case CEI_NOTE_REPLY:
		ret_note->reply.number = get_number(reader);
		ret_note->reply.result = (int32_t)get_within(reader, 0, CEOV_NONE);
		if (ret_note->reply.result && ret_note->reply.result != CEOV_NONE)
			reader->failed = 1;
		if (!ret_note->reply.result)
			get_found(reader, &ret_note->reply.found);
		break;
	case CEI_NOTE_DROP:
		ret_note->drop = cei_wire_get_u32(reader);
		break;
	case CEI_NOTE_RAISE:
	case CEI_NOTE_ASK:
	case CEI_NOTE_VALUE:
		ret_note->counter.region = cei_wire_get_u32(reader);
		ret_note->counter.index = cei_wire_get_u32(reader);
		ret_note->counter.value = cei_wire_get_u64(reader);
		ret_note->counter.generation = cei_wire_get_u32(reader);
		if (ret_note->counter.value >= CEOV_VALUE_LIMIT)
			reader->failed = 1;
		break;
	case CEI_NOTE_ABORT:
		get_abort(reader, &ret_note->abort);
		break;
	case CEI_NOTE_RENEW:
	case CEI_NOTE_RENEWED:
		ret_note->renew.number = get_number(reader);
		get_signal(reader, &ret_note->renew.signal);
		break;
	case CEI_NOTE_BARRIER:
		ret_note->barrier.call = get_number(reader);
		ret_note->barrier.round = get_within(reader, 0, CEI_NOTE_ROUNDS - 1);
		break;
	case CEI_NOTE_GONE:
		ret_note->gone.rank = cei_wire_get_u32(reader);
		ret_note->gone.has_departed = get_within(reader, 0, 1);
		ret_note->gone.n_barriers = cei_wire_get_u64(reader);
		if (!ret_note->gone.has_departed && ret_note->gone.n_barriers)
			reader->failed = 1;
		break;
	case CEI_NOTE_CLOCK:
		get_clock(reader, &ret_note->clock);
		break;
	case CEI_NOTE_RAIL:
		ret_note->rail.number = get_within(reader, 0, CEI_NETWORK_RAILS_MAX - 1);
		break;
	case CEI_NOTE_HEARD:
		reader->failed |= ret_note->number != 0;
		break;
	default:
		reader->failed = 1;
	}
}

int cei_note_decode(const void *bytes, size_t n_bytes, struct cei_note *ret_note)
{
	struct cei_reader reader = cei_reader_on(bytes, n_bytes);

	memset(ret_note, 0, sizeof(*ret_note));
	ret_note->type = cei_wire_get_u32(&reader);
	ret_note->number = cei_wire_get_u64(&reader);
	ret_note->heard = cei_wire_get_u64(&reader);
	get_body(&reader, ret_note);
	return cei_reader_end(&reader);
}
