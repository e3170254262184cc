/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef POINT_H
#define POINT_H

/*
 * Points of streams, for host ranks, which have none: what a backend's events are on
 * GPUs. Who plays the streams says when one is reached; lanes wait for that.
 */

#include <stdint.h>

#include "backend/backend.h"

struct point {
	_Atomic uint64_t is_reached;    /* release: pairs with the acquire of the lane's wait */
	uint32_t         is_aborted;    /* never */
};

/* Puts points into a copy of the host's table. record marks the point of a token's stream
 * as not reached yet, and keeps it where the stream finds it. */
void point_install(struct cei_backend_ops *ops,
		   int (*record)(struct cei_backend *backend, void *event, void *token));

#endif /* POINT_H */
