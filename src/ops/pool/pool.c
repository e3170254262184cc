/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Makes pools, connects them with those of peers, hands out their memory, and releases them. */

#include "ops/pool/pool.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sized.h"
#include "ce_engine/objects/buffer.h"
#include "ce_engine/objects/context.h"
#include "ops/channel/gpu.h"
#include "ops/core/find_peers.h"

#define SEGMENT_ALIGN (UINT64_C(2) << 20)

void cei_pool_name(const ceov_pool *pool, uint32_t segment, char *text)
{
	if (segment == CEI_POOL_NOWHERE)
		snprintf(text, CEI_GROUP_NAME_BYTES, "pd.%s", pool->channel->name);
	else
		snprintf(text, CEI_GROUP_NAME_BYTES, "ps.%u.%s", segment, pool->channel->name);
}

/* --- memory ---------------------------------------------------------------------------------- */

static int raise_no_memory(const ceov_pool *pool, uint64_t size_bytes, const char *why)
{
	return cei_raise(cei_channel_report(pool->channel), CEOV_ERR_NO_MEMORY, 0,
			 "ceov_pool_alloc: pool of channel '%s', rank %u: %" PRIu64 " bytes: %s",
			 pool->channel->name, pool->channel->rank, size_bytes, why);
}

/* Returns the smallest free segment that has room and is not twice as large, or NULL. */
static struct cei_pool_segment *free_segment(ceov_pool *pool, uint64_t size_bytes)
{
	struct cei_pool_segment *segment, *best = NULL;
	uint32_t i;

	for (i = 0; i < pool->n_segments; i++) {
		segment = &pool->segments[i];
		if (!segment->is_used && segment->size_bytes >= size_bytes &&
		    segment->size_bytes / 2 <= size_bytes &&
		    (!best || segment->size_bytes < best->size_bytes))
			best = segment;
	}
	return best;
}

/* Takes a segment from the driver and shares it. */
static int add_segment(ceov_pool *pool, uint64_t size_bytes)
{
	struct cei_pool_segment *segment = &pool->segments[pool->n_segments];
	ceov_channel *channel = pool->channel;
	char name[CEI_GROUP_NAME_BYTES];
	int r;

	if (pool->is_released)
		return cei_raise(cei_channel_report(channel), CEOV_ERR_STATE, 0, "ceov_pool_alloc: "
				 "the pool of channel '%s' is released", channel->name);
	if (pool->n_segments == CEOV_POOL_SEGMENTS_MAX)
		return raise_no_memory(pool, size_bytes, "it has 256 segments, which is the most: "
				       "allocate larger ones");
	if (pool->max_bytes && size_bytes > pool->max_bytes - pool->segment_bytes)
		return raise_no_memory(pool, size_bytes, "its segments would take more than "
				       "max_bytes together");
	r = ceov_buffer_create(channel->object.context, channel->rank, size_bytes,
			       &segment->buffer);
	if (r)
		return r;
	cei_pool_name(pool, pool->n_segments, name);
	r = ceov_buffer_share(segment->buffer, name);
	if (r) {
		(void)ceov_buffer_release(segment->buffer);
		return r;
	}
	segment->base = cei_buffer_address(segment->buffer, channel->rank);
	segment->size_bytes = size_bytes;
	pool->segment_bytes += size_bytes;
	pool->n_segments++;
	/* release: pairs with map() of peers, which find the segment then */
	atomic_store_explicit(&cei_pool_own_desk(pool)->n_segments, pool->n_segments,
			      memory_order_release);
	return 0;
}

int ceov_pool_alloc(ceov_pool *pool, uint64_t size_bytes, void **ret_memory)
{
	struct cei_pool_segment *segment;
	struct cei_report_hold hold;
	int r = cei_object_check(pool, &cei_pool_type, "ceov_pool_alloc");

	if (r)
		return r;
	if (!size_bytes || size_bytes > UINT64_MAX - SEGMENT_ALIGN || !ret_memory)
		return cei_raise(cei_channel_report(pool->channel), CEOV_ERR_INVALID, 0,
				 "ceov_pool_alloc: size_bytes is 0 or too large, or no ret_memory");
	size_bytes = (size_bytes + SEGMENT_ALIGN - 1) / SEGMENT_ALIGN * SEGMENT_ALIGN;
	cei_report_hold_begin(cei_channel_report(pool->channel), &hold);
	pthread_mutex_lock(&pool->lock);
	segment = pool->is_released ? NULL : free_segment(pool, size_bytes);
	if (!segment) {
		r = add_segment(pool, size_bytes);
		segment = &pool->segments[pool->n_segments - 1];
	}
	if (!r) {
		segment->is_used = 1;
		*ret_memory = segment->base;
	}
	pthread_mutex_unlock(&pool->lock);
	cei_report_hold_end(cei_channel_report(pool->channel), &hold);
	return r;
}

int ceov_pool_free(ceov_pool *pool, void *memory)
{
	int r = cei_object_check(pool, &cei_pool_type, "ceov_pool_free");
	uint32_t i;

	if (r || !memory)
		return r;
	pthread_mutex_lock(&pool->lock);
	for (i = 0; i < pool->n_segments; i++)
		if (pool->segments[i].base == memory && pool->segments[i].is_used)
			break;
	if (i < pool->n_segments)
		pool->segments[i].is_used = 0;
	else
		r = CEOV_ERR_INVALID;
	pthread_mutex_unlock(&pool->lock);
	return r ? cei_raise(cei_channel_report(pool->channel), r, 0, "ceov_pool_free: %p is no "
			     "memory that the pool of channel '%s' has handed out", memory,
			     pool->channel->name) : 0;
}

uint32_t cei_pool_find(ceov_pool *pool, const void *memory, uint64_t n, uint64_t *ret_offset)
{
	uint32_t i, found = CEI_POOL_NOWHERE;
	uint64_t at;

	pthread_mutex_lock(&pool->lock);
	for (i = 0; i < pool->n_segments && found == CEI_POOL_NOWHERE; i++) {
		at = (uint64_t)(uintptr_t)memory - (uint64_t)(uintptr_t)pool->segments[i].base;
		if (at >= pool->segments[i].size_bytes || n > pool->segments[i].size_bytes - at)
			continue;
		found = i;
		*ret_offset = at;
	}
	pthread_mutex_unlock(&pool->lock);
	return found;
}

int ceov_pool_query(ceov_pool *pool, struct ceov_pool_info *ret_info)
{
	struct ceov_pool_info info = CEOV_POOL_INFO_INIT;
	int r = cei_object_check(pool, &cei_pool_type, "ceov_pool_query");
	uint32_t i;

	if (r)
		return r;
	pthread_mutex_lock(&pool->lock);
	info.segment_bytes = pool->segment_bytes;
	info.n_segments = pool->n_segments;
	for (i = 0; i < pool->n_segments; i++)
		if (pool->segments[i].is_used)
			info.used_bytes += pool->segments[i].size_bytes;
	pthread_mutex_unlock(&pool->lock);
	/* relaxed, all: they announce nothing */
	info.is_connected = atomic_load_explicit(&pool->is_connected, memory_order_relaxed);
	info.n_engine_calls = atomic_load_explicit(&pool->n_engine_calls, memory_order_relaxed);
	info.n_kernel_calls = atomic_load_explicit(&pool->n_kernel_calls, memory_order_relaxed);
	return cei_sized_answer(cei_channel_report(pool->channel), ret_info, &info, sizeof(info),
				"ceov_pool_query: ret_info");
}

/* --- creation ------------------------------------------------------------------------------- */

static const char *fault_of(const ceov_channel *channel)
{
	if (!channel->gpu)
		return "its rank is on the host, whose ranks have no pools";
	/* acquire: pairs with ceov_channel_connect() */
	if (!atomic_load_explicit(&channel->is_connected, memory_order_acquire))
		return "it is not connected yet";
	return channel->pool ? "it has a pool" : NULL;
}

static int make_desk(ceov_pool *pool)
{
	const ceov_channel *channel = pool->channel;
	ceov_buffer **buffer = &pool->desk_buffers[channel->rank];
	char name[CEI_GROUP_NAME_BYTES];
	int r = cei_buffer_create_on_host(channel->object.context, channel->rank,
					  sizeof(struct cei_pool_desk), buffer);

	if (r)
		return r;
	pool->desks[channel->rank] = ceov_buffer_base(*buffer, channel->rank);
	memset(pool->desks[channel->rank], 0, sizeof(struct cei_pool_desk));
	cei_pool_name(pool, CEI_POOL_NOWHERE, name);
	return ceov_buffer_share(*buffer, name);
}

/* Frees what calls have no part in. */
static void end(ceov_pool *pool)
{
	ceov_channel *channel = pool->channel;

	cei_pool_forget_functions(pool);
	cei_pool_gpu_close(pool);
	pthread_mutex_lock(&channel->lock);
	if (channel->pool == pool)
		channel->pool = NULL;
	pthread_mutex_unlock(&channel->lock);
	pthread_mutex_destroy(&pool->lock);
	cei_object_quarantine(&pool->object);
}

/* While the thread runs it opens what streams wait for. */
static void stop(struct cei_object *object)
{
	ceov_pool *pool = CEI_OWNER(object, ceov_pool, object);
	uint64_t deadline_ns = cei_deadline(pool->channel->deadline_ns);
	struct cei_backoff backoff;

	(void)cei_channel_end(pool->channel, CEOV_ERR_ABORTED);
	cei_backoff_reset(&backoff);
	cei_pool_ring(pool);
	while ((cei_gpu_channel_idle(pool->channel) || !cei_pool_gpu_is_idle(pool)) &&
	       cei_now_ns() < deadline_ns)
		cei_backoff_step(&backoff);
	cei_pool_stop(pool);
}

static void destroy(struct cei_object *object)
{
	cei_object_end(object);
	end(CEI_OWNER(object, ceov_pool, object));
}

const struct cei_object_type cei_pool_type = {
	"pool", offsetof(ceov_context, uppers), stop, destroy, NULL
};

int ceov_pool_create(ceov_channel *channel, const struct ceov_pool_config *from,
		     ceov_pool **ret_pool)
{
	static const char call[] = "ceov_pool_create";
	struct ceov_pool_config config;
	const char *fault;
	ceov_pool *pool;
	int r = cei_object_check(channel, &cei_channel_type, call);

	if (!r)
		r = cei_sized_check(cei_channel_report(channel), from, sizeof(*from),
				    sizeof(*from), "ceov_pool_create: config");
	if (r)
		return r;
	cei_sized_take(&config, from, sizeof(config));
	pthread_mutex_lock(&channel->lock);
	fault = ret_pool ? fault_of(channel) : "no ret_pool";
	pool = fault ? NULL : calloc(1, sizeof(*pool));
	if (pool) {
		pool->channel = channel;
		pool->max_bytes = config.max_bytes;
		pthread_mutex_init(&pool->lock, NULL);
		channel->pool = pool;
		channel->pool_ops = &cei_pool_ops;
	}
	pthread_mutex_unlock(&channel->lock);
	if (!pool)
		return cei_raise(cei_channel_report(channel), !fault ? CEOV_ERR_NO_MEMORY :
				 channel->gpu ? CEOV_ERR_STATE : CEOV_ERR_INVALID, 0,
				 "%s: channel '%s', rank %u: %s", call, channel->name,
				 channel->rank, fault ? fault : "no memory for a handle");
	cei_object_init(&pool->object, channel->object.context, &cei_pool_type);
	r = make_desk(pool);
	if (!r) {
		*ret_pool = pool;
		return 0;
	}
	(void)ceov_buffer_release(pool->desk_buffers[channel->rank]);
	destroy(&pool->object);
	return r;
}

/* --- connection ----------------------------------------------------------------------------- */

static int find_desk(void *arg, uint32_t rank, uint64_t by_ns)
{
	ceov_pool *pool = arg;
	ceov_channel *channel = pool->channel;
	ceov_buffer **buffer = &pool->desk_buffers[rank];
	char name[CEI_GROUP_NAME_BYTES];
	struct cei_lookup lookup = { rank, name, by_ns };
	int r = 0;

	cei_pool_name(pool, CEI_POOL_NOWHERE, name);
	if (!*buffer)
		r = cei_buffer_find(channel->object.context, &lookup, buffer);
	if (r)
		return r;
	pool->desks[rank] = ceov_buffer_base(*buffer, channel->rank);
	if (pool->desks[rank] && cei_buffer_address(*buffer, channel->rank) &&
	    (*buffer)->region->kind == CEOV_PLACE_HOST &&
	    (*buffer)->region->size_bytes == sizeof(struct cei_pool_desk))
		return 0;
	return cei_raise(cei_channel_report(channel), CEOV_ERR_INVALID, 0,
			 "ceov_pool_connect: channel '%s', rank %u: what rank %u shares is no pool "
			 "of this version", channel->name, channel->rank, rank);
}

static int start(ceov_pool *pool)
{
	int r = pool->gpu ? 0 : cei_pool_gpu_open(pool);

	if (!r)
		r = cei_pool_start(pool);
	if (r)
		return r;
	/* release: pairs with takes(); relaxed would do, since both hold the lock */
	atomic_store_explicit(&pool->is_connected, 1, memory_order_release);
	return 0;
}

int ceov_pool_connect(ceov_pool *pool, uint64_t timeout_ns)
{
	static const char call[] = "ceov_pool_connect";
	struct cei_find_peers peers = { .call = call, .arg = pool, .find = find_desk };
	uint64_t deadline_ns = cei_deadline(timeout_ns);
	int r = cei_object_check(pool, &cei_pool_type, call);

	if (r)
		return r;
	peers.context = pool->object.context;
	peers.rank = pool->channel->rank;
	peers.name = pool->channel->name;
	pthread_mutex_lock(&pool->channel->lock);
	/* relaxed: the lock orders it */
	if (!atomic_load_explicit(&pool->is_connected, memory_order_relaxed)) {
		r = cei_find_peers(&peers, deadline_ns);
		if (!r)
			r = start(pool);
	}
	pthread_mutex_unlock(&pool->channel->lock);
	return r == CEOV_NONE ? CEOV_PENDING : r;
}

/* --- release -------------------------------------------------------------------------------- */

/* First what was found at a peer, because it may wait for that. */
static int release_found(ceov_pool *pool, uint32_t rank)
{
	int r = 0;

	while (!r && pool->n_found[rank]) {
		r = ceov_buffer_release(pool->found[rank][pool->n_found[rank] - 1]);
		if (!r)
			pool->n_found[rank]--;
	}
	if (!r)
		r = ceov_buffer_release(pool->desk_buffers[rank]);
	if (!r)
		pool->desk_buffers[rank] = NULL;
	return r;
}

static int release_own(ceov_pool *pool)
{
	ceov_buffer **desk = &pool->desk_buffers[pool->channel->rank];
	struct cei_pool_segment *segment;
	int r = 0;

	while (pool->n_segments) {
		segment = &pool->segments[pool->n_segments - 1];
		r = ceov_buffer_release(segment->buffer);
		if (r)
			break;
		pool->segment_bytes -= segment->size_bytes;
		pool->n_segments--;
	}
	if (!r)
		r = ceov_buffer_release(*desk);
	if (!r)
		*desk = NULL;
	return r;
}

static int release_all(ceov_pool *pool)
{
	uint32_t rank;
	int r = 0;

	for (rank = 0; !r && rank < pool->channel->n_ranks; rank++)
		if (rank != pool->channel->rank)
			r = release_found(pool, rank);
	return r ? r : release_own(pool);
}

int ceov_pool_release(ceov_pool *pool)
{
	int r;

	if (!pool)
		return 0;
	r = cei_object_check(pool, &cei_pool_type, "ceov_pool_release");
	if (r)
		return r;
	if (cei_gpu_channel_idle(pool->channel))
		return CEOV_PENDING;
	/* A channel of whose pool something was released makes no more calls. One that was never
	 * connected has no part in them. */
	if (pool->has_thread)
		(void)cei_channel_end(pool->channel, CEOV_ERR_STATE);
	cei_pool_stop(pool);
	if (!cei_pool_gpu_is_idle(pool))
		return CEOV_PENDING;
	cei_pool_forget_functions(pool);
	pthread_mutex_lock(&pool->lock);
	pool->is_released = 1;
	r = release_all(pool);
	pthread_mutex_unlock(&pool->lock);
	if (r)
		return r;
	destroy(&pool->object);
	return 0;
}
