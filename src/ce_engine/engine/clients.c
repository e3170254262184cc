/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Opens slots for clients in the table of flows and in the engines. */

#include "ce_engine/engine/clients.h"

#include "ce_engine/engine/engine.h"

int cei_clients_share(struct cei_works *works)
{
	const struct cei_machine *machine = works->topology->machine;

	return cei_flows_create(works->site->report, machine ? machine->n_ports : 0,
				&works->flows);
}

static int admit(struct cei_engine *engine, uint32_t slot)
{
	int r;

	pthread_mutex_lock(&engine->movers.lock);       /* against commits, which add lanes */
	r = cei_queues_admit(&engine->scheduler.queues, slot);
	pthread_mutex_unlock(&engine->movers.lock);
	return r;
}

int cei_clients_open(struct cei_works *works, const struct cei_flows_limits *limits,
		     uint32_t *ret_slot)
{
	uint32_t i, slot = 0;
	int r = cei_flows_open(works->flows, limits, &slot);

	if (r)
		return r;
	for (i = 0; !r && i < works->site->n_members; i++)
		r = admit(&works->engines[i], slot);
	if (r) {
		(void)cei_flows_close(works->flows, slot);
		return cei_raise(works->site->report, r, 0,
				 "no memory for the queues of client %u", slot);
	}
	*ret_slot = slot;
	return 0;
}
