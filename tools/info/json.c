/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The machine, its links, ports and affinity as JSON. */

#include "tools/info/info.h"

#include <inttypes.h>

#include "topology/rails.h"

static struct json_object *nodes(const struct cei_machine *machine)
{
	struct json_object *list = json_object_new_array(), *object;
	uint32_t i;

	for (i = 0; i < machine->n_nodes; i++) {
		object = json_object_new_object();
		info_add_node(object, "name", i);
		info_add_number(object, "os_index", machine->nodes[i].os_index);
		json_object_object_add(object, "package",
				       machine->nodes[i].package == CEOV_NOBODY ? NULL :
				       json_object_new_int64(machine->nodes[i].package));
		json_object_object_add(object, "is_gpu_memory", json_object_new_boolean(
			machine->nodes[i].is_gpu_memory));
		info_add_number(object, "memory_bytes", info_memory_bytes(machine, i));
		json_object_array_add(list, object);
	}
	return list;
}

static void add_switch(struct json_object *object, const struct info_switches *switches,
		       uint8_t index)
{
	json_object_object_add(object, "switch", index == INFO_NO_SWITCH ? NULL :
			       json_object_new_string(switches->bus_ids[index]));
}

static void add_speed(struct json_object *object, double gb_per_s)
{
	char text[32];

	snprintf(text, sizeof(text), "%.3f", gb_per_s);
	json_object_object_add(object, "pcie_gb_per_s", gb_per_s > 0 ?
			       json_object_new_double_s(gb_per_s, text) : NULL);
}

static struct json_object *gpus(const struct cei_machine *machine,
				const struct info_switches *switches)
{
	struct json_object *list = json_object_new_array(), *object;
	const struct cei_machine_gpu *gpu;
	char name[16];
	uint32_t i;

	for (i = 0; i < machine->n_gpus; i++) {
		gpu = &machine->gpus[i];
		object = json_object_new_object();
		info_add_text(object, "name", info_gpu_name(i, name));
		info_add_text(object, "model", gpu->name);
		info_add_text(object, "bus_id", gpu->bus_id);
		info_add_node(object, "node", gpu->node);
		add_switch(object, switches, switches->of_gpu[i]);
		add_speed(object, info_pcie_gb_per_s(machine, gpu->bus_id));
		info_add_number(object, "n_copy_engines", gpu->n_copy_engines);
		info_add_number(object, "n_nvlinks", gpu->n_nvlinks);
		json_object_object_add(object, "is_coherent",
				       json_object_new_boolean(gpu->is_coherent));
		json_object_array_add(list, object);
	}
	return list;
}

static struct json_object *nics(const struct cei_machine *machine,
				const struct info_switches *switches)
{
	struct json_object *list = json_object_new_array(), *object;
	const struct cei_machine_nic *nic;
	uint32_t i;

	for (i = 0; i < machine->n_nics; i++) {
		nic = &machine->nics[i];
		object = json_object_new_object();
		info_add_text(object, "name", nic->name);
		info_add_text(object, "bus_id", nic->bus_id);
		info_add_node(object, "node", nic->node);
		add_switch(object, switches, switches->of_nic[i]);
		add_speed(object, info_pcie_gb_per_s(machine, nic->bus_id));
		info_add_number(object, "bytes_per_s", nic->bytes_per_s);
		json_object_object_add(object, "is_rdma",
				       json_object_new_boolean(nic->is_rdma));
		json_object_array_add(list, object);
	}
	return list;
}

static struct json_object *machine_object(const struct info *info)
{
	const struct cei_machine *machine = info->machine;
	struct json_object *object = json_object_new_object();
	struct json_object *list = json_object_new_array();
	struct info_switches switches;
	char hash[24];
	uint32_t i;

	info_find_switches(machine, &switches);
	snprintf(hash, sizeof(hash), "%016" PRIx64, machine->hash);
	info_add_text(object, "name", machine->name);
	if (info->xml_path)
		info_add_text(object, "file", info->xml_path);
	else
		json_object_object_add(object, "file", NULL);
	info_add_text(object, "hash", hash);
	json_object_object_add(object, "has_nvswitch",
			       json_object_new_boolean(machine->has_nvswitch));
	json_object_object_add(object, "nodes", nodes(machine));
	for (i = 0; i < switches.n; i++)
		json_object_array_add(list, json_object_new_string(switches.bus_ids[i]));
	json_object_object_add(object, "switches", list);
	json_object_object_add(object, "gpus", gpus(machine, &switches));
	json_object_object_add(object, "nics", nics(machine, &switches));
	return object;
}

static struct json_object *link_object(const struct cei_machine *machine, uint32_t from,
				       uint32_t to)
{
	const struct cei_machine_link *link = cei_machine_link(machine, from, to);
	struct json_object *object = json_object_new_object();
	struct json_object *ports = json_object_new_array();
	char name[16], port[CEI_MACHINE_NAME_BYTES];
	uint32_t i;

	info_add_text(object, "from", cei_machine_place_name(machine, from, name));
	info_add_text(object, "to", cei_machine_place_name(machine, to, name));
	info_add_text(object, "kind", cei_machine_link_kind_name(
		(enum cei_machine_link_kind)link->kind));
	info_add_text(object, "origin",
		      cei_machine_origin_name((enum cei_machine_origin)link->origin));
	info_add_number(object, "bytes_per_s", link->bytes_per_s);
	info_add_number(object, "t0_ns", link->t0_ns);
	for (i = 0; i < link->n_ports; i++)
		json_object_array_add(ports, json_object_new_string(
			info_plain(machine->ports[link->ports[i]].name, port,
				   sizeof(port))));
	json_object_object_add(object, "ports", ports);
	return object;
}

static struct json_object *links(const struct cei_machine *machine)
{
	struct json_object *list = json_object_new_array();
	uint32_t n = cei_machine_n_places(machine), from, to;

	for (from = 0; from < n; from++)
		for (to = 0; to < n; to++)
			json_object_array_add(list, link_object(machine, from, to));
	return list;
}

static struct json_object *ports(const struct cei_machine *machine)
{
	struct json_object *list = json_object_new_array(), *object;
	uint32_t i;

	for (i = 0; i < machine->n_ports; i++) {
		object = json_object_new_object();
		info_add_text(object, "name", machine->ports[i].name);
		info_add_number(object, "bytes_per_s", machine->ports[i].bytes_per_s);
		json_object_array_add(list, object);
	}
	return list;
}

static struct json_object *affinity(const struct cei_machine *machine)
{
	struct json_object *list = json_object_new_array(), *object, *distances;
	uint32_t assigned[CEI_MACHINE_GPUS_MAX];
	char name[CEI_MACHINE_NAME_BYTES];
	uint32_t i, k;

	cei_rails_assign(machine, assigned);
	for (i = 0; i < machine->n_gpus; i++) {
		object = json_object_new_object();
		distances = json_object_new_object();
		info_add_text(object, "gpu", info_gpu_name(i, name));
		info_add_node(object, "node", machine->gpus[i].node);
		if (assigned[i] < machine->n_nics)
			info_add_text(object, "nic", machine->nics[assigned[i]].name);
		else
			json_object_object_add(object, "nic", NULL);
		for (k = 0; k < machine->n_nics; k++)
			info_add_text(distances, info_plain(machine->nics[k].name, name,
							    sizeof(name)),
				      cei_machine_distance_name((enum cei_machine_distance)
								machine->nic_distance[i][k]));
		json_object_object_add(object, "distances", distances);
		json_object_array_add(list, object);
	}
	return list;
}

void info_machine_json(const struct info *info, struct json_object *root)
{
	if (info->sections & INFO_MACHINE)
		json_object_object_add(root, "machine", machine_object(info));
	if (info->sections & INFO_LINKS)
		json_object_object_add(root, "links", links(info->machine));
	if (info->sections & INFO_PORTS)
		json_object_object_add(root, "ports", ports(info->machine));
	if (info->sections & INFO_AFFINITY)
		json_object_object_add(root, "affinity", affinity(info->machine));
}
