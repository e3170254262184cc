/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_TRANSPORT_RIG_H
#define CEI_TRANSPORT_RIG_H

/*
 * Transports of this process for the conformance cases, with records of what they told. An
 * "end" is one open transport with registered memory; a "link" is its connection to another
 * one. Failed expectations end the test; so does anything that takes longer than
 * TESTING_PATIENCE.
 */

#include "net/transport.h"
#include "testing.h"

#define NET_LINKS  64u                  /* links of an end */
#define NET_TAGS   4096u                /* sends, and receives, of an end; tags are below it */
#define NET_OFFERS 512u                 /* offers that an end holds */
#define NET_HEARD  1024u                /* messages that an end holds */

struct net_end;

struct net_link {
	struct net_end            *end;
	struct cei_transport_peer *peer;        /* NULL: closed, or never open */
	uint32_t                   n_failed;
	uint32_t                   n_closed;
	uint64_t                   n_heard;     /* messages */
	char                       why[128];
};

/* The head of each offer in these tests. */
struct net_head {
	uint64_t seed;                  /* of the bytes */
	uint64_t number;                /* anything */
};

struct net_offer {
	struct cei_transport_offer *offer;      /* NULL: accepted or refused */
	struct net_link            *from;       /* NULL: the transport could not say */
	struct net_head             head;
	uint64_t                    n_bytes;
};

struct net_heard {
	struct net_link *from;
	uint32_t         n_bytes;
	uint8_t          bytes[CEI_TRANSPORT_MESSAGE_MAX];
};

struct net_end {
	struct cei_transport         transport;
	struct cei_report            report;
	struct testing_log           log;
	uint8_t                      address[CEI_TRANSPORT_ADDRESS_MAX];
	uint32_t                     n_address;
	struct cei_transport_memory *memory;
	uint8_t                     *bytes;
	uint64_t                     n_bytes;
	struct net_link              links[NET_LINKS];
	uint32_t                     n_links;

	uint32_t                     n_offers;
	struct net_offer             offers[NET_OFFERS];
	uint32_t                     n_heard;
	struct net_heard            *heard;             /* NET_HEARD, used cyclically */
	uint32_t                     n_sent, n_landed;  /* all, failed ones too */
	uint32_t                     n_sent_well, n_landed_well;
	uint8_t                      sent[NET_TAGS];    /* how often it ended, by tag */
	uint8_t                      landed[NET_TAGS];
	int                          landed_error[NET_TAGS];

	/* What a case wants done in the handlers; NULL: offers and messages are kept. */
	void                       (*on_offer)(struct net_end *end, struct net_offer *offer);
	void                       (*on_heard)(struct net_end *end, struct net_heard *heard);
};

/* Opens an end with so much memory. */
struct net_end *net_open(const struct cei_transport_ops *ops, const char *kinds,
			 uint64_t n_bytes);

/* Closes what is open, waits for it, and frees the end. */
void net_close(struct net_end *end);

/* Opens and closes a transport. Returns open's result; if it is not 0, prints why. */
int  net_try(const struct cei_transport_ops *ops, const char *kinds);

/* Opens a link to the transport of that address. */
struct net_link *net_link(struct net_end *end, const uint8_t *address, uint32_t n_address);

/* Opens links between two ends, and waits until a message has gone either way. */
void net_join(struct net_end *a, struct net_end *b, struct net_link **ret_a,
	      struct net_link **ret_b);

/* Closes the link and waits for the event, making progress on all open ends. */
void net_unlink(struct net_link *link);

/* Makes progress on all open ends, or yields. Fails the test after TESTING_PATIENCE since
 * net_patience(). Conditions are waited for by `while (!condition) net_turn();`. */
void net_turn(void);
void net_patience(void);

/* Sends a message, waiting for room. Its first bytes are as given, the rest a pattern. */
void net_say(struct net_link *link, const void *message, uint32_t n_bytes);

/* Fills bytes at the offset with the seed's pattern and offers them. Returns send's result. */
int  net_send(struct net_link *link, uint64_t offset, uint64_t n_bytes, uint64_t seed,
	      uint64_t tag);

/* Accepts the offer into memory at the offset; `link` NULL: the link that it came from. */
int  net_accept(struct net_end *end, struct net_offer *offer, struct net_link *link,
		uint64_t offset, uint64_t tag);
void net_refuse(struct net_end *end, struct net_offer *offer);

struct cei_transport_span net_span(struct net_end *end, uint64_t offset, uint64_t n_bytes);

/* Asserts that the bytes are the seed's pattern, or all of one value. */
void net_check(struct net_end *end, uint64_t offset, uint64_t n_bytes, uint64_t seed);
void net_check_all(struct net_end *end, uint64_t offset, uint64_t n_bytes, uint8_t value);

#endif /* CEI_TRANSPORT_RIG_H */
