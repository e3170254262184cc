/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What this process asks for, and uses of others' exports. */

#include "ipc/group/group_private.h"

#include <errno.h>
#include <string.h>

static struct cei_group_use *use_of(const struct cei_group *group, uint32_t process,
				    uint64_t number)
{
	struct cei_group_use *use;
	struct cei_table_node *node;

	for (node = cei_table_first(&group->tables[CEI_USES_BY_NUMBER],
				    cei_group_key(process, number));
	     node; node = cei_table_next(node)) {
		use = CEI_OWNER(node, struct cei_group_use, by_number);
		if (use->owed.process == process && use->number == number)
			return use;
	}
	return NULL;
}

struct cei_group_use *cei_group_use_of(const struct cei_group *group, uint32_t process,
				       uint32_t id, struct cei_group_use *after)
{
	struct cei_group_use *use;
	struct cei_table_node *node;

	for (node = after ? cei_table_next(&after->by_id) :
	     cei_table_first(&group->tables[CEI_USES_BY_ID], cei_group_key(process, id)); node;
	     node = cei_table_next(node)) {
		use = CEI_OWNER(node, struct cei_group_use, by_id);
		if (use->owed.process == process && use->id == id)
			return use;
	}
	return NULL;
}

struct cei_group_use *cei_group_held(const struct cei_group *group, uint32_t rank,
				     uint64_t number)
{
	struct cei_group_use *use = use_of(group, group->roster->process_of[rank], number);

	return use && use->state == CEI_USE_HELD ? use : NULL;
}

static struct cei_group_use *add_use(struct cei_group *group, struct cei_group_peer *peer,
				     uint64_t number)
{
	struct cei_group_use *use = cei_pool_take(&group->pools[CEI_USES]);

	if (!use)
		return NULL;
	use->number = number;
	use->owed.process = peer->process;
	cei_list_init(&use->renewed);
	cei_list_init(&use->link);
	cei_list_append(&peer->uses, &use->link);
	cei_table_add(&group->tables[CEI_USES_BY_NUMBER], &use->by_number,
		      cei_group_key(peer->process, number));
	return use;
}

static void end_use(struct cei_group *group, struct cei_group_use *use)
{
	struct cei_group_peer *peer = group->peers[use->owed.process];

	cei_owed_forget(group, &use->owed);
	peer->n_strays -= use->is_stray != 0;
	cei_list_remove(&use->renewed);
	cei_list_remove(&use->link);
	cei_table_remove(&group->tables[CEI_USES_BY_NUMBER], &use->by_number);
	cei_table_remove(&group->tables[CEI_USES_BY_ID], &use->by_id);
	cei_pool_put(&group->pools[CEI_USES], use);
}

/* --- calls ------------------------------------------------------------------------------ */

static int check_find(const struct cei_group *group, uint32_t rank, const char *name)
{
	const struct cei_roster *roster = group->roster;

	if (rank >= roster->n_ranks || roster->process_of[rank] == roster->own ||
	    !cei_group_is_name(name))
		return CEOV_ERR_INVALID;
	if (group->leave_ns)
		return CEOV_ERR_STATE;
	if (group->is_expelled || group->life[roster->process_of[rank]] != CEI_GROUP_UP)
		return CEOV_ERR_PEER_LOST;
	return 0;
}

void cei_group_find(struct cei_group *group, struct cei_group_call *call, uint32_t rank,
		    const char *name)
{
	int r = check_find(group, rank, name);
	struct cei_group_peer *peer = NULL;
	struct cei_group_use *use = NULL;

	if (call->deadline_ns > group->now_ns + CEI_GROUP_FIND_NS)
		call->deadline_ns = group->now_ns + CEI_GROUP_FIND_NS;
	cei_group_begin(group, call, CEI_GROUP_CALL_FIND);
	if (!r)
		peer = cei_group_peer(group, group->roster->process_of[rank]);
	if (peer)
		use = add_use(group, peer, ++group->last_number);
	if (!use) {
		cei_group_end(group, call, r ? r : CEOV_ERR_NO_MEMORY, rank);
		return;
	}
	use->state = CEI_USE_ASKED;
	use->rank = rank;
	use->call = call;
	call->use = use->number;
	call->asked = use;
	memcpy(use->name, name, strlen(name));
	cei_owe(group, &use->owed, CEI_OWED_FIND, peer->process, use->number);
}

static int is_held(const struct cei_group *group, uint32_t process, uint32_t id)
{
	struct cei_group_use *use = NULL;

	while ((use = cei_group_use_of(group, process, id, use)) != NULL)
		if (use->state == CEI_USE_HELD)
			return 1;
	return 0;
}

static void drop(struct cei_group *group, struct cei_group_use *use)
{
	if (group->life[use->owed.process] != CEI_GROUP_UP) {
		end_use(group, use);
		return;
	}
	use->state = CEI_USE_DROPPED;
	if (!is_held(group, use->owed.process, use->id))
		cei_counters_dropped(group, group->peers[use->owed.process], use->id);
	cei_owe(group, &use->owed, CEI_OWED_DROP, use->owed.process, 0);
}

void cei_group_drop(struct cei_group *group, uint32_t rank, uint64_t number)
{
	struct cei_group_use *use = cei_group_held(group, rank, number);

	if (use)
		drop(group, use);
}

uint32_t cei_group_generation(const struct cei_group *group, uint32_t rank, uint64_t number)
{
	const struct cei_group_use *use = cei_group_held(group, rank, number);

	return use ? use->generation : 0;
}

/* Nobody waits any more. What was not sent yet is not asked at all. */
void cei_group_end_find(struct cei_group *group, struct cei_group_call *call, int result)
{
	struct cei_group_use *use = call->asked;
	uint32_t rank = use->rank;

	use->call = NULL;
	use->state = CEI_USE_UNWANTED;
	if (!use->owed.was_sent)
		end_use(group, use);
	cei_group_end(group, call, result, rank);
}

void cei_group_end_finds(struct cei_group *group)
{
	struct cei_list *node, *next;
	struct cei_group_call *call;

	for (node = group->calls.next; node != &group->calls; node = next) {
		next = node->next;
		call = CEI_OWNER(node, struct cei_group_call, link);
		if (call->kind == CEI_GROUP_CALL_FIND)
			cei_group_end_find(group, call, CEOV_ERR_STATE);
	}
}

/* --- answers ---------------------------------------------------------------------------- */

void cei_group_fill_find(const struct cei_owed *owed, struct cei_group_message *message)
{
	const struct cei_group_use *use = CEI_OWNER(owed, struct cei_group_use, owed);

	message->find.rank = use->rank;
	memcpy(message->find.name, use->name, sizeof(message->find.name));
}

void cei_group_fill_drop(const struct cei_owed *owed, struct cei_group_message *message)
{
	message->use.use = CEI_OWNER(owed, struct cei_group_use, owed)->number;
}

void cei_group_drop_paid(struct cei_group *group, struct cei_owed *owed)
{
	end_use(group, CEI_OWNER(owed, struct cei_group_use, owed));
}

/* An export that nobody wants any more, or wanted: is dropped. An earlier DROP may have come before
 * the use began, so that it was heard proves nothing: it is said again, under a new number. */
static int drop_stray(struct cei_group *group, struct cei_group_peer *peer,
		      struct cei_group_use *use, uint64_t number)
{
	if (use) {
		cei_owe(group, &use->owed, CEI_OWED_DROP, peer->process, 0);
		return 0;
	}
	if (peer->n_strays == CEI_GROUP_STRAYS_MAX)
		return CEOV_FULL;
	use = add_use(group, peer, number);
	if (!use)
		return CEOV_FULL;
	use->is_stray = 1;
	peer->n_strays++;
	drop(group, use);
	return 0;
}

/* The call gets what it asked for. Its descriptors may not have come, if this process has no more
 * of them free. */
static void hand_over(struct cei_group *group, struct cei_group_use *use,
		      const struct cei_group_reply *reply, struct cei_group_fds *fds)
{
	struct cei_group_call *call = use->call;
	struct cei_group_found *found = call->found;
	uint32_t n = fds ? fds->n : 0;

	use->call = NULL;
	if (n != reply->n_fds) {
		drop(group, use);
		call->native_code = EMFILE;
		cei_group_end(group, call, CEOV_ERR_SYSTEM, use->rank);
		return;
	}
	found->id = use->id;
	found->generation = use->generation;
	found->n_bytes = reply->n_bytes;
	memcpy(found->bytes, reply->bytes, reply->n_bytes);
	found->fds.n = n;
	if (n) {
		found->fds = *fds;
		fds->n = 0;
	}
	cei_group_end(group, call, 0, CEOV_NOBODY);
}

static int is_reply(const struct cei_group *group, const struct cei_group_peer *peer,
		    const struct cei_group_reply *reply, const struct cei_group_use *use)
{
	const struct cei_group_carrier *carrier = cei_group_carrier_of(group, peer->process);

	if (!reply->use || reply->use > group->last_number ||
	    (!carrier->has_fds && reply->n_fds))
		return 0;
	if (!carrier->is_sure)
		return 1;       /* it may have come before */
	return use && use->owed.was_sent &&
		(use->state == CEI_USE_ASKED || use->state == CEI_USE_UNWANTED);
}

int cei_group_hear_reply(struct cei_group *group, struct cei_group_peer *peer,
			 const struct cei_group_reply *reply, struct cei_group_fds *fds)
{
	struct cei_group_use *use = use_of(group, peer->process, reply->use);
	struct cei_group_call *call;

	if (!is_reply(group, peer, reply, use))
		return CEOV_ERR_INVALID;
	if (!use || use->state == CEI_USE_DROPPED)
		return reply->result ? 0 : drop_stray(group, peer, use, reply->use);
	if (use->state == CEI_USE_HELD)
		return 0;
	cei_owed_forget(group, &use->owed);
	call = use->call;
	if (reply->result) {
		if (call) {
			call->native_code = reply->native_code;
			cei_group_end(group, call, reply->result, use->rank);
		}
		end_use(group, use);
		return 0;
	}
	use->id = reply->id;
	if (use->generation < reply->generation)        /* a RENEW may have been faster */
		use->generation = reply->generation;
	use->state = CEI_USE_HELD;
	cei_table_add(&group->tables[CEI_USES_BY_ID], &use->by_id,
		      cei_group_key(peer->process, use->id));
	if (call)
		hand_over(group, use, reply, fds);
	else
		drop(group, use);
	return 0;
}

/* The layer above zeroes its image before the answer goes out: see cei_group_next(). */
int cei_group_hear_renew(struct cei_group *group, struct cei_group_peer *peer,
			 const struct cei_group_use_named *renew)
{
	struct cei_group_use *use = use_of(group, peer->process, renew->use);

	if (renew->use > group->last_number)
		return CEOV_ERR_INVALID;
	if (!use || use->generation >= renew->generation)
		return 0;
	use->generation = renew->generation;
	cei_counters_renewed(group, use);
	if (use->state == CEI_USE_HELD && cei_list_is_empty(&use->renewed))
		cei_list_append(&group->renewed, &use->renewed);
	return 0;
}

/* Those that are held stay until they are dropped. */
void cei_group_end_uses(struct cei_group *group, struct cei_group_peer *peer)
{
	struct cei_group_use *use;
	struct cei_list *node, *next;

	for (node = peer->uses.next; node != &peer->uses; node = next) {
		next = node->next;
		use = CEI_OWNER(node, struct cei_group_use, link);
		if (use->call)
			cei_group_end(group, use->call, CEOV_ERR_PEER_LOST, use->rank);
		if (use->state != CEI_USE_HELD)
			end_use(group, use);
	}
}
