/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Reservation of ports. All atomics are relaxed: see ports.h. */

#include "ce_engine/sched/ports.h"

#include <stdlib.h>

/* Attempts to change a slot that other threads change at the same time. */
#define TRIES 4u

static uint64_t load(const _Atomic uint64_t *word)
{
	return atomic_load_explicit(word, memory_order_relaxed);
}

static int change(_Atomic uint64_t *word, uint64_t old, uint64_t new)
{
	return atomic_compare_exchange_strong_explicit(word, &old, new, memory_order_relaxed,
						       memory_order_relaxed);
}

/* --- creating and freeing ------------------------------------------------ */

/* How many copies a port carries at once. A remaining tenth does not count as a slot: one
 * more copy would slow down all. */
static uint32_t slots_of(uint64_t port_rate, uint64_t link_rate)
{
	uint64_t n;

	if (!port_rate || !link_rate)
		return 0;
	n = port_rate / link_rate;
	if (port_rate % link_rate > link_rate / 10)
		n++;
	return n > CEI_PORT_SLOTS ? 0 : n ? (uint32_t)n : 1;
}

static uint32_t ns_per_mib(uint64_t bytes_per_s)
{
	uint64_t ns = bytes_per_s ? (UINT64_C(1000000000) << 20) / bytes_per_s : 0;

	return ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns;
}

/* Finds the rate of the fastest link over each port. */
static void find_rates(const struct cei_machine *machine, uint64_t *rates)
{
	uint32_t n_links = cei_machine_n_places(machine) * cei_machine_n_places(machine);
	const struct cei_machine_link *link;
	uint32_t i, k;

	for (i = 0; i < n_links; i++) {
		link = &machine->links[i];
		for (k = 0; k < link->n_ports; k++)
			if (link->bytes_per_s > rates[link->ports[k]])
				rates[link->ports[k]] = link->bytes_per_s;
	}
}

int cei_ports_create(struct cei_report *report, const struct cei_machine *machine,
		     struct cei_ports **ret_ports)
{
	size_t size = sizeof(struct cei_ports) + machine->n_ports * sizeof(struct cei_port);
	uint64_t *rates = calloc(machine->n_ports + 1, sizeof(*rates));
	struct cei_ports *ports = aligned_alloc(_Alignof(struct cei_ports), size);
	struct cei_port *port;
	uint32_t i, k;

	if (!rates || !ports) {
		free(rates);
		free(ports);
		return cei_raise(report, CEOV_ERR_NO_MEMORY, 0,
				 "no memory for the state of %u ports", machine->n_ports);
	}
	find_rates(machine, rates);
	ports->n_ports = machine->n_ports;
	atomic_init(&ports->n_waiting, 0);
	for (i = 0; i < machine->n_ports; i++) {
		port = &ports->ports[i];
		atomic_init(&port->waiting_bytes, 0);
		port->n_slots = slots_of(machine->ports[i].bytes_per_s, rates[i]);
		port->ns_per_mib = ns_per_mib(machine->ports[i].bytes_per_s);
		for (k = 0; k < CEI_PORT_SLOTS; k++)
			atomic_init(&port->busy_until_ns[k], 0);
	}
	free(rates);
	*ret_ports = ports;
	return 0;
}

void cei_ports_destroy(struct cei_ports *ports)
{
	free(ports);
}

/* --- copies that wait ----------------------------------------------------- */

void cei_ports_wait(struct cei_ports *ports, const struct cei_machine_link *link,
		    uint64_t n_bytes)
{
	uint32_t i;

	atomic_fetch_add_explicit(&ports->n_waiting, 1, memory_order_relaxed);
	for (i = 0; i < link->n_ports; i++)
		atomic_fetch_add_explicit(&ports->ports[link->ports[i]].waiting_bytes, n_bytes,
					  memory_order_relaxed);
}

void cei_ports_unwait(struct cei_ports *ports, const struct cei_machine_link *link,
		      uint64_t n_bytes)
{
	uint32_t i;

	atomic_fetch_sub_explicit(&ports->n_waiting, 1, memory_order_relaxed);
	for (i = 0; i < link->n_ports; i++)
		atomic_fetch_sub_explicit(&ports->ports[link->ports[i]].waiting_bytes, n_bytes,
					  memory_order_relaxed);
}

int cei_ports_are_quiet(const struct cei_ports *ports)
{
	return !atomic_load_explicit(&ports->n_waiting, memory_order_relaxed);
}

int cei_ports_wait_is(const struct cei_ports *ports, const struct cei_machine_link *link,
		      uint64_t n_bytes)
{
	uint32_t i;

	for (i = 0; i < link->n_ports; i++)
		if (load(&ports->ports[link->ports[i]].waiting_bytes) > n_bytes)
			return 0;
	return 1;
}

uint64_t cei_ports_weight_ns(const struct cei_ports *ports,
			     const struct cei_machine_link *link)
{
	const struct cei_port *port;
	uint64_t weight, most = 0;
	uint32_t i;

	for (i = 0; i < link->n_ports; i++) {
		port = &ports->ports[link->ports[i]];
		weight = (load(&port->waiting_bytes) >> 10) * port->ns_per_mib >> 10;
		if (weight > most)
			most = weight;
	}
	return most;
}

/* --- reservations --------------------------------------------------------- */

/* Returns the port's slot that becomes free first, and when it does. */
static _Atomic uint64_t *first_slot(struct cei_port *port, uint64_t *ret_busy_ns)
{
	_Atomic uint64_t *slot = &port->busy_until_ns[0];
	uint64_t busy, least = load(slot);
	uint32_t i;

	for (i = 1; i < port->n_slots; i++) {
		busy = load(&port->busy_until_ns[i]);
		if (busy >= least)
			continue;
		least = busy;
		slot = &port->busy_until_ns[i];
	}
	*ret_busy_ns = least;
	return slot;
}

int cei_ports_are_free(const struct cei_ports *ports, const struct cei_machine_link *link,
		       uint64_t by_ns)
{
	struct cei_port *port;
	uint64_t busy;
	uint32_t i;

	for (i = 0; i < link->n_ports; i++) {
		port = (struct cei_port *)&ports->ports[link->ports[i]];
		if (!port->n_slots)
			continue;
		(void)first_slot(port, &busy);
		if (busy > by_ns)
			return 0;
	}
	return 1;
}

static int take_one(struct cei_port *port, uint64_t by_ns, uint64_t ends_ns, uint64_t *ret_old)
{
	_Atomic uint64_t *slot;
	uint64_t busy;
	uint32_t i;

	for (i = 0; i < TRIES; i++) {
		slot = first_slot(port, &busy);
		if (busy > by_ns)
			return CEOV_PENDING;
		if (!change(slot, busy, ends_ns))
			continue;
		*ret_old = busy;
		return 0;
	}
	return CEOV_PENDING;
}

static void move_one(struct cei_port *port, uint64_t ends_ns, uint64_t now_ends_ns)
{
	uint32_t i;

	for (i = 0; i < port->n_slots; i++)
		if (load(&port->busy_until_ns[i]) == ends_ns &&
		    change(&port->busy_until_ns[i], ends_ns, now_ends_ns))
			return;
}

/* Returns the time at which the copy would end if it began as soon as all ports of its link are
 * free, but not before ask->start_ns. */
static uint64_t end_of(struct cei_ports *ports, const struct cei_ports_ask *ask)
{
	uint64_t busy, latest = ask->start_ns;
	struct cei_port *port;
	uint32_t i;

	for (i = 0; i < ask->link->n_ports; i++) {
		port = &ports->ports[ask->link->ports[i]];
		if (!port->n_slots)
			continue;
		(void)first_slot(port, &busy);
		if (busy > latest)
			latest = busy;
	}
	return latest + ask->takes_ns;
}

/* Reserves in ascending order of ports, so that of two engines that want the same ports one
 * gets all. */
int cei_ports_take(struct cei_ports *ports, const struct cei_ports_ask *ask,
		   uint64_t *ret_ends_ns)
{
	uint64_t ends = end_of(ports, ask);
	uint64_t old[CEI_MACHINE_PATH_MAX] = { 0 };
	struct cei_port *port;
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < ask->link->n_ports; i++) {
		port = &ports->ports[ask->link->ports[i]];
		if (port->n_slots)
			r = take_one(port, ask->by_ns, ends, &old[i]);
	}
	if (!r) {
		*ret_ends_ns = ends;
		return 0;
	}
	for (i--; i-- > 0;)             /* undo all but the one that failed */
		move_one(&ports->ports[ask->link->ports[i]], ends, old[i]);
	return r;
}

uint64_t cei_ports_book(struct cei_ports *ports, const struct cei_ports_ask *ask)
{
	uint64_t old, ends = end_of(ports, ask);
	struct cei_port *port;
	uint32_t i;

	for (i = 0; i < ask->link->n_ports; i++) {
		port = &ports->ports[ask->link->ports[i]];
		if (port->n_slots)
			(void)take_one(port, ends, ends, &old);
	}
	return ends;
}

void cei_ports_move(struct cei_ports *ports, const struct cei_machine_link *link,
		    uint64_t ends_ns, uint64_t now_ends_ns)
{
	uint32_t i;

	for (i = 0; i < link->n_ports; i++)
		move_one(&ports->ports[link->ports[i]], ends_ns, now_ends_ns);
}
