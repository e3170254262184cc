/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Pieces and marks that come from another process. */

#include "net/far_receive.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/word.h"

static void refuse(struct cei_far_peer *peer, const char *why)
{
	peer->nic->counts.n_refused++;
	cei_far_peer_refuse(peer, CEOV_ERR_INVALID, why);
}

/* Returns whether the number is new; one that cannot be ends the connection. */
static int is_new(struct cei_far_peer *peer, int r)
{
	if (r == CEOV_NONE)
		peer->nic->counts.n_duplicates++;
	else if (r)
		refuse(peer, "its number is beyond all that may be under way");
	return !r;
}

static void refuse_piece(struct cei_far_peer *peer, const struct cei_far_piece *piece,
			 const char *why)
{
	char text[CEI_RAIL_WHY_BYTES];

	snprintf(text, sizeof(text), "a piece of %llu bytes for region %u at %llu is refused: %s",
		 (unsigned long long)cei_far_piece_bytes(piece), piece->region,
		 (unsigned long long)piece->offset, why);
	refuse(peer, text);
}

/* Accepts the offer of a region's piece into the span. */
static void accept(struct cei_far_peer *peer, const struct cei_far_piece *piece,
		   const struct cei_transport_span *span, struct cei_transport_offer *offer,
		   struct cei_far_region *region)
{
	uint32_t index = piece->sequence % CEI_FAR_SPAN;

	if (peer->nic->transport.ops->accept(peer->open, offer, span,
					     (uint64_t)peer->process << 32 | index)) {
		cei_far_peer_lose(peer, "the transport could not receive a piece");
		return;
	}
	peer->writing[index] = region;
	region->n_busy++;
	if (region->memory)
		region->memory->n_busy++;
}

static void accept_in_place(struct cei_far_peer *peer, const struct cei_far_piece *piece,
			    struct cei_far_region *region, struct cei_transport_offer *offer)
{
	const struct cei_transport_span span = {
		.memory = region->memory->registered,
		.address = (uint64_t)(uintptr_t)region->memory->base + piece->offset,
		.n_bytes = cei_far_piece_bytes(piece),
	};

	accept(peer, piece, &span, offer, region);
}

/* --- pieces that go through slots --------------------------------------------- */

/* Queues the offer behind those that wait for a slot. Returns whether there was memory for it; else
 * it was refused, and the connection is lost. */
static int park(struct cei_far_peer *peer, const struct cei_far_piece *piece,
		struct cei_far_region *region, struct cei_transport_offer *offer)
{
	struct cei_far_parked *parked = malloc(sizeof(*parked));

	if (!parked) {
		peer->nic->transport.ops->refuse(&peer->nic->transport, offer);
		cei_far_peer_lose(peer, "there is no memory to note an offer of it");
		return 0;
	}
	parked->peer = peer;
	parked->piece = *piece;
	parked->region = region;
	parked->offer = offer;
	region->n_busy++;
	peer->n_parked++;
	cei_list_append(&peer->nic->parked, &parked->link);
	return 1;
}

/* Takes the offer out of the queue. */
static void unpark(struct cei_far_parked *parked)
{
	cei_list_remove(&parked->link);
	parked->region->n_busy--;
	parked->peer->n_parked--;
}

static void accept_into(struct cei_far_parked *parked, struct cei_far_slot *slot)
{
	struct cei_far_slots *slots = &parked->peer->nic->slots;
	struct cei_transport_span span = {
		.memory = slots->registered->registered,
		.address = slot->address,
		.n_bytes = cei_far_piece_bytes(&parked->piece),
	};
	uint32_t index = parked->piece.sequence % CEI_FAR_SPAN;

	slot->peer = parked->peer;
	slot->index = index;
	slot->unit = parked->region->unit;
	slot->piece = parked->piece;
	slot->n_bytes = span.n_bytes;
	accept(parked->peer, &parked->piece, &span, parked->offer, parked->region);
	if (!parked->peer->writing[index])
		cei_far_slot_free(slot);
}

/* Accepts the oldest offers that wait, as long as slots are free. */
static void accept_parked(struct cei_far_nic *nic)
{
	struct cei_far_parked *parked;
	struct cei_far_slot *slot;

	while (!cei_list_is_empty(&nic->parked)) {
		slot = cei_far_slots_take(&nic->slots, CEI_FAR_LINE_IN);
		if (!slot)
			return;
		parked = CEI_OWNER(nic->parked.next, struct cei_far_parked, link);
		unpark(parked);
		accept_into(parked, slot);
		free(parked);
	}
}

void cei_far_receive_forget(struct cei_far_peer *peer)
{
	struct cei_transport *transport = &peer->nic->transport;
	struct cei_list *at, *next, *all = &peer->nic->parked;
	struct cei_far_parked *parked;

	for (at = all->next; at != all; at = next) {
		next = at->next;
		parked = CEI_OWNER(at, struct cei_far_parked, link);
		if (parked->peer != peer)
			continue;
		unpark(parked);
		transport->ops->refuse(transport, parked->offer);
		free(parked);
	}
}

/* --- what a peer offers ------------------------------------------------------- */

void cei_far_receive_offer(struct cei_far_peer *peer, const struct cei_far_piece *piece,
			   uint64_t n_bytes, struct cei_transport_offer *offer)
{
	struct cei_transport *transport = &peer->nic->transport;
	struct cei_far_region *region;
	const char *why;

	why = cei_far_check_piece(&peer->nic->table, piece, n_bytes, &region);
	if (why) {
		transport->ops->refuse(transport, offer);
		refuse_piece(peer, piece, why);
		return;
	}
	if (!is_new(peer, cei_far_in_piece(&peer->in, piece->sequence, n_bytes))) {
		transport->ops->refuse(transport, offer);
		return;
	}
	if (region->memory)
		accept_in_place(peer, piece, region, offer);
	else if (park(peer, piece, region, offer))
		accept_parked(peer->nic);
}

static void raise_one(struct cei_far_peer *peer, const struct cei_far_mark *mark)
{
	const struct cei_rail_config *config = &peer->nic->config;
	struct cei_far_region *region;
	const char *why = cei_far_check_mark(&peer->nic->table, mark, &region);

	if (why) {                      /* the region closed since the mark came */
		refuse(peer, why);
		return;
	}
	if (!region->host)
		config->events->raised(config->events_arg, mark->region, mark->index,
				       mark->value);
	else if (cei_word_raise((_Atomic uint64_t *)region->host + mark->index, mark->value))
		peer->nic->counts.n_lowering++;
}

static void raise_all(struct cei_far_peer *peer)
{
	struct cei_far_mark mark;

	while (!peer->refuse_error && cei_far_in_raise(&peer->in, &mark))
		raise_one(peer, &mark);
}

/* Whether bytes that the transport has written to memory of a GPU are visible there now. */
static int is_visible(const struct cei_far_peer *peer, const struct cei_far_region *region)
{
	const struct cei_rail_config *config = &peer->nic->config;

	return !region->device || !config->copier->landed(config->copier_arg, region->unit);
}

/* The piece has landed where it belongs, or never will. */
static void end_receive(struct cei_far_peer *peer, uint32_t index, const char *failure)
{
	struct cei_far_region *region = peer->writing[index];

	region->n_busy--;
	if (region->memory)
		region->memory->n_busy--;
	peer->writing[index] = NULL;
	if (peer->state != CEI_FAR_UP)
		return;
	if (failure) {
		cei_far_peer_lose(peer, failure);
		return;
	}
	cei_far_in_landed(&peer->in, index);
	raise_all(peer);
}

static void end_slot(struct cei_far_slot *slot, const char *failure)
{
	struct cei_far_peer *peer = slot->peer;
	uint32_t index = slot->index;

	cei_far_slot_free(slot);
	end_receive(peer, index, failure);
	accept_parked(peer->nic);
}

/* The bytes are in the slot. Nothing is copied for a connection that is closing. */
static void empty_slot(struct cei_far_slot *slot)
{
	struct cei_far_peer *peer = slot->peer;
	const struct cei_far_region *region = peer->writing[slot->index];

	if (peer->state != CEI_FAR_UP || cei_far_slots_copy(&peer->nic->slots, slot,
							    region->device + slot->piece.offset))
		end_slot(slot, "its bytes could not be copied to the memory of a GPU");
}

void cei_far_receive_landed(struct cei_far_peer *peer, uint32_t index, int error)
{
	const char *failure = error ? "a receive has failed" : NULL;
	struct cei_far_slot *slot;

	if (!peer->writing[index])
		return;
	slot = cei_far_slots_find(&peer->nic->slots, CEI_FAR_LINE_IN, peer, index);
	if (!slot && !error && !is_visible(peer, peer->writing[index]))
		failure = "its bytes cannot be made visible to a GPU";
	if (!slot)
		end_receive(peer, index, failure);
	else if (error)
		end_slot(slot, failure);
	else
		empty_slot(slot);
}

void cei_far_receive_copied(struct cei_far_slot *slot)
{
	struct cei_far_peer *peer = slot->peer;

	end_slot(slot, slot->error ? "its bytes could not be copied to the memory of a GPU" : NULL);
	cei_far_peer_copied(peer);
	cei_far_peer_touch(peer);
}

void cei_far_receive_mark(struct cei_far_peer *peer, const struct cei_far_mark *mark)
{
	struct cei_far_region *region;
	const char *why = cei_far_check_mark(&peer->nic->table, mark, &region);
	char text[CEI_RAIL_WHY_BYTES];

	if (why) {
		snprintf(text, sizeof(text), "a mark for counter %u of region %u is refused: %s",
			 mark->index, mark->region, why);
		refuse(peer, text);
		return;
	}
	if (is_new(peer, cei_far_in_mark(&peer->in, mark)))
		raise_all(peer);
}
