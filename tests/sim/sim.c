/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Implements a discrete-event simulation. The events are engine turns, arrivals of copies on lanes,
 * and ends of latencies and copies. */

#include "sim/sim.h"

#include <math.h>
#include <stdlib.h>

#include "testing.h"

#define ISSUE_NS     3000u              /* delay from an engine's turn until a copy reaches its
					 * lane */
#define TURN_NS      1500u              /* shortest time between turns */
#define TURN_MORE_NS 1500u              /* random addition to the time between turns, at most */
#define NOISE        0.01               /* copies take longer by a random part, at most this one */

/* --- machines ------------------------------------------------------------- */

struct cei_machine *sim_machine_empty(uint32_t n_gpus, uint32_t n_nodes, uint32_t n_ports)
{
	struct cei_machine *machine = calloc(1, sizeof(*machine));
	uint32_t n = n_gpus + n_nodes;

	ck_assert_ptr_nonnull(machine);
	machine->n_gpus = n_gpus;
	machine->n_nodes = n_nodes;
	machine->n_ports = n_ports;
	machine->links = calloc((size_t)n * n, sizeof(*machine->links));
	ck_assert_ptr_nonnull(machine->links);
	return machine;
}

struct cei_machine *sim_machine_switch(uint32_t n_gpus, uint64_t bytes_per_s, uint64_t t0_ns)
{
	struct cei_machine *machine = sim_machine_empty(n_gpus, 1, 2 * n_gpus);
	struct cei_machine_link *link;
	uint32_t a, b;

	for (a = 0; a < 2 * n_gpus; a++)
		machine->ports[a].bytes_per_s = bytes_per_s;
	for (a = 0; a < n_gpus; a++) {
		for (b = 0; b < n_gpus; b++) {
			link = &machine->links[a * (n_gpus + 1) + b];
			if (a == b)
				continue;
			link->kind = CEI_MACHINE_NVSWITCH;
			link->bytes_per_s = bytes_per_s;
			link->t0_ns = t0_ns;
			link->n_ports = 2;
			link->ports[0] = (uint16_t)a;
			link->ports[1] = (uint16_t)(n_gpus + b);
		}
	}
	return machine;
}

/* --- creating and destroying ------------------------------------------------ */

struct sim *sim_create(const struct cei_machine *machine, int has_scheduler, uint64_t seed)
{
	struct sim *sim = calloc(1, sizeof(*sim));
	struct cei_report report;
	uint32_t i, k;

	ck_assert_ptr_nonnull(sim);
	cei_report_init(&report, NULL, NULL);
	sim->machine = machine;
	sim->seed = seed;
	sim->begin_ns = sim->now_ns = 1000000;
	ck_assert_int_eq(cei_ports_create(&report, machine, &sim->ports), 0);
	for (i = 0; i < machine->n_gpus; i++) {
		ck_assert_int_eq(cei_queues_init(&sim->engines[i].queues, has_scheduler ?
						 sim->ports : NULL, SIM_LANES, 64), 0);
		sim->engines[i].turn_ns = sim->now_ns + testing_below(&sim->seed, TURN_NS);
		for (k = 0; k < SIM_LANES; k++) {
			sim->engines[i].lanes[k].last = &sim->engines[i].lanes[k].first;
			sim->engines[i].lanes[k].idle_since_ns = UINT64_MAX;
		}
	}
	cei_report_fini(&report);
	return sim;
}

void sim_destroy(struct sim *sim)
{
	uint32_t i;

	for (i = 0; i < sim->machine->n_gpus; i++)
		cei_queues_fini(&sim->engines[i].queues);
	cei_flows_destroy(sim->flows);
	cei_ports_destroy(sim->ports);
	free(sim);
}

void sim_share(struct sim *sim)
{
	struct cei_report report;
	uint32_t i;

	cei_report_init(&report, NULL, NULL);
	ck_assert_int_eq(cei_flows_create(&report, sim->machine->n_ports, &sim->flows), 0);
	cei_report_fini(&report);
	for (i = 0; i < sim->machine->n_gpus; i++)
		cei_queues_share(&sim->engines[i].queues, sim->flows);
}

uint32_t sim_open_client(struct sim *sim, const struct cei_flows_limits *limits)
{
	uint32_t i, slot = 0;

	ck_assert_int_eq(cei_flows_open(sim->flows, limits, &slot), 0);
	for (i = 0; i < sim->machine->n_gpus; i++)
		ck_assert_int_eq(cei_queues_admit(&sim->engines[i].queues, slot), 0);
	return slot;
}

void sim_ask(const struct sim *sim, struct sim_copy *copy, uint32_t from, uint32_t to)
{
	const struct cei_machine *machine = sim->machine;
	uint32_t n = cei_machine_n_places(machine);
	int is_out = !cei_machine_is_gpu(machine, to);
	int is_in = !cei_machine_is_gpu(machine, from);

	copy->engine = is_in ? to : from;
	copy->link = copy->job.link = cei_machine_link(machine, from, to);
	copy->job.lane = is_in ? 1 : is_out ? 2 : 0;
	copy->job.direction = (uint8_t)copy->job.lane;
	copy->job.turn = (uint16_t)((to + n - from) % n);
	ck_assert_int_ne(copy->link->kind, CEI_MACHINE_NONE);
}

void sim_add(struct sim *sim, struct sim_copy *copy)
{
	struct sim_engine *engine = &sim->engines[copy->engine];

	copy->t0_ns = (double)copy->link->t0_ns;
	copy->bytes = (double)cei_job_row_bytes(&copy->job);
	copy->slowness = 1 + NOISE * (double)testing_below(&sim->seed, 1000) / 1000;
	copy->job.ready_ns = sim->now_ns;
	engine->n_open++;
	cei_queues_add(&engine->queues, &copy->job);
}

/* --- ports ------------------------------------------------------------------ */

/* Returns the copy in progress on a lane, or NULL. */
static struct sim_copy *running(const struct sim *sim, const struct sim_lane *lane)
{
	return lane->first && lane->first->arrives_ns <= sim->now_ns ? lane->first : NULL;
}

static uint32_t carries(const struct sim *sim, uint32_t port)
{
	uint32_t n = sim->ports->ports[port].n_slots;

	return n ? n : UINT32_MAX;
}

/* Counts the active copies at each port. */
static void count_active(struct sim *sim)
{
	const struct sim_copy *copy;
	uint32_t i, p;

	for (p = 0; p < sim->machine->n_ports; p++)
		sim->active[p] = 0;
	for (i = 0; i < sim->machine->n_gpus * SIM_LANES; i++) {
		copy = running(sim, &sim->engines[i / SIM_LANES].lanes[i % SIM_LANES]);
		if (!copy || copy->t0_ns > 0)
			continue;
		for (p = 0; p < copy->link->n_ports; p++)
			sim->active[copy->link->ports[p]]++;
	}
}

/* Adds up statistics for a period without changes. */
static void watch_ports(struct sim *sim, uint64_t ns)
{
	uint32_t p;

	for (p = 0; p < sim->machine->n_ports; p++) {
		if (sim->active[p] <= carries(sim, p)) {
			sim->met_ns[p] = 0;
			continue;
		}
		sim->met_ns[p] += ns;
		sim->outcome.meeting_ns += ns;
		if (sim->met_ns[p] > sim->outcome.longest_meeting_ns)
			sim->outcome.longest_meeting_ns = sim->met_ns[p];
	}
}

/* Returns the copy's current rate in bytes per ns. */
static double rate_of(const struct sim *sim, const struct sim_copy *copy)
{
	const struct cei_machine_link *link = copy->link;
	double share, rate = (double)link->bytes_per_s;
	uint32_t i;

	for (i = 0; i < link->n_ports; i++) {
		if (!sim->machine->ports[link->ports[i]].bytes_per_s)
			continue;
		share = (double)sim->machine->ports[link->ports[i]].bytes_per_s /
			sim->active[link->ports[i]];
		if (share < rate)
			rate = share;
	}
	return rate / 1e9 / copy->slowness;
}

/* --- time ------------------------------------------------------------------- */

/* Returns when the lane's state changes next if nothing else happens. */
static double next_of(const struct sim *sim, const struct sim_lane *lane)
{
	const struct sim_copy *copy = running(sim, lane);

	if (!lane->first)
		return INFINITY;
	if (!copy)
		return (double)lane->first->arrives_ns;
	if (copy->t0_ns > 0)
		return (double)sim->now_ns + copy->t0_ns;
	return (double)sim->now_ns + copy->bytes / rate_of(sim, copy);
}

static double next_event(const struct sim *sim)
{
	double next, first = INFINITY;
	uint32_t i, k;

	for (i = 0; i < sim->machine->n_gpus; i++) {
		if (sim->engines[i].n_open && (double)sim->engines[i].turn_ns < first)
			first = (double)sim->engines[i].turn_ns;
		for (k = 0; k < SIM_LANES; k++) {
			next = next_of(sim, &sim->engines[i].lanes[k]);
			if (next < first)
				first = next;
		}
	}
	return first;
}

static void finish(struct sim *sim, struct sim_lane *lane)
{
	struct sim_copy *copy = lane->first;

	lane->first = copy->next;
	if (!lane->first)
		lane->last = &lane->first;
	copy->done_ns = sim->now_ns;
	copy->next = lane->done;
	lane->done = copy;
}

static void move_on(struct sim *sim, struct sim_lane *lane, double ns)
{
	struct sim_copy *copy = running(sim, lane);

	if (!copy)
		return;
	if (copy->t0_ns > 0)
		copy->t0_ns = copy->t0_ns - ns < 1 ? 0 : copy->t0_ns - ns;
	else
		copy->bytes -= ns * rate_of(sim, copy);
}

/* Advances the simulation to the given time. */
static void advance(struct sim *sim, uint64_t until_ns)
{
	double ns = (double)(until_ns - sim->now_ns);
	struct sim_lane *lane;
	uint32_t i;

	for (i = 0; i < sim->machine->n_gpus * SIM_LANES; i++)
		move_on(sim, &sim->engines[i / SIM_LANES].lanes[i % SIM_LANES], ns);
	watch_ports(sim, until_ns - sim->now_ns);
	sim->now_ns = until_ns;
	for (i = 0; i < sim->machine->n_gpus * SIM_LANES; i++) {
		lane = &sim->engines[i / SIM_LANES].lanes[i % SIM_LANES];
		if (running(sim, lane) && lane->first->t0_ns <= 0 && lane->first->bytes < 1)
			finish(sim, lane);
	}
}

/* --- engines ---------------------------------------------------------------- */

static void reap(struct sim *sim, struct sim_engine *engine, struct sim_lane *lane)
{
	struct sim_copy *copy, *behind;

	while ((copy = lane->done)) {
		lane->done = copy->next;
		cei_queues_leave(&engine->queues, &copy->job, sim->now_ns);
		engine->n_open--;
		behind = copy->behind;
		if (behind)
			sim_add(sim, behind);
		if (copy->done)
			copy->done(sim, copy);
		if (copy->done_ns > sim->outcome.makespan_ns)
			sim->outcome.makespan_ns = copy->done_ns;
	}
}

static void submit(struct sim *sim, struct sim_engine *engine, uint32_t lane)
{
	struct cei_job *job;
	struct sim_copy *copy;

	while ((job = cei_queues_take(&engine->queues, lane, sim->now_ns))) {
		copy = CEI_OWNER(job, struct sim_copy, job);
		copy->arrives_ns = sim->now_ns + ISSUE_NS;
		copy->next = NULL;
		*engine->lanes[lane].last = copy;
		engine->lanes[lane].last = &copy->next;
	}
}

/* Returns whether some copy of the queue could start using unused ports only. */
static int could_go(const struct sim *sim, const struct cei_queue *queue)
{
	const struct cei_machine_link *link;
	uint32_t i;

	if (cei_list_is_empty(&queue->jobs))
		return 0;
	link = CEI_OWNER(queue->jobs.next, struct cei_job, node)->link;
	for (i = 0; i < link->n_ports; i++)
		if (sim->active[link->ports[i]] >= carries(sim, link->ports[i]))
			return 0;
	return 1;
}

static void watch_idle(struct sim *sim, struct sim_engine *engine, uint32_t lane)
{
	const struct cei_waiting *waiting = &engine->queues.lanes[lane]->own;
	uint64_t *since = &engine->lanes[lane].idle_since_ns;
	uint32_t i, could = 0;

	for (i = 0; !engine->lanes[lane].first && !could && i < CEI_LINEUP_LINKS; i++)
		could = (waiting->is_used[0] >> i & 1) && could_go(sim, &waiting->free[0][i]);
	if (!could) {
		*since = UINT64_MAX;
		return;
	}
	if (*since == UINT64_MAX)
		*since = sim->now_ns;
	if (sim->now_ns - *since > sim->outcome.longest_idle_ns)
		sim->outcome.longest_idle_ns = sim->now_ns - *since;
}

static void turn(struct sim *sim, struct sim_engine *engine)
{
	uint32_t i;

	engine->turn_ns = sim->now_ns + TURN_NS + testing_below(&sim->seed, TURN_MORE_NS);
	for (i = 0; i < SIM_LANES; i++)
		reap(sim, engine, &engine->lanes[i]);
	cei_queues_settle(&engine->queues, sim->now_ns);
	for (i = 0; i < SIM_LANES; i++) {
		submit(sim, engine, i);
		watch_idle(sim, engine, i);
	}
}

int sim_run(struct sim *sim, uint64_t until_ns)
{
	double next;
	uint32_t i;

	for (;;) {
		count_active(sim);
		next = next_event(sim);
		if (isinf(next))
			return 1;
		if (next > (double)until_ns) {
			advance(sim, until_ns);
			return 0;
		}
		advance(sim, next > (double)sim->now_ns ? (uint64_t)ceil(next) : sim->now_ns);
		for (i = 0; i < sim->machine->n_gpus; i++)
			if (sim->engines[i].n_open && sim->engines[i].turn_ns <= sim->now_ns)
				turn(sim, &sim->engines[i]);
	}
}

struct sim_outcome sim_outcome(const struct sim *sim)
{
	struct sim_outcome outcome = sim->outcome;
	uint32_t i;

	outcome.makespan_ns -= sim->begin_ns;
	for (i = 0; i < sim->machine->n_gpus; i++)
		outcome.n_looks += sim->engines[i].queues.n_looks;
	return outcome;
}

/* --- bounds ------------------------------------------------------------------ */

/* Returns how long a copy that takes ns occupies a port, which may be wider than its link. */
static double port_ns(const struct sim *sim, uint32_t port, const struct sim_copy *copy,
		      double ns)
{
	if (carries(sim, port) == 1)
		return ns;
	return (double)copy->job.bytes * 1e9 / (double)sim->machine->ports[port].bytes_per_s;
}

uint64_t sim_bound_ns(const struct sim *sim, const struct sim_copy *copies, uint32_t n)
{
	double ports[CEI_MACHINE_PORTS_MAX] = { 0 };
	double lanes[CEI_MACHINE_GPUS_MAX * SIM_LANES] = { 0 };
	const struct cei_machine_link *link;
	double ns, most = 0;
	uint32_t i, k;

	for (i = 0; i < n; i++) {
		link = copies[i].link;
		ns = (double)cei_machine_link_ns(link, copies[i].job.bytes);
		lanes[copies[i].engine * SIM_LANES + copies[i].job.lane] += ns;
		for (k = 0; k < link->n_ports; k++)
			ports[link->ports[k]] += port_ns(sim, link->ports[k], &copies[i], ns);
	}
	for (i = 0; i < sim->machine->n_ports; i++)
		most = ports[i] > most ? ports[i] : most;
	for (i = 0; i < sim->machine->n_gpus * SIM_LANES; i++)
		most = lanes[i] > most ? lanes[i] : most;
	return (uint64_t)most;
}
