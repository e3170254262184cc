/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The network of one process: time, events and links, as a test scripts them. */

#include "unit/loop_private.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "testing.h"

void *loop_make(size_t n_bytes)
{
	void *made = calloc(1, n_bytes);

	assert(made);
	return made;
}

uint8_t *loop_copy_of(const void *bytes, uint64_t n_bytes)
{
	uint8_t *copy = loop_make(n_bytes ? n_bytes : 1);

	memcpy(copy, bytes, n_bytes);
	return copy;
}

uint64_t loop_now_of(struct loop_net *net)
{
	return net->is_real ? cei_now_ns() : net->now_ns;
}

uint32_t loop_n_messages(const struct loop_net *net, const struct loop_peer *peer)
{
	uint32_t i, n = 0;

	for (i = 0; i < net->n_events; i++)
		n += net->events[i]->kind == MESSAGE &&
			net->events[i]->from_connection == peer->number;
	return n;
}

uint32_t loop_n_sends(const struct loop_net *net, const struct loop_peer *peer)
{
	const struct cei_transport_offer *offer;
	uint32_t n = 0;

	for (offer = net->offers; offer; offer = offer->next)
		n += offer->sender == peer;
	return n;
}

/* --- events -------------------------------------------------------------- */

static void ring(struct loop_node *node)
{
	uint64_t one = 1;

	if (!node || !node->is_armed)
		return;
	node->is_armed = 0;
	assert(write(node->fd, &one, sizeof(one)) == sizeof(one));
}

void loop_post(struct loop_net *net, const struct loop_event *made)
{
	struct loop_event *event = loop_make(sizeof(*event));

	*event = *made;
	event->number = ++net->n_numbered;
	if (net->n_events == net->room) {
		net->room = net->room ? 2 * net->room : 64;
		net->events = realloc(net->events, net->room * sizeof(struct loop_event *));
		assert(net->events);
	}
	net->events[net->n_events++] = event;
	ring(net->nodes[event->to]);
}

void loop_drop_if_over(struct cei_transport_offer *offer)
{
	struct cei_transport_offer **link = &offer->net->offers;

	if (offer->sender || !offer->has_ended)
		return;
	while (*link != offer)
		link = &(*link)->next;
	*link = offer->next;
	free(offer->copied);
	free(offer);
}

void loop_forget(struct loop_net *net, uint32_t index)
{
	struct cei_transport_offer *offer = net->events[index]->offer;

	if (net->events[index]->kind == OFFER && offer) {
		offer->has_ended = 1;
		loop_drop_if_over(offer);
	}
	free(net->events[index]->bytes);
	free(net->events[index]);
	net->events[index] = net->events[--net->n_events];
}

uint64_t loop_due_on(struct loop_net *net, const struct loop_link *link)
{
	uint64_t due = loop_now_of(net) + link->delay_ns;

	if (link->jitter_ns)
		due += testing_below(&net->random, link->jitter_ns);
	return due < link->stall_until_ns ? link->stall_until_ns : due;
}

struct loop_peer *loop_peer_to(struct loop_node *node, uint32_t remote)
{
	struct loop_peer *peer = node ? node->peers : NULL;

	while (peer && (peer->remote != remote || peer->is_closed || peer->has_failed))
		peer = peer->next;
	return peer;
}

void loop_join(struct loop_net *net, struct loop_peer *peer)
{
	struct loop_peer *other = loop_peer_to(net->nodes[peer->remote], peer->node);

	if (!other || other->was_joined)
		return;
	other->partner = peer;
	other->was_joined = 1;
	peer->partner = other;
	peer->was_joined = 1;
}

void loop_break(struct loop_net *net, struct loop_peer *peer)
{
	struct loop_event event = { .kind = FAILED, .peer = peer, .due_ns = loop_now_of(net) };

	if (!peer)
		return;
	peer->has_failed = 1;
	event.to = peer->node;
	loop_post(net, &event);
}

int loop_arrives(struct loop_net *net, uint32_t from, uint32_t to)
{
	struct loop_link *link = &net->links[from][to];

	link->n_arrivals++;
	if (link->fail_at && link->n_arrivals == link->fail_at) {
		loop_break(net, loop_peer_to(net->nodes[from], to));
		loop_break(net, loop_peer_to(net->nodes[to], from));
		return 0;
	}
	return !link->is_dropped;
}

uint32_t loop_first_due(struct loop_net *net, const struct loop_node *node, uint64_t now_ns)
{
	uint32_t i, best = net->n_events;
	const struct loop_event *event, *first;

	for (i = 0; i < net->n_events; i++) {
		event = net->events[i];
		if ((node && event->to != node->number) || event->due_ns > now_ns)
			continue;
		first = best < net->n_events ? net->events[best] : NULL;
		if (!first || event->due_ns < first->due_ns ||
		    (event->due_ns == first->due_ns && event->number < first->number))
			best = i;
	}
	return best;
}

void loop_net_init(struct loop_net *net, uint64_t seed, int is_real)
{
	memset(net, 0, sizeof(*net));
	assert(!pthread_mutex_init(&net->lock, NULL));
	net->random = seed;
	net->is_real = is_real;
	net->now_ns = 1;
}

void loop_net_fini(struct loop_net *net)
{
	while (net->n_events)
		loop_forget(net, net->n_events - 1);
	while (net->offers) {           /* those of connections that were never closed */
		net->offers->sender = NULL;
		net->offers->has_ended = 1;
		loop_drop_if_over(net->offers);
	}
	free(net->events);
	(void)pthread_mutex_destroy(&net->lock);
}

void loop_net_advance(struct loop_net *net, uint64_t limit_ns)
{
	uint64_t due = limit_ns;
	uint32_t i;

	for (i = 0; i < net->n_events; i++)
		if (net->events[i]->due_ns > net->now_ns && net->events[i]->due_ns < due)
			due = net->events[i]->due_ns;
	if (due > net->now_ns)
		net->now_ns = due;
}

void loop_net_cut(struct loop_net *net, uint32_t one, uint32_t other, int is_cut)
{
	net->links[one][other].is_dropped = is_cut;
	net->links[other][one].is_dropped = is_cut;
}

void loop_address_of(uint32_t number, uint8_t *ret_address)
{
	ret_address[0] = (uint8_t)number;
	ret_address[1] = (uint8_t)~number;
	ret_address[2] = 'l';
	ret_address[3] = 'p';
}

const char *loop_device(struct loop_net *net, uint32_t number)
{
	static __thread char text[64];

	snprintf(text, sizeof(text), "loop:%p:%u", (void *)net, number);
	return text;
}

void loop_end_send(struct loop_net *net, struct cei_transport_offer *offer, int error)
{
	struct loop_event event = { .kind = SENT, .to = offer->from, .due_ns = loop_now_of(net),
				    .tag = offer->sent_tag, .error = error };

	loop_post(net, &event);
	offer->sender = NULL;
	if (!offer->copied)
		offer->source = NULL;
	loop_drop_if_over(offer);
}
