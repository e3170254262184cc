/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Measures several links at once, after each was measured alone. If a set is clearly slower than
 * the sum of its links, the links share a port: the narrowest known port that all of them cross,
 * or one that hwloc's tree does not show, which is then added.
 *
 * The flows of a set get bytes in proportion to their links' rates, so that all would end together
 * if nothing were shared. The rate of the set is the sum of all bytes over the time of the longest
 * flow.
 */

#include <stdlib.h>
#include <string.h>

#include "tools/bench/measure/measure.h"

#define ROUNDS       3u
#define FLOW_COPIES  16u                /* number of copies over the fastest link in a set */
#define FLOW_BYTES   (UINT64_C(16) << 20)

static double alone_gb_per_s(const struct measure *m, uint32_t from, uint32_t to)
{
	return (double)cei_machine_link(m->machine, from, to)->bytes_per_s / 1e9;
}

static int is_measured(const struct measure *m, uint32_t from, uint32_t to)
{
	return measure_link(m, from, to)->is_measured;
}

/* --- measuring a set ---------------------------------------------------------------- */

static void add_flow(struct measure_set *set, uint32_t from, uint32_t to, uint32_t slot)
{
	if (set->n_flows < MEASURE_FLOWS_MAX)
		set->flows[set->n_flows++] = (struct measure_flow){
			.from = from, .to = to, .slot = slot };
}

static void size_flows(const struct measure *m, struct measure_set *set)
{
	uint64_t bytes = FLOW_BYTES, part = m->sizes.gpu_bytes / MEASURE_LANES;
	struct measure_flow *flow;
	double fastest = 0, rate;
	uint32_t i;

	bytes = bytes < part ? bytes : part;
	bytes = bytes < m->sizes.host_bytes ? bytes : m->sizes.host_bytes;
	set->alone_gb_per_s = 0;
	for (i = 0; i < set->n_flows; i++) {
		rate = alone_gb_per_s(m, set->flows[i].from, set->flows[i].to);
		fastest = rate > fastest ? rate : fastest;
		set->alone_gb_per_s += rate;
	}
	for (i = 0; i < set->n_flows; i++) {
		flow = &set->flows[i];
		rate = alone_gb_per_s(m, flow->from, flow->to);
		flow->bytes = bytes;
		flow->n_copies = (uint32_t)(FLOW_COPIES * rate / fastest + 0.5);
		if (!flow->n_copies)
			flow->n_copies = 1;
	}
}

static double rate_of(const struct measure_set *set)
{
	double bytes = 0, us = 0;
	uint32_t i;

	for (i = 0; i < set->n_flows; i++) {
		bytes += (double)set->flows[i].bytes * set->flows[i].n_copies;
		us = set->flows[i].us > us ? set->flows[i].us : us;
	}
	return us > 0 ? bytes / us / 1e3 : 0;
}

/* Runs a set. expected: the rate that it should reach, or 0 for the sum of its links. CEOV_NONE:
 * time is up, or a link was not measured. */
static int run_set(struct measure *m, struct measure_set *set, double expected)
{
	float rates[ROUNDS];
	uint32_t i;
	int r = 0;

	for (i = 0; i < set->n_flows; i++)
		if (!is_measured(m, set->flows[i].from, set->flows[i].to))
			return CEOV_NONE;
	if (!set->n_flows || !measure_has_time(m))
		return CEOV_NONE;
	size_flows(m, set);
	set->expected_gb_per_s = expected > 0 ? expected : set->alone_gb_per_s;
	for (i = 0; !r && i < ROUNDS; i++) {
		r = m->ops->run(m->mover, set->flows, set->n_flows);
		rates[i] = (float)rate_of(set);
	}
	if (!r)
		set->gb_per_s = measure_median(rates, ROUNDS);
	return r;
}

static void keep_set(struct measure *m, const struct measure_set *set)
{
	if (m->n_sets < MEASURE_SETS_MAX)
		m->sets[m->n_sets++] = *set;
}

/* --- finding shared ports ----------------------------------------------------------- */

static int is_on(const struct cei_machine_link *link, uint32_t port)
{
	uint32_t i;

	for (i = 0; i < link->n_ports; i++)
		if (link->ports[i] == port)
			return 1;
	return 0;
}

static uint32_t count_links(const struct cei_machine *machine, uint32_t port)
{
	uint32_t i, k = 0, n = cei_machine_n_places(machine);

	for (i = 0; i < n * n; i++)
		k += (uint32_t)is_on(&machine->links[i], port);
	return k;
}

static int is_on_all(const struct measure *m, const struct measure_set *set, uint32_t port)
{
	uint32_t i;

	for (i = 0; i < set->n_flows; i++)
		if (!is_on(cei_machine_link(m->machine, set->flows[i].from,
					    set->flows[i].to), port))
			return 0;
	return 1;
}

/* Returns whether links of GPUs outside the set, to or from the host, cross the port as well. In
 * that case the set says nothing about the port, because all GPUs together may carry more. */
static int serves_others(const struct measure *m, const struct measure_set *set,
			 uint32_t port)
{
	int is_out = cei_machine_is_gpu(m->machine, set->flows[0].from);
	uint32_t gpu, host, n = 0;

	if (is_out && cei_machine_is_gpu(m->machine, set->flows[0].to))
		return 0;
	for (gpu = 0; gpu < m->n_gpus; gpu++) {
		host = cei_machine_near_host(m->machine, gpu);
		n += (uint32_t)is_on(cei_machine_link(m->machine, is_out ? gpu : host,
						      is_out ? host : gpu), port);
	}
	return n > set->n_flows;
}

/* Returns the port that all links of the set cross and that the fewest other links cross. */
static uint32_t common_port(const struct measure *m, const struct measure_set *set)
{
	const struct cei_machine_link *first = cei_machine_link(m->machine, set->flows[0].from,
								set->flows[0].to);
	uint32_t i, n, port, found = CEOV_NOBODY, n_found = UINT32_MAX;

	for (i = 0; i < first->n_ports; i++) {
		port = first->ports[i];
		if (!is_on_all(m, set, port) || serves_others(m, set, port))
			continue;
		n = count_links(m->machine, port);
		if (n >= n_found)
			continue;
		found = port;
		n_found = n;
	}
	return found;
}

static void set_shared_bandwidth(struct measure *m, struct measure_set *set, const char *name)
{
	struct cei_machine_pair pairs[MEASURE_FLOWS_MAX];
	struct cei_shared_bandwidth shared = {
		.name = name,
		.bytes_per_s = (uint64_t)(set->gb_per_s * 1e9),
		.n_pairs = set->n_flows,
		.pairs = pairs,
	};
	uint32_t i;

	for (i = 0; i < set->n_flows; i++)
		pairs[i] = (struct cei_machine_pair){ set->flows[i].from, set->flows[i].to };
	if (cei_machine_set_shared_bandwidth(m->machine, &shared))
		fprintf(stderr, "ceoverlap-bench: no room to keep what %s share\n", set->name);
	else
		snprintf(set->port, sizeof(set->port), "%s", name);
}

/* Concludes from the set's rate how much the ports carry. */
static void judge(struct measure *m, struct measure_set *set)
{
	uint32_t port = common_port(m, set);
	char name[CEI_MACHINE_NAME_BYTES];

	snprintf(name, sizeof(name), "%s", port != CEOV_NOBODY
		 ? m->machine->ports[port].name : set->name);
	if (set->gb_per_s < MEASURE_SHARED * set->expected_gb_per_s) {
		set_shared_bandwidth(m, set, name);
		return;
	}
	/* the rates agree: each port carries at least the rate that was measured over it */
	if (port != CEOV_NOBODY &&
	    (double)m->machine->ports[port].bytes_per_s < set->gb_per_s * 1e9)
		set_shared_bandwidth(m, set, name);
	set->port[0] = '\0';
}

/* --- GPUs and the host -------------------------------------------------------------- */

/* Measures all GPUs in one direction at once, then halves of them, then halves of those. GPUs of
 * one node are neighbours in this order. A port that only one half shares shows in that half; a
 * port that only all GPUs share shows in the first measurement. */
struct halves {
	uint32_t gpus[CEI_MACHINE_GPUS_MAX];
	int      is_out;                /* whether copies go out of the GPUs, or into them */
};

static void add_host_flow(const struct measure *m, struct measure_set *set, uint32_t gpu,
			  int is_out)
{
	uint32_t host = cei_machine_near_host(m->machine, gpu);

	add_flow(set, is_out ? gpu : host, is_out ? host : gpu, 0);
}

static void name_half(const struct halves *halves, uint32_t first, uint32_t n, char *name)
{
	char gpus[32];
	uint32_t i, least = UINT32_MAX, most = 0;

	for (i = first; i < first + n; i++) {
		least = halves->gpus[i] < least ? halves->gpus[i] : least;
		most = halves->gpus[i] > most ? halves->gpus[i] : most;
	}
	if (most - least + 1 == n)
		snprintf(gpus, sizeof(gpus), "GPUs %u-%u", least, most);
	else
		snprintf(gpus, sizeof(gpus), "GPUs %u-%u (%u)", least, most, n);
	snprintf(name, CEI_MACHINE_NAME_BYTES, halves->is_out ? "%s to host" : "host to %s",
		 gpus);
}

/* Measures one half. *ret_carries: the rate of its GPUs together. */
static int measure_half(struct measure *m, const struct halves *halves, uint32_t first,
			uint32_t n, double *ret_carries)
{
	struct measure_set set;
	double a = 0, b = 0;
	uint32_t i;
	int r;

	memset(&set, 0, sizeof(set));
	for (i = first; i < first + n; i++)
		add_host_flow(m, &set, halves->gpus[i], halves->is_out);
	if (n == 1) {
		*ret_carries = alone_gb_per_s(m, set.flows[0].from, set.flows[0].to);
		return 0;
	}
	r = measure_half(m, halves, first, (n + 1) / 2, &a);
	if (!r)
		r = measure_half(m, halves, first + (n + 1) / 2, n / 2, &b);
	if (r)
		return r;
	name_half(halves, first, n, set.name);
	r = run_set(m, &set, a + b);
	*ret_carries = a + b;
	if (r)
		return r < 0 ? r : 0;
	judge(m, &set);
	if (set.gb_per_s < MEASURE_SHARED * (a + b))
		*ret_carries = set.gb_per_s;
	keep_set(m, &set);
	return 0;
}

static int measure_halves(struct measure *m)
{
	struct halves halves = { .is_out = 0 };
	uint32_t place, gpu, n = 0;
	double carries;
	int r = 0;

	for (place = m->machine->n_gpus; place < cei_machine_n_places(m->machine); place++)
		for (gpu = 0; gpu < m->n_gpus; gpu++)
			if (cei_machine_near_host(m->machine, gpu) == place)
				halves.gpus[n++] = gpu;
	for (; !r && n && halves.is_out < 2; halves.is_out++)
		r = measure_half(m, &halves, 0, n, &carries);
	return r;
}

static int measure_host_both(struct measure *m)
{
	struct measure_set set, all;
	uint32_t gpu, host;
	int r = 0;

	memset(&all, 0, sizeof(all));
	snprintf(all.name, sizeof(all.name), "host, all GPUs, both ways");
	for (gpu = 0; r >= 0 && gpu < m->n_gpus; gpu++) {
		host = cei_machine_near_host(m->machine, gpu);
		memset(&set, 0, sizeof(set));
		snprintf(set.name, sizeof(set.name), "host and GPU %u, both ways", gpu);
		add_host_flow(m, &set, gpu, 0);
		add_host_flow(m, &set, gpu, 1);
		add_host_flow(m, &all, gpu, 0);
		add_host_flow(m, &all, gpu, 1);
		r = run_set(m, &set, 0);
		if (r)
			continue;
		measure_link(m, host, gpu)->both_gb_per_s = set.gb_per_s;
		measure_link(m, gpu, host)->both_gb_per_s = set.gb_per_s;
		judge(m, &set);
		keep_set(m, &set);
	}
	/* both directions at once are only reported: the single directions above have found the
	 * ports */
	if (r < 0 || m->n_gpus < 2 || all.n_flows != 2 * m->n_gpus)
		return r < 0 ? r : 0;
	r = run_set(m, &all, 0);
	if (!r)
		keep_set(m, &all);
	return r < 0 ? r : 0;
}

/* --- between GPUs ------------------------------------------------------------------- */

static int measure_both(struct measure *m, uint32_t a, uint32_t b)
{
	struct measure_set set;
	int r;

	memset(&set, 0, sizeof(set));
	snprintf(set.name, sizeof(set.name), "GPU %u and GPU %u, both ways", a, b);
	add_flow(&set, a, b, 0);
	add_flow(&set, b, a, 0);
	r = run_set(m, &set, 0);
	if (r)
		return r < 0 ? r : 0;
	measure_link(m, a, b)->both_gb_per_s = set.gb_per_s;
	measure_link(m, b, a)->both_gb_per_s = set.gb_per_s;
	judge(m, &set);
	if (set.port[0])
		keep_set(m, &set);
	return 0;
}

/* Measures two flows into, or out of, one GPU. */
static int measure_two(struct measure *m, uint32_t gpu, int is_out)
{
	struct measure_set set;
	uint32_t i, other;
	int r;

	memset(&set, 0, sizeof(set));
	for (i = 1; i < m->n_gpus && set.n_flows < 2; i++) {
		other = (gpu + i) % m->n_gpus;
		if (is_out && is_measured(m, gpu, other))
			add_flow(&set, gpu, other, 0);
		else if (!is_out && is_measured(m, other, gpu))
			add_flow(&set, other, gpu, set.n_flows);
	}
	if (set.n_flows < 2)
		return 0;
	if (is_out)
		snprintf(set.name, sizeof(set.name), "GPU %u to GPU %u and %u", gpu,
			 set.flows[0].to, set.flows[1].to);
	else
		snprintf(set.name, sizeof(set.name), "GPU %u and %u to GPU %u",
			 set.flows[0].from, set.flows[1].from, gpu);
	r = run_set(m, &set, 0);
	if (r)
		return r < 0 ? r : 0;
	judge(m, &set);
	keep_set(m, &set);
	return 0;
}

/* Measures copies from each GPU to the next n_targets ones at once. Only reported, because the
 * result does not show which port limits so many flows. */
static int measure_ring(struct measure *m, uint32_t n_targets)
{
	struct measure_set set;
	uint32_t gpu, i;
	int r;

	memset(&set, 0, sizeof(set));
	snprintf(set.name, sizeof(set.name), "each GPU to the next%s",
		 n_targets == 2 ? " two" : "");
	for (gpu = 0; m->n_gpus > n_targets + 1 && gpu < m->n_gpus; gpu++)
		for (i = 1; i <= n_targets; i++)
			add_flow(&set, gpu, (gpu + i) % m->n_gpus, i - 1);
	r = run_set(m, &set, 0);
	if (!r)
		keep_set(m, &set);
	return r < 0 ? r : 0;
}

/* Measures whether a link between two GPUs and the host links of both can be used at once. */
static int measure_beside(struct measure *m)
{
	struct measure_set set;
	int r;

	if (m->n_gpus < 2)
		return 0;
	memset(&set, 0, sizeof(set));
	snprintf(set.name, sizeof(set.name), "GPU 0 to GPU 1, beside both and the host");
	add_flow(&set, 0, 1, 1);
	add_host_flow(m, &set, 0, 1);
	add_host_flow(m, &set, 1, 0);
	r = run_set(m, &set, 0);
	if (!r)
		keep_set(m, &set);
	return r < 0 ? r : 0;
}

int measure_sets(struct measure *m)
{
	uint32_t a, b;
	int r;

	measure_progress("at once: host and GPUs");
	r = measure_halves(m);
	if (!r)
		r = measure_host_both(m);
	measure_progress("at once: GPUs among each other");
	for (a = 0; a < m->n_gpus; a++)
		for (b = a + 1; !r && b < m->n_gpus; b++)
			r = measure_both(m, a, b);
	for (a = 0; !r && a < m->n_gpus; a++) {
		r = measure_two(m, a, 0);
		if (!r)
			r = measure_two(m, a, 1);
	}
	if (!r)
		r = measure_ring(m, 1);
	if (!r)
		r = measure_ring(m, 2);
	return r ? r : measure_beside(m);
}
