/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Exporting and finding objects, in this process and at peers. */

#include "ce_engine/objects/export.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/far.h"
#include "ce_engine/objects/signal.h"
#include "ipc/wire.h"
#include "net/network.h"

static int check_name(ceov_context *context, const char *call, const char *name)
{
	size_t length = name ? strnlen(name, CEI_GROUP_NAME_BYTES) : 0;

	if (length && length < CEI_GROUP_NAME_BYTES)
		return 0;
	return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
			 "%s: the name has %zu bytes, must have 1 to %u", call,
			 name ? strlen(name) : 0, CEI_GROUP_NAME_BYTES - 1);
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

static struct cei_local_export *local_numbered(ceov_context *context, uint32_t id)
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

/* Describes a region. Memory that nobody on this node maps needs no descriptor. */
static int describe(ceov_context *context, struct cei_region *region,
		    struct cei_region_wire *ret_wire, int *ret_fd)
{
	if (context->mates)
		return cei_share_for(region->kind)->export(region, ret_wire, ret_fd);
	cei_region_fill_wire(region, ret_wire);
	ret_wire->has_fd = region->kind == CEOV_PLACE_HOST;
	*ret_fd = -1;
	return 0;
}

/* Encodes regions and collects their descriptors. */
static int encode(ceov_context *context, const struct cei_export_body *body,
		  struct cei_group_export *wire)
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
		r = describe(context, body->regions[i], &described.regions[i], &fd);
		if (r)
			return r;
		if (fd >= 0)
			wire->fds.fds[wire->fds.n++] = fd;
	}
	cei_put_layout(&writer, &cei_described_layout, &described);
	wire->n_bytes = (uint32_t)writer.at;
	return writer.failed ? cei_raise(&context->report, CEOV_ERR_INVALID, 0,
					 "share: the export does not fit its message") : 0;
}

/* Other nodes raise counters in host memory; those of a GPU have no address for them. */
static int has_counters(const struct cei_export_body *body)
{
	return body->kind == CEI_EXPORT_SIGNAL && body->place_kind == CEOV_PLACE_HOST;
}

static _Atomic uint64_t *counters_of(const struct cei_export_body *body)
{
	return (_Atomic uint64_t *)(void *)((char *)body->regions[0]->host +
					    cei_signal_words_at());
}

/* Lets the rail reach bytes and counters. */
static int open_region(ceov_context *context, const struct cei_local_export *export, uint32_t id)
{
	const struct cei_export_body *body = &export->body;
	struct cei_network_region region = {
		.kind = CEI_NETWORK_BYTES,
		.unit = cei_context_member(context, export->rank),
		.base = body->regions[0]->host,
		.size_bytes = body->regions[0]->size_bytes,
	};

	if (!context->site.network || (body->kind == CEI_EXPORT_SIGNAL && !has_counters(body)))
		return 0;
	if (has_counters(body)) {
		region.kind = CEI_NETWORK_COUNTERS;
		region.base = counters_of(body);
		region.size_bytes = body->n_counters * (uint64_t)sizeof(uint64_t);
	} else if (body->regions[0]->kind == CEOV_PLACE_GPU) {
		region.base = NULL;
		region.device = body->regions[0]->device;
	}
	return cei_network_region_open(context->site.network, id, &region);
}

/* Exports to other processes, which do not find it yet. */
static int export_to_peers(ceov_context *context, const struct cei_local_export *export,
			   uint32_t *ret_id)
{
	struct cei_group_export wire;
	int r;

	memset(&wire, 0, sizeof(wire));
	wire.rank = export->rank;
	wire.is_hidden = 1;
	memcpy(wire.name, export->name, sizeof(wire.name));
	if (has_counters(&export->body)) {
		wire.words = counters_of(&export->body);
		wire.n_words = export->body.n_counters;
	}
	r = encode(context, &export->body, &wire);
	if (!r)
		r = cei_peers_export(context->peers, &wire, ret_id);
	if (r)
		return r;
	r = open_region(context, export, *ret_id);
	if (r)
		(void)cei_peers_withdraw(context->peers, *ret_id, 1);
	return r;
}

/* Enters the export into the context's list, so that its name is taken. */
static int enter(ceov_context *context, struct cei_local_export *export)
{
	int is_taken;

	pthread_mutex_lock(&context->lock);
	is_taken = local_named(context, export->rank, export->name) != NULL;
	if (!is_taken)
		cei_list_append(&context->exports, &export->link);
	pthread_mutex_unlock(&context->lock);
	if (!is_taken)
		return 0;
	return cei_raise(&context->report, CEOV_ERR_STATE, 0,
			 "share: rank %u exports '%s' already", export->rank, export->name);
}

int cei_export_make(ceov_context *context, uint32_t rank, const char *name,
		    const struct cei_export_body *body, uint32_t *ret_id)
{
	struct cei_local_export *export;
	uint32_t id = 0;
	int r = check_name(context, "share", name);

	if (r)
		return r;
	export = calloc(1, sizeof(*export));
	if (!export)
		return cei_raise(&context->report, CEOV_ERR_NO_MEMORY, 0,
				 "share: no memory for export '%s'", name);
	export->rank = rank;
	export->body = *body;
	memcpy(export->name, name, strlen(name));
	r = enter(context, export);
	if (r) {
		free(export);
		return r;
	}
	if (context->peers)
		r = export_to_peers(context, export, &id);
	pthread_mutex_lock(&context->lock);
	if (r)
		cei_list_remove(&export->link);
	else
		*ret_id = export->id = context->peers ? id : ++context->last_export;
	pthread_mutex_unlock(&context->lock);
	if (r)
		free(export);
	else if (context->peers)
		cei_peers_show(context->peers, id);
	return r;
}

/* Hides the export from finds in this process. CEOV_PENDING: `owner` (NULL: not checked) has
 * users. */
static int hide(ceov_context *context, uint32_t id, const struct cei_object *owner)
{
	struct cei_local_export *export;
	int r = 0;

	pthread_mutex_lock(&context->lock);
	export = id ? local_numbered(context, id) : NULL;
	if (owner && owner->n_users)
		r = CEOV_PENDING;
	else if (export)
		export->is_withdrawn = 1;
	pthread_mutex_unlock(&context->lock);
	return r;
}

static void forget(ceov_context *context, uint32_t id)
{
	struct cei_local_export *export;

	pthread_mutex_lock(&context->lock);
	export = local_numbered(context, id);
	if (export)
		cei_list_remove(&export->link);
	pthread_mutex_unlock(&context->lock);
	free(export);
}

/* Ends the export at other processes. CEOV_PENDING: they use it, unless that is_forced, or bytes
 * land in it. */
static int withdraw_from_peers(ceov_context *context, uint32_t id, int is_forced)
{
	int r = context->peers ? cei_peers_withdraw(context->peers, id, is_forced) : 0;

	if (!r && context->site.network)
		r = cei_network_region_close(context->site.network, id);
	return r;
}

static int withdraw(ceov_context *context, uint32_t id, const struct cei_object *owner)
{
	int r = hide(context, id, owner);

	if (r || !id)
		return r;
	r = withdraw_from_peers(context, id, 0);
	if (!r)
		forget(context, id);
	return r;
}

int cei_export_withdraw(ceov_context *context, uint32_t id)
{
	return withdraw(context, id, NULL);
}

void cei_export_revoke(ceov_context *context, uint32_t id, struct cei_region *region)
{
	int r;

	if (!id)
		return;
	(void)hide(context, id, NULL);
	r = withdraw_from_peers(context, id, 1);
	forget(context, id);
	if (r != CEOV_PENDING)
		return;
	(void)cei_raise(&context->report, CEOV_ERR_UNCERTAIN, 0,
			"bytes of another node are still landing in %llu bytes of memory at %p, "
			"which stay until the process ends",
			(unsigned long long)region->size_bytes, region->host);
	memset(region, 0, sizeof(*region));     /* nobody releases it */
}

int cei_export_release(struct cei_object *owner, uint32_t *export_id, const char *call)
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
		     struct cei_found *found)
{
	struct cei_local_export *export;

	pthread_mutex_lock(&context->lock);
	export = local_named(context, rank, name);
	if (export) {
		found->owner = export->body.owner;
		found->owner->n_users++;        /* counted under the lock, so that it cannot be
						 * released meanwhile */
		found->kind = export->body.kind;
		found->place_kind = export->body.place_kind;
		found->n_counters = export->body.n_counters;
		found->flags = export->body.flags;
		found->n_regions = export->body.n_regions;
		memcpy(found->regions, export->body.regions, sizeof(found->regions));
	}
	pthread_mutex_unlock(&context->lock);
	return export ? 0 : CEOV_NONE;
}

static void put_regions(ceov_context *context, const struct cei_found *found)
{
	uint32_t i;

	for (i = 0; i < found->n_regions; i++)
		cei_mapping_put(&context->mappings, found->regions[i]);
}

/* Maps regions of a process of this node. Takes ownership of the descriptors in any case. */
static int map(ceov_context *context, const struct cei_wire_described *described,
	       const struct cei_group_fds *fds, struct cei_found *found)
{
	uint32_t i, n_fds = 0;
	int fd, r = 0;

	for (i = 0; !r && i < described->n_regions; i++) {
		fd = described->regions[i].has_fd ? fds->fds[n_fds++] : -1;
		r = cei_mapping_get(&context->mappings, &described->regions[i], fd,
				    &found->regions[i]);
		found->n_regions += !r;
	}
	cei_peers_close_fds(fds, n_fds);
	if (r)
		put_regions(context, found);
	return r;
}

/* The description is checked as a whole before anything is mapped. It comes without descriptors
 * from another node. */
static int decode(ceov_context *context, const struct cei_lookup *lookup, int is_far,
		  const struct cei_group_found *there, struct cei_wire_described *ret_described)
{
	struct cei_reader reader = cei_reader_on(there->bytes, there->n_bytes);

	if (is_far)
		cei_get_layout(&reader, &cei_described_layout, ret_described);
	else
		cei_wire_get_described(&reader, there->fds.n, ret_described);
	if (!cei_reader_end(&reader))
		return 0;
	return cei_raise(&context->report, CEOV_ERR_VERSION, 0,
			 "find: rank %u's export '%s' does not make sense here", lookup->rank,
			 lookup->name);
}

/* Makes what was found usable here. Takes the descriptors, and on success the use. */
static int import(ceov_context *context, const struct cei_lookup *lookup,
		  const struct cei_group_found *there, uint64_t use, struct cei_found *found)
{
	int is_far = !cei_site_is_local(&context->site, lookup->rank);
	struct cei_wire_described described;
	int r = decode(context, lookup, is_far, there, &described);

	if (r || is_far)
		cei_peers_close_fds(&there->fds, 0);
	if (r)
		return r;
	found->kind = described.kind;
	found->place_kind = described.place_kind;
	found->n_counters = described.n_counters;
	found->flags = described.flags;
	if (is_far)
		return cei_far_use(context, &(struct cei_far_find){ lookup, &described, there->id,
								    use }, found);
	found->use = use;
	return map(context, &described, &there->fds, found);
}

static int find_there(ceov_context *context, const struct cei_lookup *lookup,
		      struct cei_found *found)
{
	struct cei_group_found there;
	uint64_t use;
	int r = context->peers ? cei_peers_find(context->peers, lookup, &there, &use) : CEOV_NONE;

	if (r)
		return r;
	r = import(context, lookup, &there, use, found);
	if (r)
		cei_peers_drop(context->peers, lookup->rank, use);
	return r;
}

struct cei_lookup cei_export_lookup(const ceov_context *context, uint32_t rank,
				    const char *name)
{
	struct cei_lookup lookup = { rank, name, cei_deadline(context->deadline_ns) };

	return lookup;
}

int cei_export_find(ceov_context *context, const struct cei_lookup *lookup,
		    enum cei_export_kind kind, struct cei_found *ret_found)
{
	const char *name = lookup->name;
	uint32_t rank = lookup->rank;
	int r = check_name(context, "find", name);

	if (r)
		return r;
	if (rank >= context->site.n_ranks)
		return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
				 "find '%s': rank %u, but the group has %u ranks", name,
				 rank, context->site.n_ranks);
	memset(ret_found, 0, sizeof(*ret_found));
	if (cei_context_member(context, rank) != CEOV_NOBODY)
		r = find_here(context, rank, name, ret_found);
	else
		r = find_there(context, lookup, ret_found);
	if (r || ret_found->kind == (uint32_t)kind)
		return r;
	if (ret_found->owner) {
		cei_object_unuse(ret_found->owner);
	} else if (ret_found->far) {
		cei_far_put(context, ret_found->far);
	} else {
		put_regions(context, ret_found);
		cei_export_drop(context, rank, ret_found->use);
	}
	return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
			 "find: rank %u exports '%s' as a %s", rank, name,
			 ret_found->kind == CEI_EXPORT_SIGNAL ? "signal" : "buffer");
}

void cei_export_drop(ceov_context *context, uint32_t rank, uint64_t use)
{
	if (context->peers)
		cei_peers_drop(context->peers, rank, use);
}
