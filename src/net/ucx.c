/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * The transport over UCX: one context and one worker, used by one thread. Messages are eager
 * active messages, offers are active messages by rendezvous. UCX's callbacks tell the owner of
 * messages and offers at once; all other events wait for the end of progress.
 */

#include "net/ucx.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "net/ucx_devices.h"
#include "net/ucx_offer.h"
#include "net/ucx_peer.h"
#include "net/ucx_send.h"

static void init_lists(struct cei_ucx *ucx)
{
	cei_list_init(&ucx->failed);
	cei_list_init(&ucx->closing);
	cei_list_init(&ucx->ended);
	cei_list_init(&ucx->free_messages);
	cei_list_init(&ucx->free_moves);
	cei_list_init(&ucx->offers);
}

static void describe_it(struct cei_ucx *ucx)
{
	const struct cei_transport_config *config = &ucx->transport->config;

	snprintf(ucx->text, sizeof(ucx->text), "UCX %s, network interface %s, transports %s",
		 ucx->calls.version_string(), config->device ? config->device : "any",
		 config->kinds ? config->kinds : "all");
}

/* RDMA, mostly: see cei_ucx_is_untried(). */
static void note_untried(struct cei_ucx *ucx)
{
	char kind[CEI_UCX_KIND_BYTES];

	if (cei_ucx_find_untried(ucx, kind))
		snprintf(ucx->untried, sizeof(ucx->untried),
			 "UCX does not tell what it may use");
	else if (kind[0])
		snprintf(ucx->untried, sizeof(ucx->untried),
			 "UCX may use %s, over which nobody has tried it in place", kind);
}

static int is_tried_in_place_ucx(struct cei_transport *transport, const char **ret_why)
{
	*ret_why = cei_ucx_of(transport)->untried;
	return !**ret_why;
}

static int open_all(struct cei_ucx *ucx, const char **ret_why)
{
	struct cei_report *report = ucx->transport->config.report;
	int r = cei_ucx_load(report, &ucx->calls, ret_why);

	if (r)
		return r;
	if (getrandom(&ucx->identity, sizeof(ucx->identity), 0) != sizeof(ucx->identity))
		return cei_raise(report, CEOV_ERR_SYSTEM, 0,
				 "UCX: no random number for this process");
	r = cei_ucx_worker_open(ucx);
	if (r)
		return r;
	r = cei_ucx_offers_listen(ucx);
	if (r)
		cei_ucx_worker_close(ucx);
	return r;
}

static int open_ucx(struct cei_transport *transport, const char **ret_why)
{
	struct cei_ucx *ucx = calloc(1, sizeof(*ucx));
	int r;

	if (!ucx)
		return cei_raise(transport->config.report, CEOV_ERR_NO_MEMORY, 0,
				 "UCX: no memory for a transport");
	ucx->transport = transport;
	init_lists(ucx);
	transport->private = ucx;
	r = open_all(ucx, ret_why);
	if (r) {
		transport->private = NULL;
		free(ucx);
		return r;
	}
	describe_it(ucx);
	note_untried(ucx);
	return 0;
}

static void close_ucx(struct cei_transport *transport)
{
	struct cei_ucx *ucx = cei_ucx_of(transport);

	cei_ucx_offers_fini(ucx);
	cei_ucx_worker_close(ucx);
	cei_ucx_tasks_fini(ucx);
	cei_ucx_peers_fini(ucx);
	transport->private = NULL;
	free(ucx);
}

static const char *describe_ucx(struct cei_transport *transport)
{
	return cei_ucx_of(transport)->text;
}

static int progress_ucx(struct cei_transport *transport)
{
	struct cei_ucx *ucx = cei_ucx_of(transport);
	uint32_t n;

	n = cei_ucx_peers_close(ucx);
	n += ucx->calls.worker_progress(ucx->worker);
	n += cei_ucx_tasks_tell(ucx);
	n += cei_ucx_peers_tell(ucx);
	return n != 0;
}

static int arm_ucx(struct cei_transport *transport)
{
	struct cei_ucx *ucx = cei_ucx_of(transport);
	ucs_status_t status;

	if (!cei_list_is_empty(&ucx->ended) || cei_ucx_peers_are_busy(ucx))
		return CEOV_PENDING;
	status = ucx->calls.worker_arm(ucx->worker);
	if (status == UCS_OK)
		return 0;
	if (status == UCS_ERR_BUSY)
		return CEOV_PENDING;
	return cei_ucx_raise(ucx, status, "preparing to sleep");
}

static int fd_ucx(struct cei_transport *transport)
{
	return cei_ucx_of(transport)->fd;
}

const struct cei_transport_ops cei_transport_ucx = {
	.name = "ucx",
	.devices = cei_ucx_devices,
	.open = open_ucx,
	.close = close_ucx,
	.describe = describe_ucx,
	.address = cei_ucx_address,
	.memory_open = cei_ucx_memory_open,
	.memory_close = cei_ucx_memory_close,
	.is_tried_in_place = is_tried_in_place_ucx,
	.takes_gpu_memory = cei_ucx_takes_gpu_memory,
	.gpu_memory_open = cei_ucx_gpu_memory_open,
	.peer_open = cei_ucx_peer_open,
	.peer_close = cei_ucx_peer_close,
	.expected = cei_ucx_expected,
	.say = cei_ucx_say,
	.send = cei_ucx_send,
	.accept = cei_ucx_accept,
	.refuse = cei_ucx_refuse,
	.progress = progress_ucx,
	.arm = arm_ucx,
	.fd = fd_ucx,
};
