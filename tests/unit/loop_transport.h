/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_LOOP_TRANSPORT_H
#define CEI_LOOP_TRANSPORT_H

/*
 * A test double of a network: transports within one process (net/transport.h), joined by a
 * loop_net, with faults that a test scripts for each direction between two of them. Bytes are
 * moved by memcpy.
 *
 * Time is the test's (loop_net_advance), so runs repeat exactly from a seed; or the system's
 * clock, for transports that threads drive. A transport has its number in the net from being
 * opened with config.device "loop:NET:NUMBER" (loop_device), and its address from the number. It
 * logs that it is a test double.
 */

#include <pthread.h>
#include <stdint.h>

#include "net/transport.h"

#define LOOP_NODES_MAX 16u

/* More than these of one connection under way are put off (CEOV_FULL). */
#define LOOP_MESSAGES_MAX 2048u
#define LOOP_SENDS_MAX    256u

/* The simulated network claims that n bytes take so long and n ns. */
#define LOOP_EXPECTED_NS UINT64_C(7000)

/* What happens to what one transport sends to another one: its messages, its offers, and the
 * bytes of these. */
struct loop_link {
	uint64_t delay_ns;              /* of everything */
	uint64_t jitter_ns;             /* less than this much more, at random: reorders */
	uint64_t bytes_ns;              /* that the bytes of an offer take in addition */
	uint64_t bytes_per_us;          /* capacity, for which offers wait in turn; 0: no limit */
	uint64_t busy_until_ns;         /* kept by the net: by what was given out of it */
	uint64_t stall_until_ns;        /* nothing arrives earlier */
	int      is_dropped;            /* nothing arrives, and nothing fails: the other side
					 * has stopped, or the cable is cut */
	uint64_t fail_at;               /* the connection fails instead of carrying this
					 * arrival, counted from 1; 0: it does not */
	uint32_t full_every;            /* each n-th say and send finds no room; 0: none */
	int      sends_early;           /* `sent` comes long before the bytes land; the net
					 * keeps a copy of them */
	int      is_mute_on_close;      /* the other side is not told of a closed connection */
	uint64_t n_arrivals;            /* counted by the net */
};

/* What happens to connections that one transport closes. */
struct loop_closing {
	uint64_t delay_ns;              /* until receives end and `closed` comes; meanwhile
					 * bytes still land */
	int      is_late;               /* breaks the contract: bytes land behind `closed` */
};

struct loop_event;
struct loop_node;

struct loop_net {
	pthread_mutex_t     lock;       /* guards the rest, but while the test's own thread is
					 * the only one */
	int                 is_real;    /* the time is the system's */
	uint64_t            now_ns;
	uint64_t            random;     /* state of random numbers */
	struct loop_link    links[LOOP_NODES_MAX][LOOP_NODES_MAX];      /* [from][to] */
	struct loop_closing closings[LOOP_NODES_MAX];
	struct loop_node   *nodes[LOOP_NODES_MAX];
	struct cei_transport_offer *offers;
	struct loop_event **events;     /* not sorted */
	uint32_t            n_events;
	uint32_t            room;
	uint64_t            n_numbered; /* events and connections have numbers */
	int                 takes_gpu_memory;   /* what the transports say of themselves */
};

void loop_net_init(struct loop_net *net, uint64_t seed, int is_real);

/* All transports are closed; frees what never arrived. */
void loop_net_fini(struct loop_net *net);

/* Virtual time: moves the clock on to the next event, but not beyond limit_ns. */
void loop_net_advance(struct loop_net *net, uint64_t limit_ns);

/* Sets is_dropped in both directions. */
void loop_net_cut(struct loop_net *net, uint32_t one, uint32_t other, int is_cut);

/* The address of transport `number`, as its function says it. */
#define LOOP_ADDRESS_BYTES 4u
void loop_address_of(uint32_t number, uint8_t *ret_address);

/* The device to open transport `number` with; valid until the next call. */
const char *loop_device(struct loop_net *net, uint32_t number);

extern const struct cei_transport_ops loop_transport;

#endif /* CEI_LOOP_TRANSPORT_H */
