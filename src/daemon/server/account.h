/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DAEMON_ACCOUNT_H
#define CEI_DAEMON_ACCOUNT_H

/* What each user's clients have together. The front thread and the porter's use it. */

#include <pthread.h>
#include <stdint.h>

#include "base/list.h"
#include "daemon/server/limits.h"

struct cei_account {
	struct cei_list link;
	uint32_t        uid;
	uint32_t        n_clients;
	uint64_t        n_bytes;        /* mapped */
	uint64_t        n_fds;          /* descriptors, or promised to plans that come */
	struct cei_limits limits;       /* of this user */
};

struct cei_accounts {
	pthread_mutex_t   lock;         /* guards the list, what is in it, and limits */
	struct cei_list   list;
	struct cei_limits_table limits;
	uint32_t          n_clients;
	uint64_t          n_fds;
	uint64_t          n_fds_max;    /* of all users together */
};

void cei_accounts_init(struct cei_accounts *accounts, const struct cei_limits_table *limits);

/* So many descriptors all users may have together; before this call, none. */
void cei_accounts_limit_fds(struct cei_accounts *accounts, uint64_t n_fds_max);

/* Every client must have been taken out. */
void cei_accounts_fini(struct cei_accounts *accounts);

/* Sets limits for what comes; what clients have already they keep. */
void cei_accounts_limit(struct cei_accounts *accounts, const struct cei_limits_table *limits);

/* The limits of an account's user. */
struct cei_limits cei_account_limits(struct cei_accounts *accounts,
				     const struct cei_account *account);

/* Counts a client in. NULL: it may connect. Else the limit that refuses it, in words that nobody
 * frees. */
const char *cei_account_enter(struct cei_accounts *accounts, uint32_t uid,
			      struct cei_account **ret_account);
void        cei_account_leave(struct cei_accounts *accounts, struct cei_account *account);

/* Counts mapped bytes of a client that has *n_bytes already. NULL, and *n_bytes has grown; or the
 * limit that refuses it, and nothing is changed. */
const char *cei_account_take(struct cei_accounts *accounts, struct cei_account *account,
			     uint64_t *n_bytes, uint64_t n_more);
void        cei_account_give_back(struct cei_accounts *accounts, struct cei_account *account,
				  uint64_t *n_bytes, uint64_t n_less);

/* The same for descriptors that the daemon has open for a client, or will have soon. */
const char *cei_account_take_fds(struct cei_accounts *accounts, struct cei_account *account,
				 uint64_t *n_fds, uint64_t n_more);
void        cei_account_give_back_fds(struct cei_accounts *accounts, struct cei_account *account,
				      uint64_t *n_fds, uint64_t n_less);

#endif /* CEI_DAEMON_ACCOUNT_H */
