/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What was measured of a machine: ports that links share, and the file that keeps it, written. */

#include <ceoverlap/ceoverlap.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/machine.h"

#define PLACE_BYTES CEI_MEASURED_PLACE_BYTES

/* --- setting one -------------------------------------------------------------------- */

uint32_t cei_machine_find_port(const struct cei_machine *machine, const char *name)
{
	uint32_t i;

	for (i = 0; i < machine->n_ports; i++)
		if (!strcmp(machine->ports[i].name, name))
			return i;
	return CEOV_NOBODY;
}

static struct cei_machine_link *link_at(struct cei_machine *machine,
					const struct cei_machine_pair *pair)
{
	return &machine->links[pair->from * cei_machine_n_places(machine) + pair->to];
}

static int is_on(const struct cei_machine_link *link, uint32_t port)
{
	uint32_t i;

	for (i = 0; i < link->n_ports; i++)
		if (link->ports[i] == port)
			return 1;
	return 0;
}

static int is_valid(const struct cei_machine *machine, const struct cei_shared_bandwidth *shared)
{
	uint32_t i, n = cei_machine_n_places(machine);

	if (!shared->bytes_per_s || shared->bytes_per_s > CEI_MEASURED_RATE_MAX ||
	    !shared->name[0] || strlen(shared->name) >= CEI_MACHINE_NAME_BYTES)
		return 0;
	for (i = 0; i < shared->n_pairs; i++)
		if (shared->pairs[i].from >= n || shared->pairs[i].to >= n)
			return 0;
	return 1;
}

/* Whether a new port fits into the machine and onto all of the links. */
static int has_room(struct cei_machine *machine, const struct cei_shared_bandwidth *shared)
{
	uint32_t i;

	for (i = 0; i < shared->n_pairs; i++)
		if (link_at(machine, &shared->pairs[i])->n_ports >= CEI_MACHINE_PATH_MAX)
			return 0;
	return machine->n_ports < CEI_MACHINE_PORTS_MAX;
}

static void add_port(struct cei_machine *machine, const struct cei_shared_bandwidth *shared)
{
	uint32_t i, number = machine->n_ports++;
	struct cei_machine_port *port = &machine->ports[number];
	struct cei_machine_link *link;

	memset(port, 0, sizeof(*port));
	snprintf(port->name, sizeof(port->name), "%s", shared->name);
	port->is_added = 1;
	for (i = 0; i < shared->n_pairs; i++) {
		link = link_at(machine, &shared->pairs[i]);
		/* appended last, because its number is the highest so far; the link may
		 * have been named twice */
		if (link->kind != CEI_MACHINE_NONE && !is_on(link, number))
			link->ports[link->n_ports++] = (uint16_t)number;
	}
}

static uint64_t widest_link(const struct cei_machine *machine, uint32_t port)
{
	uint32_t i, n = cei_machine_n_places(machine);
	uint64_t widest = 0;

	for (i = 0; i < n * n; i++)
		if (is_on(&machine->links[i], port) && machine->links[i].bytes_per_s > widest)
			widest = machine->links[i].bytes_per_s;
	return widest;
}

int cei_machine_set_shared_bandwidth(struct cei_machine *machine,
				     const struct cei_shared_bandwidth *shared)
{
	uint32_t number;
	uint64_t widest;

	if (!is_valid(machine, shared))
		return CEOV_ERR_INVALID;
	number = cei_machine_find_port(machine, shared->name);
	if (number == CEOV_NOBODY) {
		if (!has_room(machine, shared))
			return CEOV_FULL;
		number = machine->n_ports;
		add_port(machine, shared);
	}
	widest = widest_link(machine, number);
	machine->ports[number].bytes_per_s = shared->bytes_per_s > widest
		? shared->bytes_per_s : widest;
	machine->ports[number].origin = CEI_MACHINE_MEASURED;
	return 0;
}

/* --- to text ------------------------------------------------------------------------ */

uint32_t cei_machine_find_gpu(const struct cei_machine *machine, const char *bus_id)
{
	uint32_t i;

	for (i = 0; *bus_id && i < machine->n_gpus; i++)
		if (!strcmp(machine->gpus[i].bus_id, bus_id))
			return i;
	return CEOV_NOBODY;
}

static void name_place(const struct cei_machine *machine, uint32_t place,
		       char text[PLACE_BYTES])
{
	uint32_t node = place - machine->n_gpus;

	if (!cei_machine_is_gpu(machine, place))
		snprintf(text, PLACE_BYTES, "n%u", machine->nodes[node].os_index);
	else if (cei_machine_find_gpu(machine, machine->gpus[place].bus_id) == place)
		snprintf(text, PLACE_BYTES, "%s", machine->gpus[place].bus_id);
	else
		snprintf(text, PLACE_BYTES, "g%u", place);
}

/* Appends to text and moves *at. Returns -1 if there is no room. */
static int append(char *text, size_t *at, const char *more)
{
	size_t length = strlen(more);

	if (*at + length >= CEI_MACHINE_PORT_TEXT_BYTES)
		return -1;
	memcpy(text + *at, more, length + 1);
	*at += length;
	return 0;
}

static int append_pairs(const struct cei_machine *machine, uint32_t port, char *text,
			size_t *at)
{
	uint32_t from, to, n_pairs = 0, n = cei_machine_n_places(machine);
	char pair[2 * PLACE_BYTES + 2], a[PLACE_BYTES], b[PLACE_BYTES];

	for (from = 0; machine->ports[port].is_added && from < n; from++) {
		for (to = 0; to < n; to++) {
			if (!is_on(cei_machine_link(machine, from, to), port))
				continue;
			name_place(machine, from, a);
			name_place(machine, to, b);
			snprintf(pair, sizeof(pair), "%s%s>%s", n_pairs ? "," : "", a, b);
			if (++n_pairs > CEI_MEASURED_PAIRS_MAX || append(text, at, pair))
				return -1;
		}
	}
	return n_pairs ? 0 : append(text, at, "-");
}

int cei_machine_port_to_text(const struct cei_machine *machine, uint32_t port,
			     char text[CEI_MACHINE_PORT_TEXT_BYTES])
{
	const struct cei_machine_port *own = &machine->ports[port];
	size_t at = 0;

	if (own->origin != CEI_MACHINE_MEASURED)
		return CEOV_NONE;
	at = (size_t)snprintf(text, CEI_MACHINE_PORT_TEXT_BYTES, "%" PRIu64 " ",
			      own->bytes_per_s);
	if (append_pairs(machine, port, text, &at) || append(text, &at, " ") ||
	    append(text, &at, own->name))
		return CEOV_FULL;
	return 0;
}

/* --- the file, written --------------------------------------------------------------- */

static void write_gpus(FILE *file, const struct cei_machine *machine)
{
	const struct cei_machine_gpu *gpu;
	uint32_t i;

	for (i = 0; i < machine->n_gpus; i++) {
		gpu = &machine->gpus[i];
		fprintf(file, "gpu %s %" PRIu32 " %" PRIu32 " %" PRIu64 " %d %d %s\n",
			gpu->bus_id[0] ? gpu->bus_id : "-", gpu->n_copy_engines, gpu->n_nvlinks,
			gpu->nvlink_bytes_per_s, gpu->is_on_switch != 0, gpu->is_coherent != 0,
			gpu->name);
	}
}

static void write_link(FILE *file, const struct cei_machine *machine,
		       const struct cei_machine_pair *pair)
{
	const struct cei_machine_link *link = cei_machine_link(machine, pair->from, pair->to);
	int is_rate = link->kind == CEI_MACHINE_NVLINK && link->origin != CEI_MACHINE_DEFAULT;
	char a[PLACE_BYTES], b[PLACE_BYTES];

	name_place(machine, pair->from, a);
	name_place(machine, pair->to, b);
	if (pair->from != pair->to)
		fprintf(file, "kind %s %s %" PRIu64 " %s\n", a, b,
			is_rate ? link->bytes_per_s : 0,
			cei_machine_link_kind_name((enum cei_machine_link_kind)link->kind));
	if (link->origin == CEI_MACHINE_MEASURED)
		fprintf(file, "link %s %s %" PRIu64 " %" PRIu64 "\n", a, b, link->bytes_per_s,
			link->t0_ns);
}

static void write_links(FILE *file, const struct cei_machine *machine)
{
	struct cei_machine_pair pair;

	for (pair.from = 0; pair.from < cei_machine_n_places(machine); pair.from++)
		for (pair.to = 0; pair.to < cei_machine_n_places(machine); pair.to++)
			write_link(file, machine, &pair);
}

static int write_ports(FILE *file, const struct cei_machine *machine)
{
	char text[CEI_MACHINE_PORT_TEXT_BYTES];
	uint32_t i;
	int r;

	for (i = 0; i < machine->n_ports; i++) {
		r = cei_machine_port_to_text(machine, i, text);
		if (r == CEOV_FULL)
			return r;
		if (!r)
			fprintf(file, "port %s\n", text);
	}
	return 0;
}

int cei_machine_measured_text(const struct cei_machine *machine, char **ret_text,
			      uint64_t *ret_n_bytes)
{
	size_t n_bytes = 0;
	FILE *file;
	int r;

	*ret_text = NULL;
	file = open_memstream(ret_text, &n_bytes);
	if (!file)
		return CEOV_ERR_NO_MEMORY;
	fprintf(file, CEI_MEASURED_VERSION "\nmachine %016" PRIx64 " %s\n", machine->hash,
		machine->driver[0] ? machine->driver : "-");
	write_gpus(file, machine);
	write_links(file, machine);
	r = write_ports(file, machine);
	fprintf(file, "end\n");
	if (fclose(file) && !r)
		r = CEOV_ERR_NO_MEMORY;
	if (r) {
		free(*ret_text);
		*ret_text = NULL;
	}
	*ret_n_bytes = n_bytes;
	return r;
}
