/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The machine and the affinity of its devices, as text. */

#include "tools/info/info.h"

#include <inttypes.h>
#include <string.h>

#include "topology/rails.h"

static void head(const struct info *info)
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

static void format_package(uint32_t package, char room[16])
{
	if (package == CEOV_NOBODY)
		snprintf(room, 16, "-");
	else
		snprintf(room, 16, "%u", package);
}

static void nodes(const struct cei_machine *machine)
{
	char name[16], package[16], gib[16];
	uint64_t bytes;
	uint32_t i;

	printf("\n  %-8s %-8s %-8s %9s\n", "node", "system's", "package", "GiB");
	for (i = 0; i < machine->n_nodes; i++) {
		bytes = info_memory_bytes(machine, i);
		format_package(machine->nodes[i].package, package);
		snprintf(gib, sizeof(gib), bytes ? "%.1f" : "-",
			 (double)bytes / (double)(UINT64_C(1) << 30));
		printf("  %-8s %-8u %-8s %9s%s\n", info_node_name(i, name),
		       machine->nodes[i].os_index, package, gib,
		       machine->nodes[i].is_gpu_memory ? "  memory of a GPU" : "");
	}
}

static void below_switch(const struct cei_machine *machine,
			 const struct info_switches *switches, uint32_t index)
{
	char name[CEI_MACHINE_NAME_BYTES];
	uint32_t i;

	printf("  %-14s", switches->bus_ids[index]);
	for (i = 0; i < machine->n_gpus; i++)
		if (switches->of_gpu[i] == index)
			printf(" %s", info_gpu_name(i, name));
	for (i = 0; i < machine->n_nics; i++)
		if (switches->of_nic[i] == index)
			printf(" %s", info_plain(machine->nics[i].name, name, sizeof(name)));
	printf("\n");
}

static void format_count(uint32_t count, char room[16])
{
	if (count)
		snprintf(room, 16, "%u", count);
	else
		snprintf(room, 16, "-");
}

static void format_speed(double gb_per_s, char room[16])
{
	snprintf(room, 16, gb_per_s > 0 ? "%.1f" : "-", gb_per_s);
}

static void gpus(const struct cei_machine *machine, const struct info_switches *switches)
{
	char index[16], node[16], speed[16], engines[16], links[16];
	char name[CEI_MACHINE_NAME_BYTES], bus_id[16];
	const struct cei_machine_gpu *gpu;
	uint32_t i;

	printf("\n  %-6s %-13s %-8s %-13s %7s %7s %7s  %s\n", "GPU", "bus", "node", "switch",
	       "PCIe", "engines", "NVLinks", "name");
	for (i = 0; i < machine->n_gpus; i++) {
		gpu = &machine->gpus[i];
		format_speed(info_pcie_gb_per_s(machine, gpu->bus_id), speed);
		format_count(gpu->n_copy_engines, engines);
		format_count(gpu->n_nvlinks, links);
		printf("  %-6s %-13s %-8s %-13s %7s %7s %7s  %s%s\n",
		       info_gpu_name(i, index), gpu->bus_id[0] ?
		       info_plain(gpu->bus_id, bus_id, sizeof(bus_id)) : "-",
		       info_node_name(gpu->node, node),
		       switches->of_gpu[i] == INFO_NO_SWITCH ? "-" :
		       switches->bus_ids[switches->of_gpu[i]], speed, engines, links,
		       gpu->name[0] ? info_plain(gpu->name, name, sizeof(name)) : "-",
		       gpu->is_coherent ? " (coherent with its host)" : "");
	}
}

static void nics(const struct cei_machine *machine, const struct info_switches *switches)
{
	char node[16], speed[16], name[CEI_MACHINE_NAME_BYTES], bus_id[16];
	const struct cei_machine_nic *nic;
	uint32_t i;

	printf("\n  %-12s %-13s %-8s %-13s %7s  %s\n", "NIC", "bus", "node", "switch", "PCIe",
	       "kind");
	for (i = 0; i < machine->n_nics; i++) {
		nic = &machine->nics[i];
		format_speed(info_pcie_gb_per_s(machine, nic->bus_id), speed);
		printf("  %-12s %-13s %-8s %-13s %7s  %s\n",
		       info_plain(nic->name, name, sizeof(name)), nic->bus_id[0] ?
		       info_plain(nic->bus_id, bus_id, sizeof(bus_id)) : "-",
		       info_node_name(nic->node, node),
		       switches->of_nic[i] == INFO_NO_SWITCH ? "-" :
		       switches->bus_ids[switches->of_nic[i]], speed,
		       nic->is_rdma ? "RDMA" : "net device");
	}
}

void info_machine_text(const struct info *info)
{
	const struct cei_machine *machine = info->machine;
	struct info_switches switches;
	uint32_t i;

	head(info);
	nodes(machine);
	info_find_switches(machine, &switches);
	if (switches.n)
		printf("\n  %-14s below it\n", "PCI switch");
	for (i = 0; i < switches.n; i++)
		below_switch(machine, &switches, i);
	if (machine->n_gpus)
		gpus(machine, &switches);
	if (machine->n_nics)
		nics(machine, &switches);
	if (machine->n_gpus || machine->n_nics)
		printf("\n  PCIe: GB/s of the link as it is trained now, raw; -: nobody tells\n");
}

void info_affinity_text(const struct info *info)
{
	const struct cei_machine *machine = info->machine;
	char node[16], index[16], name[CEI_MACHINE_NAME_BYTES];
	uint32_t assigned[CEI_MACHINE_GPUS_MAX];
	uint32_t i, k;

	if (!machine->n_gpus) {
		printf("affinity: there is no GPU\n");
		return;
	}
	cei_rails_assign(machine, assigned);
	printf("affinity: each GPU's memory node, its NIC, and how far all NICs are\n");
	printf("  %-6s %-8s %-12s", "GPU", "node", "its NIC");
	for (k = 0; k < machine->n_nics; k++)
		printf(" %12.12s", info_plain(machine->nics[k].name, name, sizeof(name)));
	printf("\n");
	for (i = 0; i < machine->n_gpus; i++) {
		printf("  %-6s %-8s %-12s", info_gpu_name(i, index),
		       info_node_name(machine->gpus[i].node, node),
		       assigned[i] < machine->n_nics ?
		       info_plain(machine->nics[assigned[i]].name, name, sizeof(name)) : "-");
		for (k = 0; k < machine->n_nics; k++)
			printf(" %12s", cei_machine_distance_name(
				(enum cei_machine_distance)machine->nic_distance[i][k]));
		printf("\n");
	}
}
