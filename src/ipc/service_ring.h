/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_SERVICE_RING_H
#define CEI_SERVICE_RING_H

/*
 * Launches on their way to a daemon's engine, and their results on the way back, through the memory
 * of service_area.h. No system call is made while the engine is awake and nobody sleeps.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "ipc/service_area.h"

/* A launch, as both ends see it. */
struct cei_service_launch {
	uint32_t slot;                  /* of the plan, and ... */
	uint32_t generation;            /* ... how often the slot was used before */
	uint64_t number;
	uint64_t base;
	uint64_t deadline_ns;           /* a duration; 0: the context's */
};

/* --- the client's end ------------------------------------------------------- */

#define CEI_SERVICE_FAILURES 4096u      /* failed launches whose results are kept */

struct cei_service_failure {
	uint64_t number;
	int      result;
};

/* Zeroed and then initialised. */
struct cei_service_launcher {
	/* The next four change with the lock held, while is_lost is 1 and n_waiting is 0. */
	struct cei_service_down     *down;      /* NULL: there was no daemon yet */
	const struct cei_service_up *up;
	uint32_t                     n_rings;
	int                          bells[CEI_MEMBERS_MAX];    /* eventfds, by ring */
	_Atomic uint32_t             is_lost;   /* there is no daemon: no launch ends any more */
	_Atomic uint32_t             n_waiting; /* threads in cei_service_wait() */
	_Atomic uint32_t             n_spins;   /* looks of the next wait before it yields */
	pthread_mutex_t              lock;      /* guards the rest */
	uint64_t                     last;      /* the newest number */
	uint64_t                     n_put[CEI_MEMBERS_MAX];    /* entries put into each ring */
	uint64_t                     holders[CEI_SERVICE_TICKETS]; /* the last number of each
								    * slot */
	uint64_t                     n_failed;  /* failures kept, ever */
	uint64_t                     forgotten; /* the highest number of a failure that is not
						 * kept any more */
	struct cei_service_failure   failed[CEI_SERVICE_FAILURES];
};

/* A launcher has no daemon at first. */
void cei_service_launcher_init(struct cei_service_launcher *launcher);
void cei_service_launcher_fini(struct cei_service_launcher *launcher);

/* The areas of a daemon, as a client has mapped them; both stay the caller's, and mapped until
 * detach. */
struct cei_service_areas {
	struct cei_service_down     *down;
	const struct cei_service_up *up;
	uint32_t                     n_rings;   /* at most CEI_MEMBERS_MAX */
	const int                   *bells;     /* eventfds that do not block, by ring */
};

/* Connects a launcher that has no daemon to one. */
void cei_service_launcher_attach(struct cei_service_launcher *launcher,
				 const struct cei_service_areas *areas);

/* Says that the daemon has died: launches in flight end with CEOV_ERR_DAEMON_LOST. Any thread. */
void cei_service_launcher_lose(struct cei_service_launcher *launcher);

/* Keeps the results of all launches, and uses the areas no more: afterwards they can be unmapped,
 * and another daemon be attached. May be called without one. */
void cei_service_launcher_detach(struct cei_service_launcher *launcher);

/* The next two may be called by any thread, at any time between init and fini. */

/* Puts a launch into a ring, and wakes the engine if it sleeps. The launch gets its number here.
 * CEOV_FULL: the ring is full, or CEI_SERVICE_TICKETS launches are in flight.
 * CEOV_ERR_DAEMON_LOST, and CEOV_ERR_INVALID: there is no such ring. Neither is raised. */
int  cei_service_put(struct cei_service_launcher *launcher, uint32_t ring,
		     struct cei_service_launch *launch);

/* Waits until the launch has ended, at most timeout_ns; only a launch in flight is waited for.
 * 0, and CEOV_PENDING or the result; that of a number that was skipped is 0. CEOV_NONE: the result
 * is not kept any more. CEOV_ERR_INVALID, not raised: no launch has had that number yet. */
int  cei_service_wait(struct cei_service_launcher *launcher, uint64_t number, uint64_t timeout_ns,
		      int *ret_result);

/* --- the daemon's end ------------------------------------------------------- */

/* One client's ring. Used by the engine's thread alone. */
struct cei_service_reader {
	const struct cei_service_ring *ring;
	struct cei_service_line       *line;
	uint64_t                       n_taken;
};

/* Copies the next entry. 0; CEOV_NONE: there is none. CEOV_ERR_INVALID, not raised: it is nothing
 * that a client of this version writes. It stays the next one until cei_service_took(). */
int  cei_service_take(struct cei_service_reader *reader, struct cei_service_launch *ret_launch);

/* Gives the place of the entry that was copied back to the client. */
void cei_service_took(struct cei_service_reader *reader);

/* Tells the client that from now on it has to ring the engine's bell (1), or need not (0). The
 * engine looks at the ring after it said 1 and before it sleeps. */
void cei_service_doze(struct cei_service_reader *reader, int is_dozing);

/* Publishes a launch's result, and wakes those who sleep. One thread at a time for each number. */
void cei_service_end(struct cei_service_up *up, const struct cei_service_down *down,
		     uint64_t number, int result);

#endif /* CEI_SERVICE_RING_H */
