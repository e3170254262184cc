/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CHANNEL_WAITS_H
#define CEI_CHANNEL_WAITS_H

/* Waits for peers, and what is said when they fail. */

#include "ops/channel/channel.h"

enum cei_wait_end {
	CEI_WAIT_GOES_ON,
	CEI_WAIT_HAS_ENDED,             /* the channel, in another thread of this rank */
	CEI_WAIT_POISONED,              /* the peer has ended it */
	CEI_WAIT_LOST,                  /* the peer's process has gone */
	CEI_WAIT_LATE                   /* the deadline has passed */
};

struct cei_wait {
	uint64_t deadline_ns;
	uint64_t look_ns;               /* when it looks next whether peers have gone */
};

/* Why a wait ends, for the message. */
struct cei_wait_cause {
	enum cei_wait_end end;
	uint32_t          peer;
	uint32_t          poison;       /* of the peer */
	const char       *what;         /* the peer has not done: "has not made this call" */
	char              where[CEI_CALL_TEXT_BYTES + 40];      /* what this rank does */
};

struct cei_wait cei_wait_begin(const ceov_channel *channel);

/* One look at what may end the wait for cause->peer, before the thread pauses: fills in the end and
 * the poison, and returns the end. Look again at what is awaited before you raise it: a peer may do
 * its last call and then end the channel in order. */
enum cei_wait_end cei_wait_look(const ceov_channel *channel, struct cei_wait *wait,
				struct cei_wait_cause *cause);

/* To be called when all awaited peers were looked at: now and then they are asked whether they have
 * gone, which takes a lock. */
void cei_wait_passed(struct cei_wait *wait);

/* Two ranks that call different things in one run. */
struct cei_two_calls {
	uint64_t run;
	uint32_t a;
	uint32_t b;
	uint64_t what_a;
	uint64_t what_b;
};

/* Raises that the two differ, which it names. Returns the error. */
int cei_channel_raise_calls(ceov_channel *channel, const struct cei_two_calls *two);

/* A message, and what its receiver expects. */
struct cei_two_messages {
	uint32_t sender;
	uint32_t receiver;
	uint64_t what;
	uint64_t bytes;
	uint64_t expected_what;
	uint64_t expected_bytes;
};

/* Raises that the two differ. Returns the error. */
int cei_messages_raise(ceov_channel *channel, const struct cei_two_messages *two);

/* Raises why a wait ends, and ends the channel. Returns the error. */
int cei_wait_raise(ceov_channel *channel, const struct cei_wait_cause *cause);

/* The following are called with the channel's lock held, raise their errors and end the channel. */

/* Awaits the heads of all peers for this run, compares them with this rank's call, and notes how
 * many chunks each will put. A head that differs ends the wait at once. */
int cei_channel_await_heads(ceov_channel *channel);

/* Awaits chunk i, from 0, of a peer in this run. */
int cei_channel_await_chunk(ceov_channel *channel, uint32_t peer, uint64_t i);

/* Awaits room for this rank's next chunk. */
int cei_channel_await_room(ceov_channel *channel);

#endif /* CEI_CHANNEL_WAITS_H */
