/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The connection of a rail to one other process: how it begins, is kept alive, and ends. */

#include "net/far_peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ceoverlap/version.h>

#include "base/clock.h"
#include "net/far_receive.h"
#include "net/far_send.h"

/* --- peers ----------------------------------------------------------------- */

static struct cei_far_peer *make(struct cei_far_nic *nic, uint32_t process)
{
	struct cei_far_peer *peer = calloc(1, sizeof(*peer));

	if (!peer)
		return NULL;
	peer->nic = nic;
	peer->process = process;
	cei_list_init(&peer->urgent);
	cei_list_init(&peer->connected);
	cei_list_init(&peer->busy);
	cei_list_init(&peer->idle);
	cei_far_notes_init(&peer->notes);
	return peer;
}

struct cei_far_peer *cei_far_peer_get(struct cei_far_nic *nic, uint32_t process)
{
	if (process >= nic->config.n_processes || process == nic->config.process) {
		(void)cei_raise(nic->config.report, CEOV_ERR_INVALID, 0,
				"net: there is no other process %u in a group of %u", process,
				nic->config.n_processes);
		return NULL;
	}
	if (!nic->peers[process])
		nic->peers[process] = make(nic, process);
	if (!nic->peers[process])
		(void)cei_raise(nic->config.report, CEOV_ERR_NO_MEMORY, 0,
				"net: no memory for the connection to process %u", process);
	return nic->peers[process];
}

void cei_far_peer_free(struct cei_far_peer *peer)
{
	if (!peer)
		return;
	cei_far_notes_forget(&peer->notes);
	cei_list_remove(&peer->urgent);
	cei_list_remove(&peer->connected);
	peer->nic->peers[peer->process] = NULL;
	free(peer);
}

void cei_far_peer_touch(struct cei_far_peer *peer)
{
	if (cei_list_is_empty(&peer->urgent))
		cei_list_append(&peer->nic->urgent, &peer->urgent);
}

/* --- opening --------------------------------------------------------------- */

static int open_address(struct cei_far_peer *peer)
{
	struct cei_far_nic *nic = peer->nic;
	uint8_t address[CEI_TRANSPORT_ADDRESS_MAX];
	uint32_t n_bytes = 0;
	int r;

	r = nic->config.events->find(nic->config.events_arg, peer->process, address, &n_bytes);
	if (r > 0)
		return cei_raise(nic->config.report, CEOV_ERR_NO_ROUTE, 0,
				 "net: process %u has no address", peer->process);
	return r ? r : nic->transport.ops->peer_open(&nic->transport, address, n_bytes, peer,
						     &peer->open);
}

static int open_connection(struct cei_far_peer *peer)
{
	const struct cei_rail_config *config = &peer->nic->config;
	int r = open_address(peer);

	if (r)
		return r;
	peer->state = CEI_FAR_OPENING;
	peer->hello_owed = 1;
	cei_far_out_begin(&peer->out, config->window, config->piece_max,
			  config->timeout_ns / 4);
	cei_far_pulse_begin(&peer->pulse, config->timeout_ns, peer->nic->now_ns);
	cei_list_append(&peer->nic->connected, &peer->connected);
	cei_far_peer_touch(peer);
	return 0;
}

int cei_far_peer_use(struct cei_far_peer *peer)
{
	if (peer->state == CEI_FAR_UNUSED)
		return open_connection(peer);
	if (peer->state == CEI_FAR_OPENING || peer->state == CEI_FAR_UP)
		return 0;
	return cei_raise(peer->nic->config.report, CEOV_ERR_PEER_LOST, 0,
			 "net: process %u cannot be reached: %s", peer->process,
			 peer->why[0] ? peer->why : "it has closed in order");
}

/* --- closing --------------------------------------------------------------- */

static void close_connection(struct cei_far_peer *peer)
{
	peer->closing_ns = peer->nic->now_ns;
	peer->out.is_lost = 1;
	cei_far_notes_forget(&peer->notes);
	cei_far_receive_forget(peer);
	peer->nic->transport.ops->peer_close(peer->open);
}

/* Nothing is accepted from here on; then abort words are raised; then the connection closes. That
 * it is lost is told when it has closed: cei_far_peer_closed(). */
void cei_far_peer_lose(struct cei_far_peer *peer, const char *why)
{
	const struct cei_rail_config *config = &peer->nic->config;

	if (peer->state != CEI_FAR_OPENING && peer->state != CEI_FAR_UP)
		return;
	peer->state = CEI_FAR_CLOSING;
	snprintf(peer->why, sizeof(peer->why), "%s", why);
	config->events->losing(config->events_arg, peer->process, peer->why, peer->is_refused);
	close_connection(peer);
}

void cei_far_peer_refuse(struct cei_far_peer *peer, int error, const char *why)
{
	if (peer->refuse_error || (peer->state != CEI_FAR_OPENING && peer->state != CEI_FAR_UP))
		return;
	peer->refuse_error = error;
	peer->refusing_ns = peer->nic->now_ns;
	snprintf(peer->why, sizeof(peer->why), "%s", why);
	cei_far_peer_touch(peer);
}

void cei_far_peer_give_up(struct cei_far_peer *peer, const char *why)
{
	const struct cei_rail_config *config = &peer->nic->config;

	if (peer->state != CEI_FAR_UNUSED) {
		cei_far_peer_refuse(peer, CEOV_ERR_PEER_LOST, why);
		return;
	}
	peer->state = CEI_FAR_IS_LOST;
	snprintf(peer->why, sizeof(peer->why), "%s", why);
	config->events->losing(config->events_arg, peer->process, peer->why, 0);
	config->events->lost(config->events_arg, peer->process, peer->why, 0);
}

/* Both sides have said that nothing follows. */
static void depart(struct cei_far_peer *peer)
{
	peer->state = CEI_FAR_LEAVING;
	peer->why[0] = 0;
	close_connection(peer);
}

void cei_far_peer_leave(struct cei_far_peer *peer, int at_once)
{
	if (at_once && (peer->state == CEI_FAR_OPENING || peer->state == CEI_FAR_UP)) {
		depart(peer);
		return;
	}
	peer->wants_bye = 1;            /* notes may wait for a connection that is opening */
	cei_far_peer_touch(peer);
}

static void tell_lost(struct cei_far_peer *peer)
{
	const struct cei_rail_config *config = &peer->nic->config;

	peer->state = CEI_FAR_IS_LOST;
	cei_far_send_break(peer);
	if (!peer->open && !peer->is_draining)
		cei_far_send_end(peer);
	config->events->lost(config->events_arg, peer->process, peer->why, peer->is_uncertain);
}

/* Tells that nothing of the connection touches memory any more. */
static void tell_closed(struct cei_far_peer *peer)
{
	const struct cei_rail_config *config = &peer->nic->config;

	if (peer->state == CEI_FAR_CLOSING) {
		tell_lost(peer);
	} else if (peer->state == CEI_FAR_LEAVING) {
		peer->state = CEI_FAR_DEPARTED;
		cei_far_send_break(peer);
		cei_far_send_end(peer);
		config->events->departed(config->events_arg, peer->process);
	} else {
		cei_far_send_end(peer); /* it was told as lost long ago */
	}
}

void cei_far_peer_closed(struct cei_far_peer *peer)
{
	peer->open = NULL;
	cei_far_send_forget(peer);
	peer->is_draining = cei_far_slots_is_copying(&peer->nic->slots, peer);
	if (peer->is_draining)
		return;
	cei_list_remove(&peer->connected);
	tell_closed(peer);
}

void cei_far_peer_copied(struct cei_far_peer *peer)
{
	if (!peer->is_draining || cei_far_slots_is_copying(&peer->nic->slots, peer))
		return;
	peer->is_draining = 0;
	cei_list_remove(&peer->connected);
	tell_closed(peer);
}

/* The connection has ended. That is in order if it was to end before it had come up, or if either
 * side said BYE and nothing is owed: the other BYE may have gone with its connection. */
void cei_far_peer_failed(struct cei_far_peer *peer, const char *why)
{
	if ((peer->state == CEI_FAR_OPENING && peer->wants_bye) ||
	    (peer->state == CEI_FAR_UP && (peer->bye_said || peer->bye_heard) &&
	     peer->out.acked + 1 == peer->out.next))
		depart(peer);
	else
		cei_far_peer_lose(peer, why);
}

/* --- what comes ------------------------------------------------------------ */

static int takes(const struct cei_far_peer *peer, const struct cei_far_message *message)
{
	if ((peer->state != CEI_FAR_OPENING && peer->state != CEI_FAR_UP) || peer->refuse_error)
		return 0;
	if (message->type == CEI_FAR_HELLO)
		return 1;
	if (message->type == CEI_FAR_REFUSE && peer->state == CEI_FAR_OPENING)
		return 1;               /* it may not have heard of ours */
	return message->has_heard && peer->has_heard;
}

int cei_far_peer_admits(struct cei_far_peer *peer, const struct cei_far_message *message)
{
	int is_taken = takes(peer, message);

	peer->nic->counts.n_old += !is_taken;
	return is_taken;
}

void cei_far_peer_alive(struct cei_far_peer *peer)
{
	peer->state = CEI_FAR_UP;
	cei_far_pulse_heard(&peer->pulse, peer->nic->now_ns);
}

/* Returns whether the HELLO comes from the process that was heard before, if one was. */
static int is_same_instance(struct cei_far_peer *peer, const struct cei_far_hello *hello)
{
	if (!peer->instance[0] && !peer->instance[1])
		memcpy(peer->instance, hello->instance, sizeof(peer->instance));
	return !memcmp(peer->instance, hello->instance, sizeof(peer->instance));
}

static void hear_hello(struct cei_far_peer *peer, const struct cei_far_message *message)
{
	if (!is_same_instance(peer, &message->hello)) {
		cei_far_peer_refuse(peer, CEOV_ERR_STATE,
				    "another process of the same number was there before");
		return;
	}
	peer->has_heard = 1;
	if (!message->has_heard || peer->state == CEI_FAR_OPENING)
		peer->hello_owed = 1;   /* until it has heard ours, and knows that we did */
	if (message->has_heard)
		cei_far_peer_alive(peer);
}

static void hear_refuse(struct cei_far_peer *peer, const struct cei_far_message *message)
{
	char why[CEI_RAIL_WHY_BYTES];

	snprintf(why, sizeof(why), "it refuses: %.150s", message->refuse.text);
	peer->is_refused = 1;
	cei_far_peer_lose(peer, why);
}

static void hear_beat(struct cei_far_peer *peer, const struct cei_far_beat *beat)
{
	if (beat->n_landed_bytes > peer->their_landed)
		peer->their_landed = beat->n_landed_bytes;
	peer->their_parked = beat->n_parked;
	if (beat->is_question)
		peer->answer_owed = 1;
}

void cei_far_peer_heard(struct cei_far_peer *peer, const struct cei_far_message *message)
{
	const struct cei_rail_config *config = &peer->nic->config;

	if (message->type == CEI_FAR_HELLO) {
		hear_hello(peer, message);
		return;
	}
	if (message->type == CEI_FAR_REFUSE) {
		hear_refuse(peer, message);
		return;
	}
	cei_far_peer_alive(peer);
	if (message->type == CEI_FAR_ACK) {
		if (cei_far_out_ack(&peer->out, message->ack, peer->nic->now_ns) < 0)
			cei_far_peer_refuse(peer, CEOV_ERR_INVALID,
					    "it acknowledged what was never sent");
	} else if (message->type == CEI_FAR_BEAT) {
		hear_beat(peer, &message->beat);
	} else if (message->type == CEI_FAR_BYE) {
		cei_far_notes_hear_bye(peer, message->bye);
	} else if (message->type == CEI_FAR_NOTE) {
		cei_far_notes_hear(peer, message);
	} else {
		config->events->heard(config->events_arg, peer->process, message);
	}
}

/* --- what is said ------------------------------------------------------------ */

void cei_far_peer_head(const struct cei_far_peer *peer, struct cei_far_message *message,
		       uint32_t type)
{
	message->type = type;
	message->version = CEI_FAR_VERSION;
	message->group = peer->nic->config.group;
	message->source = peer->nic->config.process;
	message->target = peer->process;
	message->one = 1;
	message->has_heard = peer->has_heard != 0;
}

int cei_far_peer_say(struct cei_far_peer *peer, struct cei_far_message *message)
{
	uint8_t bytes[CEI_TRANSPORT_MESSAGE_MAX];
	uint32_t n_bytes;

	cei_far_peer_head(peer, message, message->type);
	n_bytes = (uint32_t)cei_encode(&cei_far_protocol, message, bytes);
	return peer->nic->transport.ops->say(peer->open, bytes, n_bytes);
}

/* All of these: 0, or as cei_far_peer_say(). They say what is owed, and nothing if it is not. */

static int say_hello(struct cei_far_peer *peer)
{
	struct cei_transport *transport = &peer->nic->transport;
	struct cei_far_message message = { .type = CEI_FAR_HELLO };
	int r;

	if (!peer->hello_owed)
		return 0;
	memcpy(message.hello.instance, peer->nic->config.instance,
	       sizeof(message.hello.instance));
	snprintf(message.hello.library, sizeof(message.hello.library), "%s", CEOV_VERSION);
	snprintf(message.hello.transport, sizeof(message.hello.transport), "%s",
		 transport->ops->describe(transport));
	r = cei_far_peer_say(peer, &message);
	if (!r)
		peer->hello_owed = 0;
	return r;
}

static int say_refusal(struct cei_far_peer *peer)
{
	struct cei_far_message message = { .type = CEI_FAR_REFUSE };
	int r;

	if (!peer->refuse_error || peer->refuse_said)
		return 0;
	message.refuse.error = peer->refuse_error;
	snprintf(message.refuse.text, sizeof(message.refuse.text), "%s", peer->why);
	r = cei_far_peer_say(peer, &message);
	if (!r)
		peer->refuse_said = 1;
	return r;
}

static int say_ack(struct cei_far_peer *peer)
{
	struct cei_far_message message = { .type = CEI_FAR_ACK, .ack = peer->in.done };
	int r;

	if (peer->in.told == peer->in.done)
		return 0;
	r = cei_far_peer_say(peer, &message);
	if (!r)
		peer->in.told = message.ack;
	return r;
}

static int say_beat(struct cei_far_peer *peer)
{
	struct cei_far_message message = { .type = CEI_FAR_BEAT };
	uint64_t now_ns = peer->nic->now_ns;
	int r;

	message.beat.is_question = (uint32_t)cei_far_pulse_must_ask(&peer->pulse, now_ns);
	if (!message.beat.is_question && !peer->answer_owed)
		return 0;
	message.beat.n_landed_bytes = peer->in.n_landed_bytes;
	message.beat.n_parked = peer->n_parked + (uint32_t)cei_far_slots_is_copying(
		&peer->nic->slots, peer);
	r = cei_far_peer_say(peer, &message);
	if (r)
		return r;
	if (message.beat.is_question)
		cei_far_pulse_asked(&peer->pulse, now_ns);
	peer->answer_owed = 0;
	return 0;
}

/* BYE comes behind all that is owed to either side. */
static int say_bye(struct cei_far_peer *peer)
{
	struct cei_far_message message = { .type = CEI_FAR_BYE, .bye = peer->notes.n_said };
	int r;

	if (!peer->wants_bye || peer->bye_said || peer->out.ended + 1 != peer->out.next ||
	    peer->in.n_coming || peer->in.n_held)
		return 0;
	r = cei_far_peer_say(peer, &message);
	if (!r)
		peer->bye_said = 1;
	return r;
}

static int say_all(struct cei_far_peer *peer)
{
	int r = say_refusal(peer);

	if (r || peer->refuse_error)
		return r;
	r = say_hello(peer);
	if (r || peer->state != CEI_FAR_UP)
		return r;
	r = cei_far_notes_say(peer);    /* of an abort, say, before later marks */
	if (!r)
		r = say_ack(peer);
	if (!r)
		r = say_beat(peer);
	if (!r && !peer->wants_bye)
		r = cei_far_send(peer);
	if (!r)
		r = say_bye(peer);
	return r;
}

void cei_far_peer_pump(struct cei_far_peer *peer)
{
	int r;

	if (peer->state != CEI_FAR_OPENING && peer->state != CEI_FAR_UP)
		return;
	r = say_all(peer);
	if (r < 0) {
		cei_far_peer_lose(peer, "the transport sends nothing to it any more");
		return;
	}
	if (r == CEOV_FULL)
		cei_far_peer_touch(peer);
	if (peer->state == CEI_FAR_UP) {
		cei_far_send_settle(peer);
		if (peer->bye_said && peer->bye_heard)
			depart(peer);
	}
}

void cei_far_peer_look_at_closing(struct cei_far_peer *peer)
{
	if (peer->nic->now_ns - peer->closing_ns < CEI_RAIL_CLOSE_NS)
		return;
	peer->is_uncertain = 1;
	(void)cei_raise(peer->nic->config.report, CEOV_ERR_UNCERTAIN, 0,
			"net: the connection to process %u does not close; memory that it may "
			"still write to stays registered", peer->process);
	tell_lost(peer);
}
