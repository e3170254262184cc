/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* ceov_buffer_*: handles on regions, and sharing them with peers. */

#include "ce_engine/objects/buffer.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ce_engine/objects/context.h"
#include "ce_engine/objects/export.h"
#include "ce_engine/objects/far.h"

const struct cei_object_type cei_buffer_type = {
	.name = "buffer",
	.list_at = offsetof(ceov_context, buffers),
};

static int new_buffer(ceov_context *context, uint32_t rank, ceov_buffer **ret_buffer)
{
	ceov_buffer *buffer = calloc(1, sizeof(*buffer));

	if (!buffer)
		return cei_raise(&context->report, CEOV_ERR_NO_MEMORY, 0,
				 "no memory for a buffer handle");
	buffer->rank = rank;
	buffer->own.site = &context->site;
	buffer->own.fd = -1;
	*ret_buffer = buffer;
	return 0;
}

static void enter(ceov_context *context, ceov_buffer *buffer, ceov_buffer **ret_buffer)
{
	cei_object_init(&buffer->object, context, &cei_buffer_type);
	*ret_buffer = buffer;
}

/* Completes a buffer whose region was created or adopted with result r: maps and lists it,
 * or undoes what was done. */
static int finish(ceov_context *context, ceov_buffer *buffer, int r,
		  ceov_buffer **ret_buffer)
{
	if (!r)
		r = cei_region_map_all(&buffer->own);
	if (r) {
		cei_region_fini(&buffer->own);
		free(buffer);
		return r;
	}
	buffer->region = &buffer->own;
	enter(context, buffer, ret_buffer);
	return 0;
}

static int check_new(ceov_context *context, uint32_t rank, uint64_t size_bytes,
		     const char *call, uint32_t *ret_member)
{
	int r = cei_context_check(context, call);

	if (!r)
		r = cei_context_own_rank(context, rank, call, ret_member);
	if (!r && !size_bytes)
		r = cei_raise(&context->report, CEOV_ERR_INVALID, 0,
			      "%s: size_bytes is 0", call);
	return r;
}

/* Makes a region of memory that the caller has allocated: memory of the rank's GPU, if it is on
 * one, else host memory, which a rank on a GPU may have as well. */
static int adopt(struct cei_region *region, uint32_t member, void *base,
		 uint64_t size_bytes)
{
	const struct ceov_member *own = &region->site->members[member];
	int r = CEOV_NONE;

	if (own->place.kind == CEOV_PLACE_GPU)
		r = cei_share_for(CEOV_PLACE_GPU)->adopt(region, member, base, size_bytes);
	if (r == CEOV_NONE)
		r = cei_share_host.adopt(region, member, base, size_bytes);
	return r;
}

int ceov_buffer_register(ceov_context *context, uint32_t rank, void *base,
			 uint64_t size_bytes, ceov_buffer **ret_buffer)
{
	static const char call[] = "ceov_buffer_register";
	ceov_buffer *buffer = NULL;
	uint32_t member;
	int r = check_new(context, rank, size_bytes, call, &member);

	if (r)
		return r;
	if (!base || (uintptr_t)base + size_bytes < (uintptr_t)base || !ret_buffer)
		return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
				 "%s: base is NULL or the range wraps, or no ret_buffer",
				 call);
	r = new_buffer(context, rank, &buffer);
	if (r)
		return r;
	r = adopt(&buffer->own, member, base, size_bytes);
	return finish(context, buffer, r, ret_buffer);
}

/* Creates a buffer in memory of the rank's own kind of place, or on the host. */
static int create(ceov_context *context, uint32_t member, const struct cei_share_ops *share,
		  uint64_t size_bytes, ceov_buffer **ret_buffer)
{
	ceov_buffer *buffer = NULL;
	int r = new_buffer(context, context->site.members[member].rank, &buffer);

	if (r)
		return r;
	r = share->create(&buffer->own, member, size_bytes);
	return finish(context, buffer, r, ret_buffer);
}

int ceov_buffer_create(ceov_context *context, uint32_t rank, uint64_t size_bytes,
		       ceov_buffer **ret_buffer)
{
	uint32_t member;
	int r = check_new(context, rank, size_bytes, "ceov_buffer_create", &member);

	if (r)
		return r;
	if (!ret_buffer)
		return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
				 "ceov_buffer_create: no ret_buffer");
	return create(context, member,
		      cei_share_for(context->site.members[member].place.kind), size_bytes,
		      ret_buffer);
}

int cei_buffer_create_on_host(ceov_context *context, uint32_t rank, uint64_t size_bytes,
			      ceov_buffer **ret_buffer)
{
	uint32_t member;
	int r = check_new(context, rank, size_bytes, "a buffer on the host", &member);

	return r ? r : create(context, member, &cei_share_host, size_bytes, ret_buffer);
}

int ceov_buffer_float(ceov_context *context, uint32_t rank, uint64_t size_bytes,
		      ceov_buffer **ret_buffer)
{
	const struct ceov_place *place;
	ceov_buffer *buffer = NULL;
	uint32_t member;
	int r = check_new(context, rank, size_bytes, "ceov_buffer_float", &member);

	if (r)
		return r;
	if (!ret_buffer)
		return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
				 "ceov_buffer_float: no ret_buffer");
	r = new_buffer(context, rank, &buffer);
	if (r)
		return r;
	place = &context->site.members[member].place;
	buffer->is_floating = 1;
	buffer->own.kind = place->kind;
	buffer->own.gpu = place->kind == CEOV_PLACE_GPU ? place->index : CEOV_NOBODY;
	buffer->own.size_bytes = size_bytes;
	buffer->region = &buffer->own;
	enter(context, buffer, ret_buffer);
	return 0;
}

int cei_buffer_import(ceov_context *context, uint32_t rank, const struct cei_region_wire *wire,
		      int fd, ceov_buffer **ret_buffer)
{
	ceov_buffer *buffer = NULL;
	int r = new_buffer(context, rank, &buffer);

	if (r) {
		if (fd >= 0)
			close(fd);
		return r;
	}
	r = cei_mapping_get(&context->mappings, wire, fd, &buffer->region);
	if (r) {
		free(buffer);
		return r;
	}
	enter(context, buffer, ret_buffer);
	return 0;
}

void *ceov_buffer_base(const ceov_buffer *buffer, uint32_t rank)
{
	uint32_t member;

	if (cei_object_check(buffer, &cei_buffer_type, "ceov_buffer_base"))
		return NULL;
	if (buffer->region->kind == CEOV_PLACE_HOST)
		return buffer->region->host;
	member = cei_context_member(buffer->object.context, rank);
	if (member == CEOV_NOBODY)
		return NULL;
	return (void *)(uintptr_t)buffer->region->address[member];
}

void *cei_buffer_address(const ceov_buffer *buffer, uint32_t rank)
{
	uint32_t member = cei_context_member(buffer->object.context, rank);

	return member == CEOV_NOBODY ? NULL
		: (void *)(uintptr_t)buffer->region->address[member];
}

int ceov_buffer_share(ceov_buffer *buffer, const char *name)
{
	struct cei_export_body body;
	int r = cei_object_check(buffer, &cei_buffer_type, "ceov_buffer_share");

	if (r)
		return r;
	if (buffer->region != &buffer->own)
		return cei_raise(&buffer->object.context->report, CEOV_ERR_INVALID, 0,
				 "ceov_buffer_share: only the owner of a buffer shares it");
	if (buffer->is_floating)
		return cei_raise(&buffer->object.context->report, CEOV_ERR_INVALID, 0,
				 "ceov_buffer_share: a floating buffer has no memory of its "
				 "own to share");
	if (buffer->export_id)
		return cei_raise(&buffer->object.context->report, CEOV_ERR_STATE, 0,
				 "ceov_buffer_share: "
				 "this buffer is shared already; a buffer has one name");
	memset(&body, 0, sizeof(body));
	body.owner = &buffer->object;
	body.kind = CEI_EXPORT_BUFFER;
	body.n_regions = 1;
	body.regions[0] = &buffer->own;
	r = cei_export_make(buffer->object.context, buffer->rank, name, &body,
			    &buffer->export_id);
	if (!r)
		cei_shared_name_set(&buffer->name, name);
	return r;
}

int cei_buffer_find(ceov_context *context, const struct cei_lookup *lookup,
		    ceov_buffer **ret_buffer)
{
	struct cei_found found;
	ceov_buffer *buffer = NULL;
	int r = new_buffer(context, lookup->rank, &buffer);

	if (r)
		return r;
	r = cei_export_find(context, lookup, CEI_EXPORT_BUFFER, &found);
	if (r) {
		free(buffer);
		return r;
	}
	if (found.owner) {              /* another rank of this process exported it */
		buffer->original = CEI_OWNER(found.owner, ceov_buffer, object);
		buffer->region = &buffer->original->own;
	} else {
		buffer->region = found.regions[0];
		buffer->found_use = found.use;
		buffer->far = found.far;
	}
	cei_shared_name_set(&buffer->name, lookup->name);
	enter(context, buffer, ret_buffer);
	return 0;
}

int ceov_buffer_find(ceov_context *context, uint32_t rank, const char *name,
		     ceov_buffer **ret_buffer)
{
	struct cei_lookup lookup;
	int r = cei_context_check(context, "ceov_buffer_find");

	if (r)
		return r;
	if (!ret_buffer)
		return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
				 "ceov_buffer_find: no ret_buffer");
	lookup = cei_export_lookup(context, rank, name);
	return cei_buffer_find(context, &lookup, ret_buffer);
}

/* Releases the handle's regions. */
static void let_go(ceov_buffer *buffer)
{
	ceov_context *context = buffer->object.context;

	if (buffer->original) {
		cei_object_unuse(&buffer->original->object);
	} else if (buffer->far) {
		cei_far_put(context, buffer->far);
	} else if (buffer->region != &buffer->own) {
		cei_mapping_put(&context->mappings, buffer->region);
		if (buffer->found_use)
			cei_export_drop(context, buffer->rank, buffer->found_use);
	} else {
		cei_region_fini(&buffer->own);
	}
}

int ceov_buffer_release(ceov_buffer *buffer)
{
	static const char call[] = "ceov_buffer_release";
	int r;

	if (!buffer)
		return 0;
	r = cei_object_check(buffer, &cei_buffer_type, call);
	if (r)
		return r;
	r = cei_export_release(&buffer->object, &buffer->export_id, call);
	if (r)
		return r;
	let_go(buffer);
	cei_object_quarantine(&buffer->object);
	return 0;
}

void cei_buffer_destroy(ceov_buffer *buffer)
{
	cei_export_revoke(buffer->object.context, buffer->export_id, &buffer->own);
	cei_object_end(&buffer->object);
	let_go(buffer);
	cei_object_quarantine(&buffer->object);
}
