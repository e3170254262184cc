/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_TRANSPORT_H
#define CEI_TRANSPORT_H

/*
 * A transport moves messages and bytes between this process and processes of other nodes,
 * through one network interface. It knows no rank, buffer, signal or plan: those are the
 * business of the rail that owns it (net/rail.h).
 *
 * Bytes go by rendezvous. The sender offers them under a short head; the receiver is told of
 * the offer, and names the memory that they go to. So no process writes into memory of another
 * one that the other did not name for these very bytes, and the receiver knows when memory is
 * quiet: its own receive has ended.
 *
 * Nothing is ordered: neither messages, nor offers, nor their bytes. Who needs an order
 * numbers what it sends.
 *
 * One thread makes all calls on a transport that is open. Events come in these calls, and
 * handlers of events may call the transport, but not close it, and not progress it.
 */

#include <stdint.h>

#include "base/report.h"

#define CEI_TRANSPORT_MESSAGE_MAX 2048u         /* bytes of a message */
#define CEI_TRANSPORT_HEAD_MAX    128u          /* bytes of an offer's head */
#define CEI_TRANSPORT_ADDRESS_MAX 1024u         /* bytes of a transport's address */

struct cei_transport;
struct cei_transport_offer;             /* an offer that was neither accepted nor refused */
struct cei_transport_memory;            /* memory that a transport has registered */

/* The connection to one other transport. Whoever opened it may read these fields; a transport
 * embeds them at the start of a larger struct, whose other fields are its own. */
struct cei_transport_peer {
	struct cei_transport *transport;
	void                 *owner;    /* of cei_transport_ops.peer_open */
};

/* Part of registered memory. */
struct cei_transport_span {
	struct cei_transport_memory *memory;
	uint64_t                     address;   /* within it */
	uint64_t                     n_bytes;
};

struct cei_transport_send {
	const void               *head;         /* copied */
	uint32_t                  n_head;       /* 1 to CEI_TRANSPORT_HEAD_MAX */
	struct cei_transport_span span;         /* not empty; stays as it is until `sent` */
	uint64_t                  tag;          /* the caller's name for it, for `sent` */
};

/* Bytes that a peer offers. */
struct cei_transport_arrival {
	const void                 *head;       /* as the sender gave it; valid during the call */
	uint32_t                    n_head;
	uint64_t                    n_bytes;
	struct cei_transport_offer *offer;
};

/* What a transport tells its owner. `from` is NULL where a transport cannot tell from which peer
 * something comes, or has no such peer: then the bytes must say so themselves. Bytes from
 * peers are not to be trusted. */
struct cei_transport_events {
	/* A message has arrived; it is valid during the call. */
	void (*heard)(void *arg, struct cei_transport_peer *from, const void *message,
		      uint32_t n_bytes);

	/* Bytes are offered. The offer is the owner's until accept or refuse, in this call or
	 * later. It is void when a peer that it comes from has closed; it still has to be refused
	 * then. */
	void (*offered)(void *arg, struct cei_transport_peer *from,
			const struct cei_transport_arrival *arrival);

	/* A send has ended: its memory may be written to. error 0: the peer accepted the bytes and
	 * has read them, or they lie in the network; only the peer can say that they landed. */
	void (*sent)(void *arg, uint64_t tag, int error);

	/* A receive has ended, after which nothing is written to its memory. error not 0: the
	 * bytes there are undefined. */
	void (*landed)(void *arg, uint64_t tag, int error);

	/* The connection has broken, told once; every send and receive with this peer still ends,
	 * after peer_close at the latest. why: one line, valid during the call. That the other side
	 * has closed, stopped or become unreachable need not be noticed: owners tell each
	 * other, and watch the time. */
	void (*failed)(void *arg, struct cei_transport_peer *peer, const char *why);

	/* The last event of a peer after peer_close: all its sends and receives have ended, and
	 * the peer is freed when this returns. */
	void (*closed)(void *arg, struct cei_transport_peer *peer);
};

struct cei_transport_config {
	struct cei_report                 *report;
	const char                        *device;      /* the network interface, as the system
							 * names it; NULL: any */
	const char                        *kinds;       /* what it may use, as UCX_TLS has it:
							 * "tcp", "posix,cma"; NULL: all */
	uint32_t                           n_peers;     /* how many are expected at most */
	const struct cei_transport_events *events;
	void                              *events_arg;
};

/* Network interfaces, as struct cei_transport_config names them. */
#define CEI_TRANSPORT_DEVICES_MAX  64u
#define CEI_TRANSPORT_DEVICE_BYTES 64u

struct cei_transport_devices {
	uint32_t n;
	char     names[CEI_TRANSPORT_DEVICES_MAX][CEI_TRANSPORT_DEVICE_BYTES];
};

struct cei_transport {
	const struct cei_transport_ops *ops;
	struct cei_transport_config     config;
	void                           *private;        /* of the implementation */
};

struct cei_transport_ops {
	const char *name;               /* for messages and `ceoverlap-info` */

	/* Lists the network interfaces that transports of these kinds (as in the config) can be
	 * opened with at present: they are up, and have an address where they need one. Each is
	 * there once. CEOV_NONE, not raised: this machine has not got what the transport needs, or
	 * it does not tell. NULL: it never tells. */
	int  (*devices)(struct cei_report *report, const char *kinds,
			struct cei_transport_devices *ret_devices);

	/* transport->ops and config are set; any thread, before the first of the other calls.
	 * CEOV_NONE, not raised: this machine has not got it, *ret_why says in words what is
	 * missing. Other errors are raised. After a failure nothing is left to close. */
	int  (*open)(struct cei_transport *transport, const char **ret_why);

	/* All peers have closed, all memory is closed, and no offer is open. */
	void (*close)(struct cei_transport *transport);

	/* One line: library, version, what it uses. Valid until close. */
	const char *(*describe)(struct cei_transport *transport);

	/* Writes the address by which others open it as a peer, at most CEI_TRANSPORT_ADDRESS_MAX
	 * bytes. */
	int  (*address)(struct cei_transport *transport, uint8_t *ret_address,
			uint32_t *ret_n_bytes);

	/* Registers host memory of this process, which stays until it is closed. */
	int  (*memory_open)(struct cei_transport *transport, void *base, uint64_t n_bytes,
			    struct cei_transport_memory **ret_memory);
	void (*memory_close)(struct cei_transport *transport,
			     struct cei_transport_memory *memory);

	/* Whether tests over all networks that this transport may use have shown that nothing is
	 * written to the memory of a receive after its connection was told as closed. NULL: they
	 * have. *ret_why says in words, valid until close, over what that was never tried. */
	int  (*is_tried_in_place)(struct cei_transport *transport, const char **ret_why);

	/* Whether the transport reads and writes the memory of GPUs itself. NULL: never. *ret_why
	 * says in words what is missing. */
	int  (*takes_gpu_memory)(struct cei_transport *transport, const char **ret_why);

	/* As memory_open, for memory of a GPU, whose CUDA context is the thread's, then and in all
	 * later calls. Bytes that have landed there are visible to copies and kernels that begin
	 * afterwards. NULL where takes_gpu_memory is. */
	int  (*gpu_memory_open)(struct cei_transport *transport, void *base, uint64_t n_bytes,
				struct cei_transport_memory **ret_memory);

	/* Connects to the transport of that address, without blocking: a peer that cannot be
	 * reached fails later. Both sides open each other, once. */
	int  (*peer_open)(struct cei_transport *transport, const void *address,
			  uint32_t n_bytes, void *owner, struct cei_transport_peer **ret_peer);

	/* Gives the connection up at once, with all that is under way on it; call it once.
	 * Then `closed` follows, in a later progress. */
	void (*peer_close)(struct cei_transport_peer *peer);

	/* Tells how long the transport expects a send of so many bytes to take when nothing else is
	 * under way. CEOV_NONE: it does not know. NULL: it never does. */
	int  (*expected)(struct cei_transport_peer *peer, uint64_t n_bytes, uint64_t *ret_ns);

	/* Sends a message of 1 to CEI_TRANSPORT_MESSAGE_MAX bytes, which are copied. CEOV_FULL:
	 * too many are under way; try again after progress. CEOV_ERR_PEER_LOST, not raised: the
	 * connection has failed. */
	int  (*say)(struct cei_transport_peer *peer, const void *message, uint32_t n_bytes);

	/* Offers bytes. On 0 `sent` follows, never in this call. Errors as say's. */
	int  (*send)(struct cei_transport_peer *peer, const struct cei_transport_send *send);

	/* Receives the offer's bytes into the span, which has exactly the offer's size. On 0
	 * `landed` follows with the tag, never in this call. peer: whose closing ends the receive;
	 * the peer that the offer came from. On failure the offer is refused. */
	int  (*accept)(struct cei_transport_peer *peer, struct cei_transport_offer *offer,
		       const struct cei_transport_span *span, uint64_t tag);

	/* Declines the bytes: the sender's `sent` tells an error or 0, as the network has it. */
	void (*refuse)(struct cei_transport *transport, struct cei_transport_offer *offer);

	/* Makes progress without blocking. Returns whether there was any. */
	int  (*progress)(struct cei_transport *transport);

	/* Prepares to sleep: on 0 the thread may wait for fd to become readable. CEOV_PENDING:
	 * progress first. Errors are raised. */
	int  (*arm)(struct cei_transport *transport);
	int  (*fd)(struct cei_transport *transport);
};

#endif /* CEI_TRANSPORT_H */
