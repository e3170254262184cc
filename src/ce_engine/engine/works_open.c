/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Opens and closes the topology, the ports and the engines of a process. */

#include "ce_engine/engine/works_open.h"

#include <stdlib.h>

#include "base/clock.h"
#include "ce_engine/engine/engine.h"
#include "ce_engine/sched/flows.h"
#include "ce_engine/sched/ports.h"

int cei_works_open(struct cei_works *works, struct cei_site *site)
{
	works->site = site;
	return cei_topology_open(site, &works->topology);
}

int cei_works_start(struct cei_works *works, int has_ports)
{
	struct cei_site *site = works->site;
	uint32_t i;
	int r = 0;

	works->engines = calloc(site->n_members, sizeof(*works->engines));
	if (!works->engines)
		return cei_raise(site->report, CEOV_ERR_NO_MEMORY, 0,
				 "ceov_open: no memory for %u engines", site->n_members);
	if (works->topology->machine && has_ports)
		r = cei_ports_create(site->report, works->topology->machine, &works->ports);
	for (i = 0; !r && i < site->n_members; i++) {
		works->engines[i].ports = works->ports;
		works->engines[i].source = works->sources[i];
		works->engines[i].flows = works->flows;
		works->engines[i].tally = works->tallies[i];
		r = cei_engine_open(&works->engines[i], site, works->topology, i);
	}
	return r;
}

/* Returns 0 if the engines were not opened. */
static uint32_t n_engines(const struct cei_works *works)
{
	return works->engines ? works->site->n_members : 0;
}

uint32_t cei_works_stop(struct cei_works *works, uint64_t timeout_ns)
{
	uint64_t stop_by_ns = cei_deadline(timeout_ns / 2);
	uint64_t deadline_ns = cei_deadline(timeout_ns);
	uint32_t i, n = 0;

	for (i = 0; i < n_engines(works); i++)
		cei_engine_ask_stop(&works->engines[i], stop_by_ns);
	for (i = 0; i < n_engines(works); i++)
		n += cei_engine_stop(&works->engines[i], deadline_ns) != 0;
	return n;
}

void cei_works_close_engines(struct cei_works *works)
{
	uint32_t i;

	for (i = 0; i < n_engines(works); i++)
		cei_engine_close(&works->engines[i]);
	free(works->engines);
	works->engines = NULL;
}

void cei_works_close(struct cei_works *works)
{
	cei_flows_destroy(works->flows);
	works->flows = NULL;
	cei_ports_destroy(works->ports);
	works->ports = NULL;
	if (works->topology)
		cei_topology_close(works->topology);
	works->topology = NULL;
}
