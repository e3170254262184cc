/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The tables of what processes of a group tell each other. */

#include "ipc/group/messages.h"

#include "base/report.h"

static const struct cei_field find_fields[] = {
	{ CEI_U32, CEI_AT(cei_group_find, rank) },
	{ CEI_TEXT, CEI_AT(cei_group_find, name), .least = 1 },
};

static int is_reply(const void *value)
{
	const struct cei_group_reply *reply = value;

	return (reply->result <= 0 || reply->result == CEOV_NONE) &&
	       (reply->result < 0 || !reply->native_code);
}

#define FOUND_AT(member) \
	CEI_AT(cei_group_reply, member), CEI_UNLESS(cei_group_reply, result)

static const struct cei_field reply_fields[] = {
	{ CEI_U64, CEI_AT(cei_group_reply, use), .least = 1 },
	{ CEI_I32, CEI_AT(cei_group_reply, result), .least = CEI_ERROR_LOWEST, .most = CEOV_NONE },
	{ CEI_U32, CEI_AT(cei_group_reply, native_code) },
	{ CEI_U32, FOUND_AT(id), .least = 1, .most = CEI_GROUP_ID_MAX },
	{ CEI_U32, FOUND_AT(generation), .least = 1 },
	{ CEI_U32, FOUND_AT(n_fds), .most = CEI_GROUP_FDS_MAX },
	{ CEI_BYTES, FOUND_AT(bytes), CEI_COUNT(cei_group_reply, n_bytes) },
};

static const struct cei_field drop_fields[] = {
	{ CEI_U64, CEI_AT(cei_group_use_named, use), .least = 1 },
};

static const struct cei_field renew_fields[] = {
	{ CEI_U64, CEI_AT(cei_group_use_named, use), .least = 1 },
	{ CEI_U32, CEI_AT(cei_group_use_named, generation), .least = 2 },
};

static const struct cei_field barrier_fields[] = {
	{ CEI_U64, CEI_AT(cei_group_barrier_step, call), .least = 1 },
	{ CEI_U32, CEI_AT(cei_group_barrier_step, step), .most = CEI_GROUP_STEPS - 1 },
};

static const struct cei_field late_fields[] = {
	{ CEI_U64, CEI_AT(cei_group_rank_said, n_calls), .least = 1 },
	{ CEI_U32, CEI_AT(cei_group_rank_said, rank) },
};

static const struct cei_field said_fields[] = {
	{ CEI_U64, CEI_AT(cei_group_rank_said, n_calls) },
	{ CEI_U32, CEI_AT(cei_group_rank_said, rank) },
};

static const struct cei_layout process_layout = CEI_ONE_U32;
static const struct cei_field gone_fields[] = {
	{ CEI_LIST, CEI_AT(cei_group_gone, processes), CEI_COUNT(cei_group_gone, n),
	  .least = 1, .of = &process_layout },
};

static const struct cei_field counter_fields[] = {
	{ CEI_U32, CEI_AT(cei_group_counter, id), .least = 1, .most = CEI_GROUP_ID_MAX },
	{ CEI_U32, CEI_AT(cei_group_counter, index) },
	{ CEI_U32, CEI_AT(cei_group_counter, generation), .least = 1 },
	{ CEI_U64, CEI_AT(cei_group_counter, value), .most = CEOV_VALUE_LIMIT - 1 },
};

static const struct cei_field signal_fields[] = {
	{ CEI_U32, CEI_AT(cei_group_signal, rank) },
	{ CEI_U32, CEI_AT(cei_group_signal, id), .least = 1, .most = CEI_GROUP_ID_MAX },
	{ CEI_U32, CEI_AT(cei_group_signal, generation), .least = 1 },
};
static const struct cei_layout signal_layout = CEI_LAYOUT(signal_fields, cei_group_signal, NULL);

static const struct cei_field abort_fields[] = {
	{ CEI_I32, CEI_AT(cei_group_abort, error), .least = CEI_ERROR_LOWEST, .most = -1 },
	{ CEI_U32, CEI_AT(cei_group_abort, blame) },
	{ CEI_LIST, CEI_AT(cei_group_abort, signals), CEI_COUNT(cei_group_abort, n),
	  .least = 1, .of = &signal_layout },
};

static const struct cei_message_kind kinds[] = {
	[CEI_GROUP_FIND] = { "FIND", CEI_LAYOUT(find_fields, cei_group_find, NULL) },
	[CEI_GROUP_REPLY] = { "REPLY", CEI_LAYOUT(reply_fields, cei_group_reply, is_reply) },
	[CEI_GROUP_DROP] = { "DROP", CEI_LAYOUT(drop_fields, cei_group_use_named, NULL) },
	[CEI_GROUP_RENEW] = { "RENEW", CEI_LAYOUT(renew_fields, cei_group_use_named, NULL) },
	[CEI_GROUP_BARRIER] = { "BARRIER",
				CEI_LAYOUT(barrier_fields, cei_group_barrier_step, NULL) },
	[CEI_GROUP_LATE] = { "LATE", CEI_LAYOUT(late_fields, cei_group_rank_said, NULL) },
	[CEI_GROUP_LIMIT] = { "LIMIT", CEI_LAYOUT(said_fields, cei_group_rank_said, NULL) },
	[CEI_GROUP_GONE] = { "GONE", CEI_LAYOUT(gone_fields, cei_group_gone, NULL) },
	[CEI_GROUP_BYE] = { "BYE", CEI_LAYOUT(said_fields, cei_group_rank_said, NULL) },
	[CEI_GROUP_BEAT] = { "BEAT", CEI_NOTHING },
	[CEI_GROUP_ACK] = { "ACK", CEI_NOTHING },
	[CEI_GROUP_RAISE] = { "RAISE", CEI_LAYOUT(counter_fields, cei_group_counter, NULL) },
	[CEI_GROUP_ASK] = { "ASK", CEI_LAYOUT(counter_fields, cei_group_counter, NULL) },
	[CEI_GROUP_VALUE] = { "VALUE", CEI_LAYOUT(counter_fields, cei_group_counter, NULL) },
	[CEI_GROUP_ABORT] = { "ABORT", CEI_LAYOUT(abort_fields, cei_group_abort, NULL) },
};

static const struct cei_field head_fields[] = {
	{ CEI_U32, CEI_AT(cei_group_message, type) },
	{ CEI_U64, CEI_AT(cei_group_message, number) },
};
static const struct cei_layout head = CEI_LAYOUT(head_fields, cei_group_message, NULL);

const struct cei_protocol cei_group_protocol = {
	.n_bytes_max = CEI_GROUP_MESSAGE_BYTES,
	.body_at = offsetof(struct cei_group_message, find),
	.head = &head,
	CEI_KINDS(kinds),
};
