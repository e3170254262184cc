/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_FLOWS_H
#define CEI_FLOWS_H

/*
 * What several clients of one process's engines may use, and what each of them has received at each
 * port of the machine. All engines of the process share one table, as they share ports (ports.h).
 * Time is a parameter, so that simulations run the same code.
 *
 * A client has a slot. Slot 0 is the process's own, and exists always. A flow is a client's jobs of
 * one class: background, or all others. An urgent job goes before all others while its ports have
 * urgent time left, and in its client's turn otherwise; either way its flow receives service.
 *
 * Service is the time that jobs take, divided by the flow's weight. Flows that wait for one port
 * should receive equal service there. Each port has a clock, the least service of the flows that
 * wait for it. A flow that begins to wait starts at the clock: it saved up nothing while it asked
 * for nothing, or could not go because of its client's limit. Its lead is its service beyond the
 * least of those that wait.
 *
 * A flow may be behind without an end although it waits, because other ports hold it up. What it
 * can catch up with later is bounded by CEI_FLOWS_CREDIT_NS, and so is what jobs in urgent time add
 * to a flow's lead.
 *
 * Any thread may call everything except create, destroy, open, change and close; a caller
 * serialises these. All atomics are relaxed and have no partner, since nothing is published with
 * them: each is a number that is compared with another one, and a stale one costs a client its
 * place in one decision. While engines run they are added to, or raised by compare-and-exchange, so
 * no update is lost.
 */

#include <stdatomic.h>
#include <stdint.h>

#include "base/report.h"
#include "topology/link.h"

#define CEI_FLOWS_CLIENTS 64u
#define CEI_FLOWS_SLOTS   (CEI_FLOWS_CLIENTS + 1u)

/* Weights of clients are 1 to this. */
#define CEI_FLOWS_WEIGHT_MAX 1024u

/* By these a client's weight is multiplied, where nobody has set others. */
#define CEI_FLOWS_NORMAL     16u
#define CEI_FLOWS_BACKGROUND 1u

/* Who commits the plans of several clients should cut their transfers into chunks of at most this
 * size: an urgent chunk waits until the chunk that its lane has begun is done. */
#define CEI_FLOWS_CHUNK_BYTES (UINT64_C(16) << 20)

/* Urgent time: urgent jobs go first for URGENT_PERCENT of a port's time, those of all clients
 * together. Unused time adds up for URGENT_NS. With a part for each client, two clients that call
 * all they do urgent leave a third one a fifth (tests/sim/): copies in urgent time reserve no
 * ports, so others meet them. Both hold where nobody has set others. */
#define CEI_FLOWS_URGENT_PERCENT 25u
#define CEI_FLOWS_URGENT_NS      UINT64_C(1000000)
#define CEI_FLOWS_URGENT_MOST_NS UINT64_C(1000000000)

/* A client below its limit in bytes per second may make up for so much time. */
#define CEI_FLOWS_LIMIT_NS UINT64_C(1000000)

/* So many bytes a job counts at least against a limit: a limit of 20 MB/s allows 4882 copies in a
 * second, which keep a lane busy for about a hundredth of it. */
#define CEI_FLOWS_COPY_BYTES UINT64_C(4096)

/* See above: as much as 14 chunks of CEI_FLOWS_CHUNK_BYTES take at 25 GB/s. It has to be more than
 * few of them, since flows of equal rights lag by a chunk or two. */
#define CEI_FLOWS_CREDIT_NS UINT64_C(10000000)

/* Service is in ns times this, and at least 1, so the shortest job of a flow of the largest weight
 * counts, too. A flow of the least weight reaches 2^64 after two years of copies. */
#define CEI_FLOWS_SCALE 256u

enum cei_flow_class { CEI_FLOW_NORMAL, CEI_FLOW_BACKGROUND, CEI_FLOW_CLASSES };

/* The flow of a client's class is slot * CEI_FLOW_CLASSES + class. */
#define CEI_FLOWS (CEI_FLOWS_SLOTS * CEI_FLOW_CLASSES)

#define CEI_FLOWS_URGENCIES 3u          /* see enum ceov_urgency */

struct cei_flows_limits {               /* of a client */
	uint32_t weight;                /* 1 to CEI_FLOWS_WEIGHT_MAX */
	uint64_t bytes_per_s;           /* of all its copies; a chunk over a staged path is two
					 * copies, and short copies and rows count for more:
					 * see cei_flows_charge(). 0: no limit */
};

struct cei_flows_classes {              /* how classes share, for all clients */
	uint32_t normal;                /* a client's weight is multiplied by these: 1 to
					 * CEI_FLOWS_WEIGHT_MAX */
	uint32_t background;
	uint32_t urgent_percent;        /* of a port's time, 0 to 100; 0: urgent jobs go in turn */
	uint64_t urgent_ns;             /* for so long unused urgent time adds up, at most
					 * CEI_FLOWS_URGENT_MOST_NS */
};

/* What CEI_FLOWS_NORMAL and the others above say. */
struct cei_flows_classes cei_flows_classes_default(void);

struct cei_flows_tally {                /* what went through a port for a client */
	uint64_t bytes;
	uint64_t n_chunks;
};

struct cei_flows_client {
	_Alignas(64) _Atomic uint32_t weight;
	int              is_open;       /* for open, change and close alone */
	_Atomic uint64_t bytes_per_s;   /* 0: no limit */
	_Atomic uint64_t limited_until_ns;      /* its limit lets nothing go before */
	_Atomic uint64_t bytes[CEI_FLOWS_URGENCIES];    /* what has gone, over ports or not */
	_Atomic uint64_t n_chunks[CEI_FLOWS_URGENCIES];
};

struct cei_flows_port {
	_Alignas(64) _Atomic uint64_t clock;    /* only rises */
	_Atomic uint64_t floor;         /* service of the flow that received most, less its credit:
					 * who is behind catches up to this, less its own */
	_Atomic uint64_t urgent_until_ns;       /* until when urgent time is used up */
	_Atomic uint32_t n_waiting_all;         /* jobs of all flows that wait, ... */
	_Atomic uint32_t n_waiting[CEI_FLOWS];  /* ... and of each */
	_Atomic uint64_t service[CEI_FLOWS];
	_Atomic uint64_t bytes[CEI_FLOWS_SLOTS][CEI_FLOWS_URGENCIES];   /* what has gone */
	_Atomic uint64_t n_chunks[CEI_FLOWS_SLOTS][CEI_FLOWS_URGENCIES];
};

struct cei_flows {
	uint32_t         n_ports;
	_Atomic uint32_t n_slots;       /* every open slot is below this; only rises */
	_Atomic uint32_t n_open;        /* slots, without slot 0 */
	_Atomic uint32_t weight[CEI_FLOW_CLASSES];      /* see struct cei_flows_classes */
	_Atomic uint32_t urgent_percent;
	_Atomic uint64_t urgent_ns;
	struct cei_flows_client clients[CEI_FLOWS_SLOTS];
	struct cei_flows_port   ports[];
};

/* CEOV_ERR_NO_MEMORY, raised. n_ports: the machine's. Slot 0 has weight 1 and no limit. */
int  cei_flows_create(struct cei_report *report, uint32_t n_ports, struct cei_flows **ret_flows);

/* NULL is allowed. */
void cei_flows_destroy(struct cei_flows *flows);

/* Sets how classes share, for decisions from now on. CEOV_ERR_INVALID, not raised: a number is out
 * of range. Any thread. */
int  cei_flows_tune(struct cei_flows *flows, const struct cei_flows_classes *classes);

/* --- slots ------------------------------------------------------------------ */

/* Opens a slot for a client. CEOV_FULL: all are open. CEOV_ERR_INVALID, not raised: the weight is
 * out of range. */
int  cei_flows_open(struct cei_flows *flows, const struct cei_flows_limits *limits,
		    uint32_t *ret_slot);

/* Changes what an open slot may use, for decisions from now on. CEOV_ERR_INVALID, not raised: the
 * weight is out of range, or the slot is not open. */
int  cei_flows_change(struct cei_flows *flows, uint32_t slot,
		      const struct cei_flows_limits *limits);

/* Closes a slot other than 0, which may be opened again at once. The client's jobs have left all
 * queues; those of a caller that does not keep to this go on in turn, on account of the slot's next
 * client. CEOV_ERR_INVALID, not raised: the slot is not open. */
int  cei_flows_close(struct cei_flows *flows, uint32_t slot);

/* --- for queues ------------------------------------------------------------- */

/* Whether there are several clients, so that jobs go in turn. */
int  cei_flows_are_shared(const struct cei_flows *flows);

/* A job of the flow begins, or ends, to wait for the ports of the link. */
void cei_flows_wait(struct cei_flows *flows, const struct cei_machine_link *link, uint32_t flow);
void cei_flows_unwait(struct cei_flows *flows, const struct cei_machine_link *link,
		      uint32_t flow);

/* How much more service the flow has received at the link's bottleneck, the port for which most
 * jobs wait, than the flow which received least of those that wait there and whose limits let them
 * go. */
uint64_t cei_flows_lead(const struct cei_flows *flows, const struct cei_machine_link *link,
			uint32_t flow, uint64_t now_ns);

/* The service that so much time is for the flow. */
uint64_t cei_flows_service(const struct cei_flows *flows, uint32_t flow, uint64_t ns);

struct cei_flows_use {                  /* a job that goes */
	const struct cei_machine_link *link;
	uint32_t flow;
	int      is_urgent;             /* in urgent time */
	uint64_t takes_ns;
	uint64_t now_ns;
};

/* The flow receives service at the link's ports. While the job is counted as waiting there. */
void cei_flows_serve(struct cei_flows *flows, const struct cei_flows_use *use);

/* Uses urgent time of all of the link's ports. 0: one of them has none left. A job that crosses no
 * port, or of which that is not known (link NULL), uses urgent time of its lane: *lane_until_ns
 * says until when that is used up. */
int  cei_flows_use_urgent(struct cei_flows *flows, const struct cei_machine_link *link,
			  uint64_t *lane_until_ns, uint64_t takes_ns, uint64_t now_ns);

/* Whether the client's limit lets its next job go. */
int  cei_flows_may_go(const struct cei_flows *flows, uint32_t slot, uint64_t now_ns);

/* Counts a job that is about to be moved against its client's limit of bytes per second: n_bytes,
 * but CEI_FLOWS_COPY_BYTES at least. n_bytes: of a single row that takes as long to copy as the
 * job, whose rows may be many. */
void cei_flows_charge(struct cei_flows *flows, uint32_t slot, uint64_t n_bytes, uint64_t now_ns);

/* A job of the client has gone, over the link or, if that is NULL, over unknown ports. */
void cei_flows_count(struct cei_flows *flows, const struct cei_machine_link *link, uint32_t slot,
		     uint32_t urgency, uint64_t n_bytes);

/* --- for displays ----------------------------------------------------------- */

#define CEI_FLOWS_ALL_PORTS UINT32_MAX

/* Reads what has gone through a port for a client with that urgency since its slot was opened; with
 * CEI_FLOWS_ALL_PORTS all of it, each copy counted once. A copy counts when it has left its lane,
 * even if its launch fails. Zeroes where there is no such port, slot or urgency. */
struct cei_flows_tally cei_flows_read(const struct cei_flows *flows, uint32_t port, uint32_t slot,
				      uint32_t urgency);

#endif /* CEI_FLOWS_H */
