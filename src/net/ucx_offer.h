/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_UCX_OFFER_H
#define CEI_UCX_OFFER_H

/* What comes in: messages, and offers until they are accepted or refused. */

#include "net/ucx_worker.h"

struct cei_ucx_peer;

/* Tells UCX whom to call for what comes in. Raised. */
int  cei_ucx_offers_listen(struct cei_ucx *ucx);

/* Operations of struct cei_transport_ops. */
int  cei_ucx_accept(struct cei_transport_peer *peer, struct cei_transport_offer *offer,
		    const struct cei_transport_span *span, uint64_t tag);
void cei_ucx_refuse(struct cei_transport *transport, struct cei_transport_offer *offer);

/* Releases the offers of a closed endpoint that were refused after it had failed. */
void cei_ucx_offers_release(struct cei_ucx_peer *peer);

/* Releases all offers that are still open. */
void cei_ucx_offers_fini(struct cei_ucx *ucx);

#endif /* CEI_UCX_OFFER_H */
