/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Pieces and marks that come from another process. */

#include "net/far_receive.h"

#include <stdio.h>

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

void cei_far_receive_offer(struct cei_far_peer *peer, const struct cei_far_piece *piece,
			   uint64_t n_bytes, struct cei_transport_offer *offer)
{
	struct cei_transport *transport = &peer->nic->transport;
	uint32_t index = piece->sequence % CEI_FAR_SPAN;
	struct cei_transport_span span;
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
	span.memory = region->memory->registered;
	span.address = (uint64_t)(uintptr_t)region->host + piece->offset;
	span.n_bytes = n_bytes;
	if (transport->ops->accept(peer->open, offer, &span,
				   (uint64_t)peer->process << 32 | index)) {
		cei_far_peer_lose(peer, "the transport could not receive a piece");
		return;
	}
	peer->writing[index] = region;
	region->n_busy++;
	region->memory->n_busy++;
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
	else if (cei_far_raise(region, mark->index, mark->value))
		peer->nic->counts.n_lowering++;
}

static void raise_all(struct cei_far_peer *peer)
{
	struct cei_far_mark mark;

	while (!peer->refuse_error && cei_far_in_raise(&peer->in, &mark))
		raise_one(peer, &mark);
}

void cei_far_receive_landed(struct cei_far_peer *peer, uint32_t index, int error)
{
	if (!peer->writing[index])
		return;
	peer->writing[index]->n_busy--;
	peer->writing[index]->memory->n_busy--;
	peer->writing[index] = NULL;
	if (peer->state != CEI_FAR_UP)
		return;
	if (error) {
		cei_far_peer_lose(peer, "a receive has failed");
		return;
	}
	cei_far_in_landed(&peer->in, index);
	raise_all(peer);
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
