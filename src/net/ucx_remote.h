/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_UCX_REMOTE_H
#define CEI_UCX_REMOTE_H

/*
 * What a transport remembers of another one for as long as it is open: how often the two have
 * opened connections to each other.
 *
 * UCX pairs the n-th endpoint that one worker creates for another with the n-th of the other
 * direction. If one side opens more often than the other, each side sends to an endpoint that
 * UCX made internally at the other side, which no call can close, and receives would outlive the
 * connection. So connections are numbered as UCX numbers endpoints, each message says of which
 * connection it is, and the side that is behind skips numbers when it opens again.
 */

#include "net/ucx_worker.h"

/* The most numbers that one side may be ahead: each that is skipped costs an endpoint. */
#define CEI_UCX_AHEAD_MAX 1024u

struct cei_ucx_remote {
	struct cei_ucx_remote *next;            /* in its slot of the hash table */
	uint64_t               identity;
	uint32_t               n_opened;        /* endpoints that we have created for it */
	uint32_t               n_heard;         /* highest number of its connections to us */
	struct cei_ucx_peer   *peer;            /* open or closing; NULL: neither */
};

/* Finds it, or adds it; NULL: no memory, or too many of them; not raised. */
struct cei_ucx_remote *cei_ucx_remote_get(struct cei_ucx *ucx, uint64_t identity);

/* Frees them all. */
void cei_ucx_remotes_fini(struct cei_ucx *ucx);

#endif /* CEI_UCX_REMOTE_H */
