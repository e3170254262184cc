/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The carriers, faults and calls of simulated processes; see group_sim.h. */

#include "group_sim.h"

#include <stdlib.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

static uint64_t ns_of(uint32_t tick)
{
	return tick * SIM_TICK;
}

/* --- flights --------------------------------------------------------------------------- */

static void push(struct sim_queue *queue, struct sim_flight flight)
{
	if (queue->n == queue->room) {
		queue->room = queue->room * 2 + 16;
		queue->flights = realloc(queue->flights, queue->room * sizeof(flight));
		if (!queue->flights)
			abort();
	}
	queue->flights[queue->n++] = flight;
}

static struct sim_flight take(struct sim_queue *queue, uint32_t at)
{
	struct sim_flight flight = queue->flights[at];

	memmove(&queue->flights[at], &queue->flights[at + 1],
		(--queue->n - at) * sizeof(flight));
	return flight;
}

static struct cei_group_message *copy_of(const struct cei_group_message *message)
{
	struct cei_group_message *copy = malloc(sizeof(*copy));

	if (!copy)
		abort();
	*copy = *message;
	return copy;
}

static void write_flight(struct sim *sim, const struct sim_flight *flight, const char *what)
{
	static const char *const events[] = { "", "down", "refusal", "ready", "quiet" };
	static const char *const types[] = { "", "FIND", "REPLY", "DROP", "RENEW", "BARRIER",
		"LATE", "LIMIT", "GONE", "BYE", "BEAT", "ACK", "RAISE", "ASK", "VALUE", "ABORT" };
	const struct cei_group_message *m = flight->message;

	if (!sim->trace)
		return;
	fprintf(sim->trace, "%5u: %u -> %u %s %s", sim->now, flight->from, flight->to, what,
		m ? types[m->type] : events[flight->what]);
	if (m)
		fprintf(sim->trace, " %llu", (unsigned long long)m->number);
	if (m && m->type == CEI_GROUP_BARRIER)
		fprintf(sim->trace, " step %u call %llu", m->barrier.step,
			(unsigned long long)m->barrier.call);
	if (m && (m->type == CEI_GROUP_LIMIT || m->type == CEI_GROUP_BYE))
		fprintf(sim->trace, " calls %llu rank %u", (unsigned long long)m->said.n_calls,
			m->said.rank);
	if (m && m->type == CEI_GROUP_GONE)
		fprintf(sim->trace, " of %u, first %u", m->gone.n, m->gone.processes[0]);
	if (m && (m->type == CEI_GROUP_REPLY || m->type == CEI_GROUP_DROP))
		fprintf(sim->trace, " use %llu", (unsigned long long)m->use.use);
	fprintf(sim->trace, "\n");
}

static int is_sure(const struct sim *sim, uint32_t a, uint32_t b)
{
	return sim->node_of[a] == sim->node_of[b] ? sim->near_is_sure : sim->far_is_sure;
}

/* In so many ticks, at least 1, or behind what is under way if the carrier keeps the order. */
static void fly(struct sim *sim, struct sim_flight flight, uint32_t delay)
{
	flight.at = sim->now + delay;
	if (flight.what <= SIM_DOWN && is_sure(sim, flight.from, flight.to))
		push(&sim->in_order[flight.from][flight.to], flight);
	else
		push(&sim->at[flight.at % 64], flight);
}

/* At most two in a row of a pair of processes are lost: else a far process that lives may seem to
 * be dead. */
static void carry(struct sim *sim, uint32_t from, const struct cei_group_action *action)
{
	struct sim_flight flight = { .what = SIM_MESSAGE, .from = from, .to = action->process,
				     .fds = action->fds };
	uint32_t *in_a_row = &sim->in_a_row[from][flight.to];

	flight.message = copy_of(&action->message);
	write_flight(sim, &flight, "sends");
	free(flight.message);
	sim->n_messages++;
	sim->have_met[from][flight.to] = sim->have_met[flight.to][from] = 1;
	if (is_sure(sim, from, flight.to)) {
		flight.message = copy_of(&action->message);
		fly(sim, flight, 1 + sim_draw(sim, sim->delay));
		return;
	}
	if (*in_a_row < 2 && sim_draw(sim, 100) < sim->lose) {
		++*in_a_row;
		sim->n_lost++;
		return;
	}
	*in_a_row = 0;
	flight.message = copy_of(&action->message);
	fly(sim, flight, 1 + sim_draw(sim, sim->delay));
	if (sim_draw(sim, 100) < sim->repeat) {
		flight.message = copy_of(&action->message);
		fly(sim, flight, 1 + sim_draw(sim, sim->delay + 20));
	}
}

/* Its connections end, as far as others can see that. */
static void go_down(struct sim *sim, uint32_t who)
{
	uint32_t i;

	for (i = 0; i < sim->n; i++)
		if (i != who && (sim->node_of[i] == sim->node_of[who] ||
				 (sim->far_tells && sim->have_met[who][i])))
			fly(sim, (struct sim_flight){ .what = SIM_DOWN, .from = who, .to = i },
			    1 + sim_draw(sim, 10));
}

/* --- actions ----------------------------------------------------------------------------- */

static void look_at_calls(struct sim *sim, uint32_t who)
{
	struct sim_process *p = &sim->processes[who];
	uint32_t i;

	for (i = 0; i < SIM_FINDS; i++)
		if (p->finds[i].is_open && p->finds[i].call.is_ended)
			sim_find_ended(sim, who, &p->finds[i]);
	if (p->in_barrier && p->barrier.is_ended)
		sim_barrier_ended(sim, who);
	if (p->in_renew && p->renew.is_ended)
		sim_renew_ended(sim, who);
	if (p->wants_out && p->leave.is_ended && !p->is_out) {
		p->is_out = 1;
		go_down(sim, who);
	}
}

static void send(struct sim *sim, uint32_t who, const struct cei_group_action *action)
{
	struct sim_process *p = &sim->processes[who];
	uint8_t *is_full = &sim->is_full[who][action->process];

	if (!*is_full && sim->now >= sim->full_again[who][action->process] &&
	    sim_draw(sim, 100) < sim->full) {
		*is_full = 1;
		fly(sim, (struct sim_flight){ .what = SIM_READY, .from = action->process,
					      .to = who }, 1 + sim_draw(sim, 20));
	}
	if (*is_full) {
		cei_group_sent(p->group, CEOV_FULL, 0);
		return;
	}
	carry(sim, who, action);
	cei_group_sent(p->group, 0, 0);
}

/* The one that is given up finds its connection closed with a refusal. */
static void give_up(struct sim *sim, uint32_t who, uint32_t process)
{
	sim->processes[who].has_given_up[process] = 1;
	fly(sim, (struct sim_flight){ .what = SIM_QUIET, .from = process, .to = who },
	    1 + sim_draw(sim, 40));
	if (cei_group_is_expelled(sim->processes[who].group))
		return;
	fly(sim, (struct sim_flight){ .what = SIM_REFUSAL, .from = who, .to = process },
	    1 + sim_draw(sim, sim->delay));
}

static void renewed(struct sim_process *p, const struct cei_group_action *action)
{
	uint32_t i;

	for (i = 0; i < p->n_held; i++)
		if (p->held[i].use == action->use) {
			p->held[i].generation = action->generation;
			sim_zero(p->held[i].image->words);
			memset(p->held[i].image->asked, 0, sizeof(p->held[i].image->asked));
		}
}

static void drain(struct sim *sim, uint32_t who)
{
	struct sim_process *p = &sim->processes[who];
	struct cei_group_action action;

	for (look_at_calls(sim, who); !p->is_out && !cei_group_next(p->group, &action);
	     look_at_calls(sim, who)) {
		switch (action.what) {
		case CEI_GROUP_SEND:
			send(sim, who, &action);
			break;
		case CEI_GROUP_GIVE_UP:
			give_up(sim, who, action.process);
			break;
		case CEI_GROUP_PEER_GONE:
			sim_told_gone(sim, who, &action);
			break;
		case CEI_GROUP_RENEWED:
			renewed(p, &action);
			break;
		case CEI_GROUP_ABORTED:
			sim_aborted(sim, who, &action.message.abort);
			break;
		case CEI_GROUP_CLOSE:
		case CEI_GROUP_ENDED:
			break;
		}
	}
	if (cei_group_is_expelled(p->group))
		sim_expect(sim, p->stop_until != 0, "a process is thrown out that never stood "
			   "still");
}

/* --- events ------------------------------------------------------------------------------ */

static int is_stopped(const struct sim *sim, const struct sim_process *p)
{
	return p->stop_until && sim->now >= p->stop_at && sim->now < p->stop_until;
}

static void hand(struct sim *sim, struct sim_flight *flight)
{
	struct sim_process *p = &sim->processes[flight->to];

	write_flight(sim, flight, "brings");
	if (cei_group_reserve(p->group))
		abort();
	cei_group_time(p->group, ns_of(sim->now));
	switch (flight->what) {
	case SIM_MESSAGE:
		if (!p->has_given_up[flight->from] || sim->schedule % 2)
			cei_group_received(p->group, flight->from, flight->message, &flight->fds);
		break;
	case SIM_DOWN:
		cei_group_down(p->group, flight->from, "its connection has ended", 0);
		break;
	case SIM_REFUSAL:
		cei_group_down(p->group, flight->from, "it refuses this process", 1);
		break;
	case SIM_READY:
		sim->is_full[flight->to][flight->from] = 0;
		sim->full_again[flight->to][flight->from] = sim->now + 100;
		cei_group_ready(p->group, flight->from);
		break;
	case SIM_QUIET:
		p->is_quiet[flight->from] = 1;
		cei_group_quiet(p->group, flight->from);
		break;
	}
	drain(sim, flight->to);
	sim_check_images(sim, flight->to);
}

static void deliver(struct sim *sim, struct sim_flight flight)
{
	struct sim_process *p = &sim->processes[flight.to];

	if (p->is_dead || p->is_out) {
		free(flight.message);
	} else if (is_stopped(sim, p) || p->kept.n) {
		push(&p->kept, flight);
	} else {
		hand(sim, &flight);
		free(flight.message);
	}
}

void sim_deliver(struct sim *sim)
{
	struct sim_queue *queue = &sim->at[sim->now % 64];
	uint32_t a, b;

	while (queue->n)
		deliver(sim, take(queue, sim_draw(sim, queue->n)));
	for (a = 0; a < sim->n; a++)
		for (b = 0; b < sim->n; b++)
			while (sim->in_order[a][b].n &&
			       sim->in_order[a][b].flights[0].at <= sim->now)
				deliver(sim, take(&sim->in_order[a][b], 0));
}

/* --- calls ---------------------------------------------------------------------------------- */

static void name_of(uint32_t name, char *text)
{
	memset(text, 0, CEI_GROUP_NAME_BYTES);
	text[0] = (char)('a' + name);
}

static void call_find(struct sim *sim, uint32_t who)
{
	struct sim_process *p = &sim->processes[who];
	char name[CEI_GROUP_NAME_BYTES];
	struct sim_find *find;
	uint32_t i, n_open = 0, rank = sim_draw(sim, sim->n_ranks);

	for (i = 0; i < SIM_FINDS; i++)
		n_open += p->finds[i].is_open != 0;
	if (n_open + p->n_held >= SIM_HELD || n_open == SIM_FINDS ||
	    sim->process_of[rank] == who)
		return;
	for (i = 0; p->finds[i].is_open; i++)
		;
	find = &p->finds[i];
	find->is_open = 1;
	find->rank = rank;
	find->name = sim_draw(sim, SIM_NAMES);
	find->since = sim->now;
	find->deadline = sim->now + 1 + sim_draw(sim, sim_draw(sim, 4) ? 300 : 20);
	find->call.deadline_ns = ns_of(find->deadline);
	find->call.found = &find->found;
	name_of(find->name, name);
	cei_group_find(p->group, &find->call, rank, name);
}

static void call_drop(struct sim *sim, struct sim_process *p)
{
	uint32_t i;

	if (!p->n_held)
		return;
	i = sim_draw(sim, p->n_held);
	sim_forget(p, &p->held[i]);
	cei_group_drop(p->group, p->held[i].rank, p->held[i].use);
	p->held[i] = p->held[--p->n_held];
}

static void call_export(struct sim *sim, uint32_t who)
{
	struct sim_process *p = &sim->processes[who];
	struct sim_export *made = &p->exports[p->n_exports];
	struct cei_group_export export = { .fds.n = 1 };

	if (p->n_exports == SIM_EXPORTS)
		return;
	memset(made, 0, sizeof(*made));
	made->rank = sim_draw(sim, sim->n_ranks);
	made->name = sim_draw(sim, SIM_NAMES);
	export.rank = made->rank;
	export.words = made->words;
	export.n_words = SIM_WORDS;
	export.fds.fds[0] = (int)(who * 1000 + p->n_exports + 1);
	name_of(made->name, export.name);
	if (cei_group_export(p->group, &export, &made->id))
		return;
	made->from = sim->now;
	made->to = UINT32_MAX;
	made->generation = 1;
	p->n_exports++;
}

static void call_withdraw(struct sim *sim, uint32_t who)
{
	struct sim_process *p = &sim->processes[who];
	uint32_t i = p->n_exports ? sim_draw(sim, p->n_exports) : 0;

	if (!p->n_exports || (p->in_renew && p->renew_export == i))
		return;
	if (p->exports[i].to == UINT32_MAX)
		p->exports[i].to = sim->now;
	if (!cei_group_withdraw(p->group, p->exports[i].id, 0))
		sim_withdrawn(sim, who, &p->exports[i]);
}

static void call_renew(struct sim *sim, struct sim_process *p)
{
	struct sim_export *export;
	uint32_t i;

	for (i = 0; i < p->n_exports; i++)
		if (p->exports[i].to == UINT32_MAX && !sim_draw(sim, 2) &&
		    p->exports[i].generation < SIM_GENERATIONS - 2)
			break;
	if (i == p->n_exports || p->in_renew)
		return;
	export = &p->exports[i];
	export->since[++export->generation] = sim->now;
	sim_zero(export->words);
	memset(export->raised, 0, sizeof(export->raised));
	p->in_renew = 1;
	p->renew_export = i;
	p->renew_deadline = sim->now + 1 + sim_draw(sim, 400);
	p->renew.deadline_ns = ns_of(p->renew_deadline);
	cei_group_renew(p->group, &p->renew, export->id);
}

static void call_barrier(struct sim_process *p, uint32_t deadline)
{
	p->n_calls += !p->barrier_timed_out;
	p->in_barrier = 1;
	p->barrier_deadline = deadline;
	p->barrier.deadline_ns = ns_of(deadline);
	cei_group_barrier(p->group, &p->barrier);
}

static void call_some(struct sim *sim, uint32_t who)
{
	struct sim_process *p = &sim->processes[who];

	switch (sim_draw(sim, 10)) {
	case 0:
	case 1:
		call_find(sim, who);
		break;
	case 2:
		call_drop(sim, p);
		break;
	case 3:
		call_export(sim, who);
		break;
	case 4:
		if (!sim_draw(sim, 3))
			call_withdraw(sim, who);
		break;
	case 5:
		call_renew(sim, p);
		break;
	case 6:
		if (!p->in_barrier && !p->has_failed && !sim_draw(sim, 3))
			call_barrier(p, sim->now + 1 + sim_draw(sim, sim_draw(sim, 3) ? 500 : 10));
		break;
	case 7:
	case 8:
		sim_call_counters(sim, who);
		break;
	default:
		break;
	}
}

/* All come to as many calls of the barrier as the most eager one, and to one more. */
static void call_last(struct sim *sim, struct sim_process *p)
{
	const struct sim_process *other;
	uint64_t most = 0, n;
	uint32_t i;

	if (p->last || p->has_failed || p->in_barrier)
		return;
	for (i = 0; i < sim->n; i++) {
		other = &sim->processes[i];
		n = other->n_calls - (uint64_t)(other->last != 0);
		most = n > most ? n : most;
	}
	p->last = p->n_calls == most && !p->barrier_timed_out;
	call_barrier(p, sim->now + SIM_LAST_TICKS);
}

/* It waits for users of its exports, or does not any more. */
static void wait_for_users(struct sim *sim, uint32_t who)
{
	struct sim_process *p = &sim->processes[who];

	if (sim->now >= SIM_LAST)
		p->waits_since = 0;
	else if (!sim_draw(sim, 800))
		p->waits_since = p->waits_since ? 0 : sim->now;
	cei_group_await_users(p->group, p->waits_since != 0);
	sim_check_users(sim, who);
}

static int is_busy(const struct sim_process *p)
{
	uint32_t i;

	for (i = 0; i < SIM_FINDS; i++)
		if (p->finds[i].is_open)
			return 1;
	return p->in_barrier || p->in_renew;
}

/* In half of the schedules processes sleep until something is due, but for a call at times. */
static int is_sleepy(const struct sim *sim)
{
	return sim->schedule / 2 % 2;
}

static int is_asleep(struct sim *sim, const struct sim_process *p)
{
	return is_sleepy(sim) && ns_of(sim->now) < cei_group_due(p->group) && sim_draw(sim, 6);
}

void sim_step(struct sim *sim, uint32_t who)
{
	struct sim_process *p = &sim->processes[who];
	struct sim_flight flight;
	int is_leaving = p->leave_at && sim->now >= p->leave_at;

	if (p->is_dead || p->is_out)
		return;
	if (p->kill_at && sim->now >= p->kill_at) {
		p->is_dead = 1;
		go_down(sim, who);
		return;
	}
	if (is_stopped(sim, p))
		return;
	while (p->kept.n && !p->is_out) {
		flight = take(&p->kept, 0);
		hand(sim, &flight);
		free(flight.message);
	}
	if (p->is_out || is_asleep(sim, p))
		return;
	if (cei_group_reserve(p->group))
		abort();
	wait_for_users(sim, who);
	cei_group_time(p->group, ns_of(sim->now));
	if (sim->now > SIM_LAST - 300 && !p->has_raised_all)
		sim_raise_all(p);
	(void)cei_group_look(p->group);
	if (is_leaving && !p->wants_out && !is_busy(p)) {
		p->wants_out = 1;
		p->left_at = sim->now;
		p->leave.deadline_ns = ns_of(sim->now + SIM_LEAVE);
		cei_group_leave(p->group, &p->leave);
	}
	if (sim->now < SIM_CALLS && !is_leaving && (is_sleepy(sim) || !sim_draw(sim, 6)))
		call_some(sim, who);
	if (sim->now >= SIM_LAST && !p->wants_out && !cei_group_is_expelled(p->group))
		call_last(sim, p);
	drain(sim, who);
}
