/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_FAR_RECEIVE_H
#define CEI_FAR_RECEIVE_H

/*
 * Receives pieces in place and raises marks, from a process that is connected. What a piece or a
 * mark names is checked first; a wrong one ends the connection, since what stands behind it must
 * not be raised. The rail's thread only.
 */

#include "net/far_peer.h"

/* Takes an offer of today's connection: accepts or refuses it. */
void cei_far_receive_offer(struct cei_far_peer *peer, const struct cei_far_piece *piece,
			   uint64_t n_bytes, struct cei_transport_offer *offer);

/* A receive has ended; index is that of struct cei_far_in.arrivals. */
void cei_far_receive_landed(struct cei_far_peer *peer, uint32_t index, int error);

/* Takes a mark of today's connection. */
void cei_far_receive_mark(struct cei_far_peer *peer, const struct cei_far_mark *mark);

#endif /* CEI_FAR_RECEIVE_H */
