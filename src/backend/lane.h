/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_LANE_H
#define CEI_LANE_H

/*
 * Opens and closes lanes and backends of every kind, with their private state.
 */

#include "backend/backend.h"

/* Zeroes the lane, gives it its private state, and opens it. On failure the lane is
 * zeroed again. peer: see struct cei_lane. */
int  cei_lane_open(struct cei_lane *lane, struct cei_backend *backend,
		   enum cei_direction direction, uint32_t peer, uint32_t index);

/* Stops the lane and waits until it is idle, bounded. CEOV_ERR_TIMEOUT, not raised: it
 * was not at deadline_ns, a point in time. Accepts a zeroed lane. */
int  cei_lane_stop(struct cei_lane *lane, uint64_t deadline_ns);

/* Gives the lane a bounded time to finish its operations, stops it and closes it. A lane that
 * cannot be stopped stays as it is, with its memory, and an error is logged. Accepts a zeroed
 * lane. */
void cei_lane_close(struct cei_lane *lane);

/* Fills the backend, allocates its private state and opens it. close accepts a zeroed
 * backend. */
int  cei_backend_open(struct cei_backend *backend, const struct cei_place_ops *ops,
		      struct cei_site *site, uint32_t member, struct ceov_place place);
void cei_backend_close(struct cei_backend *backend);

/* Returns whether the backend reaches the memory: by memory_reaches, or, if that is NULL,
 * whether the memory is mapped for its member. */
int  cei_backend_reaches(struct cei_backend *backend, const struct cei_memory *memory);

#endif /* CEI_LANE_H */
