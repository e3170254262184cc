/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DAEMON_PORTER_H
#define CEI_DAEMON_PORTER_H

/*
 * Does what may take long for the daemon's front thread: maps and unmaps memory, commits plans,
 * ends clients. One thread does one task after the other; tasks that have to be looked at again
 * are, after a pause, and delay no others meanwhile.
 */

#include <pthread.h>

#include "base/list.h"
#include "base/report.h"

struct cei_task {                       /* its owner's struct holds it, and zeroes it first */
	struct cei_list link;
	int           (*run)(struct cei_task *task);    /* the porter's thread. CEOV_PENDING: again
							 * after CEI_PORTER_PAUSE_NS */
	void          (*done)(struct cei_task *task);   /* the front thread, afterwards */
	uint64_t        not_before_ns;
};

#define CEI_PORTER_PAUSE_NS UINT64_C(1000000)

struct cei_porter {
	pthread_mutex_t lock;           /* guards the lists and must_end */
	pthread_cond_t  came;
	struct cei_list tasks;
	struct cei_list finished;       /* done() is to be called */
	int             must_end;
	int             bell;           /* eventfd: something is finished */
	pthread_t       thread;
	int             has_thread;
};

/* Zeroed before. Raises CEOV_ERR_SYSTEM; fini accepts what init has left. */
int  cei_porter_init(struct cei_porter *porter, struct cei_report *report);

/* Waits until all tasks have run, and calls their done(). Front thread. */
void cei_porter_fini(struct cei_porter *porter);

/* Gives the porter a task, which is its own until done() is called. Front thread. */
void cei_porter_give(struct cei_porter *porter, struct cei_task *task);

/* Calls done() for all tasks that have run; when the bell rings. Front thread. */
void cei_porter_finish(struct cei_porter *porter);

#endif /* CEI_DAEMON_PORTER_H */
