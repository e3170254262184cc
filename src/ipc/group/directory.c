/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What this process exports, and who uses it. */

#include "ipc/group/group_private.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

int cei_group_is_name(const char *name)
{
	size_t n_bytes = strnlen(name, CEI_GROUP_NAME_BYTES);

	return n_bytes && n_bytes < CEI_GROUP_NAME_BYTES;
}

struct cei_group_entry *cei_group_entry(const struct cei_group *group, uint32_t id)
{
	struct cei_group_entry *entry;
	struct cei_table_node *node;

	for (node = cei_table_first(&group->tables[CEI_ENTRIES_BY_ID], id); node;
	     node = cei_table_next(node)) {
		entry = CEI_OWNER(node, struct cei_group_entry, by_id);
		if (entry->id == id)
			return entry;
	}
	return NULL;
}

static uint64_t key_of_name(uint32_t rank, const char *name)
{
	return cei_table_key(cei_hash(CEI_HASH_START, name, strlen(name)), rank);
}

static struct cei_group_entry *entry_named(const struct cei_group *group, uint32_t rank,
					   const char *name)
{
	struct cei_group_entry *entry;
	struct cei_table_node *node;

	for (node = cei_table_first(&group->tables[CEI_ENTRIES_BY_NAME],
				    key_of_name(rank, name));
	     node; node = cei_table_next(node)) {
		entry = CEI_OWNER(node, struct cei_group_entry, by_name);
		if (entry->export.rank == rank && !strcmp(entry->export.name, name))
			return entry;
	}
	return NULL;
}

/* --- exporting ------------------------------------------------------------------------ */

static int check(const struct cei_group *group, const struct cei_group_export *export)
{
	const struct cei_roster *roster = group->roster;

	if (export->rank >= roster->n_ranks || roster->process_of[export->rank] != roster->own ||
	    !cei_group_is_name(export->name) || export->n_bytes > CEI_GROUP_BYTES_MAX ||
	    export->fds.n > CEI_GROUP_FDS_MAX)
		return CEOV_ERR_INVALID;
	if (entry_named(group, export->rank, export->name))
		return CEOV_ERR_STATE;
	if (group->n_entries == CEI_GROUP_EXPORTS_MAX || group->last_id == CEI_GROUP_ID_MAX)
		return CEOV_ERR_NO_MEMORY;
	return 0;
}

int cei_group_export(struct cei_group *group, const struct cei_group_export *export,
		     uint32_t *ret_id)
{
	struct cei_group_entry *entry;
	int r = check(group, export);

	if (r)
		return r;
	entry = calloc(1, sizeof(*entry));
	if (!entry)
		return CEOV_ERR_NO_MEMORY;
	cei_list_init(&entry->users);
	cei_list_init(&entry->listeners);
	entry->id = ++group->last_id;
	entry->generation = 1;
	entry->export = *export;
	cei_list_append(&group->entries, &entry->link);
	cei_table_add(&group->tables[CEI_ENTRIES_BY_ID], &entry->by_id, entry->id);
	cei_table_add(&group->tables[CEI_ENTRIES_BY_NAME], &entry->by_name,
		      key_of_name(export->rank, export->name));
	group->n_entries++;
	*ret_id = entry->id;
	return 0;
}

void cei_group_show(struct cei_group *group, uint32_t id)
{
	struct cei_group_entry *entry = cei_group_entry(group, id);

	if (entry)
		entry->export.is_hidden = 0;
}

/* Its descriptors are given back, and then it is freed. */
static void end_entry(struct cei_group *group, struct cei_group_entry *entry)
{
	cei_counters_end_listeners(group, entry);
	cei_table_remove(&group->tables[CEI_ENTRIES_BY_ID], &entry->by_id);
	cei_list_remove(&entry->link);
	cei_list_append(&group->ended, &entry->link);
	group->n_entries--;
}

/* Renewals of this export end when all its users have heard of the generation; or because of a
 * user that was lost: blame, or CEOV_NOBODY. */
static void look_at_renewals(struct cei_group *group, struct cei_group_entry *entry,
			     uint32_t blame)
{
	struct cei_group_call *call;
	struct cei_list *node, *next;
	uint32_t lowest = UINT32_MAX;

	for (node = entry->users.next; node != &entry->users; node = node->next)
		if (CEI_OWNER(node, struct cei_group_user, of)->generation < lowest)
			lowest = CEI_OWNER(node, struct cei_group_user, of)->generation;
	for (node = group->calls.next; node != &group->calls; node = next) {
		next = node->next;
		call = CEI_OWNER(node, struct cei_group_call, link);
		if (call->kind != CEI_GROUP_CALL_RENEW || (uint32_t)call->use != entry->id)
			continue;
		if (blame != CEOV_NOBODY)
			cei_group_end(group, call, CEOV_ERR_PEER_LOST, blame);
		else if (lowest >= call->use >> 32)
			cei_group_end(group, call, 0, CEOV_NOBODY);
	}
}

static struct cei_group_user *first_user(const struct cei_group_entry *entry)
{
	return CEI_OWNER(entry->users.next, struct cei_group_user, of);
}

int cei_group_is_used_by(const struct cei_group_entry *entry, uint32_t process)
{
	const struct cei_list *node;

	for (node = entry->users.next; node != &entry->users; node = node->next)
		if (CEI_OWNER(node, struct cei_group_user, of)->process == process)
			return 1;
	return 0;
}

/* Takes the user out of its export. */
static void leave_entry(struct cei_group *group, struct cei_group_user *user)
{
	cei_list_remove(&user->of);
	cei_owed_forget(group, &user->reply);
	cei_owed_forget(group, &user->renew);
	user->entry->n_users--;
	user->entry = NULL;
}

static int refuse(struct cei_group *group, struct cei_group_peer *peer, uint64_t number,
		  int result)
{
	const struct cei_group_answer answer = {
		.type = CEI_GROUP_REPLY, .number = number, .result = result };

	(void)cei_group_answer(group, peer, &answer);
	return 0;
}

/* Users are forgotten, whose drops are still to come. Who has not been told that it found the
 * export has not found it. */
static void force_out(struct cei_group *group, struct cei_group_entry *entry)
{
	struct cei_group_user *user;
	int is_unheard;

	while (entry->n_users) {
		user = first_user(entry);
		is_unheard = user->reply.state == CEI_OWED_WAITS && !user->reply.was_sent;
		leave_entry(group, user);
		if (!is_unheard)
			continue;
		(void)refuse(group, group->peers[user->process], user->number, CEOV_NONE);
		cei_group_end_user(group, user);
	}
	look_at_renewals(group, entry, CEOV_NOBODY);
}

int cei_group_withdraw(struct cei_group *group, uint32_t id, int is_forced)
{
	struct cei_group_entry *entry = cei_group_entry(group, id);

	if (!id || id > group->last_id)
		return CEOV_ERR_INVALID;
	if (!entry)
		return 0;
	entry->is_withdrawn = 1;
	cei_table_remove(&group->tables[CEI_ENTRIES_BY_NAME], &entry->by_name);
	if (is_forced)
		force_out(group, entry);
	if (entry->n_users)
		return CEOV_PENDING;
	end_entry(group, entry);
	return 0;
}

void cei_group_withdraw_all(struct cei_group *group)
{
	while (!cei_list_is_empty(&group->entries))
		(void)cei_group_withdraw(group, CEI_OWNER(group->entries.next,
							  struct cei_group_entry, link)->id, 1);
}

uint32_t cei_group_n_users(const struct cei_group *group, uint32_t id)
{
	const struct cei_group_entry *entry = cei_group_entry(group, id);

	return entry ? entry->n_users : 0;
}

/* --- users -------------------------------------------------------------------------------- */

static struct cei_group_user *user_of(const struct cei_group *group, uint32_t process,
				      uint64_t number)
{
	struct cei_group_user *user;
	struct cei_table_node *node;

	for (node = cei_table_first(&group->tables[CEI_USERS_BY_NUMBER],
				    cei_group_key(process, number));
	     node; node = cei_table_next(node)) {
		user = CEI_OWNER(node, struct cei_group_user, by_number);
		if (user->process == process && user->number == number)
			return user;
	}
	return NULL;
}

static void end_user_blaming(struct cei_group *group, struct cei_group_user *user, uint32_t blame)
{
	struct cei_group_peer *peer = group->peers[user->process];
	struct cei_group_entry *entry = user->entry;
	int is_late = entry && user->generation < entry->generation;

	if (entry) {
		leave_entry(group, user);
		if (!cei_group_is_used_by(entry, user->process))
			cei_counters_unused(group, entry, peer);
		look_at_renewals(group, entry, is_late ? blame : CEOV_NOBODY);
		if (!entry->n_users && entry->is_withdrawn)
			end_entry(group, entry);
	}
	cei_list_remove(&user->link);
	peer->n_users--;
	cei_table_remove(&group->tables[CEI_USERS_BY_NUMBER], &user->by_number);
	cei_life_watch(group, peer);
	cei_pool_put(&group->pools[CEI_USERS], user);
}

void cei_group_end_user(struct cei_group *group, struct cei_group_user *user)
{
	end_user_blaming(group, user, CEOV_NOBODY);
}

void cei_group_end_users(struct cei_group *group, struct cei_group_peer *peer)
{
	uint32_t blame = group->life[peer->process] == CEI_GROUP_DEPARTED ? CEOV_NOBODY :
		group->roster->first_rank[peer->process];

	while (!cei_list_is_empty(&peer->users))
		end_user_blaming(group, CEI_OWNER(peer->users.next, struct cei_group_user, link),
				 blame);
}

int cei_group_hear_find(struct cei_group *group, struct cei_group_peer *peer, uint64_t number,
			const struct cei_group_find *find)
{
	const struct cei_roster *roster = group->roster;
	struct cei_group_entry *entry;
	struct cei_group_user *user;

	if (!number || find->rank >= roster->n_ranks ||
	    roster->process_of[find->rank] != roster->own ||
	    !cei_group_is_name(find->name))
		return CEOV_ERR_INVALID;
	user = user_of(group, peer->process, number);
	if (user)       /* it comes twice: the answer is owed, or was heard */
		return cei_group_carrier_of(group, peer->process)->is_sure ? CEOV_ERR_INVALID : 0;
	entry = entry_named(group, find->rank, find->name);
	if (!entry || entry->export.is_hidden)
		return refuse(group, peer, number, CEOV_NONE);
	if (peer->n_users == CEI_GROUP_USES_MAX)
		return refuse(group, peer, number, CEOV_ERR_NO_MEMORY);
	/* answers that wait are bounded, these by the process's reading, too */
	user = peer->n_replies < CEI_GROUP_ANSWERS_MAX ?
		cei_pool_take(&group->pools[CEI_USERS]) : NULL;
	if (!user) {
		peer->n_dropped++;
		return CEOV_FULL;
	}
	user->number = number;
	user->process = peer->process;
	user->entry = entry;
	user->generation = entry->generation;
	cei_list_init(&user->link);
	cei_list_init(&user->of);
	cei_list_append(&peer->users, &user->link);
	peer->n_users++;
	cei_table_add(&group->tables[CEI_USERS_BY_NUMBER], &user->by_number,
		      cei_group_key(peer->process, number));
	cei_life_watch(group, peer);
	cei_list_append(&entry->users, &user->of);
	entry->n_users++;
	/* Owed, and not said once: else a FIND that comes again behind its DROP would begin a use
	 * that nobody ends. */
	cei_owe(group, &user->reply, CEI_OWED_REPLY, peer->process, 0);
	return 0;
}

int cei_group_hear_drop(struct cei_group *group, struct cei_group_peer *peer, uint64_t number)
{
	struct cei_group_user *user = user_of(group, peer->process, number);

	if (user)
		cei_group_end_user(group, user);
	else if (cei_group_carrier_of(group, peer->process)->is_sure)
		return CEOV_ERR_INVALID;        /* it does not use that */
	return 0;
}

void cei_group_fill_reply(struct cei_group *group, const struct cei_owed *owed,
			  struct cei_group_action *action)
{
	const struct cei_group_user *user = CEI_OWNER(owed, struct cei_group_user, reply);
	const struct cei_group_export *export = &user->entry->export;
	struct cei_group_reply *reply = &action->message.reply;

	reply->use = user->number;
	reply->id = user->entry->id;
	reply->generation = user->entry->generation;
	reply->n_bytes = export->n_bytes;
	memcpy(reply->bytes, export->bytes, export->n_bytes);
	if (!cei_group_carrier_of(group, user->process)->has_fds)
		return;
	reply->n_fds = export->fds.n;
	action->fds = export->fds;
}

void cei_group_reply_unsent(struct cei_group *group, struct cei_owed *owed, int result,
			    int native_code)
{
	struct cei_group_user *user = CEI_OWNER(owed, struct cei_group_user, reply);
	const struct cei_group_answer answer = {
		.type = CEI_GROUP_REPLY, .number = user->number, .result = result,
		.native_code = native_code };
	struct cei_group_peer *peer = group->peers[user->process];

	cei_group_end_user(group, user);
	(void)cei_group_answer(group, peer, &answer);
}

/* --- renewing ------------------------------------------------------------------------------- */

void cei_group_renew(struct cei_group *group, struct cei_group_call *call, uint32_t id)
{
	struct cei_group_entry *entry = cei_group_entry(group, id);
	struct cei_group_user *user;
	struct cei_list *node;

	cei_group_begin(group, call, CEI_GROUP_CALL_RENEW);
	if (!entry) {
		cei_group_end(group, call, 0, CEOV_NOBODY);
		return;
	}
	entry->generation++;
	cei_counters_end_listeners(group, entry);
	call->use = (uint64_t)entry->generation << 32 | entry->id;
	for (node = entry->users.next; node != &entry->users; node = node->next) {
		user = CEI_OWNER(node, struct cei_group_user, of);
		if (cei_group_carrier_of(group, user->process)->has_fds)
			user->generation = entry->generation;   /* the memory is shared */
		else
			cei_owe(group, &user->renew, CEI_OWED_RENEW, user->process, 0);
	}
	look_at_renewals(group, entry, CEOV_NOBODY);
}

void cei_group_fill_renew(const struct cei_owed *owed, struct cei_group_message *message)
{
	struct cei_group_user *user = CEI_OWNER(owed, struct cei_group_user, renew);

	message->use.use = user->number;
	message->use.generation = user->renewing = user->entry->generation;
}

void cei_group_renew_paid(struct cei_group *group, struct cei_owed *owed)
{
	struct cei_group_user *user = CEI_OWNER(owed, struct cei_group_user, renew);

	user->generation = user->renewing;
	look_at_renewals(group, user->entry, CEOV_NOBODY);
}
