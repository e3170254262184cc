/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_STORE_SERVER_H
#define CEI_STORE_SERVER_H

/*
 * The store in process 0: it accepts the other processes, gathers their bytes, and sends those of
 * all to each; at a path, which the process with the first rank of a node opens, it sends each two
 * of them a socket to each other. It runs within the calls below; there is no thread.
 *
 * Anybody may connect. A connection that sends no valid HELLO for a second, or something else, is
 * closed; at most CEI_STORE_STRANGERS_MAX have not said who they are, and the oldest of them
 * goes when one more comes. A process whose connection ends before it was told JOINED connects
 * again. When all have joined, the store stops listening.
 */

#include "net/links.h"
#include "net/means.h"

#define CEI_STORE_STRANGERS_MAX 256u

struct cei_store_server;

/* Listens at exchange->where. CEOV_NONE: another program listens there. Other errors are raised. */
int  cei_store_server_open(const struct cei_exchange *exchange, uint64_t deadline_ns,
			   struct cei_store_server **ret_server);

int  cei_store_server_gather(struct cei_store_server *server, const void *own, uint32_t n_bytes,
			     uint64_t deadline_ns, struct cei_gathered *ret_gathered);

/* At a path. */
int  cei_store_server_link(struct cei_store_server *server, uint64_t deadline_ns,
			   struct cei_links *ret_links);

void cei_store_server_close(struct cei_store_server *server);

#endif /* CEI_STORE_SERVER_H */
