/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Makes the links of a machine: finds each link's kind, the ports that it crosses, and the default
 * cost of a copy, whose rate is that of the narrowest port.
 */

#include "topology/machine_builder.h"

#include <stdio.h>
#include <string.h>

/* Copies reach 82 % of NVLink's specified rate. Measured on the machine of link.c's defaults: 395
 * GB/s over 18 links of 26.6 GB/s. */
#define MB               UINT64_C(1000000)
#define NVLINK_PER_CENT  UINT64_C(82)
#define NVLINK_ONE       UINT64_C(21900000000)
/* Not measured: GH200's data sheet has 450 GB/s in each direction, and copies are assumed to reach
 * the same 82 % of it. */
#define C2C              UINT64_C(369000000000)

/* Returns the rate that copies reach on an NVLink of this specified rate, in whole MB/s as files
 * store it. */
static uint64_t copy_rate(uint64_t bytes_per_s)
{
	return bytes_per_s / MB * NVLINK_PER_CENT / 100 * MB;
}

/* Adds a port that is named by the GPU's index, because it has no bus address. */
static int path_gpu(struct cei_machine_builder *builder, struct cei_machine_link *link,
		    uint32_t gpu, struct cei_machine_port *port)
{
	char what[CEI_MACHINE_NAME_BYTES];

	memcpy(what, port->name, sizeof(what));
	snprintf(port->name, sizeof(port->name), "GPU %u %.32s", gpu, what);
	return cei_builder_path_named(builder, link, port);
}

/* Fills in the rate and origin of the port that stands for all NVLinks of a GPU together. */
static void nvlinks(const struct cei_machine_builder *builder, uint32_t gpu,
		    struct cei_machine_port *port)
{
	const struct cei_machine_gpu *at = &builder->machine->gpus[gpu];
	uint64_t reported = builder->imported ? builder->imported->to_switch_bytes_per_s[gpu] : 0;

	if (!reported)
		reported = at->n_nvlinks * at->nvlink_bytes_per_s;
	port->origin = reported || at->n_nvlinks ? CEI_MACHINE_REPORTED : CEI_MACHINE_DEFAULT;
	port->bytes_per_s = reported ? copy_rate(reported) :
		at->n_nvlinks ? at->n_nvlinks * NVLINK_ONE :
		cei_link_default(CEI_DIRECTION_PEER)->bytes_per_s;
}

static int path_nvswitch(struct cei_machine_builder *builder, struct cei_machine_link *link,
			 uint32_t a, uint32_t b)
{
	struct cei_machine_port out = { .name = "NVLink out" };
	struct cei_machine_port in = { .name = "NVLink in" };
	int r;

	nvlinks(builder, a, &out);
	nvlinks(builder, b, &in);
	builder->machine->has_nvswitch = 1;
	r = path_gpu(builder, link, a, &out);
	return r ? r : path_gpu(builder, link, b, &in);
}

static int path_nvlink(struct cei_machine_builder *builder, struct cei_machine_link *link,
		       uint32_t a, uint32_t b)
{
	uint64_t reported = builder->imported ? builder->imported->nvlink_bytes_per_s[a][b] : 0;
	uint64_t each = builder->machine->gpus[a].nvlink_bytes_per_s;
	uint64_t n = builder->hints ? builder->hints->n_direct[a][b] : 0;
	struct cei_machine_port port = { .origin = CEI_MACHINE_REPORTED };

	if (!reported)
		reported = n * each;
	port.bytes_per_s = copy_rate(reported);
	if (!reported && builder->imported)
		port.bytes_per_s = builder->imported->bytes_per_s[a][b];
	if (!port.bytes_per_s) {
		port.bytes_per_s = (n ? n : 1) * NVLINK_ONE;
		port.origin = n ? CEI_MACHINE_REPORTED : CEI_MACHINE_DEFAULT;
	}
	snprintf(port.name, sizeof(port.name), "NVLink to %u", b);
	return path_gpu(builder, link, a, &port);
}

static int path_c2c(struct cei_machine_builder *builder, struct cei_machine_link *link,
		    uint32_t gpu, int is_out)
{
	struct cei_machine_port port = { .bytes_per_s = C2C };

	snprintf(port.name, sizeof(port.name), "C2C %s", is_out ? "out" : "in");
	return path_gpu(builder, link, gpu, &port);
}

static int path_node(struct cei_machine_builder *builder, struct cei_machine_link *link,
		     uint32_t node, int is_out)
{
	/* The port exists already, so only its name is used. */
	struct cei_machine_port port = { .bytes_per_s = 0 };

	if (builder->machine->nodes[node].is_gpu_memory)
		return 0;
	snprintf(port.name, sizeof(port.name), "node %u %s", node, is_out ? "out" : "in");
	return cei_builder_path_named(builder, link, &port);
}

/* --- from kinds to paths -------------------------------------------------------------- */

static int path_gpus(struct cei_machine_builder *builder, struct cei_machine_link *link,
		     uint32_t a, uint32_t b)
{
	const struct cei_machine_gpu *gpus = builder->machine->gpus;
	int r;

	if (link->kind == CEI_MACHINE_NVSWITCH)
		return path_nvswitch(builder, link, a, b);
	if (link->kind == CEI_MACHINE_NVLINK)
		return path_nvlink(builder, link, a, b);
	r = cei_builder_path_up(builder, link, a, b);
	if (!r)
		r = cei_builder_path_far(builder, link, gpus[a].node, gpus[b].node);
	return r ? r : cei_builder_path_down(builder, link, a, b);
}

static int path_host(struct cei_machine_builder *builder, struct cei_machine_link *link,
		     const uint32_t gpu_node[2], int is_out)
{
	uint32_t gpu = gpu_node[0], node = gpu_node[1];
	uint32_t near = builder->machine->gpus[gpu].node;
	int r;

	if (link->kind == CEI_MACHINE_C2C)
		r = path_c2c(builder, link, gpu, is_out);
	else if (is_out)
		r = cei_builder_path_up(builder, link, gpu, CEOV_NOBODY);
	else
		r = cei_builder_path_down(builder, link, CEOV_NOBODY, gpu);
	if (!r)
		r = cei_builder_path_far(builder, link, is_out ? near : node,
					 is_out ? node : near);
	return r ? r : path_node(builder, link, node, !is_out);
}

static int path_nodes(struct cei_machine_builder *builder, struct cei_machine_link *link,
		      uint32_t a, uint32_t b)
{
	int r = path_node(builder, link, a, 1);

	if (!r)
		r = cei_builder_path_far(builder, link, a, b);
	return r ? r : path_node(builder, link, b, 0);
}

static int find_path(struct cei_machine_builder *builder, struct cei_machine_link *link,
		     uint32_t from, uint32_t to)
{
	uint32_t n_gpus = builder->machine->n_gpus;
	uint32_t gpu_node[2];

	if (link->kind == CEI_MACHINE_NONE || link->kind == CEI_MACHINE_SELF)
		return 0;
	if (from < n_gpus && to < n_gpus)
		return path_gpus(builder, link, from, to);
	if (from >= n_gpus && to >= n_gpus)
		return path_nodes(builder, link, from - n_gpus, to - n_gpus);
	gpu_node[0] = from < n_gpus ? from : to;
	gpu_node[1] = (from < n_gpus ? to : from) - n_gpus;
	return path_host(builder, link, gpu_node, from < n_gpus);
}

/* --- kinds ---------------------------------------------------------------------------- */

static enum cei_machine_link_kind kind_of_gpus(const struct cei_machine_builder *builder,
					       uint32_t a, uint32_t b)
{
	const struct cei_machine_hints *hints = builder->hints;
	const struct cei_machine_imported *imported = builder->imported;
	const struct cei_machine_gpu *gpus = builder->machine->gpus;

	if (hints && !hints->peer[a][b])
		return CEI_MACHINE_NONE;
	if (hints && hints->n_direct[a][b])
		return CEI_MACHINE_NVLINK;
	if (gpus[a].is_on_switch && gpus[b].is_on_switch)
		return CEI_MACHINE_NVSWITCH;
	if (imported && imported->nvlink_bytes_per_s[a][b])
		return CEI_MACHINE_NVLINK;
	if (imported && imported->to_switch_bytes_per_s[a] && imported->to_switch_bytes_per_s[b])
		return CEI_MACHINE_NVSWITCH;
	return CEI_MACHINE_PCIE;
}

static enum cei_machine_link_kind kind_of(const struct cei_machine_builder *builder,
					  uint32_t from, uint32_t to)
{
	const struct cei_machine *machine = builder->machine;
	uint32_t n_gpus = machine->n_gpus;
	uint32_t gpu, node;

	if (from == to)
		return CEI_MACHINE_SELF;
	if (builder->imported && builder->imported->kind[from][to] != CEI_BUILDER_UNSET)
		return (enum cei_machine_link_kind)builder->imported->kind[from][to];
	if (from < n_gpus && to < n_gpus)
		return kind_of_gpus(builder, from, to);
	if (from >= n_gpus && to >= n_gpus)
		return CEI_MACHINE_NODES;
	gpu = from < n_gpus ? from : to;
	node = (from < n_gpus ? to : from) - n_gpus;
	/* a NUMA node that is a GPU's memory has no link of its own: copies use that GPU's
	 * place */
	if (machine->nodes[node].is_gpu_memory)
		return CEI_MACHINE_NONE;
	return machine->gpus[gpu].is_coherent ? CEI_MACHINE_C2C : CEI_MACHINE_HOST;
}

/* --- costs ---------------------------------------------------------------------------- */

static void cost(const struct cei_machine *machine, struct cei_machine_link *link,
		 enum cei_direction direction)
{
	const struct cei_machine_link *usual = cei_link_default(direction);
	const struct cei_machine_port *port;
	uint32_t i;

	link->t0_ns = usual->t0_ns;
	link->origin = CEI_MACHINE_DEFAULT;
	link->bytes_per_s = 0;
	if (link->kind == CEI_MACHINE_NONE) {
		link->t0_ns = 0;
		return;
	}
	if (direction == CEI_DIRECTION_HOST || link->kind == CEI_MACHINE_SELF) {
		link->bytes_per_s = usual->bytes_per_s;
		return;
	}
	for (i = 0; i < link->n_ports; i++) {
		port = &machine->ports[link->ports[i]];
		if (i && port->bytes_per_s >= link->bytes_per_s)
			continue;
		link->bytes_per_s = port->bytes_per_s;
		link->origin = port->origin;
	}
}

/* Raises the rate of host memory that a coherent GPU uses to at least that of the GPU's link,
 * because it is assumed not to be that link's bottleneck. */
static void widen_nodes(struct cei_machine *machine)
{
	uint32_t n = cei_machine_n_places(machine);
	struct cei_machine_link *link;
	struct cei_machine_port *port;
	uint32_t i, j;

	for (i = 0; i < n * n; i++) {
		link = &machine->links[i];
		if (link->kind != CEI_MACHINE_C2C)
			continue;
		for (j = 0; j < link->n_ports; j++) {
			port = &machine->ports[link->ports[j]];
			if (port->bytes_per_s < C2C && !strncmp(port->name, "node ", 5))
				port->bytes_per_s = C2C;
		}
	}
}

int cei_builder_add_links(struct cei_machine_builder *builder)
{
	struct cei_machine *machine = builder->machine;
	uint32_t n = cei_machine_n_places(machine);
	struct cei_machine_link *link;
	uint32_t from, to;
	int r;

	for (from = 0; from < n; from++) {
		for (to = 0; to < n; to++) {
			link = &machine->links[from * n + to];
			link->kind = (uint8_t)kind_of(builder, from, to);
			r = find_path(builder, link, from, to);
			if (r)
				return r;
		}
	}
	widen_nodes(machine);
	for (from = 0; from < n; from++)
		for (to = 0; to < n; to++)
			cost(machine, &machine->links[from * n + to],
			     cei_machine_direction(machine, from, to));
	return 0;
}
