/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_REMOTE_H
#define CEI_REMOTE_H

/*
 * The door to a daemon: plans that it can reach are carried out by its engines, and all others by
 * those of this process, as they would be without a daemon. Memory, signals, streams and what
 * kernels do stay in this process; the daemon maps the memory that its plans name.
 */

#include "ce_engine/objects/door.h"

extern const struct cei_door cei_remote_door;

/* Connects the context to the daemon at the path. Its members, mappings and engines are there.
 * Raises. */
int  cei_remote_open(ceov_context *context, const char *path, uint64_t deadline_ns);

/* Whether the context has a daemon that is not known to have gone; and whether a daemon carries out
 * the plan, of which the caller holds the lock. */
int  cei_remote_is_connected(const ceov_context *context);
int  cei_remote_has(const struct ceov_plan *plan);

/*
 * What ceov_reopen() does of its work with the daemon. The context may have none. No other call
 * of the context may be under way, but threads may wait.
 */

/* If the daemon was lost, waits until it can no longer write to this process's memory, and closes
 * the connection. CEOV_ERR_TIMEOUT, raised. */
int  cei_remote_leave(ceov_context *context, uint64_t deadline_ns);

/* If the daemon was lost, waits for the next one, connects, and has it commit the plans that the
 * lost one had; this process carries out those of members that the next one does not serve. Once
 * it listens, it has the context's deadline for each answer. Raises; then there
 * is no connection, and the call can be repeated. */
int  cei_remote_return(ceov_context *context, uint64_t deadline_ns);

/* 1: aborts the signals of all plans that the daemon has; from now on its loss aborts none, as
 * nothing is in flight, and since other processes may renew the same signals. That holds until 0 is
 * said, also after a ceov_reopen() that failed. 0: it does again; returns 1 if the daemon was lost
 * meanwhile, and then has aborted them. */
int  cei_remote_keep_quiet(ceov_context *context, int is_quiet);

/* Ends the connection; the daemon does not move the context's data any more. Accepts a context that
 * has none. */
void cei_remote_close(ceov_context *context);

#endif /* CEI_REMOTE_H */
