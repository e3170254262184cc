/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Opens and closes lanes with their private state, and undoes a failed open. */

#include "backend/lane.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/* time that a closing lane gets to end its work, and again to stop */
#define CLOSE_NS UINT64_C(1000000000)

int cei_lane_open(struct cei_lane *lane, struct cei_backend *backend,
		  enum cei_direction direction, uint32_t peer, uint32_t index)
{
	int r;

	memset(lane, 0, sizeof(*lane));
	lane->ops = backend->ops->lanes;
	lane->backend = backend;
	lane->direction = direction;
	lane->peer = peer;
	lane->index = index;
	lane->private = calloc(1, lane->ops->lane_bytes);
	if (!lane->private)
		return cei_raise(backend->site->report, CEOV_ERR_NO_MEMORY, 0,
				 "%s: lane %u: no memory", backend->ops->name, index);
	r = lane->ops->open(lane);
	if (r)
		cei_lane_close(lane);
	return r;
}

/* Polls until the lane is idle. CEOV_ERR_TIMEOUT, not raised. */
static int await_idle(struct cei_lane *lane, uint64_t deadline_ns)
{
	struct cei_backoff backoff;

	cei_backoff_reset(&backoff);
	while (!lane->ops->is_idle(lane)) {
		if (cei_now_ns() >= deadline_ns)
			return CEOV_ERR_TIMEOUT;
		cei_backoff_step(&backoff);
	}
	return 0;
}

int cei_lane_stop(struct cei_lane *lane, uint64_t deadline_ns)
{
	if (!lane->private)
		return 0;
	lane->ops->stop(lane);
	return await_idle(lane, deadline_ns);
}

void cei_lane_close(struct cei_lane *lane)
{
	if (lane->private)
		(void)await_idle(lane, cei_deadline(CLOSE_NS));
	if (cei_lane_stop(lane, cei_deadline(CLOSE_NS))) {
		(void)cei_raise(lane->backend->site->report, CEOV_ERR_TIMEOUT, 0,
				"%s: lane %u still moves bytes and cannot be closed; its "
				"memory is left to it", lane->backend->ops->name,
				lane->index);
		return;
	}
	if (lane->private)
		lane->ops->close(lane);
	free(lane->private);
	memset(lane, 0, sizeof(*lane));
}
