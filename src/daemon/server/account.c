/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Counts what users have, and refuses more than they may have. */

#include "daemon/server/account.h"

#include <stdlib.h>

void cei_accounts_init(struct cei_accounts *accounts, const struct cei_limits_table *limits)
{
	pthread_mutex_init(&accounts->lock, NULL);
	cei_list_init(&accounts->list);
	accounts->limits = *limits;
	accounts->n_clients = 0;
	accounts->n_fds = accounts->n_fds_max = 0;
}

void cei_accounts_limit_fds(struct cei_accounts *accounts, uint64_t n_fds_max)
{
	pthread_mutex_lock(&accounts->lock);
	accounts->n_fds_max = n_fds_max;
	pthread_mutex_unlock(&accounts->lock);
}

void cei_accounts_fini(struct cei_accounts *accounts)
{
	pthread_mutex_destroy(&accounts->lock);
}

void cei_accounts_limit(struct cei_accounts *accounts, const struct cei_limits_table *limits)
{
	struct cei_account *account;
	struct cei_list *node;

	pthread_mutex_lock(&accounts->lock);
	accounts->limits = *limits;
	for (node = accounts->list.next; node != &accounts->list; node = node->next) {
		account = CEI_OWNER(node, struct cei_account, link);
		account->limits = *cei_limits_of(limits, account->uid);
	}
	pthread_mutex_unlock(&accounts->lock);
}

struct cei_limits cei_account_limits(struct cei_accounts *accounts,
				     const struct cei_account *account)
{
	struct cei_limits limits;

	pthread_mutex_lock(&accounts->lock);
	limits = account->limits;
	pthread_mutex_unlock(&accounts->lock);
	return limits;
}

/* Finds or makes the user's account. NULL: there is no memory. With the lock held. */
static struct cei_account *account_of(struct cei_accounts *accounts, uint32_t uid)
{
	struct cei_account *account;
	struct cei_list *node;

	for (node = accounts->list.next; node != &accounts->list; node = node->next) {
		account = CEI_OWNER(node, struct cei_account, link);
		if (account->uid == uid)
			return account;
	}
	account = calloc(1, sizeof(*account));
	if (!account)
		return NULL;
	account->uid = uid;
	account->limits = *cei_limits_of(&accounts->limits, uid);
	cei_list_append(&accounts->list, &account->link);
	return account;
}

/* With the lock held. */
static void drop_empty(struct cei_account *account)
{
	if (account->n_clients)
		return;
	cei_list_remove(&account->link);
	free(account);
}

const char *cei_account_enter(struct cei_accounts *accounts, uint32_t uid,
			      struct cei_account **ret_account)
{
	struct cei_account *account;
	const char *limit = NULL;

	pthread_mutex_lock(&accounts->lock);
	account = account_of(accounts, uid);
	if (!account)
		limit = "memory of the daemon";
	else if (accounts->n_clients >= accounts->limits.all.n_clients)
		limit = "clients";
	else if (account->n_clients >= account->limits.n_clients_uid)
		limit = "clients_per_user";
	if (!limit) {
		accounts->n_clients++;
		account->n_clients++;
		*ret_account = account;
	} else if (account) {
		drop_empty(account);
	}
	pthread_mutex_unlock(&accounts->lock);
	return limit;
}

void cei_account_leave(struct cei_accounts *accounts, struct cei_account *account)
{
	pthread_mutex_lock(&accounts->lock);
	accounts->n_clients--;
	account->n_clients--;
	drop_empty(account);
	pthread_mutex_unlock(&accounts->lock);
}

const char *cei_account_take(struct cei_accounts *accounts, struct cei_account *account,
			     uint64_t *n_bytes, uint64_t n_more)
{
	const char *limit = NULL;

	pthread_mutex_lock(&accounts->lock);
	if (n_more > account->limits.n_bytes || *n_bytes > account->limits.n_bytes - n_more)
		limit = "bytes";
	else if (n_more > account->limits.n_bytes_uid ||
		 account->n_bytes > account->limits.n_bytes_uid - n_more)
		limit = "bytes_per_user";
	if (!limit) {
		*n_bytes += n_more;
		account->n_bytes += n_more;
	}
	pthread_mutex_unlock(&accounts->lock);
	return limit;
}

void cei_account_give_back(struct cei_accounts *accounts, struct cei_account *account,
			   uint64_t *n_bytes, uint64_t n_less)
{
	pthread_mutex_lock(&accounts->lock);
	*n_bytes -= n_less;
	account->n_bytes -= n_less;
	pthread_mutex_unlock(&accounts->lock);
}

/* With the lock held. */
static uint64_t most_fds(const struct cei_accounts *accounts, const struct cei_account *account)
{
	uint64_t most = account->limits.n_fds_uid;

	if (!most)
		return accounts->n_fds_max / 2;
	return most < accounts->n_fds_max ? most : accounts->n_fds_max;
}

const char *cei_account_take_fds(struct cei_accounts *accounts, struct cei_account *account,
				 uint64_t *n_fds, uint64_t n_more)
{
	const char *limit = NULL;
	uint64_t most;

	pthread_mutex_lock(&accounts->lock);
	most = most_fds(accounts, account);
	if (n_more > most || account->n_fds > most - n_more)
		limit = "descriptors_per_user";
	else if (n_more > accounts->n_fds_max - accounts->n_fds)
		limit = "LimitNOFILE=";
	if (!limit) {
		*n_fds += n_more;
		account->n_fds += n_more;
		accounts->n_fds += n_more;
	}
	pthread_mutex_unlock(&accounts->lock);
	return limit;
}

void cei_account_give_back_fds(struct cei_accounts *accounts, struct cei_account *account,
			       uint64_t *n_fds, uint64_t n_less)
{
	pthread_mutex_lock(&accounts->lock);
	*n_fds -= n_less;
	account->n_fds -= n_less;
	accounts->n_fds -= n_less;
	pthread_mutex_unlock(&accounts->lock);
}
