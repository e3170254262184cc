/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Finds, counts and releases what other nodes export. */

#include "ce_engine/objects/far.h"

#include <stdlib.h>
#include <string.h>

#include "base/cursor.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/signal.h"

/* --- exporting ----------------------------------------------------------------------- */

/* What finders in other nodes are told beside the size. */
struct details {
	uint32_t kind;                  /* enum cei_export_kind */
	uint32_t place_kind;            /* enum ceov_place_kind: of the bytes or counters */
	uint32_t n_counters;
	uint32_t flags;                 /* enum ceov_signal_flags */
};

static uint32_t encode(const struct details *details, uint8_t *bytes)
{
	struct cei_writer writer = cei_writer_on(bytes, CEI_NETWORK_DETAILS_BYTES);

	cei_wire_put_u32(&writer, details->kind);
	cei_wire_put_u32(&writer, details->place_kind);
	cei_wire_put_u32(&writer, details->n_counters);
	cei_wire_put_u32(&writer, details->flags);
	return (uint32_t)writer.at;
}

static int decode(const struct cei_network_found *found, struct details *ret_details)
{
	struct cei_reader reader = cei_reader_on(found->details, found->n_details);

	ret_details->kind = cei_wire_get_u32(&reader);
	ret_details->place_kind = cei_wire_get_u32(&reader);
	ret_details->n_counters = cei_wire_get_u32(&reader);
	ret_details->flags = cei_wire_get_u32(&reader);
	return cei_reader_end(&reader);
}

/* Counters in the memory of a GPU have no address for the network. */
static void fill_region(const struct cei_export_body *body, uint32_t unit,
			struct cei_network_region *to)
{
	const struct cei_region *region = body->regions[0];

	to->kind = body->kind == CEI_EXPORT_SIGNAL ? CEI_NETWORK_COUNTERS : CEI_NETWORK_BYTES;
	to->unit = unit;
	if (body->kind == CEI_EXPORT_BUFFER && region->kind == CEOV_PLACE_GPU) {
		to->device = region->device;
		to->size_bytes = region->size_bytes;
		return;
	}
	if (body->place_kind == CEOV_PLACE_GPU || region->kind == CEOV_PLACE_GPU)
		return;
	to->base = region->host;
	to->size_bytes = region->size_bytes;
	if (body->kind != CEI_EXPORT_SIGNAL)
		return;
	to->base = (char *)region->host + cei_signal_words_at();
	to->size_bytes = body->n_counters * (uint64_t)sizeof(uint64_t);
}

int cei_far_export(ceov_context *context, const struct cei_local_export *export)
{
	const struct cei_export_body *body = &export->body;
	struct details details = { body->kind, body->place_kind, body->n_counters, body->flags };
	struct cei_network_export made;

	if (!context->site.network)
		return 0;
	if (body->kind == CEI_EXPORT_BUFFER)
		details.place_kind = body->regions[0]->kind;
	memset(&made, 0, sizeof(made));
	made.rank = export->rank;
	memcpy(made.name, export->name, sizeof(made.name));
	fill_region(body, cei_context_member(context, export->rank), &made.region);
	made.n_details = encode(&details, made.details);
	return cei_network_export(context->site.network, &made, &body->regions[0]->far_id);
}

int cei_far_withdraw(ceov_context *context, struct cei_region *region)
{
	int r;

	if (!region->far_id)
		return 0;
	r = cei_network_withdraw(context->site.network, region->far_id);
	if (!r)
		region->far_id = 0;
	return r;
}

void cei_far_revoke(ceov_context *context, struct cei_region *region)
{
	if (!region->far_id || !cei_network_revoke(context->site.network, region->far_id))
		return;
	(void)cei_raise(&context->report, CEOV_ERR_UNCERTAIN, 0,
			"bytes of another node are still landing in %llu bytes of memory at %p, "
			"which stay until the process ends",
			(unsigned long long)region->size_bytes, region->host);
	memset(region, 0, sizeof(*region));     /* nobody releases it */
}

/* --- finding ----------------------------------------------------------------------------- */

/* With far_lock held. */
static struct cei_far *known(ceov_context *context, uint32_t rank, uint32_t region)
{
	struct cei_list *node;
	struct cei_far *far;

	for (node = context->far.next; node != &context->far; node = node->next) {
		far = CEI_OWNER(node, struct cei_far, link);
		if (far->rank == rank && far->region.far_id == region)
			return far;
	}
	return NULL;
}

/* An owner that lies can claim any size: the network bounds every access at the owner, and an
 * image has as many counters as were claimed, which is bounded. */
static int check(ceov_context *context, const struct cei_lookup *lookup,
		 const struct cei_network_found *found, const struct details *details)
{
	int is_signal = details->kind == CEI_EXPORT_SIGNAL;

	if (is_signal && details->place_kind == CEOV_PLACE_GPU)
		return cei_raise(&context->report, CEOV_ERR_NO_ROUTE, 0,
				 "find '%s': rank %u is on another node and exports a signal in "
				 "the memory of a GPU, which is not reached from here; let it "
				 "create the signal in host memory", lookup->name, lookup->rank);
	if (found->size_bytes && details->place_kind <= CEOV_PLACE_GPU &&
	    (is_signal ? found->kind == CEI_NETWORK_COUNTERS &&
	     found->size_bytes == details->n_counters * (uint64_t)sizeof(uint64_t) &&
	     details->n_counters <= CEI_SIGNAL_COUNTERS_MAX
	     : details->kind == CEI_EXPORT_BUFFER && found->kind == CEI_NETWORK_BYTES))
		return 0;
	return cei_raise(&context->report, CEOV_ERR_VERSION, 0,
			 "find: rank %u's export '%s' does not make sense here", lookup->rank,
			 lookup->name);
}

static void fill_far(ceov_context *context, struct cei_far *far,
		     const struct cei_network_found *found)
{
	far->region.site = far->image.site = &context->site;
	far->region.fd = far->image.fd = -1;
	far->region.origin = CEI_REGION_FAR;
	far->region.kind = CEOV_PLACE_HOST;
	far->region.gpu = CEOV_NOBODY;
	far->region.size_bytes = found->size_bytes;
	far->region.far_id = found->region;
}

/* Makes the image of a signal, and has the network keep it. */
static int make_image(ceov_context *context, struct cei_far *far,
		      const struct cei_network_found *found, uint32_t n_counters)
{
	char *base;
	int r = cei_share_host.create(&far->image, 0, cei_signal_control_bytes(n_counters));

	if (!r)
		r = cei_region_map_all(&far->image);
	if (r)
		return r;
	base = far->image.host;
	return cei_network_watch(context->site.network, far->rank, found,
				 (_Atomic uint64_t *)(void *)(base + cei_signal_words_at()),
				 n_counters);
}

static void end(ceov_context *context, struct cei_far *far)
{
	if (far->image.origin) {
		cei_network_forget(context->site.network, far->rank, far->region.far_id);
		cei_region_fini(&far->image);
	}
	cei_network_drop(context->site.network, far->rank, far->region.far_id);
	free(far);
}

static int enter(ceov_context *context, uint32_t rank, const struct cei_network_found *found,
		 const struct details *details, struct cei_far **ret_far)
{
	struct cei_far *far = calloc(1, sizeof(*far));
	int r = 0;

	if (!far) {
		cei_network_drop(context->site.network, rank, found->region);
		return cei_raise(&context->report, CEOV_ERR_NO_MEMORY, 0,
				 "find: no memory for what rank %u exports", rank);
	}
	far->rank = rank;
	far->n_users = 1;
	fill_far(context, far, found);
	if (details->kind == CEI_EXPORT_SIGNAL)
		r = make_image(context, far, found, details->n_counters);
	if (r) {
		end(context, far);
		return r;
	}
	cei_list_append(&context->far, &far->link);
	*ret_far = far;
	return 0;
}

int cei_far_find(ceov_context *context, const struct cei_lookup *lookup,
		 struct cei_found *found, uint32_t *ret_kind)
{
	struct cei_network *network = context->site.network;
	struct cei_network_found there;
	struct details details;
	struct cei_far *far;
	int r = cei_network_find(network, lookup->rank, lookup->name, lookup->deadline_ns,
				 &there);

	if (r)
		return r;
	if (decode(&there, &details))
		details.kind = 0;       /* refused by check() */
	r = check(context, lookup, &there, &details);
	if (r) {
		cei_network_drop(network, lookup->rank, there.region);
		return r;
	}
	pthread_mutex_lock(&context->far_lock);
	far = known(context, lookup->rank, there.region);
	if (far) {
		far->n_users++;
		cei_network_drop(network, lookup->rank, there.region);
	} else {
		r = enter(context, lookup->rank, &there, &details, &far);
	}
	pthread_mutex_unlock(&context->far_lock);
	if (r)
		return r;
	found->far = far;
	found->place_kind = details.place_kind;
	found->n_counters = details.n_counters;
	found->flags = details.flags;
	found->n_regions = 1;
	found->regions[0] = details.kind == CEI_EXPORT_SIGNAL ? &far->image : &far->region;
	*ret_kind = details.kind;
	return 0;
}

void cei_far_put(ceov_context *context, struct cei_far *far)
{
	if (!far)
		return;
	pthread_mutex_lock(&context->far_lock);
	if (!--far->n_users) {
		cei_list_remove(&far->link);
		end(context, far);
	}
	pthread_mutex_unlock(&context->far_lock);
}

void cei_far_await(const ceov_context *context, int by)
{
	if (context->site.network)
		cei_network_await_users(context->site.network, by);
}
