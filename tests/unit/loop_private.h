/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_LOOP_PRIVATE_H
#define CEI_LOOP_PRIVATE_H

/*
 * Shared by the files of the test double of a network:
 *
 *   loop_net.c         time, events, links, and what ends a send
 *   loop_transport.c   the functions of a transport
 *
 * Everything that a transport will be told is an event with the time at which it is due. The
 * callers of all functions hold the net's lock.
 */

#include "unit/loop_transport.h"

enum loop_kind { MESSAGE, OFFER, BYTES, SENT, LANDED, FAILED, CLOSED };

struct cei_transport_memory {
	uint8_t *base;
	uint64_t n_bytes;
};

struct loop_peer {
	struct cei_transport_peer public;       /* first: the owner's view */
	uint64_t                  number;       /* of the connection, never used again */
	uint32_t                  node;         /* where it belongs */
	uint32_t                  remote;
	int                       has_failed;
	int                       is_closed;
	struct loop_peer         *partner;      /* the other end; NULL: it is not open, or not
						 * any more */
	int                       was_joined;
	struct loop_peer         *next;
};

/* Bytes on their way; freed when both sides' parts have ended. */
struct cei_transport_offer {
	struct loop_peer *sender;       /* NULL: its part has ended */
	struct loop_peer *receiver;     /* whose closing ends the receive; NULL: not accepted */
	uint32_t          from;
	uint32_t          to;
	const uint8_t    *source;       /* the sender's memory, or copied */
	uint8_t          *copied;
	uint8_t          *target;
	uint64_t          n_bytes;
	uint64_t          sent_tag;
	uint64_t          landed_tag;
	int               has_ended;    /* for the receiver */
	struct loop_net  *net;
	struct cei_transport_offer *next;
};

struct loop_event {
	enum loop_kind                   kind;
	uint32_t                    to;         /* node that is told */
	uint64_t                    due_ns;
	uint64_t                    number;
	struct loop_peer           *peer;       /* of FAILED and CLOSED */
	uint64_t                    from_connection;
	uint32_t                    from;
	struct cei_transport_offer *offer;
	uint8_t                    *bytes;      /* a message, a head, or what lands late */
	uint64_t                    n_bytes;
	uint8_t                    *target;     /* of bytes that land behind `closed` */
	uint64_t                    tag;
	int                         error;
};

struct loop_node {
	struct cei_transport       *transport;
	struct loop_net            *net;
	uint32_t                    number;
	int                         fd;
	int                         is_armed;
	struct loop_peer           *peers;
	uint32_t                    n_memories;
	uint32_t                    n_calls;    /* of say and send */
};

/* Zeroed memory; asserts that there is some. */
void *loop_make(size_t n_bytes);
uint8_t *loop_copy_of(const void *bytes, uint64_t n_bytes);

uint64_t loop_now_of(struct loop_net *net);

/* Adds an event; it is copied, and owns its bytes. */
void loop_post(struct loop_net *net, const struct loop_event *made);

/* Messages and sends of the connection that are under way. */
uint32_t loop_n_messages(const struct loop_net *net, const struct loop_peer *peer);
uint32_t loop_n_sends(const struct loop_net *net, const struct loop_peer *peer);

/* Removes an event. An offer that is forgotten never arrives. */
void loop_forget(struct loop_net *net, uint32_t index);

/* Returns when something that is sent now arrives. */
uint64_t loop_due_on(struct loop_net *net, const struct loop_link *link);

/* Returns the connection of the node to the remote one that is in use; NULL: there is none. */
struct loop_peer *loop_peer_to(struct loop_node *node, uint32_t remote);

/* Joins a new connection with one of the other side that waits for it. */
void loop_join(struct loop_net *net, struct loop_peer *peer);

/* Tells the owner that a connection has failed. Accepts NULL. */
void loop_break(struct loop_net *net, struct loop_peer *peer);

/* Counts an arrival. Returns whether it arrives: not if the cable is cut, or if the script lets
 * the connection fail. */
int loop_arrives(struct loop_net *net, uint32_t from, uint32_t to);

/* The index of the first event for the node (NULL: any) that is due; n_events: there is none. */
uint32_t loop_first_due(struct loop_net *net, const struct loop_node *node, uint64_t now_ns);

/* Frees the offer if both sides' parts have ended. */
void loop_drop_if_over(struct cei_transport_offer *offer);

/* The sender's part ends. The bytes stay readable for the receiver only if they were copied. */
void loop_end_send(struct loop_net *net, struct cei_transport_offer *offer, int error);

#endif /* CEI_LOOP_PRIVATE_H */
