/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* discover_cuda.c in a build without CUDA: there are no GPUs. */

#include "topology/topology.h"

#include <string.h>

int cei_topology_discover_gpus(struct cei_topology *topology, struct cei_site *site)
{
	(void)site;
	topology->n_gpus = 0;
	return 0;
}

int cei_machine_hints_from_driver(struct cei_site *site, struct cei_machine_hints *ret_hints)
{
	(void)site;
	memset(ret_hints, 0, sizeof(*ret_hints));
	return 0;
}

uint32_t cei_topology_cuda_version(const struct cei_site *site)
{
	(void)site;
	return 0;
}
