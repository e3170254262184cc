/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef FAKE_DAEMON_H
#define FAKE_DAEMON_H

/* A thread that speaks as a daemon does, to one client at a time: it serves some of the client's
 * members alone, says that it has committed each plan, and moves nothing. Asserts with Check. */

#include <pthread.h>
#include <stdint.h>

#include "base/report.h"
#include "ipc/alive.h"
#include "ipc/service_wire.h"

struct fake_daemon {
	char                  path[200];        /* of its socket */
	uint32_t              serves;           /* bit i: member i of the client */
	uint32_t              n_commits;        /* read it after the end */

	struct cei_report     report;
	struct cei_alive     *alive;
	struct cei_alive_area up;
	int                   listener;
	uint32_t              number;           /* of the request for a plan */
	uint32_t              n_left;           /* bytes of a plan that have not come yet */
	pthread_t             thread;
};

/* Listens at the path, in place of a daemon that was killed. */
void fake_daemon_start(struct fake_daemon *fake, const char *path, uint32_t serves);

/* Its clients have said farewell. */
void fake_daemon_end(struct fake_daemon *fake);

#endif /* FAKE_DAEMON_H */
