/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Selects the table of functions for a kind of place, and calls it for all members; and the table
 * of what a description of a region says. */

#include "config.h"

#include "ipc/share.h"

#include <string.h>

#include "base/codec.h"

const struct cei_share_ops *cei_share_for(enum ceov_place_kind kind)
{
	switch (kind) {
	case CEOV_PLACE_HOST:
		return &cei_share_host;
	case CEOV_PLACE_GPU:
#if HAVE_CUDA
		return &cei_share_cuda;
#else
		return NULL;
#endif
	}
	return NULL;    /* the value is outside the enum */
}

int cei_region_is_shareable(struct cei_region *region)
{
	const struct cei_share_ops *ops = cei_share_for(region->kind);

	if (!ops || region->origin == CEI_REGION_NONE || region->origin == CEI_REGION_FAR)
		return 0;
	return ops->is_shareable(region);
}

static int is_region(const void *value)
{
	const struct cei_region_wire *region = value;

	return region->offset_bytes <= UINT64_MAX - region->size_bytes;
}

static const struct cei_field region_fields[] = {
	{ CEI_U32, CEI_AT(cei_region_wire, kind), .most = CEOV_PLACE_GPU },
	{ CEI_U32, CEI_AT(cei_region_wire, has_fd), .most = 1 },
	{ CEI_U64, CEI_AT(cei_region_wire, size_bytes), .least = 1 },
	{ CEI_U64, CEI_AT(cei_region_wire, offset_bytes) },
	{ CEI_U64, CEI_AT(cei_region_wire, device) },
	{ CEI_U64, CEI_AT(cei_region_wire, buffer_id) },
	{ CEI_U64, CEI_AT(cei_region_wire, instance) },
	{ CEI_U64, CEI_AT(cei_region_wire, pid) },
	{ CEI_RAW, CEI_AT(cei_region_wire, handle) },
	{ CEI_RAW, CEI_AT(cei_region_wire, uuid) },
};
const struct cei_layout cei_region_layout =
	CEI_LAYOUT(region_fields, cei_region_wire, is_region);

void cei_region_fill_wire(const struct cei_region *region, struct cei_region_wire *wire)
{
	memset(wire, 0, sizeof(*wire));
	wire->kind = region->kind;
	wire->has_fd = region->fd >= 0;
	wire->size_bytes = region->size_bytes;
	wire->offset_bytes = region->offset_bytes;
	wire->buffer_id = region->buffer_id;
	memcpy(wire->instance, region->instance, sizeof(wire->instance));
	memcpy(wire->handle, region->handle, sizeof(wire->handle));
	memcpy(wire->uuid, region->uuid, sizeof(wire->uuid));
}

int cei_region_describe(struct cei_region *region, struct cei_region_wire *ret_wire, int *ret_fd)
{
	if (region->origin != CEI_REGION_IMPORTED)
		return cei_share_for(region->kind)->export(region, ret_wire, ret_fd);
	cei_region_fill_wire(region, ret_wire);
	*ret_fd = region->fd;
	return 0;
}

static const struct cei_share_ops *share_of_member(const struct cei_site *site,
						   uint32_t member)
{
	return cei_share_for(site->members[member].place.kind);
}

int cei_region_map_all(struct cei_region *region)
{
	const struct cei_share_ops *ops;
	uint32_t member;
	int r = 0;

	for (member = 0; !r && member < region->site->n_members; member++) {
		ops = share_of_member(region->site, member);
		if (ops)
			r = ops->map(region, member);
		else
			region->address[member] = 0;
	}
	if (r)
		cei_region_unmap_all(region);
	return r;
}

void cei_region_unmap_all(struct cei_region *region)
{
	const struct cei_share_ops *ops;
	uint32_t member;

	for (member = 0; member < region->site->n_members; member++) {
		ops = share_of_member(region->site, member);
		if (ops)
			ops->unmap(region, member);
	}
}

void cei_region_fini(struct cei_region *region)
{
	const struct cei_share_ops *ops;

	if (region->site)
		cei_region_unmap_all(region);
	ops = cei_share_for(region->kind);
	if (ops)
		ops->release(region);
	memset(region, 0, sizeof(*region));
}
