/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_FAR_RECEIVE_H
#define CEI_FAR_RECEIVE_H

/*
 * Receives pieces and raises marks, from a process that is connected. Pieces for host memory land
 * in place, those for memory that the transport does not access in slots, from where they are
 * copied; an offer that finds no free slot waits for one. What a piece or a mark names is checked
 * first; a wrong one ends the connection, since what stands behind it must not be raised. The
 * rail's thread only.
 */

#include "net/far_peer.h"

/* Takes an offer of today's connection: accepts or refuses it. */
void cei_far_receive_offer(struct cei_far_peer *peer, const struct cei_far_piece *piece,
			   uint64_t n_bytes, struct cei_transport_offer *offer);

/* A receive has ended; index is that of struct cei_far_in.arrivals. */
void cei_far_receive_landed(struct cei_far_peer *peer, uint32_t index, int error);

/* A piece has been copied out of its slot, or could not be: see slot->error. */
void cei_far_receive_copied(struct cei_far_slot *slot);

/* The connection closes: refuses the peer's offers that wait for a slot. */
void cei_far_receive_forget(struct cei_far_peer *peer);

/* Takes a mark of today's connection. */
void cei_far_receive_mark(struct cei_far_peer *peer, const struct cei_far_mark *mark);

#endif /* CEI_FAR_RECEIVE_H */
