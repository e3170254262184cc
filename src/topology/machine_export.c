/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Writes a machine's GPUs and links into hwloc's tree; machine_import.c reads them back. */

#include "topology/machine_builder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/machine_xml_names.h"

#define MB UINT64_C(1000000)

struct exporter {
	struct cei_report        *report;
	const struct cei_machine *machine;
	hwloc_topology_t          hwloc;
	const char               *where;
	uint32_t                  n_objects;    /* places that have a hwloc object of their own */
	hwloc_obj_t               objects[CEI_BUILDER_PLACES_MAX];
	uint32_t                  places[CEI_BUILDER_PLACES_MAX];
	uint8_t                   has_object[CEI_BUILDER_PLACES_MAX];
};

static int fail(const struct exporter *exporter)
{
	return cei_raise(exporter->report, CEOV_ERR_NO_MEMORY, 0,
			 "%s: hwloc cannot take the links of the machine", exporter->where);
}

/* --- removing what an earlier export wrote ------------------------------------------ */

static int is_ours(const char *name)
{
	return !strcmp(name, CEI_XML_GPU) || !strcmp(name, CEI_XML_LINK) ||
	       !strcmp(name, CEI_XML_PORT) || !strcmp(name, CEI_XML_DRIVER);
}

static void forget_infos(hwloc_obj_t root)
{
#if HWLOC_API_VERSION >= 0x00030000
	unsigned int i;

	for (i = root->infos.count; i > 0; i--)
		if (is_ours(root->infos.array[i - 1].name))
			hwloc_modify_infos(&root->infos, HWLOC_MODIFY_INFOS_OP_REMOVE,
					   root->infos.array[i - 1].name,
					   root->infos.array[i - 1].value);
#else
	unsigned int i, n = 0;

	/* hwloc 2 has no call to remove infos; they were allocated by strdup() */
	for (i = 0; i < root->infos_count; i++) {
		if (!is_ours(root->infos[i].name)) {
			root->infos[n++] = root->infos[i];
			continue;
		}
		free(root->infos[i].name);
		free(root->infos[i].value);
	}
	root->infos_count = n;
#endif
}

static void forget_matrices(hwloc_topology_t hwloc, const char *name)
{
	struct hwloc_distances_s *matrix;
	unsigned int n = 1;

	while (!hwloc_distances_get_by_name(hwloc, name, &n, &matrix, 0) && n) {
		if (hwloc_distances_release_remove(hwloc, matrix))
			return;
		n = 1;
	}
}

/* --- infos ---------------------------------------------------------------------------- */

static int export_gpus(const struct exporter *exporter, hwloc_obj_t root)
{
	char text[2 * CEI_MACHINE_NAME_BYTES + 64];
	const struct cei_machine_gpu *gpu;
	uint32_t i;

	for (i = 0; i < exporter->machine->n_gpus; i++) {
		gpu = &exporter->machine->gpus[i];
		snprintf(text, sizeof(text), "%s %" PRIu32 " %" PRIu32 " %" PRIu64 " %d %d %s",
			 gpu->bus_id[0] ? gpu->bus_id : "-", gpu->n_copy_engines,
			 gpu->n_nvlinks, gpu->nvlink_bytes_per_s, gpu->is_on_switch != 0,
			 gpu->is_coherent != 0, gpu->name);
		if (hwloc_obj_add_info(root, CEI_XML_GPU, text))
			return fail(exporter);
	}
	return 0;
}

static int export_ports(const struct exporter *exporter, hwloc_obj_t root)
{
	char text[CEI_MACHINE_PORT_TEXT_BYTES];
	uint32_t i;
	int r;

	for (i = 0; i < exporter->machine->n_ports; i++) {
		r = cei_machine_port_to_text(exporter->machine, i, text);
		if (r == CEOV_NONE)
			continue;
		if (r)
			return cei_raise(exporter->report, CEOV_ERR_INVALID, 0,
					 "%s: more links share \"%s\" than a file can name",
					 exporter->where, exporter->machine->ports[i].name);
		if (hwloc_obj_add_info(root, CEI_XML_PORT, text))
			return fail(exporter);
	}
	return 0;
}

/* Writes the links that begin or end at a place for which the tree has no object: one info each. */
static int export_lines(const struct exporter *exporter, hwloc_obj_t root)
{
	uint32_t n = cei_machine_n_places(exporter->machine);
	const struct cei_machine_link *link;
	uint32_t from, to;
	char text[128];

	for (from = 0; from < n; from++) {
		for (to = 0; to < n; to++) {
			if (exporter->n_objects >= 2 && exporter->has_object[from] &&
			    exporter->has_object[to])
				continue;
			link = cei_machine_link(exporter->machine, from, to);
			snprintf(text, sizeof(text), "%u %u %u %u %" PRIu64 " %" PRIu64,
				 from, to, link->kind, link->origin,
				 link->bytes_per_s / MB, link->t0_ns);
			if (hwloc_obj_add_info(root, CEI_XML_LINK, text))
				return fail(exporter);
		}
	}
	return 0;
}

/* --- matrices ------------------------------------------------------------------------- */

static uint64_t value_of(const struct cei_machine_link *link, const char *name)
{
	if (!strcmp(name, CEI_XML_KIND))
		return link->kind;
	if (!strcmp(name, CEI_XML_ORIGIN))
		return link->origin;
	return !strcmp(name, CEI_XML_LATENCY) ? link->t0_ns : link->bytes_per_s / MB;
}

static int export_matrix(const struct exporter *exporter, const char *name, unsigned long means)
{
	uint32_t i, j, n = exporter->n_objects;
	hwloc_uint64_t *values = calloc((size_t)n * n, sizeof(values[0]));
	hwloc_obj_t objects[CEI_BUILDER_PLACES_MAX];
	hwloc_distances_add_handle_t handle = NULL;

	if (values)
		handle = hwloc_distances_add_create(exporter->hwloc, name,
						    HWLOC_DISTANCES_KIND_FROM_USER | means, 0);
	if (!handle) {
		free(values);
		return fail(exporter);
	}
	for (i = 0; i < n; i++)
		for (j = 0; j < n; j++)
			values[(size_t)i * n + j] =
				value_of(cei_machine_link(exporter->machine, exporter->places[i],
							  exporter->places[j]), name);
	memcpy(objects, exporter->objects, sizeof(objects));
	/* a call that fails has already released the handle */
	i = (uint32_t)(hwloc_distances_add_values(exporter->hwloc, handle, n, objects, values,
						  0) ||
		       hwloc_distances_add_commit(exporter->hwloc, handle, 0));
	free(values);
	return i ? fail(exporter) : 0;
}

static int export_matrices(const struct exporter *exporter)
{
	static const struct {
		const char   *name;
		unsigned long means;
	} all[] = {
		{ CEI_XML_KIND, HWLOC_DISTANCES_KIND_MEANS_LATENCY },
		{ CEI_XML_ORIGIN, HWLOC_DISTANCES_KIND_MEANS_LATENCY },
		{ CEI_XML_BANDWIDTH, HWLOC_DISTANCES_KIND_MEANS_BANDWIDTH },
		{ CEI_XML_LATENCY, HWLOC_DISTANCES_KIND_MEANS_LATENCY },
	};
	size_t i;
	int r = 0;

	for (i = 0; i < sizeof(all) / sizeof(all[0]) && !r; i++) {
		forget_matrices(exporter->hwloc, all[i].name);
		if (exporter->n_objects >= 2)
			r = export_matrix(exporter, all[i].name, all[i].means);
	}
	return r;
}

/* --- the whole export ----------------------------------------------------------------- */

static void find_object(struct exporter *exporter, uint32_t place)
{
	const struct cei_machine *machine = exporter->machine;
	hwloc_obj_t object;
	uint32_t i;

	if (cei_machine_is_gpu(machine, place))
		object = cei_builder_find_gpu(exporter->hwloc, machine->gpus[place].bus_id);
	else
		object = hwloc_get_numanode_obj_by_os_index(exporter->hwloc,
			machine->nodes[place - machine->n_gpus].os_index);
	for (i = 0; object && i < exporter->n_objects; i++)
		if (exporter->objects[i] == object)
			object = NULL;          /* parts of one GPU (MIG) share its object */
	if (!object)
		return;
	exporter->has_object[place] = 1;
	exporter->places[exporter->n_objects] = place;
	exporter->objects[exporter->n_objects++] = object;
}

int cei_machine_export(struct cei_report *report, const struct cei_machine *machine,
		       hwloc_topology_t hwloc, const char *where)
{
	hwloc_obj_t root = hwloc_get_root_obj(hwloc);
	struct exporter exporter = { report, machine, hwloc, where, 0, { 0 }, { 0 }, { 0 } };
	uint32_t i;
	int r;

	for (i = 0; i < cei_machine_n_places(machine); i++)
		find_object(&exporter, i);
	forget_infos(root);
	if (machine->driver[0] &&
	    hwloc_obj_add_info(root, CEI_XML_DRIVER, machine->driver))
		return fail(&exporter);
	r = export_gpus(&exporter, root);
	if (!r)
		r = export_ports(&exporter, root);
	if (!r)
		r = export_matrices(&exporter);
	return r ? r : export_lines(&exporter, root);
}
