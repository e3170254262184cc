/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Imports what a machine file says of GPUs and links beyond its tree: hwloc's "NVLinkBandwidth",
 * and what machine_export.c wrote. The file is untrusted input.
 */

#include "topology/machine_builder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/machine_xml_names.h"

#define MB                 UINT64_C(1000000)
#define MB_PER_S_MAX       UINT64_C(100000000)  /* 100 TB/s; a larger value is refused */
#define T0_NS_MAX          UINT64_C(1000000000000)
#define COPY_ENGINES_MAX   64u
#define NVLINKS_MAX        256u
#define NVLINK_PER_CENT    UINT64_C(82)         /* the share of NVLink's rate that copies reach;
						 * the same number is in machine_links.c */
#define MATRICES_MAX       8u

#if HWLOC_API_VERSION >= 0x00030000
static unsigned int n_infos(hwloc_obj_t object)
{
	return object->infos.count;
}

static const struct hwloc_info_s *info_at(hwloc_obj_t object, unsigned int i)
{
	return &object->infos.array[i];
}
#else
static unsigned int n_infos(hwloc_obj_t object)
{
	return object->infos_count;
}

static const struct hwloc_info_s *info_at(hwloc_obj_t object, unsigned int i)
{
	return &object->infos[i];
}
#endif

/* Returns the value of the object's i-th info if that info has the given name, else NULL. */
static const char *info_named(hwloc_obj_t object, unsigned int i, const char *name)
{
	const struct hwloc_info_s *info = info_at(object, i);

	return !strcmp(info->name, name) ? info->value : NULL;
}

static int refuse(struct cei_machine_builder *builder, const char *name, const char *value,
		  const char *why)
{
	return cei_raise(builder->report, CEOV_ERR_INVALID, 0,
			 "%s: %s \"%.80s\": %s", builder->where, name, value, why);
}

/* --- GPUs ----------------------------------------------------------------------------- */

/* Reads an info that describes one GPU, such as "0000:19:00.0 3 18 26562000000 1 0 NVIDIA H200".
 * Its parts are: PCI address ("-": not known), copy engines, NVLinks, bytes per second of one
 * NVLink, whether NVLinks end at a switch, whether the GPU is coherent, and the name. */
static int read_gpu(struct cei_machine_builder *builder, const char *text)
{
	struct cei_machine_hints *hints = builder->file_hints;
	struct cei_machine_hint_gpu *gpu;
	unsigned long long nvlink;
	unsigned int on_switch, coherent;
	int n_read = 0;

	if (hints->n_gpus == CEI_MACHINE_GPUS_MAX)
		return refuse(builder, CEI_XML_GPU, text, "more GPUs than there is room for");
	gpu = &hints->gpus[hints->n_gpus];
	if (sscanf(text, "%15s %u %u %llu %u %u %n", gpu->bus_id, &gpu->n_copy_engines,
		   &gpu->n_nvlinks, &nvlink, &on_switch, &coherent, &n_read) != 6 || !n_read)
		return refuse(builder, CEI_XML_GPU, text, "not an address, five numbers and "
			      "a name");
	if (gpu->n_copy_engines > COPY_ENGINES_MAX || gpu->n_nvlinks > NVLINKS_MAX ||
	    nvlink > MB_PER_S_MAX * MB || on_switch > 1 || coherent > 1)
		return refuse(builder, CEI_XML_GPU, text, "a number is beyond reason");
	if (!strcmp(gpu->bus_id, "-"))
		gpu->bus_id[0] = '\0';
	gpu->nvlink_bytes_per_s = nvlink;
	gpu->is_on_switch = (int)on_switch;
	gpu->is_coherent = (int)coherent;
	cei_builder_text(gpu->name, sizeof(gpu->name), text + n_read);
	hints->n_gpus++;
	return 0;
}

int cei_builder_import_gpus(struct cei_machine_builder *builder)
{
	hwloc_obj_t root = hwloc_get_root_obj(builder->machine->hwloc);
	int is_listed = 0;
	const char *text;
	unsigned int i;
	int r = 0;

	for (i = 0; i < n_infos(root); i++)
		is_listed |= info_named(root, i, CEI_XML_GPU) != NULL;
	if (!is_listed)
		return 0;
	builder->file_hints = calloc(1, sizeof(*builder->file_hints));
	if (!builder->file_hints)
		return cei_raise(builder->report, CEOV_ERR_NO_MEMORY, 0,
				 "%s: no memory for its GPUs", builder->where);
	/* Assume that every GPU reaches every other one; the kinds of links say otherwise, if
	 * the file has them. */
	memset(builder->file_hints->peer, 1, sizeof(builder->file_hints->peer));
	builder->hints = builder->file_hints;
	for (i = 0; i < n_infos(root) && !r; i++) {
		text = info_named(root, i, CEI_XML_GPU);
		if (text)
			r = read_gpu(builder, text);
	}
	return r;
}

/* --- one value ------------------------------------------------------------------------ */

static int kind_fits(const struct cei_machine *machine, uint32_t from, uint32_t to,
		     uint64_t kind)
{
	uint32_t n_gpu_ends = (from < machine->n_gpus) + (to < machine->n_gpus);

	if (kind == CEI_MACHINE_NONE)
		return 1;
	if (n_gpu_ends == 2)
		return kind == CEI_MACHINE_NVSWITCH || kind == CEI_MACHINE_NVLINK ||
		       kind == CEI_MACHINE_PCIE;
	if (n_gpu_ends == 1)
		return kind == CEI_MACHINE_HOST || kind == CEI_MACHINE_C2C;
	return kind == CEI_MACHINE_NODES;
}

enum value_kind { KIND, ORIGIN, BANDWIDTH, LATENCY, N_VALUES };

static const struct {
	const char *name;
	const char *why_not;
} value_kinds[N_VALUES] = {
	[KIND]      = { CEI_XML_KIND, "no kind of link between these two" },
	[ORIGIN]    = { CEI_XML_ORIGIN, "no origin of a cost" },
	[BANDWIDTH] = { CEI_XML_BANDWIDTH, "more than 100 TB/s" },
	[LATENCY]   = { CEI_XML_LATENCY, "more than 1000 s" },
};

struct pair {
	uint32_t from;
	uint32_t to;
};

static int import_value(struct cei_machine_builder *builder, enum value_kind kind, struct pair pair,
			uint64_t value)
{
	struct cei_machine_imported *imported = builder->imported;
	uint32_t from = pair.from, to = pair.to;
	char text[80], a[16], b[16];

	if (kind == KIND && from == to)
		return 0;               /* a place's link to itself has a fixed kind */
	if (kind == KIND && kind_fits(builder->machine, from, to, value))
		imported->kind[from][to] = (uint8_t)value;
	else if (kind == ORIGIN && value <= CEI_MACHINE_MEASURED)
		imported->origin[from][to] = (uint8_t)value;
	else if (kind == BANDWIDTH && value <= MB_PER_S_MAX)
		imported->bytes_per_s[from][to] = value * MB;
	else if (kind == LATENCY && value <= T0_NS_MAX)
		imported->t0_ns[from][to] = value;
	else {
		snprintf(text, sizeof(text), "%s to %s: %llu",
			 cei_machine_place_name(builder->machine, from, a),
			 cei_machine_place_name(builder->machine, to, b),
			 (unsigned long long)value);
		return refuse(builder, value_kinds[kind].name, text, value_kinds[kind].why_not);
	}
	return 0;
}

/* --- matrices ------------------------------------------------------------------------- */

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

static int import_matrix(struct cei_machine_builder *builder, enum value_kind kind,
			 const struct hwloc_distances_s *matrix)
{
	uint32_t n = matrix->nbobjs;
	uint32_t i, j;
	int r = 0;

	for (i = 0; i < n; i++) {
		const uint32_t from = place_of(builder, matrix->objs[i]);

		for (j = 0; from != CEOV_NOBODY && j < n && !r; j++) {
			const struct pair pair = { from, place_of(builder, matrix->objs[j]) };

			if (pair.to != CEOV_NOBODY)
				r = import_value(builder, kind, pair,
						 matrix->values[(size_t)i * n + j]);
		}
	}
	return r;
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
	char text[64];

	if (!mb_per_s || !object || to == gpu)
		return 0;
	if (mb_per_s > MB_PER_S_MAX) {
		snprintf(text, sizeof(text), "gpu%u: %llu", gpu, (unsigned long long)mb_per_s);
		return refuse(builder, CEI_XML_NVLINK, text, value_kinds[BANDWIDTH].why_not);
	}
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

/* Reads all distance matrices of one kind; N_VALUES stands for hwloc's own NVLink matrix. */
static int read_matrices(struct cei_machine_builder *builder, enum value_kind kind)
{
	const char *name = kind == N_VALUES ? CEI_XML_NVLINK : value_kinds[kind].name;
	struct hwloc_distances_s *matrices[MATRICES_MAX];
	hwloc_topology_t hwloc = builder->machine->hwloc;
	unsigned int n = MATRICES_MAX;
	unsigned int i;
	int r = 0;

	if (hwloc_distances_get_by_name(hwloc, name, &n, matrices, 0))
		return 0;
	for (i = 0; i < n && i < MATRICES_MAX; i++) {
		if (!r)
			r = kind == N_VALUES ? import_nvlinks(builder, matrices[i]) :
				import_matrix(builder, kind, matrices[i]);
		hwloc_distances_release(hwloc, matrices[i]);
	}
	if (!r && n > MATRICES_MAX)
		r = refuse(builder, "distances", name, "too many of this name");
	return r;
}

/* Reads one link between places of which one has no object in the tree, such as
 * "0 9 4 1 55000 4000": numbers of both places, kind, origin, MB/s, ns. */
static int read_line(struct cei_machine_builder *builder, const char *text)
{
	uint32_t n = cei_machine_n_places(builder->machine);
	unsigned long long values[N_VALUES];
	struct pair pair;
	int kind, r = 0;

	if (sscanf(text, "%u %u %llu %llu %llu %llu", &pair.from, &pair.to, &values[KIND],
		   &values[ORIGIN], &values[BANDWIDTH], &values[LATENCY]) != 6)
		return refuse(builder, CEI_XML_LINK, text, "not six numbers");
	if (pair.from >= n || pair.to >= n)
		return refuse(builder, CEI_XML_LINK, text, "there is no such place");
	for (kind = 0; kind < N_VALUES && !r; kind++)
		r = import_value(builder, (enum value_kind)kind, pair, values[kind]);
	return r;
}

int cei_builder_import_links(struct cei_machine_builder *builder)
{
	hwloc_obj_t root = hwloc_get_root_obj(builder->machine->hwloc);
	struct cei_machine_imported *imported = calloc(1, sizeof(*imported));
	const char *text;
	unsigned int i;
	int kind, r;

	builder->imported = imported;
	if (!imported)
		return cei_raise(builder->report, CEOV_ERR_NO_MEMORY, 0,
				 "%s: no memory for its links", builder->where);
	memset(imported->kind, CEI_BUILDER_UNSET, sizeof(imported->kind));
	memset(imported->origin, CEI_BUILDER_UNSET, sizeof(imported->origin));
	memset(imported->t0_ns, 0xff, sizeof(imported->t0_ns)); /* CEI_BUILDER_NO_T0 */
	r = read_matrices(builder, N_VALUES);
	if (!r)
		fold_switches(builder);
	for (kind = 0; kind < N_VALUES && !r; kind++)
		r = read_matrices(builder, (enum value_kind)kind);
	for (i = 0; i < n_infos(root) && !r; i++) {
		text = info_named(root, i, CEI_XML_LINK);
		if (text)
			r = read_line(builder, text);
	}
	return r;
}

/* --- after the links are made --------------------------------------------------------- */

static void apply_one(struct cei_machine_builder *builder, uint32_t from, uint32_t to)
{
	const struct cei_machine_imported *imported = builder->imported;
	struct cei_machine *machine = builder->machine;
	struct cei_machine_link *link;
	uint64_t rate = imported->bytes_per_s[from][to];
	uint64_t t0_ns = imported->t0_ns[from][to];

	link = &machine->links[from * cei_machine_n_places(machine) + to];
	if (link->kind == CEI_MACHINE_NONE || (!rate && t0_ns == CEI_BUILDER_NO_T0))
		return;
	cei_machine_set_measured(machine, from, to, rate ? rate : link->bytes_per_s,
				 t0_ns == CEI_BUILDER_NO_T0 ? link->t0_ns : t0_ns);
	link->origin = imported->origin[from][to];
	if (link->origin == CEI_BUILDER_UNSET)
		link->origin = CEI_MACHINE_REPORTED;
}

int cei_builder_apply_imported(struct cei_machine_builder *builder)
{
	hwloc_obj_t root = hwloc_get_root_obj(builder->machine->hwloc);
	uint32_t n = cei_machine_n_places(builder->machine);
	uint32_t from, to;
	const char *text;
	unsigned int i;
	int r;

	for (from = 0; from < n; from++)
		for (to = 0; to < n; to++)
			apply_one(builder, from, to);
	for (i = 0; i < n_infos(root); i++) {
		text = info_named(root, i, CEI_XML_DRIVER);
		if (text)
			cei_builder_text(builder->machine->driver,
					 sizeof(builder->machine->driver), text);
		text = info_named(root, i, CEI_XML_PORT);
		r = text ? cei_machine_port_from_text(builder->machine, text) : 0;
		if (r)
			return refuse(builder, CEI_XML_PORT, text, r == CEOV_ERR_INVALID ?
				      "not a rate, links and a name that are there" :
				      "no room for another port");
	}
	return 0;
}
