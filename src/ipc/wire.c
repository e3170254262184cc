/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The tables of what exports say. */

#include "ipc/wire.h"

/* Returns how many regions an export with these fields must have; 0: the fields are invalid. */
static uint32_t regions_of(const struct cei_wire_described *described)
{
	if (described->kind == CEI_EXPORT_BUFFER)
		return !described->place_kind && !described->n_counters && !described->flags;
	if (!described->n_counters)
		return 0;
	return described->place_kind == CEOV_PLACE_GPU ? 2 : 1;
}

/* Returns whether a region is in the right kind of memory, and comes with a descriptor if it is
 * host memory; GPU memory may. A signal's control region is host memory; its second region is GPU
 * memory. */
static int fits(const struct cei_wire_described *described, uint32_t index)
{
	const struct cei_region_wire *region = &described->regions[index];

	if (region->kind == CEOV_PLACE_HOST && !region->has_fd)
		return 0;
	return described->kind == CEI_EXPORT_BUFFER ||
	       region->kind == (index ? CEOV_PLACE_GPU : CEOV_PLACE_HOST);
}

static int is_described(const void *value)
{
	const struct cei_wire_described *described = value;
	uint32_t i;

	for (i = 0; i < described->n_regions; i++)
		if (!fits(described, i))
			return 0;
	return described->n_regions == regions_of(described);
}

static const struct cei_field described_fields[] = {
	{ CEI_U32, CEI_AT(cei_wire_described, kind),
	  .least = CEI_EXPORT_BUFFER, .most = CEI_EXPORT_SIGNAL },
	{ CEI_U32, CEI_AT(cei_wire_described, place_kind), .most = CEOV_PLACE_GPU },
	{ CEI_U32, CEI_AT(cei_wire_described, n_counters) },
	{ CEI_U32, CEI_AT(cei_wire_described, flags), .most = CEOV_SIGNAL_HOST_VISIBLE },
	{ CEI_LIST, CEI_AT(cei_wire_described, regions),
	  CEI_COUNT(cei_wire_described, n_regions), .least = 1, .of = &cei_region_layout },
};
const struct cei_layout cei_described_layout =
	CEI_LAYOUT(described_fields, cei_wire_described, is_described);

void cei_wire_get_described(struct cei_reader *reader, uint32_t n_fds,
			    struct cei_wire_described *ret_described)
{
	uint32_t i;

	cei_get_layout(reader, &cei_described_layout, ret_described);
	for (i = 0; i < ret_described->n_regions; i++)
		n_fds -= ret_described->regions[i].has_fd;
	if (n_fds)
		reader->failed = 1;
}
