/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DAEMON_RELOAD_H
#define CEI_DAEMON_RELOAD_H

/*
 * Reads the configuration file again while clients are served. Names of users and groups may have
 * to be asked of a server far away, so a thread of its own reads, one time at once; neither the
 * front thread nor the porter, which aborts what clients that died have left, waits for it. New
 * limits hold for what clients ask from then on, and shares at once; what clients have they keep,
 * and so does what the command line said. If a line is wrong, nothing changes, and server->fault
 * says which until the file is read well. Front thread.
 */

#include <stdint.h>

struct cei_reload;
struct cei_server;                      /* daemon/server/server.h */

/* Starts the thread, and hooks it into the server's loop. Raises. */
int  cei_reload_open(struct cei_server *server, struct cei_reload **ret_reload);

/* Ends the thread. One that still reads is left alone, with the memory that it uses, until the
 * process ends. NULL does nothing. */
void cei_reload_close(struct cei_reload *reload);

/* Has the file read. Returns the number of the reading that sees the file as it is now, which is
 * one that others ask for, too, while an earlier one has not ended. */
uint64_t cei_reload_begin(struct cei_reload *reload);

/* 0: the reading, or a later one, has ended, and its settings hold. CEOV_PENDING: it has not. An
 * error, which was raised: *ret_fault says why, until the next call of any of these.
 * CEOV_ERR_TIMEOUT, not raised: it has not, for CEI_RELOAD_PATIENCE_NS already; it may still end.
 */
#define CEI_RELOAD_PATIENCE_NS UINT64_C(3000000000)
int  cei_reload_result(const struct cei_reload *reload, uint64_t number, const char **ret_fault);

/* Tells engines in what time copies should be done, as the settings say. */
void cei_server_set_aims(struct cei_server *server);

#endif /* CEI_DAEMON_RELOAD_H */
