/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PEERS_PRIVATE_H
#define CEI_PEERS_PRIVATE_H

/*
 * Declarations shared by the files of the peers:
 *
 *   peers.c         open, leave; what goes into the machine, and what comes out of it
 *   peers_thread.c  the thread that polls, and progress by the caller
 *   peers_calls.c   exports, finds, barriers
 *   peers_far.c     counters of signals across nodes
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include <ceoverlap/ceoverlap.h>

#include "ipc/peers/peers.h"

struct cei_peers {
	struct cei_peers_config  config;
	_Atomic int32_t          n_waits;       /* of threads, for raises of users */
	_Atomic uint32_t         is_woken;      /* wake_fd is written to, or about to be */
	int                      wake_fd;       /* an eventfd that wakes the thread; -1: none */
	struct pollfd           *fds;           /* wake_fd, then those of the near carrier */
	int                      has_lock;
	int                      has_thread;    /* for who opens and leaves; others may run */
	pthread_t                thread;

	pthread_mutex_t          lock;          /* guards what follows */
	pthread_cond_t           changed;       /* calls have ended, or nothing is told any more */
	struct cei_group        *machine;
	struct cei_group_action  action;        /* that is next, or being taken */
	int                      has_action;
	int                      is_telling;    /* a thread takes an action without the lock, and
						 * goes on with those behind it */
	int                      is_turning;    /* a thread makes progress */
	int                      must_stop;
	int                      has_left;
	uint64_t                 sleeps_until;  /* when the thread wakes; 0: it is awake */
};

/* --- peers.c ---------------------------------------------------------------------------- */

/* Takes the lock, and tells the machine the time, so that it may be called. */
void cei_peers_enter(struct cei_peers *peers);

/* Takes the actions that the machine has, and releases the lock. holds_none: this thread holds no
 * lock of upper layers, so it may tell them something; else that is left to the thread. */
void cei_peers_exit(struct cei_peers *peers, int holds_none);

/* Takes the actions. With the lock held, which is released meanwhile. */
void cei_peers_take(struct cei_peers *peers, int holds_none);

/* Waits until the call has ended, and releases the lock. */
void cei_peers_await(struct cei_peers *peers, const struct cei_group_call *call);

/* Tells the machine the time, and makes room for an event. With the lock held. */
void cei_peers_tick(struct cei_peers *peers);

/* Why a rank has gone, to follow its name. */
const char *cei_peers_end_of(const struct cei_peers *peers, uint32_t rank, int has_departed);

/* --- peers_thread.c ------------------------------------------------------------------------ */

/* Starts the thread, which contexts with progress_by_caller do not have. Returns an errno. */
int  cei_peers_start(struct cei_peers *peers);
void cei_peers_stop(struct cei_peers *peers);

/* Wakes the thread if it sleeps beyond what is due. With the lock held. */
void cei_peers_wake_if_due(struct cei_peers *peers);

#endif /* CEI_PEERS_PRIVATE_H */
