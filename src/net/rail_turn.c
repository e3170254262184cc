/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* One turn of a rail: takes what engines and the layer above gave it, lets the transport tell what
 * came, says and sends what is owed, and looks at the time. */

#include "base/clock.h"
#include "net/far_receive.h"
#include "net/far_send.h"
#include "net/far_watch.h"
#include "net/rail_private.h"

/* Connections are looked at so often per timeout, and the transport is asked for progress so often
 * per turn. */
#define LOOKS_PER_TIMEOUT 20u
#define PROGRESS_MAX      16u

int cei_rail_take_lanes(struct cei_rail *rail)
{
	struct cei_far_lane *lane;
	struct cei_far_peer *peer;
	int n = 0;

	while ((lane = cei_ring_take(&rail->ready))) {
		n++;
		cei_far_lane_taken(lane);
		peer = rail->nic.peers[lane->process];
		cei_list_remove(&lane->link);
		cei_list_append(&peer->busy, &lane->link);
		cei_far_peer_touch(peer);
	}
	return n;
}

/* Takes what is to be said to the peer. */
static void take_note(struct cei_far_peer *peer, struct cei_far_note_item *item)
{
	if (item->message.type == CEI_FAR_REFUSE) {
		cei_far_peer_give_up(peer, item->message.refuse.text);
		cei_far_note_drop(item);
		return;
	}
	if ((peer->state == CEI_FAR_UNUSED && cei_far_peer_use(peer)) ||
	    (peer->state != CEI_FAR_OPENING && peer->state != CEI_FAR_UP)) {
		cei_far_note_drop(item);
		return;
	}
	cei_list_append(&peer->notes.waiting, &item->link);
	cei_far_peer_touch(peer);
}

int cei_rail_take_notes(struct cei_rail *rail)
{
	struct cei_far_note_item *item;
	struct cei_far_peer *peer;
	int n = 0;

	while ((item = cei_ring_take(&rail->notes))) {
		n++;
		peer = cei_far_peer_get(&rail->nic, item->process);
		if (peer)
			take_note(peer, item);
		else
			cei_far_note_drop(item);
	}
	return n;
}

/* Takes what has been copied between slots and memory. */
static int take_copies(struct cei_rail *rail)
{
	struct cei_far_slot *slot;
	int n = 0;

	while ((slot = cei_far_slots_ended(&rail->nic.slots))) {
		n++;
		if (slot->direction == CEI_FAR_LINE_OUT)
			cei_far_send_copied(slot);
		else
			cei_far_receive_copied(slot);
	}
	return n;
}

static int progress(struct cei_rail *rail)
{
	struct cei_transport *transport = &rail->nic.transport;
	uint32_t n = 0;

	while (n < PROGRESS_MAX && transport->ops->progress(transport))
		n++;
	return n != 0;
}

/* Each urgent peer once: those for whom the transport has no room are urgent again. */
static void pump(struct cei_rail *rail)
{
	struct cei_list batch, *at;

	cei_list_init(&batch);
	while ((at = cei_list_take(&rail->nic.urgent)))
		cei_list_append(&batch, at);
	while ((at = cei_list_take(&batch)))
		cei_far_peer_pump(CEI_OWNER(at, struct cei_far_peer, urgent));
}

static void look(struct cei_rail *rail)
{
	struct cei_far_nic *nic = &rail->nic;
	struct cei_list *at, *next;

	if (nic->now_ns < rail->look_ns)
		return;
	rail->look_ns = nic->now_ns + nic->config.timeout_ns / LOOKS_PER_TIMEOUT;
	for (at = nic->connected.next; at != &nic->connected; at = next) {
		next = at->next;
		cei_far_watch_look(CEI_OWNER(at, struct cei_far_peer, connected));
	}
}

int cei_rail_polls(const struct cei_rail *rail)
{
	return !cei_list_is_empty(&rail->nic.urgent) || rail->nic.slots.n_copying;
}

int cei_rail_turn(struct cei_rail *rail, uint64_t now_ns)
{
	int n;

	rail->nic.now_ns = now_ns;
	n = cei_rail_take_lanes(rail);
	n += cei_rail_take_notes(rail);
	n += progress(rail);
	n += take_copies(rail);
	look(rail);
	pump(rail);
	return n || cei_rail_polls(rail) ? CEOV_PENDING : 0;
}

uint64_t cei_rail_due(const struct cei_rail *rail)
{
	const struct cei_list *at, *connected = &rail->nic.connected;

	for (at = connected->next; at != connected; at = at->next)
		if (cei_far_watch_is_timed(CEI_OWNER(at, struct cei_far_peer, connected)))
			return rail->look_ns;
	return CEI_FOREVER;
}
