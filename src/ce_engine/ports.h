/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PORTS_H
#define CEI_PORTS_H

/*
 * Until when each port of the machine is busy, as all engines of the process agree:
 * two copies at once through a port that carries one take twice as long, and the lanes
 * behind them lose that time.
 *
 * A port's time is taken before a copy is submitted and needs no release: an estimate
 * that was wrong, or an engine that is gone, costs speed and nothing else. So no order of
 * memory is needed either: all accesses are relaxed, nothing is published with them.
 *
 * A port that is wider than its links carries several copies at once: it has that many
 * slots, each with its own time. Time is a parameter, so that a simulation runs the
 * same code. One block without pointers to it from outside of the process: could lie in
 * memory that processes share.
 */

#include <stdatomic.h>
#include <stdint.h>

#include "base/report.h"
#include "topology/machine.h"

#define CEI_PORT_SLOTS 14u

struct cei_port {
	_Alignas(64) _Atomic uint64_t waiting_bytes;    /* ready, not submitted */
	uint32_t         n_slots;       /* 0: wider than any need, never busy */
	uint32_t         ns_per_mib;    /* of all slots together */
	_Atomic uint64_t busy_until_ns[CEI_PORT_SLOTS];
};

struct cei_ports {
	uint32_t         n_ports;
	/* Jobs of all engines that wait for ports: for a quick look. */
	_Alignas(64) _Atomic uint32_t n_waiting;
	struct cei_port  ports[];
};

/* One for each port of the machine. CEOV_ERR_NO_MEMORY, raised. */
int  cei_ports_create(struct cei_report *report, const struct cei_machine *machine,
		      struct cei_ports **ret_ports);

/* NULL is allowed. */
void cei_ports_destroy(struct cei_ports *ports);

/* --- any thread; link: one of the machine's ---------------------------------------- */

/* A job of so many bytes over the link waits from now on, or no longer. */
void cei_ports_wait(struct cei_ports *ports, const struct cei_machine_link *link,
		    uint64_t n_bytes);
void cei_ports_unwait(struct cei_ports *ports, const struct cei_machine_link *link,
		      uint64_t n_bytes);

/* Whether nobody waits for any port. */
int  cei_ports_are_quiet(const struct cei_ports *ports);

/* Whether what waits for each of the link's ports is no more than n_bytes. */
int  cei_ports_wait_is(const struct cei_ports *ports, const struct cei_machine_link *link,
		       uint64_t n_bytes);

/* How long the busiest of the link's ports needs for what waits for it. */
uint64_t cei_ports_weight_ns(const struct cei_ports *ports,
			     const struct cei_machine_link *link);

/* Whether each of the link's ports is free by that time. */
int  cei_ports_are_free(const struct cei_ports *ports, const struct cei_machine_link *link,
			uint64_t by_ns);

struct cei_ports_ask {
	const struct cei_machine_link *link;
	uint64_t start_ns;              /* when the copy could begin */
	uint64_t by_ns;                 /* each port has to be free then, or it is not taken */
	uint64_t takes_ns;
};

/* Takes the ports, all or none, until the copy ends that begins when the last of them is
 * free: *ret_ends_ns. CEOV_PENDING: one is not free by by_ns. */
int  cei_ports_take(struct cei_ports *ports, const struct cei_ports_ask *ask,
		    uint64_t *ret_ends_ns);

/* The same whatever by_ns says: then what is in the way and this end together. Returns
 * the end. */
uint64_t cei_ports_book(struct cei_ports *ports, const struct cei_ports_ask *ask);

/* What was taken until ends_ns ends at another time. Somebody who has taken a port after
 * us keeps it. */
void cei_ports_move(struct cei_ports *ports, const struct cei_machine_link *link,
		    uint64_t ends_ns, uint64_t now_ends_ns);

#endif /* CEI_PORTS_H */
