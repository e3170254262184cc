/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Who is there. A process is lost when its carrier says so, when it is silent though it is awaited,
 * when it lies, or when another process says that it is lost. It is given up at once: no call to it
 * succeeds. When nothing of it lands any more, that is told upwards.
 *
 * Losses are told to the processes of the own node, and by one process of each node, its speaker,
 * to the speakers of other nodes, see cei_spread(). Each process keeps how many of the losses that
 * it knows each of these has heard. So who becomes a speaker, or has a new one to tell, tells all.
 */

#include "ipc/group/group_private.h"

#include "ipc/group/spread.h"

#define BEATS  10u      /* in the time in which silence is a loss */
#define LOOKS  10u      /* likewise: whether users are awaited */
#define DOUBTS 16u      /* of this time one such part: see must_part() */

uint32_t cei_group_leader(const struct cei_group *group, uint32_t node)
{
	return group->roster->in_node[group->roster->node_at[node]];
}

uint32_t cei_group_speaker(const struct cei_group *group, uint32_t node)
{
	const struct cei_roster *roster = group->roster;
	uint32_t i;

	for (i = roster->node_at[node]; i < roster->node_at[node + 1]; i++)
		if (group->life[roster->in_node[i]] == CEI_GROUP_UP)
			return roster->in_node[i];
	return CEOV_NOBODY;
}

enum cei_group_life cei_group_life(const struct cei_group *group, uint32_t process)
{
	return group->life[process];
}

int cei_group_is_expelled(const struct cei_group *group)
{
	return group->is_expelled;
}

static const char expelled[] = "this process has been given up by the group, because it did not "
			       "answer in time";

/* --- news --------------------------------------------------------------------------------- */

static void tell(struct cei_group *group, uint32_t process)
{
	const struct cei_group_barrier *barrier = &group->barrier;
	struct cei_group_peer *peer;

	if (process == CEOV_NOBODY || process == group->roster->own)
		return;
	peer = cei_group_peer(group, process);
	if (!peer) {
		group->must_spread = 1;
		return;
	}
	while (peer->n_news < group->n_gone &&
	       group->life[group->gone[peer->n_news].process] == CEI_GROUP_DEPARTED)
		peer->n_news++;         /* departures are not told */
	if (peer->n_news < group->n_gone && peer->news.state == CEI_OWED_NOT)
		cei_owe(group, &peer->news, CEI_OWED_NEWS, process, 0);
	if (barrier->must_tell && peer->limit_told > barrier->n_possible) {
		peer->limit_told = barrier->n_possible;
		cei_owe(group, &peer->limit, CEI_OWED_LIMIT, process, 0);
	}
	if (barrier->late_call == barrier->n_calls && peer->late_told < barrier->late_call) {
		peer->late_told = barrier->late_call;
		cei_owe(group, &peer->late, CEI_OWED_LATE, process, 0);
	}
}

void cei_group_spread(struct cei_group *group)
{
	const struct cei_roster *roster = group->roster;
	uint32_t node = cei_group_own_node(group), told[CEI_SPREAD_MAX], i, n;

	group->must_spread = 0;
	if (group->is_expelled ||
	    (!group->n_gone && !group->barrier.must_tell && !group->barrier.late_call))
		return;
	for (i = roster->node_at[node]; i < roster->node_at[node + 1]; i++)
		if (group->life[roster->in_node[i]] == CEI_GROUP_UP)
			tell(group, roster->in_node[i]);
	if (cei_group_speaker(group, node) != roster->own)
		return;
	n = cei_spread(node, roster->n_nodes, told);
	for (i = 0; i < n; i++)
		tell(group, cei_group_speaker(group, told[i]));
}

/* What is said again is the same, because it is answered under the same number. */
static void fill_news(struct cei_group *group, struct cei_group_peer *peer,
		      struct cei_group_gone *gone)
{
	uint32_t end = peer->news.was_sent ? peer->n_news_sent : group->n_gone;
	uint32_t i = peer->n_news, process;

	if (group->is_expelled) {
		gone->processes[gone->n++] = group->roster->own;
		return;
	}
	for (; i < end && gone->n < CEI_GROUP_NEWS_MAX; i++) {
		process = group->gone[i].process;
		if (group->life[process] != CEI_GROUP_DEPARTED)
			gone->processes[gone->n++] = process;
	}
	peer->n_news_sent = i;
}

void cei_group_news_paid(struct cei_group *group, struct cei_group_peer *peer)
{
	if (group->is_expelled) {
		cei_group_part(group, peer->process, expelled);
		return;
	}
	peer->n_news = peer->n_news_sent;
	cei_group_spread(group);
}

void cei_group_fill_life(struct cei_group *group, const struct cei_owed *owed,
			 struct cei_group_message *message)
{
	const struct cei_group_barrier *barrier = &group->barrier;
	struct cei_group_peer *peer = group->peers[owed->process];

	if (owed->kind == CEI_OWED_NEWS)
		fill_news(group, peer, &message->gone);
	else if (owed->kind == CEI_OWED_BYE)
		message->said = cei_barrier_farewell(group);
	else if (owed->kind == CEI_OWED_LIMIT)
		message->said = (struct cei_group_rank_said){ barrier->n_possible,
							      barrier->missing };
	else
		message->said = (struct cei_group_rank_said){ barrier->late_call,
							      barrier->late_rank };
}

/* --- losses and departures -------------------------------------------------------------------- */

static void go(struct cei_group *group, uint32_t process, enum cei_group_life life,
	       const char *why)
{
	struct cei_group_peer *peer = group->peers[process];

	group->life[process] = (uint8_t)life;
	group->gone[group->n_gone++] = (struct cei_group_gone_entry){ process, 0, why };
	group->n_untold++;
	if (!peer)
		return;         /* it was never talked to */
	group->n_byes -= !peer->has_heard_bye;
	cei_owed_forget_all(group, peer);
	cei_list_remove(&peer->watched);
	cei_counters_end(group, peer);
	cei_aborts_end(group, peer);
	cei_group_end_users(group, peer);
	cei_group_end_uses(group, peer);
}

void cei_group_part(struct cei_group *group, uint32_t process, const char *why)
{
	if (group->life[process] != CEI_GROUP_UP || process == group->roster->own)
		return;
	go(group, process, CEI_GROUP_PARTING, why);
	cei_barrier_limit(group, group->roster->first_rank[process], 0);
	cei_group_spread(group);
	cei_barrier_go(group);
	cei_group_leave_go(group);
}

/* The others have given this process up, and it gives up them. Those of its node may not know yet,
 * and hear it from itself, because they have to tell other nodes' news then. */
static void be_expelled(struct cei_group *group)
{
	uint32_t own = group->roster->own, process;
	struct cei_group_peer *peer;

	if (group->is_expelled)
		return;
	cei_barrier_limit(group, group->roster->first_rank[own], 0);
	group->is_expelled = 1;
	for (process = 0; process < group->roster->n_processes; process++) {
		peer = group->peers[process];
		if (process == own || group->life[process] != CEI_GROUP_UP)
			continue;
		if (cei_group_is_far(group, process)) {
			cei_group_part(group, process, expelled);
			continue;
		}
		cei_owed_forget_all(group, peer);
		cei_group_end_uses(group, peer);
		cei_owe(group, &peer->news, CEI_OWED_NEWS, process, 0);
	}
	cei_barrier_go(group);
	cei_group_leave_go(group);
}

void cei_group_down(struct cei_group *group, uint32_t process, const char *why, int is_refusal)
{
	struct cei_group_peer *peer = group->peers[process];

	if (group->life[process] != CEI_GROUP_UP)
		return;
	if (is_refusal) {
		be_expelled(group);
	} else if (peer && peer->has_heard_bye) {
		go(group, process, CEI_GROUP_DEPARTED, "it closed behind this one's farewell");
		cei_group_leave_go(group);
	} else {
		cei_group_part(group, process, why);
	}
}

void cei_group_quiet(struct cei_group *group, uint32_t process)
{
	if (group->life[process] == CEI_GROUP_PARTING)
		group->life[process] = CEI_GROUP_LOST;
}

int cei_group_hear_gone(struct cei_group *group, const struct cei_group_gone *gone)
{
	uint32_t i;

	for (i = 0; i < gone->n; i++)
		if (gone->processes[i] >= group->roster->n_processes)
			return CEOV_ERR_INVALID;
	for (i = 0; i < gone->n; i++)
		if (gone->processes[i] == group->roster->own)
			be_expelled(group);
	for (i = 0; i < gone->n; i++)
		cei_group_part(group, gone->processes[i], "another process says that it is lost");
	return 0;
}

int cei_group_hear_bye(struct cei_group *group, struct cei_group_peer *peer,
		       const struct cei_group_rank_said *bye)
{
	const struct cei_roster *roster = group->roster;

	if (bye->rank >= roster->n_ranks)
		return CEOV_ERR_INVALID;
	/* what it has called is told by its barrier, but that may be late */
	if (roster->process_of[bye->rank] == peer->process && peer->n_calls < bye->n_calls &&
	    bye->n_calls <= group->barrier.n_calls + 1)
		peer->n_calls = bye->n_calls;
	go(group, peer->process, CEI_GROUP_DEPARTED, "it has closed its context");
	cei_barrier_limit(group, bye->rank, bye->n_calls);
	cei_group_spread(group);        /* there may be a new speaker */
	cei_barrier_go(group);
	cei_group_leave_go(group);
	return 0;
}

/* Those that are to be given up first, then those that are quiet. */
int cei_life_next(struct cei_group *group, struct cei_group_action *action)
{
	struct cei_group_gone_entry *entry;
	enum cei_group_life life;
	uint32_t i;

	while (group->n_given_up < group->n_gone) {
		entry = &group->gone[group->n_given_up++];
		if (group->life[entry->process] == CEI_GROUP_DEPARTED)
			continue;
		action->what = CEI_GROUP_GIVE_UP;
		action->process = entry->process;
		action->why = entry->why;
		return 0;
	}
	while (group->n_told < group->n_gone && group->gone[group->n_told].is_told)
		group->n_told++;
	for (i = group->n_told; group->n_untold && i < group->n_gone; i++) {
		entry = &group->gone[i];
		life = group->life[entry->process];
		if (entry->is_told || life == CEI_GROUP_PARTING)
			continue;
		entry->is_told = 1;
		group->n_untold--;
		action->what = CEI_GROUP_PEER_GONE;
		action->process = entry->process;
		action->has_departed = life == CEI_GROUP_DEPARTED;
		action->why = entry->why;
		return 0;
	}
	return CEOV_NONE;
}

/* --- silence ------------------------------------------------------------------------------ */

void cei_group_await(struct cei_group *group, uint32_t process, int by)
{
	struct cei_group_peer *peer = cei_group_peer(group, process);

	if (!peer)
		return;
	peer->n_awaited += (uint32_t)by;
	cei_life_watch(group, peer);
}

void cei_group_await_users(struct cei_group *group, int is_waiting)
{
	group->awaits_users = is_waiting;
}

static uint64_t silent_at(const struct cei_group *group, const struct cei_group_peer *peer)
{
	uint64_t since_ns = peer->awaited_ns > peer->heard_ns ? peer->awaited_ns : peer->heard_ns;

	if (cei_group_carrier_of(group, peer->process)->tells_death)
		return CEI_FOREVER;
	if (peer->doubted_ns > since_ns)
		return peer->doubted_ns + group->timeout_ns / DOUBTS;
	return since_ns + group->timeout_ns - group->timeout_ns / DOUBTS;
}

/* The process was silent for so long that it may be lost. If this process stood still a little, the
 * answer may be there and not be read yet: so it is doubted first. */
static int must_part(struct cei_group *group, struct cei_group_peer *peer)
{
	if (silent_at(group, peer) > group->now_ns)
		return 0;
	if (peer->doubted_ns > peer->awaited_ns && peer->doubted_ns > peer->heard_ns)
		return 1;
	peer->doubted_ns = group->now_ns;
	return 0;
}

static uint64_t beat_at(const struct cei_group *group, const struct cei_group_peer *peer)
{
	if (peer->n_unanswered || peer->beat.state != CEI_OWED_NOT ||
	    (!peer->n_awaited && !group->awaits_users))
		return CEI_FOREVER;
	return peer->heard_ns + group->timeout_ns / BEATS;
}

/* When users are awaited by, maybe. */
static uint64_t look_at(const struct cei_group *group, const struct cei_group_peer *peer)
{
	return cei_list_is_empty(&peer->users) ? CEI_FOREVER :
		group->now_ns + group->timeout_ns / LOOKS;
}

void cei_life_watch(struct cei_group *group, struct cei_group_peer *peer)
{
	if (!peer->n_awaited && cei_list_is_empty(&peer->users)) {
		cei_list_remove(&peer->watched);
		return;
	}
	if (group->life[peer->process] != CEI_GROUP_UP ||
	    cei_group_carrier_of(group, peer->process)->tells_death)
		return;
	if (cei_list_is_empty(&peer->watched))
		cei_list_append(&group->watched, &peer->watched);
	cei_group_due_at(group, beat_at(group, peer));
	cei_group_due_at(group, look_at(group, peer));
}

void cei_life_ask(struct cei_group *group, struct cei_group_peer *peer)
{
	if (!cei_list_is_empty(&peer->asking))
		return;
	peer->awaited_ns = group->now_ns;
	cei_list_append(&group->asking, &peer->asking);
	cei_group_due_at(group, silent_at(group, peer));
}

void cei_life_answered(struct cei_group *group, struct cei_group_peer *peer)
{
	if (peer->n_unanswered || peer->beat.state != CEI_OWED_NOT ||
	    cei_list_is_empty(&peer->asking))
		return;
	cei_list_remove(&peer->asking);
	if (!cei_list_is_empty(&peer->watched))
		cei_group_due_at(group, beat_at(group, peer));
}

/* A time in which this process stood still counts against nobody. */
static void allow(struct cei_group *group)
{
	struct cei_list *node;

	for (node = group->asking.next; node != &group->asking; node = node->next)
		CEI_OWNER(node, struct cei_group_peer, asking)->awaited_ns = group->now_ns;
}

void cei_life_time(struct cei_group *group, uint64_t late_ns)
{
	struct cei_group_peer *peer;
	struct cei_list *node, *next;

	if (late_ns)
		allow(group);
	for (node = group->asking.next; node != &group->asking; node = next) {
		next = node->next;
		cei_owed_again(group, CEI_OWNER(node, struct cei_group_peer, asking));
	}
	for (node = group->asking.next; node != &group->asking; node = node->next) {
		peer = CEI_OWNER(node, struct cei_group_peer, asking);
		if (!must_part(group, peer))
			continue;
		cei_group_part(group, peer->process, "it has not answered for as long as the "
			       "network's timeout");
		node = &group->asking;          /* the list has changed: begin again */
	}
	for (node = group->watched.next; node != &group->watched; node = node->next) {
		peer = CEI_OWNER(node, struct cei_group_peer, watched);
		if (beat_at(group, peer) > group->now_ns)
			continue;
		cei_owe(group, &peer->beat, CEI_OWED_BEAT, peer->process, 0);
		cei_life_ask(group, peer);      /* a carrier without room is silent, too */
	}
}

uint64_t cei_life_due(const struct cei_group *group)
{
	uint64_t due_ns = group->leave ? group->leave_ns : CEI_FOREVER, at_ns;
	const struct cei_group_peer *peer;
	const struct cei_list *node;

	if (due_ns <= group->now_ns)
		due_ns = CEI_FOREVER;           /* it was seen */
	for (node = group->asking.next; node != &group->asking; node = node->next) {
		peer = CEI_OWNER(node, struct cei_group_peer, asking);
		at_ns = silent_at(group, peer);
		if (at_ns < due_ns)
			due_ns = at_ns;
		at_ns = cei_list_is_empty(&peer->asked) ? CEI_FOREVER :
			CEI_OWNER(peer->asked.next, struct cei_owed, link)->again_ns;
		if (at_ns < due_ns)
			due_ns = at_ns;
	}
	for (node = group->watched.next; node != &group->watched; node = node->next) {
		peer = CEI_OWNER(node, struct cei_group_peer, watched);
		at_ns = beat_at(group, peer);
		if (at_ns < due_ns)
			due_ns = at_ns;
		at_ns = look_at(group, peer);
		if (at_ns < due_ns)
			due_ns = at_ns;
	}
	return due_ns;
}

/* --- farewell -------------------------------------------------------------------------------- */

void cei_group_leave(struct cei_group *group, struct cei_group_call *call)
{
	cei_group_begin(group, call, CEI_GROUP_CALL_LEAVE);
	group->leave = call;
	group->leave_ns = call->deadline_ns < group->now_ns ? group->now_ns :
		group->now_ns + (call->deadline_ns - group->now_ns) / 2;
	cei_group_due_at(group, group->leave_ns);
	cei_group_end_finds(group);             /* nobody answers behind a farewell */
	cei_barrier_leave(group);
	cei_group_leave_go(group);
}

/* News of a departure may be faster than what the process still has to say elsewhere. So it says
 * farewell when it owes nothing to anybody, or after half of its time. */
static int may_say_bye(const struct cei_group *group)
{
	return !(group->n_owed + group->n_answers) || group->now_ns >= group->leave_ns;
}

void cei_group_leave_go(struct cei_group *group)
{
	struct cei_group_peer *peer;
	struct cei_list *node;

	if (!group->leave || (!group->says_bye && !may_say_bye(group)))
		return;
	if (!group->says_bye) {
		group->says_bye = 1;
		for (node = group->known.next; node != &group->known; node = node->next) {
			peer = CEI_OWNER(node, struct cei_group_peer, known);
			cei_owe(group, &peer->bye, CEI_OWED_BYE, peer->process, 0);
		}
	}
	if (group->n_byes && !group->is_expelled)
		return;
	cei_group_left(group, 0);
}

/* Nobody asks this process any more, and no drop would be heard. */
void cei_group_left(struct cei_group *group, int result)
{
	cei_group_end(group, group->leave, result, CEOV_NOBODY);
	group->leave = NULL;
	cei_group_withdraw_all(group);
}
