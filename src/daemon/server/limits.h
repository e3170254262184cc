/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DAEMON_LIMITS_H
#define CEI_DAEMON_LIMITS_H

/* What the operator lets clients have. */

#include <stdint.h>

/* Plans of a client, whatever the operator says: each client has a table of so many. */
#define CEI_CLIENT_PLANS_MAX 1024u

/* Users with limits of their own. */
#define CEI_LIMITS_USERS_MAX 64u

struct cei_limits {
	uint32_t n_clients;             /* connections in all, ... */
	uint32_t n_clients_uid;         /* ... and of one user */
	uint32_t n_plans;               /* of a client, at most CEI_CLIENT_PLANS_MAX */
	uint32_t n_transfers;           /* of a plan */
	uint32_t n_chunks;              /* of all plans of a client; at most CEI_PLAN_LAUNCHES_MAX
					 * times as many are in flight */
	uint32_t n_regions;             /* pieces of memory of a client */
	uint32_t n_fds_uid;             /* descriptors that the daemon has open for all clients of a
					 * user; 0: half of those that it may have */
	uint32_t weight;                /* of a client's share of the engines */
	uint32_t most_urgent;           /* enum ceov_urgency: plans of a client that are more
					 * urgent go as this one */
	uint64_t n_bytes;               /* of memory of a client that the daemon maps; what is named
					 * by several plans counts once for each */
	uint64_t n_bytes_uid;           /* likewise, of all clients of a user */
	uint64_t max_chunk_bytes;       /* a chunk occupies its lane that long; bounds how long
					 * clients wait for each other */
	uint64_t bytes_per_s;           /* of a client's copies; 0: no limit */
};

struct cei_limits_user {
	uint32_t          uid;
	struct cei_limits limits;       /* n_clients means nothing here */
};

/* Limits of everybody. */
struct cei_limits_table {
	struct cei_limits      all;     /* of users that are not named */
	uint32_t               n_users;
	struct cei_limits_user users[CEI_LIMITS_USERS_MAX];
};

/* Limits that suit a node with a few training or serving processes. */
struct cei_limits cei_limits_default(void);

/* The limits of a user. The result points into the table. */
const struct cei_limits *cei_limits_of(const struct cei_limits_table *table, uint32_t uid);

/* The urgency with which a plan goes that asks for `urgency`: `most` at most. */
uint32_t cei_limits_cap(uint32_t most, uint32_t urgency);

#endif /* CEI_DAEMON_LIMITS_H */
