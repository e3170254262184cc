/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The machine and the affinity of its devices. Each table is made of the cells of its JSON; where
 * `out` is NULL, nothing is printed. */

#include "tools/info/info.h"

#include <inttypes.h>
#include <string.h>

#include "topology/nics.h"
#include "tools/common/cells.h"

static void print_head(const struct info *info)
{
	const struct cei_machine *machine = info->machine;
	char name[CEI_MACHINE_NAME_BYTES], path[512];

	printf("machine %s, %s%s%s\n", machine->name[0] ?
	       info_plain(machine->name, name, sizeof(name)) : "without a name",
	       info->xml_path ? "from " : "this one",
	       info->xml_path ? info_plain(info->xml_path, path, sizeof(path)) : "",
	       info->is_told ? " (CEOVERLAP_MACHINE)" : "");
	printf("  hash %016" PRIx64 ", GPUs %u%s, NUMA nodes %u, NICs %u\n", machine->hash,
	       machine->n_gpus, machine->has_nvswitch ? " on NVLink switches" : "",
	       machine->n_nodes, machine->n_nics);
}

static struct json_object *nodes(const struct cei_machine *machine, FILE *out)
{
	struct json_object *list = json_object_new_array();
	const struct cei_machine_node *node;
	struct cells cells;
	uint64_t bytes;
	uint32_t i;

	if (out)
		fputc('\n', out);
	for (i = 0; i < machine->n_nodes; i++) {
		node = &machine->nodes[i];
		bytes = info_memory_bytes(machine, i);
		info_cells_begin(&cells);
		info_cells_node(&cells, "name", "node:-8", i);
		cells_integer(&cells, "os_index", "system's:-8", node->os_index);
		if (node->package == CEOV_NOBODY)
			cells_text(&cells, "package", "package:-8", NULL);
		else
			cells_integer(&cells, "package", "package:-8", node->package);
		cells_add(&cells, "is_gpu_memory", json_object_new_boolean(node->is_gpu_memory));
		cells_integer(&cells, "memory_bytes", NULL, bytes);
		cells_optional(&cells, NULL, "GiB:9.1",
			       (double)bytes / (double)(UINT64_C(1) << 30));
		cells_text(&cells, NULL, ":-16", node->is_gpu_memory ? "memory of a GPU" : "");
		info_cells_end(&cells, out, list);
	}
	return list;
}

static struct json_object *list_switches(const struct cei_machine *machine,
					 const struct info_switches *switches, FILE *out)
{
	struct json_object *list = json_object_new_array();
	char name[CEI_MACHINE_NAME_BYTES];
	uint32_t i, k;

	if (out && switches->n)
		fprintf(out, "\n  %-14s below it\n", "PCI switch");
	for (i = 0; i < switches->n; i++) {
		json_object_array_add(list, json_object_new_string(switches->bus_ids[i]));
		if (!out)
			continue;
		fprintf(out, "  %-14s", switches->bus_ids[i]);
		for (k = 0; k < machine->n_gpus; k++)
			if (switches->of_gpu[k] == i)
				fprintf(out, " %s", info_gpu_name(k, name));
		for (k = 0; k < machine->n_nics; k++)
			if (switches->of_nic[k] == i)
				fprintf(out, " %s", info_plain(machine->nics[k].name, name,
							       sizeof(name)));
		fputc('\n', out);
	}
	return list;
}

/* Adds where a device is in the machine. */
static void add_place(struct cells *cells, const struct cei_machine *machine, const char *bus_id,
		      uint32_t node, const char *above)
{
	info_cells_text(cells, "bus_id", "bus:-13", bus_id);
	info_cells_node(cells, "node", "node:-8", node);
	cells_text(cells, "switch", "switch:-13", above);
	cells_measured(cells, "pcie_gb_per_s", "PCIe:7.1", info_pcie_gb_per_s(machine, bus_id));
}

/* Adds a count, of which 0 says that it is not known. */
static void add_count(struct cells *cells, const char *key, const char *column, uint32_t count)
{
	cells_integer(cells, key, NULL, count);
	if (count)
		cells_integer(cells, NULL, column, count);
	else
		cells_text(cells, NULL, column, NULL);
}

static const char *above(const struct info_switches *switches, uint8_t index)
{
	return index == INFO_NO_SWITCH ? NULL : switches->bus_ids[index];
}

static struct json_object *gpus(const struct cei_machine *machine,
				const struct info_switches *switches, FILE *out)
{
	struct json_object *list = json_object_new_array();
	const struct cei_machine_gpu *gpu;
	struct cells cells;
	char name[CEI_MACHINE_NAME_BYTES];
	uint32_t i;

	if (out && machine->n_gpus)
		fputc('\n', out);
	for (i = 0; i < machine->n_gpus; i++) {
		gpu = &machine->gpus[i];
		info_cells_begin(&cells);
		info_cells_text(&cells, "name", "GPU:-6", info_gpu_name(i, name));
		add_place(&cells, machine, gpu->bus_id, gpu->node,
			  above(switches, switches->of_gpu[i]));
		add_count(&cells, "n_copy_engines", "engines:7", gpu->n_copy_engines);
		add_count(&cells, "n_nvlinks", "NVLinks:7", gpu->n_nvlinks);
		info_cells_text(&cells, "model", "name:-20", gpu->name);
		cells_add(&cells, "is_coherent", json_object_new_boolean(gpu->is_coherent));
		cells_text(&cells, NULL, ":-24", gpu->is_coherent ? "(coherent with its host)"
			   : "");
		info_cells_end(&cells, out, list);
	}
	return list;
}

static struct json_object *nics(const struct cei_machine *machine,
				const struct info_switches *switches, FILE *out)
{
	struct json_object *list = json_object_new_array();
	const struct cei_machine_nic *nic;
	struct cells cells;
	uint32_t i;

	if (out && machine->n_nics)
		fputc('\n', out);
	for (i = 0; i < machine->n_nics; i++) {
		nic = &machine->nics[i];
		info_cells_begin(&cells);
		info_cells_text(&cells, "name", "NIC:-12", nic->name);
		add_place(&cells, machine, nic->bus_id, nic->node,
			  above(switches, switches->of_nic[i]));
		info_add_number(cells.object, "bytes_per_s", nic->bytes_per_s);
		cells_add(&cells, "is_rdma", json_object_new_boolean(nic->is_rdma));
		cells_text(&cells, NULL, "kind:-11", nic->is_rdma ? "RDMA" : "net device");
		info_cells_end(&cells, out, list);
	}
	return list;
}

static struct json_object *report_machine(const struct info *info, FILE *out)
{
	const struct cei_machine *machine = info->machine;
	struct json_object *object = json_object_new_object();
	struct info_switches switches;
	char hash[24];

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
	json_object_object_add(object, "nodes", nodes(machine, out));
	json_object_object_add(object, "switches", list_switches(machine, &switches, out));
	json_object_object_add(object, "gpus", gpus(machine, &switches, out));
	json_object_object_add(object, "nics", nics(machine, &switches, out));
	return object;
}

void info_machine_text(const struct info *info)
{
	print_head(info);
	json_object_put(report_machine(info, stdout));
	if (info->machine->n_gpus || info->machine->n_nics)
		printf("\n  PCIe: GB/s of the link as it is trained now, raw; -: nobody tells\n");
}

static struct json_object *affinity(const struct cei_machine *machine, FILE *out)
{
	struct json_object *list = json_object_new_array(), *distances;
	uint32_t assigned[CEI_MACHINE_GPUS_MAX], i, k;
	char name[CEI_MACHINE_NAME_BYTES], column[24];
	const char *distance;
	struct cells cells;

	cei_nics_assign(machine, assigned);
	for (i = 0; i < machine->n_gpus; i++) {
		distances = json_object_new_object();
		info_cells_begin(&cells);
		info_cells_text(&cells, "gpu", "GPU:-6", info_gpu_name(i, name));
		info_cells_node(&cells, "node", "node:-8", machine->gpus[i].node);
		info_cells_text(&cells, "nic", "its NIC:-12", assigned[i] < machine->n_nics
				? machine->nics[assigned[i]].name : NULL);
		for (k = 0; k < machine->n_nics; k++) {
			distance = cei_machine_distance_name((enum cei_machine_distance)
							     machine->nic_distance[i][k]);
			info_plain(machine->nics[k].name, name, sizeof(name));
			info_add_text(distances, name, distance);
			snprintf(column, sizeof(column), "%.12s:12", name);
			cells_text(&cells, NULL, column, distance);
		}
		cells_add(&cells, "distances", distances);
		info_cells_end(&cells, out, list);
	}
	return list;
}

void info_affinity_text(const struct info *info)
{
	if (!info->machine->n_gpus) {
		printf("affinity: there is no GPU\n");
		return;
	}
	printf("affinity: each GPU's memory node, its NIC, and how far all NICs are\n");
	json_object_put(affinity(info->machine, stdout));
}

void info_machine_json(const struct info *info, struct json_object *root)
{
	if (info->sections & INFO_MACHINE)
		json_object_object_add(root, "machine", report_machine(info, NULL));
	if (info->sections & INFO_LINKS)
		json_object_object_add(root, "links", info_links(info->machine));
	if (info->sections & INFO_PORTS)
		json_object_object_add(root, "ports", info_ports(info->machine, NULL));
	if (info->sections & INFO_AFFINITY)
		json_object_object_add(root, "affinity", affinity(info->machine, NULL));
}
