/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DAEMON_RELOAD_H
#define CEI_DAEMON_RELOAD_H

struct cei_server;                      /* daemon/server.h */
struct cei_settings_fault;              /* daemon/settings.h */

/* Reads the configuration file again. New limits hold for what clients ask from now on, and shares
 * at once; what clients have they keep, and so does what the command line said. If a line is
 * wrong, nothing changes, and server->fault says which until the file is read well. 0, or an error,
 * raised, of which *ret_fault says more. Front thread. */
int cei_server_reload(struct cei_server *server, struct cei_settings_fault *ret_fault);

/* Tells engines in what time copies should be done, as the settings say. */
void cei_server_set_aims(struct cei_server *server);

#endif /* CEI_DAEMON_RELOAD_H */
