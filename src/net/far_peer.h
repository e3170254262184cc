/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_FAR_PEER_H
#define CEI_FAR_PEER_H

/*
 * The connection of a rail to one other process. Everything here is the rail's thread's.
 *
 *   UNUSED --first use, or its HELLO--> OPENING --its HELLO that has heard ours--> UP
 *     OPENING, UP --lost--> CLOSING --all receives have ended--> LOST
 *     UP --both have said BYE--> LEAVING --> DEPARTED
 *
 * There is one connection between two processes, and none after it.
 */

#include "base/list.h"
#include "net/far_lane.h"
#include "net/far_memory.h"
#include "net/far_notes.h"
#include "net/far_slots.h"
#include "net/far_stream.h"
#include "net/rail_config.h"

struct cei_far_parked {                 /* an offer that waits for a slot */
	struct cei_list             link;
	struct cei_far_peer        *peer;
	struct cei_far_piece        piece;
	struct cei_far_region      *region;     /* counts it as busy */
	struct cei_transport_offer *offer;
};

enum cei_far_connection {
	CEI_FAR_UNUSED,
	CEI_FAR_OPENING,
	CEI_FAR_UP,
	CEI_FAR_CLOSING,
	CEI_FAR_IS_LOST,
	CEI_FAR_LEAVING,
	CEI_FAR_DEPARTED,
};

struct cei_far_peer;

/* What the connections of a rail share. */
struct cei_far_nic {
	struct cei_rail_config  config;
	struct cei_transport    transport;
	struct cei_far_table    table;
	struct cei_far_slots    slots;
	struct cei_list         parked;         /* struct cei_far_parked: offers that wait for a
						 * slot, the oldest first */
	uint64_t                now_ns;         /* of the turn */
	struct cei_far_peer   **peers;          /* by process; NULL: never used */
	struct cei_list         urgent;         /* peers that have something to say */
	struct cei_list         connected;      /* peers that the transport has open */
	struct cei_rail_counts  counts;
};

struct cei_far_peer {
	struct cei_far_nic        *nic;
	uint32_t                   process;
	enum cei_far_connection    state;
	struct cei_transport_peer *open;        /* NULL: closed */
	struct cei_list            urgent;      /* links in the lists of the nic */
	struct cei_list            connected;

	int                        has_heard;   /* its HELLO */
	uint64_t                   instance[2]; /* of theirs, once heard */
	int                        hello_owed;
	int                        answer_owed; /* a BEAT asked for an answer */
	int                        wants_bye;
	int                        bye_said;
	int                        bye_heard;
	int                        refuse_error;/* not 0: a REFUSE is owed, or said */
	int                        refuse_said;
	uint64_t                   refusing_ns; /* since when */
	int                        is_refused;  /* the other side has given this one up */
	char                       why[CEI_RAIL_WHY_BYTES];     /* it was lost; stays */
	uint64_t                   closing_ns;
	int                        is_uncertain;
	int                        is_draining; /* the transport has closed it, and copies
						 * between slots and memory are under way */
	uint32_t                   n_parked;    /* offers of it that wait for a slot */

	struct cei_far_out         out;
	struct cei_far_in          in;
	struct cei_far_pulse       pulse;
	enum cei_far_health        health;
	uint64_t                   their_landed;        /* bytes, by their last BEAT */
	uint32_t                   their_parked;        /* pieces that wait there for a slot or a
							 * copy, likewise */

	struct cei_list            busy;        /* lanes that have work under way or to do */
	struct cei_list            idle;        /* the other lanes */
	struct cei_far_notes       notes;
	struct cei_far_memory     *reading[CEI_FAR_SPAN];       /* sources of pieces */
	struct cei_far_region     *writing[CEI_FAR_SPAN];       /* targets of pieces */
};

/* A copy between a slot and memory has ended. If it was the last one that kept the connection from
 * being told as closed, it is told. */
void cei_far_peer_copied(struct cei_far_peer *peer);

/* Returns the peer, which is made if it was never used. NULL: no memory, or no such process;
 * raised. */
struct cei_far_peer *cei_far_peer_get(struct cei_far_nic *nic, uint32_t process);

/* It is not connected. Its lanes are closed. */
void cei_far_peer_free(struct cei_far_peer *peer);

/* Connects if the peer was never used. CEOV_ERR_PEER_LOST, raised: its process is lost or has
 * departed; or as the transport's peer_open(). */
int  cei_far_peer_use(struct cei_far_peer *peer);

/* Gives the connection up, if it has not been: see the states above. */
void cei_far_peer_lose(struct cei_far_peer *peer, const char *why);

/* Tells the other side why, and then gives the connection up. */
void cei_far_peer_refuse(struct cei_far_peer *peer, int error, const char *why);

/* Gives the connection up as above, with a refusal; one that was never used is told as lost at
 * once. */
void cei_far_peer_give_up(struct cei_far_peer *peer, const char *why);

/* The connection is to be closed in order: behind what is under way, or at once. */
void cei_far_peer_leave(struct cei_far_peer *peer, int at_once);

/* The peer has something to say in this turn. */
void cei_far_peer_touch(struct cei_far_peer *peer);

/* Says what is owed, as far as the transport has room; then sends. */
void cei_far_peer_pump(struct cei_far_peer *peer);

/* The connection is CLOSING: gives its end up when it takes too long. */
void cei_far_peer_look_at_closing(struct cei_far_peer *peer);

/* Whether the connection takes a message of its peer now; counted where not. */
int  cei_far_peer_admits(struct cei_far_peer *peer, const struct cei_far_message *message);

/* Something that was admitted has come; the first such thing tells that the connection is UP. */
void cei_far_peer_alive(struct cei_far_peer *peer);

/* The events of the transport. */
void cei_far_peer_heard(struct cei_far_peer *peer, const struct cei_far_message *message);
void cei_far_peer_failed(struct cei_far_peer *peer, const char *why);
void cei_far_peer_closed(struct cei_far_peer *peer);

/* Says a message of this connection; its head is filled here. As the transport's say(); where the
 * connection has failed, it is given up here. */
int  cei_far_peer_say(struct cei_far_peer *peer, struct cei_far_message *message);

/* Fills a message's head. */
void cei_far_peer_head(const struct cei_far_peer *peer, struct cei_far_message *message,
		       uint32_t type);

#endif /* CEI_FAR_PEER_H */
