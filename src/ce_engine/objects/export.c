/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Exporting and finding objects, in this process and at peers. */

#include "ce_engine/objects/export.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/far.h"
#include "ipc/wire.h"

static int check_name(ceov_context *context, const char *name)
{
	size_t length = name ? strnlen(name, CEI_NAME_BYTES) : 0;

	if (length && length < CEI_NAME_BYTES)
		return 0;
	return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
			 "share or find: the name must have 1 to %u bytes",
			 CEI_NAME_BYTES - 1);
}

/* Both functions are called with the context's lock held. */
static struct cei_local_export *local_named(ceov_context *context, uint32_t rank,
					    const char *name)
{
	struct cei_local_export *export;
	struct cei_list *node;

	for (node = context->exports.next; node != &context->exports; node = node->next) {
		export = CEI_OWNER(node, struct cei_local_export, link);
		if (export->rank == rank && !export->is_withdrawn && !strcmp(export->name, name))
			return export;
	}
	return NULL;
}

static struct cei_local_export *local_numbered(ceov_context *context, uint64_t id)
{
	struct cei_local_export *export;
	struct cei_list *node;

	for (node = context->exports.next; node != &context->exports; node = node->next) {
		export = CEI_OWNER(node, struct cei_local_export, link);
		if (export->id == id)
			return export;
	}
	return NULL;
}

/* Encodes regions and collects their descriptors. */
static int encode(ceov_context *context, const struct cei_export_body *body,
		  struct cei_export *wire)
{
	struct cei_writer writer = cei_writer_on(wire->bytes, sizeof(wire->bytes));
	struct cei_wire_described described = {
		.kind = body->kind,
		.place_kind = body->place_kind,
		.n_counters = body->n_counters,
		.flags = body->flags,
		.n_regions = body->n_regions,
	};
	uint32_t i;
	int fd, r;

	for (i = 0; i < body->n_regions; i++) {
		r = cei_share_for(body->regions[i]->kind)->export(body->regions[i],
						&described.regions[i], &fd);
		if (r)
			return r;
		if (fd >= 0)
			wire->fds[wire->n_fds++] = fd;
	}
	cei_put_layout(&writer, &cei_described_layout, &described);
	wire->n_bytes = (uint32_t)writer.at;
	return writer.failed ? cei_raise(&context->report, CEOV_ERR_INVALID, 0,
					 "share: the export does not fit its message") : 0;
}

static int export_to_group(ceov_context *context, struct cei_local_export *export)
{
	struct cei_export wire;
	int r;

	if (!context->bootstrap)
		return 0;
	memset(&wire, 0, sizeof(wire));
	wire.rank = export->rank;
	memcpy(wire.name, export->name, sizeof(wire.name));
	r = encode(context, &export->body, &wire);
	if (r)
		return r;
	return cei_bootstrap_export(context->bootstrap, &wire, &export->bootstrap_id);
}

int cei_export_make(ceov_context *context, uint32_t rank, const char *name,
		    const struct cei_export_body *body, uint64_t *ret_id)
{
	struct cei_local_export *export;
	int r = check_name(context, name);

	if (r)
		return r;
	export = calloc(1, sizeof(*export));
	if (!export)
		return cei_raise(&context->report, CEOV_ERR_NO_MEMORY, 0,
				 "share: no memory for export '%s'", name);
	export->rank = rank;
	export->body = *body;
	memcpy(export->name, name, strlen(name));
	pthread_mutex_lock(&context->lock);
	r = local_named(context, rank, name) ? CEOV_ERR_STATE : 0;
	if (!r) {
		export->id = ++context->last_export;
		cei_list_append(&context->exports, &export->link);
	}
	pthread_mutex_unlock(&context->lock);
	if (r) {
		free(export);
		return cei_raise(&context->report, r, 0,
				 "share: rank %u exports '%s' already", rank, name);
	}
	r = export_to_group(context, export);
	if (!r)
		r = cei_far_export(context, export);
	if (r && export->bootstrap_id)
		(void)cei_bootstrap_withdraw(context->bootstrap, export->bootstrap_id);
	pthread_mutex_lock(&context->lock);
	if (r)
		cei_list_remove(&export->link);
	else
		*ret_id = export->id;
	pthread_mutex_unlock(&context->lock);
	if (r)
		free(export);
	return r;
}

/* Hides the export from finds in this process; *ret_bootstrap_id is its number at peers, 0:
 * it has none, *ret_region its region that other nodes may know, or NULL. CEOV_PENDING: `owner`
 * (NULL: not checked) has users. */
static int hide(ceov_context *context, uint64_t id, const struct cei_object *owner,
		uint64_t *ret_bootstrap_id, struct cei_region **ret_region)
{
	struct cei_local_export *export;
	int r = 0;

	*ret_bootstrap_id = 0;
	*ret_region = NULL;
	pthread_mutex_lock(&context->lock);
	export = local_numbered(context, id);
	if (owner && owner->n_users) {
		r = CEOV_PENDING;
	} else if (export) {
		export->is_withdrawn = 1;
		*ret_bootstrap_id = export->bootstrap_id;
		*ret_region = export->body.regions[0];
	}
	pthread_mutex_unlock(&context->lock);
	return r;
}

static void forget(ceov_context *context, uint64_t id)
{
	struct cei_local_export *export;

	pthread_mutex_lock(&context->lock);
	export = local_numbered(context, id);
	if (export)
		cei_list_remove(&export->link);
	pthread_mutex_unlock(&context->lock);
	free(export);
}

static int withdraw(ceov_context *context, uint64_t id, const struct cei_object *owner)
{
	struct cei_region *region;
	uint64_t bootstrap_id;
	int r = hide(context, id, owner, &bootstrap_id, &region);

	if (!r && bootstrap_id)
		r = cei_bootstrap_withdraw(context->bootstrap, bootstrap_id);
	if (!r && region)
		r = cei_far_withdraw(context, region);
	if (!r)
		forget(context, id);
	return r;
}

int cei_export_withdraw(ceov_context *context, uint64_t id)
{
	return id ? withdraw(context, id, NULL) : 0;
}

int cei_export_release(struct cei_object *owner, uint64_t *export_id, const char *call)
{
	ceov_context *context = owner->context;
	int r = withdraw(context, *export_id, owner);

	if (r == CEOV_PENDING && context->settle(context))
		r = withdraw(context, *export_id, owner);
	if (r)
		return r;
	pthread_mutex_lock(&context->lock);
	*export_id = 0;
	pthread_mutex_unlock(&context->lock);
	return cei_object_claim(owner, call);
}

static int find_here(ceov_context *context, uint32_t rank, const char *name,
		     struct cei_found *found, uint32_t *ret_kind)
{
	struct cei_local_export *export;

	pthread_mutex_lock(&context->lock);
	export = local_named(context, rank, name);
	if (export) {
		found->owner = export->body.owner;
		found->owner->n_users++;        /* counted under the lock, so that it cannot be
						 * released meanwhile */
		found->place_kind = export->body.place_kind;
		found->n_counters = export->body.n_counters;
		found->flags = export->body.flags;
		found->n_regions = export->body.n_regions;
		memcpy(found->regions, export->body.regions, sizeof(found->regions));
		*ret_kind = export->body.kind;
	}
	pthread_mutex_unlock(&context->lock);
	return export ? 0 : CEOV_NONE;
}

static void close_fds(const struct cei_export *wire, uint32_t first)
{
	uint32_t i;

	for (i = first; i < wire->n_fds; i++)
		close(wire->fds[i]);
}

static void put_regions(ceov_context *context, const struct cei_found *found)
{
	uint32_t i;

	for (i = 0; i < found->n_regions; i++)
		cei_mapping_put(&context->mappings, found->regions[i]);
}

/* Maps an export's regions. Takes ownership of the descriptors in any case. The peer's
 * description is checked as a whole before anything is mapped. */
static int import(ceov_context *context, const struct cei_export *wire,
		  struct cei_found *found, uint32_t *ret_kind)
{
	struct cei_reader reader = cei_reader_on(wire->bytes, wire->n_bytes);
	struct cei_wire_described described;
	uint32_t i, n_fds = 0;
	int fd, r = 0;

	cei_wire_get_described(&reader, wire->n_fds, &described);
	if (cei_reader_end(&reader)) {
		close_fds(wire, 0);
		return cei_raise(&context->report, CEOV_ERR_VERSION, 0,
				 "find: rank %u's export '%s' does not make sense here",
				 wire->rank, wire->name);
	}
	*ret_kind = described.kind;
	found->place_kind = described.place_kind;
	found->n_counters = described.n_counters;
	found->flags = described.flags;
	for (i = 0; !r && i < described.n_regions; i++) {
		fd = described.regions[i].has_fd ? wire->fds[n_fds++] : -1;
		r = cei_mapping_get(&context->mappings, &described.regions[i], fd,
				    &found->regions[i]);
		found->n_regions += !r;
	}
	close_fds(wire, n_fds);
	if (r)
		put_regions(context, found);
	return r;
}

static int find_there(ceov_context *context, const struct cei_lookup *lookup,
		      struct cei_found *found, uint32_t *ret_kind)
{
	struct cei_export wire;
	int r;

	if (!cei_site_is_local(&context->site, lookup->rank))
		return cei_far_find(context, lookup, found, ret_kind);
	if (!context->bootstrap)
		return CEOV_NONE;
	r = cei_bootstrap_find(context->bootstrap, lookup, &wire, &found->id);
	if (r)
		return r;
	r = import(context, &wire, found, ret_kind);
	if (r)
		cei_bootstrap_drop(context->bootstrap, lookup->rank, found->id);
	return r;
}

struct cei_lookup cei_export_lookup(const ceov_context *context, uint32_t rank,
				    const char *name)
{
	uint64_t timeout_ns = context->deadline_ns;
	struct cei_lookup lookup = { rank, name, 0 };

	if (timeout_ns > CEI_FIND_MOST_NS)
		timeout_ns = CEI_FIND_MOST_NS;
	lookup.deadline_ns = cei_deadline(timeout_ns);
	return lookup;
}

int cei_export_find(ceov_context *context, const struct cei_lookup *lookup,
		    enum cei_export_kind kind, struct cei_found *ret_found)
{
	const char *name = lookup->name;
	uint32_t rank = lookup->rank;
	uint32_t found_kind = 0;
	int r = check_name(context, name);

	if (r)
		return r;
	if (rank >= context->site.n_ranks)
		return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
				 "find '%s': rank %u, but the group has %u ranks", name,
				 rank, context->site.n_ranks);
	memset(ret_found, 0, sizeof(*ret_found));
	if (cei_context_member(context, rank) != CEOV_NOBODY)
		r = find_here(context, rank, name, ret_found, &found_kind);
	else
		r = find_there(context, lookup, ret_found, &found_kind);
	if (r || found_kind == kind)
		return r;
	if (ret_found->owner) {
		cei_object_unuse(ret_found->owner);
	} else if (ret_found->far) {
		cei_far_put(context, ret_found->far);
	} else {
		put_regions(context, ret_found);
		cei_export_drop(context, rank, ret_found->id);
	}
	return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
			 "find: rank %u exports '%s' as a %s", rank, name,
			 found_kind == CEI_EXPORT_SIGNAL ? "signal" : "buffer");
}

void cei_export_drop(ceov_context *context, uint32_t rank, uint64_t id)
{
	if (context->bootstrap)
		cei_bootstrap_drop(context->bootstrap, rank, id);
}
