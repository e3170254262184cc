/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DAEMON_FLIGHT_H
#define CEI_DAEMON_FLIGHT_H

/* The flight recorder: what went last on each engine, as its tally remembers it. Front thread. */

#include <stdint.h>

struct cei_server;                      /* daemon/server.h */
struct json_object;

/* Writes the last chunks of each engine to the log, with the reason. */
void cei_flight_log(struct cei_server *server, const char *why);

/* A launch of the client has passed its deadline: writes the last chunks to the log, unless that
 * was done in the last ten seconds. */
void cei_flight_note_timeout(struct cei_server *server, uint32_t client);

/* All chunks that are remembered, as a list. NULL: no memory. */
struct json_object *cei_flight_json(struct cei_server *server);

#endif /* CEI_DAEMON_FLIGHT_H */
