/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* GPUs and peer access, as the CUDA driver tells. Creates no context. */

#include "topology/topology.h"

#include <stdio.h>

#include "base/cuda_table.h"

static int discover_peers(struct cei_topology *topology, struct cei_cuda *cuda,
			  uint32_t a)
{
	CUresult result;
	uint32_t b;
	int can;

	for (b = 0; b < topology->n_gpus; b++) {
		can = a == b;
		result = CUDA_SUCCESS;
		if (a != b)
			result = cuda->calls.device_can_access_peer(&can,
								    cuda->gpus[a].device,
								    cuda->gpus[b].device);
		if (result != CUDA_SUCCESS)
			return cei_cuda_raise(cuda, result, CEOV_NOBODY,
					      "asking whether GPU %u reaches GPU %u",
					      a, b);
		topology->peer[a][b] = can != 0;
	}
	return 0;
}

int cei_topology_discover_gpus(struct cei_topology *topology, struct cei_site *site)
{
	struct cei_cuda *cuda = site->cuda;
	uint32_t n = cei_cuda_n_gpus(cuda);
	struct cei_topology_gpu *gpu;
	uint32_t i;
	int r = 0;

	topology->n_gpus = n < CEI_TOPOLOGY_GPUS_MAX ? n : CEI_TOPOLOGY_GPUS_MAX;
	for (i = 0; i < topology->n_gpus && !r; i++) {
		gpu = &topology->gpus[i];
		snprintf(gpu->bus_id, sizeof(gpu->bus_id), "%s", cuda->gpus[i].bus_id);
		gpu->numa_node = CEOV_NOBODY;
		gpu->n_copy_engines = (uint32_t)cuda->gpus[i].n_copy_engines;
		r = discover_peers(topology, cuda, i);
	}
	return r;
}
