/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Selects the table of functions for a kind of place, and calls it for all members; what a
 * description of a region says; and the cache of imported regions, each with a count of its users
 * here. The owner of a region counts uses by other processes in the bootstrap. */

#include "config.h"

#include "ipc/share.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* --- regions of peers ---------------------------------------------------------- */

struct mapping {
	struct cei_list        link;
	uint32_t               n_users;
	struct cei_region_wire wire;    /* the description by which the mapping is found */
	struct cei_region      region;
};

int cei_mappings_init(struct cei_mappings *mappings, struct cei_site *site)
{
	int error;

	memset(mappings, 0, sizeof(*mappings));
	error = pthread_mutex_init(&mappings->lock, NULL);
	if (error)
		return cei_raise(site->report, CEOV_ERR_SYSTEM, error,
				 "mappings: no lock: %s", strerror(error));
	cei_list_init(&mappings->list);
	mappings->site = site;
	return 0;
}

static void mapping_free(struct cei_mappings *mappings, struct mapping *mapping)
{
	cei_list_remove(&mapping->link);
	mappings->n_mappings--;
	cei_region_fini(&mapping->region);
	free(mapping);
}

void cei_mappings_fini(struct cei_mappings *mappings)
{
	if (!mappings->site)
		return;
	while (!cei_list_is_empty(&mappings->list))
		mapping_free(mappings, CEI_OWNER(mappings->list.next, struct mapping,
						 link));
	pthread_mutex_destroy(&mappings->lock);
	memset(mappings, 0, sizeof(*mappings));
}

/* Returns whether the description and the descriptor mean the memory of this mapping. */
static int is_same(const struct mapping *mapping, const struct cei_region_wire *wire, int fd)
{
	const struct cei_share_ops *ops;

	_Static_assert(sizeof(*wire) == CEI_WIRE_REGION_BYTES, "compared as bytes: no padding");
	if (memcmp(&mapping->wire, wire, sizeof(*wire)))
		return 0;
	ops = cei_share_for(mapping->region.kind);
	return ops && ops->is_same(&mapping->region, fd);
}

static struct mapping *find_mapping(struct cei_mappings *mappings,
				    const struct cei_region_wire *wire, int fd)
{
	struct cei_list *node;
	struct mapping *mapping;

	for (node = mappings->list.next; node != &mappings->list; node = node->next) {
		mapping = CEI_OWNER(node, struct mapping, link);
		if (is_same(mapping, wire, fd))
			return mapping;
	}
	return NULL;
}

static void close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
}

/* Imports and maps a region. Takes ownership of fd in any case. */
static int mapping_import(struct cei_mappings *mappings,
			  const struct cei_region_wire *wire, int fd,
			  struct mapping **ret_mapping)
{
	const struct cei_share_ops *ops = cei_share_for((enum ceov_place_kind)wire->kind);
	struct cei_site *site = mappings->site;
	struct mapping *mapping;
	int r;

	mapping = ops && mappings->n_mappings < CEI_MAPPINGS_MAX ?
		  calloc(1, sizeof(*mapping)) : NULL;
	if (!mapping)
		close_fd(fd);
	if (!ops)
		return cei_raise(site->report, CEOV_ERR_NO_ROUTE, 0,
				 "a peer's GPU memory cannot be mapped: this ceoverlap "
				 "was built without CUDA");
	if (mappings->n_mappings == CEI_MAPPINGS_MAX)
		return cei_raise(site->report, CEOV_ERR_NO_MEMORY, 0,
				 "more than %u regions of peers are mapped; release "
				 "some", CEI_MAPPINGS_MAX);
	if (!mapping)
		return cei_raise(site->report, CEOV_ERR_NO_MEMORY, 0,
				 "no memory to map a peer's region");
	cei_list_init(&mapping->link);
	mapping->region.site = site;
	mapping->region.kind = (enum ceov_place_kind)wire->kind;
	mapping->wire = *wire;
	r = ops->import(&mapping->region, wire, fd);
	if (!r)
		r = cei_region_map_all(&mapping->region);
	if (r) {
		cei_region_fini(&mapping->region);
		free(mapping);
		return r;
	}
	cei_list_append(&mappings->list, &mapping->link);
	mappings->n_mappings++;
	*ret_mapping = mapping;
	return 0;
}

int cei_mapping_get(struct cei_mappings *mappings, const struct cei_region_wire *wire,
		    int fd, struct cei_region **ret_region)
{
	struct cei_report_hold hold;
	struct mapping *mapping;
	int r = 0;

	cei_report_hold_begin(mappings->site->report, &hold);
	pthread_mutex_lock(&mappings->lock);
	mapping = find_mapping(mappings, wire, fd);
	if (mapping)
		close_fd(fd);
	else
		r = mapping_import(mappings, wire, fd, &mapping);
	if (!r) {
		mapping->n_users++;
		*ret_region = &mapping->region;
	}
	pthread_mutex_unlock(&mappings->lock);
	cei_report_hold_end(mappings->site->report, &hold);
	return r;
}

void cei_mapping_put(struct cei_mappings *mappings, struct cei_region *region)
{
	struct mapping *mapping;

	if (!region)
		return;
	mapping = CEI_OWNER(region, struct mapping, region);
	pthread_mutex_lock(&mappings->lock);
	assert(mapping->n_users);
	if (!--mapping->n_users)
		mapping_free(mappings, mapping);
	pthread_mutex_unlock(&mappings->lock);
}
