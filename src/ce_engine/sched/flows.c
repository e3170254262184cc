/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What clients may use and have received. All atomics are relaxed: see flows.h. */

#include "ce_engine/sched/flows.h"

#include <stdlib.h>
#include <string.h>

static uint64_t load(const _Atomic uint64_t *word)
{
	return atomic_load_explicit(word, memory_order_relaxed);
}

static uint32_t load_count(const _Atomic uint32_t *word)
{
	return atomic_load_explicit(word, memory_order_relaxed);
}

static void store_count(_Atomic uint32_t *word, uint32_t value)
{
	atomic_store_explicit(word, value, memory_order_relaxed);
}

static void store(_Atomic uint64_t *word, uint64_t value)
{
	atomic_store_explicit(word, value, memory_order_relaxed);
}

/* Returns the value before. */
static uint64_t add(_Atomic uint64_t *word, uint64_t n)
{
	return atomic_fetch_add_explicit(word, n, memory_order_relaxed);
}

/* Returns the value before. */
static uint32_t count_up(_Atomic uint32_t *word)
{
	return atomic_fetch_add_explicit(word, 1, memory_order_relaxed);
}

static void count_down(_Atomic uint32_t *word)
{
	atomic_fetch_sub_explicit(word, 1, memory_order_relaxed);
}

static void raise_to(_Atomic uint64_t *word, uint64_t value)
{
	uint64_t seen = load(word);

	while (seen < value &&
	       !atomic_compare_exchange_weak_explicit(word, &seen, value, memory_order_relaxed,
						      memory_order_relaxed))
		;
}

/* --- creating and freeing ------------------------------------------------ */

static void set_limits(struct cei_flows_client *client, const struct cei_flows_limits *limits)
{
	store_count(&client->weight, limits->weight);
	store(&client->bytes_per_s, limits->bytes_per_s);
}

struct cei_flows_classes cei_flows_classes_default(void)
{
	return (struct cei_flows_classes){
		.normal = CEI_FLOWS_NORMAL,
		.background = CEI_FLOWS_BACKGROUND,
		.urgent_percent = CEI_FLOWS_URGENT_PERCENT,
		.urgent_ns = CEI_FLOWS_URGENT_NS,
	};
}

static int is_weight(uint32_t weight)
{
	return weight && weight <= CEI_FLOWS_WEIGHT_MAX;
}

int cei_flows_tune(struct cei_flows *flows, const struct cei_flows_classes *classes)
{
	if (!is_weight(classes->normal) || !is_weight(classes->background) ||
	    classes->urgent_percent > 100 || classes->urgent_ns > CEI_FLOWS_URGENT_MOST_NS)
		return CEOV_ERR_INVALID;
	store_count(&flows->weight[CEI_FLOW_NORMAL], classes->normal);
	store_count(&flows->weight[CEI_FLOW_BACKGROUND], classes->background);
	store_count(&flows->urgent_percent, classes->urgent_percent);
	store(&flows->urgent_ns, classes->urgent_ns);
	return 0;
}

int cei_flows_create(struct cei_report *report, uint32_t n_ports, struct cei_flows **ret_flows)
{
	static const struct cei_flows_limits own = { .weight = 1 };
	const struct cei_flows_classes classes = cei_flows_classes_default();
	size_t size = sizeof(struct cei_flows) + n_ports * sizeof(struct cei_flows_port);
	struct cei_flows *flows = aligned_alloc(_Alignof(struct cei_flows), size);

	if (!flows)
		return cei_raise(report, CEOV_ERR_NO_MEMORY, 0,
				 "no memory for what clients use at %u ports", n_ports);
	memset(flows, 0, size);
	flows->n_ports = n_ports;
	set_limits(&flows->clients[0], &own);
	flows->clients[0].is_open = 1;
	store_count(&flows->n_slots, 1);
	(void)cei_flows_tune(flows, &classes);
	*ret_flows = flows;
	return 0;
}

void cei_flows_destroy(struct cei_flows *flows)
{
	free(flows);
}

/* --- slots ------------------------------------------------------------------ */

static int are_allowed(const struct cei_flows_limits *limits)
{
	return is_weight(limits->weight);
}

/* Forgets what the slot's last client received. */
static void clear(struct cei_flows *flows, uint32_t slot)
{
	struct cei_flows_client *client = &flows->clients[slot];
	struct cei_flows_port *port;
	uint32_t i, k;

	store(&client->limited_until_ns, 0);
	for (k = 0; k < CEI_FLOWS_URGENCIES; k++) {
		store(&client->bytes[k], 0);
		store(&client->n_chunks[k], 0);
	}
	for (i = 0; i < flows->n_ports; i++) {
		port = &flows->ports[i];
		for (k = 0; k < CEI_FLOW_CLASSES; k++)
			store(&port->service[slot * CEI_FLOW_CLASSES + k], load(&port->clock));
		for (k = 0; k < CEI_FLOWS_URGENCIES; k++) {
			store(&port->bytes[slot][k], 0);
			store(&port->n_chunks[slot][k], 0);
		}
	}
}

int cei_flows_open(struct cei_flows *flows, const struct cei_flows_limits *limits,
		   uint32_t *ret_slot)
{
	uint32_t slot;

	if (!are_allowed(limits))
		return CEOV_ERR_INVALID;
	for (slot = 1; slot < CEI_FLOWS_SLOTS && flows->clients[slot].is_open; slot++)
		;
	if (slot == CEI_FLOWS_SLOTS)
		return CEOV_FULL;
	clear(flows, slot);
	set_limits(&flows->clients[slot], limits);
	flows->clients[slot].is_open = 1;
	count_up(&flows->n_open);
	if (slot >= load_count(&flows->n_slots))
		store_count(&flows->n_slots, slot + 1);
	*ret_slot = slot;
	return 0;
}

int cei_flows_change(struct cei_flows *flows, uint32_t slot,
		     const struct cei_flows_limits *limits)
{
	if (slot >= CEI_FLOWS_SLOTS || !flows->clients[slot].is_open || !are_allowed(limits))
		return CEOV_ERR_INVALID;
	set_limits(&flows->clients[slot], limits);
	store(&flows->clients[slot].limited_until_ns, 0);
	return 0;
}

int cei_flows_close(struct cei_flows *flows, uint32_t slot)
{
	if (!slot || slot >= CEI_FLOWS_SLOTS || !flows->clients[slot].is_open)
		return CEOV_ERR_INVALID;
	flows->clients[slot].is_open = 0;
	count_down(&flows->n_open);
	return 0;
}

int cei_flows_are_shared(const struct cei_flows *flows)
{
	return load_count(&flows->n_open) > 1;
}

/* --- service at ports -------------------------------------------------------- */

uint64_t cei_flows_service(const struct cei_flows *flows, uint32_t flow, uint64_t ns)
{
	uint64_t weight = load_count(&flows->clients[flow / CEI_FLOW_CLASSES].weight);

	weight *= load_count(&flows->weight[flow % CEI_FLOW_CLASSES]);
	return (ns * CEI_FLOWS_SCALE + weight - 1) / weight;
}

void cei_flows_wait(struct cei_flows *flows, const struct cei_machine_link *link, uint32_t flow)
{
	struct cei_flows_port *port;
	uint32_t i;

	for (i = 0; i < link->n_ports; i++) {
		port = &flows->ports[link->ports[i]];
		count_up(&port->n_waiting_all);
		if (!count_up(&port->n_waiting[flow]))
			raise_to(&port->service[flow], load(&port->clock));
	}
}

void cei_flows_unwait(struct cei_flows *flows, const struct cei_machine_link *link,
		      uint32_t flow)
{
	struct cei_flows_port *port;
	uint32_t i;

	for (i = 0; i < link->n_ports; i++) {
		port = &flows->ports[link->ports[i]];
		count_down(&port->n_waiting_all);
		count_down(&port->n_waiting[flow]);
	}
}

/* The least service of the given flow and of those that wait at the port and may go. */
static uint64_t least_of(const struct cei_flows *flows, const struct cei_flows_port *port,
			 uint32_t flow, uint64_t now_ns)
{
	uint32_t i, n = load_count(&flows->n_slots) * CEI_FLOW_CLASSES;
	uint64_t service, least = load(&port->service[flow]);

	for (i = 0; i < n; i++) {
		if (!load_count(&port->n_waiting[i]))
			continue;
		service = load(&port->service[i]);
		if (service < least && cei_flows_may_go(flows, i / CEI_FLOW_CLASSES, now_ns))
			least = service;
	}
	return least;
}

/* The port of the link for which most jobs wait; NULL: the link has no ports. */
static const struct cei_flows_port *bottleneck(const struct cei_flows *flows,
					       const struct cei_machine_link *link)
{
	const struct cei_flows_port *port, *best = NULL;
	uint32_t i, n, most = 0;

	for (i = 0; i < link->n_ports; i++) {
		port = &flows->ports[link->ports[i]];
		n = load_count(&port->n_waiting_all);
		if (best && n <= most)
			continue;
		best = port;
		most = n;
	}
	return best;
}

uint64_t cei_flows_lead(const struct cei_flows *flows, const struct cei_machine_link *link,
			uint32_t flow, uint64_t now_ns)
{
	const struct cei_flows_port *port = bottleneck(flows, link);
	uint64_t service, least;

	if (!port)
		return 0;
	least = least_of(flows, port, flow, now_ns);
	service = load(&port->service[flow]);   /* it only rises, so it is not less now */
	return service - least;
}

/* The port's floor says how far back the flow's service may be. */
static void serve_at(struct cei_flows *flows, struct cei_flows_port *port,
		     const struct cei_flows_use *use)
{
	uint64_t service = cei_flows_service(flows, use->flow, use->takes_ns);
	uint64_t credit = cei_flows_service(flows, use->flow, CEI_FLOWS_CREDIT_NS);
	_Atomic uint64_t *own = &port->service[use->flow];
	uint64_t floor = load(&port->floor);
	uint64_t clock, now;

	if (floor > credit)
		raise_to(own, floor - credit);
	raise_to(own, load(&port->clock));      /* its limit did not let it go meanwhile */
	raise_to(&port->clock, least_of(flows, port, use->flow, use->now_ns));
	clock = load(&port->clock);
	if (use->is_urgent && load(own) > clock + credit)
		return;
	now = add(own, service) + service;
	if (now > credit)
		raise_to(&port->floor, now - credit);
}

void cei_flows_serve(struct cei_flows *flows, const struct cei_flows_use *use)
{
	uint32_t i;

	for (i = 0; i < use->link->n_ports; i++)
		serve_at(flows, &flows->ports[use->link->ports[i]], use);
}

/* --- urgent time and limits --------------------------------------------------- */

/* Uses urgent time of a lane, which one thread deals with. */
static int use_lane(uint64_t *until_ns, uint64_t used_ns, uint64_t unused_ns, uint64_t now_ns)
{
	if (*until_ns >= now_ns + unused_ns)
		return 0;
	*until_ns = (*until_ns > now_ns ? *until_ns : now_ns) + used_ns;
	return 1;
}

int cei_flows_use_urgent(struct cei_flows *flows, const struct cei_machine_link *link,
			 uint64_t *lane_until_ns, uint64_t takes_ns, uint64_t now_ns)
{
	uint32_t i, percent = load_count(&flows->urgent_percent);
	uint64_t unused_ns = load(&flows->urgent_ns);
	_Atomic uint64_t *until_ns;

	if (!percent)
		return 0;
	if (!link || !link->n_ports)
		return use_lane(lane_until_ns, takes_ns * 100 / percent, unused_ns, now_ns);
	for (i = 0; i < link->n_ports; i++) {
		until_ns = &flows->ports[link->ports[i]].urgent_until_ns;
		if (load(until_ns) >= now_ns + unused_ns)
			return 0;
	}
	for (i = 0; i < link->n_ports; i++) {
		until_ns = &flows->ports[link->ports[i]].urgent_until_ns;
		raise_to(until_ns, now_ns);
		(void)add(until_ns, takes_ns * 100 / percent);
	}
	return 1;
}

int cei_flows_may_go(const struct cei_flows *flows, uint32_t slot, uint64_t now_ns)
{
	return load(&flows->clients[slot].limited_until_ns) <= now_ns;
}

void cei_flows_charge(struct cei_flows *flows, uint32_t slot, uint64_t n_bytes, uint64_t now_ns)
{
	struct cei_flows_client *client = &flows->clients[slot];
	uint64_t rate = load(&client->bytes_per_s);
	double ns = (double)(n_bytes > CEI_FLOWS_COPY_BYTES ? n_bytes : CEI_FLOWS_COPY_BYTES) * 1e9;

	if (!rate)
		return;
	if (now_ns > CEI_FLOWS_LIMIT_NS)
		raise_to(&client->limited_until_ns, now_ns - CEI_FLOWS_LIMIT_NS);
	(void)add(&client->limited_until_ns, (uint64_t)(ns / (double)rate));
}

/* --- what has gone -------------------------------------------------------------- */

void cei_flows_count(struct cei_flows *flows, const struct cei_machine_link *link, uint32_t slot,
		     uint32_t urgency, uint64_t n_bytes)
{
	struct cei_flows_port *port;
	uint32_t i;

	(void)add(&flows->clients[slot].bytes[urgency], n_bytes);
	(void)add(&flows->clients[slot].n_chunks[urgency], 1);
	for (i = 0; link && i < link->n_ports; i++) {
		port = &flows->ports[link->ports[i]];
		(void)add(&port->bytes[slot][urgency], n_bytes);
		(void)add(&port->n_chunks[slot][urgency], 1);
	}
}

struct cei_flows_tally cei_flows_read(const struct cei_flows *flows, uint32_t port, uint32_t slot,
				      uint32_t urgency)
{
	struct cei_flows_tally tally = { 0 };

	if (slot >= CEI_FLOWS_SLOTS || urgency >= CEI_FLOWS_URGENCIES)
		return tally;
	if (port == CEI_FLOWS_ALL_PORTS) {
		tally.bytes = load(&flows->clients[slot].bytes[urgency]);
		tally.n_chunks = load(&flows->clients[slot].n_chunks[urgency]);
	} else if (port < flows->n_ports) {
		tally.bytes = load(&flows->ports[port].bytes[slot][urgency]);
		tally.n_chunks = load(&flows->ports[port].n_chunks[slot][urgency]);
	}
	return tally;
}
