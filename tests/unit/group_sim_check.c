/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What calls of simulated processes tell, compared with what really happened. */

#include "group_sim.h"

#include <ceoverlap/ceoverlap.h>

void sim_expect(struct sim *sim, int is_so, const char *text)
{
	if (is_so || sim->failure)
		return;
	sim->failure = text;
	sim->failed_at = sim->now;
}

int sim_is_faulty(const struct sim *sim, uint32_t process)
{
	const struct sim_process *p = &sim->processes[process];

	return p->is_dead || (p->stop_until && sim->now >= p->stop_at + SIM_TIMEOUT / 8);
}

static int may_seem_lost(const struct sim *sim, uint32_t process)
{
	return sim_is_faulty(sim, process) || sim->processes[process].wants_out;
}

/* A call of a process that stood still ends when it goes on. */
static int is_in_time(const struct sim *sim, const struct sim_process *p, uint32_t deadline)
{
	if (p->stop_until && sim->now >= p->stop_until && p->stop_until > deadline)
		deadline = p->stop_until;
	return sim->now <= deadline + 2;
}

static int is_out(const struct sim *sim, uint32_t process)
{
	const struct sim_process *p = &sim->processes[process];

	return p->is_dead || p->is_out || cei_group_is_expelled(p->group);
}

/* --- finds ----------------------------------------------------------------------------- */

static struct sim_export *export_of(struct sim_process *owner, uint32_t id)
{
	uint32_t i;

	for (i = 0; i < owner->n_exports; i++)
		if (owner->exports[i].id == id)
			return &owner->exports[i];
	return NULL;
}

struct sim_export *sim_export_of(struct sim *sim, const struct sim_held *held)
{
	return export_of(&sim->processes[sim->process_of[held->rank]], held->id);
}

static void found(struct sim *sim, uint32_t who, struct sim_find *find)
{
	uint32_t owner = sim->process_of[find->rank], generation = find->found.generation;
	struct sim_export *export = export_of(&sim->processes[owner], find->found.id);
	int is_near = sim->node_of[owner] == sim->node_of[who];
	struct sim_process *p = &sim->processes[who];

	sim->n_found++;
	sim_expect(sim, export && export->rank == find->rank && export->name == find->name,
		   "a find brings another export");
	if (sim->failure)
		return;
	sim_expect(sim, export->to >= find->since,
		   "a find brings an export that was withdrawn before");
	sim_expect(sim, generation >= 1 && generation <= export->generation,
		   "a find brings a generation that was not yet");
	sim_expect(sim, generation >= export->generation || is_near ||
		   export->since[generation + 1] >= find->since,
		   "a find brings an old generation");
	sim_expect(sim, find->found.fds.n == (is_near ? 1u : 0u) &&
		   (!is_near || find->found.fds.fds[0] == (int)(owner * 1000 + find->found.id)),
		   "a find brings wrong descriptors");
	p->held[p->n_held] = (struct sim_held){ find->rank, find->found.id, generation,
						find->call.use, NULL, 0, 0 };
	sim_watch(sim, who, &p->held[p->n_held++]);
}

static void missed(struct sim *sim, const struct sim_find *find)
{
	const struct sim_process *owner = &sim->processes[sim->process_of[find->rank]];
	const struct sim_export *export;
	uint32_t i;

	for (i = 0; i < owner->n_exports; i++) {
		export = &owner->exports[i];
		sim_expect(sim, export->rank != find->rank || export->name != find->name ||
			   export->from > find->since || export->to < sim->now,
			   "a find misses what was there all the time");
	}
}

void sim_find_ended(struct sim *sim, uint32_t who, struct sim_find *find)
{
	const struct sim_process *p = &sim->processes[who];

	find->is_open = 0;
	sim_expect(sim, is_in_time(sim, p, find->deadline), "a find ends behind its deadline");
	if (find->call.result == 0)
		found(sim, who, find);
	else if (find->call.result == CEOV_NONE)
		missed(sim, find);
	else if (find->call.result == CEOV_ERR_TIMEOUT)
		sim_expect(sim, sim->now >= find->deadline, "a find gives up too early");
	else
		sim_expect(sim, find->call.result == CEOV_ERR_PEER_LOST &&
			   (may_seem_lost(sim, sim->process_of[find->rank]) ||
			    cei_group_is_expelled(p->group)),
			   "a find calls a process lost that lives");
}

/* --- barriers, renewals and withdrawals ------------------------------------------------- */

static int is_calm(const struct sim *sim)
{
	uint32_t i;

	for (i = 0; i < sim->n; i++)
		if (sim->processes[i].kill_at || sim->processes[i].stop_until)
			return 0;
	return 1;
}

/* Whether the process has said farewell though somebody has not heard all: because of faults
 * elsewhere, or of losses for half of the time that it has. */
static int may_be_hasty(const struct sim *sim, const struct sim_process *p)
{
	return !is_calm(sim) || (p->left_at && sim->now >= p->left_at + SIM_LEAVE / 2);
}

/* Whether the barrier can have failed because that process has left. Others hear through a leader,
 * so it has to pass what it has called. Who talks to it for the first time when it has left takes
 * it as lost. */
static int may_be_missed(const struct sim *sim, uint32_t process, uint64_t n_calls)
{
	int may = sim->n_nodes > 1 && sim->in_node[sim->node_at[sim->node_of[process]]] == process;
	uint32_t i;

	for (i = 0; i < sim->n; i++)
		may |= cei_group_life(sim->processes[i].group, process) == CEI_GROUP_LOST ||
			cei_group_life(sim->processes[i].group, process) == CEI_GROUP_PARTING;
	return may || may_be_hasty(sim, &sim->processes[process]) ||
		sim->processes[process].n_calls < n_calls;
}

void sim_barrier_ended(struct sim *sim, uint32_t who)
{
	struct sim_process *p = &sim->processes[who];
	const struct cei_group_call *call = &p->barrier;
	uint32_t i;

	p->in_barrier = 0;
	p->barrier_timed_out = call->result == CEOV_ERR_TIMEOUT;
	sim_expect(sim, is_in_time(sim, p, p->barrier_deadline),
		   "a barrier ends behind its deadline");
	for (i = 0; i < sim->n && !call->result; i++)
		sim_expect(sim, sim->processes[i].n_calls >= p->n_calls,
			   "a barrier passes early");
	sim->n_passed += !call->result;
	if (call->result)
		sim_expect(sim, call->blame < sim->n_ranks, "a barrier blames nobody");
	if (call->result == CEOV_ERR_TIMEOUT)
		sim_expect(sim, sim->process_of[call->blame] != who,
			   "a barrier blames its own process");
	if (call->result == CEOV_ERR_PEER_LOST) {
		p->has_failed = 1;
		sim_expect(sim, may_seem_lost(sim, sim->process_of[call->blame]),
			   "a barrier blames a process that is well");
		sim_expect(sim, may_be_missed(sim, sim->process_of[call->blame], p->n_calls),
			   "a barrier fails because of a process that has called it and left");
	}
	if (p->last != 1)
		return;
	sim_expect(sim, call->result != CEOV_ERR_TIMEOUT,
		   "the last barrier waits for a dead process until its deadline");
	p->last = 2;
}

void sim_renew_ended(struct sim *sim, uint32_t who)
{
	struct sim_process *p = &sim->processes[who], *other;
	const struct sim_export *export = &p->exports[p->renew_export];
	uint32_t i, k;

	p->in_renew = 0;
	sim_expect(sim, is_in_time(sim, p, p->renew_deadline),
		   "a renewal ends behind its deadline");
	sim_expect(sim, p->renew.result != CEOV_ERR_TIMEOUT || sim->now >= p->renew_deadline,
		   "a renewal gives up too early");
	sim->n_renewed += !p->renew.result;
	if (p->renew.result == CEOV_ERR_PEER_LOST)
		sim_expect(sim, may_seem_lost(sim, sim->process_of[p->renew.blame]) ||
			   cei_group_is_expelled(p->group),
			   "a renewal blames a process that is well");
	for (i = 0; i < sim->n && !p->renew.result; i++) {
		other = &sim->processes[i];
		if (is_out(sim, i) || is_out(sim, who) || i == who ||
		    cei_group_life(p->group, i) != CEI_GROUP_UP ||
		    sim->node_of[i] == sim->node_of[who])
			continue;
		for (k = 0; k < other->n_held; k++)
			sim_expect(sim, sim->process_of[other->held[k].rank] != who ||
				   other->held[k].id != export->id ||
				   other->held[k].generation == export->generation,
				   "a renewal ends, and a user has the old generation");
	}
}

void sim_withdrawn(struct sim *sim, uint32_t who, const struct sim_export *export)
{
	const struct sim_process *p = &sim->processes[who], *other;
	uint32_t i, k;

	for (i = 0; i < sim->n; i++) {
		other = &sim->processes[i];
		if (is_out(sim, i) || is_out(sim, who) ||
		    cei_group_life(p->group, i) != CEI_GROUP_UP ||
		    cei_group_life(other->group, who) != CEI_GROUP_UP)
			continue;
		for (k = 0; k < other->n_held; k++)
			sim_expect(sim, sim->process_of[other->held[k].rank] != who ||
				   other->held[k].id != export->id,
				   "a withdrawal ends while a user has it");
	}
}

/* --- who is lost ------------------------------------------------------------------------ */

void sim_told_gone(struct sim *sim, uint32_t who, const struct cei_group_action *action)
{
	struct sim_process *p = &sim->processes[who];

	sim->n_gone++;
	if (action->has_departed) {
		sim_expect(sim, sim->processes[action->process].wants_out || p->wants_out,
			   "a process is said to have closed that has not");
		return;
	}
	p->told_lost[action->process] = sim->now;
	sim_expect(sim, p->is_quiet[action->process],
		   "a process is told as lost that may still write here");
	sim_expect(sim, cei_group_is_expelled(p->group) || sim_is_faulty(sim, action->process) ||
		   sim->processes[action->process].is_out,
		   "a process that lives is told as lost");
}

void sim_check_users(struct sim *sim, uint32_t who)
{
	const struct sim_process *p = &sim->processes[who], *user;
	uint32_t i, k;

	if (!p->waits_since || sim->now < p->waits_since + 2 * SIM_TIMEOUT || p->stop_until)
		return;
	for (i = 0; i < sim->n; i++) {
		user = &sim->processes[i];
		if (!user->is_dead || sim->now < user->kill_at + 2 * SIM_TIMEOUT)
			continue;
		for (k = 0; k < user->n_held; k++)
			sim_expect(sim, sim->process_of[user->held[k].rank] != who ||
				   cei_group_life(p->group, i) != CEI_GROUP_UP,
				   "a process waits for a user that is dead");
	}
}

/* Whether somebody of its node can tell of its death at once. */
static int has_witness(const struct sim *sim, uint32_t process)
{
	const struct sim_process *p;
	uint32_t i;

	for (i = 0; i < sim->n; i++) {
		p = &sim->processes[i];
		if (i != process && sim->node_of[i] == sim->node_of[process] && !p->is_dead &&
		    !p->wants_out && !p->stop_until)
			return 1;
	}
	return 0;
}

static void check_agreement(struct sim *sim, uint32_t who, uint32_t of, int is_left)
{
	const struct sim_process *p = &sim->processes[who], *other;
	uint32_t i;

	if (sim->processes[of].is_dead && has_witness(sim, of))
		sim_expect(sim, cei_group_life(p->group, of) == CEI_GROUP_LOST,
			   "a survivor does not know of a death");
	for (i = 0; i < sim->n; i++) {
		other = &sim->processes[i];
		if (is_left || is_out(sim, i) || i == of || who == of)
			continue;
		sim_expect(sim, cei_group_life(other->group, of) != CEI_GROUP_LOST ||
			   cei_group_life(p->group, of) != CEI_GROUP_UP,
			   "two survivors do not agree who is lost");
	}
}

/* Without faults nothing stays owed or counted. */
static void check_rest(struct sim *sim, uint32_t who)
{
	const struct sim_process *p = &sim->processes[who], *other;
	uint32_t i, k, x, n;

	sim_expect(sim, !cei_group_n_owed(p->group), "something is owed for ever");
	sim_check_counters(sim, who);
	for (x = 0; x < p->n_exports; x++) {
		for (n = 0, i = 0; i < sim->n; i++) {
			other = &sim->processes[i];
			for (k = 0; k < other->n_held; k++)
				n += sim->process_of[other->held[k].rank] == who &&
					other->held[k].id == p->exports[x].id;
		}
		sim_expect(sim, cei_group_n_users(p->group, p->exports[x].id) == n,
			   "an owner counts other uses than there are");
	}
}

void sim_check_end(struct sim *sim)
{
	int is_left = 0, k;
	uint32_t i, q;

	for (i = 0; i < sim->n; i++) {
		is_left |= sim->processes[i].wants_out;
		sim->n_expelled += (uint64_t)cei_group_is_expelled(sim->processes[i].group);
	}
	for (i = 0; i < sim->n; i++) {
		const struct sim_process *p = &sim->processes[i];

		if (is_out(sim, i) || p->wants_out)
			continue;
		for (k = 0; k < (int)SIM_FINDS; k++)
			sim_expect(sim, !p->finds[k].is_open, "a find has not ended");
		sim_expect(sim, !p->in_barrier && !p->in_renew, "a call has not ended");
		sim_expect(sim, p->last == 2 || p->has_failed,
			   "the last barrier has not ended");
		sim_expect(sim, !is_calm(sim) || is_left || !p->has_failed,
			   "a barrier fails though nothing has happened");
		for (q = 0; q < sim->n; q++)
			check_agreement(sim, i, q, is_left);
		if (is_calm(sim) && !is_left)
			check_rest(sim, i);
	}
}
