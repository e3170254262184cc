/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_FAR_WATCH_H
#define CEI_FAR_WATCH_H

/*
 * Whether the other side of a connection lives, and the network between moves. A process is lost
 * from which nothing was heard for a timeout while anything was awaited, and one that answers while
 * bytes are under way of which none moves for two timeouts: a transport may tell no error then, so
 * nothing else would end that. The rail's thread only.
 */

#include "net/far_peer.h"

/* Looks at the time. */
void cei_far_watch_look(struct cei_far_peer *peer);

/* Returns whether the connection needs looks at the time. */
int  cei_far_watch_is_timed(const struct cei_far_peer *peer);

#endif /* CEI_FAR_WATCH_H */
