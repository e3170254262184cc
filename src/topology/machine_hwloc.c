/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Finds NUMA nodes, GPUs and NICs in hwloc's tree, and where each is attached. What the tree does
 * not say stays unknown.
 */

#include "topology/machine_builder.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/hash.h"

#define VENDOR_NVIDIA 0x10deu
#define CLASS_DISPLAY 0x0300u
#define CLASS_3D      0x0302u
#define NAME_BYTES    CEI_MACHINE_NAME_BYTES

/* hwloc's plug-ins that must not run. Most of them would open CUDA, OpenCL, a display and more in
 * the user's process, though the driver reports the same facts to us directly. "pci" is
 * libpciaccess, which leaves process-wide state behind; without it hwloc reads sysfs. */
static const char *const unwanted[] = {
	"cuda", "nvml", "opencl", "gl", "rsmi", "levelzero", "pci",
};

int cei_machine_set_filters(struct hwloc_topology *hwloc)
{
	size_t i;

	for (i = 0; i < sizeof(unwanted) / sizeof(unwanted[0]); i++)
		/* a plug-in that is not installed makes the call fail, which does no harm */
		hwloc_topology_set_components(hwloc, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
					      unwanted[i]);
	if (hwloc_topology_set_io_types_filter(hwloc, HWLOC_TYPE_FILTER_KEEP_IMPORTANT))
		return CEOV_ERR_SYSTEM;
	return 0;
}

void cei_builder_text(char *field, size_t n_bytes, const char *text)
{
	size_t i;

	while (text && *text == ' ')
		text++;
	for (i = 0; text && text[i] && i + 1 < n_bytes; i++)
		field[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
	field[i] = '\0';
}

hwloc_obj_t cei_builder_pci_of(hwloc_obj_t object)
{
	while (object && object->type == HWLOC_OBJ_OS_DEVICE)
		object = object->parent;
	return object && object->type == HWLOC_OBJ_PCI_DEVICE ? object : NULL;
}

static const struct hwloc_pcidev_attr_s *pci(hwloc_obj_t object)
{
	if (object->type == HWLOC_OBJ_PCI_DEVICE)
		return &object->attr->pcidev;
	return &object->attr->bridge.upstream.pci;
}

void cei_builder_bus_id(hwloc_obj_t object, char *field)
{
	const struct hwloc_pcidev_attr_s *at = pci(object);

	/* PCI addresses have 8, 5 and 3 bits; a file may hold larger numbers */
	snprintf(field, 16, "%04x:%02x:%02x.%01x", (unsigned int)at->domain & 0xffffffu,
		 at->bus & 0xffu, at->dev & 0x1fu, at->func & 0x7u);
}

static int find_nodes(struct cei_machine_builder *builder)
{
	struct cei_machine *machine = builder->machine;
	hwloc_obj_t object = NULL, package;
	struct cei_machine_node *node;

	if (!machine->hwloc) {
		machine->n_nodes = 1;
		machine->nodes[0].package = CEOV_NOBODY;
		return 0;
	}
	while ((object = hwloc_get_next_obj_by_type(machine->hwloc, HWLOC_OBJ_NUMANODE,
						    object))) {
		if (machine->n_nodes == CEI_MACHINE_NODES_MAX)
			return cei_raise(builder->report, CEOV_ERR_INVALID, 0,
					 "%s: more than %u NUMA nodes", builder->where,
					 CEI_MACHINE_NODES_MAX);
		builder->nodes[machine->n_nodes] = object;
		node = &machine->nodes[machine->n_nodes++];
		package = hwloc_get_ancestor_obj_by_type(machine->hwloc, HWLOC_OBJ_PACKAGE,
							 object);
		node->os_index = object->os_index;
		node->package = package ? package->os_index : CEOV_NOBODY;
		node->is_gpu_memory = object->subtype && !strcmp(object->subtype, "GPUMemory");
	}
	if (!machine->n_nodes)
		return cei_raise(builder->report, CEOV_ERR_INVALID, 0,
				 "%s: no NUMA node in it", builder->where);
	return 0;
}

/* The host's NUMA node that is nearest to an object on the bus, as an index. An object at the root
 * of a machine with several nodes may be near any of them: then CEOV_NOBODY. */
static uint32_t node_of(const struct cei_machine_builder *builder, hwloc_obj_t object)
{
	const struct cei_machine *machine = builder->machine;
	hwloc_obj_t above = hwloc_get_non_io_ancestor_obj(machine->hwloc, object);
	uint32_t first = CEOV_NOBODY;
	uint32_t i, n = 0;

	if (!above || !above->nodeset)
		return CEOV_NOBODY;
	for (i = 0; i < machine->n_nodes; i++) {
		if (machine->nodes[i].is_gpu_memory ||
		    !hwloc_bitmap_isset(above->nodeset, machine->nodes[i].os_index))
			continue;
		if (!n++)
			first = i;
	}
	return n > 1 && !above->parent ? CEOV_NOBODY : first;
}

/* --- GPUs ----------------------------------------------------------------------------- */

static int is_gpu(hwloc_obj_t object)
{
	const struct hwloc_pcidev_attr_s *at = &object->attr->pcidev;

	return at->vendor_id == VENDOR_NVIDIA &&
	       (at->class_id == CLASS_DISPLAY || at->class_id == CLASS_3D);
}

static int by_bus_id(const void *a, const void *b)
{
	const struct hwloc_pcidev_attr_s *x = pci(*(const hwloc_obj_t *)a);
	const struct hwloc_pcidev_attr_s *y = pci(*(const hwloc_obj_t *)b);

	if (x->domain != y->domain)
		return x->domain < y->domain ? -1 : 1;
	if (x->bus != y->bus)
		return x->bus < y->bus ? -1 : 1;
	if (x->dev != y->dev)
		return x->dev < y->dev ? -1 : 1;
	return (x->func > y->func) - (x->func < y->func);
}

static int is_same_device(hwloc_obj_t a, hwloc_obj_t b)
{
	const struct hwloc_pcidev_attr_s *x = pci(a), *y = pci(b);

	return x->domain == y->domain && x->bus == y->bus && x->dev == y->dev;
}

/* Finds the GPUs of a tree, in PCI order. Further functions of a GPU's PCI device are views of that
 * GPU for virtual machines, and are skipped. */
static int find_gpus(struct cei_machine_builder *builder)
{
	struct cei_machine *machine = builder->machine;
	hwloc_obj_t object = NULL;
	uint32_t i, n = 0;

	while (machine->hwloc && (object = hwloc_get_next_pcidev(machine->hwloc, object))) {
		if (!is_gpu(object))
			continue;
		if (n == CEI_MACHINE_GPUS_MAX)
			return cei_raise(builder->report, CEOV_ERR_INVALID, 0,
					 "%s: more than %u GPUs", builder->where,
					 CEI_MACHINE_GPUS_MAX);
		builder->gpus[n++] = object;
	}
	qsort(builder->gpus, n, sizeof(builder->gpus[0]), by_bus_id);
	for (i = 0; i < n; i++) {
		object = builder->gpus[i];
		builder->gpus[i] = NULL;
		if (!machine->n_gpus ||
		    !is_same_device(builder->gpus[machine->n_gpus - 1], object)) {
			builder->gpus[machine->n_gpus++] = object;
			continue;
		}
		if (!by_bus_id(&builder->gpus[machine->n_gpus - 1], &object)) {
			char bus_id[16];

			cei_builder_bus_id(object, bus_id);
			return cei_raise(builder->report, CEOV_ERR_INVALID, 0,
					 "%s: two GPUs have the PCI address %s",
					 builder->where, bus_id);
		}
	}
	return 0;
}

/* An exact match may fail, because the tree need not show every function of the GPU's PCI
 * device. */
static hwloc_obj_t find_gpu(hwloc_topology_t hwloc, const char *bus_id)
{
	unsigned int domain, bus, dev, func;
	hwloc_obj_t object;

	if (sscanf(bus_id, "%x:%x:%x.%x", &domain, &bus, &dev, &func) != 4)
		return NULL;
	object = hwloc_get_pcidev_by_busid(hwloc, domain, bus, dev, func);
	return object ? object : hwloc_get_pcidev_by_busid(hwloc, domain, bus, dev, 0);
}

static void take_hints(struct cei_machine_builder *builder)
{
	struct cei_machine *machine = builder->machine;
	const struct cei_machine_hint_gpu *hint;
	struct cei_machine_gpu *gpu;
	uint32_t i;
	char *at;

	machine->n_gpus = builder->hints->n_gpus;
	for (i = 0; i < machine->n_gpus; i++) {
		hint = &builder->hints->gpus[i];
		gpu = &machine->gpus[i];
		if (machine->hwloc)
			builder->gpus[i] = find_gpu(machine->hwloc, hint->bus_id);
		cei_builder_text(gpu->name, sizeof(gpu->name), hint->name);
		cei_builder_text(gpu->bus_id, sizeof(gpu->bus_id), hint->bus_id);
		for (at = gpu->bus_id; *at; at++)       /* lower case: CUDA writes 0000:C1:00.0 */
			*at = (char)tolower((unsigned char)*at);
		gpu->n_copy_engines = hint->n_copy_engines;
		gpu->n_nvlinks = hint->n_nvlinks;
		gpu->nvlink_bytes_per_s = hint->nvlink_bytes_per_s;
		gpu->is_on_switch = hint->is_on_switch;
		gpu->is_coherent = hint->is_coherent;
	}
}

/* Whether the tree has a NUMA node that is this GPU's memory; such a GPU reaches host memory
 * coherently. */
static int has_node(const struct cei_machine_builder *builder, const char *bus_id)
{
	const char *owner;
	uint32_t i;

	for (i = 0; i < builder->machine->n_nodes; i++) {
		if (!builder->machine->nodes[i].is_gpu_memory)
			continue;
		owner = hwloc_obj_get_info_by_name(builder->nodes[i], "PCIBusID");
		if (owner && !strcasecmp(owner, bus_id))
			return 1;
	}
	return 0;
}

/* The GPU's name: as its driver told it to hwloc, whose OS devices below the PCI device keep it,
 * else from the list of PCI ids. NULL: neither is in the tree. */
static const char *name_in_tree(hwloc_obj_t pci_device)
{
	const char *name;
	hwloc_obj_t child;

	for (child = pci_device->io_first_child; child; child = child->next_sibling) {
		name = hwloc_obj_get_info_by_name(child, "GPUModel");
		if (name)
			return name;
	}
	if (pci_device->name)
		return pci_device->name;
	return hwloc_obj_get_info_by_name(pci_device, "PCIDevice");
}

static void place_gpus(struct cei_machine_builder *builder)
{
	struct cei_machine_gpu *gpu;
	uint32_t i;

	for (i = 0; i < builder->machine->n_gpus; i++) {
		gpu = &builder->machine->gpus[i];
		gpu->node = CEOV_NOBODY;
		if (!builder->gpus[i])
			continue;
		gpu->node = node_of(builder, builder->gpus[i]);
		if (!gpu->bus_id[0])
			cei_builder_bus_id(builder->gpus[i], gpu->bus_id);
		if (!gpu->name[0])
			cei_builder_text(gpu->name, sizeof(gpu->name),
					 name_in_tree(builder->gpus[i]));
		gpu->is_coherent |= has_node(builder, gpu->bus_id);
	}
}

/* --- NICs ----------------------------------------------------------------------------- */

enum nic_sort { NO_NIC, NET, RDMA };

static enum nic_sort nic_sort(hwloc_obj_t device)
{
#if HWLOC_API_VERSION >= 0x00030000
	if (device->attr->osdev.types & HWLOC_OBJ_OSDEV_OPENFABRICS)
		return RDMA;
	return device->attr->osdev.types & HWLOC_OBJ_OSDEV_NETWORK ? NET : NO_NIC;
#else
	if (device->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS)
		return RDMA;
	return device->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK ? NET : NO_NIC;
#endif
}

static struct cei_machine_nic *nic_of(struct cei_machine_builder *builder, hwloc_obj_t object)
{
	struct cei_machine *machine = builder->machine;
	struct cei_machine_nic *nic;
	uint32_t i;

	for (i = 0; i < machine->n_nics; i++)
		if (builder->nics[i] == object)
			return &machine->nics[i];
	if (machine->n_nics == CEI_MACHINE_NICS_MAX)
		return NULL;
	builder->nics[machine->n_nics] = object;
	nic = &machine->nics[machine->n_nics++];
	cei_builder_bus_id(object, nic->bus_id);
	nic->node = node_of(builder, object);
	nic->bytes_per_s = cei_builder_pci_bytes_per_s(object);
	return nic;
}

/* Finds the NICs. An RDMA device and a net device on the same PCI device are one NIC. */
static int find_nics(struct cei_machine_builder *builder)
{
	hwloc_obj_t device = NULL, object;
	struct cei_machine_nic *nic;
	enum nic_sort sort;

	while (builder->machine->hwloc &&
	       (device = hwloc_get_next_osdev(builder->machine->hwloc, device))) {
		sort = nic_sort(device);
		object = cei_builder_pci_of(device);
		if (sort == NO_NIC || !object)
			continue;
		nic = nic_of(builder, object);
		if (!nic)
			return cei_raise(builder->report, CEOV_ERR_INVALID, 0,
					 "%s: more than %u NICs", builder->where,
					 CEI_MACHINE_NICS_MAX);
		if (sort == NET && !nic->net_name[0])
			cei_builder_text(nic->net_name, sizeof(nic->net_name), device->name);
		if (nic->name[0] && (nic->is_rdma || sort != RDMA))
			continue;
		nic->is_rdma = sort == RDMA;
		cei_builder_text(nic->name, sizeof(nic->name), device->name);
	}
	return 0;
}

static void place_nics(struct cei_machine_builder *builder)
{
	struct cei_machine *machine = builder->machine;
	uint32_t gpu, nic;

	for (gpu = 0; gpu < machine->n_gpus; gpu++)
		for (nic = 0; nic < machine->n_nics; nic++)
			machine->nic_distance[gpu][nic] =
				(uint8_t)cei_builder_distance(builder, gpu, nic);
}

/* --- the hash ------------------------------------------------------------------------- */

static uint64_t hash_text(uint64_t hash, const char *text)
{
	return cei_hash(hash, text, strlen(text) + 1);
}

/* Hashes the number's bytes in little-endian order, so that the hash in a file means the same on
 * every machine. */
static uint64_t hash_number(uint64_t hash, uint32_t number)
{
	const uint8_t bytes[4] = { (uint8_t)number, (uint8_t)(number >> 8),
				   (uint8_t)(number >> 16), (uint8_t)(number >> 24) };

	return cei_hash(hash, bytes, sizeof(bytes));
}

static uint64_t hash_machine(const struct cei_machine *machine)
{
	uint64_t hash = CEI_HASH_START;
	uint32_t n = cei_machine_n_places(machine);
	uint32_t i;

	hash = hash_number(hash, machine->n_gpus);
	for (i = 0; i < machine->n_gpus; i++) {
		hash = hash_text(hash, machine->gpus[i].name);
		hash = hash_text(hash, machine->gpus[i].bus_id);
		hash = hash_number(hash, machine->gpus[i].node);
	}
	hash = hash_number(hash, machine->n_nics);
	for (i = 0; i < machine->n_nics; i++) {
		hash = hash_text(hash, machine->nics[i].name);
		hash = hash_text(hash, machine->nics[i].bus_id);
		hash = hash_number(hash, machine->nics[i].node);
	}
	hash = hash_number(hash, machine->n_nodes);
	for (i = 0; i < machine->n_nodes; i++) {
		hash = hash_number(hash, machine->nodes[i].os_index);
		hash = hash_number(hash, machine->nodes[i].package);
	}
	for (i = 0; i < n * n; i++)
		hash = cei_hash(hash, &machine->links[i].kind, 1);
	for (i = 0; i < machine->n_ports; i++)
		hash = hash_text(hash, machine->ports[i].name);
	return hash;
}

/* --- the whole machine ---------------------------------------------------------------- */

static int find_places(struct cei_machine_builder *builder)
{
	int r = find_nodes(builder);

	if (r)
		return r;
	if (builder->hints && builder->hints->n_gpus > CEI_MACHINE_GPUS_MAX)
		return cei_raise(builder->report, CEOV_ERR_INVALID, 0, "%s: %u GPUs, at most %u",
				 builder->where, builder->hints->n_gpus, CEI_MACHINE_GPUS_MAX);
	if (builder->is_file)
		r = cei_builder_take_gpus(builder);
	if (!r && builder->hints)
		take_hints(builder);
	else if (!r)
		r = find_gpus(builder);
	if (r)
		return r;
	place_gpus(builder);
	return find_nics(builder);
}

static int make(struct cei_machine_builder *builder)
{
	struct cei_machine *machine = builder->machine;
	uint32_t n;
	int r;

	r = find_places(builder);
	if (r)
		return r;
	place_nics(builder);
	n = cei_machine_n_places(machine);
	machine->links = calloc((size_t)n * n, sizeof(machine->links[0]));
	if (!machine->links)
		return cei_raise(builder->report, CEOV_ERR_NO_MEMORY, 0,
				 "%s: no memory for the links of %u places", builder->where, n);
	if (builder->is_file)
		r = cei_builder_import_links(builder);
	if (!r)
		r = cei_builder_add_ports(builder);
	if (!r)
		r = cei_builder_add_links(builder);
	if (r)
		return r;
	/* The hash is made before measurements are merged, because these do not make it
	 * another machine. */
	machine->hash = hash_machine(machine);
	return builder->is_file ? cei_builder_apply_imported(builder) : 0;
}

static void name_machine(struct cei_machine *machine, const char *where)
{
	const char *name = NULL;

	if (machine->hwloc)
		name = hwloc_obj_get_info_by_name(hwloc_get_root_obj(machine->hwloc),
						  "HostName");
	cei_builder_text(machine->name, NAME_BYTES, name && name[0] ? name : where);
}

static void builder_free(struct cei_machine_builder *builder)
{
	if (!builder)
		return;
	free(builder->file_hints);
	free(builder->imported);
	free(builder);
}

int cei_machine_make(struct cei_report *report, const struct cei_machine_source *source,
		     struct cei_machine **ret_machine)
{
	struct cei_machine_builder *builder = calloc(1, sizeof(*builder));
	struct cei_machine *machine = calloc(1, sizeof(*machine));
	int r = CEOV_ERR_NO_MEMORY;

	if (machine)
		machine->hwloc = source->hwloc;
	else if (source->hwloc)
		hwloc_topology_destroy(source->hwloc);
	if (!builder || !machine) {
		cei_raise(report, r, 0, "%s: no memory for a machine", source->where);
		goto fail;
	}
	builder->report = report;
	builder->where = source->where;
	builder->machine = machine;
	builder->hints = source->hints;
	builder->measured = source->measured;
	builder->is_file = !source->hints && source->hwloc;
	name_machine(machine, source->where);
	r = make(builder);
	if (r)
		goto fail;
	builder_free(builder);
	*ret_machine = machine;
	return 0;
fail:
	builder_free(builder);
	cei_machine_destroy(machine);
	return r;
}

int cei_machine_from_hwloc(struct cei_report *report, struct hwloc_topology *hwloc,
			   const struct cei_machine_hints *hints,
			   struct cei_machine **ret_machine)
{
	const struct cei_machine_source source = { "this machine", hwloc, hints, NULL };

	return cei_machine_make(report, &source, ret_machine);
}
