/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DAEMON_LIMITS_H
#define CEI_DAEMON_LIMITS_H

/* What the operator lets clients have. */

#include <stdint.h>

/* Plans of a client, whatever the operator says: each client has a table of so many. */
#define CEI_CLIENT_PLANS_MAX 1024u

struct cei_limits {
	uint32_t n_clients;             /* connections in all, ... */
	uint32_t n_clients_uid;         /* ... and of one user */
	uint32_t n_plans;               /* of a client, at most CEI_CLIENT_PLANS_MAX */
	uint32_t n_transfers;           /* of a plan */
	uint32_t n_regions;             /* pieces of memory of a client */
	uint64_t n_bytes;               /* of memory of a client that the daemon maps; what is named
					 * by several plans counts once for each */
	uint64_t n_bytes_uid;           /* likewise, of all clients of a user */
	uint64_t max_chunk_bytes;       /* a chunk occupies its lane that long; bounds how long
					 * clients wait for each other */
};

/* Limits that suit a node with a few training or serving processes. */
struct cei_limits cei_limits_default(void);

#endif /* CEI_DAEMON_LIMITS_H */
