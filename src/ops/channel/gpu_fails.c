/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Says in words what kernels have found. */

#include "ops/channel/gpu.h"

#include <inttypes.h>
#include <stdio.h>

#include "ce_engine/objects/context.h"
#include "ops/channel/waits.h"

/* --- calls that differ ----------------------------------------------------------------------- */

static int raise_sizes(ceov_channel *channel, const struct cei_two_calls *two,
		       const struct cei_channel_note *note)
{
	struct ceov_failure failure = cei_failure(CEOV_ERR_INVALID, 0);
	char text[CEI_CALL_TEXT_BYTES];

	failure.rank = two->b == channel->rank ? two->a : two->b;
	cei_call_text(two->what_a, text);
	return cei_raise_failure(cei_channel_report(channel), &failure, "channel '%s', call %"
				 PRIu64 ": rank %u calls %s and expects %" PRIu64 " bytes from "
				 "rank %u, but rank %u calls the same and gives %" PRIu64,
				 channel->name,
				 two->run, two->a, text, note->expected.bytes, two->b, two->b,
				 note->found.bytes);
}

/* Rank `a` has found that what rank `b` calls, or sends, is not what it expected. */
static int raise_note(ceov_channel *channel, const struct cei_channel_status *status, uint32_t a,
		      uint32_t b)
{
	const struct cei_channel_note *note = &status->note;
	const struct cei_two_messages messages = {
		.sender = b, .receiver = a, .what = note->found.what, .bytes = note->found.bytes,
		.expected_what = note->expected.what, .expected_bytes = note->expected.bytes,
	};
	const struct cei_two_calls two = { .run = status->run, .a = a, .b = b,
					   .what_a = note->expected.what,
					   .what_b = note->found.what };

	if ((note->expected.what & 255) == CEOV_SEND)
		return cei_messages_raise(channel, &messages);
	return two.what_a == two.what_b ? raise_sizes(channel, &two, note)
		: cei_channel_raise_calls(channel, &two);
}

/* --- other ends ------------------------------------------------------------------------------ */

static int raise_unordered(ceov_channel *channel, const struct cei_channel_status *status,
			   uint32_t rank)
{
	struct ceov_failure failure = cei_failure(CEOV_ERR_STATE, 0);
	char where[32] = "";

	failure.rank = rank;
	if (status->run)
		snprintf(where, sizeof(where), ", call %" PRIu64, status->run);
	return cei_raise_failure(cei_channel_report(channel), &failure, "channel '%s'%s: two calls "
				 "of rank %u were under way at once, and the results of both are "
				 "invalid: order replays of graphs and other calls by events",
				 channel->name, where, rank);
}

/* The error that a peer's poison stands for. */
static int error_of(enum cei_channel_end end)
{
	switch (end) {
	case CEI_CHANNEL_LATE:
		return CEOV_ERR_TIMEOUT;
	case CEI_CHANNEL_RELEASED:
	case CEI_CHANNEL_POISONED:      /* by a rank that had released it */
		return CEOV_ERR_STATE;
	case CEI_CHANNEL_DIFFERS:
		return CEOV_ERR_INVALID;
	default:
		return CEOV_ERR_ABORTED;
	}
}

static const char *lacking(const struct cei_channel_status *status)
{
	if (!status->run)
		return status->wait == CEI_CHANNEL_FOR_ROOM ? "has not received it"
			: "has not sent it";
	return status->has_head ? "has begun it and has not gone on" :
		"has not made this call";
}

static int raise_wait(ceov_channel *channel, const struct cei_channel_status *status)
{
	enum cei_channel_end end = (enum cei_channel_end)(status->cause & 255);
	struct cei_wait_cause cause = { .end = CEI_WAIT_LATE, .peer = status->peer,
					.what = lacking(status) };
	char text[CEI_CALL_TEXT_BYTES];

	if (status->end == CEI_CHANNEL_POISONED) {
		cause.end = CEI_WAIT_POISONED;
		cause.poison = (uint32_t)-error_of(end);
	}
	cei_call_text(status->what, text);
	if (status->run)
		snprintf(cause.where, sizeof(cause.where), "call %" PRIu64 ", %s", status->run,
			 text);
	else
		snprintf(cause.where, sizeof(cause.where), "messages");
	return cei_wait_raise(channel, &cause);
}

static int raise_end(ceov_channel *channel, const struct cei_channel_status *status)
{
	enum cei_channel_end end = (enum cei_channel_end)status->end;
	uint32_t by = channel->rank, because_of = status->peer;

	if (end == CEI_CHANNEL_POISONED) {
		end = (enum cei_channel_end)(status->cause & 255);
		by = status->peer;
		because_of = (uint32_t)(status->cause >> 8 & 255);
	}
	if (end == CEI_CHANNEL_DIFFERS)
		return raise_note(channel, status, by, because_of);
	if (end == CEI_CHANNEL_UNORDERED)
		return raise_unordered(channel, status, by);
	return raise_wait(channel, status);
}

int cei_gpu_channel_raise(ceov_channel *channel, const struct cei_channel_status *status)
{
	if (status->end == CEI_CHANNEL_ABORTED)
		return cei_channel_end(channel, CEOV_ERR_ABORTED);      /* raised by who did */
	return cei_channel_end(channel, raise_end(channel, status));
}
