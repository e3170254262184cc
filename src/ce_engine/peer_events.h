/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PEER_EVENTS_H
#define CEI_PEER_EVENTS_H

/*
 * What a context does when it hears of its peers: a rank has gone, signals were aborted or
 * renewed by processes of other nodes. Called by the threads of the bootstrap and of the rails,
 * with none of their locks held.
 */

#include <stdint.h>

#include "net/network.h"

/* A rank was lost or, with departed 1, closed its context. Marks of a lost rank will never be
 * raised, so all signals that are shared in the group are aborted. A rank that departed in order
 * has done its part. What is told again of a rank is ignored. */
void cei_peer_gone(void *context, uint32_t rank, int departed);

/* For struct cei_bootstrap_config; the last three where there is a network, which they ask and
 * tell. cei_mate_gone() does what cei_peer_gone() does, of a rank of this node, and tells the
 * network. */
void     cei_mate_gone(void *context, uint32_t rank, int departed);
void     cei_mate_lost(void *context, uint32_t rank);
uint32_t cei_missing(void *context);
void     cei_mate_missed(void *context, uint32_t rank);

extern const struct cei_network_events cei_peer_network_events;

#endif /* CEI_PEER_EVENTS_H */
