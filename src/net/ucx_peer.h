/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_UCX_PEER_H
#define CEI_UCX_PEER_H

/*
 * The connection to one other transport: an endpoint of UCX in error mode PEER.
 *
 * UCX pairs the n-th endpoint that one worker creates for another with the n-th of the other
 * direction. So each side creates one and never another, and remembers a connection that has closed
 * until the transport closes: what still comes from there is dropped.
 */

#include "net/ucx_task.h"

#define CEI_UCX_KINDS 3                 /* of enum cei_ucx_kind */

struct cei_ucx_peer {
	struct cei_transport_peer base;
	struct cei_ucx           *ucx;
	struct cei_ucx_peer      *next;                 /* in its slot of the hash table */
	uint64_t                  identity;             /* of the other transport */
	ucp_ep_h                  endpoint;             /* NULL: was not created, or is closed */
	void                     *close_request;        /* UCX's; NULL: there is none */
	int                       has_failed;
	int                       is_closing;           /* after peer_close, and once closed */
	uint64_t                  close_ns;             /* when peer_close was called */
	char                      why[96];              /* of the failure */
	struct cei_list           failed_link;          /* while the failure is to be told */
	struct cei_list           closing_link;
	struct cei_list           refused;              /* offers that are released once the failed
							 * endpoint is closed */
	uint32_t                  n_offers;             /* open ones */
	uint32_t                  n_under_way[CEI_UCX_KINDS];
};

static inline struct cei_ucx_peer *cei_ucx_peer_of(struct cei_transport_peer *peer)
{
	return CEI_OWNER(peer, struct cei_ucx_peer, base);
}

/* Operations of struct cei_transport_ops. An address has CEI_UCX_ADDRESS_HEAD bytes of ours,
 * then UCX's. */
int  cei_ucx_peer_open(struct cei_transport *transport, const void *address, uint32_t n_bytes,
		       void *owner, struct cei_transport_peer **ret_peer);
void cei_ucx_peer_close(struct cei_transport_peer *peer);
int  cei_ucx_address(struct cei_transport *transport, uint8_t *ret_address,
		     uint32_t *ret_n_bytes);

int  cei_ucx_expected(struct cei_transport_peer *peer, uint64_t n_bytes, uint64_t *ret_ns);

/* Whether something may be begun with the peer: UCX must not be called for an endpoint that
 * has failed. */
static inline int cei_ucx_peer_is_up(const struct cei_ucx_peer *peer)
{
	return peer->endpoint && !peer->has_failed && !peer->is_closing;
}

/* Notes that the connection has broken, if that is not known yet. why is copied. */
void cei_ucx_peer_fail(struct cei_ucx_peer *peer, const char *why);

/* Closes endpoints of peers that the owner has closed since the last call. */
uint32_t cei_ucx_peers_close(struct cei_ucx *ucx);

/* Finds the connection to that transport, also a closed one. NULL: there was none. */
struct cei_ucx_peer *cei_ucx_peer_find(struct cei_ucx *ucx, uint64_t identity);

/* Frees them all. */
void cei_ucx_peers_fini(struct cei_ucx *ucx);

/* Tells the owner of failures, and of peers of which nothing is under way any more. Returns the
 * number of events. */
uint32_t cei_ucx_peers_tell(struct cei_ucx *ucx);

/* Whether the next cei_ucx_peers_close() or cei_ucx_peers_tell() has something to do, or
 * is about to. */
int  cei_ucx_peers_are_busy(const struct cei_ucx *ucx);

#endif /* CEI_UCX_PEER_H */
