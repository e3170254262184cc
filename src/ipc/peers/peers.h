/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PEERS_H
#define CEI_PEERS_H

/*
 * The other processes of a context's group, as its threads ask and tell them. What a process
 * knows of its group is a state machine (ipc/group/group.h); this gives it a lock, time, a thread,
 * callers that wait, and two carriers (ipc/peers/carrier.h).
 *
 *   callers  ----calls---->  machine  ----SEND---->  carriers
 *   carriers ----events--->           ----GONE, ABORTED, RENEWED---->  events of the layer above
 *
 * Any thread. No call but those that have a deadline blocks. Order of locks: the context's, that
 * of the peers, a rail's ring. Events upwards come one at a time, in their order, with none of
 * these held, from the thread or from a thread of a carrier; with progress_by_caller from
 * cei_peers_turn() and from calls with a deadline, too. Errors are raised unless it says
 * otherwise.
 */

#include <stdint.h>

#include "base/report.h"
#include "ipc/group/group.h"
#include "ipc/peers/carrier.h"

struct cei_peers_events {
	/* A rank of another process is lost or, with departed 1, has closed in order. Told once.
	 * Nothing of it writes to memory of this process any more. */
	void (*gone)(void *arg, uint32_t rank, int departed);

	/* Signals of this process or watched here were aborted; cei_peers_still_aborted() tells
	 * which. The handler asks under the lock under which renewed signals are zeroed, and aborts
	 * under it, too. */
	void (*aborted)(void *arg, const struct cei_group_abort *abort);

	/* The process that owns a watched signal has renewed it: its image has to be zeroed. id:
	 * the owner's number of it, use: that of a find here. */
	void (*renewed)(void *arg, uint32_t process, uint32_t id, uint64_t use);
};

struct cei_peers_config {
	struct cei_report             *report;
	const struct cei_roster       *roster;          /* stays until the close */
	uint64_t                       timeout_ns;      /* of silent processes of other nodes */
	int                            progress_by_caller;
	const struct cei_carrier      *near, *far;      /* stay until the close; NULL: there is no
							 * such process */
	const struct cei_peers_events *events;
	void                          *events_arg;
};

int  cei_peers_open(const struct cei_peers_config *config, struct cei_peers **ret_peers);

/* Says farewell, and ends the thread: nothing is called any more from then on, above or below.
 * Carriers stop calling events before cei_peers_free(). Both accept NULL. */
void cei_peers_leave(struct cei_peers *peers);
void cei_peers_free(struct cei_peers *peers);

/* Makes progress, for contexts with progress_by_caller. Returns whether there was any. */
int  cei_peers_turn(struct cei_peers *peers);

const struct cei_roster *cei_peers_roster(const struct cei_peers *peers);

/* --- exports and finds ---------------------------------------------------------------------- */

/* Exports, and duplicates the descriptors. is_hidden: it is found from cei_peers_show() on.
 * CEOV_ERR_STATE: the rank exports the name already. *ret_id is not 0. */
int  cei_peers_export(struct cei_peers *peers, const struct cei_group_export *export,
		      uint32_t *ret_id);
void cei_peers_show(struct cei_peers *peers, uint32_t id);

/* It is found no more. CEOV_PENDING, not raised: others still use it; call again. is_forced: users
 * are forgotten, and find out when they use it the next time. */
int  cei_peers_withdraw(struct cei_peers *peers, uint32_t id, int is_forced);

struct cei_lookup {
	uint32_t    rank;                       /* of another process */
	const char *name;
	uint64_t    deadline_ns;                /* a time of cei_now_ns() */
};

/* Asks the process that holds the rank. The caller closes the descriptors that were found, and
 * passes *ret_use to cei_peers_drop(). CEOV_NONE, not raised: the rank has not exported it yet.
 * CEOV_ERR_STATE: this process leaves. CEOV_ERR_PEER_LOST. CEOV_ERR_TIMEOUT, after
 * CEI_GROUP_FIND_NS at the latest. */
int  cei_peers_find(struct cei_peers *peers, const struct cei_lookup *lookup,
		    struct cei_group_found *ret_found, uint64_t *ret_use);
void cei_peers_drop(struct cei_peers *peers, uint32_t rank, uint64_t use);

/* Closes descriptors from an index on. */
void cei_peers_close_fds(const struct cei_group_fds *fds, uint32_t first);

/* --- barrier ---------------------------------------------------------------------------------- */

/* Passes when all processes of the group have called it as often as this one. After
 * CEOV_ERR_TIMEOUT the next call goes on with the same barrier. CEOV_ERR_PEER_LOST: a process is
 * lost, or has closed with fewer calls. The failure names a rank that is lost or has not come. */
int  cei_peers_barrier(struct cei_peers *peers, uint64_t deadline_ns);

/* --- counters of signals across nodes --------------------------------------------------------- */

/* Makes words the image of a found signal's counters until the forget, which comes before the
 * drop. */
int  cei_peers_watch(struct cei_peers *peers, uint32_t rank, uint64_t use,
		     _Atomic uint64_t *words, uint32_t n_words);
void cei_peers_forget(struct cei_peers *peers, uint32_t rank, uint64_t use);

/* Has the owner raise a counter, unless one of the two processes is lost. */
int  cei_peers_raise(struct cei_peers *peers, uint32_t rank, uint64_t use, uint32_t index,
		     uint64_t value);

/* Has the owner tell the changes of a watched counter until it has that value. */
void cei_peers_ask(struct cei_peers *peers, uint32_t rank, uint64_t use, uint32_t index,
		   uint64_t value);

/* This process waits, by as many waits more or less, for counters of its own that other nodes may
 * raise. Processes of other nodes that use its exports and fall silent meanwhile are lost. */
void cei_peers_await_users(struct cei_peers *peers, int by);

/* Tells the renewal of an export to all processes of other nodes that use it, and waits until they
 * have zeroed their images. CEOV_ERR_PEER_LOST, CEOV_ERR_TIMEOUT. */
int  cei_peers_renew(struct cei_peers *peers, uint32_t id, uint64_t deadline_ns);

/* Tells an abort of signals, of which error, blame, n, and rank and id of each are set, to the
 * processes of other nodes that own or have found them. */
void cei_peers_abort(struct cei_peers *peers, struct cei_group_abort *abort);

/* Writes those of the aborted signals that were not renewed since, and returns how many they are;
 * room for all. */
uint32_t cei_peers_still_aborted(struct cei_peers *peers, const struct cei_group_abort *abort,
				 struct cei_group_signal *ret_signals);

#endif /* CEI_PEERS_H */
