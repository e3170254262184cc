/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DAEMON_FLIGHT_H
#define CEI_DAEMON_FLIGHT_H

/* The flight recorder: what went last on each engine, as its tally remembers it. Front thread. */

#include <stdint.h>

struct cei_server;                      /* daemon/server/server.h */
struct json_object;

/* Writes the last 16 chunks of each engine to the log, the oldest first, with the reason: a clause
 * behind "because". */
void cei_flight_log(struct cei_server *server, const char *why);

/* Does so if a launch has passed its deadline since the last call, and sets *not_before_ns to 10 s
 * later: what passes its deadline until then is not logged, neither then nor afterwards. now_ns: of
 * cei_now_ns(). */
void cei_flight_look(struct cei_server *server, uint64_t now_ns, uint64_t *not_before_ns);

/* All chunks that are remembered, engine by engine, the oldest first, as a list that the caller
 * puts; see ceoverlapctl(1) for its fields. Without memory it is shorter, or NULL, which json-c
 * takes for null. */
struct json_object *cei_flight_json(struct cei_server *server);

#endif /* CEI_DAEMON_FLIGHT_H */
