/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Counts and releases what was found at other nodes. */

#include "ce_engine/objects/far.h"

#include <stdlib.h>

#include "ce_engine/objects/context.h"
#include "ce_engine/objects/signal.h"

/* With far_lock held. */
static struct cei_far *known(ceov_context *context, uint32_t rank, uint32_t id)
{
	struct cei_list *node;
	struct cei_far *far;

	for (node = context->far.next; node != &context->far; node = node->next) {
		far = CEI_OWNER(node, struct cei_far, link);
		if (far->rank == rank && far->region.far_id == id)
			return far;
	}
	return NULL;
}

/* An owner that lies can claim any size: the rail bounds every access at the owner, and an image
 * has as many counters as were claimed, which is bounded. */
static int check(ceov_context *context, const struct cei_far_find *find)
{
	const struct cei_wire_described *described = find->described;
	const struct cei_lookup *lookup = find->lookup;
	uint32_t n_counters = described->n_counters;

	if (described->kind != CEI_EXPORT_SIGNAL)
		return 0;
	if (described->place_kind == CEOV_PLACE_GPU)
		return cei_raise(&context->report, CEOV_ERR_NO_ROUTE, 0,
				 "find '%s': rank %u is on another node and exports a signal in "
				 "the memory of a GPU, which is not reached from here; let it "
				 "create the signal in host memory", lookup->name, lookup->rank);
	if (n_counters <= CEI_SIGNAL_COUNTERS_MAX &&
	    described->regions[0].size_bytes >= cei_signal_control_bytes(n_counters))
		return 0;
	return cei_raise(&context->report, CEOV_ERR_VERSION, 0,
			 "find: rank %u's export '%s' does not make sense here", lookup->rank,
			 lookup->name);
}

/* The region of a signal is its counters. */
static void fill_far(ceov_context *context, struct cei_far *far, const struct cei_far_find *find)
{
	const struct cei_wire_described *described = find->described;

	far->rank = find->lookup->rank;
	far->use = find->use;
	far->region.site = far->image.site = &context->site;
	far->region.fd = far->image.fd = -1;
	far->region.origin = CEI_REGION_FAR;
	far->region.kind = CEOV_PLACE_HOST;
	far->region.gpu = CEOV_NOBODY;
	far->region.size_bytes = described->kind == CEI_EXPORT_SIGNAL ?
		described->n_counters * (uint64_t)sizeof(uint64_t) :
		described->regions[0].size_bytes;
	far->region.far_id = find->id;
}

/* Makes the image of a signal, and has the peers keep it. */
static int make_image(ceov_context *context, struct cei_far *far, uint32_t n_counters)
{
	char *base;
	int r = cei_share_host.create(&far->image, 0, cei_signal_control_bytes(n_counters));

	if (!r)
		r = cei_region_map_all(&far->image);
	if (r)
		return r;
	base = far->image.host;
	return cei_peers_watch(context->peers, far->rank, far->use,
			       (_Atomic uint64_t *)(void *)(base + cei_signal_words_at()),
			       n_counters);
}

/* All but the use. */
static void end(ceov_context *context, struct cei_far *far)
{
	if (far->image.origin) {
		cei_peers_forget(context->peers, far->rank, far->use);
		cei_region_fini(&far->image);
	}
	free(far);
}

static int make(ceov_context *context, const struct cei_far_find *find, struct cei_far **ret_far)
{
	struct cei_far *far = calloc(1, sizeof(*far));
	int r = 0;

	if (!far)
		return cei_raise(&context->report, CEOV_ERR_NO_MEMORY, 0,
				 "find: no memory for what rank %u exports", find->lookup->rank);
	fill_far(context, far, find);
	if (find->described->kind == CEI_EXPORT_SIGNAL)
		r = make_image(context, far, find->described->n_counters);
	if (r) {
		end(context, far);
		return r;
	}
	cei_list_append(&context->far, &far->link);
	*ret_far = far;
	return 0;
}

int cei_far_use(ceov_context *context, const struct cei_far_find *find, struct cei_found *found)
{
	uint32_t rank = find->lookup->rank;
	struct cei_far *far;
	int r = check(context, find);

	if (r)
		return r;
	pthread_mutex_lock(&context->far_lock);
	far = known(context, rank, find->id);
	if (far)
		cei_peers_drop(context->peers, rank, find->use);
	else
		r = make(context, find, &far);
	if (!r)
		far->n_users++;
	pthread_mutex_unlock(&context->far_lock);
	if (r)
		return r;
	found->far = far;
	found->n_regions = 1;
	found->regions[0] = found->kind == CEI_EXPORT_SIGNAL ? &far->image : &far->region;
	return 0;
}

void cei_far_put(ceov_context *context, struct cei_far *far)
{
	uint32_t rank;
	uint64_t use;

	if (!far)
		return;
	rank = far->rank;
	use = far->use;
	pthread_mutex_lock(&context->far_lock);
	if (!--far->n_users) {
		cei_list_remove(&far->link);
		end(context, far);
		cei_peers_drop(context->peers, rank, use);
	}
	pthread_mutex_unlock(&context->far_lock);
}
