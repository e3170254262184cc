/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_FAR_SEND_H
#define CEI_FAR_SEND_H

/* Sends what lanes hold to a process that is connected, piece by piece and within its window.
 * Pieces of memory that the transport does not access are copied into slots first. The rail's
 * thread only. */

#include "net/far_peer.h"

/* Sends pieces and marks in turns from all busy lanes. CEOV_FULL: the transport has no room now,
 * try again after progress; CEOV_ERR_PEER_LOST, not raised: the connection has failed. */
int  cei_far_send(struct cei_far_peer *peer);

/* The transport has read a piece; index is that of struct cei_far_out.items. */
void cei_far_send_ended(struct cei_far_peer *peer, uint32_t index);

/* A piece has been copied into its slot, or could not be: see slot->error. */
void cei_far_send_copied(struct cei_far_slot *slot);

/* The transport has closed the connection: frees the slots of pieces that it will not read. */
void cei_far_send_forget(struct cei_far_peer *peer);

/* Counts what has ended, in all busy lanes. */
void cei_far_send_settle(struct cei_far_peer *peer);

/* The connection is lost: all lanes break, with CEOV_ERR_UNCERTAIN if something of theirs may or
 * may not have landed. */
void cei_far_send_break(struct cei_far_peer *peer);

/* The connection has closed: broken lanes touch no memory any more. */
void cei_far_send_end(struct cei_far_peer *peer);

#endif /* CEI_FAR_SEND_H */
