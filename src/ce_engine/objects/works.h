/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_WORKS_H
#define CEI_WORKS_H

/*
 * What moves the bytes of a context: the machine's topology, the reservations of its ports, and an
 * engine for each member. The context is who asks: its objects, tickets, peers and report.
 *
 * Handles do not look inside. What stands on engines finds them here; what is below them reads the
 * topology alone. engine/works_open.h begins and ends works.
 */

#include <stdint.h>

#include "base/site.h"
#include "topology/topology.h"

struct cei_engine;                      /* ce_engine/engine/engine.h */
struct cei_launch_source;               /* ce_engine/engine/launch_source.h */
struct cei_flows;                       /* ce_engine/sched/flows.h */
struct cei_tally;                       /* ce_engine/sched/tally.h */
struct cei_ports;                       /* ce_engine/sched/ports.h */

/* Written at open and close only. Zeroed: nothing is open. */
struct cei_works {
	struct cei_site     *site;      /* the members; outlives the works */
	struct cei_topology *topology;
	struct cei_ports    *ports;     /* reservations of the ports of the topology's machine;
					 * NULL: they are not kept */
	struct cei_flows    *flows;     /* what its clients use; NULL: there is one client; see
					 * engine/clients.h */
	struct cei_engine   *engines;   /* by member; NULL: not open yet */
	struct cei_launch_source *sources[CEI_MEMBERS_MAX];     /* by member, set before the start;
								 * NULL: threads of this process
								 * alone bring launches */
	struct cei_tally    *tallies[CEI_MEMBERS_MAX];  /* likewise, and owned by who set them;
							 * NULL: nothing is counted */
};

#endif /* CEI_WORKS_H */
