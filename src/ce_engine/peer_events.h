/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PEER_EVENTS_H
#define CEI_PEER_EVENTS_H

/*
 * What a context does when it hears of its peers: a rank has gone, signals were aborted or
 * renewed by processes of other nodes. Called by the threads of the peers and of the rails, with
 * none of their locks held.
 */

#include <stdint.h>

#include "ipc/peers/peers.h"

/* A rank was lost or, with departed 1, closed its context. Marks of a lost rank will never be
 * raised, so all signals that are shared in the group are aborted. A rank that departed in order
 * has done its part. */
void cei_peer_gone(void *context, uint32_t rank, int departed);

extern const struct cei_peers_events cei_peer_events;

#endif /* CEI_PEER_EVENTS_H */
