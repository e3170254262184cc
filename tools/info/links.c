/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Prints the matrix of links and their shared ports as text. */

#include "tools/info/info.h"

#include <inttypes.h>

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

void info_ports_text(const struct info *info)
{
	const struct cei_machine *machine = info->machine;
	char name[CEI_MACHINE_NAME_BYTES];
	uint32_t i;

	printf("ports: what several links share\n");
	printf("  %9s %6s  %s\n", "GB/s", "links", "port");
	for (i = 0; i < machine->n_ports; i++)
		printf("  %9.1f %6u  %s\n", (double)machine->ports[i].bytes_per_s / 1e9,
		       n_links_over(machine, i),
		       info_plain(machine->ports[i].name, name, sizeof(name)));
}
