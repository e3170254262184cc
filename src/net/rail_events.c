/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What a rail's transport tells: finds the connection that it is about, and drops what belongs to
 * none. */

#include <stdio.h>

#include "net/far_receive.h"
#include "net/far_send.h"
#include "net/rail_private.h"

static void is_strange(struct cei_rail *rail)
{
	rail->nic.counts.n_strange++;
}

/* Returns whether the message is for this process, from another one of its group, which is the
 * one that the connection leads to. */
static int is_ours(struct cei_rail *rail, const struct cei_far_message *message,
		   const struct cei_transport_peer *from)
{
	const struct cei_rail_config *config = &rail->nic.config;

	if (message->group != config->group || message->target != config->process ||
	    message->source >= config->n_processes || message->source == config->process)
		return 0;
	return !from || from->owner == rail->nic.peers[message->source];
}

/* The peer of a message, or NULL: it was never used, and does not begin a connection. */
static struct cei_far_peer *peer_of(struct cei_rail *rail, const struct cei_far_message *message)
{
	struct cei_far_peer *peer = rail->nic.peers[message->source];

	if (peer && peer->state != CEI_FAR_UNUSED)
		return peer;
	if (message->type != CEI_FAR_HELLO || rail->is_leaving) {
		rail->nic.counts.n_old++;
		return NULL;
	}
	peer = cei_far_peer_get(&rail->nic, message->source);
	return peer && !cei_far_peer_use(peer) ? peer : NULL;
}

/* A process of our group speaks another version: it is told, by a message that is the same in all
 * versions. */
static void refuse_version(struct cei_rail *rail, const struct cei_far_message *message)
{
	struct cei_far_peer *peer = cei_far_peer_get(&rail->nic, message->source);
	char why[CEI_RAIL_WHY_BYTES];

	if (!peer || rail->is_leaving ||
	    (peer->state == CEI_FAR_UNUSED && cei_far_peer_use(peer)))
		return;
	snprintf(why, sizeof(why), "processes %u and %u speak versions %u and %u of the "
		 "protocol between nodes; install the same library on all nodes",
		 message->source, rail->nic.config.process, message->version,
		 CEI_FAR_VERSION);
	cei_far_peer_refuse(peer, CEOV_ERR_VERSION, why);
}

static void heard(void *arg, struct cei_transport_peer *from, const void *bytes,
		  uint32_t n_bytes)
{
	struct cei_rail *rail = arg;
	struct cei_far_message message;
	struct cei_far_peer *peer;
	int r = cei_decode(&cei_far_protocol, bytes, n_bytes, &message);

	if ((r && r != CEOV_ERR_VERSION) || !is_ours(rail, &message, from) ||
	    message.type == CEI_FAR_PIECE) {
		is_strange(rail);
		return;
	}
	if (r) {
		refuse_version(rail, &message);
		return;
	}
	peer = peer_of(rail, &message);
	if (!peer || !cei_far_peer_admits(peer, &message))
		return;
	if (message.type == CEI_FAR_MARK) {
		cei_far_peer_alive(peer);
		cei_far_receive_mark(peer, &message.mark);
	} else {
		cei_far_peer_heard(peer, &message);
	}
	cei_far_peer_touch(peer);
}

static void offered(void *arg, struct cei_transport_peer *from,
		    const struct cei_transport_arrival *arrival)
{
	struct cei_rail *rail = arg;
	struct cei_transport *transport = &rail->nic.transport;
	struct cei_far_message message;
	struct cei_far_peer *peer;

	if (cei_decode(&cei_far_protocol, arrival->head, arrival->n_head, &message) ||
	    message.type != CEI_FAR_PIECE || !is_ours(rail, &message, from)) {
		is_strange(rail);
		transport->ops->refuse(transport, arrival->offer);
		return;
	}
	peer = peer_of(rail, &message);
	if (!peer || !cei_far_peer_admits(peer, &message)) {
		transport->ops->refuse(transport, arrival->offer);
		return;
	}
	cei_far_peer_alive(peer);
	cei_far_receive_offer(peer, &message.piece, arrival->n_bytes, arrival->offer);
	cei_far_peer_touch(peer);
}

/* The peer and the index that a tag names; both were chosen here. */
static struct cei_far_peer *peer_of_tag(struct cei_rail *rail, uint64_t tag)
{
	return rail->nic.peers[tag >> 32];
}

static void sent(void *arg, uint64_t tag, int error)
{
	struct cei_far_peer *peer = peer_of_tag(arg, tag);

	cei_far_send_ended(peer, tag % CEI_FAR_SPAN);
	if (error)
		cei_far_peer_failed(peer, "a send has failed");
	cei_far_peer_touch(peer);
}

static void landed(void *arg, uint64_t tag, int error)
{
	struct cei_far_peer *peer = peer_of_tag(arg, tag);

	cei_far_receive_landed(peer, tag % CEI_FAR_SPAN, error);
	cei_far_peer_touch(peer);
}

static void failed(void *arg, struct cei_transport_peer *open, const char *why)
{
	(void)arg;
	cei_far_peer_failed(open->owner, why);
}

static void closed(void *arg, struct cei_transport_peer *open)
{
	(void)arg;
	cei_far_peer_closed(open->owner);
}

const struct cei_transport_events cei_rail_transport_events = {
	.heard   = heard,
	.offered = offered,
	.sent    = sent,
	.landed  = landed,
	.failed  = failed,
	.closed  = closed,
};
