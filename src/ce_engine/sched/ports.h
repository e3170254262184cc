/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PORTS_H
#define CEI_PORTS_H

/*
 * Reservation times of the machine's ports, shared by all engines of the process: two
 * copies at once through a port that carries one take twice as long, and delay the lanes
 * behind them.
 *
 * A port is reserved before a copy is submitted, for an estimated time, and needs no
 * release: a wrong estimate, or an engine that is gone, costs only speed. So no memory
 * ordering is needed either: all accesses are relaxed, and nothing is published with them.
 *
 * A port that is wider than its links carries several copies at once: it has that many
 * slots, each with its own time. Time is a parameter, so that simulations run the same
 * code. The memory is one block without pointers into the process, so that it could be
 * shared between processes.
 */

#include <stdatomic.h>
#include <stdint.h>

#include "base/report.h"
#include "topology/machine.h"

#define CEI_PORT_SLOTS 14u

struct cei_port {
	_Alignas(64) _Atomic uint64_t waiting_bytes;    /* of copies that are ready and not
							 * submitted */
	uint32_t         n_slots;       /* 0: unlimited, never busy */
	uint32_t         ns_per_mib;    /* with all slots used */
	_Atomic uint64_t busy_until_ns[CEI_PORT_SLOTS];
};

struct cei_ports {
	uint32_t         n_ports;
	/* copies of all engines that wait for ports, for a quick check */
	_Alignas(64) _Atomic uint32_t n_waiting;
	struct cei_port  ports[];
};

/* One port record for each port of the machine. CEOV_ERR_NO_MEMORY, raised. */
int  cei_ports_create(struct cei_report *report, const struct cei_machine *machine,
		      struct cei_ports **ret_ports);

/* NULL is allowed. */
void cei_ports_destroy(struct cei_ports *ports);

/* --- any thread; link: one of the machine's ---------------------------------------- */

/* A copy of that size over the link begins, or ends, to wait. */
void cei_ports_wait(struct cei_ports *ports, const struct cei_machine_link *link,
		    uint64_t n_bytes);
void cei_ports_unwait(struct cei_ports *ports, const struct cei_machine_link *link,
		      uint64_t n_bytes);

/* Whether no copy waits for any port. */
int  cei_ports_are_quiet(const struct cei_ports *ports);

/* Whether at most n_bytes wait for each of the link's ports. */
int  cei_ports_wait_is(const struct cei_ports *ports, const struct cei_machine_link *link,
		       uint64_t n_bytes);

/* The time that the busiest of the link's ports needs for the copies that wait for it. */
uint64_t cei_ports_weight_ns(const struct cei_ports *ports,
			     const struct cei_machine_link *link);

/* Whether each of the link's ports is free by that time. */
int  cei_ports_are_free(const struct cei_ports *ports, const struct cei_machine_link *link,
			uint64_t by_ns);

struct cei_ports_ask {
	const struct cei_machine_link *link;
	uint64_t start_ns;              /* when the copy could begin */
	uint64_t by_ns;                 /* latest time at which each port must be free; else
					 * nothing is reserved */
	uint64_t takes_ns;
};

/* Reserves all of the link's ports or none, until a copy would end that begins when the
 * last of them is free: *ret_ends_ns. CEOV_PENDING: one is not free at by_ns. */
int  cei_ports_take(struct cei_ports *ports, const struct cei_ports_ask *ask,
		    uint64_t *ret_ends_ns);

/* Reserves regardless of by_ns: behind what is reserved already. Returns the end. */
uint64_t cei_ports_book(struct cei_ports *ports, const struct cei_ports_ask *ask);

/* Moves the end of a reservation from ends_ns to another time. Later reservations stay. */
void cei_ports_move(struct cei_ports *ports, const struct cei_machine_link *link,
		    uint64_t ends_ns, uint64_t now_ends_ns);

#endif /* CEI_PORTS_H */
