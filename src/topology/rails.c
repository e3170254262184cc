/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Assigns NICs to GPUs. */

#include "topology/route.h"

#include <string.h>

/* Orders NICs for a GPU; the lowest value is best. RDMA devices come before all others, because
 * only they move bytes without a processor. */
static uint32_t badness(const struct cei_machine *machine, uint32_t gpu, uint32_t nic)
{
	return (machine->nics[nic].is_rdma ? 0 : CEI_MACHINE_UNKNOWN + 1u) +
		machine->nic_distance[gpu][nic];
}

static uint32_t least_badness(const struct cei_machine *machine, uint32_t gpu)
{
	uint32_t nic, least = UINT32_MAX;

	for (nic = 0; nic < machine->n_nics; nic++)
		if (badness(machine, gpu, nic) < least)
			least = badness(machine, gpu, nic);
	return least;
}

static uint32_t n_suited(const struct cei_machine *machine, uint32_t gpu)
{
	uint32_t nic, n = 0, least = least_badness(machine, gpu);

	for (nic = 0; nic < machine->n_nics; nic++)
		n += badness(machine, gpu, nic) == least;
	return n;
}

static uint32_t find_nic(const struct cei_machine *machine, uint32_t gpu,
			 const uint32_t *n_served)
{
	uint32_t nic, found = CEOV_NOBODY, least = least_badness(machine, gpu);

	for (nic = 0; nic < machine->n_nics; nic++)
		if (badness(machine, gpu, nic) == least &&
		    (found == CEOV_NOBODY || n_served[nic] < n_served[found]))
			found = nic;
	return found;
}

/* GPUs with fewer equally good NICs choose first, so that the others can avoid those. */
void cei_rails_assign(const struct cei_machine *machine, uint32_t *ret_nics)
{
	uint32_t n_served[CEI_MACHINE_NICS_MAX] = { 0 };
	uint32_t gpu, n;

	for (gpu = 0; gpu < machine->n_gpus; gpu++)
		ret_nics[gpu] = CEOV_NOBODY;
	for (n = 1; n <= machine->n_nics; n++) {
		for (gpu = 0; gpu < machine->n_gpus; gpu++) {
			if (n_suited(machine, gpu) != n)
				continue;
			ret_nics[gpu] = find_nic(machine, gpu, n_served);
			n_served[ret_nics[gpu]]++;
		}
	}
}
