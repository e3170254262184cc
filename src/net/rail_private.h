/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_RAIL_PRIVATE_H
#define CEI_RAIL_PRIVATE_H

/*
 * Shared by the files of a rail:
 *
 *   rail.c          what other layers call
 *   rail_say.c      messages, and what is awaited
 *   rail_turn.c     one turn: work of lanes, messages, the transport, the time
 *   rail_direct.c   memory of GPUs that the transport accesses itself
 *   rail_events.c   what the transport tells
 *   rail_thread.c   the thread, and calls that it carries out for others
 */

#include <pthread.h>

#include "base/ring.h"
#include "net/bell.h"
#include "net/far_peer.h"
#include "net/rail.h"

struct cei_rail_call;

struct cei_rail {
	struct cei_far_nic    nic;              /* of the rail's thread */
	struct cei_bell       bell;
	struct cei_ring       ready;            /* struct cei_far_lane: lanes with new work */
	struct cei_ring       notes;            /* struct cei_far_note_item */
	_Atomic uint32_t     *n_notes;          /* by process: messages that are not said */
	uint32_t              n_lanes;          /* of the rail's thread */
	int                   is_leaving;       /* likewise */
	uint64_t              look_ns;          /* likewise: when connections are looked at next */

	pthread_t             thread;
	int                   has_thread;
	int                   epoll_fd;
	int                   must_stop;        /* of the rail's thread */
	pthread_mutex_t       lock;             /* guards calls */
	pthread_cond_t        called;           /* a call has been carried out */
	struct cei_list       calls;            /* struct cei_rail_call */
	_Atomic uint32_t      n_calls;
};

/* --- rail_turn.c ----------------------------------------------------------- */

/* Whether something is to be tried again at once: the transport had no room, or copies between
 * slots and memory are under way. */
int  cei_rail_polls(const struct cei_rail *rail);

/* Takes lanes with new work out of their ring. Returns whether there were any. */
int  cei_rail_take_lanes(struct cei_rail *rail);

/* --- rail_turn.c ----------------------------------------------------------- */

/* Hands the notes that are to be said to their peers, which it connects. Returns how many. */
int  cei_rail_take_notes(struct cei_rail *rail);

/* --- rail_events.c --------------------------------------------------------- */

extern const struct cei_transport_events cei_rail_transport_events;

/* --- rail_direct.c --------------------------------------------------------- */

/* Opens what memory of the unit needs. needs_slots: it needs slots in any case. Of the rail's
 * thread. Errors are raised. */
int  cei_rail_use_unit(struct cei_rail *rail, uint32_t unit, int needs_slots);

/* --- rail_thread.c --------------------------------------------------------- */

/* A function that the rail's thread carries out. */
struct cei_rail_call {
	struct cei_list link;
	int           (*run)(struct cei_rail *rail, void *arg);
	void           *arg;
	int             is_begun;
	int             is_done;
	int             result;
};

/* Runs the function in the rail's thread and waits for it, 10 s at most; without a thread or from
 * it, at once. Returns what it returns, or CEOV_ERR_TIMEOUT, raised: then it was not begun. */
int  cei_rail_run(struct cei_rail *rail, int (*run)(struct cei_rail *rail, void *arg), void *arg);

/* Starts and ends the thread, if the configuration wants one. */
int  cei_rail_thread_open(struct cei_rail *rail);
void cei_rail_thread_close(struct cei_rail *rail);

#endif /* CEI_RAIL_PRIVATE_H */
