/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * The host side of GPUs, by hwloc: the NUMA node and the processors near each. What
 * hwloc cannot tell stays unknown; nothing depends on it but speed.
 */

#include "topology/topology.h"

#include <hwloc.h>

/* The place in the host's tree where the GPU hangs, or NULL. */
static hwloc_obj_t anchor(const struct cei_topology *topology, uint32_t gpu)
{
	hwloc_obj_t device;

	if (!topology->hwloc || gpu >= topology->n_gpus)
		return NULL;
	device = hwloc_get_pcidev_by_busidstring(topology->hwloc,
						 topology->gpus[gpu].bus_id);
	return device ? hwloc_get_non_io_ancestor_obj(topology->hwloc, device) : NULL;
}

void cei_topology_discover_host(struct cei_topology *topology, struct cei_site *site)
{
	hwloc_topology_t host;
	hwloc_obj_t object;
	uint32_t i;
	int node;

	if (hwloc_topology_init(&host)) {
		cei_log(site->report, CEI_LOG_DEBUG,
			"topology: hwloc cannot be initialised");
		return;
	}
	/* PCI devices alone: hwloc's plug-ins for software devices would open CUDA,
	 * OpenCL and more in the user's process. */
	if (hwloc_topology_set_type_filter(host, HWLOC_OBJ_PCI_DEVICE,
					   HWLOC_TYPE_FILTER_KEEP_IMPORTANT) ||
	    hwloc_topology_load(host)) {
		cei_log(site->report, CEI_LOG_DEBUG, "topology: hwloc cannot be loaded");
		hwloc_topology_destroy(host);
		return;
	}
	topology->hwloc = host;
	for (i = 0; i < topology->n_gpus; i++) {
		object = anchor(topology, i);
		node = -1;
		if (object && object->nodeset)
			node = hwloc_bitmap_first(object->nodeset);
		if (node >= 0)
			topology->gpus[i].numa_node = (uint32_t)node;
	}
}

void cei_topology_forget_host(struct cei_topology *topology)
{
	if (topology->hwloc)
		hwloc_topology_destroy(topology->hwloc);
	topology->hwloc = NULL;
}

/* set: room for the answer. 0, or why not. */
static const char *bind_near(const struct cei_topology *topology, hwloc_obj_t object,
			     hwloc_bitmap_t set)
{
	if (hwloc_get_cpubind(topology->hwloc, set, HWLOC_CPUBIND_THREAD))
		return "its processors cannot be asked";
	/* Somebody who bound the process knows better how far it may reach. */
	hwloc_bitmap_and(set, set, object->cpuset);
	if (hwloc_bitmap_iszero(set))
		return "it may not use the processors near the GPU";
	if (hwloc_set_cpubind(topology->hwloc, set, HWLOC_CPUBIND_THREAD))
		return "it cannot be bound";
	return NULL;
}

void cei_topology_pin(const struct cei_topology *topology, struct cei_site *site,
		      uint32_t member)
{
	const struct ceov_member *own = &site->members[member];
	const char *why = "no memory";
	hwloc_bitmap_t set;
	hwloc_obj_t object;

	if (own->place.kind != CEOV_PLACE_GPU)
		return;
	object = anchor(topology, own->place.index);
	if (!object || !object->cpuset) {
		cei_log(site->report, CEI_LOG_DEBUG,
			"rank %u: engine not pinned: hwloc does not know GPU %u",
			own->rank, own->place.index);
		return;
	}
	set = hwloc_bitmap_alloc();
	if (set)
		why = bind_near(topology, object, set);
	hwloc_bitmap_free(set);
	if (why)
		cei_log(site->report, CEI_LOG_DEBUG, "rank %u: engine not pinned: %s",
			own->rank, why);
}
