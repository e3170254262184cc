/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Takes in active messages: finds out who sent them, and keeps offers until they are taken. */

#include "net/ucx_offer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "net/ucx_peer.h"
#include "net/ucx_send.h"

enum state { ARRIVING, OPEN, ACCEPTED, REFUSED };

struct cei_transport_offer {
	struct cei_list      link;      /* among the open ones, or among the peer's refused ones */
	struct cei_ucx_label label;
	struct cei_ucx_peer *counted_by;        /* whose n_offers has it; NULL: the foreign ones */
	ucp_ep_h             endpoint;  /* that UCX uses for it, at this side; only compared */
	void                *data;      /* UCX's name for it */
	uint64_t             n_bytes;
	enum state           state;
};

/* --- who sent it ------------------------------------------------------------------------- */

/* Finds the peer that something comes from; NULL: none was opened here yet. Returns whether it is
 * wanted. */
static int find_sender(struct cei_ucx *ucx, const struct cei_ucx_label *label,
		       struct cei_ucx_peer **ret_peer)
{
	if (ucx->is_closing)
		return 0;
	*ret_peer = cei_ucx_peer_find(ucx, label->sender);
	return !*ret_peer || !(*ret_peer)->is_closing;
}

/* Counts and drops what no transport of ours sends. */
static int is_strange(struct cei_ucx *ucx, const void *header, size_t n_header, size_t n_least,
		      struct cei_ucx_label *ret_label)
{
	if (header && n_header >= n_least) {
		memcpy(ret_label, header, sizeof(*ret_label));
		if (ret_label->magic == CEI_UCX_MAGIC && ret_label->connection == 1)
			return 0;
	}
	if (!ucx->n_strange++)
		cei_log(ucx->transport->config.report, CEI_LOG_WARN,
			"UCX: something arrived that is not of this library, or of another "
			"version of it; such messages are dropped");
	return 1;
}

/* --- messages ---------------------------------------------------------------------------- */

static ucs_status_t on_message(void *arg, const void *header, size_t n_header, void *data,
			       size_t n_data, const ucp_am_recv_param_t *param)
{
	struct cei_ucx *ucx = arg;
	const struct cei_transport_config *config = &ucx->transport->config;
	struct cei_ucx_label label;
	struct cei_ucx_peer *peer;

	if (is_strange(ucx, header, n_header, sizeof(label), &label))
		return UCS_OK;
	if (!n_data || n_data > CEI_TRANSPORT_MESSAGE_MAX ||
	    (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV))
		return UCS_OK;
	if (find_sender(ucx, &label, &peer))
		config->events->heard(config->events_arg, peer ? &peer->base : NULL, data,
				      (uint32_t)n_data);
	return UCS_OK;
}

/* --- offers that arrive ------------------------------------------------------------------ */

static struct cei_transport_offer *new_offer(struct cei_ucx *ucx, struct cei_ucx_peer *peer,
					     const struct cei_ucx_label *label)
{
	uint32_t *n = peer ? &peer->n_offers : &ucx->n_foreign_offers;
	struct cei_transport_offer *offer;

	if (*n >= (peer ? CEI_UCX_OFFERS_MAX : CEI_UCX_FOREIGN_OFFERS_MAX))
		return NULL;
	offer = calloc(1, sizeof(*offer));
	if (!offer)
		return NULL;
	offer->label = *label;
	offer->counted_by = peer;
	offer->state = ARRIVING;
	cei_list_append(&ucx->offers, &offer->link);
	(*n)++;
	return offer;
}

static void free_offer(struct cei_ucx *ucx, struct cei_transport_offer *offer)
{
	if (offer->counted_by)
		offer->counted_by->n_offers--;
	else
		ucx->n_foreign_offers--;
	cei_list_remove(&offer->link);
	free(offer);
}

/* An error as result tells the sender that its bytes are not wanted; UCX frees the rest. */
static ucs_status_t on_offer(void *arg, const void *header, size_t n_header, void *data,
			     size_t n_data, const ucp_am_recv_param_t *param)
{
	struct cei_ucx *ucx = arg;
	const struct cei_transport_config *config = &ucx->transport->config;
	struct cei_transport_arrival arrival;
	struct cei_transport_offer *offer;
	struct cei_ucx_label label;
	struct cei_ucx_peer *peer;
	enum state state;

	if (!(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV))
		return UCS_OK;  /* UCX aborts the process at an error for an eager message */
	if (is_strange(ucx, header, n_header, sizeof(label) + 1, &label) || !n_data ||
	    n_header > sizeof(label) + CEI_TRANSPORT_HEAD_MAX ||
	    !(param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) ||
	    !find_sender(ucx, &label, &peer))
		return UCS_ERR_CANCELED;
	offer = new_offer(ucx, peer, &label);
	if (!offer)
		return UCS_ERR_CANCELED;
	offer->endpoint = param->reply_ep;
	offer->data = data;
	offer->n_bytes = n_data;
	arrival.head = (const uint8_t *)header + sizeof(label);
	arrival.n_head = (uint32_t)(n_header - sizeof(label));
	arrival.n_bytes = n_data;
	arrival.offer = offer;
	config->events->offered(config->events_arg, peer ? &peer->base : NULL, &arrival);
	state = offer->state;
	if (state == ARRIVING)
		offer->state = OPEN;
	else
		free_offer(ucx, offer);
	return state == REFUSED ? UCS_ERR_CANCELED : UCS_INPROGRESS;
}

static int listen_to(struct cei_ucx *ucx, enum cei_ucx_handler id, ucp_am_recv_callback_t call)
{
	ucp_am_handler_param_t param;
	ucs_status_t status;

	memset(&param, 0, sizeof(param));
	param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
		UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
	param.id = id;
	param.flags = UCP_AM_FLAG_WHOLE_MSG;
	param.cb = call;
	param.arg = ucx;
	status = ucx->calls.worker_set_handler(ucx->worker, &param);
	return status == UCS_OK ? 0 : cei_ucx_raise(ucx, status, "setting a handler");
}

int cei_ucx_offers_listen(struct cei_ucx *ucx)
{
	int r = listen_to(ucx, CEI_UCX_MESSAGE, on_message);

	return r ? r : listen_to(ucx, CEI_UCX_OFFER, on_offer);
}

/* --- offers that are taken --------------------------------------------------------------- */

void cei_ucx_refuse(struct cei_transport *transport, struct cei_transport_offer *offer)
{
	struct cei_ucx *ucx = cei_ucx_of(transport);
	struct cei_ucx_peer *peer = cei_ucx_peer_find(ucx, offer->label.sender);

	if (offer->state == ARRIVING) {
		offer->state = REFUSED; /* on_offer() does the rest */
		return;
	}
	/* To release an offer is to answer its sender, and nothing may be sent to an endpoint
	 * that has failed. Once that is closed, there is no answer. */
	if (peer && peer->has_failed && peer->endpoint) {
		cei_list_remove(&offer->link);
		cei_list_append(&peer->refused, &offer->link);
		return;
	}
	ucx->calls.release(ucx->worker, offer->data);
	free_offer(ucx, offer);
}

void cei_ucx_offers_release(struct cei_ucx_peer *peer)
{
	struct cei_ucx *ucx = peer->ucx;
	struct cei_transport_offer *offer;

	while (!cei_list_is_empty(&peer->refused)) {
		offer = CEI_OWNER(peer->refused.next, struct cei_transport_offer, link);
		ucx->calls.release(ucx->worker, offer->data);
		free_offer(ucx, offer);
	}
}

void cei_ucx_offers_fini(struct cei_ucx *ucx)
{
	struct cei_transport_offer *offer;

	while (!cei_list_is_empty(&ucx->offers)) {
		offer = CEI_OWNER(ucx->offers.next, struct cei_transport_offer, link);
		ucx->calls.release(ucx->worker, offer->data);
		free_offer(ucx, offer);
	}
}

/* 0: UCX has begun the receive, and has taken the offer over. */
static int receive(struct cei_ucx_peer *peer, const struct cei_transport_offer *offer,
		   const struct cei_transport_span *span, struct cei_ucx_task *task)
{
	ucp_request_param_t param;

	memset(&param, 0, sizeof(param));
	param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
		UCP_OP_ATTR_FIELD_MEMH | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
	param.cb.recv_am = cei_ucx_task_received;
	param.user_data = task;
	param.memh = span->memory->handle;
	param.memory_type = span->memory->type;
	return cei_ucx_task_begun(task, peer->ucx->calls.receive(peer->ucx->worker, offer->data,
				  (void *)(uintptr_t)span->address, span->n_bytes, &param));
}

/* Whether a receive would end when this peer closes: the bytes must come by its endpoint. */
static int check_origin(struct cei_ucx_peer *peer, const struct cei_transport_offer *offer)
{
	if (!cei_ucx_peer_is_up(peer) || offer->label.sender != peer->identity)
		return CEOV_ERR_PEER_LOST;
	if (offer->endpoint == peer->endpoint)
		return 0;
	cei_ucx_peer_fail(peer, "UCX has paired its endpoints in an unknown way");
	return CEOV_ERR_PEER_LOST;
}

int cei_ucx_accept(struct cei_transport_peer *base, struct cei_transport_offer *offer,
		   const struct cei_transport_span *span, uint64_t tag)
{
	struct cei_ucx_peer *peer = cei_ucx_peer_of(base);
	struct cei_ucx *ucx = peer->ucx;
	struct cei_report *report = ucx->transport->config.report;
	struct cei_ucx_task *task = NULL;
	int r;

	r = check_origin(peer, offer);
	if (!r)
		r = cei_ucx_span_check(ucx, span);
	if (!r && span->n_bytes != offer->n_bytes)
		r = cei_raise(report, CEOV_ERR_INVALID, 0, "UCX: %" PRIu64 " bytes are offered, "
			      "but %" PRIu64 " are accepted", offer->n_bytes, span->n_bytes);
	if (!r) {
		task = cei_ucx_task_take(peer, CEI_UCX_TASK_RECEIVE, tag);
		if (!task)
			r = cei_raise(report, CEOV_ERR_NO_MEMORY, 0,
				      "UCX: no memory for a receive");
	}
	if (r) {
		cei_ucx_refuse(ucx->transport, offer);
		return r;
	}
	r = receive(peer, offer, span, task);
	if (offer->state == ARRIVING)
		offer->state = ACCEPTED;        /* on_offer() frees it */
	else
		free_offer(ucx, offer);
	return r;
}
