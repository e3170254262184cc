/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Looks at the time that a connection's other side takes. */

#include "net/far_watch.h"

#include <stdio.h>

/* Bytes under way between the two processes that nothing but the network moves. What waits for a
 * slot or for a copy between a slot and a GPU, at either side, is not the network's. Bytes behind
 * it may have landed long ago, although the other side cannot acknowledge them yet. */
static uint64_t bytes_under_way(const struct cei_far_peer *peer)
{
	uint64_t n_bytes = peer->their_parked ? 0 : cei_far_out_bytes(&peer->out);
	uint32_t i;

	if (cei_far_slots_is_copying(&peer->nic->slots, peer))
		return 0;
	for (i = 0; i < CEI_FAR_SPAN; i++)
		n_bytes += peer->writing[i] ? peer->in.arrivals[i].n_bytes : 0;
	return n_bytes;
}

static int awaits(const struct cei_far_peer *peer)
{
	return peer->state == CEI_FAR_OPENING || peer->out.ended + 1 != peer->out.next ||
		peer->in.n_coming || peer->in.n_held || peer->bye_said;
}

static enum cei_far_awaited awaited(const struct cei_far_peer *peer)
{
	if (!awaits(peer))
		return CEI_FAR_AWAITS_NOTHING;
	return bytes_under_way(peer) ? CEI_FAR_AWAITS_BYTES : CEI_FAR_AWAITS_ANSWERS;
}

static void lose_stalled(struct cei_far_peer *peer)
{
	char why[CEI_RAIL_WHY_BYTES];

	snprintf(why, sizeof(why), "it answers, but of %llu bytes under way to and from it none "
		 "has moved for %.1f s, twice the timeout: look at the network between",
		 (unsigned long long)bytes_under_way(peer),
		 (double)peer->pulse.stalled_ns / 1e9);
	cei_far_peer_lose(peer, why);
}

/* Returns whether the other side lives; else the connection is given up. */
static int look_at_pulse(struct cei_far_peer *peer)
{
	cei_far_pulse_progress(&peer->pulse, peer->their_landed + peer->out.n_acked_bytes +
			       peer->in.n_landed_bytes);
	peer->health = cei_far_pulse_look(&peer->pulse, awaited(peer), peer->nic->now_ns);
	if (peer->health == CEI_FAR_GONE)
		cei_far_peer_failed(peer, "nothing was heard of it for the whole timeout");
	else if (peer->health == CEI_FAR_STALLED)
		lose_stalled(peer);
	return peer->health < CEI_FAR_STALLED;
}

void cei_far_watch_look(struct cei_far_peer *peer)
{
	const struct cei_far_nic *nic = peer->nic;

	if (peer->state == CEI_FAR_CLOSING)
		cei_far_peer_look_at_closing(peer);
	if (peer->state != CEI_FAR_OPENING && peer->state != CEI_FAR_UP)
		return;
	if (peer->refuse_error && nic->now_ns - peer->refusing_ns >= nic->config.timeout_ns / 10) {
		char why[CEI_RAIL_WHY_BYTES];

		snprintf(why, sizeof(why), "%s", peer->why);
		cei_far_peer_lose(peer, why);
		return;
	}
	if (!look_at_pulse(peer) || !cei_far_pulse_must_ask(&peer->pulse, nic->now_ns))
		return;
	if (peer->state == CEI_FAR_OPENING) {
		peer->hello_owed = 1;
		cei_far_pulse_asked(&peer->pulse, nic->now_ns);
	}
	cei_far_peer_touch(peer);
}

int cei_far_watch_is_timed(const struct cei_far_peer *peer)
{
	return peer->state == CEI_FAR_CLOSING || peer->refuse_error || awaits(peer);
}
