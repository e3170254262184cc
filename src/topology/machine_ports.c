/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * The ports that copies share: PCIe links of devices and switches (one port a direction),
 * host memory, and the links between packages. A bridge with a single device below it gets
 * no port: nothing else shares that link.
 */

#include "topology/machine_builder.h"

#include <stdio.h>
#include <string.h>

/*
 * Rates that are assumed where the system reports no width, and the share of a reported width
 * that copies reach. Measured on one host with 8 x H200: PCIe 5 x16 (63 GB/s) carried the rates
 * in link.c; all GPUs at once read 172 GB/s from host memory and wrote 92 GB/s to it.
 */
#define PCIE_PER_CENT    85.0
#define MEMORY_OUT       UINT64_C(172000000000)
#define MEMORY_IN        UINT64_C(92000000000)
/* The rate between packages was not measured. It is set to the rate into host memory, whose
 * measurement that link may have limited. */
#define PACKAGES         MEMORY_IN
#define GB_PER_S_MAX     10000.0        /* a larger value is taken for an error */
/* A lower rate than that of PCIe 3 x8 above a GPU is taken for what it is not: hypervisors report
 * small constants (GB200: 1.97 GB/s), and links that save power a speed that they leave when bytes
 * come. NVIDIA's data-centre GPUs have had PCIe 3 x16 or more since Volta. */
#define GPU_BYTES_PER_S_MIN UINT64_C(6690000000)        /* 7.877 GB/s, of which copies reach 85 % */

uint64_t cei_builder_pci_bytes_per_s(hwloc_obj_t object)
{
	float gb_per_s = object->type == HWLOC_OBJ_PCI_DEVICE ?
		object->attr->pcidev.linkspeed :
		object->attr->bridge.upstream.pci.linkspeed;

	/* written so that NaN is refused, too */
	if (!(gb_per_s > 0.0f && gb_per_s < GB_PER_S_MAX))
		return 0;
	/* in whole MB/s, as hwloc has NVLinks */
	return (uint64_t)((double)gb_per_s * 10.0 * PCIE_PER_CENT) * UINT64_C(1000000);
}

static int find_port(struct cei_machine_builder *builder, const struct cei_machine_port *port,
		     uint16_t *ret_port)
{
	struct cei_machine *machine = builder->machine;
	uint32_t i;

	for (i = 0; i < machine->n_ports; i++) {
		if (!strcmp(machine->ports[i].name, port->name)) {
			*ret_port = (uint16_t)i;
			return 0;
		}
	}
	if (i == CEI_MACHINE_PORTS_MAX)
		return cei_raise(builder->report, CEOV_ERR_INVALID, 0,
				 "%s: more than %u ports that links share", builder->where,
				 CEI_MACHINE_PORTS_MAX);
	machine->ports[i] = *port;
	machine->n_ports++;
	*ret_port = (uint16_t)i;
	return 0;
}

int cei_builder_path_named(struct cei_machine_builder *builder, struct cei_machine_link *link,
			   const struct cei_machine_port *port)
{
	uint16_t found = 0;
	uint32_t i, n = link->n_ports;
	int r = find_port(builder, port, &found);

	if (r)
		return r;
	for (i = 0; i < n && link->ports[i] < found; i++)
		;
	if (i < n && link->ports[i] == found)
		return 0;
	if (n == CEI_MACHINE_PATH_MAX)
		return cei_raise(builder->report, CEOV_ERR_INVALID, 0,
				 "%s: a link through more than %u ports, the last "
				 "one %s", builder->where, CEI_MACHINE_PATH_MAX, port->name);
	memmove(&link->ports[i + 1], &link->ports[i], (n - i) * sizeof(link->ports[0]));
	link->ports[i] = found;
	link->n_ports++;
	return 0;
}

/* --- the PCI tree --------------------------------------------------------------------- */

/* Whether an object is a PCI bridge below a host bridge, which is the root of a bus. */
static int is_bridge(hwloc_obj_t object)
{
	return object->type == HWLOC_OBJ_BRIDGE &&
	       object->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI;
}

static int is_on_bus(hwloc_obj_t object)
{
	return object->type == HWLOC_OBJ_BRIDGE || object->type == HWLOC_OBJ_PCI_DEVICE;
}

/* Identifies what has a link of its own: a device by its bus and device number, since the functions
 * of a device share its link; a bridge by its function, too, since emulated switches have several
 * ports as functions of one device. */
static unsigned int device_of(hwloc_obj_t object)
{
	const struct hwloc_pcidev_attr_s *at;

	if (object->type == HWLOC_OBJ_PCI_DEVICE) {
		at = &object->attr->pcidev;
		return (unsigned int)at->bus << 16 | (unsigned int)at->dev << 8;
	}
	at = &object->attr->bridge.upstream.pci;
	return (unsigned int)at->bus << 16 | (unsigned int)at->dev << 8 | at->func;
}

/* Whether several devices or bridges share the link above this bridge. */
static int is_shared(hwloc_obj_t bridge)
{
	hwloc_obj_t first = bridge->io_first_child;
	hwloc_obj_t child;

	for (child = first; child; child = child->next_sibling)
		if (device_of(child) != device_of(first))
			return 1;
	return 0;
}

/* Returns the rate of the PCIe link above an object that is a GPU or leads to one, 0 if none is
 * reported that can be believed. Both ends of a link report its rate; where the object itself does
 * not, the bridge above it may. */
static uint64_t uplink_bytes_per_s(hwloc_obj_t object)
{
	uint64_t rate = cei_builder_pci_bytes_per_s(object);

	if (rate < GPU_BYTES_PER_S_MIN && object->parent && is_bridge(object->parent))
		rate = cei_builder_pci_bytes_per_s(object->parent);
	return rate < GPU_BYTES_PER_S_MIN ? 0 : rate;
}

/* Describes the port of the link above an object on the bus. object NULL: above a GPU that the tree
 * does not show. */
static void pci_port(const struct cei_machine_builder *builder, hwloc_obj_t object,
		     uint32_t gpu, struct cei_machine_port *ret_port)
{
	const char *bus_id = builder->machine->gpus[gpu].bus_id;

	memset(ret_port, 0, sizeof(*ret_port));
	if (!object && bus_id[0])
		snprintf(ret_port->name, sizeof(ret_port->name), "%s", bus_id);
	else if (!object)
		snprintf(ret_port->name, sizeof(ret_port->name), "GPU %u PCIe", gpu);
	else
		cei_builder_bus_id(object, ret_port->name);
	ret_port->bytes_per_s = object ? uplink_bytes_per_s(object) : 0;
	ret_port->origin = ret_port->bytes_per_s ? CEI_MACHINE_REPORTED : CEI_MACHINE_DEFAULT;
}

static int path_pci(struct cei_machine_builder *builder, struct cei_machine_link *link,
		    hwloc_obj_t object, uint32_t gpu, int is_up)
{
	struct cei_machine_port port;

	pci_port(builder, object, gpu, &port);
	if (!port.bytes_per_s)
		port.bytes_per_s = cei_link_default(
			is_up ? CEI_DIRECTION_OUT : CEI_DIRECTION_IN)->bytes_per_s;
	strncat(port.name, is_up ? " up" : " down",
		sizeof(port.name) - strlen(port.name) - 1);
	return cei_builder_path_named(builder, link, &port);
}

/* Whether b is the given object, or is attached below it. */
static int leads_to(hwloc_obj_t object, hwloc_obj_t b)
{
	for (; b; b = b->parent)
		if (b == object)
			return 1;
	return 0;
}

static int path_tree(struct cei_machine_builder *builder, struct cei_machine_link *link,
		     const uint32_t gpus[2], int is_up)
{
	hwloc_obj_t other = gpus[1] == CEOV_NOBODY ? NULL : builder->gpus[gpus[1]];
	hwloc_obj_t object = builder->gpus[gpus[0]];
	int r = path_pci(builder, link, object, gpus[0], is_up);

	for (object = object ? object->parent : NULL; object && !r; object = object->parent) {
		if (!is_on_bus(object) || leads_to(object, other))
			return 0;
		if (is_bridge(object) && is_shared(object))
			r = path_pci(builder, link, object, gpus[0], is_up);
	}
	return r;
}

int cei_builder_path_up(struct cei_machine_builder *builder, struct cei_machine_link *link,
			uint32_t a, uint32_t b)
{
	const uint32_t gpus[2] = { a, b };

	return path_tree(builder, link, gpus, 1);
}

int cei_builder_path_down(struct cei_machine_builder *builder, struct cei_machine_link *link,
			  uint32_t a, uint32_t b)
{
	const uint32_t gpus[2] = { b, a };

	return path_tree(builder, link, gpus, 0);
}

int cei_builder_path_far(struct cei_machine_builder *builder, struct cei_machine_link *link,
			 uint32_t from_node, uint32_t to_node)
{
	const struct cei_machine *machine = builder->machine;
	struct cei_machine_port port = { .bytes_per_s = PACKAGES };
	uint32_t from, to;

	if (from_node >= machine->n_nodes || to_node >= machine->n_nodes)
		return 0;
	from = machine->nodes[from_node].package;
	to = machine->nodes[to_node].package;
	if (from == to || from == CEOV_NOBODY || to == CEOV_NOBODY)
		return 0;
	snprintf(port.name, sizeof(port.name), "package %u to %u", from, to);
	return cei_builder_path_named(builder, link, &port);
}

/* --- distances of NICs ---------------------------------------------------------------- */

/* Counts the switches between an object on the bus and another object above it. */
static uint32_t n_switches(hwloc_obj_t object, hwloc_obj_t above)
{
	uint32_t n = 0;

	for (object = object->parent; object && object != above; object = object->parent)
		n += is_bridge(object) && is_shared(object);
	return n;
}

enum cei_machine_distance cei_builder_distance(const struct cei_machine_builder *builder,
					       uint32_t gpu, uint32_t nic)
{
	const struct cei_machine *machine = builder->machine;
	uint32_t a = machine->gpus[gpu].node, b = machine->nics[nic].node;
	hwloc_obj_t device = builder->gpus[gpu], other = builder->nics[nic];
	hwloc_obj_t common = device;

	while (common && !leads_to(common, other))
		common = common->parent;
	if (common && is_on_bus(common)) {
		if (is_bridge(common) && !n_switches(device, common) &&
		    !n_switches(other, common))
			return CEI_MACHINE_SAME_SWITCH;
		return CEI_MACHINE_SAME_TREE;
	}
	if (a == CEOV_NOBODY || b == CEOV_NOBODY)
		return CEI_MACHINE_UNKNOWN;
	if (a == b)
		return CEI_MACHINE_SAME_NODE;
	if (machine->nodes[a].package == machine->nodes[b].package &&
	    machine->nodes[a].package != CEOV_NOBODY)
		return CEI_MACHINE_SAME_PACKAGE;
	return CEI_MACHINE_FAR;
}

/* --- ports of GPUs and nodes ---------------------------------------------------------- */

int cei_builder_add_ports(struct cei_machine_builder *builder)
{
	struct cei_machine *machine = builder->machine;
	struct cei_machine_link none;
	struct cei_machine_port out, in;
	uint32_t i;
	int r = 0;

	for (i = 0; i < machine->n_gpus && !r; i++) {
		memset(&none, 0, sizeof(none));
		r = path_pci(builder, &none, builder->gpus[i], i, 1);
		if (!r)
			r = path_pci(builder, &none, builder->gpus[i], i, 0);
	}
	for (i = 0; i < machine->n_nodes && !r; i++) {
		if (machine->nodes[i].is_gpu_memory)
			continue;
		memset(&none, 0, sizeof(none));
		memset(&out, 0, sizeof(out));
		memset(&in, 0, sizeof(in));
		snprintf(out.name, sizeof(out.name), "node %u out", i);
		snprintf(in.name, sizeof(in.name), "node %u in", i);
		out.bytes_per_s = MEMORY_OUT;
		in.bytes_per_s = MEMORY_IN;
		r = cei_builder_path_named(builder, &none, &out);
		if (!r)
			r = cei_builder_path_named(builder, &none, &in);
	}
	return r;
}
