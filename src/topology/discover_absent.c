/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* discover_cuda.c in a build without CUDA: there are no GPUs. */

#include "topology/topology.h"

int cei_topology_discover_gpus(struct cei_topology *topology, struct cei_site *site)
{
	(void)site;
	topology->n_gpus = 0;
	return 0;
}
