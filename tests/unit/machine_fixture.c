/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Builds artificial machines for tests of code whose decisions depend on the machine. */

#include "machine_fixture.h"

#include <stdio.h>
#include <stdlib.h>

#include "testing.h"

#define T0_NS 4000

static struct cei_machine_link *link_of(struct cei_machine *machine, uint32_t from,
					uint32_t to)
{
	return &machine->links[from * cei_machine_n_places(machine) + to];
}

void machine_add_link(struct cei_machine *machine, uint32_t from, uint32_t to,
		      enum cei_machine_link_kind kind, uint64_t bytes_per_s)
{
	struct cei_machine_link *link = link_of(machine, from, to);

	link->kind = (uint8_t)kind;
	link->origin = CEI_MACHINE_MEASURED;
	link->bytes_per_s = bytes_per_s;
	link->t0_ns = T0_NS;
	link->n_ports = 0;
}

void machine_link_over(struct cei_machine *machine, uint32_t from, uint32_t to, uint32_t port)
{
	struct cei_machine_link *link = link_of(machine, from, to);
	uint32_t at;

	ck_assert_uint_lt(link->n_ports, CEI_MACHINE_PATH_MAX);
	for (at = link->n_ports++; at && link->ports[at - 1] > port; at--)
		link->ports[at] = link->ports[at - 1];
	ck_assert(!at || link->ports[at - 1] != port);
	link->ports[at] = (uint16_t)port;
}

uint32_t machine_add_port(struct cei_machine *machine, const char *name, uint64_t bytes_per_s)
{
	struct cei_machine_port *port = &machine->ports[machine->n_ports];

	ck_assert_uint_lt(machine->n_ports, CEI_MACHINE_PORTS_MAX);
	snprintf(port->name, sizeof(port->name), "%s", name);
	port->bytes_per_s = bytes_per_s;
	return machine->n_ports++;
}

static uint32_t numbered_port(struct cei_machine *machine, const char *format, uint32_t i,
			      uint64_t bytes_per_s)
{
	char name[CEI_MACHINE_NAME_BYTES];

	snprintf(name, sizeof(name), "%s %u", format, i);
	return machine_add_port(machine, name, bytes_per_s);
}

struct cei_machine *machine_made(uint32_t n_gpus, uint32_t n_nodes)
{
	struct cei_machine *machine = calloc(1, sizeof(*machine));
	uint32_t i;

	ck_assert_ptr_nonnull(machine);
	machine->n_gpus = n_gpus;
	machine->n_nodes = n_nodes;
	machine->links = calloc((size_t)(n_gpus + n_nodes) * (n_gpus + n_nodes),
				sizeof(*machine->links));
	ck_assert_ptr_nonnull(machine->links);
	for (i = 0; i < n_gpus + n_nodes; i++)
		machine_add_link(machine, i, i, CEI_MACHINE_SELF,
				 i < n_gpus ? 100 * MACHINE_GB : 8 * MACHINE_GB);
	for (i = 0; i < n_nodes; i++)
		machine->nodes[i].os_index = machine->nodes[i].package = i;
	return machine;
}

void machine_free(struct cei_machine *machine)
{
	free(machine->links);
	free(machine);
}

/* Links a GPU and a node in both directions over the GPU's PCIe port. Returns the index of the
 * first of the two ports it adds: down, then up. */
static uint32_t plug(struct cei_machine *machine, uint32_t gpu, uint32_t node,
		     uint64_t bytes_per_s)
{
	uint32_t host = cei_machine_host_place(machine, node);
	uint32_t down = numbered_port(machine, "PCIe down", gpu, bytes_per_s);
	uint32_t up = numbered_port(machine, "PCIe up", gpu, bytes_per_s);

	machine_add_link(machine, host, gpu, CEI_MACHINE_HOST, bytes_per_s);
	machine_link_over(machine, host, gpu, down);
	machine_add_link(machine, gpu, host, CEI_MACHINE_HOST, bytes_per_s);
	machine_link_over(machine, gpu, host, up);
	machine->gpus[gpu].node = node;
	machine->gpus[gpu].n_copy_engines = 3;
	return down;
}

/* --- machines ---------------------------------------------------------------------- */

struct cei_machine *machine_nvswitch(uint32_t n_gpus)
{
	struct cei_machine *machine = machine_made(n_gpus, 1);
	uint32_t in[CEI_MACHINE_GPUS_MAX], out[CEI_MACHINE_GPUS_MAX], i, j;
	uint32_t gives = machine_add_port(machine, "node 0 gives", 172 * MACHINE_GB);
	uint32_t takes = machine_add_port(machine, "node 0 takes", 92 * MACHINE_GB);

	machine->has_nvswitch = 1;
	for (i = 0; i < n_gpus; i++) {
		plug(machine, i, 0, 55 * MACHINE_GB);
		machine_link_over(machine, n_gpus, i, gives);
		machine_link_over(machine, i, n_gpus, takes);
		in[i] = numbered_port(machine, "NVLink in", i, 395 * MACHINE_GB);
		out[i] = numbered_port(machine, "NVLink out", i, 395 * MACHINE_GB);
	}
	for (i = 0; i < n_gpus; i++) {
		for (j = 0; j < n_gpus; j++) {
			if (i == j)
				continue;
			machine_add_link(machine, i, j, CEI_MACHINE_NVSWITCH, 395 * MACHINE_GB);
			machine_link_over(machine, i, j, out[i]);
			machine_link_over(machine, i, j, in[j]);
		}
	}
	return machine;
}

/* Adds the ports of a link between GPUs. GPU i is below switch i / 2, which is below node i / 2. */
static void tree_ports(struct cei_machine *machine, uint32_t from, uint32_t to,
		       const uint32_t *down, const uint32_t *switches)
{
	uint32_t between = from / 2 < to / 2 ? 4 : 5;

	machine_link_over(machine, from, to, down[from] + 1);
	machine_link_over(machine, from, to, down[to]);
	if (from / 2 == to / 2)
		return;
	machine_link_over(machine, from, to, switches[from / 2 * 2 + 1]);
	machine_link_over(machine, from, to, switches[to / 2 * 2]);
	machine_link_over(machine, from, to, switches[between]);
}

/* Links a GPU with both nodes. */
static void tree_host(struct cei_machine *machine, uint32_t gpu, uint32_t down,
		      const uint32_t *switches)
{
	uint32_t near = 4 + gpu / 2, far = 4 + (gpu / 2 ^ 1);

	machine_link_over(machine, near, gpu, switches[gpu / 2 * 2]);
	machine_link_over(machine, gpu, near, switches[gpu / 2 * 2 + 1]);
	machine_add_link(machine, far, gpu, CEI_MACHINE_HOST, 20 * MACHINE_GB);
	machine_link_over(machine, far, gpu, down);
	machine_link_over(machine, far, gpu, switches[gpu / 2 * 2]);
	machine_link_over(machine, far, gpu, switches[far < near ? 4 : 5]);
	machine_add_link(machine, gpu, far, CEI_MACHINE_HOST, 20 * MACHINE_GB);
	machine_link_over(machine, gpu, far, down + 1);
	machine_link_over(machine, gpu, far, switches[gpu / 2 * 2 + 1]);
	machine_link_over(machine, gpu, far, switches[near < far ? 4 : 5]);
}

struct cei_machine *machine_pcie_tree(void)
{
	struct cei_machine *machine = machine_made(4, 2);
	uint32_t down[4], switches[6], i, j;

	for (i = 0; i < 6; i++)         /* ports, in this order: switch 0 down, up, switch 1 down,
					 * up, node 0 to 1, 1 to 0 */
		switches[i] = numbered_port(machine, i < 4 ? "switch" : "between", i,
					    (i < 4 ? 25 : 20) * MACHINE_GB);
	for (i = 0; i < 4; i++) {
		down[i] = plug(machine, i, i / 2, 25 * MACHINE_GB);
		tree_host(machine, i, down[i], switches);
	}
	for (i = 0; i < 4; i++) {
		for (j = 0; j < 4; j++) {
			if (i == j)
				continue;
			machine_add_link(machine, i, j, CEI_MACHINE_PCIE,
					 (i / 2 == j / 2 ? 25 : 20) * MACHINE_GB);
			tree_ports(machine, i, j, down, switches);
		}
	}
	machine_add_link(machine, 4, 5, CEI_MACHINE_NODES, 10 * MACHINE_GB);
	machine_link_over(machine, 4, 5, switches[4]);
	machine_add_link(machine, 5, 4, CEI_MACHINE_NODES, 10 * MACHINE_GB);
	machine_link_over(machine, 5, 4, switches[5]);
	return machine;
}

struct cei_machine *machine_cube_mesh(void)
{
	static const uint8_t pairs[][3] = {     /* GPU a, GPU b, number of NVLinks */
		{ 0, 1, 1 }, { 0, 2, 1 }, { 0, 3, 2 }, { 1, 2, 2 }, { 1, 3, 1 }, { 2, 3, 2 },
		{ 4, 5, 1 }, { 4, 6, 1 }, { 4, 7, 2 }, { 5, 6, 2 }, { 5, 7, 1 }, { 6, 7, 2 },
		{ 0, 4, 2 }, { 1, 5, 2 }, { 2, 6, 1 }, { 3, 7, 1 },
	};
	struct cei_machine *machine = machine_made(8, 2);
	uint32_t i, to, from, port, way;

	for (i = 0; i < 8; i++) {
		plug(machine, i, i / 4, 12 * MACHINE_GB);
		machine->gpus[i].n_copy_engines = 0;
	}
	for (i = 0; i < 4; i++) {
		port = numbered_port(machine, "switch down", i, 12 * MACHINE_GB);
		machine_link_over(machine, 8 + i / 2, 2 * i, port);
		machine_link_over(machine, 8 + i / 2, 2 * i + 1, port);
		port = numbered_port(machine, "switch up", i, 12 * MACHINE_GB);
		machine_link_over(machine, 2 * i, 8 + i / 2, port);
		machine_link_over(machine, 2 * i + 1, 8 + i / 2, port);
	}
	for (i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		for (way = 0; way < 2; way++) {
			from = pairs[i][way];
			to = pairs[i][!way];
			port = numbered_port(machine, "NVLink", i,
					     25 * MACHINE_GB * pairs[i][2]);
			machine_add_link(machine, from, to, CEI_MACHINE_NVLINK,
					 25 * MACHINE_GB * pairs[i][2]);
			machine_link_over(machine, from, to, port);
		}
	}
	return machine;
}

struct cei_machine *machine_no_peers(void)
{
	struct cei_machine *machine = machine_made(2, 1);

	plug(machine, 0, 0, 25 * MACHINE_GB);
	plug(machine, 1, 0, 25 * MACHINE_GB);
	return machine;
}

/* --- random machines --------------------------------------------------------------- */

static enum cei_machine_link_kind random_kind(const struct cei_machine *machine,
					      uint32_t from, uint32_t to, uint64_t *random)
{
	static const enum cei_machine_link_kind between[] = {
		CEI_MACHINE_NVSWITCH, CEI_MACHINE_NVLINK, CEI_MACHINE_PCIE,
	};
	uint32_t n_gpus = cei_machine_is_gpu(machine, from) + cei_machine_is_gpu(machine, to);

	if (n_gpus == 2)
		return between[testing_below(random, 3)];
	if (n_gpus == 1)
		return testing_below(random, 4) ? CEI_MACHINE_HOST : CEI_MACHINE_C2C;
	return CEI_MACHINE_NODES;
}

static void random_link(struct cei_machine *machine, uint32_t from, uint32_t to,
			uint64_t *random)
{
	struct cei_machine_link *link = link_of(machine, from, to);
	uint32_t port, n_over = (uint32_t)testing_below(random, 5);
	uint64_t narrowest = UINT64_MAX;

	machine_add_link(machine, from, to, random_kind(machine, from, to, random), 1);
	link->t0_ns = testing_below(random, 20000);
	for (port = 0; port < machine->n_ports && n_over; port++) {
		if (testing_below(random, machine->n_ports - port) >= n_over)
			continue;
		machine_link_over(machine, from, to, port);
		n_over--;
		if (machine->ports[port].bytes_per_s < narrowest)
			narrowest = machine->ports[port].bytes_per_s;
	}
	link->bytes_per_s = MACHINE_GB + testing_below(random, 400 * MACHINE_GB);
	if (link->bytes_per_s > narrowest)
		link->bytes_per_s = narrowest;
}

struct cei_machine *machine_random(uint64_t *random)
{
	uint32_t n_gpus = (uint32_t)testing_below(random, 10);
	struct cei_machine *machine = machine_made(n_gpus,
						   1 + (uint32_t)testing_below(random, 3));
	uint32_t n = cei_machine_n_places(machine), from, to;
	uint32_t n_ports = (uint32_t)testing_below(random, 30);
	uint64_t n_missing = testing_below(random, 10);

	for (from = 0; from < n_ports; from++)
		numbered_port(machine, "port", from,
			      MACHINE_GB + testing_below(random, 400 * MACHINE_GB));
	for (from = 0; from < n_gpus; from++) {
		machine->gpus[from].node = (uint32_t)testing_below(random, machine->n_nodes);
		machine->gpus[from].n_copy_engines = (uint32_t)testing_below(random, 6);
	}
	machine->nodes[machine->n_nodes - 1].is_gpu_memory =
		machine->n_nodes > 1 && !testing_below(random, 4);
	for (from = 0; from < n; from++)
		for (to = 0; to < n; to++)
			if (from != to && testing_below(random, 10) >= n_missing)
				random_link(machine, from, to, random);
	return machine;
}
