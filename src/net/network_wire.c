/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The tables of notes. */

#include "net/network_wire.h"

#include "base/report.h"

static const struct cei_field find_fields[] = {
	{ CEI_U64, CEI_AT(cei_note_find, number), .least = 1 },
	{ CEI_U32, CEI_AT(cei_note_find, rank) },
	{ CEI_TEXT, CEI_AT(cei_note_find, name), .least = 1 },
};

static int is_reply(const void *value)
{
	const struct cei_note_reply *reply = value;

	return !reply->result || reply->result == CEOV_NONE;
}

#define FOUND_AT(member) \
	CEI_AT(cei_note_reply, found.member), CEI_UNLESS(cei_note_reply, result)

static const struct cei_field reply_fields[] = {
	{ CEI_U64, CEI_AT(cei_note_reply, number), .least = 1 },
	{ CEI_I32, CEI_AT(cei_note_reply, result), .most = CEOV_NONE },
	{ CEI_U32, FOUND_AT(region), .least = 1 },
	{ CEI_U32, FOUND_AT(kind), .least = CEI_NETWORK_BYTES, .most = CEI_NETWORK_COUNTERS },
	{ CEI_U64, FOUND_AT(size_bytes) },
	{ CEI_U32, FOUND_AT(generation) },
	{ CEI_BYTES, FOUND_AT(details), CEI_COUNT(cei_note_reply, found.n_details) },
};

static const struct cei_field counter_fields[] = {
	{ CEI_U32, CEI_AT(cei_note_counter, region) },
	{ CEI_U32, CEI_AT(cei_note_counter, index) },
	{ CEI_U64, CEI_AT(cei_note_counter, value), .most = CEOV_VALUE_LIMIT - 1 },
	{ CEI_U32, CEI_AT(cei_note_counter, generation) },
};

static const struct cei_field signal_fields[] = {
	{ CEI_U32, CEI_AT(cei_note_signal, named.rank) },
	{ CEI_U32, CEI_AT(cei_note_signal, named.region) },
	{ CEI_U32, CEI_AT(cei_note_signal, generation) },
};
static const struct cei_layout signal_layout = CEI_LAYOUT(signal_fields, cei_note_signal, NULL);

static const struct cei_field abort_fields[] = {
	{ CEI_I32, CEI_AT(cei_note_abort, error), .least = CEI_ERROR_LOWEST, .most = -1 },
	{ CEI_U32, CEI_AT(cei_note_abort, blame) },
	{ CEI_LIST, CEI_AT(cei_note_abort, signals), CEI_COUNT(cei_note_abort, n),
	  .least = 1, .of = &signal_layout },
};

static const struct cei_field renew_fields[] = {
	{ CEI_U64, CEI_AT(cei_note_renew, number), .least = 1 },
	{ CEI_U32, CEI_AT(cei_note_renew, signal.named.rank) },
	{ CEI_U32, CEI_AT(cei_note_renew, signal.named.region) },
	{ CEI_U32, CEI_AT(cei_note_renew, signal.generation) },
};

static const struct cei_field barrier_fields[] = {
	{ CEI_U64, CEI_AT(cei_note_barrier, call), .least = 1 },
	{ CEI_U32, CEI_AT(cei_note_barrier, round), .most = CEI_NOTE_ROUNDS - 1 },
};

static int is_gone(const void *value)
{
	const struct cei_note_gone *gone = value;

	return gone->has_departed || !gone->n_barriers;
}

static const struct cei_field gone_fields[] = {
	{ CEI_U32, CEI_AT(cei_note_gone, rank) },
	{ CEI_U32, CEI_AT(cei_note_gone, has_departed), .most = 1 },
	{ CEI_U64, CEI_AT(cei_note_gone, n_barriers) },
};

static const struct cei_message_kind kinds[] = {
	[CEI_NOTE_FIND] = { "FIND", CEI_LAYOUT(find_fields, cei_note_find, NULL) },
	[CEI_NOTE_REPLY] = { "REPLY", CEI_LAYOUT(reply_fields, cei_note_reply, is_reply) },
	[CEI_NOTE_DROP] = { "DROP", CEI_ONE_U32 },
	[CEI_NOTE_RAISE] = { "RAISE", CEI_LAYOUT(counter_fields, cei_note_counter, NULL) },
	[CEI_NOTE_ASK] = { "ASK", CEI_LAYOUT(counter_fields, cei_note_counter, NULL) },
	[CEI_NOTE_VALUE] = { "VALUE", CEI_LAYOUT(counter_fields, cei_note_counter, NULL) },
	[CEI_NOTE_ABORT] = { "ABORT", CEI_LAYOUT(abort_fields, cei_note_abort, NULL) },
	[CEI_NOTE_RENEW] = { "RENEW", CEI_LAYOUT(renew_fields, cei_note_renew, NULL) },
	[CEI_NOTE_RENEWED] = { "RENEWED", CEI_LAYOUT(renew_fields, cei_note_renew, NULL) },
	[CEI_NOTE_BARRIER] = { "BARRIER", CEI_LAYOUT(barrier_fields, cei_note_barrier, NULL) },
	[CEI_NOTE_GONE] = { "GONE", CEI_LAYOUT(gone_fields, cei_note_gone, is_gone) },
};

static const struct cei_field head_fields[] = {
	{ CEI_U32, CEI_AT(cei_note, type) },
};
static const struct cei_layout head = CEI_LAYOUT(head_fields, cei_note, NULL);

const struct cei_protocol cei_note_protocol = {
	.n_bytes_max = CEI_FAR_NOTE_MAX,
	.body_at = offsetof(struct cei_note, find),
	.head = &head,
	CEI_KINDS(kinds),
};

uint32_t cei_note_encode(const struct cei_note *note, uint8_t *bytes)
{
	return (uint32_t)cei_encode(&cei_note_protocol, note, bytes);
}

int cei_note_decode(const void *bytes, size_t n_bytes, struct cei_note *ret_note)
{
	return cei_decode(&cei_note_protocol, bytes, n_bytes, ret_note);
}
