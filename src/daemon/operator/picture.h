/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DAEMON_PICTURE_H
#define CEI_DAEMON_PICTURE_H

/* What the daemon is and does now, as JSON: the answers to ceoverlapctl, which describes the
 * fields in its manual. Front thread. */

#include "daemon/server/usage.h"

struct cei_server;                      /* daemon/server/server.h */
struct json_object;

/* Of users, clients that are there and those that have gone. The table has room. */
void cei_picture_usage(struct cei_server *server, struct cei_usage_table *ret_table);

/* The daemon, its clients and its links. */
struct json_object *cei_picture_all(struct cei_server *server);

/* The limits that hold. */
struct json_object *cei_picture_limits(const struct cei_server *server);

#endif /* CEI_DAEMON_PICTURE_H */
