/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DAEMON_INTAKE_H
#define CEI_DAEMON_INTAKE_H

/*
 * Takes launches out of clients' rings for one engine: the rings of all clients' ranks that this
 * engine serves. The engine's thread holds the intake's lock while it looks at them, and the
 * daemon's other threads while they add and remove rings and plans. So a plan that was removed is
 * not launched any more.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/list.h"
#include "base/report.h"
#include "ce_engine/engine/launch_source.h"
#include "daemon/server/limits.h"
#include "ipc/service_ring.h"

struct cei_intake_plan {
	struct ceov_plan *plan;         /* NULL: the slot is free */
	uint32_t          generation;   /* rises each time that the slot is freed */
	struct cei_mouth *mouth;        /* through which its launches have to come */
};

/* A ring of a client. The client's struct holds it. */
struct cei_mouth {
	struct cei_list           link;         /* the intake's */
	struct cei_service_reader reader;
	struct cei_intake_plan   *plans;        /* the client's table, of CEI_CLIENT_PLANS_MAX */
	int                       bell;         /* eventfd that the client rings */
	uint64_t                  n_launches;
	_Atomic uint32_t         *is_faulty;    /* set where the client wrote nonsense; ... */
	void                    (*faulty)(void *arg);   /* ... then this is called, by the engine's
							 * thread and with the lock held */
	void                     *arg;
};

struct cei_intake {
	struct cei_launch_source source;        /* first: the engine's view */
	pthread_mutex_t   lock;         /* guards the mouths and the plans that they launch */
	struct cei_list   mouths;       /* the next one to be looked at first */
	int               epoll;        /* what the engine's thread sleeps on */
	int               bell;         /* eventfd: wake() */
	_Atomic uint64_t  n_turns;      /* of the engine, which has looked so often */
};

/* Zeroed before. Raises CEOV_ERR_SYSTEM; fini accepts what init has left. */
int  cei_intake_init(struct cei_intake *intake, struct cei_report *report);
void cei_intake_fini(struct cei_intake *intake);

/* Add and remove a ring. After remove the engine does not touch it. CEOV_ERR_SYSTEM, with errno
 * set, not raised. */
int  cei_intake_add(struct cei_intake *intake, struct cei_mouth *mouth);
void cei_intake_remove(struct cei_intake *intake, struct cei_mouth *mouth);

/* How many turns the engine has made. Any thread. */
uint64_t cei_intake_turns(const struct cei_intake *intake);

/* Has the engine make a turn, even if nothing is to be done. Any thread. */
void cei_intake_nudge(struct cei_intake *intake);

/* Put a plan into a free slot, and take it out: no launch of it begins any more. */
void cei_intake_put_plan(struct cei_intake *intake, struct cei_intake_plan *slot,
			 struct ceov_plan *plan, struct cei_mouth *mouth);
struct ceov_plan *cei_intake_take_plan(struct cei_intake *intake,
				       struct cei_intake_plan *slot);

#endif /* CEI_DAEMON_INTAKE_H */
