/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Makes schedules of their numbers, and runs them; see group_sim.h. */

#include "group_sim.h"

#include <stdlib.h>
#include <string.h>

uint32_t sim_draw(struct sim *sim, uint32_t below)
{
	sim->random ^= sim->random << 13;
	sim->random ^= sim->random >> 7;
	sim->random ^= sim->random << 17;
	return (uint32_t)(sim->random >> 33) % below;
}

/* --- what a schedule is -------------------------------------------------------------- */

static void draw_roster(struct sim *sim)
{
	uint32_t i, node, is_mixed = sim_draw(sim, 2), at = 0;

	sim->n = 2 + sim_draw(sim, SIM_PROCESSES_MAX - 1);
	sim->n_nodes = 1 + sim_draw(sim, sim->n < 4 ? sim->n : 4);
	sim->n_ranks = sim->n + sim_draw(sim, sim->n + 1);
	for (i = 0; i < sim->n_ranks; i++)
		sim->process_of[i] = i < sim->n ? i : sim_draw(sim, sim->n);
	for (i = 0; i < sim->n; i++) {
		sim->first_rank[i] = i;
		sim->node_of[i] = is_mixed ? i % sim->n_nodes : i * sim->n_nodes / sim->n;
	}
	for (node = 0; node < sim->n_nodes; node++) {
		sim->node_at[node] = at;
		for (i = 0; i < sim->n; i++)
			if (sim->node_of[i] == node)
				sim->in_node[at++] = i;
	}
	sim->node_at[node] = at;
}

static void draw_carriers(struct sim *sim)
{
	sim->near_is_sure = sim_draw(sim, 2) != 0;
	sim->far_is_sure = sim_draw(sim, 2) != 0;
	sim->far_tells = sim->far_is_sure && sim_draw(sim, 2);
	sim->lose = sim_draw(sim, 4) ? sim_draw(sim, 31) : 0;
	sim->repeat = sim_draw(sim, 2) ? sim_draw(sim, 16) : 0;
	sim->full = sim_draw(sim, 2) ? sim_draw(sim, 30) : 0;
	sim->delay = 1 + sim_draw(sim, sim_draw(sim, 2) ? 30 : 4);
}

/* At most log2 of the processes: more may hide news from each other. */
static void draw_faults(struct sim *sim)
{
	uint32_t bits = 0, n, i;
	struct sim_process *p;

	while ((2u << bits) <= sim->n)
		bits++;
	for (n = sim_draw(sim, bits + 1); n; n--) {
		p = &sim->processes[sim_draw(sim, sim->n)];
		if (p->kill_at || p->stop_until)
			continue;
		if (sim_draw(sim, 3)) {
			p->kill_at = 20 + sim_draw(sim, SIM_CALLS + 100);
			continue;
		}
		p->stop_at = 20 + sim_draw(sim, SIM_CALLS - 100);
		p->stop_until = p->stop_at + 10 + sim_draw(sim, sim_draw(sim, 2) ? 60 : 600);
	}
	for (i = 0; i < sim->n && !sim_draw(sim, 3); i++) {
		p = &sim->processes[i];
		if (!sim_draw(sim, 3) && !p->kill_at && !p->stop_until)
			p->leave_at = 100 + sim_draw(sim, SIM_CALLS);
	}
}

static void make_process(struct sim *sim, uint32_t who)
{
	struct sim_process *p = &sim->processes[who];
	const struct cei_group_config config = {
		.roster = &p->roster,
		.timeout_ns = SIM_TIMEOUT * SIM_TICK,
		.near = { 1, 1, sim->near_is_sure },
		.far = { 0, 0, sim->far_is_sure },
	};

	p->roster = (struct cei_roster){
		.n_ranks = sim->n_ranks, .n_processes = sim->n, .n_nodes = sim->n_nodes,
		.own = who, .process_of = sim->process_of, .node_of = sim->node_of,
		.first_rank = sim->first_rank, .in_node = sim->in_node,
		.node_at = sim->node_at };
	if (cei_group_make(&config, &p->group))
		abort();
}

static void begin(struct sim *sim)
{
	uint32_t i;

	sim->random = sim->schedule * UINT64_C(0x9e3779b97f4a7c15) + 88172645463325252u;
	for (i = 0; i < 5; i++)
		(void)sim_draw(sim, 2);
	draw_roster(sim);
	draw_carriers(sim);
	draw_faults(sim);
	for (i = 0; i < sim->n; i++) {
		make_process(sim, i);
		if (sim->trace)
			fprintf(sim->trace, "process %u, node %u: killed at %u, stopped from %u "
				"to %u, leaves at %u\n", i, sim->node_of[i],
				sim->processes[i].kill_at, sim->processes[i].stop_at,
				sim->processes[i].stop_until, sim->processes[i].leave_at);
	}
}

/* --- running --------------------------------------------------------------------------- */

static void empty(struct sim_queue *queue)
{
	while (queue->n)
		free(queue->flights[--queue->n].message);
	free(queue->flights);
	memset(queue, 0, sizeof(*queue));
}

static void end(struct sim *sim)
{
	uint32_t i, k;

	for (i = 0; i < sim->n; i++) {
		for (k = 0; k < sim->processes[i].n_held; k++)
			sim_forget(&sim->processes[i], &sim->processes[i].held[k]);
		cei_group_free(sim->processes[i].group);
		empty(&sim->processes[i].kept);
		for (k = 0; k < sim->n; k++)
			empty(&sim->in_order[i][k]);
	}
	for (i = 0; i < 64; i++)
		empty(&sim->at[i]);
}

static int is_over(const struct sim *sim)
{
	const struct sim_process *p;
	uint32_t i;

	for (i = 0; i < sim->n; i++) {
		p = &sim->processes[i];
		if (p->is_dead)
			continue;
		if (p->stop_until > sim->now ||
		    !(p->is_out || p->has_failed || p->last == 2 ||
		      cei_group_is_expelled(p->group)))
			return 0;
	}
	return sim->now > SIM_LAST + 400 && sim->now % 512 == 0;
}

static void run_one(struct sim *sim)
{
	uint32_t i;

	begin(sim);
	for (sim->now = 1; sim->now < SIM_END && !sim->failure && !is_over(sim); sim->now++) {
		sim_deliver(sim);
		for (i = 0; i < sim->n && !sim->failure; i++)
			sim_step(sim, i);
	}
	if (!sim->failure)
		sim_check_end(sim);
	end(sim);
}

static void add(struct sim *total, const struct sim *sim)
{
	total->n_messages += sim->n_messages;
	total->n_lost += sim->n_lost;
	total->n_found += sim->n_found;
	total->n_passed += sim->n_passed;
	total->n_renewed += sim->n_renewed;
	total->n_gone += sim->n_gone;
	total->n_expelled += sim->n_expelled;
}

uint64_t group_sim_run(uint64_t first, uint64_t n, int is_told, FILE *out)
{
	struct sim *sim = malloc(sizeof(*sim)), *total = calloc(1, sizeof(*total));
	uint64_t schedule, failed = 0;

	if (!sim || !total)
		abort();
	for (schedule = first; schedule < first + n && !failed; schedule++) {
		memset(sim, 0, sizeof(*sim));
		sim->schedule = schedule;
		sim->trace = is_told ? out : NULL;
		run_one(sim);
		add(total, sim);
		if (!sim->failure)
			continue;
		failed = schedule;
		fprintf(out, "schedule %llu, tick %u: %s\n", (unsigned long long)schedule,
			sim->failed_at, sim->failure);
	}
	fprintf(out, "%llu schedules from %llu: %llu messages, %llu lost; %llu finds, %llu "
		"barriers, %llu renewals succeeded; %llu times a process was said to be gone, "
		"%llu were thrown out\n", (unsigned long long)(schedule - first),
		(unsigned long long)first, (unsigned long long)total->n_messages,
		(unsigned long long)total->n_lost, (unsigned long long)total->n_found,
		(unsigned long long)total->n_passed, (unsigned long long)total->n_renewed,
		(unsigned long long)total->n_gone, (unsigned long long)total->n_expelled);
	free(sim);
	free(total);
	return failed;
}
