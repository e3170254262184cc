/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Makes and frees the state machine of a group, hands its events to the files that know what they
 * mean, and gives its actions. */

#include "ipc/group/group_private.h"

#include <stdlib.h>
#include <string.h>

/* Records that one event may need: the news of losses go to so many processes. */
#define PEERS_NEEDED 192u
#define LATE_PARTS   8u         /* this process stood still if it is so late, of a timeout */

/* --- what is owed ---------------------------------------------------------------------- */

static void fill_owed(struct cei_group *group, const struct cei_owed *owed,
		      struct cei_group_action *action)
{
	static const uint8_t types[CEI_OWED_KINDS] = {
		[CEI_OWED_DROP] = CEI_GROUP_DROP, [CEI_OWED_REPLY] = CEI_GROUP_REPLY,
		[CEI_OWED_FIND] = CEI_GROUP_FIND, [CEI_OWED_RENEW] = CEI_GROUP_RENEW,
		[CEI_OWED_CALLED] = CEI_GROUP_BARRIER, [CEI_OWED_ROUND] = CEI_GROUP_BARRIER,
		[CEI_OWED_DONE] = CEI_GROUP_BARRIER, [CEI_OWED_NEWS] = CEI_GROUP_GONE,
		[CEI_OWED_LIMIT] = CEI_GROUP_LIMIT, [CEI_OWED_LATE] = CEI_GROUP_LATE,
		[CEI_OWED_BEAT] = CEI_GROUP_BEAT, [CEI_OWED_BYE] = CEI_GROUP_BYE,
		[CEI_OWED_RAISE] = CEI_GROUP_RAISE, [CEI_OWED_ASK] = CEI_GROUP_ASK,
		[CEI_OWED_VALUE] = CEI_GROUP_VALUE, [CEI_OWED_ABORT] = CEI_GROUP_ABORT,
	};
	struct cei_group_message *message = &action->message;

	message->type = types[owed->kind];
	message->number = owed->number;
	switch ((enum cei_owed_kind)owed->kind) {
	case CEI_OWED_DROP:
		cei_group_fill_drop(owed, message);
		break;
	case CEI_OWED_REPLY:
		cei_group_fill_reply(group, owed, action);
		break;
	case CEI_OWED_FIND:
		cei_group_fill_find(owed, message);
		break;
	case CEI_OWED_RENEW:
		cei_group_fill_renew(owed, message);
		break;
	case CEI_OWED_CALLED:
	case CEI_OWED_ROUND:
	case CEI_OWED_DONE:
		cei_barrier_fill(group, owed, message);
		break;
	case CEI_OWED_ABORT:
		cei_aborts_fill(owed, message);
		break;
	case CEI_OWED_RAISE:
	case CEI_OWED_ASK:
	case CEI_OWED_VALUE:
		cei_counters_fill(owed, message);
		break;
	case CEI_OWED_NEWS:
	case CEI_OWED_LIMIT:
	case CEI_OWED_LATE:
	case CEI_OWED_BYE:
		cei_group_fill_life(group, owed, message);
		break;
	case CEI_OWED_BEAT:
	case CEI_OWED_KINDS:
		break;
	}
}

static void owed_paid(struct cei_group *group, struct cei_owed *owed)
{
	struct cei_group_peer *peer = group->peers[owed->process];

	switch ((enum cei_owed_kind)owed->kind) {
	case CEI_OWED_DROP:
		cei_group_drop_paid(group, owed);
		break;
	case CEI_OWED_RENEW:
		cei_group_renew_paid(group, owed);
		break;
	case CEI_OWED_RAISE:
	case CEI_OWED_ASK:
		cei_counters_note_paid(group, owed);
		break;
	case CEI_OWED_ABORT:
		cei_aborts_paid(group, owed);
		break;
	case CEI_OWED_VALUE:
		cei_counters_value_paid(group, owed);
		break;
	case CEI_OWED_NEWS:
		cei_group_news_paid(group, peer);
		break;
	case CEI_OWED_BYE:
		peer->has_heard_bye = 1;
		group->n_byes--;
		break;
	default:
		break;
	}
	cei_group_leave_go(group);
}

static const struct cei_owed_ops owed_ops = {
	.fill = fill_owed,
	.paid = owed_paid,
	.unsent = cei_group_reply_unsent,
	.answered = cei_group_leave_go,
	.asked = cei_life_ask,
	.settled = cei_life_answered,
};

/* --- making ------------------------------------------------------------------------------- */

int cei_group_reserve(struct cei_group *group)
{
	uint32_t i;
	int r = 0;

	for (i = 0; i < CEI_POOLS; i++)
		if (group->pools[i].n_free < group->pools[i].n_needed)
			r = r ? r : cei_pool_reserve(&group->pools[i]);
	for (i = 0; i < CEI_TABLES; i++)
		if (group->tables[i].n >= group->tables[i].n_slots)
			r = r ? r : cei_table_reserve(&group->tables[i], 1);
	return r;
}

static void init_pools(struct cei_group *group)
{
	cei_pool_init(&group->pools[CEI_PEERS], sizeof(struct cei_group_peer), PEERS_NEEDED);
	cei_pool_init(&group->pools[CEI_USES], sizeof(struct cei_group_use), 1);
	cei_pool_init(&group->pools[CEI_USERS], sizeof(struct cei_group_user), 1);
	cei_pool_init(&group->pools[CEI_ANSWERS], sizeof(struct cei_group_answer),
		      CEI_GROUP_ANSWERS_MAX);
	cei_pool_init(&group->pools[CEI_NOTES], sizeof(struct cei_counter_note), 1);
	cei_pool_init(&group->pools[CEI_LISTENERS], sizeof(struct cei_listener), 1);
	cei_pool_init(&group->pools[CEI_ABORTS], sizeof(struct cei_abort_note), 1);
}

static void fill(struct cei_group *group, const struct cei_group_config *config)
{
	group->ops = &owed_ops;
	group->roster = config->roster;
	group->near = config->near;
	group->far = config->far;
	group->now_ns = config->now_ns;
	group->due_ns = CEI_FOREVER;
	group->timeout_ns = config->timeout_ns;
	init_pools(group);
	cei_list_init(&group->aborted);
	cei_list_init(&group->listening);
	cei_list_init(&group->known);
	cei_list_init(&group->sending);
	cei_list_init(&group->asking);
	cei_list_init(&group->watched);
	cei_list_init(&group->entries);
	cei_list_init(&group->ended);
	cei_list_init(&group->renewed);
	cei_list_init(&group->calls);
	cei_barrier_init(&group->barrier);
}

/* The processes of the own node are talked to in any case. */
static int make_near(struct cei_group *group)
{
	const struct cei_roster *roster = group->roster;
	uint32_t node = cei_group_own_node(group), i;

	for (i = roster->node_at[node]; i < roster->node_at[node + 1]; i++)
		if (roster->in_node[i] != roster->own &&
		    !cei_group_peer(group, roster->in_node[i]))
			return CEOV_ERR_NO_MEMORY;
	return 0;
}

int cei_group_make(const struct cei_group_config *config, struct cei_group **ret_group)
{
	struct cei_group *group = calloc(1, sizeof(*group));
	uint32_t n = config->roster->n_processes;
	int r;

	if (!group)
		return CEOV_ERR_NO_MEMORY;
	fill(group, config);
	group->peers = calloc(n, sizeof(struct cei_group_peer *));
	group->life = calloc(n, sizeof(*group->life));
	group->gone = calloc(n, sizeof(*group->gone));
	r = group->peers && group->life && group->gone ? cei_group_reserve(group) :
		CEOV_ERR_NO_MEMORY;
	if (!r)
		r = make_near(group);
	if (r) {
		cei_group_free(group);
		return r;
	}
	*ret_group = group;
	return 0;
}

void cei_group_free(struct cei_group *group)
{
	uint32_t i;

	if (!group)
		return;
	while (!cei_list_is_empty(&group->entries))
		free(CEI_OWNER(cei_list_take(&group->entries), struct cei_group_entry, link));
	while (!cei_list_is_empty(&group->ended))
		free(CEI_OWNER(cei_list_take(&group->ended), struct cei_group_entry, link));
	for (i = 0; i < CEI_POOLS; i++)
		cei_pool_free(&group->pools[i]);
	for (i = 0; i < CEI_TABLES; i++)
		cei_table_fini(&group->tables[i]);
	free(group->peers);
	free(group->life);
	free(group->gone);
	free(group);
}

/* --- calls ----------------------------------------------------------------------------------- */

static void end_late_call(struct cei_group *group, struct cei_group_call *call)
{
	if (call->kind == CEI_GROUP_CALL_FIND)
		cei_group_end_find(group, call, CEOV_ERR_TIMEOUT);
	else if (call->kind == CEI_GROUP_CALL_LEAVE)
		cei_group_left(group, CEOV_ERR_TIMEOUT);
	else
		cei_group_end(group, call, CEOV_ERR_TIMEOUT, CEOV_NOBODY);
}

static void end_late_calls(struct cei_group *group)
{
	struct cei_list *node = group->calls.next;
	struct cei_group_call *call;

	while (node != &group->calls) {
		call = CEI_OWNER(node, struct cei_group_call, link);
		node = node->next;
		if (call->deadline_ns > group->now_ns)
			continue;
		end_late_call(group, call);
		node = group->calls.next;       /* others may have ended with it */
	}
}

/* --- events ------------------------------------------------------------------------------- */

static uint64_t look_for_due(const struct cei_group *group)
{
	uint64_t barrier_ns = cei_barrier_due(group), due_ns = cei_life_due(group), call_ns;
	const struct cei_list *node;

	if (barrier_ns < due_ns)
		due_ns = barrier_ns;
	for (node = group->calls.next; node != &group->calls; node = node->next) {
		call_ns = CEI_OWNER(node, struct cei_group_call, link)->deadline_ns;
		if (call_ns < due_ns)
			due_ns = call_ns;
	}
	return due_ns;
}

/* Whatever makes something due notes that by cei_group_due_at(). What is not due any more may stay
 * noted, and costs one look too many. */
void cei_group_time(struct cei_group *group, uint64_t now_ns)
{
	uint64_t late_ns = now_ns > group->due_ns ? now_ns - group->due_ns : 0;

	if (now_ns < group->now_ns)
		return;
	group->now_ns = now_ns;
	if (now_ns < group->due_ns)
		return;
	cei_life_time(group, late_ns > group->timeout_ns / LATE_PARTS ? late_ns : 0);
	end_late_calls(group);
	cei_barrier_time(group);
	cei_group_leave_go(group);
	group->due_ns = look_for_due(group);
}

uint64_t cei_group_due(const struct cei_group *group)
{
	return group->due_ns;
}

void cei_group_ready(struct cei_group *group, uint32_t process)
{
	struct cei_group_peer *peer = group->peers[process];

	if (!peer)
		return;
	peer->is_full = 0;
	cei_group_wake(group, peer);
}

/* An answer to what was asked. What is not known any more was answered before. */
static int hear_ack(struct cei_group *group, struct cei_group_peer *peer, uint64_t number)
{
	struct cei_owed *owed = cei_owed_numbered(peer, number);

	if (!number || number > group->last_number || (owed && owed->kind == CEI_OWED_FIND))
		return CEOV_ERR_INVALID;
	if (owed)
		cei_owed_paid(group, owed);
	return 0;
}

static int hear(struct cei_group *group, struct cei_group_peer *peer,
		const struct cei_group_message *message, struct cei_group_fds *fds)
{
	switch ((enum cei_group_type)message->type) {
	case CEI_GROUP_FIND:
		return cei_group_hear_find(group, peer, message->number, &message->find);
	case CEI_GROUP_REPLY:
		return cei_group_hear_reply(group, peer, &message->reply, fds);
	case CEI_GROUP_DROP:
		return cei_group_hear_drop(group, peer, message->use.use);
	case CEI_GROUP_RENEW:
		return cei_group_hear_renew(group, peer, &message->use);
	case CEI_GROUP_BARRIER:
		return cei_group_hear_barrier(group, peer, &message->barrier);
	case CEI_GROUP_LATE:
		return cei_group_hear_late(group, &message->said);
	case CEI_GROUP_LIMIT:
		return cei_group_hear_limit(group, &message->said);
	case CEI_GROUP_GONE:
		return cei_group_hear_gone(group, &message->gone);
	case CEI_GROUP_BYE:
		return cei_group_hear_bye(group, peer, &message->said);
	case CEI_GROUP_BEAT:
		return 0;
	case CEI_GROUP_ACK:
		return hear_ack(group, peer, message->number);
	case CEI_GROUP_RAISE:
		return cei_group_hear_raise(group, &message->counter);
	case CEI_GROUP_ASK:
		return cei_group_hear_ask(group, peer, &message->counter);
	case CEI_GROUP_VALUE:
		return cei_group_hear_value(group, peer, &message->counter);
	case CEI_GROUP_ABORT:
		return cei_group_hear_abort(group, peer, &message->abort);
	}
	return CEOV_ERR_INVALID;
}

static int is_acknowledged(const struct cei_group *group, uint32_t process,
			   const struct cei_group_message *message)
{
	const struct cei_group_carrier *carrier = cei_group_carrier_of(group, process);

	if (message->type == CEI_GROUP_BEAT || message->type == CEI_GROUP_RENEW)
		return 1;
	if (message->type == CEI_GROUP_GONE && !carrier->tells_death)
		return message->number != 0;
	return message->number && message->type != CEI_GROUP_FIND &&
		message->type != CEI_GROUP_ACK && !carrier->is_sure;
}

/* What a process says that is not up. One that was lost does not know that, for it stood still: it
 * is told, but for an answer to that very news. */
static void hear_gone_one(struct cei_group *group, struct cei_group_peer *peer,
			  const struct cei_group_message *message)
{
	struct cei_group_answer answer = { .type = CEI_GROUP_GONE };

	if (group->life[peer->process] == CEI_GROUP_DEPARTED) {
		answer.type = CEI_GROUP_ACK;
		answer.number = message->number;
		if (!is_acknowledged(group, peer->process, message))
			return;
	} else if (message->type == CEI_GROUP_ACK ||
		   (message->type == CEI_GROUP_GONE && !message->number)) {
		return;
	}
	(void)cei_group_answer(group, peer, &answer);
}

void cei_group_received(struct cei_group *group, uint32_t process,
			const struct cei_group_message *message, struct cei_group_fds *fds)
{
	const struct cei_group_answer ack = { .type = CEI_GROUP_ACK, .number = message->number };
	struct cei_group_peer *peer;
	int r;

	if (process >= group->roster->n_processes)
		return;
	peer = cei_group_peer(group, process);
	if (!peer || (group->is_expelled && message->type != CEI_GROUP_ACK))
		return;
	peer->heard_ns = group->now_ns;
	if (group->life[process] != CEI_GROUP_UP) {
		hear_gone_one(group, peer, message);
		return;
	}
	r = hear(group, peer, message, fds);
	if (r == CEOV_FULL && cei_group_carrier_of(group, process)->is_sure &&
	    message->type != CEI_GROUP_FIND)
		r = CEOV_ERR_NO_MEMORY;         /* it does not come again */
	if (r < 0)
		cei_group_part(group, process, r == CEOV_ERR_INVALID ?
			       "it has sent a message that makes no sense" :
			       "there is no memory for what it says");
	else if (!r && is_acknowledged(group, process, message))
		(void)cei_group_answer(group, peer, &ack);
}

/* --- actions --------------------------------------------------------------------------------- */

static void take_renewed(struct cei_group *group, struct cei_group_action *ret_action)
{
	struct cei_list *node = cei_list_take(&group->renewed);
	struct cei_group_use *use = CEI_OWNER(node, struct cei_group_use, renewed);

	ret_action->what = CEI_GROUP_RENEWED;
	ret_action->process = use->owed.process;
	ret_action->id = use->id;
	ret_action->generation = use->generation;
	ret_action->use = use->number;
}

static void take_ended(struct cei_group *group, struct cei_group_action *ret_action)
{
	struct cei_group_entry *entry = CEI_OWNER(cei_list_take(&group->ended),
						  struct cei_group_entry, link);

	ret_action->what = CEI_GROUP_CLOSE;
	ret_action->fds = entry->export.fds;
	free(entry);
}

/* All but the bytes at a message's end, of which those that count are set when it is filled. */
static void clear(struct cei_group_action *action)
{
	memset(action, 0, offsetof(struct cei_group_action, message.reply.bytes));
	action->fds.n = 0;
}

/* Returns events for the local process before messages to peers, so that a reply is sent only after
 * this process has acted. */
int cei_group_next(struct cei_group *group, struct cei_group_action *ret_action)
{
	clear(ret_action);
	if (group->must_spread)
		cei_group_spread(group);
	if (!cei_life_next(group, ret_action))
		return 0;
	if (!cei_aborts_next(group, ret_action))
		return 0;
	if (!cei_list_is_empty(&group->renewed)) {
		take_renewed(group, ret_action);
		return 0;
	}
	if (!cei_list_is_empty(&group->ended)) {
		take_ended(group, ret_action);
		return 0;
	}
	if (group->has_ended) {
		group->has_ended = 0;
		ret_action->what = CEI_GROUP_ENDED;
		return 0;
	}
	return cei_owed_next(group, ret_action);
}

uint32_t cei_group_n_owed(const struct cei_group *group)
{
	return group->n_owed + group->n_answers;
}

uint32_t cei_group_n_unsent(const struct cei_group *group)
{
	return cei_group_n_owed(group) - group->n_unanswered;
}

uint64_t cei_group_n_dropped(const struct cei_group *group, uint32_t process)
{
	return group->peers[process] ? group->peers[process]->n_dropped : 0;
}
