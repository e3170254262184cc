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

/* Does so if a launch has passed its deadline since, but not again before *not_before_ns, a time
 * that it sets. */
void cei_flight_look(struct cei_server *server, uint64_t now_ns, uint64_t *not_before_ns);

/* All chunks that are remembered, as a list. NULL: no memory. */
struct json_object *cei_flight_json(struct cei_server *server);

#endif /* CEI_DAEMON_FLIGHT_H */
