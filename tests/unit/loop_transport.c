/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Transports of the network of one process. Progress tells a transport's owner the events that
 * are due, in order of time; the net's lock is not held meanwhile.
 */

#include "unit/loop_private.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "testing.h"
#include "unit/device_copier.h"

/* --- opening ------------------------------------------------------------- */

static int loop_open(struct cei_transport *transport, const char **ret_why)
{
	struct loop_node *node = loop_make(sizeof(*node));
	void *net;

	(void)ret_why;
	assert(sscanf(transport->config.device, "loop:%p:%u", &net, &node->number) == 2);
	node->net = net;
	node->transport = transport;
	node->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	assert(node->fd >= 0 && node->number < LOOP_NODES_MAX);
	pthread_mutex_lock(&node->net->lock);
	node->net->nodes[node->number] = node;
	pthread_mutex_unlock(&node->net->lock);
	transport->private = node;
	cei_log(transport->config.report, CEI_LOG_WARN, "network: a test double stands for the "
		"network: it may delay, reorder, lose, and end sends early");
	return 0;
}

static void loop_close(struct cei_transport *transport)
{
	struct loop_node *node = transport->private;
	struct loop_net *net = node->net;
	uint32_t i = 0;

	assert(!node->peers && !node->n_memories);
	pthread_mutex_lock(&net->lock);
	net->nodes[node->number] = NULL;
	while (i < net->n_events)
		if (net->events[i]->to == node->number)
			loop_forget(net, i);
		else
			i++;
	pthread_mutex_unlock(&net->lock);
	close(node->fd);
	free(node);
}

static const char *loop_describe(struct cei_transport *transport)
{
	(void)transport;
	return "loop (simulated)";
}

static int loop_expected(struct cei_transport_peer *peer, uint64_t n_bytes, uint64_t *ret_ns)
{
	(void)peer;
	*ret_ns = LOOP_EXPECTED_NS + n_bytes;
	return 0;
}

static int loop_address(struct cei_transport *transport, uint8_t *ret_address,
			uint32_t *ret_n_bytes)
{
	struct loop_node *node = transport->private;

	loop_address_of(node->number, ret_address);
	*ret_n_bytes = LOOP_ADDRESS_BYTES;
	return 0;
}

static int loop_memory_open(struct cei_transport *transport, void *base, uint64_t n_bytes,
			    struct cei_transport_memory **ret_memory)
{
	struct loop_node *node = transport->private;
	struct cei_transport_memory *memory = loop_make(sizeof(*memory));

	memory->base = base;
	memory->n_bytes = n_bytes;
	node->n_memories++;
	*ret_memory = memory;
	return 0;
}

static void loop_memory_close(struct cei_transport *transport,
			      struct cei_transport_memory *memory)
{
	struct loop_node *node = transport->private;

	node->n_memories--;
	free(memory);
}

/* A "GPU's" memory is host memory under addresses with DEVICE_BIT (device_copier.h). */
static int loop_gpu_memory_open(struct cei_transport *transport, void *base, uint64_t n_bytes,
				struct cei_transport_memory **ret_memory)
{
	assert((uintptr_t)base & DEVICE_BIT);
	return loop_memory_open(transport, base, n_bytes, ret_memory);
}

static int loop_takes_gpu_memory(struct cei_transport *transport, const char **ret_why)
{
	const struct loop_node *node = transport->private;

	*ret_why = "the simulated network was told not to";
	return node->net->takes_gpu_memory;
}

/* The memory may be gone from the span's view: an address below it counts as beyond it. */
static int is_within(const struct cei_transport_span *span)
{
	uint64_t offset = span->address - (uint64_t)(uintptr_t)span->memory->base;

	return span->n_bytes && offset <= span->memory->n_bytes &&
		span->n_bytes <= span->memory->n_bytes - offset;
}

static uint8_t *at(const struct cei_transport_span *span)
{
	return (uint8_t *)(uintptr_t)(span->address & ~DEVICE_BIT);
}

static int refuse_call(struct loop_node *node, const char *what)
{
	return cei_raise(node->transport->config.report, CEOV_ERR_INVALID, 0, "loop: %s", what);
}

/* --- connections --------------------------------------------------------- */

static int loop_peer_open(struct cei_transport *transport, const void *address,
			  uint32_t n_bytes, void *owner, struct cei_transport_peer **ret_peer)
{
	struct loop_node *node = transport->private;
	uint8_t number = n_bytes ? *(const uint8_t *)address : 0, wanted[LOOP_ADDRESS_BYTES];
	struct loop_peer *peer;

	loop_address_of(number, wanted);
	if (n_bytes != sizeof(wanted) || memcmp(address, wanted, sizeof(wanted)) ||
	    number >= LOOP_NODES_MAX)
		return refuse_call(node, "these bytes are no address");
	peer = loop_make(sizeof(*peer));
	peer->public.transport = transport;
	peer->public.owner = owner;
	peer->node = node->number;
	peer->remote = number;
	pthread_mutex_lock(&node->net->lock);
	peer->number = ++node->net->n_numbered;
	loop_join(node->net, peer);
	peer->next = node->peers;
	node->peers = peer;
	pthread_mutex_unlock(&node->net->lock);
	*ret_peer = &peer->public;
	return 0;
}

/* Lets some of the bytes land though the connection is closing: half of them at half the time, or
 * behind `closed` where the script says so. */
static void land_late(struct loop_net *net, struct cei_transport_offer *offer)
{
	const struct loop_closing *closing = &net->closings[offer->to];
	struct loop_event event = { .kind = BYTES, .to = offer->to,
				    .due_ns = loop_now_of(net) + closing->delay_ns / 2 };

	if (!offer->source || !(closing->delay_ns || closing->is_late))
		return;
	if (closing->is_late)
		event.due_ns = loop_now_of(net) + 2 * closing->delay_ns + 1;
	event.target = offer->target;
	event.n_bytes = offer->n_bytes;
	event.bytes = loop_copy_of(offer->source, offer->n_bytes);
	loop_post(net, &event);
}

static void end_receive(struct loop_net *net, struct cei_transport_offer *offer)
{
	struct loop_event event = { .kind = LANDED, .to = offer->to, .tag = offer->landed_tag,
				    .error = CEOV_ERR_PEER_LOST };
	uint32_t i = 0;

	while (i < net->n_events)       /* what was to be written by and by is cancelled */
		if (net->events[i]->offer == offer)
			loop_forget(net, i);
		else
			i++;
	land_late(net, offer);
	event.due_ns = loop_now_of(net) + net->closings[offer->to].delay_ns;
	loop_post(net, &event);
	offer->has_ended = 1;
	loop_drop_if_over(offer);
}

/* A forced close discards what is under way; what is already in the network may arrive. */
static void discard_some(struct loop_net *net, uint64_t connection)
{
	struct loop_event *event;
	uint32_t i = 0;

	while (i < net->n_events) {
		event = net->events[i];
		if (event->from_connection == connection && event->kind == MESSAGE &&
		    testing_below(&net->random, 2))
			loop_forget(net, i);
		else
			i++;
	}
}

static void end_transfers(struct loop_net *net, struct loop_peer *peer)
{
	struct cei_transport_offer *offer, *next;

	for (offer = net->offers; offer; offer = next) {
		next = offer->next;
		if (offer->receiver == peer && !offer->has_ended)
			end_receive(net, offer);
		else if (offer->sender == peer)
			loop_end_send(net, offer, CEOV_ERR_PEER_LOST);
	}
}

static void tell_partner(struct loop_net *net, struct loop_peer *peer)
{
	const struct loop_link *link = &net->links[peer->node][peer->remote];
	struct loop_peer *partner = peer->partner;

	if (!partner)
		return;
	partner->partner = NULL;
	if (!partner->has_failed && !link->is_dropped && !link->is_mute_on_close)
		loop_break(net, partner);
}

static void loop_peer_close(struct cei_transport_peer *public)
{
	struct loop_peer *peer = (struct loop_peer *)public;
	struct loop_node *node = public->transport->private;
	struct loop_net *net = node->net;
	struct loop_event event = { .kind = CLOSED, .to = node->number, .peer = peer };

	pthread_mutex_lock(&net->lock);
	assert(!peer->is_closed);
	peer->is_closed = 1;
	discard_some(net, peer->number);
	end_transfers(net, peer);
	tell_partner(net, peer);
	event.due_ns = loop_now_of(net) + net->closings[node->number].delay_ns;
	loop_post(net, &event);
	pthread_mutex_unlock(&net->lock);
}

/* --- messages and bytes -------------------------------------------------- */

/* Whether the other transport is there. One that is not is noticed at the first use of the
 * connection, unless the cable is cut. */
static int is_there(struct loop_net *net, struct loop_peer *peer)
{
	if (net->nodes[peer->remote] || net->links[peer->node][peer->remote].is_dropped)
		return 1;
	loop_break(net, peer);
	return 0;
}

/* 0, or why nothing can be sent now. */
static int may_send(struct loop_node *node, struct loop_peer *peer)
{
	uint32_t full_every = node->net->links[node->number][peer->remote].full_every;

	if (peer->has_failed || peer->is_closed || !is_there(node->net, peer))
		return CEOV_ERR_PEER_LOST;
	return full_every && ++node->n_calls % full_every == 0 ? CEOV_FULL : 0;
}

static int loop_say(struct cei_transport_peer *public, const void *message, uint32_t n_bytes)
{
	struct loop_peer *peer = (struct loop_peer *)public;
	struct loop_node *node = public->transport->private;
	struct loop_event event = { .kind = MESSAGE, .to = peer->remote,
				    .from = node->number, .n_bytes = n_bytes,
				    .from_connection = peer->number };
	struct loop_net *net = node->net;
	int r;

	if (!n_bytes || n_bytes > CEI_TRANSPORT_MESSAGE_MAX)
		return refuse_call(node, "a message of this size cannot be sent");
	pthread_mutex_lock(&net->lock);
	r = may_send(node, peer);
	if (!r && loop_n_messages(net, peer) >= LOOP_MESSAGES_MAX)
		r = CEOV_FULL;
	if (!r && loop_arrives(net, node->number, peer->remote)) {
		event.bytes = loop_copy_of(message, n_bytes);
		event.due_ns = loop_due_on(net, &net->links[node->number][peer->remote]);
		loop_post(net, &event);
	}
	pthread_mutex_unlock(&net->lock);
	return r;
}

static void begin_send(struct loop_node *node, struct loop_peer *peer,
		       const struct cei_transport_send *send)
{
	struct cei_transport_offer *offer = loop_make(sizeof(*offer));
	struct loop_link *link = &node->net->links[node->number][peer->remote];
	struct loop_event event = { .kind = OFFER, .to = peer->remote, .from = node->number,
				    .from_connection = peer->number, .offer = offer };

	offer->sender = peer;
	offer->from = node->number;
	offer->to = peer->remote;
	offer->source = at(&send->span);
	offer->n_bytes = send->span.n_bytes;
	offer->sent_tag = send->tag;
	offer->net = node->net;
	offer->next = node->net->offers;
	node->net->offers = offer;
	if (link->sends_early)
		offer->source = offer->copied = loop_copy_of(offer->source, offer->n_bytes);
	if (!loop_arrives(node->net, node->number, peer->remote)) {
		offer->has_ended = 1;
		return;
	}
	event.bytes = loop_copy_of(send->head, send->n_head);
	event.n_bytes = send->n_head;
	event.due_ns = loop_due_on(node->net, link);
	loop_post(node->net, &event);
	if (link->sends_early)
		loop_end_send(node->net, offer, 0);
}

static int loop_send(struct cei_transport_peer *public, const struct cei_transport_send *send)
{
	struct loop_peer *peer = (struct loop_peer *)public;
	struct loop_node *node = public->transport->private;
	int r;

	if (!send->n_head || send->n_head > CEI_TRANSPORT_HEAD_MAX || !is_within(&send->span))
		return refuse_call(node, "such a head, or bytes that are not registered, cannot be "
				   "sent");
	pthread_mutex_lock(&node->net->lock);
	r = may_send(node, peer);
	if (!r && loop_n_sends(node->net, peer) >= LOOP_SENDS_MAX)
		r = CEOV_FULL;
	if (!r)
		begin_send(node, peer, send);
	pthread_mutex_unlock(&node->net->lock);
	return r;
}

/* Takes capacity for bytes that could begin at that time. Returns when they are through. */
static uint64_t occupy(struct loop_link *link, uint64_t begin_ns, uint64_t n_bytes)
{
	if (!link->bytes_per_us)
		return begin_ns;
	if (begin_ns < link->busy_until_ns)
		begin_ns = link->busy_until_ns;
	link->busy_until_ns = begin_ns + n_bytes * 1000 / link->bytes_per_us;
	return link->busy_until_ns;
}

static void begin_receive(struct loop_net *net, struct cei_transport_offer *offer)
{
	struct loop_link *link = &net->links[offer->from][offer->to];
	struct loop_event event = { .kind = BYTES, .to = offer->to, .from = offer->from,
				    .offer = offer, .tag = offer->landed_tag };

	if (!loop_arrives(net, offer->from, offer->to))
		return;
	event.due_ns = occupy(link, loop_due_on(net, link), offer->n_bytes);
	loop_post(net, &event);
	event.kind = LANDED;
	event.due_ns += link->delay_ns + link->bytes_ns;        /* never before the bytes */
	if (link->jitter_ns)
		event.due_ns += testing_below(&net->random, link->jitter_ns);
	loop_post(net, &event);
}

static void loop_refuse(struct cei_transport *transport, struct cei_transport_offer *offer)
{
	struct loop_net *net = offer->net;

	(void)transport;
	pthread_mutex_lock(&net->lock);
	assert(!offer->receiver && !offer->has_ended);
	if (offer->sender)
		loop_end_send(net, offer, 0);   /* does not free it: it has not ended */
	offer->has_ended = 1;
	loop_drop_if_over(offer);
	pthread_mutex_unlock(&net->lock);
}

static int loop_accept(struct cei_transport_peer *public, struct cei_transport_offer *offer,
		       const struct cei_transport_span *span, uint64_t tag)
{
	struct loop_peer *peer = (struct loop_peer *)public;
	struct loop_node *node = public->transport->private;
	struct loop_net *net = offer->net;
	int is_wrong = span->n_bytes != offer->n_bytes || !is_within(span);

	assert(!offer->receiver);
	if (is_wrong || peer->is_closed) {
		loop_refuse(public->transport, offer);
		return is_wrong ? refuse_call(node, "an offer is not accepted into such memory")
			: CEOV_ERR_PEER_LOST;
	}
	pthread_mutex_lock(&net->lock);
	offer->target = at(span);
	offer->landed_tag = tag;
	offer->receiver = peer;
	begin_receive(net, offer);
	pthread_mutex_unlock(&net->lock);
	return 0;
}

/* --- progress ------------------------------------------------------------ */

/* Half of the bytes, then all of them: a reader that comes too early finds a torn piece. */
static void move(struct loop_event *event)
{
	struct cei_transport_offer *offer = event->offer;

	if (!offer)
		memcpy(event->target, event->bytes, event->n_bytes);
	else if (offer->source)
		memcpy(offer->target, offer->source,
		       event->kind == BYTES ? offer->n_bytes / 2 : offer->n_bytes);
}

static void land(struct loop_net *net, struct loop_event *event)
{
	struct cei_transport_offer *offer = event->offer;

	if (!offer)
		return;
	move(event);
	event->error = offer->source ? 0 : CEOV_ERR_PEER_LOST;
	if (offer->sender)
		loop_end_send(net, offer, 0);
	offer->has_ended = 1;
	loop_drop_if_over(offer);
}

/* Takes the node's next event out and does what it does to memory. Returns 0 if there is none
 * to tell. The caller holds the lock. */
static int take(struct loop_node *node, struct loop_event *ret_event)
{
	struct loop_net *net = node->net;
	uint32_t next;

	for (;;) {
		next = loop_first_due(net, node, loop_now_of(net));
		if (next == net->n_events)
			return 0;
		*ret_event = *net->events[next];
		if ((ret_event->kind <= BYTES || ret_event->kind == LANDED) &&
		    (ret_event->kind == MESSAGE || ret_event->offer) &&
		    net->links[ret_event->from][node->number].is_dropped) {
			loop_forget(net, next);
			continue;
		}
		net->events[next]->kind = SENT; /* what it holds is ours now */
		net->events[next]->bytes = NULL;
		loop_forget(net, next);
		if (ret_event->kind == BYTES) {
			move(ret_event);
			free(ret_event->bytes);
			continue;
		}
		if (ret_event->kind == LANDED)
			land(net, ret_event);
		return 1;
	}
}

static void free_peer(struct loop_node *node, struct loop_peer *peer)
{
	struct loop_peer **link = &node->peers;

	pthread_mutex_lock(&node->net->lock);
	while (*link != peer)
		link = &(*link)->next;
	*link = peer->next;
	pthread_mutex_unlock(&node->net->lock);
	free(peer);
}

static void tell(struct loop_node *node, struct loop_event *event,
		 struct cei_transport_peer *from)
{
	const struct cei_transport_events *events = node->transport->config.events;
	struct cei_transport_arrival arrival;
	void *arg = node->transport->config.events_arg;

	switch (event->kind) {
	case MESSAGE:
		events->heard(arg, from, event->bytes, (uint32_t)event->n_bytes);
		break;
	case OFFER:
		arrival.head = event->bytes;
		arrival.n_head = (uint32_t)event->n_bytes;
		arrival.n_bytes = event->offer->n_bytes;
		arrival.offer = event->offer;
		events->offered(arg, from, &arrival);
		break;
	case SENT:
		events->sent(arg, event->tag, event->error);
		break;
	case LANDED:
		events->landed(arg, event->tag, event->error);
		break;
	case FAILED:
		if (!event->peer->is_closed)
			events->failed(arg, &event->peer->public, "loop: the script says so");
		break;
	case CLOSED:
		events->closed(arg, &event->peer->public);
		free_peer(node, event->peer);
		break;
	case BYTES:
		break;
	}
	free(event->bytes);
}

static int loop_progress(struct cei_transport *transport)
{
	struct loop_node *node = transport->private;
	struct loop_peer *from;
	struct loop_event event;
	uint64_t dummy;
	int n = 0, is_one;

	while (read(node->fd, &dummy, sizeof(dummy)) > 0)
		;
	do {
		pthread_mutex_lock(&node->net->lock);
		is_one = take(node, &event);
		from = is_one ? loop_peer_to(node, event.from) : NULL;
		pthread_mutex_unlock(&node->net->lock);
		if (is_one)
			tell(node, &event, from ? &from->public : NULL);
		n += is_one;
	} while (is_one && n < 64);
	return n != 0;
}

static int loop_arm(struct cei_transport *transport)
{
	struct loop_node *node = transport->private;
	struct loop_net *net = node->net;
	int r;

	pthread_mutex_lock(&net->lock);
	r = loop_first_due(net, node, UINT64_MAX) < net->n_events ? CEOV_PENDING : 0;
	node->is_armed = !r;
	pthread_mutex_unlock(&net->lock);
	return r;
}

static int loop_fd(struct cei_transport *transport)
{
	struct loop_node *node = transport->private;

	return node->fd;
}

const struct cei_transport_ops loop_transport = {
	.name         = "loop (simulated)",
	.open         = loop_open,
	.close        = loop_close,
	.describe     = loop_describe,
	.address      = loop_address,
	.memory_open  = loop_memory_open,
	.memory_close = loop_memory_close,
	.takes_gpu_memory = loop_takes_gpu_memory,
	.gpu_memory_open = loop_gpu_memory_open,
	.peer_open    = loop_peer_open,
	.peer_close   = loop_peer_close,
	.expected     = loop_expected,
	.say          = loop_say,
	.send         = loop_send,
	.accept       = loop_accept,
	.refuse       = loop_refuse,
	.progress     = loop_progress,
	.arm          = loop_arm,
	.fd           = loop_fd,
};
