/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Facts from hwloc's tree that only this tool shows: PCI switches, link speeds, memory sizes. */

#include "tools/info/info.h"

#include <string.h>

#include <hwloc.h>

static hwloc_obj_t device_of(const struct cei_machine *machine, const char *bus_id)
{
	if (!machine->hwloc || !bus_id[0])
		return NULL;
	return hwloc_get_pcidev_by_busidstring(machine->hwloc, bus_id);
}

static int is_pci_bridge(hwloc_obj_t object)
{
	return object->type == HWLOC_OBJ_BRIDGE &&
	       object->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI;
}

/* Returns whether a bridge is a switch's upstream port. Root ports and downstream ports have at
 * most one bridge below. */
static int is_switch(hwloc_obj_t object)
{
	hwloc_obj_t child;
	uint32_t n = 0;

	if (!is_pci_bridge(object))
		return 0;
	for (child = object->io_first_child; child; child = child->next_sibling)
		n += (uint32_t)is_pci_bridge(child);
	return n > 1;
}

/* Finds the PCI switch above a device: the nearest bridge that has several bridges below it. "" if
 * there is none or it is not known. */
static void switch_of(const struct cei_machine *machine, const char *bus_id,
		      char ret_bus_id[INFO_BUS_ID_BYTES])
{
	hwloc_obj_t object = device_of(machine, bus_id);
	const struct hwloc_pcidev_attr_s *pci;

	while (object && !is_switch(object))
		object = object->parent;
	ret_bus_id[0] = '\0';
	if (!object)
		return;
	pci = &object->attr->bridge.upstream.pci;
	snprintf(ret_bus_id, INFO_BUS_ID_BYTES, "%04x:%02x:%02x.%01x",
		 (unsigned)pci->domain & 0xffffu, pci->bus, pci->dev & 0x1fu, pci->func & 7u);
}

double info_pcie_gb_per_s(const struct cei_machine *machine, const char *bus_id)
{
	hwloc_obj_t object = device_of(machine, bus_id);
	double speed = object ? (double)object->attr->pcidev.linkspeed : 0;

	/* a value from a file may be any number, or NaN */
	return speed > 0 && speed < 1e6 ? speed : 0;
}

uint64_t info_memory_bytes(const struct cei_machine *machine, uint32_t node)
{
	hwloc_obj_t object;

	if (!machine->hwloc)
		return 0;
	object = hwloc_get_numanode_obj_by_os_index(machine->hwloc,
						    machine->nodes[node].os_index);
	return object ? object->attr->numanode.local_memory : 0;
}

static uint8_t enter(struct info_switches *switches, const char *bus_id)
{
	uint32_t i;

	if (!bus_id[0])
		return INFO_NO_SWITCH;
	for (i = 0; i < switches->n; i++)
		if (!strcmp(switches->bus_ids[i], bus_id))
			return (uint8_t)i;
	snprintf(switches->bus_ids[i], INFO_BUS_ID_BYTES, "%s", bus_id);
	switches->n++;
	return (uint8_t)i;
}

void info_find_switches(const struct cei_machine *machine, struct info_switches *ret_switches)
{
	char bus_id[INFO_BUS_ID_BYTES];
	uint32_t i;

	_Static_assert(INFO_SWITCHES_MAX < INFO_NO_SWITCH, "an index has a byte");
	memset(ret_switches, 0, sizeof(*ret_switches));
	for (i = 0; i < machine->n_gpus; i++) {
		switch_of(machine, machine->gpus[i].bus_id, bus_id);
		ret_switches->of_gpu[i] = enter(ret_switches, bus_id);
	}
	for (i = 0; i < machine->n_nics; i++) {
		switch_of(machine, machine->nics[i].bus_id, bus_id);
		ret_switches->of_nic[i] = enter(ret_switches, bus_id);
	}
}
