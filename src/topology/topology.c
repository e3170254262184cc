/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The model of the machine: put together once, then only asked. */

#include "topology/topology.h"

#include <stdlib.h>
#include <string.h>

#define NS_PER_S UINT64_C(1000000000)

/*
 * Defaults until links are measured, from one host of 8 x H200 behind NVSwitch:
 * rates of back-to-back copies of 64 MiB and more; t0 with one mark for a batch of
 * copies. LOCAL is what a copy engine does within a GPU (87 to 106 GB/s), far below
 * its memory; HOST is one thread's memcpy.
 */
static const struct cei_link_cost defaults[CEI_LINKS] = {
	[CEI_LINK_LOCAL] = { 4000, UINT64_C(100000000000) },
	[CEI_LINK_PEER]  = { 4000, UINT64_C(392000000000) },
	[CEI_LINK_IN]    = { 4000, UINT64_C(53000000000) },
	[CEI_LINK_OUT]   = { 4000, UINT64_C(55000000000) },
	[CEI_LINK_HOST]  = { 2000, UINT64_C(8000000000) },
};

int cei_topology_open(struct cei_site *site, struct cei_topology **ret_topology)
{
	struct cei_topology *topology = calloc(1, sizeof(*topology));
	int r;

	if (!topology)
		return cei_raise(site->report, CEOV_ERR_NO_MEMORY, 0,
				 "topology: no memory");
	memcpy(topology->costs, defaults, sizeof(topology->costs));
	r = cei_topology_discover_gpus(topology, site);
	if (r)
		goto fail;
	/* Reading the machine takes tens of milliseconds, and only GPUs need it. */
	if (topology->n_gpus)
		cei_topology_discover_host(topology, site);
	*ret_topology = topology;
	return 0;
fail:
	cei_topology_close(topology);
	return r;
}

void cei_topology_close(struct cei_topology *topology)
{
	if (!topology)
		return;
	cei_topology_forget_host(topology);
	free(topology);
}

uint64_t cei_topology_expected_ns(const struct cei_topology *topology,
				  enum cei_link_kind link, uint64_t n_bytes)
{
	const struct cei_link_cost *cost = &topology->costs[link];
	uint64_t s = n_bytes / cost->bytes_per_s;
	uint64_t rest = n_bytes % cost->bytes_per_s;

	/* rest < bytes_per_s < 2^40: in double the error is below a nanosecond */
	return cost->t0_ns + s * NS_PER_S +
	       (uint64_t)((double)rest * (double)NS_PER_S / (double)cost->bytes_per_s);
}
