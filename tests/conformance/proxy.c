/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Implements the mover that forwards to another one, with disturbances. */

#include "proxy.h"

#include <string.h>

#include "base/clock.h"
#include "base/report.h"
#include "ipc/share.h"
#include "testing.h"

/* An address with this bit consists of the number of a memory, from 1, and an offset. */
#define HANDLE       (UINT64_C(1) << 63)
#define OFFSET_BITS  40u
#define OFFSET_MASK  ((UINT64_C(1) << OFFSET_BITS) - 1)

/* State of a proxy lane; the other mover's lane follows it in memory. */
struct proxy_lane {
	uint64_t n_submitted;
	uint64_t n_seen;                /* the newest end that the other mover has reported */
	uint64_t seen_ns;               /* when it was reported */
	uint64_t n_told;
};

static struct proxy *proxy_of(const struct cei_lane *lane)
{
	return (struct proxy *)(uintptr_t)lane->backend->ops;
}

static uint32_t room_for(const struct cei_place_ops *under)
{
	return (under->lanes->lane_bytes + 15u) / 16u * 16u;
}

static struct proxy_lane *state_of(const struct cei_lane *lane)
{
	return (struct proxy_lane *)((char *)lane->private + room_for(proxy_of(lane)->under));
}

static int proxy_open(struct cei_backend *backend)
{
	const struct proxy *proxy = (const struct proxy *)backend->ops;

	if (proxy->is_absent)
		return CEOV_NONE;
	cei_log(backend->site->report, CEI_LOG_WARN, "proxy: a test double is in front of the "
		"mover %s: it may delay, reorder and end early", proxy->under->name);
	return proxy->under->open(backend);
}

/* --- addresses ----------------------------------------------------------- */

/* Returns the memory's address for the member or, if it is not mapped, its address in this
 * process. */
static uint64_t find(const struct cei_memory *memory)
{
	return memory->address ? memory->address
		: (uint64_t)(uintptr_t)memory->region->host;
}

static int proxy_reaches(struct cei_backend *backend, const struct cei_memory *memory)
{
	(void)backend;
	return find(memory) != 0;
}

static int proxy_memory_open(struct cei_backend *backend, const struct cei_memory *memory,
			     uint64_t *ret_address)
{
	struct proxy *proxy = (struct proxy *)(uintptr_t)backend->ops;
	uint64_t i;

	for (i = 0; i < PROXY_MEMORIES; i++) {
		if (proxy->memory[i])
			continue;
		proxy->memory[i] = find(memory);
		atomic_fetch_add(&proxy->n_open, 1);
		*ret_address = HANDLE | (i + 1) << OFFSET_BITS;
		return 0;
	}
	return CEOV_ERR_NO_MEMORY;
}

static uint64_t *memory_at(struct proxy *proxy, uint64_t address)
{
	uint64_t number = (address & ~HANDLE) >> OFFSET_BITS;

	ck_assert_uint_ge(number, 1);
	ck_assert_uint_le(number, PROXY_MEMORIES);
	ck_assert_uint_ne(proxy->memory[number - 1], 0);
	return &proxy->memory[number - 1];
}

static void proxy_memory_close(struct cei_backend *backend, uint64_t address)
{
	struct proxy *proxy = (struct proxy *)(uintptr_t)backend->ops;

	ck_assert_uint_eq(address & OFFSET_MASK, 0);
	*memory_at(proxy, address) = 0;
	atomic_fetch_sub(&proxy->n_open, 1);
}

static uint64_t mapped(struct proxy *proxy, uint64_t address)
{
	if (!proxy->has_handles || !(address & HANDLE))
		return address;
	return *memory_at(proxy, address) + (address & OFFSET_MASK);
}

/* --- lanes --------------------------------------------------------------- */

static int proxy_copy(struct cei_lane *lane, const struct cei_piece *pieces, uint32_t n_pieces)
{
	struct proxy *proxy = proxy_of(lane);
	struct cei_piece changed[CEI_LANE_BATCH];
	uint32_t i;
	int r;

	if (n_pieces > CEI_LANE_BATCH)
		return proxy->under->lanes->copy(lane, pieces, n_pieces);
	for (i = 0; i < n_pieces; i++) {
		changed[i] = pieces[proxy->is_reversed ? n_pieces - 1 - i : i];
		changed[i].source = mapped(proxy, changed[i].source);
		changed[i].target = mapped(proxy, changed[i].target);
	}
	r = proxy->under->lanes->copy(lane, changed, n_pieces);
	if (!r)
		atomic_fetch_add(&proxy->n_pieces, n_pieces);
	return r;
}

static int proxy_post(struct cei_lane *lane, const struct cei_post *posts, uint32_t n_posts)
{
	struct proxy *proxy = proxy_of(lane);
	struct cei_post changed[CEI_LANE_BATCH];
	uint32_t i;

	if (n_posts > CEI_LANE_BATCH)
		return proxy->under->lanes->post(lane, posts, n_posts);
	for (i = 0; i < n_posts; i++) {
		changed[i] = posts[proxy->is_reversed ? n_posts - 1 - i : i];
		changed[i].counter = mapped(proxy, changed[i].counter);
		changed[i].word = mapped(proxy, changed[i].word);
	}
	return proxy->under->lanes->post(lane, changed, n_posts);
}

static int proxy_submit(struct cei_lane *lane)
{
	struct proxy_lane *state = state_of(lane);

	if (proxy_of(lane)->is_early && !(state->n_submitted++ % 2))
		return 0;
	return proxy_of(lane)->under->lanes->submit(lane);
}

static int proxy_reap(struct cei_lane *lane, uint64_t *ret_n_done)
{
	struct proxy_lane *state = state_of(lane);
	uint64_t n_done, now = cei_now_ns();
	int r;

	if (proxy_of(lane)->is_early) {
		*ret_n_done = state->n_submitted;
		return 0;
	}
	r = proxy_of(lane)->under->lanes->reap(lane, &n_done);
	if (n_done != state->n_seen) {
		state->n_seen = n_done;
		state->seen_ns = now;
	}
	if (now - state->seen_ns >= proxy_of(lane)->late_ns)
		state->n_told = state->n_seen;
	*ret_n_done = state->n_told;
	return r;
}

void proxy_init(struct proxy *proxy, const struct cei_place_ops *under)
{
	memset(proxy, 0, sizeof(*proxy));
	proxy->under = under;
	proxy->ops = *under;
	proxy->ops.name = "proxy";
	proxy->ops.lanes = &proxy->lanes;
	proxy->ops.open = proxy_open;
	proxy->lanes = *under->lanes;
	proxy->lanes.lane_bytes = room_for(under) + (uint32_t)sizeof(struct proxy_lane);
	proxy->lanes.copy = proxy_copy;
	proxy->lanes.post = proxy_post;
	proxy->lanes.submit = proxy_submit;
	proxy->lanes.reap = proxy_reap;
}

void proxy_use_handles(struct proxy *proxy)
{
	proxy->has_handles = 1;
	proxy->ops.memory_reaches = proxy_reaches;
	proxy->ops.memory_open = proxy_memory_open;
	proxy->ops.memory_close = proxy_memory_close;
}
