/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* GPUs and peer access, as the CUDA driver reports them. Creates no context. */

#include "topology/topology.h"

#include <stdio.h>
#include <string.h>

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
		gpu->n_copy_engines = (uint32_t)cuda->gpus[i].n_copy_engines;
		r = discover_peers(topology, cuda, i);
	}
	return r;
}

/* --- as hints for the machine ---------------------------------------------------------- */

/* An attribute of a GPU; 0 where the driver does not report it. */
static int attribute(const struct cei_cuda *cuda, uint32_t gpu, CUdevice_attribute wanted)
{
	int value = 0;

	if (cuda->calls.device_attribute(&value, wanted, cuda->gpus[gpu].device))
		return 0;
	return value;
}

static void hint_gpu(const struct cei_cuda *cuda, uint32_t gpu,
		     struct cei_machine_hint_gpu *hint)
{
	if (cuda->calls.device_name(hint->name, sizeof(hint->name), cuda->gpus[gpu].device))
		hint->name[0] = '\0';
	snprintf(hint->bus_id, sizeof(hint->bus_id), "%s", cuda->gpus[gpu].bus_id);
	hint->n_copy_engines = (uint32_t)cuda->gpus[gpu].n_copy_engines;
	/* A GPU that walks the processor's page tables is attached by a coherent link. */
	hint->is_coherent = attribute(cuda, gpu,
		CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES) > 0;
}

static int hint_peers(struct cei_cuda *cuda, uint32_t gpu,
		      struct cei_machine_hints *hints)
{
	CUresult result;
	uint32_t i;
	int can;

	for (i = 0; i < hints->n_gpus; i++) {
		can = 1;
		result = CUDA_SUCCESS;
		if (i != gpu)
			result = cuda->calls.device_can_access_peer(&can,
								    cuda->gpus[gpu].device,
								    cuda->gpus[i].device);
		if (result != CUDA_SUCCESS)
			return cei_cuda_raise(cuda, result, CEOV_NOBODY,
					      "asking whether GPU %u reaches GPU %u", gpu, i);
		hints->peer[gpu][i] = can != 0;
	}
	return 0;
}

/* Native atomics between GPUs need NVLink, so they show which GPUs are linked. */
static int is_linked(const struct cei_cuda *cuda, uint32_t a, uint32_t b)
{
	int value = 0;

	if (!cuda->calls.device_p2p ||
	    cuda->calls.device_p2p(&value, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED,
				   cuda->gpus[a].device, cuda->gpus[b].device))
		return 0;
	return value != 0;
}

/* Without NVML's counts the driver still reports which GPUs are linked. A GPU that is
 * linked to all others counts as one on a switch. */
static void guess_links(const struct cei_cuda *cuda, uint32_t gpu,
			struct cei_machine_hints *hints)
{
	uint32_t i, n = 0;

	for (i = 0; i < hints->n_gpus; i++) {
		if (i == gpu || !hints->peer[gpu][i] || !is_linked(cuda, gpu, i))
			continue;
		hints->n_direct[gpu][i] = 1;
		n++;
	}
	if (!n || n + 1 < hints->n_gpus)
		return;
	hints->gpus[gpu].is_on_switch = 1;
	memset(hints->n_direct[gpu], 0, sizeof(hints->n_direct[gpu]));
}

int cei_machine_hints_from_driver(struct cei_site *site, struct cei_machine_hints *ret_hints)
{
	struct cei_cuda *cuda = site->cuda;
	uint32_t i, n;
	int r = 0;

	memset(ret_hints, 0, sizeof(*ret_hints));
	if (!cuda)
		return 0;
	n = cei_cuda_n_gpus(cuda);
	ret_hints->n_gpus = n < CEI_MACHINE_GPUS_MAX ? n : CEI_MACHINE_GPUS_MAX;
	for (i = 0; i < ret_hints->n_gpus && !r; i++) {
		hint_gpu(cuda, i, &ret_hints->gpus[i]);
		r = hint_peers(cuda, i, ret_hints);
	}
	if (r)
		return r;
	cei_machine_hints_from_nvml(site->report, ret_hints);
	for (i = 0; i < ret_hints->n_gpus; i++)
		if (!ret_hints->gpus[i].n_nvlinks)
			guess_links(cuda, i, ret_hints);
	return 0;
}

uint32_t cei_topology_cuda_version(const struct cei_site *site)
{
	return site->cuda ? (uint32_t)site->cuda->version : 0;
}
