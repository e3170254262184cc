/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What the files of the group's state machine stand on: pools of objects, records of processes, the
 * ends of calls. */

#include "ipc/group/group_private.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK 64u       /* objects that a pool gets at once, beside those that are needed */

/* --- pools --------------------------------------------------------------------------- */

void cei_pool_init(struct cei_pool *pool, size_t object_bytes, uint32_t n_needed)
{
	cei_list_init(&pool->free);
	cei_list_init(&pool->chunks);
	pool->object_bytes = (uint32_t)object_bytes;
	pool->n_needed = n_needed;
}

int cei_pool_reserve(struct cei_pool *pool)
{
	uint32_t i, n = pool->n_needed + CHUNK;
	struct cei_list *chunk;
	char *object;

	if (pool->n_free >= pool->n_needed)
		return 0;
	chunk = calloc(1, sizeof(*chunk) + (size_t)n * pool->object_bytes);
	if (!chunk)
		return CEOV_ERR_NO_MEMORY;
	cei_list_init(chunk);
	cei_list_append(&pool->chunks, chunk);
	object = (char *)(chunk + 1);
	for (i = 0; i < n; i++, object += pool->object_bytes)
		cei_pool_put(pool, object);
	return 0;
}

void cei_pool_free(struct cei_pool *pool)
{
	while (pool->chunks.next && !cei_list_is_empty(&pool->chunks))
		free(cei_list_take(&pool->chunks));
}

void *cei_pool_take(struct cei_pool *pool)
{
	struct cei_list *node = cei_list_take(&pool->free);

	if (!node)
		return NULL;
	pool->n_free--;
	memset(node, 0, pool->object_bytes);
	return node;
}

void cei_pool_put(struct cei_pool *pool, void *object)
{
	struct cei_list *node = object;

	cei_list_init(node);
	cei_list_append(pool->free.next, node); /* the one that was used last comes first */
	pool->n_free++;
}

uint64_t cei_group_key(uint32_t process, uint64_t number)
{
	return cei_table_key(number, process);
}

void cei_group_due_at(struct cei_group *group, uint64_t at_ns)
{
	if (at_ns < group->now_ns)
		at_ns = group->now_ns;
	if (at_ns < group->due_ns)
		group->due_ns = at_ns;
}

/* --- processes ------------------------------------------------------------------------ */

uint32_t cei_group_own_node(const struct cei_group *group)
{
	return group->roster->node_of[group->roster->own];
}

int cei_group_is_far(const struct cei_group *group, uint32_t process)
{
	return group->roster->node_of[process] != cei_group_own_node(group);
}

const struct cei_group_carrier *cei_group_carrier_of(const struct cei_group *group,
						     uint32_t process)
{
	return cei_group_is_far(group, process) ? &group->far : &group->near;
}

struct cei_group_peer *cei_group_peer(struct cei_group *group, uint32_t process)
{
	struct cei_group_peer *peer = group->peers[process];
	uint32_t kind;

	if (peer || process == group->roster->own)
		return peer;
	peer = cei_pool_take(&group->pools[CEI_PEERS]);
	if (!peer)
		return NULL;
	cei_list_init(&peer->link);
	cei_list_init(&peer->asking);
	cei_list_init(&peer->watched);
	for (kind = 0; kind < CEI_OWED_KINDS; kind++)
		cei_list_init(&peer->waiting[kind]);
	cei_list_init(&peer->asked);
	cei_list_init(&peer->answers);
	cei_list_init(&peer->uses);
	cei_list_init(&peer->users);
	cei_list_init(&peer->notes);
	cei_list_init(&peer->listeners);
	cei_list_init(&peer->aborts);
	peer->process = process;
	peer->limit_told = UINT64_MAX;
	peer->heard_ns = group->now_ns;
	group->peers[process] = peer;
	cei_list_init(&peer->known);
	cei_list_append(&group->known, &peer->known);
	if (group->life[process] == CEI_GROUP_UP)
		group->n_byes++;
	if (group->says_bye)
		cei_owe(group, &peer->bye, CEI_OWED_BYE, process, 0);
	return peer;
}

/* --- calls ----------------------------------------------------------------------------- */

void cei_group_begin(struct cei_group *group, struct cei_group_call *call,
		     enum cei_group_call_kind kind)
{
	call->kind = kind;
	call->is_ended = 0;
	call->result = 0;
	call->native_code = 0;
	call->blame = CEOV_NOBODY;
	call->has_departed = 0;
	call->use = 0;
	cei_list_init(&call->link);
	cei_list_append(kind == CEI_GROUP_CALL_BARRIER ? &group->barrier.calls : &group->calls,
			&call->link);
	cei_group_due_at(group, call->deadline_ns);
}

void cei_group_end(struct cei_group *group, struct cei_group_call *call, int result,
		   uint32_t blame)
{
	const struct cei_roster *roster = group->roster;

	cei_list_remove(&call->link);
	call->result = result;
	call->blame = result ? blame : CEOV_NOBODY;
	call->has_departed = result == CEOV_ERR_PEER_LOST && blame < roster->n_ranks &&
		group->life[roster->process_of[blame]] == CEI_GROUP_DEPARTED;
	call->is_ended = 1;
	group->has_ended = 1;
}
