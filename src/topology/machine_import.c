/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Imports what a machine file says of NVLinks in hwloc's "NVLinkBandwidth". */

#include "topology/machine_builder.h"

#include <stdlib.h>
#include <string.h>

#define MB                 UINT64_C(1000000)
#define MB_PER_S_MAX       UINT64_C(100000000)  /* 100 TB/s; a larger value is refused */
#define NVLINK_PER_CENT    UINT64_C(82)         /* the share of NVLink's rate that copies reach;
						 * the same number is in machine_links.c */
#define MATRICES_MAX       8u
#define NVLINKS            "NVLinkBandwidth"   /* distances of hwloc, MB/s */

/* Files of an earlier ceoverlap have costs and GPUs in them, as infos and distances. */
static void warn_of_old(const struct cei_machine_builder *builder)
{
	hwloc_obj_t root = hwloc_get_root_obj(builder->machine->hwloc);
	int is_old = hwloc_obj_get_info_by_name(root, "CeoverlapGPU") ||
		hwloc_obj_get_info_by_name(root, "CeoverlapLink");
	struct hwloc_distances_s *matrix;
	unsigned int n = 1;

	if (!hwloc_distances_get_by_name(builder->machine->hwloc, "CeoverlapBandwidth", &n,
					 &matrix, 0) && n) {
		hwloc_distances_release(builder->machine->hwloc, matrix);
		is_old = 1;
	}
	if (is_old)
		cei_log(builder->report, CEI_LOG_WARN, "%s: an earlier ceoverlap wrote what it "
			"measured into this file, which is not read any more: on that machine, "
			"measure again with ceoverlap-bench measure -o FILE", builder->where);
}

/* The place that an object stands for; CEOV_NOBODY: none. */
static uint32_t place_of(const struct cei_machine_builder *builder, hwloc_obj_t object)
{
	const struct cei_machine *machine = builder->machine;
	hwloc_obj_t pci = cei_builder_pci_of(object);
	uint32_t i;

	for (i = 0; pci && i < machine->n_gpus; i++)
		if (builder->gpus[i] == pci)
			return i;
	for (i = 0; object && i < machine->n_nodes; i++)
		if (builder->nodes[i] == object)
			return machine->n_gpus + i;
	return CEOV_NOBODY;
}

/* hwloc names an NVSwitch by its subtype, which it has from the driver, also where the device's ids
 * could not be read. */
static int is_nvswitch(hwloc_obj_t object)
{
	if (!object || object->type != HWLOC_OBJ_PCI_DEVICE)
		return 0;
	if (object->subtype && !strcmp(object->subtype, "NVSwitch"))
		return 1;
	return object->attr->pcidev.vendor_id == 0x10de &&
	       object->attr->pcidev.class_id == 0x0680;
}

/* Imports an NVLink between a GPU and a processor (POWER): it leads to all memory of the
 * processor's package. */
static void import_package(struct cei_machine_builder *builder, uint32_t gpu, hwloc_obj_t object,
			   uint64_t bytes_per_s)
{
	struct cei_machine *machine = builder->machine;
	uint64_t copy = bytes_per_s / MB * NVLINK_PER_CENT / 100 * MB;
	uint32_t i, place;

	for (i = 0; i < machine->n_nodes; i++) {
		if (machine->nodes[i].is_gpu_memory ||
		    machine->nodes[i].package != object->os_index)
			continue;
		place = machine->n_gpus + i;
		builder->imported->kind[gpu][place] = CEI_MACHINE_C2C;
		builder->imported->kind[place][gpu] = CEI_MACHINE_C2C;
		builder->imported->bytes_per_s[gpu][place] = copy;
		builder->imported->bytes_per_s[place][gpu] = copy;
	}
}

static int import_nvlink(struct cei_machine_builder *builder, uint32_t gpu, hwloc_obj_t object,
			 uint64_t mb_per_s)
{
	uint32_t to = place_of(builder, object);

	if (!mb_per_s || !object || to == gpu)
		return 0;
	if (mb_per_s > MB_PER_S_MAX)
		return cei_raise(builder->report, CEOV_ERR_INVALID, 0,
				 "%s: " NVLINKS " of gpu%u: %llu MB/s, more than 100 TB/s",
				 builder->where, gpu, (unsigned long long)mb_per_s);
	if (to < builder->machine->n_gpus)
		builder->imported->nvlink_bytes_per_s[gpu][to] = mb_per_s * MB;
	else if (is_nvswitch(object))
		builder->imported->to_switch_bytes_per_s[gpu] += mb_per_s * MB;
	else if (object->type == HWLOC_OBJ_PACKAGE)
		import_package(builder, gpu, object, mb_per_s * MB);
	return 0;
}

static int import_nvlinks(struct cei_machine_builder *builder,
			  const struct hwloc_distances_s *matrix)
{
	uint32_t n = matrix->nbobjs;
	uint32_t i, j, gpu;
	int r = 0;

	for (i = 0; i < n; i++) {
		gpu = place_of(builder, matrix->objs[i]);
		if (gpu >= builder->machine->n_gpus)
			continue;
		for (j = 0; j < n && !r; j++)
			r = import_nvlink(builder, gpu, matrix->objs[j],
					  matrix->values[(size_t)i * n + j]);
	}
	return r;
}

/* If the file shows an NVSwitch, bandwidth that it lists from GPU to GPU goes through the switches:
 * moves it from nvlink_bytes_per_s to to_switch_bytes_per_s. */
static void fold_switches(struct cei_machine_builder *builder)
{
	struct cei_machine_imported *imported = builder->imported;
	hwloc_obj_t object = NULL;
	uint32_t a, b;

	while ((object = hwloc_get_next_pcidev(builder->machine->hwloc, object)))
		if (is_nvswitch(object))
			break;
	for (a = 0; object && a < builder->machine->n_gpus; a++) {
		for (b = 0; b < builder->machine->n_gpus; b++) {
			if (imported->to_switch_bytes_per_s[a] < imported->nvlink_bytes_per_s[a][b])
				imported->to_switch_bytes_per_s[a] =
					imported->nvlink_bytes_per_s[a][b];
			imported->nvlink_bytes_per_s[a][b] = 0;
		}
	}
}

int cei_builder_import_links(struct cei_machine_builder *builder)
{
	struct cei_machine_imported *imported = calloc(1, sizeof(*imported));
	hwloc_topology_t hwloc = builder->machine->hwloc;
	struct hwloc_distances_s *matrices[MATRICES_MAX];
	unsigned int i, n = MATRICES_MAX;
	int r = 0;

	builder->imported = imported;
	if (!imported)
		return cei_raise(builder->report, CEOV_ERR_NO_MEMORY, 0,
				 "%s: no memory for its links", builder->where);
	memset(imported->kind, CEI_BUILDER_UNSET, sizeof(imported->kind));
	warn_of_old(builder);
	if (hwloc_distances_get_by_name(hwloc, NVLINKS, &n, matrices, 0))
		n = 0;
	for (i = 0; i < n && i < MATRICES_MAX; i++) {
		if (!r)
			r = import_nvlinks(builder, matrices[i]);
		hwloc_distances_release(hwloc, matrices[i]);
	}
	if (r)
		return r;
	fold_switches(builder);
	return cei_builder_take_kinds(builder);
}

static void apply_one(struct cei_machine_builder *builder, uint32_t from, uint32_t to)
{
	struct cei_machine *machine = builder->machine;
	uint64_t rate = builder->imported->bytes_per_s[from][to];
	struct cei_machine_link *link;

	link = &machine->links[from * cei_machine_n_places(machine) + to];
	if (link->kind == CEI_MACHINE_NONE || !rate)
		return;
	cei_machine_set_measured(machine, from, to, rate, link->t0_ns);
	link->origin = CEI_MACHINE_REPORTED;
}

int cei_builder_apply_imported(struct cei_machine_builder *builder)
{
	uint32_t n = cei_machine_n_places(builder->machine);
	uint32_t from, to;

	for (from = 0; from < n; from++)
		for (to = 0; to < n; to++)
			apply_one(builder, from, to);
	return cei_builder_take_measured(builder);
}
