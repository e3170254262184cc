/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Connections: addresses, endpoints, their failure and their end. */

#include "net/ucx_peer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "net/ucx_offer.h"

/* What stands before UCX's part of an address: UCX believes every byte of that part. */
struct address_head {
	uint32_t magic;
	uint32_t sum;                   /* of all that follows this field */
	uint64_t identity;
	uint32_t n_bytes;               /* of UCX's part */
	uint32_t zero;
};

/* UCX ends what is under way within milliseconds of a close. So long the owner is asked to make
 * progress; after that it may sleep. */
#define CLOSE_BUSY_NS UINT64_C(100000000)

/* --- addresses --------------------------------------------------------------------------- */

/* FNV-1a: finds bytes that were damaged or mistaken for an address, not those of a liar. */
static uint32_t sum_of(const uint8_t *bytes, uint32_t n_bytes)
{
	uint32_t sum = UINT32_C(2166136261);
	uint32_t i;

	for (i = 0; i < n_bytes; i++)
		sum = (sum ^ bytes[i]) * UINT32_C(16777619);
	return sum;
}

#define SUMMED_AT offsetof(struct address_head, identity)

int cei_ucx_address(struct cei_transport *transport, uint8_t *ret_address,
		    uint32_t *ret_n_bytes)
{
	struct cei_ucx *ucx = cei_ucx_of(transport);
	struct address_head head = { .magic = CEI_UCX_MAGIC, .identity = ucx->identity };
	uint8_t bytes[CEI_TRANSPORT_ADDRESS_MAX];
	ucp_address_t *address = NULL;
	size_t n = 0;
	ucs_status_t status;

	status = ucx->calls.worker_address(ucx->worker, &address, &n);
	if (status != UCS_OK)
		return cei_ucx_raise(ucx, status, "asking for its address");
	if (n > sizeof(bytes) - sizeof(head)) {
		ucx->calls.worker_release_address(ucx->worker, address);
		return cei_raise(transport->config.report, CEOV_ERR_UCX, 0,
				 "UCX: its address has %zu bytes, %zu at most are expected: "
				 "name one network interface", n, sizeof(bytes) - sizeof(head));
	}
	head.n_bytes = (uint32_t)n;
	memcpy(bytes + sizeof(head), address, n);
	ucx->calls.worker_release_address(ucx->worker, address);
	n += sizeof(head);
	memcpy(bytes, &head, sizeof(head));
	head.sum = sum_of(bytes + SUMMED_AT, (uint32_t)(n - SUMMED_AT));
	memcpy(bytes, &head, sizeof(head));
	memcpy(ret_address, bytes, n);
	*ret_n_bytes = (uint32_t)n;
	return 0;
}

static int is_address(const uint8_t *address, uint32_t n_bytes, struct address_head *ret_head)
{
	if (n_bytes <= sizeof(*ret_head) || n_bytes > CEI_TRANSPORT_ADDRESS_MAX)
		return 0;
	memcpy(ret_head, address, sizeof(*ret_head));
	return ret_head->magic == CEI_UCX_MAGIC && !ret_head->zero &&
		ret_head->n_bytes == n_bytes - sizeof(*ret_head) &&
		ret_head->sum == sum_of(address + SUMMED_AT, n_bytes - (uint32_t)SUMMED_AT);
}

/* --- opening ----------------------------------------------------------------------------- */

/* UCX calls it for an endpoint that has broken, from within any call. */
static void on_error(void *peer, ucp_ep_h endpoint, ucs_status_t status)
{
	(void)endpoint;
	cei_ucx_peer_fail(peer, ((struct cei_ucx_peer *)peer)->ucx->calls.status_string(status));
}

static ucs_status_t create_endpoint(struct cei_ucx_peer *peer, const void *address)
{
	ucp_ep_params_t params;

	memset(&params, 0, sizeof(params));
	params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
		UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
	params.address = address;
	params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
	params.err_handler.cb = on_error;
	params.err_handler.arg = peer;
	return peer->ucx->calls.endpoint_create(peer->ucx->worker, &params,
						&peer->endpoint);
}

/* Identities are random numbers: any bits of them do. */
static struct cei_ucx_peer **slot_of(struct cei_ucx *ucx, uint64_t identity)
{
	return &ucx->peers[identity % CEI_UCX_PEER_SLOTS];
}

struct cei_ucx_peer *cei_ucx_peer_find(struct cei_ucx *ucx, uint64_t identity)
{
	struct cei_ucx_peer *peer = *slot_of(ucx, identity);

	while (peer && peer->identity != identity)
		peer = peer->next;
	return peer;
}

static struct cei_ucx_peer *new_peer(struct cei_ucx *ucx, uint64_t identity, void *owner)
{
	struct cei_ucx_peer **slot = slot_of(ucx, identity);
	struct cei_ucx_peer *peer = calloc(1, sizeof(*peer));

	if (!peer)
		return NULL;
	peer->base.transport = ucx->transport;
	peer->base.owner = owner;
	peer->ucx = ucx;
	peer->identity = identity;
	peer->next = *slot;
	*slot = peer;
	cei_list_init(&peer->failed_link);
	cei_list_init(&peer->closing_link);
	cei_list_init(&peer->refused);
	return peer;
}

int cei_ucx_peer_open(struct cei_transport *transport, const void *address, uint32_t n_bytes,
		      void *owner, struct cei_transport_peer **ret_peer)
{
	struct cei_ucx *ucx = cei_ucx_of(transport);
	struct cei_report *report = transport->config.report;
	struct cei_ucx_peer *peer;
	struct address_head head;
	ucs_status_t status;

	if (!is_address(address, n_bytes, &head))
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "UCX: %u bytes that should be the address of another process "
				 "are none", n_bytes);
	if (cei_ucx_peer_find(ucx, head.identity))
		return cei_raise(report, CEOV_ERR_STATE, 0,
				 "UCX: a connection to %016" PRIx64 " was opened before",
				 head.identity);
	peer = new_peer(ucx, head.identity, owner);
	if (!peer)
		return cei_raise(report, CEOV_ERR_NO_MEMORY, 0,
				 "UCX: no memory for a connection");
	status = create_endpoint(peer, (const uint8_t *)address + sizeof(head));
	if (status != UCS_OK) {
		peer->endpoint = NULL;
		cei_ucx_peer_fail(peer, ucx->calls.status_string(status));
	}
	*ret_peer = &peer->base;
	return 0;
}

void cei_ucx_peers_fini(struct cei_ucx *ucx)
{
	struct cei_ucx_peer *peer;
	uint32_t i;

	for (i = 0; i < CEI_UCX_PEER_SLOTS; i++)
		while ((peer = ucx->peers[i])) {
			ucx->peers[i] = peer->next;
			free(peer);
		}
}

/* --- failure and end --------------------------------------------------------------------- */

void cei_ucx_peer_fail(struct cei_ucx_peer *peer, const char *why)
{
	if (peer->has_failed)
		return;
	peer->has_failed = 1;
	if (peer->is_closing)
		return;
	snprintf(peer->why, sizeof(peer->why), "%s", why);
	if (cei_list_is_empty(&peer->failed_link))
		cei_list_append(&peer->ucx->failed, &peer->failed_link);
}

void cei_ucx_peer_close(struct cei_transport_peer *base)
{
	struct cei_ucx_peer *peer = cei_ucx_peer_of(base);

	peer->is_closing = 1;
	peer->close_ns = cei_now_ns();
	cei_list_remove(&peer->failed_link);
	cei_list_append(&peer->ucx->closing, &peer->closing_link);
}

/* Begins to close the endpoint with all that is under way. Returns UCX's request, or NULL. */
static void *close_endpoint(struct cei_ucx *ucx, ucp_ep_h endpoint)
{
	ucp_request_param_t param;
	ucs_status_ptr_t result;

	memset(&param, 0, sizeof(param));
	param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
	param.flags = UCP_EP_CLOSE_FLAG_FORCE;
	result = ucx->calls.endpoint_close(endpoint, &param);
	return UCS_PTR_IS_PTR(result) ? result : NULL;
}

/* Not within peer_close: that may be called by a handler which UCX has called for this very
 * endpoint. */
uint32_t cei_ucx_peers_close(struct cei_ucx *ucx)
{
	struct cei_list *node;
	struct cei_ucx_peer *peer;
	uint32_t n = 0;

	for (node = ucx->closing.next; node != &ucx->closing; node = node->next) {
		peer = CEI_OWNER(node, struct cei_ucx_peer, closing_link);
		if (!peer->endpoint)
			continue;
		peer->close_request = close_endpoint(ucx, peer->endpoint);
		peer->endpoint = NULL;
		cei_ucx_offers_release(peer);
		n++;
	}
	return n;
}

static uint32_t tell_failures(struct cei_ucx *ucx)
{
	const struct cei_transport_config *config = &ucx->transport->config;
	struct cei_list *node;
	struct cei_ucx_peer *peer;
	uint32_t n = 0;

	for (; (node = cei_list_take(&ucx->failed)); n++) {
		peer = CEI_OWNER(node, struct cei_ucx_peer, failed_link);
		config->events->failed(config->events_arg, &peer->base, peer->why);
	}
	return n;
}

static int has_ended(struct cei_ucx_peer *peer)
{
	uint32_t i;

	if (peer->endpoint)
		return 0;       /* closed by its handler just now: UCX was not told yet */
	if (peer->close_request &&
	    peer->ucx->calls.request_status(peer->close_request) == UCS_INPROGRESS)
		return 0;
	for (i = 0; i < CEI_UCX_KINDS; i++)
		if (peer->n_under_way[i])
			return 0;
	return 1;
}

static void tell_end(struct cei_ucx_peer *peer)
{
	const struct cei_transport_config *config = &peer->ucx->transport->config;

	cei_list_remove(&peer->closing_link);
	if (peer->close_request)
		peer->ucx->calls.request_free(peer->close_request);
	cei_ucx_offers_release(peer);
	config->events->closed(config->events_arg, &peer->base);
}

uint32_t cei_ucx_peers_tell(struct cei_ucx *ucx)
{
	uint32_t n = tell_failures(ucx);
	struct cei_list *node = ucx->closing.next;
	struct cei_ucx_peer *peer;

	while (node != &ucx->closing) {
		peer = CEI_OWNER(node, struct cei_ucx_peer, closing_link);
		node = node->next;      /* a handler only appends to the list */
		if (!has_ended(peer))
			continue;
		tell_end(peer);
		n++;
	}
	return n;
}

int cei_ucx_peers_are_busy(const struct cei_ucx *ucx)
{
	const struct cei_list *node;
	const struct cei_ucx_peer *peer;

	if (!cei_list_is_empty(&ucx->failed))
		return 1;
	for (node = ucx->closing.next; node != &ucx->closing; node = node->next) {
		peer = CEI_OWNER(node, struct cei_ucx_peer, closing_link);
		if (peer->endpoint || cei_now_ns() - peer->close_ns < CLOSE_BUSY_NS)
			return 1;
	}
	return 0;
}

int cei_ucx_expected(struct cei_transport_peer *peer, uint64_t n_bytes, uint64_t *ret_ns)
{
	const ucp_ep_evaluate_perf_param_t wanted = {
		.field_mask = UCP_EP_PERF_PARAM_FIELD_MESSAGE_SIZE,
		.message_size = n_bytes,
	};
	ucp_ep_evaluate_perf_attr_t found = {
		.field_mask = UCP_EP_PERF_ATTR_FIELD_ESTIMATED_TIME,
	};
	struct cei_ucx_peer *own = cei_ucx_peer_of(peer);
	double ns;

	if (!own->ucx->calls.evaluate || !cei_ucx_peer_is_up(own) ||
	    own->ucx->calls.evaluate(own->endpoint, &wanted, &found) != UCS_OK)
		return CEOV_NONE;
	ns = found.estimated_time * 1e9;
	if (!(ns >= 1 && ns < 1e18))
		return CEOV_NONE;
	*ret_ns = (uint64_t)ns;
	return 0;
}
