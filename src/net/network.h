/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_NETWORK_H
#define CEI_NETWORK_H

/*
 * What a context has of the other nodes: who is where (net/book.h), the rail to them
 * (net/rail.h), and the carrier of the group's messages over it (net/carrier_rails.h).
 *
 *   region   memory of this process that other nodes may write to, or counters that they may
 *            raise; known to them by the number of its export
 *
 * All calls from any thread unless they say otherwise.
 */

#include <stddef.h>
#include <stdint.h>

#include "base/site.h"
#include "topology/nics.h"

struct cei_network;
struct cei_carrier;                     /* ipc/peers/carrier.h */
struct cei_far_copier_ops;              /* net/far_copier.h */
struct cei_peers;                       /* ipc/peers/peers.h */
struct cei_rail;                        /* net/rail.h */
struct cei_roster;                      /* ipc/group/roster.h */
struct cei_transport_ops;               /* net/transport.h */

struct cei_network_config {
	const struct ceov_network       *public;        /* NULL: all as the environment shows */
	const struct cei_transport_ops  *transport;     /* NULL: UCX */
	const struct cei_machine        *machine;       /* whose NICs and GPUs decide on which
							 * network interface the rail is opened, if
							 * nobody names one; GPU i is the driver's
							 * GPU i. NULL: not known */
	uint64_t                         deadline_ns;   /* point in time, cei_now_ns() */
	const struct cei_far_copier_ops *copier;        /* of memory that the network does not
							 * access; NULL: there is none. Stays
							 * until the network is closed */
	void                            *copier_arg;
};

/* Whether the config or the environment (CEOVERLAP_BOOTSTRAP) asks for a group of several nodes.
 * public may be NULL. */
int  cei_network_is_wanted(const struct ceov_network *public);

/* Meets the processes of all nodes, and fills site->nodes. If site->n_ranks is 0, each process has
 * one rank, of its number: then that and the rank of the only member are filled, too. CEOV_NONE,
 * not raised: neither the config nor the environment asks for several nodes. */
int  cei_network_open(struct cei_site *site, const struct cei_network_config *config,
		      struct cei_network **ret_network);

/* Who is who in the group; valid until the close. */
const struct cei_roster *cei_network_roster(const struct cei_network *network);

/* By which means the processes have found each other: enum ceov_bootstrap, one of the first few but
 * not CEOV_BOOTSTRAP_SHOWN. */
uint32_t cei_network_means(const struct cei_network *network);

/* Silence of a process of another node that is awaited, after which it is lost. */
uint64_t cei_network_timeout_ns(const struct cei_network *network);

/* What carries messages to processes of other nodes; valid until the close. NULL: there is no
 * rail, because this machine has no transport, and no other node. */
const struct cei_carrier *cei_network_carrier(const struct cei_network *network);

/* Begins the rail: from now on the peers, which were opened with the carrier, are told what comes.
 * CEOV_ERR_SYSTEM, raised: then only leave and close remain. */
int  cei_network_begin(struct cei_network *network, struct cei_peers *peers);

/* Closes the rail in order, and ends its thread: the peers are told nothing any more. They
 * have left, and no lane is open. NULL is allowed. */
void cei_network_leave(struct cei_network *network);

/* Leaves, if that was not done, and frees. The peers have been freed. NULL is allowed. */
void cei_network_close(struct cei_network *network);

/* --- regions ----------------------------------------------------------------- */

enum cei_network_kind {
	CEI_NETWORK_BYTES = 1,          /* others write to all of it */
	CEI_NETWORK_COUNTERS,           /* others raise its counters, and nothing else */
};

struct cei_network_region {
	enum cei_network_kind kind;
	void                 *base;             /* host memory; of counters: of the first */
	uint64_t              device;           /* else, of bytes: their address in memory that
						 * the network does not access; 0: none */
	uint32_t              unit;             /* of bytes: who copies them between the memory
						 * and slots, see net/far_copier.h */
	uint64_t              size_bytes;
};

/* Opens memory, which stays until it is closed, under the number of its export: other
 * processes may write to it, or raise its counters. Memory without an address is none that
 * others reach, and nothing is done. Errors are raised. */
int  cei_network_region_open(struct cei_network *network, uint32_t id,
			     const struct cei_network_region *region);

/* 0: nothing writes to it any more. CEOV_PENDING, not raised: bytes are still landing in it
 * after a second of waiting; call again. Also 0 if there is no such region. */
int  cei_network_region_close(struct cei_network *network, uint32_t id);

/* --- what is known ------------------------------------------------------------ */

/* The rail to all other processes. NULL: this machine has no transport, which a group of one node
 * does not need. */
struct cei_rail *cei_network_rail(const struct cei_network *network);

/* Why the rail was opened on its network interface, in words. */
const char *cei_network_rail_why(const struct cei_network *network);

/* A NIC of the machine on which there is no rail, and why. NULL: there are not so many, or the
 * topology had nothing to choose. Index i counts from 0. */
struct cei_network_left {
	char name[64];
	char why[CEI_NIC_WHY_BYTES];
};
const struct cei_network_left *cei_network_left_out(const struct cei_network *network, uint32_t i);

/* Whether bytes of host memory pass through slots of the rail; and what happens to them, to follow
 * "bytes of host memory". */
int  cei_network_stages_host(const struct cei_network *network);
const char *cei_network_host_bytes(const struct cei_network *network);

/* What happens to bytes of GPUs, to follow "bytes of GPUs". Empty: no member is on a GPU. */
const char *cei_network_gpu_bytes(const struct cei_network *network);

/* Writes the path of the socket at which this group's processes of this node meet, and no other
 * group does. */
#define CEI_NETWORK_PATH_BYTES 108u
void cei_network_group_path(const struct cei_network *network,
			    char ret_path[CEI_NETWORK_PATH_BYTES]);

#endif /* CEI_NETWORK_H */
