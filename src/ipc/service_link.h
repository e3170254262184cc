/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_SERVICE_LINK_H
#define CEI_SERVICE_LINK_H

/*
 * A client's connection to a daemon: the socket, the areas that both share, a thread that receives
 * what the daemon says, and one that sleeps until the daemon dies.
 *
 * After the daemon was lost a link stays as it is, and all calls fail with CEOV_ERR_DAEMON_LOST,
 * until it is closed and another one opened.
 */

#include <stddef.h>
#include <stdint.h>

#include "base/report.h"
#include "ipc/service_ring.h"
#include "ipc/service_wire.h"

struct cei_service_link;

struct cei_service_link_config {
	struct cei_report              *report;         /* outlives the link */
	const char                     *path;           /* of the daemon's socket */
	struct cei_service_hello        hello;
	struct cei_service_launcher    *launcher;       /* has no daemon yet; outlives the link */
	uint64_t                        deadline_ns;    /* a time of cei_now_ns() */
	uint64_t                        timeout_ns;     /* for the answer to each later request */

	/* Called by a thread of the link. failed: a launch has failed. lost: the daemon has gone,
	 * once; launches in flight have ended before. */
	void                          (*failed)(void *arg, const struct ceov_failure *failure);
	void                          (*lost)(void *arg);
	void                           *arg;
};

/* Connects, and attaches the launcher. Raises: CEOV_ERR_SYSTEM, nobody listens there;
 * CEOV_ERR_VERSION, with both versions; what the daemon refuses, such as a limit;
 * CEOV_ERR_TIMEOUT. */
int  cei_service_link_open(const struct cei_service_link_config *config,
			   struct cei_service_link **ret_link);

/* Says farewell, waits by the deadline until the daemon does not touch the client's memory any
 * more, and frees the link; the launcher has no daemon afterwards. No call may be under way. NULL
 * does nothing. */
void cei_service_link_close(struct cei_service_link *link, uint64_t deadline_ns);

/* Whether the daemon has gone and can no longer write to this client's memory, which is some time
 * after its death is known: waits for that by the deadline. 0: it cannot, and the link is of no use
 * but to be closed. CEOV_NONE: the daemon lives. CEOV_PENDING: the deadline passed first. */
int  cei_service_link_await_loss(struct cei_service_link *link, uint64_t deadline_ns);

/* Whether the loss of the daemon was noticed. Any thread. */
int  cei_service_link_is_lost(const struct cei_service_link *link);

/* Waits by the deadline until somebody listens at the path. CEOV_ERR_TIMEOUT and CEOV_ERR_INVALID
 * (the path is too long), raised. */
int  cei_service_link_await_daemon(struct cei_report *report, const char *path,
				   uint64_t deadline_ns);

/* What the daemon said of itself and of this client's limits. */
const struct cei_service_welcome *cei_service_link_welcome(const struct cei_service_link *link);

/* The next four may be called by any thread, and wait for each other. */

struct cei_service_program {            /* of a plan */
	const struct cei_service_offer *offer;
	const void                     *bytes;          /* the offer's, then the program's */
	size_t                          n_bytes;
};

/* Has the daemon commit a plan. What it refuses is raised here, with its words. */
int  cei_service_commit(struct cei_service_link *link, const struct cei_service_program *program,
			struct cei_service_handle *ret_handle);

/* Asks how the daemon carries out a plan. *ret_fd is a file with the text, which the caller closes.
 * Raises. */
int  cei_service_explain(struct cei_service_link *link, struct cei_service_handle handle,
			 int *ret_fd);

/* Has the daemon release a plan, of which no launch is in flight, and waits until it has unmapped
 * the memory that no other plan names. The wait ends early if the daemon dies; after the link's
 * timeout CEOV_ERR_TIMEOUT is raised, and the daemon may still have the memory mapped. */
void cei_service_drop(struct cei_service_link *link, struct cei_service_handle handle);

/* Tells the daemon, for its operator, how many plans so far it cannot reach. */
void cei_service_tell_stayed(struct cei_service_link *link, uint64_t n_plans);

#endif /* CEI_SERVICE_LINK_H */
