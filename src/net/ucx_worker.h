/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_UCX_WORKER_H
#define CEI_UCX_WORKER_H

/* A transport over UCX: its context and worker, and what the files ucx_*.c share. */

#include <stdint.h>

#include "base/list.h"
#include "net/transport.h"
#include "net/ucx_table.h"

/* How many messages and how many sends to one peer may be under way; more get CEOV_FULL. */
#define CEI_UCX_MESSAGES_MAX 64u
#define CEI_UCX_SENDS_MAX    64u

/* Offers that are open. A peer of our kind has at most CEI_UCX_SENDS_MAX of them; what exceeds
 * this is refused. The second number is for all peers together that are not open here. */
#define CEI_UCX_OFFERS_MAX         256u
#define CEI_UCX_FOREIGN_OFFERS_MAX 256u

#define CEI_UCX_PEER_SLOTS 256u         /* of the hash table; a power of 2 */

/* Stands before each message, and before the head of each offer. Both sides have the same byte
 * order, as UCX demands; the magic number tells. */
#define CEI_UCX_MAGIC UINT32_C(0x31554543)
struct cei_ucx_label {
	uint32_t magic;
	uint32_t connection;            /* 1: a transport connects to another one once */
	uint64_t sender;                /* the sender's identity */
};

enum cei_ucx_handler { CEI_UCX_MESSAGE = 1, CEI_UCX_OFFER = 2 };

struct cei_ucx {
	struct cei_transport   *transport;
	struct cei_ucx_calls    calls;
	ucp_context_h           context;
	ucp_worker_h            worker;
	int                     fd;
	uint64_t                identity;       /* random; tells transports apart */
	struct cei_ucx_peer    *peers[CEI_UCX_PEER_SLOTS];
	struct cei_list         failed;         /* peers whose failure is to be told */
	struct cei_list         closing;        /* peers after peer_close */
	struct cei_list         ended;          /* tasks whose end is to be told */
	struct cei_list         free_messages;  /* unused tasks, kept for the next use */
	struct cei_list         free_moves;
	struct cei_list         offers;         /* those that are open */
	uint32_t                n_foreign_offers;
	int                     is_closing;     /* what still arrives is dropped */
	uint64_t                n_strange;      /* messages and offers that were dropped */
	char                    text[160];      /* for describe */
	char                    untried[96];    /* for is_tried_in_place; empty: it is */
};

/* Creates the context and the worker of ucx->transport's configuration, with signals blocked
 * for the thread that UCX starts. Raised. After a failure nothing is left. */
int  cei_ucx_worker_open(struct cei_ucx *ucx);
void cei_ucx_worker_close(struct cei_ucx *ucx);

/* Creates the context alone, likewise; it is cleaned up by the caller. */
int  cei_ucx_context_open(struct cei_ucx *ucx);

static inline struct cei_ucx *cei_ucx_of(struct cei_transport *transport)
{
	return transport->private;
}

/* Raises CEOV_ERR_UCX with UCX's words for the status. */
int  cei_ucx_raise(struct cei_ucx *ucx, ucs_status_t status, const char *what);

#endif /* CEI_UCX_WORKER_H */
