/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * The barrier of the group, which goes on whether or not a thread waits for it.
 *
 * Each process tells those of its node that it has called. When the leader of a node has heard all
 * of its node, it passes rounds with other leaders: in round i it tells the one whose node is 2^i
 * further, and awaits the one that is as far before. After log2 of the nodes, rounded up, all have
 * come, and it tells its node. A group of one node needs the first step only.
 *
 * A barrier needs all processes: none completes after the loss of one, and one that has closed in
 * order takes part in no more than it has called; a leader in no more than it has passed, because
 * others hear through it. The lowest such number, and the rank that is to blame, are told to others
 * as soon as somebody waits for a barrier beyond it. Losses are told anyway (life.c). All processes
 * close at the end, and nobody needs to hear of that.
 */

#include "ipc/group/group_private.h"

#define LATE_NS UINT64_C(1000000000)    /* after that a missing rank is told to other nodes */

void cei_barrier_init(struct cei_group_barrier *barrier)
{
	cei_list_init(&barrier->calls);
	barrier->n_possible = UINT64_MAX;
	barrier->missing = CEOV_NOBODY;
	barrier->awaited = CEOV_NOBODY;
	barrier->late_rank = CEOV_NOBODY;
}

/* Of one of several nodes, which hears of the others through it. */
static int is_leader(const struct cei_group *group)
{
	return group->roster->n_nodes > 1 &&
		cei_group_leader(group, cei_group_own_node(group)) == group->roster->own;
}

/* The leader that is told in a round, or (is_source) that tells. */
static uint32_t partner(const struct cei_group *group, uint32_t round, int is_source)
{
	uint32_t n = group->roster->n_nodes, own = cei_group_own_node(group);
	uint32_t step = (UINT32_C(1) << round) % n;

	return cei_group_leader(group, (is_source ? own + n - step : own + step) % n);
}

static int has_rounds_left(const struct cei_group *group, uint32_t round)
{
	return (UINT64_C(1) << round) < group->roster->n_nodes;
}

/* The first process of this node that has not called; CEOV_NOBODY: all have. */
static uint32_t missing_here(const struct cei_group *group)
{
	const struct cei_roster *roster = group->roster;
	uint32_t node = cei_group_own_node(group), i, process;

	for (i = roster->node_at[node]; i < roster->node_at[node + 1]; i++) {
		process = roster->in_node[i];
		if (process != roster->own &&
		    group->peers[process]->n_calls < group->barrier.n_calls)
			return process;
	}
	return CEOV_NOBODY;
}

/* The leader tells other nodes of a rank of its own that has not come for long. */
static int is_lacking(const struct cei_group *group)
{
	const struct cei_group_barrier *barrier = &group->barrier;

	return barrier->n_world < barrier->n_calls && is_leader(group) &&
		barrier->late_call < barrier->n_calls &&
		missing_here(group) != CEOV_NOBODY;
}

/* --- going on ------------------------------------------------------------------------- */

/* Tells all of this node, by that owed message. */
static void tell_node(struct cei_group *group, enum cei_owed_kind kind)
{
	const struct cei_roster *roster = group->roster;
	uint32_t node = cei_group_own_node(group), i, process;
	struct cei_group_peer *peer;

	for (i = roster->node_at[node]; i < roster->node_at[node + 1]; i++) {
		process = roster->in_node[i];
		if (process == roster->own)
			continue;
		peer = group->peers[process];
		cei_owe(group, kind == CEI_OWED_DONE ? &peer->done : &peer->called, kind, process,
			0);
	}
}

static int pass_round(struct cei_group *group)
{
	struct cei_group_barrier *barrier = &group->barrier;
	uint32_t process = partner(group, barrier->round, 0);
	struct cei_group_peer *peer = cei_group_peer(group, process);

	if (!barrier->has_told && peer) {
		peer->round_step = barrier->round + 1;
		peer->round_call = barrier->n_calls;
		cei_owe(group, &peer->round, CEI_OWED_ROUND, process, 0);
		barrier->has_told = 1;
	}
	if (!barrier->has_told || barrier->seen[barrier->round] < barrier->n_calls)
		return CEOV_NONE;
	barrier->has_told = 0;
	barrier->round++;
	return 0;
}

/* The process for whose round this one waits is asked whether it is there. */
static void await_partner(struct cei_group *group)
{
	struct cei_group_barrier *barrier = &group->barrier;
	uint32_t process = CEOV_NOBODY;

	if (barrier->has_told && !cei_list_is_empty(&barrier->calls))
		process = partner(group, barrier->round, 1);
	if (process == barrier->awaited)
		return;
	if (barrier->awaited != CEOV_NOBODY)
		cei_group_await(group, barrier->awaited, -1);
	barrier->awaited = process;
	if (process != CEOV_NOBODY)
		cei_group_await(group, process, 1);
}

static void advance(struct cei_group *group)
{
	struct cei_group_barrier *barrier = &group->barrier;
	uint32_t leader = cei_group_leader(group, cei_group_own_node(group));

	if (barrier->n_world == barrier->n_calls || missing_here(group) != CEOV_NOBODY)
		return;
	if (leader != group->roster->own) {
		if (group->roster->n_nodes == 1 ||
		    group->peers[leader]->n_done >= barrier->n_calls)
			barrier->n_world = barrier->n_calls;
		return;
	}
	while (has_rounds_left(group, barrier->round))
		if (pass_round(group))
			return;
	barrier->n_world = barrier->n_calls;
	if (group->roster->n_nodes > 1)
		tell_node(group, CEI_OWED_DONE);
}

static void end_calls(struct cei_group *group, int result, uint32_t blame)
{
	struct cei_list *calls = &group->barrier.calls;

	while (!cei_list_is_empty(calls))
		cei_group_end(group, CEI_OWNER(calls->next, struct cei_group_call, link), result,
			      blame);
}

static int is_lost(const struct cei_group *group, uint32_t process)
{
	return group->life[process] == CEI_GROUP_PARTING || group->life[process] == CEI_GROUP_LOST;
}

/* Others may wait for what cannot complete. */
static void tell_who_waits(struct cei_group *group)
{
	struct cei_group_barrier *barrier = &group->barrier;
	const struct cei_roster *roster = group->roster;
	uint32_t node = cei_group_own_node(group), i;
	uint64_t most = barrier->n_calls;

	if (barrier->must_tell || barrier->n_possible == UINT64_MAX ||
	    is_lost(group, roster->process_of[barrier->missing]))
		return;                 /* losses are told anyway */
	for (i = 0; i < CEI_GROUP_STEPS; i++)
		if (barrier->seen[i] > most)
			most = barrier->seen[i];
	for (i = roster->node_at[node]; i < roster->node_at[node + 1]; i++)
		if (roster->in_node[i] != roster->own &&
		    group->peers[roster->in_node[i]]->n_calls > most)
			most = group->peers[roster->in_node[i]]->n_calls;
	if (most <= barrier->n_possible)
		return;
	barrier->must_tell = 1;
	cei_group_spread(group);
}

void cei_barrier_go(struct cei_group *group)
{
	struct cei_group_barrier *barrier = &group->barrier;

	if (!group->is_expelled)
		advance(group);
	if (!cei_list_is_empty(&barrier->calls)) {
		if (barrier->n_world == barrier->n_calls) {
			barrier->is_open = 0;
			end_calls(group, 0, CEOV_NOBODY);
		} else if (barrier->n_calls > barrier->n_possible) {
			end_calls(group, CEOV_ERR_PEER_LOST, barrier->missing);
		}
	}
	await_partner(group);
	tell_who_waits(group);
}

void cei_group_barrier(struct cei_group *group, struct cei_group_call *call)
{
	struct cei_group_barrier *barrier = &group->barrier;

	cei_group_begin(group, call, CEI_GROUP_CALL_BARRIER);
	if (!barrier->is_open) {
		barrier->is_open = 1;
		barrier->n_calls++;
		barrier->began_ns = group->now_ns;
		barrier->round = 0;
		barrier->has_told = 0;
		tell_node(group, CEI_OWED_CALLED);
		if (is_lacking(group))
			cei_group_due_at(group, group->now_ns + LATE_NS);
	}
	cei_barrier_go(group);
}

void cei_barrier_fill(struct cei_group *group, const struct cei_owed *owed,
		      struct cei_group_message *message)
{
	const struct cei_group_peer *peer = group->peers[owed->process];

	message->barrier.call = group->barrier.n_calls;
	if (owed->kind == CEI_OWED_DONE) {
		message->barrier.step = CEI_GROUP_STEP_ALL;
		message->barrier.call = group->barrier.n_world;
	} else if (owed->kind == CEI_OWED_ROUND) {
		message->barrier.step = peer->round_step;
		message->barrier.call = peer->round_call;
	}
}

/* --- what others say ------------------------------------------------------------------------ */

/* Where the sender's highest call of that step is noted; NULL: it has no such step here. *ret_most
 * is the highest call that can be: nobody is more than one barrier ahead of another process. */
static uint64_t *place_of(struct cei_group *group, struct cei_group_peer *peer, uint32_t step,
			  uint64_t *ret_most)
{
	int is_near = !cei_group_is_far(group, peer->process);

	*ret_most = group->barrier.n_calls + 1;
	if (!step)
		return is_near ? &peer->n_calls : NULL;
	if (step == CEI_GROUP_STEP_ALL) {
		*ret_most = group->barrier.n_calls;
		return is_near && peer->process ==
			cei_group_leader(group, cei_group_own_node(group)) ? &peer->n_done : NULL;
	}
	if (step > CEI_GROUP_STEP_ALL || !is_leader(group) || !has_rounds_left(group, step - 1) ||
	    partner(group, step - 1, 1) != peer->process)
		return NULL;
	return &group->barrier.seen[step - 1];
}

int cei_group_hear_barrier(struct cei_group *group, struct cei_group_peer *peer,
			   const struct cei_group_barrier_step *step)
{
	uint64_t most, *place = place_of(group, peer, step->step, &most);

	if (!place || !step->call || step->call > most)
		return CEOV_ERR_INVALID;
	if (*place >= step->call)       /* it came before */
		return cei_group_carrier_of(group, peer->process)->is_sure ? CEOV_ERR_INVALID : 0;
	*place = step->call;
	cei_barrier_go(group);
	return 0;
}

/* --- what cannot complete --------------------------------------------------------------------- */

void cei_barrier_limit(struct cei_group *group, uint32_t rank, uint64_t n_calls)
{
	struct cei_group_barrier *barrier = &group->barrier;

	if (n_calls >= barrier->n_possible)
		return;
	barrier->n_possible = n_calls;
	barrier->missing = rank;
	barrier->must_tell = 0;
}

/* What a third process says is passed on. */
int cei_group_hear_limit(struct cei_group *group, const struct cei_group_rank_said *limit)
{
	struct cei_group_barrier *barrier = &group->barrier;

	if (limit->rank >= group->roster->n_ranks)
		return CEOV_ERR_INVALID;
	if (group->roster->process_of[limit->rank] == group->roster->own ||
	    limit->n_calls >= barrier->n_possible)
		return 0;
	cei_barrier_limit(group, limit->rank, limit->n_calls);
	barrier->must_tell = 1;
	cei_group_spread(group);
	cei_barrier_go(group);
	return 0;
}

/* If it closes because of a barrier that could not complete, the rank that was missing in that is
 * to blame when others miss this process. */
static struct cei_group_rank_said limit_by_leaving(struct cei_group *group)
{
	struct cei_group_barrier *barrier = &group->barrier;
	uint64_t n_calls = is_leader(group) ? barrier->n_world : barrier->n_calls;

	cei_barrier_limit(group, group->roster->first_rank[group->roster->own], n_calls);
	return (struct cei_group_rank_said){ barrier->n_possible, barrier->missing };
}

/* Called when this process leaves the group: from then on it takes part in no barrier. A leader
 * that has passed a barrier tells all processes how many barriers it took part in, since some with
 * which it never exchanged a message may otherwise wait for it in the next one. */
void cei_barrier_leave(struct cei_group *group)
{
	(void)limit_by_leaving(group);
	if (!is_leader(group) || !group->barrier.n_world)
		return;
	group->barrier.must_tell = 1;
	cei_group_spread(group);
}

static int is_owed_a_step(const struct cei_group_peer *peer)
{
	return peer->called.state != CEI_OWED_NOT || peer->round.state != CEI_OWED_NOT ||
		peer->done.state != CEI_OWED_NOT;
}

struct cei_group_rank_said cei_barrier_farewell(struct cei_group *group)
{
	struct cei_group_rank_said said = limit_by_leaving(group);
	struct cei_list *node;

	for (node = group->known.next; node != &group->known; node = node->next) {
		if (!is_owed_a_step(CEI_OWNER(node, struct cei_group_peer, known)))
			continue;
		cei_barrier_limit(group, group->roster->first_rank[group->roster->own],
				  group->barrier.n_calls - 1);
		said.n_calls = group->barrier.n_possible;
		said.rank = group->barrier.missing;
	}
	return said;
}

uint32_t cei_group_missing(const struct cei_group *group)
{
	const struct cei_group_barrier *barrier = &group->barrier;
	uint64_t next = barrier->n_calls + !barrier->is_open;

	return next > barrier->n_possible ? barrier->missing : CEOV_NOBODY;
}

/* --- who is late ------------------------------------------------------------------------------ */

int cei_group_hear_late(struct cei_group *group, const struct cei_group_rank_said *late)
{
	struct cei_group_barrier *barrier = &group->barrier;

	if (late->rank >= group->roster->n_ranks || !late->n_calls ||
	    late->n_calls > barrier->n_calls + 1)
		return CEOV_ERR_INVALID;
	if (late->n_calls <= barrier->late_call)
		return 0;
	barrier->late_call = late->n_calls;
	barrier->late_rank = late->rank;
	cei_group_spread(group);
	return 0;
}

/* Who has not come, as far as this process knows. */
static uint32_t who_is_missing(const struct cei_group *group)
{
	const struct cei_group_barrier *barrier = &group->barrier;
	uint32_t process = missing_here(group);

	if (process == CEOV_NOBODY && barrier->late_call == barrier->n_calls &&
	    cei_group_is_far(group, group->roster->process_of[barrier->late_rank]))
		return barrier->late_rank;
	if (process == CEOV_NOBODY)
		process = is_leader(group) ? partner(group, barrier->round, 1) :
			cei_group_leader(group, cei_group_own_node(group));
	return group->roster->first_rank[process];
}

void cei_barrier_time(struct cei_group *group)
{
	struct cei_group_barrier *barrier = &group->barrier;
	struct cei_group_call *call;
	struct cei_list *node, *next;

	if (is_lacking(group) && group->now_ns >= barrier->began_ns + LATE_NS) {
		barrier->late_call = barrier->n_calls;
		barrier->late_rank = group->roster->first_rank[missing_here(group)];
		cei_group_spread(group);
	}
	for (node = barrier->calls.next; node != &barrier->calls; node = next) {
		next = node->next;
		call = CEI_OWNER(node, struct cei_group_call, link);
		if (call->deadline_ns <= group->now_ns)
			cei_group_end(group, call, CEOV_ERR_TIMEOUT, who_is_missing(group));
	}
	await_partner(group);
}

uint64_t cei_barrier_due(const struct cei_group *group)
{
	const struct cei_group_barrier *barrier = &group->barrier;
	uint64_t due_ns = CEI_FOREVER, call_ns;
	const struct cei_list *node;

	if (is_lacking(group))
		due_ns = barrier->began_ns + LATE_NS;
	for (node = barrier->calls.next; node != &barrier->calls; node = node->next) {
		call_ns = CEI_OWNER(node, struct cei_group_call, link)->deadline_ns;
		if (call_ns < due_ns)
			due_ns = call_ns;
	}
	return due_ns;
}
