/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_LANE_H
#define CEI_LANE_H

/*
 * What the lanes of all backends share: opening with private state, and the number
 * of the submit that is being filled.
 */

#include "backend/backend.h"

/* Zeroes the lane, gives it its private state, and opens it. On failure the lane is
 * zeroed again. peer: see struct cei_lane. */
int  cei_lane_open(struct cei_lane *lane, struct cei_backend *backend,
		   enum cei_direction direction, uint32_t peer, uint32_t index);

/* Stops the lane and waits until it is idle, bounded. CEOV_ERR_TIMEOUT, not raised: it
 * was not at deadline_ns, a point in time. Accepts a zeroed lane. */
int  cei_lane_stop(struct cei_lane *lane, uint64_t deadline_ns);

/* Lets the lane come to its end, bounded, stops it and closes it. One that cannot be stopped
 * is left as it is, with its memory, and an error line says so. Accepts a zeroed lane. */
void cei_lane_close(struct cei_lane *lane);

/* Likewise for a backend: fills, allocates and opens; close accepts zeroes. */
int  cei_backend_open(struct cei_backend *backend, const struct cei_backend_ops *ops,
		      struct cei_site *site, uint32_t member, struct ceov_place place);
void cei_backend_close(struct cei_backend *backend);

/* The table's memory_reaches, or what stands for it where it is NULL. */
int  cei_backend_reaches(struct cei_backend *backend, const struct cei_memory *memory);

#endif /* CEI_LANE_H */
