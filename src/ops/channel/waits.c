/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Waits for heads, chunks and room, by polling shared memory; tells what has not come, or which
 * calls differ. */

#include "ops/channel/waits.h"

#include <inttypes.h>
#include <stdio.h>

#include "ce_engine/objects/context.h"

/* How often a wait looks whether the peer has gone, which takes a lock. */
#define LOOK_NS UINT64_C(1000000)

static const struct cei_ring_head *head_of(const ceov_channel *channel, uint32_t rank, uint64_t run)
{
	return &channel->rings[rank]->heads[run % 2];
}

/* Whether the rank's head of a run has come. */
static int has_head(const ceov_channel *channel, uint32_t rank, uint64_t run)
{
	/* acquire: pairs with store_head() of the rank; the rest of the head is seen then */
	return atomic_load_explicit(&head_of(channel, rank, run)->run, memory_order_acquire) ==
		run;
}

/* --- calls that differ ---------------------------------------------------------------------- */

/* Two ranks, in a run of which the heads of both have come. */
struct two {
	uint64_t run;
	uint32_t a;
	uint32_t b;
};

static int differ(const ceov_channel *channel, const struct two *two)
{
	const struct cei_ring_head *of_a = head_of(channel, two->a, two->run);
	const struct cei_ring_head *of_b = head_of(channel, two->b, two->run);
	uint32_t a = two->a, b = two->b;

	return of_a->what != of_b->what || of_a->pairs[b].gives != of_b->pairs[a].gets ||
		of_a->pairs[b].gets != of_b->pairs[a].gives;
}

/* The two call the same with other counts. */
static int raise_sizes(ceov_channel *channel, const struct two *two)
{
	struct ceov_failure failure = cei_failure(CEOV_ERR_INVALID, 0);
	const struct cei_ring_pair *of_a = &head_of(channel, two->a, two->run)->pairs[two->b];
	const struct cei_ring_pair *of_b = &head_of(channel, two->b, two->run)->pairs[two->a];
	char text[CEI_CALL_TEXT_BYTES];

	failure.rank = two->b;
	cei_call_text(head_of(channel, two->a, two->run)->what, text);
	return cei_raise_failure(cei_channel_report(channel), &failure, "channel '%s', call %"
				 PRIu64 ": rank %u calls %s, gives rank %u %" PRIu64 " bytes and "
				 "expects %" PRIu64 ", but rank %u gives %" PRIu64 " and expects %"
				 PRIu64,
				 channel->name, two->run, two->a, text, two->b, of_a->gives,
				 of_a->gets, two->b, of_b->gives, of_b->gets);
}

int cei_channel_raise_calls(ceov_channel *channel, const struct cei_two_calls *two)
{
	struct ceov_failure failure = cei_failure(CEOV_ERR_INVALID, 0);
	char text_a[CEI_CALL_TEXT_BYTES], text_b[CEI_CALL_TEXT_BYTES];

	failure.rank = two->b;
	cei_call_text(two->what_a, text_a);
	cei_call_text(two->what_b, text_b);
	return cei_raise_failure(cei_channel_report(channel), &failure, "channel '%s', call %"
				 PRIu64 ": rank %u calls %s, but rank %u calls %s", channel->name,
				 two->run, two->a, text_a, two->b, text_b);
}

static int raise_differing(ceov_channel *channel, const struct two *two)
{
	struct cei_two_calls calls = { two->run, two->a, two->b,
				       head_of(channel, two->a, two->run)->what,
				       head_of(channel, two->b, two->run)->what };

	return calls.what_a == calls.what_b ? raise_sizes(channel, two)
		: cei_channel_raise_calls(channel, &calls);
}

/* Finds two ranks whose calls differ in a run, this rank's first. Returns 0 if it finds none. */
static int raise_any_differing(ceov_channel *channel, uint64_t run)
{
	struct two two = { .run = run };
	uint32_t i, j;

	for (i = 0; i < channel->n_ranks; i++) {
		two.a = (channel->rank + i) % channel->n_ranks;
		for (j = i + 1; j < channel->n_ranks && has_head(channel, two.a, run); j++) {
			two.b = (channel->rank + j) % channel->n_ranks;
			if (has_head(channel, two.b, run) && differ(channel, &two))
				return raise_differing(channel, &two);
		}
	}
	return 0;
}

/* --- failures ------------------------------------------------------------------------------- */

/* The error of a peer's poison, which may be a lie. */
static int error_of_poison(uint32_t poison)
{
	return poison <= (uint32_t)-CEI_ERROR_LOWEST ? -(int)poison : CEOV_ERR_INVALID;
}

static const char *text_of(const struct cei_wait_cause *cause)
{
	if (cause->end == CEI_WAIT_LOST)
		return "has gone";
	if (error_of_poison(cause->poison) == CEOV_ERR_STATE)
		return "has released the channel";
	return "has ended the channel; its log says why";
}

static int raise_cause(ceov_channel *channel, const struct cei_wait_cause *cause)
{
	struct ceov_failure failure = cei_failure(CEOV_ERR_TIMEOUT, 0);

	failure.rank = cause->peer;
	if (cause->end == CEI_WAIT_LATE)
		return cei_raise_failure(cei_channel_report(channel), &failure,
					 "channel '%s', %s: rank %u %s within %" PRIu64 " ms",
					 channel->name, cause->where, cause->peer, cause->what,
					 channel->deadline_ns / 1000000);
	failure.error = cause->end == CEI_WAIT_LOST ? CEOV_ERR_PEER_LOST :
		error_of_poison(cause->poison);
	return cei_raise_failure(cei_channel_report(channel), &failure,
				 "channel '%s', %s: rank %u %s", channel->name, cause->where,
				 cause->peer, text_of(cause));
}

int cei_wait_raise(ceov_channel *channel, const struct cei_wait_cause *cause)
{
	/* acquire: pairs with cei_channel_end(), where the error was raised */
	if (cause->end == CEI_WAIT_HAS_ENDED)
		return atomic_load_explicit(&channel->error, memory_order_acquire);
	return cei_channel_end(channel, raise_cause(channel, cause));
}

struct cei_wait cei_wait_begin(const ceov_channel *channel)
{
	return (struct cei_wait){ cei_deadline(channel->deadline_ns), cei_now_ns() + LOOK_NS };
}

enum cei_wait_end cei_wait_look(const ceov_channel *channel, struct cei_wait *wait,
				struct cei_wait_cause *cause)
{
	uint64_t now_ns = cei_now_ns();

	/* acquire, both: pair with cei_channel_end(), of another thread and of the peer; all that
	 * the peer did before is seen then */
	cause->poison = atomic_load_explicit(&channel->rings[cause->peer]->poison,
					     memory_order_acquire);
	cause->end = CEI_WAIT_GOES_ON;
	if (atomic_load_explicit(&channel->error, memory_order_acquire))
		cause->end = CEI_WAIT_HAS_ENDED;
	else if (cause->poison && cause->peer != channel->rank)
		cause->end = CEI_WAIT_POISONED;
	else if (now_ns >= wait->look_ns && cei_context_is_lost(channel->object.context,
								cause->peer))
		cause->end = CEI_WAIT_LOST;
	else if (now_ns >= wait->deadline_ns)
		cause->end = CEI_WAIT_LATE;
	return cause->end;
}

void cei_wait_passed(struct cei_wait *wait)
{
	uint64_t now_ns = cei_now_ns();

	if (now_ns >= wait->look_ns)
		wait->look_ns = now_ns + LOOK_NS;
}

/* --- waits ---------------------------------------------------------------------------------- */

/* Ends a wait for a peer in a call. If a peer has ended the channel because a call differs, the
 * heads say whose: those of the run before if the difference was no affair of this rank's, which
 * has completed that run. */
static int end_wait(ceov_channel *channel, struct cei_wait_cause *cause)
{
	int is_differing = cause->end == CEI_WAIT_POISONED &&
		error_of_poison(cause->poison) == CEOV_ERR_INVALID;
	char text[CEI_CALL_TEXT_BYTES];
	int r = is_differing ? raise_any_differing(channel, channel->run) : 0;

	if (is_differing && !r)
		r = raise_any_differing(channel, channel->run - 1);
	if (r)
		return cei_channel_end(channel, r);
	cei_call_text(channel->call.what, text);
	snprintf(cause->where, sizeof(cause->where), "call %" PRIu64 ", %s", channel->run, text);
	return cei_wait_raise(channel, cause);
}

/* Compares the heads that have come, from the peer on that comes `first` behind this rank. Returns
 * how many peers lie before the first one whose head has not come. */
static int compare(ceov_channel *channel, uint32_t first, uint32_t *ret_first)
{
	struct two two = { .run = channel->run, .a = channel->rank };
	uint32_t i;

	*ret_first = channel->n_ranks;
	for (i = first; i < channel->n_ranks; i++) {
		two.b = (channel->rank + i) % channel->n_ranks;
		if (!has_head(channel, two.b, two.run)) {
			if (*ret_first == channel->n_ranks)
				*ret_first = i;
			continue;
		}
		if (differ(channel, &two))
			return cei_channel_end(channel, raise_differing(channel, &two));
		channel->n_chunks[two.b] = head_of(channel, two.b, two.run)->n_chunks;
	}
	return 0;
}

/* Whether an end of a wait for a peer ends the call while `late` has not made it. Until that does,
 * no peer can end the call, so one that has gone or ended the channel has failed. But if its
 * deadline has passed, that of this rank passes as well, and names the late rank. */
static int ends_call(const ceov_channel *channel, const struct cei_wait_cause *cause, uint32_t late)
{
	int has_failed = cause->end == CEI_WAIT_LOST || (cause->end == CEI_WAIT_POISONED &&
		error_of_poison(cause->poison) != CEOV_ERR_TIMEOUT);

	if (cause->end == CEI_WAIT_GOES_ON)
		return 0;
	return !has_head(channel, has_failed ? late : cause->peer, channel->run);
}

/* One look at all peers. */
static int look_at_all(ceov_channel *channel, struct cei_wait *wait, uint32_t late)
{
	struct cei_wait_cause cause = { .what = "has not made this call" };
	uint32_t i;

	for (i = 1; i < channel->n_ranks; i++) {
		cause.peer = (channel->rank + i) % channel->n_ranks;
		(void)cei_wait_look(channel, wait, &cause);
		if (ends_call(channel, &cause, late))
			return end_wait(channel, &cause);
	}
	cei_wait_passed(wait);
	return 0;
}

int cei_channel_await_heads(ceov_channel *channel)
{
	struct cei_wait wait;
	uint32_t first = 1;
	int r = compare(channel, first, &first);

	if (r || first == channel->n_ranks)
		return r;
	cei_backoff_again(&channel->backoff);
	for (wait = cei_wait_begin(channel); !r && first < channel->n_ranks; ) {
		r = look_at_all(channel, &wait, (channel->rank + first) % channel->n_ranks);
		if (!r)
			cei_backoff_step(&channel->backoff);
		if (!r)
			r = compare(channel, first, &first);
	}
	return r;
}

static int has_come(const _Atomic uint64_t *counter, uint64_t least)
{
	/* acquire: pairs with the release of who raises the counter */
	return atomic_load_explicit(counter, memory_order_acquire) >= least;
}

static int await(ceov_channel *channel, const _Atomic uint64_t *counter, uint64_t least,
		 uint32_t peer)
{
	struct cei_wait_cause cause = { .peer = peer };
	struct cei_wait wait;

	if (has_come(counter, least))
		return 0;
	wait = cei_wait_begin(channel);
	cei_backoff_again(&channel->backoff);
	/* Room is awaited before heads: the peer may still be in the call before. */
	cause.what = has_head(channel, peer, channel->run) ? "has begun it and has not gone on" :
		"has not ended the call before";
	while (!has_come(counter, least)) {
		if (cei_wait_look(channel, &wait, &cause) && !has_come(counter, least))
			return end_wait(channel, &cause);
		cei_wait_passed(&wait);
		cei_backoff_step(&channel->backoff);
	}
	return 0;
}

int cei_channel_await_chunk(ceov_channel *channel, uint32_t peer, uint64_t i)
{
	return await(channel, &channel->rings[peer]->n_ready, channel->base[peer] + i + 1, peer);
}

int cei_channel_await_room(ceov_channel *channel)
{
	uint32_t peer;
	int r = 0;

	if (channel->n_put < CEI_RING_SLOTS)
		return 0;
	for (peer = 0; !r && peer < channel->n_ranks; peer++)
		if (peer != channel->rank)
			r = await(channel, &channel->rings[channel->rank]->credits[peer].n_taken,
				  channel->n_put - CEI_RING_SLOTS + 1, peer);
	return r;
}
