/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Warms up copies between every pair of ranks of the node, through ordinary buffers. */

#include "ce_engine/warm.h"

#include "backend/place.h"
#include "base/clock.h"
#include "ce_engine/objects/buffer.h"
#include "ce_engine/objects/context.h"

/* a name that applications are unlikely to use */
#define PAD_NAME  "ceoverlap.warm"
#define SLOT_BYTES 64u

static int is_device(const ceov_context *context, uint32_t member)
{
	return (context->backends[member]->ops->caps & CEI_CAP_DEVICE) != 0;
}

/* A pad has a slot for each rank of the node. */
static uint64_t pad_bytes(const ceov_context *context)
{
	return cei_site_n_local(&context->site) * (uint64_t)SLOT_BYTES;
}

static uint64_t slot_at(const ceov_context *context, uint32_t member)
{
	return cei_site_local_index(&context->site, context->site.members[member].rank) *
		(uint64_t)SLOT_BYTES;
}

static int export_pads(ceov_context *context, ceov_buffer **pads)
{
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < context->site.n_members; i++) {
		if (!is_device(context, i))
			continue;
		r = ceov_buffer_create(context, context->site.members[i].rank,
				       pad_bytes(context), &pads[i]);
		if (!r)
			r = ceov_buffer_share(pads[i], PAD_NAME);
	}
	return r;
}

/* Each member copies to and from its slot of that rank's buffer. */
static int touch(ceov_context *context, uint32_t rank)
{
	ceov_buffer *pad;
	uint64_t address;
	uint32_t i;
	int r = ceov_buffer_find(context, rank, PAD_NAME, &pad);

	if (r == CEOV_NONE)
		return 0;               /* the rank is on the host */
	if (!r && pad->region->size_bytes < pad_bytes(context))
		r = cei_raise(&context->report, CEOV_ERR_VERSION, 0,
			      "ceov_open: rank %u's warm-up memory has %llu bytes, too few for "
			      "the node's %u ranks", rank,
			      (unsigned long long)pad->region->size_bytes,
			      cei_site_n_local(&context->site));
	for (i = 0; !r && i < context->site.n_members; i++) {
		address = pad->region->address[i];
		if (!address || context->site.members[i].rank == rank ||
		    !context->backends[i]->ops->warm)
			continue;
		r = context->backends[i]->ops->warm(context->backends[i],
						    address + slot_at(context, i));
	}
	if (r)
		return r;
	return ceov_buffer_release(pad);
}

/* Retries, because the finders' drops may still be on their way. */
static int take_back(ceov_buffer *pad, uint64_t deadline_ns)
{
	struct cei_backoff backoff;
	int r;

	cei_backoff_reset(&backoff);
	while ((r = ceov_buffer_release(pad)) == CEOV_PENDING) {
		if (cei_now_ns() >= deadline_ns)
			return cei_raise(&pad->object.context->report, CEOV_ERR_TIMEOUT, 0,
					 "ceov_open: a peer keeps our warm-up memory");
		cei_backoff_step(&backoff);
	}
	return r;
}

static int meet(ceov_context *context, uint64_t deadline_ns)
{
	return context->peers ? cei_peers_barrier(context->peers, deadline_ns) : 0;
}

/* The first barrier comes before the finds, because a rank whose memory is not exported yet looks
 * like one on the host; the second before the memory is taken back, which would hide it from who
 * has not found it. They are the whole group's, as there is none of a node: between two nodes both
 * took less than a hundredth of the time that ceov_open() took. */
int cei_warm_up(ceov_context *context, uint64_t deadline_ns)
{
	ceov_buffer *pads[CEI_MEMBERS_MAX] = { NULL };
	uint32_t i;
	int r;

	if (context->site.n_ranks == 1)
		return 0;
	r = export_pads(context, pads);
	if (!r)
		r = meet(context, deadline_ns);
	for (i = 0; !r && i < context->site.n_ranks; i++)
		r = cei_site_is_local(&context->site, i) ? touch(context, i) : 0;
	if (!r)
		r = meet(context, deadline_ns);
	for (i = 0; !r && i < context->site.n_members; i++)
		r = take_back(pads[i], deadline_ns);
	return r;
}
