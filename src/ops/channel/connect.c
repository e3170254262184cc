/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Creates channels, connects them with those of peers, and releases them. */

#include "ops/channel/channel.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/site.h"
#include "base/sized.h"
#include "ce_engine/objects/buffer.h"
#include "ce_engine/objects/context.h"
#include "ops/channel/gpu.h"
#include "ops/core/find_peers.h"

#define RING_BYTES     (UINT64_C(1) << 20)
#define GPU_RING_BYTES (UINT64_C(48) << 20)
#define RING_BYTES_MIN (UINT64_C(64) << 10)
#define RING_BYTES_MAX (UINT64_C(1) << 30)
#define SLOT_ALIGN     UINT64_C(4096)
#define MESSAGE_BYTES_MIN UINT64_C(4096)

_Static_assert(CEI_LOCAL_MAX <= CEI_OP_RANKS_MAX, "channels have room for all ranks of a node");

/* --- creation ------------------------------------------------------------------------------- */

static const char *fault_of(const ceov_context *context, const struct ceov_channel_config *config,
			    int is_host)
{
	size_t length = config->name ? strnlen(config->name, CEI_CHANNEL_NAME_BYTES) : 0;

	if (!length || length == CEI_CHANNEL_NAME_BYTES)
		return "the name must have 1 to 40 bytes";
	if (config->ring_bytes && (config->ring_bytes < RING_BYTES_MIN ||
				   config->ring_bytes > RING_BYTES_MAX))
		return "ring_bytes must be 0, or 64 KiB to 1 GiB";
	if (cei_site_n_local(&context->site) != context->site.n_ranks)
		return "channels are for groups of one node";
	if (!is_host && context->site.n_ranks > CEI_CHANNEL_RANKS_MAX)
		return "channels of GPUs have at most 8 ranks; use operators";
	return NULL;
}

static int take_config(ceov_context *context, const struct ceov_channel_config *from,
		       struct ceov_channel_config *ret_config, struct ceov_place *ret_place)
{
	static const char call[] = "ceov_channel_create";
	const char *fault;
	uint32_t member = 0;
	int r = cei_context_check(context, call);

	if (!r)
		r = cei_sized_check(&context->report, from, sizeof(*from), sizeof(*from),
				    "ceov_channel_create: config");
	if (r)
		return r;
	cei_sized_take(ret_config, from, sizeof(*ret_config));
	r = cei_context_own_rank(context, ret_config->rank, call, &member);
	if (r)
		return r;
	*ret_place = context->site.members[member].place;
	fault = fault_of(context, ret_config, ret_place->kind == CEOV_PLACE_HOST);
	return fault ? cei_raise(&context->report, CEOV_ERR_INVALID, 0, "%s: rank %u: %s", call,
				 ret_config->rank, fault) : 0;
}

static const char *name_of(const ceov_channel *channel, char *buffer)
{
	snprintf(buffer, CEI_GROUP_NAME_BYTES, "ch.%s", channel->name);
	return buffer;
}

/* All of a rank's messages together have as much as one slot. */
static uint64_t message_bytes(const ceov_channel *channel)
{
	uint64_t bytes = channel->slot_bytes / channel->n_ranks / CEI_CACHE_LINE * CEI_CACHE_LINE;

	return bytes > MESSAGE_BYTES_MIN ? bytes : MESSAGE_BYTES_MIN;
}

/* The memory that a rank shares. */
static uint64_t shared_bytes(const ceov_channel *channel)
{
	struct cei_channel_layout layout;

	if (channel->gpu)
		return cei_gpu_layout(channel->ring_bytes, channel->n_ranks, &layout);
	return sizeof(struct cei_ring) + CEI_RING_SLOTS * channel->slot_bytes +
		channel->n_ranks * channel->message_bytes;
}

static int make_ring(ceov_channel *channel)
{
	ceov_context *context = channel->object.context;
	ceov_buffer **buffer = &channel->buffers[channel->rank];
	char name[CEI_GROUP_NAME_BYTES];
	int r = ceov_buffer_create(context, channel->rank, shared_bytes(channel), buffer);

	if (r)
		return r;
	if (channel->gpu) {
		r = cei_gpu_channel_clear(channel);
	} else {
		channel->rings[channel->rank] = ceov_buffer_base(*buffer, channel->rank);
		memset(channel->rings[channel->rank], 0, sizeof(struct cei_ring));
	}
	return r ? r : ceov_buffer_share(*buffer, name_of(channel, name));
}

/* First what was found at peers, because they may wait for that. */
static int release_rings(ceov_channel *channel)
{
	uint32_t i, rank;
	int r = 0;

	for (i = 1; !r && i <= channel->n_ranks; i++) {
		rank = (channel->rank + i) % channel->n_ranks;
		r = ceov_buffer_release(channel->buffers[rank]);
		if (!r)
			channel->buffers[rank] = NULL;
	}
	return r;
}

/* Kernels end soon when the channel has ended. */
static void stop(struct cei_object *object)
{
	ceov_channel *channel = CEI_OWNER(object, ceov_channel, object);
	uint64_t deadline_ns = cei_deadline(channel->deadline_ns);

	(void)cei_channel_end(channel, CEOV_ERR_ABORTED);
	while (channel->gpu && cei_gpu_channel_idle(channel) && cei_now_ns() < deadline_ns)
		cei_backoff_step(&channel->backoff);
}

static void quarantine(struct cei_object *object)
{
	ceov_channel *channel = CEI_OWNER(object, ceov_channel, object);

	cei_object_end(object);
	cei_gpu_channel_close(channel);
	pthread_mutex_destroy(&channel->turns_lock);
	pthread_mutex_destroy(&channel->lock);
	cei_object_quarantine(object);
}

const struct cei_object_type cei_channel_type = {
	"channel", offsetof(ceov_context, uppers), stop, quarantine, NULL
};

int ceov_channel_create(ceov_context *context, const struct ceov_channel_config *from,
			ceov_channel **ret_channel)
{
	struct ceov_channel_config config;
	struct ceov_place place;
	ceov_channel *channel;
	int r = take_config(context, from, &config, &place);

	if (r)
		return r;
	if (!ret_channel)
		return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
				 "ceov_channel_create: no ret_channel");
	channel = calloc(1, sizeof(*channel));
	if (!channel)
		return cei_raise(&context->report, CEOV_ERR_NO_MEMORY, 0,
				 "ceov_channel_create: no memory for a handle");
	strcpy(channel->name, config.name);     /* checked to fit */
	channel->rank = config.rank;
	channel->n_ranks = context->site.n_ranks;
	channel->ring_bytes = config.ring_bytes ? config.ring_bytes :
		place.kind == CEOV_PLACE_GPU ? GPU_RING_BYTES : RING_BYTES;
	channel->slot_bytes = channel->ring_bytes / CEI_RING_SLOTS / SLOT_ALIGN * SLOT_ALIGN;
	channel->deadline_ns = config.deadline_ns ? config.deadline_ns : context->deadline_ns;
	channel->message_bytes = message_bytes(channel);
	cei_backoff_reset(&channel->backoff);
	pthread_mutex_init(&channel->lock, NULL);
	pthread_mutex_init(&channel->turns_lock, NULL);
	cei_object_init(&channel->object, context, &cei_channel_type);
	r = place.kind == CEOV_PLACE_GPU ? cei_gpu_channel_open(channel, place.index) : 0;
	if (!r)
		r = make_ring(channel);
	if (!r) {
		*ret_channel = channel;
		return 0;
	}
	(void)release_rings(channel);           /* what a peer has found stays until ceov_close() */
	quarantine(&channel->object);
	return r;
}

/* --- connection ----------------------------------------------------------------------------- */

static int find_ring(void *arg, uint32_t rank, uint64_t by_ns)
{
	ceov_channel *channel = arg;
	char name[CEI_GROUP_NAME_BYTES];
	struct cei_lookup lookup = { rank, name_of(channel, name), by_ns };
	uint64_t bytes;
	int r = 0;

	if (!channel->buffers[rank])
		r = cei_buffer_find(channel->object.context, &lookup, &channel->buffers[rank]);
	if (r)
		return r;
	bytes = channel->buffers[rank]->region->size_bytes;
	channel->rings[rank] = cei_buffer_address(channel->buffers[rank], channel->rank);
	if (bytes == shared_bytes(channel) && channel->rings[rank])
		return 0;
	return cei_raise(cei_channel_report(channel), CEOV_ERR_INVALID, 0,
			 "ceov_channel_connect: '%s': rank %u shares %" PRIu64 " bytes, rank %u %"
			 PRIu64 "; give all ranks the same ring_bytes", channel->name,
			 channel->rank, shared_bytes(channel), rank, bytes);
}

int ceov_channel_connect(ceov_channel *channel, uint64_t timeout_ns)
{
	static const char call[] = "ceov_channel_connect";
	struct cei_find_peers peers = { .call = call, .arg = channel, .find = find_ring };
	uint64_t deadline_ns = cei_deadline(timeout_ns);
	int r = cei_object_check(channel, &cei_channel_type, call);

	if (r)
		return r;
	peers.context = channel->object.context;
	peers.rank = channel->rank;
	peers.name = channel->name;
	pthread_mutex_lock(&channel->lock);
	r = cei_find_peers(&peers, deadline_ns);
	if (!r && channel->gpu)
		r = cei_gpu_channel_connect(channel);
	pthread_mutex_unlock(&channel->lock);
	if (r)
		return r == CEOV_NONE ? CEOV_PENDING : r;
	/* release: pairs with the acquire in check_connected(); the peers' rings are seen then */
	atomic_store_explicit(&channel->is_connected, 1, memory_order_release);
	return 0;
}

/* --- release -------------------------------------------------------------------------------- */

int ceov_channel_release(ceov_channel *channel)
{
	int r;

	if (!channel)
		return 0;
	r = cei_object_check(channel, &cei_channel_type, "ceov_channel_release");
	if (r)
		return r;
	if (channel->pool)
		return cei_raise(cei_channel_report(channel), CEOV_ERR_STATE, 0,
				 "ceov_channel_release: channel '%s' of rank %u has a pool: "
				 "release that before", channel->name, channel->rank);
	if (channel->gpu && cei_gpu_channel_idle(channel))
		return CEOV_PENDING;
	/* A channel of which something was released makes no more calls. */
	(void)cei_channel_end(channel, CEOV_ERR_STATE);
	pthread_mutex_lock(&channel->lock);
	r = release_rings(channel);
	pthread_mutex_unlock(&channel->lock);
	if (!r)
		quarantine(&channel->object);
	return r;
}
