/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Sends and receives. What a rank sends to another one is a stream of bytes through a ring in the
 * sender's memory: for each message a head and the bytes behind it. Messages of a pair and
 * direction draw turns when they are called. Those of one call, and of several threads, go on
 * beside each other: whoever waits makes steps of his own messages whose turn it is, and holds the
 * lock for a step alone.
 */

#include "ops/channel/channel.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/report.h"
#include "ops/channel/waits.h"
#include "ops/compute/dtype.h"

struct head {
	uint64_t what;                  /* cei_call_text(), of the send, without its root */
	uint64_t n_bytes;
};

struct message {
	int         is_send;
	uint32_t    peer;
	uint64_t    turn;
	uint64_t    n_done;             /* of the head and the bytes behind it */
	struct head head;               /* sent or received */
	struct head expected;           /* of a receive */
	char       *bytes;
};

/* --- the ring -------------------------------------------------------------------------------- */

struct stream {
	struct cei_ring_messages *counters;
	char                     *ring;
	uint64_t                  ring_bytes;
	struct cei_turns         *turns;        /* this rank's, of the direction */
};

static struct stream stream_of(ceov_channel *channel, const struct message *message)
{
	uint32_t from = message->is_send ? channel->rank : message->peer;
	uint32_t to = message->is_send ? message->peer : channel->rank;
	struct cei_ring *ring = channel->rings[from];
	char *rings = ring->slots + CEI_RING_SLOTS * channel->slot_bytes;

	return (struct stream){ &ring->messages[to], rings + to * channel->message_bytes,
				channel->message_bytes, message->is_send ?
				&channel->sends[message->peer] :
				&channel->receives[message->peer] };
}

/* Copies between the ring, where the stream is now, and memory. Does not go beyond its end. */
static void copy(const struct stream *stream, char *memory, uint64_t n, int is_send)
{
	uint64_t at = stream->turns->n_bytes % stream->ring_bytes;
	uint64_t first = stream->ring_bytes - at < n ? stream->ring_bytes - at : n;

	if (is_send) {
		memcpy(stream->ring + at, memory, first);
		memcpy(stream->ring, memory + first, n - first);
	} else {
		memcpy(memory, stream->ring + at, first);
		memcpy(memory + first, stream->ring, n - first);
	}
}

/* How many bytes can be sent or received now. What the peer says is at most the ring. */
static uint64_t room_of(const struct stream *stream, int is_send)
{
	/* acquire, both: pair with the release in move() of the peer */
	uint64_t theirs = atomic_load_explicit(is_send ? &stream->counters->n_read :
					       &stream->counters->n_sent, memory_order_acquire);
	uint64_t held = is_send ? stream->turns->n_bytes - theirs : theirs - stream->turns->n_bytes;

	if (held > stream->ring_bytes)
		return 0;               /* a lie: the wait ends at its deadline */
	return is_send ? stream->ring_bytes - held : held;
}

/* Sends or receives what can be of n bytes. Returns how many were. */
static uint64_t move(const struct stream *stream, char *memory, uint64_t n, int is_send)
{
	uint64_t room = room_of(stream, is_send);

	if (room > n)
		room = n;
	if (!room)
		return 0;
	copy(stream, memory, room, is_send);
	stream->turns->n_bytes += room;
	/* release, both: pair with the acquire in room_of() of the peer */
	atomic_store_explicit(is_send ? &stream->counters->n_sent : &stream->counters->n_read,
			      stream->turns->n_bytes, memory_order_release);
	return room;
}

/* --- one message ----------------------------------------------------------------------------- */

static uint64_t size_of(const struct message *message)
{
	return sizeof(struct head) + (message->is_send ? message->head.n_bytes :
				      message->expected.n_bytes);
}

static int is_complete(const struct message *message)
{
	return message->n_done == size_of(message);
}

int cei_messages_raise(ceov_channel *channel, const struct cei_two_messages *two)
{
	struct ceov_failure failure = cei_failure(CEOV_ERR_INVALID, 0);
	char ours[CEI_CALL_TEXT_BYTES], theirs[CEI_CALL_TEXT_BYTES];

	failure.rank = two->sender == channel->rank ? two->receiver : two->sender;
	cei_call_text(two->expected_what, ours);
	cei_call_text(two->what, theirs);
	return cei_raise_failure(cei_channel_report(channel), &failure, "channel '%s': rank %u "
				 "sends rank %u %" PRIu64 " bytes by a %s, but that expects %"
				 PRIu64 " bytes of a %s", channel->name, two->sender, two->receiver,
				 two->bytes, theirs, two->expected_bytes, ours);
}

/* The head of what a receive gets has come: it must be what is expected. */
static int check(ceov_channel *channel, const struct message *message)
{
	const struct cei_two_messages two = {
		message->peer, channel->rank, message->head.what, message->head.n_bytes,
		message->expected.what, message->expected.n_bytes
	};

	if (two.what == two.expected_what && two.bytes == two.expected_bytes)
		return 0;
	return cei_channel_end(channel, cei_messages_raise(channel, &two));
}

/* Goes on with a message whose turn it is. Returns 1: it has moved; 0: not; or an error. */
static int step(ceov_channel *channel, struct message *message)
{
	struct stream stream = stream_of(channel, message);
	uint64_t before = message->n_done, n_head = sizeof(message->head);
	int r;

	if (stream.turns->n_ended != message->turn)
		return 0;
	if (before < n_head) {
		message->n_done += move(&stream, (char *)&message->head + before, n_head - before,
					message->is_send);
		r = !message->is_send && message->n_done == n_head ? check(channel, message) : 0;
		if (r)
			return r;
	}
	if (message->n_done >= n_head && !is_complete(message))
		message->n_done += move(&stream, message->bytes + (message->n_done - n_head),
					size_of(message) - message->n_done, message->is_send);
	if (is_complete(message))
		stream.turns->n_ended++;
	return message->n_done != before;
}

/* --- the messages of a call ------------------------------------------------------------------ */

struct batch {
	struct message *messages;
	uint32_t        n;
	uint32_t        n_left;         /* the first n_left are not complete */
};

/* The order of the rest stays: messages of a pair and direction follow each other. */
static void forget(struct batch *batch, uint32_t i)
{
	memmove(&batch->messages[i], &batch->messages[i + 1],
		(--batch->n_left - i) * sizeof(batch->messages[0]));
}

/* Returns 1: some message has moved; 0: none; or an error. */
static int step_all(ceov_channel *channel, struct batch *batch)
{
	int r = 0, has_moved = 0;
	uint32_t i = 0;

	pthread_mutex_lock(&channel->turns_lock);
	while (r >= 0 && i < batch->n_left) {
		r = step(channel, &batch->messages[i]);
		has_moved |= r > 0;
		if (is_complete(&batch->messages[i]))
			forget(batch, i);
		else
			i++;
	}
	pthread_mutex_unlock(&channel->turns_lock);
	return r < 0 ? r : has_moved;
}

static void draw_turns(ceov_channel *channel, struct batch *batch)
{
	uint32_t i;

	pthread_mutex_lock(&channel->turns_lock);
	for (i = 0; i < batch->n; i++)
		batch->messages[i].turn =
			stream_of(channel, &batch->messages[i]).turns->n_given++;
	pthread_mutex_unlock(&channel->turns_lock);
}

static struct message make(const struct ceov_call *call)
{
	struct message message = { .is_send = call->kind == CEOV_SEND, .peer = call->root };
	struct head head = { .what = (uint64_t)CEOV_SEND | (uint64_t)call->dtype << 8,
			     .n_bytes = call->count * cei_dtype_bytes(call->dtype) };

	if (message.is_send) {
		message.head = head;
		message.bytes = (char *)(uintptr_t)call->source;        /* read only */
	} else {
		message.expected = head;
		message.bytes = call->target;
	}
	return message;
}

/* Looks at all that is awaited. Returns 0, or the end of a wait with its cause. */
static enum cei_wait_end look(const ceov_channel *channel, struct cei_wait *wait,
			      const struct batch *batch, struct cei_wait_cause *cause)
{
	const struct message *message;
	uint32_t i;

	for (i = 0; i < batch->n_left; i++) {
		message = &batch->messages[i];
		cause->peer = message->peer;
		if (!cei_wait_look(channel, wait, cause))
			continue;
		snprintf(cause->where, sizeof(cause->where), "%s rank %u, %" PRIu64 " of %" PRIu64
			 " bytes", message->is_send ? "send to" : "receive from", message->peer,
			 message->n_done > sizeof(struct head) ?
			 message->n_done - sizeof(struct head) : 0,
			 size_of(message) - sizeof(struct head));
		return cause->end;
	}
	cei_wait_passed(wait);
	return CEI_WAIT_GOES_ON;
}

static int finish(ceov_channel *channel, struct batch *batch)
{
	struct cei_wait_cause cause = { .what = "has not gone on" };
	struct cei_wait wait = cei_wait_begin(channel);
	enum cei_wait_end end = CEI_WAIT_GOES_ON;
	struct cei_backoff backoff;
	int r;

	cei_backoff_reset(&backoff);
	for (;;) {
		r = step_all(channel, batch);
		if (r < 0 || !batch->n_left)
			return r < 0 ? r : 0;
		if (!r && end)                  /* nothing has come behind the last look */
			return cei_wait_raise(channel, &cause);
		end = CEI_WAIT_GOES_ON;
		if (r) {
			cei_backoff_again(&backoff);
			wait = cei_wait_begin(channel);
			continue;
		}
		end = look(channel, &wait, batch, &cause);
		if (!end)
			cei_backoff_step(&backoff);
	}
}

int cei_messages_run(ceov_channel *channel, const struct cei_calls *calls)
{
	uint32_t n = calls->n;
	struct batch batch = { .n = n, .n_left = n };
	struct ceov_call call;
	struct message one;
	uint32_t i;
	int r;

	batch.messages = n == 1 ? &one : malloc(n * sizeof(*batch.messages));
	if (!batch.messages)
		return cei_raise(cei_channel_report(channel), CEOV_ERR_NO_MEMORY, 0,
				 "ceov_channel_run: channel '%s': no memory for %u messages",
				 channel->name, n);
	for (i = 0; i < n; i++) {
		call = cei_calls_at(calls, i);
		batch.messages[i] = make(&call);
	}
	draw_turns(channel, &batch);
	r = finish(channel, &batch);
	if (n > 1)
		free(batch.messages);
	return r;
}
