/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Names of a machine's parts, costs of its links, and how a measured cost is set. */

#include "topology/machine.h"

#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>

enum cei_direction cei_machine_direction(const struct cei_machine *machine, uint32_t from,
					 uint32_t to)
{
	int to_gpu = cei_machine_is_gpu(machine, to);

	if (!cei_machine_is_gpu(machine, from))
		return to_gpu ? CEI_DIRECTION_IN : CEI_DIRECTION_HOST;
	if (!to_gpu)
		return CEI_DIRECTION_OUT;
	return from == to ? CEI_DIRECTION_LOCAL : CEI_DIRECTION_PEER;
}

const char *cei_machine_distance_name(enum cei_machine_distance distance)
{
	switch (distance) {
	case CEI_MACHINE_SAME_SWITCH:  return "same switch";
	case CEI_MACHINE_SAME_TREE:    return "same tree";
	case CEI_MACHINE_SAME_NODE:    return "same node";
	case CEI_MACHINE_SAME_PACKAGE: return "same package";
	case CEI_MACHINE_FAR:          return "far";
	case CEI_MACHINE_UNKNOWN:      return "unknown";
	}
	return "unknown";
}

const char *cei_machine_place_name(const struct cei_machine *machine, uint32_t place,
				   char *text)
{
	int is_gpu = cei_machine_is_gpu(machine, place);

	snprintf(text, 16, "%s%u", is_gpu ? "gpu" : "node",
		 is_gpu ? place : place - machine->n_gpus);
	return text;
}

int cei_machine_reaches_all(const struct cei_machine *machine, uint32_t gpu)
{
	uint32_t i;

	if (gpu >= machine->n_gpus)
		return 0;
	for (i = 0; i < machine->n_gpus; i++)
		if (i != gpu && (cei_machine_link(machine, gpu, i)->kind == CEI_MACHINE_NONE ||
				 cei_machine_link(machine, i, gpu)->kind == CEI_MACHINE_NONE))
			return 0;
	return 1;
}

static int is_nvlink(const struct cei_machine *machine, uint32_t from, uint32_t to)
{
	uint8_t kind = cei_machine_link(machine, from, to)->kind;

	return kind == CEI_MACHINE_NVSWITCH || kind == CEI_MACHINE_NVLINK;
}

int cei_machine_nvlinks_all(const struct cei_machine *machine, uint32_t gpu)
{
	uint32_t i;

	if (gpu >= machine->n_gpus || machine->n_gpus < 2)
		return 0;
	for (i = 0; i < machine->n_gpus; i++)
		if (i != gpu && (!is_nvlink(machine, gpu, i) || !is_nvlink(machine, i, gpu)))
			return 0;
	return 1;
}

uint64_t cei_machine_peer_rate(const struct cei_machine *machine, uint32_t gpu)
{
	const struct cei_machine_link *link;
	uint64_t least = 0;
	uint32_t i;

	for (i = 0; gpu < machine->n_gpus && i < machine->n_gpus; i++) {
		link = cei_machine_link(machine, gpu, i);
		if (i == gpu || link->kind == CEI_MACHINE_NONE)
			continue;
		if (!least || link->bytes_per_s < least)
			least = link->bytes_per_s;
	}
	return least;
}

uint64_t cei_machine_peer_t0(const struct cei_machine *machine, uint32_t gpu)
{
	const struct cei_machine_link *link;
	uint64_t most = 0;
	uint32_t i;

	for (i = 0; gpu < machine->n_gpus && i < machine->n_gpus; i++) {
		link = cei_machine_link(machine, gpu, i);
		if (i == gpu || link->kind == CEI_MACHINE_NONE)
			continue;
		if (link->origin != CEI_MACHINE_MEASURED)
			return 0;
		most = link->t0_ns > most ? link->t0_ns : most;
	}
	return most;
}

uint32_t cei_machine_near_host(const struct cei_machine *machine, uint32_t gpu)
{
	uint32_t node = machine->gpus[gpu].node;
	uint32_t i;

	if (node < machine->n_nodes)
		return cei_machine_host_place(machine, node);
	for (i = 0; i < machine->n_nodes; i++)
		if (!machine->nodes[i].is_gpu_memory)
			return cei_machine_host_place(machine, i);
	return cei_machine_host_place(machine, 0);
}

void cei_machine_destroy(struct cei_machine *machine)
{
	if (!machine)
		return;
	if (machine->hwloc)
		hwloc_topology_destroy(machine->hwloc);
	free(machine->links);
	free(machine);
}

void cei_machine_set_measured(struct cei_machine *machine, uint32_t from, uint32_t to,
			      uint64_t bytes_per_s, uint64_t t0_ns)
{
	struct cei_machine_link *link;
	struct cei_machine_port *port;
	uint32_t i;

	link = &machine->links[from * cei_machine_n_places(machine) + to];
	if (link->kind == CEI_MACHINE_NONE || !bytes_per_s)
		return;
	link->bytes_per_s = bytes_per_s;
	link->t0_ns = t0_ns;
	link->origin = CEI_MACHINE_MEASURED;
	for (i = 0; i < link->n_ports; i++) {
		port = &machine->ports[link->ports[i]];
		if (port->bytes_per_s < bytes_per_s)
			port->bytes_per_s = bytes_per_s;
	}
}
