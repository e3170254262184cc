/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * What has to be sent: in which order, and again as long as it is not answered. On a sure carrier
 * what was sent has arrived, but for questions, which ask for something.
 */

#include "ipc/group/group_private.h"

/* How often an unanswered message is sent again in the time in which silence is a loss. */
#define TIMES 10u

static struct cei_group_peer *peer_of(const struct cei_group *group, const struct cei_owed *owed)
{
	return group->peers[owed->process];
}

/* News are questions, too, where a process dies without a word: another one has to hear them then,
 * to tell them to its node. */
static int is_question(const struct cei_group *group, const struct cei_owed *owed)
{
	return owed->kind == CEI_OWED_FIND || owed->kind == CEI_OWED_RENEW ||
		owed->kind == CEI_OWED_BEAT ||
		(owed->kind == CEI_OWED_NEWS &&
		 !cei_group_carrier_of(group, owed->process)->tells_death);
}

static int is_barrier(const struct cei_owed *owed)
{
	return owed->kind == CEI_OWED_CALLED || owed->kind == CEI_OWED_ROUND ||
		owed->kind == CEI_OWED_DONE;
}

void cei_group_wake(struct cei_group *group, struct cei_group_peer *peer)
{
	if (!peer->is_full && cei_list_is_empty(&peer->link))
		cei_list_append(&group->sending, &peer->link);
}

/* --- the lists ----------------------------------------------------------------------- */

/* Appends a message to the peer's queue of its kind. A message that is sent again goes to the head,
 * since it already counts as an open request. */
static void put_waiting(struct cei_group_peer *peer, struct cei_owed *owed)
{
	struct cei_list *list = &peer->waiting[owed->kind];

	owed->state = CEI_OWED_WAITS;
	peer->waiting_kinds |= UINT32_C(1) << owed->kind;
	cei_list_append(owed->was_sent ? list->next : list, &owed->link);
}

/* Takes it out of its list. */
static void take(struct cei_group_peer *peer, struct cei_owed *owed)
{
	cei_list_remove(&owed->link);
	if (owed->state == CEI_OWED_WAITS && cei_list_is_empty(&peer->waiting[owed->kind]))
		peer->waiting_kinds &= ~(UINT32_C(1) << owed->kind);
}

void cei_owe(struct cei_group *group, struct cei_owed *owed, enum cei_owed_kind kind,
	     uint32_t process, uint64_t number)
{
	struct cei_group_peer *peer = group->peers[process];

	if (!peer || group->life[process] != CEI_GROUP_UP ||
	    (group->is_expelled && kind != CEI_OWED_NEWS))
		return;
	if (owed->state == CEI_OWED_NOT) {
		cei_list_init(&owed->link);
		group->n_owed++;
		owed->kind = (uint8_t)kind;
		owed->process = process;
		peer->n_drops += kind == CEI_OWED_DROP;
		peer->n_replies += kind == CEI_OWED_REPLY;
		peer->n_raises += kind == CEI_OWED_RAISE;
	}
	if (owed->state != CEI_OWED_WAITS) {
		take(peer, owed);
		put_waiting(peer, owed);
	}
	owed->number = number ? number : ++group->last_number;
	cei_group_wake(group, peer);
}

void cei_owed_forget(struct cei_group *group, struct cei_owed *owed)
{
	struct cei_group_peer *peer;

	if (owed->state == CEI_OWED_NOT)
		return;
	peer = peer_of(group, owed);
	take(peer, owed);
	if (group->sent == owed)
		group->sent = NULL;
	owed->state = CEI_OWED_NOT;
	if (owed->was_sent) {
		peer->n_finds -= owed->kind == CEI_OWED_FIND;
		peer->n_unanswered--;
		group->n_unanswered--;
		owed->was_sent = 0;
	}
	group->ops->settled(group, peer);
	group->n_owed--;
	peer->n_drops -= owed->kind == CEI_OWED_DROP;
	peer->n_replies -= owed->kind == CEI_OWED_REPLY;
	peer->n_raises -= owed->kind == CEI_OWED_RAISE;
	/* what was held back because of it may go now */
	if (peer->waiting_kinds)
		cei_group_wake(group, peer);
}

void cei_owed_forget_all(struct cei_group *group, struct cei_group_peer *peer)
{
	uint32_t kind;

	for (kind = 0; kind < CEI_OWED_KINDS; kind++)
		while (!cei_list_is_empty(&peer->waiting[kind]))
			cei_owed_forget(group, CEI_OWNER(peer->waiting[kind].next,
							 struct cei_owed, link));
	while (!cei_list_is_empty(&peer->asked))
		cei_owed_forget(group, CEI_OWNER(peer->asked.next, struct cei_owed, link));
	while (!cei_list_is_empty(&peer->answers)) {
		cei_pool_put(&group->pools[CEI_ANSWERS], cei_list_take(&peer->answers));
		group->n_answers--;
	}
	if (group->sender == peer)
		group->answer = NULL;
	peer->n_answers = 0;
	cei_list_remove(&peer->link);
}

static struct cei_owed *sent_in(struct cei_list *list, uint64_t number)
{
	struct cei_owed *owed;
	struct cei_list *node;

	for (node = list->next; node != list; node = node->next) {
		owed = CEI_OWNER(node, struct cei_owed, link);
		if (owed->was_sent && owed->number == number)
			return owed;
	}
	return NULL;
}

struct cei_owed *cei_owed_numbered(struct cei_group_peer *peer, uint64_t number)
{
	struct cei_owed *owed = sent_in(&peer->asked, number);
	uint32_t kind;

	for (kind = 0; !owed && kind < CEI_OWED_KINDS; kind++)
		owed = sent_in(&peer->waiting[kind], number);
	return owed;
}

int cei_group_answer(struct cei_group *group, struct cei_group_peer *peer,
		     const struct cei_group_answer *answer)
{
	struct cei_group_answer *made = NULL;

	if (peer->n_answers < CEI_GROUP_ANSWERS_MAX)
		made = cei_pool_take(&group->pools[CEI_ANSWERS]);
	if (!made) {
		peer->n_dropped++;
		return CEOV_FULL;
	}
	*made = *answer;
	cei_list_init(&made->link);
	cei_list_append(&peer->answers, &made->link);
	peer->n_answers++;
	group->n_answers++;
	cei_group_wake(group, peer);
	return 0;
}

/* --- sending ----------------------------------------------------------------------------- */

/* No barrier before the drops, no drop before what was raised by that use, and no more questions
 * than are stored. */
static int may_go(const struct cei_group_peer *peer, const struct cei_owed *owed)
{
	return !(is_barrier(owed) && peer->n_drops) &&
		!(owed->kind == CEI_OWED_DROP && peer->n_raises) &&
		!(owed->kind == CEI_OWED_FIND && !owed->was_sent &&
		  peer->n_finds >= CEI_GROUP_FINDS_MAX);
}

static struct cei_owed *next_owed(const struct cei_group_peer *peer)
{
	uint32_t kinds = peer->waiting_kinds;
	struct cei_owed *owed;

	for (; kinds; kinds &= kinds - 1) {
		owed = CEI_OWNER(peer->waiting[__builtin_ctz(kinds)].next, struct cei_owed, link);
		if (may_go(peer, owed))
			return owed;
	}
	return NULL;
}

static void fill_answer(const struct cei_group_peer *peer, const struct cei_group_answer *answer,
			struct cei_group_message *message)
{
	message->type = answer->type;
	if (answer->type == CEI_GROUP_ACK) {
		message->number = answer->number;
	} else if (answer->type == CEI_GROUP_REPLY) {
		message->reply.use = answer->number;
		message->reply.result = answer->result;
		message->reply.native_code = answer->native_code;
	} else {
		message->gone.n = 1;
		message->gone.processes[0] = peer->process;
	}
}

int cei_owed_next(struct cei_group *group, struct cei_group_action *action)
{
	struct cei_group_peer *peer;

	while (!cei_list_is_empty(&group->sending)) {
		peer = CEI_OWNER(group->sending.next, struct cei_group_peer, link);
		group->answer = NULL;
		group->sent = NULL;
		if (!cei_list_is_empty(&peer->answers))
			group->answer = CEI_OWNER(peer->answers.next, struct cei_group_answer,
						  link);
		else
			group->sent = next_owed(peer);
		cei_list_remove(&peer->link);
		if (!group->answer && !group->sent)
			continue;
		cei_list_append(&group->sending, &peer->link);  /* others have their turn */
		group->sender = peer;
		action->what = CEI_GROUP_SEND;
		action->process = peer->process;
		if (group->answer)
			fill_answer(peer, group->answer, &action->message);
		else
			group->ops->fill(group, group->sent, action);
		return 0;
	}
	return CEOV_NONE;
}

void cei_owed_paid(struct cei_group *group, struct cei_owed *owed)
{
	cei_owed_forget(group, owed);
	group->ops->paid(group, owed);
}

/* It was sent, and is sent again unless it is answered. */
static void ask(struct cei_group *group, struct cei_group_peer *peer, struct cei_owed *owed)
{
	int is_sure = cei_group_carrier_of(group, peer->process)->is_sure;

	take(peer, owed);
	group->ops->asked(group, peer);
	if (!owed->was_sent) {
		peer->n_unanswered++;
		group->n_unanswered++;
		peer->n_finds += owed->kind == CEI_OWED_FIND;
	}
	owed->was_sent = 1;
	owed->state = CEI_OWED_ASKED;
	owed->again_ns = is_sure ? CEI_FOREVER : group->now_ns + group->timeout_ns / TIMES;
	cei_list_append(&peer->asked, &owed->link);
	cei_group_due_at(group, owed->again_ns);
}

void cei_group_sent(struct cei_group *group, int result, int native_code)
{
	struct cei_group_peer *peer = group->sender;
	struct cei_owed *owed = group->sent;
	struct cei_group_answer *answer = group->answer;

	group->sent = NULL;
	group->answer = NULL;
	group->sender = NULL;
	if (!peer || (!owed && !answer))
		return;
	if (result == CEOV_FULL || result == CEOV_ERR_PEER_LOST) {
		peer->is_full = 1;      /* of a lost one: until that is told */
		cei_list_remove(&peer->link);
	} else if (answer) {
		cei_list_remove(&answer->link);
		cei_pool_put(&group->pools[CEI_ANSWERS], answer);
		peer->n_answers--;
		group->n_answers--;
		group->ops->answered(group);
	} else if (result && owed->kind == CEI_OWED_REPLY) {
		group->ops->unsent(group, owed, result, native_code);
	} else if (is_question(group, owed) ||
		   !cei_group_carrier_of(group, peer->process)->is_sure) {
		ask(group, peer, owed);
	} else {
		cei_owed_paid(group, owed);
	}
}

void cei_owed_again(struct cei_group *group, struct cei_group_peer *peer)
{
	struct cei_owed *owed;

	while (!cei_list_is_empty(&peer->asked)) {
		owed = CEI_OWNER(peer->asked.next, struct cei_owed, link);
		if (owed->again_ns > group->now_ns)
			return;
		take(peer, owed);
		put_waiting(peer, owed);        /* under the same number */
		cei_group_wake(group, peer);
	}
}
