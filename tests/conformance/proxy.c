/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The mover in front of another one. */

#include "proxy.h"

#include <string.h>

#include "base/clock.h"
#include "testing.h"

static struct proxy *proxy_of(const struct cei_lane *lane)
{
	return (struct proxy *)(uintptr_t)lane->backend->ops;
}

static struct proxy_lane *state_of(const struct cei_lane *lane)
{
	ck_assert_uint_lt(lane->index, PROXY_LANES);
	return &proxy_of(lane)->lanes[lane->index];
}

static int proxy_lane_open(struct cei_lane *lane)
{
	memset(state_of(lane), 0, sizeof(struct proxy_lane));
	return proxy_of(lane)->under->lane_open(lane);
}

static int proxy_copy(struct cei_lane *lane, const struct cei_piece *pieces, uint32_t n_pieces)
{
	struct cei_piece reversed[CEI_LANE_BATCH];
	uint32_t i;

	if (!proxy_of(lane)->is_reversed || n_pieces > CEI_LANE_BATCH)
		return proxy_of(lane)->under->copy(lane, pieces, n_pieces);
	for (i = 0; i < n_pieces; i++)
		reversed[i] = pieces[n_pieces - 1 - i];
	return proxy_of(lane)->under->copy(lane, reversed, n_pieces);
}

static int proxy_post(struct cei_lane *lane, const struct cei_post *posts, uint32_t n_posts)
{
	struct cei_post reversed[CEI_LANE_BATCH];
	uint32_t i;

	if (!proxy_of(lane)->is_reversed || n_posts > CEI_LANE_BATCH)
		return proxy_of(lane)->under->post(lane, posts, n_posts);
	for (i = 0; i < n_posts; i++)
		reversed[i] = posts[n_posts - 1 - i];
	return proxy_of(lane)->under->post(lane, reversed, n_posts);
}

static int proxy_submit(struct cei_lane *lane)
{
	struct proxy_lane *state = state_of(lane);

	if (proxy_of(lane)->is_early && !(state->n_submitted++ % 2))
		return 0;
	return proxy_of(lane)->under->submit(lane);
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
	r = proxy_of(lane)->under->reap(lane, &n_done);
	if (n_done != state->n_seen) {
		state->n_seen = n_done;
		state->seen_ns = now;
	}
	if (now - state->seen_ns >= proxy_of(lane)->late_ns)
		state->n_told = state->n_seen;
	*ret_n_done = state->n_told;
	return r;
}

void proxy_init(struct proxy *proxy, const struct cei_backend_ops *under)
{
	memset(proxy, 0, sizeof(*proxy));
	proxy->under = under;
	proxy->ops = *under;
	proxy->ops.name = "proxy";
	proxy->ops.lane_open = proxy_lane_open;
	proxy->ops.copy = proxy_copy;
	proxy->ops.post = proxy_post;
	proxy->ops.submit = proxy_submit;
	proxy->ops.reap = proxy_reap;
}
