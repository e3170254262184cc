/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Reads this machine by hwloc, and binds threads near a GPU. What hwloc does not report
 * stays unknown, which costs speed and nothing else.
 */

#include "topology/topology.h"

#include <hwloc.h>
#include <stdlib.h>

struct hwloc_topology *cei_topology_load_hwloc(struct cei_report *report)
{
	hwloc_topology_t host;

	if (hwloc_topology_init(&host)) {
		cei_log(report, CEI_LOG_DEBUG, "topology: hwloc cannot be initialised");
		return NULL;
	}
	if (cei_machine_set_filters(host) || hwloc_topology_load(host)) {
		cei_log(report, CEI_LOG_DEBUG, "topology: hwloc cannot be loaded");
		hwloc_topology_destroy(host);
		return NULL;
	}
	return host;
}

/* The hwloc tree of the machine that we run on. Returns NULL if the topology was read from a
 * file instead, because that file may describe another machine. */
static hwloc_topology_t own_tree(const struct cei_topology *topology)
{
	hwloc_topology_t host = topology->machine ? topology->machine->hwloc : NULL;

	return host && hwloc_topology_is_thissystem(host) ? host : NULL;
}

/* The object of the host's tree below which the GPU is attached, or NULL. */
static hwloc_obj_t anchor(const struct cei_topology *topology, uint32_t gpu)
{
	hwloc_topology_t host = own_tree(topology);
	hwloc_obj_t device;

	if (!host || gpu >= topology->n_gpus)
		return NULL;
	device = hwloc_get_pcidev_by_busidstring(host, topology->gpus[gpu].bus_id);
	return device ? hwloc_get_non_io_ancestor_obj(host, device) : NULL;
}

/* Binds the calling thread to the processors of the object. `set` is scratch memory. Returns
 * NULL on success, else the reason why the thread was not bound, as text. */
static const char *bind_near(hwloc_topology_t host, hwloc_obj_t object, hwloc_bitmap_t set)
{
	if (hwloc_get_cpubind(host, set, HWLOC_CPUBIND_THREAD))
		return "its processors cannot be asked";
	/* The process may be bound already. Its binding is kept: only those of its processors
	 * are used that are near the GPU. */
	hwloc_bitmap_and(set, set, object->cpuset);
	if (hwloc_bitmap_iszero(set))
		return "it may not use the processors near the GPU";
	if (hwloc_set_cpubind(host, set, HWLOC_CPUBIND_THREAD))
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
		why = bind_near(topology->machine->hwloc, object, set);
	hwloc_bitmap_free(set);
	if (why)
		cei_log(site->report, CEI_LOG_DEBUG, "rank %u: engine not pinned: %s",
			own->rank, why);
}

/* --- memory near a node ------------------------------------------------------------- */

/* The calling thread's memory policy before cei_topology_hold_memory(), which
 * cei_topology_release_memory() restores. */
struct cei_memory_hold {
	hwloc_topology_t       host;
	hwloc_bitmap_t         nodes;
	hwloc_membind_policy_t policy;
};

static hwloc_obj_t node_of(hwloc_topology_t host, uint32_t os_index)
{
	return hwloc_get_numanode_obj_by_os_index(host, os_index);
}

struct cei_memory_hold *cei_topology_hold_memory(const struct cei_topology *topology,
						 uint32_t place)
{
	const struct cei_machine *machine = topology->machine;
	hwloc_topology_t host = own_tree(topology);
	struct cei_memory_hold *hold;
	hwloc_obj_t node;

	if (!host || machine->n_nodes < 2 || cei_machine_is_gpu(machine, place))
		return NULL;
	node = node_of(host, machine->nodes[place - machine->n_gpus].os_index);
	hold = node ? calloc(1, sizeof(*hold)) : NULL;
	if (!hold)
		return NULL;
	hold->host = host;
	hold->nodes = hwloc_bitmap_alloc();
	if (hold->nodes &&
	    !hwloc_get_membind(host, hold->nodes, &hold->policy,
			       HWLOC_MEMBIND_THREAD | HWLOC_MEMBIND_BYNODESET) &&
	    !hwloc_set_membind(host, node->nodeset, HWLOC_MEMBIND_BIND,
			       HWLOC_MEMBIND_THREAD | HWLOC_MEMBIND_BYNODESET))
		return hold;
	hwloc_bitmap_free(hold->nodes);
	free(hold);
	return NULL;
}

void cei_topology_release_memory(struct cei_memory_hold *hold)
{
	if (!hold)
		return;
	/* restore the policy; a failure here cannot be reported to anybody */
	(void)hwloc_set_membind(hold->host, hold->nodes, hold->policy,
				HWLOC_MEMBIND_THREAD | HWLOC_MEMBIND_BYNODESET);
	hwloc_bitmap_free(hold->nodes);
	free(hold);
}
