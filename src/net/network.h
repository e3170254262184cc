/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_NETWORK_H
#define CEI_NETWORK_H

/*
 * What a context knows of the other nodes: who is where (net/book.h), the rail to them
 * (net/rail.h), and what is exported to them and was found there.
 *
 *   region   memory of this process that other nodes may write to, or counters that they may
 *            raise; known to them by a number
 *   image    the local copy of another node's signal: its header and counters as last heard.
 *            Whoever waits for such a counter asks for it, and its owner tells each change
 *            until the wanted value is reached
 *
 * All calls from any thread unless they say otherwise. Events come from the rail's thread, or with
 * progress_by_caller from cei_network_turn(), with no lock of this layer held.
 */

#include <stddef.h>
#include <stdint.h>

#include "base/site.h"
#include "net/network_types.h"
#include "topology/nics.h"

struct cei_network;
struct cei_carrier;                     /* ipc/peers/carrier.h */
struct cei_far_copier_ops;              /* net/far_copier.h */
struct cei_note_abort;                  /* net/network_wire.h */
struct cei_peers;                       /* ipc/peers/peers.h */
struct cei_rail;                        /* net/rail.h */
struct cei_roster;                      /* ipc/group/roster.h */
struct cei_transport_ops;               /* net/transport.h */

struct cei_network_events {
	/* A rank of another node was lost or, with departed 1, closed in order. Told once. Nothing
	 * of it writes to memory of this process any more. */
	void (*gone)(void *arg, uint32_t rank, int departed);

	/* A rank of another node is lost, and the processes of this node are to be told: at
	 * each of them cei_network_mate_lost(). Before gone(). */
	void (*tell_mates)(void *arg, uint32_t rank);

	/* Signals of this process or watched here were aborted; cei_network_still_aborted() tells
	 * which. The handler asks under the lock under which renewed signals are zeroed, and
	 * aborts under it, too. */
	void (*aborted)(void *arg, const struct cei_note_abort *abort);

	/* The owner of a watched signal has renewed it: its image has to be zeroed. */
	void (*renewed)(void *arg, uint32_t rank, uint32_t region);
};

struct cei_network_config {
	const struct ceov_network       *public;        /* NULL: all as the environment shows */
	const struct cei_transport_ops  *transport;     /* NULL: UCX */
	const struct cei_machine        *machine;       /* whose NICs and GPUs decide on which
							 * network interface the rail is opened, if
							 * nobody names one; GPU i is the driver's
							 * GPU i. NULL: not known */
	uint64_t                         deadline_ns;   /* point in time, cei_now_ns() */
	const struct cei_network_events *events;        /* NULL: the layer above calls
							 * cei_network_begin() */
	void                            *events_arg;
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

/* Makes progress, for contexts with progress_by_caller. Returns whether there was any. */
int  cei_network_turn(struct cei_network *network);

/* --- exports ----------------------------------------------------------------- */

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

struct cei_network_export {
	uint32_t                  rank;         /* of this process */
	char                      name[CEI_NETWORK_NAME_BYTES];
	struct cei_network_region region;
	uint32_t                  n_details;
	uint8_t                   details[CEI_NETWORK_DETAILS_BYTES];
};

/* Exports memory, which stays until it is withdrawn. CEOV_ERR_STATE, raised: the rank uses the
 * name already. *ret_region is not 0. */
int  cei_network_export(struct cei_network *network, const struct cei_network_export *export,
			uint32_t *ret_region);

/* Withdraws an export, which is found no more. CEOV_PENDING: other processes still use it; call
 * again. On 0 nothing writes to its memory any more. */
int  cei_network_withdraw(struct cei_network *network, uint32_t region);

/* Withdraws an export though other processes still use it: they find out when they use it the next
 * time. CEOV_PENDING: bytes are still landing in its memory, which must stay. */
int  cei_network_revoke(struct cei_network *network, uint32_t region);

/* Asks the process of a rank of another node. CEOV_NONE: it is not exported yet.
 * CEOV_ERR_PEER_LOST and CEOV_ERR_TIMEOUT are raised. Each find is ended by a drop. */
int  cei_network_find(struct cei_network *network, uint32_t rank, const char *name,
		      uint64_t deadline_ns, struct cei_network_found *ret_found);
void cei_network_drop(struct cei_network *network, uint32_t rank, uint32_t region);

/* --- signals -------------------------------------------------------------------- */

/* Makes words the image of the counters of a found signal, from now on until the forget. */
int  cei_network_watch(struct cei_network *network, uint32_t rank,
		       const struct cei_network_found *found, _Atomic uint64_t *words,
		       uint32_t n_words);
void cei_network_forget(struct cei_network *network, uint32_t rank, uint32_t region);

/* Asks the owner of a watched signal to tell the counter's changes until it has reached the value.
 * Does nothing if that is so already, or was asked for. */
void cei_network_ask(struct cei_network *network, uint32_t rank, uint32_t region,
		     uint32_t index, uint64_t value);

/* Raises a counter of a found signal. 0: its owner will do so, unless one of the two processes is
 * lost. */
int  cei_network_raise(struct cei_network *network, uint32_t rank, uint32_t region,
		       uint32_t index, uint64_t value);

/* This process waits, by as many waits more or less, for counters of its own that other nodes may
 * raise. Processes that use its exports and fall silent meanwhile are lost. Never blocks. */
void cei_network_await_users(struct cei_network *network, int by);

/* Finds those of the aborted signals that have not been renewed since, at most
 * CEI_NETWORK_ABORTS_MAX. A renewal counts from the moment at which it is told to other processes,
 * which is before its signal is zeroed. Returns how many they are. */
uint32_t cei_network_still_aborted(struct cei_network *network,
				   const struct cei_note_abort *abort,
				   struct cei_network_signal *ret_signals);

/* Tells the abort of signals to all other processes that have to know: of a found one its owner;
 * of one of this process all that have found it. n: at most CEI_NETWORK_ABORTS_MAX, which
 * arrive together. */
void cei_network_abort(struct cei_network *network, const struct cei_network_signal *signals,
		       uint32_t n, int error, uint32_t blame);

/* Tells the renewal of an own signal to all processes that have found it, and waits until they
 * have zeroed their images. CEOV_ERR_TIMEOUT, raised. */
int  cei_network_renew(struct cei_network *network, uint32_t region, uint64_t deadline_ns);

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

/* The process that holds the rank. */
uint32_t cei_network_process(const struct cei_network *network, uint32_t rank);

/* Writes the path of the socket at which this group's processes of this node meet, and no other
 * group does. */
#define CEI_NETWORK_PATH_BYTES 108u
void cei_network_group_path(const struct cei_network *network,
			    char ret_path[CEI_NETWORK_PATH_BYTES]);

/* The number of the rank's node, from 0 on in the order of their lowest ranks. */
uint32_t cei_network_node(const struct cei_network *network, uint32_t rank);

/* --- meeting ---------------------------------------------------------------------- */

/* The second step of a barrier of the group, between two in which the processes of each node meet.
 * Passes when the leaders of all nodes have called it as often as this one; the leader is the
 * process that holds its node's lowest rank. In other processes it passes at once. After
 * CEOV_ERR_TIMEOUT the next call continues the same barrier. CEOV_ERR_PEER_LOST: a process of the
 * group is lost or has closed, and the barrier cannot complete. Both are raised. */
int  cei_network_barrier(struct cei_network *network, uint64_t deadline_ns);

/* This process has passed the barrier's last step, too. */
void cei_network_barrier_passed(struct cei_network *network);

/* A rank, on whatever node, without which the barrier that this process is in or calls next cannot
 * complete, because it is lost or has closed; CEOV_NOBODY: none is known. With progress_by_caller
 * it makes progress, too. */
uint32_t cei_network_missing(struct cei_network *network);

/* A rank of another process of this node was lost or, with departed 1, has closed in order, as the
 * bootstrap says. A loss is told to the other nodes, and as an event. */
void cei_network_mate_gone(struct cei_network *network, uint32_t rank, int departed);

/* A process of this node says that the rank of another node is lost. */
void cei_network_mate_lost(struct cei_network *network, uint32_t rank);

/* A process of this node says that its barriers cannot complete without this rank. */
void cei_network_mate_missed(struct cei_network *network, uint32_t rank);

#endif /* CEI_NETWORK_H */
