/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Joins what engines have counted by link. */

#include "daemon/operator/links.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/machine.h"

/* Returns whether it is one of the machine's links; then the name says from where to where. */
static int name_by_places(const struct cei_machine *machine, const struct cei_machine_link *link,
			  char ret_name[CEI_LINKS_NAME_BYTES])
{
	uint32_t n = machine ? cei_machine_n_places(machine) : 0;
	char from[16], to[16];
	uint32_t i;

	for (i = 0; i < n * n; i++) {
		if (link != &machine->links[i])
			continue;
		snprintf(ret_name, CEI_LINKS_NAME_BYTES, "%s>%s",
			 cei_machine_place_name(machine, i / n, from),
			 cei_machine_place_name(machine, i % n, to));
		return 1;
	}
	return 0;
}

void cei_links_name(const struct cei_works *works, const struct cei_machine_link *link,
		    char ret_name[CEI_LINKS_NAME_BYTES])
{
	enum cei_direction direction;

	if (link && name_by_places(works->topology->machine, link, ret_name))
		return;
	for (direction = CEI_DIRECTION_PEER; link && direction < CEI_DIRECTION_ANY; direction++) {
		if (link != cei_link_default(direction))
			continue;
		snprintf(ret_name, CEI_LINKS_NAME_BYTES, "%s", cei_direction_name(direction));
		return;
	}
	snprintf(ret_name, CEI_LINKS_NAME_BYTES, "other");
}

static uint32_t find(const struct cei_links *links, const struct cei_machine_link *link)
{
	uint32_t i;

	for (i = 0; i < links->n && links->links[i].view.link != link; i++)
		;
	return i;
}

/* The place of a link in the list. Where the list is full, links share one row, "other". */
static uint32_t place_of(struct cei_links *links, const struct cei_works *works,
			 const struct cei_machine_link *link)
{
	char name[CEI_LINKS_NAME_BYTES];
	uint32_t i;

	cei_links_name(works, link, name);
	if (!strcmp(name, "other"))
		link = NULL;
	i = find(links, link);
	if (i == links->n && i >= CEI_LINKS_MAX) {
		link = NULL;
		i = find(links, NULL);
		i = i > CEI_LINKS_MAX ? CEI_LINKS_MAX : i;
	}
	if (i < links->n)
		return i;
	links->n = i + 1;
	cei_links_name(works, link, links->links[i].name);
	links->links[i].view.link = link;
	return i;
}

static void read_engine(struct cei_links *links, const struct cei_works *works,
			struct cei_tally *tally)
{
	struct cei_tally_link_view *view;
	uint32_t i, at;

	for (i = 0; i < CEI_TALLY_LINKS; i++) {
		if (i >= cei_tally_n_links(tally))
			return;
		at = place_of(links, works, cei_tally_link(tally, i));
		view = &links->links[at].view;
		(void)cei_tally_read_link(tally, i, view);
	}
}

struct cei_links *cei_links_read(const struct cei_works *works)
{
	struct cei_links *links = calloc(1, sizeof(*links));
	uint32_t i;

	for (i = 0; links && i < works->site->n_members; i++)
		if (works->tallies[i])
			read_engine(links, works, works->tallies[i]);
	return links;
}

uint64_t cei_links_quantile_us(const struct cei_tally_times_view *times, uint32_t percent)
{
	uint64_t n = 0;
	uint32_t i;

	for (i = 0; i < CEI_TALLY_BUCKETS; i++) {
		n += times->n[i];
		if (times->n_all && n * 100 >= times->n_all * percent)
			return UINT64_C(1) << i;
	}
	return 0;
}
