/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DAEMON_RELOAD_H
#define CEI_DAEMON_RELOAD_H

struct cei_server;                      /* daemon/server.h */

/* Reads the configuration file again. New limits hold for what clients ask from now on, and shares
 * at once; what clients have they keep. If a line is wrong, nothing changes. 0, or an error,
 * raised, of which server->fault says more. Front thread. */
int cei_server_reload(struct cei_server *server);

/* Tells engines in what time copies should be done, as the settings say. */
void cei_server_set_aims(struct cei_server *server);

#endif /* CEI_DAEMON_RELOAD_H */
