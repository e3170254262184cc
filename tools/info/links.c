/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The links, as a matrix or as JSON, and the ports that they share. */

#include "tools/info/info.h"

#include "tools/common/cells.h"

enum cell { CELL_RATE, CELL_LATENCY, CELL_KIND };

static void format_cell(const struct cei_machine_link *link, enum cell cell, char room[16])
{
	static const char marks[] = { '\0', '+', '*' };         /* markers of values in the matrix,
								 * by their origin */

	if (cell == CELL_KIND)
		snprintf(room, 16, "%.12s%c",
			 cei_machine_link_kind_name((enum cei_machine_link_kind)link->kind),
			 link->kind == CEI_MACHINE_NONE || link->origin > CEI_MACHINE_MEASURED
			 ? '\0' : marks[link->origin]);
	else if (link->kind == CEI_MACHINE_NONE)
		snprintf(room, 16, "-");
	else if (cell == CELL_RATE)
		snprintf(room, 16, "%.1f", (double)link->bytes_per_s / 1e9);
	else
		snprintf(room, 16, "%.1f", (double)link->t0_ns / 1e3);
}

static void matrix(const struct cei_machine *machine, enum cell cell, const char *title)
{
	uint32_t n = cei_machine_n_places(machine), from, to;
	char text[16];

	printf("\n  %s\n  %-8s", title, "from\\to");
	for (to = 0; to < n; to++)
		printf(" %9s", cei_machine_place_name(machine, to, text));
	printf("\n");
	for (from = 0; from < n; from++) {
		printf("  %-8s", cei_machine_place_name(machine, from, text));
		for (to = 0; to < n; to++) {
			format_cell(cei_machine_link(machine, from, to), cell, text);
			printf(" %9s", text);
		}
		printf("\n");
	}
}

void info_links_text(const struct info *info)
{
	printf("links: one copy from the row's memory to the column's, alone\n");
	matrix(info->machine, CELL_KIND, "kind (nothing: costs of its kind; +: reported by the "
	       "system; *: measured)");
	matrix(info->machine, CELL_RATE, "GB/s");
	matrix(info->machine, CELL_LATENCY, "us before the first byte");
}

static uint32_t n_links_over(const struct cei_machine *machine, uint32_t port)
{
	uint32_t n = cei_machine_n_places(machine), i, k, sum = 0;

	for (i = 0; i < n * n; i++)
		for (k = 0; k < machine->links[i].n_ports; k++)
			sum += machine->links[i].ports[k] == port;
	return sum;
}

struct json_object *info_ports(const struct cei_machine *machine, FILE *out)
{
	struct json_object *list = json_object_new_array();
	const struct cei_machine_port *port;
	struct cells cells;
	uint32_t i;

	for (i = 0; i < machine->n_ports; i++) {
		port = &machine->ports[i];
		info_cells_begin(&cells);
		cells_number(&cells, NULL, "GB/s:9.1", (double)port->bytes_per_s / 1e9);
		cells_integer(&cells, NULL, "links:6", n_links_over(machine, i));
		info_cells_text(&cells, "name", "port:-40", port->name);
		info_add_number(cells.object, "bytes_per_s", port->bytes_per_s);
		info_cells_end(&cells, out, list);
	}
	return list;
}

void info_ports_text(const struct info *info)
{
	printf("ports: what several links share\n");
	json_object_put(info_ports(info->machine, stdout));
}

/* --- JSON ----------------------------------------------------------------------------- */

static struct json_object *link_object(const struct cei_machine *machine, uint32_t from,
				       uint32_t to)
{
	const struct cei_machine_link *link = cei_machine_link(machine, from, to);
	struct json_object *object = json_object_new_object();
	struct json_object *ports = json_object_new_array();
	char name[16], port[CEI_MACHINE_NAME_BYTES];
	uint32_t i;

	info_add_text(object, "from", cei_machine_place_name(machine, from, name));
	info_add_text(object, "to", cei_machine_place_name(machine, to, name));
	info_add_text(object, "kind", cei_machine_link_kind_name(
		(enum cei_machine_link_kind)link->kind));
	info_add_text(object, "origin",
		      cei_machine_origin_name((enum cei_machine_origin)link->origin));
	info_add_number(object, "bytes_per_s", link->bytes_per_s);
	info_add_number(object, "t0_ns", link->t0_ns);
	for (i = 0; i < link->n_ports; i++)
		json_object_array_add(ports, json_object_new_string(
			info_plain(machine->ports[link->ports[i]].name, port,
				   sizeof(port))));
	json_object_object_add(object, "ports", ports);
	return object;
}

struct json_object *info_links(const struct cei_machine *machine)
{
	struct json_object *list = json_object_new_array();
	uint32_t n = cei_machine_n_places(machine), from, to;

	for (from = 0; from < n; from++)
		for (to = 0; to < n; to++)
			json_object_array_add(list, link_object(machine, from, to));
	return list;
}
