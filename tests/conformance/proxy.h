/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PROXY_H
#define CEI_PROXY_H

/*
 * A mover in front of another one, for tests: it hands all calls on and makes the ends of
 * submits late, the order of what has no order different, or ends early, which no mover may.
 * Its lanes are opened through it or were opened by the other one before.
 */

#include <stdint.h>

#include "backend/backend.h"

#define PROXY_LANES 64u

struct proxy_lane {
	uint64_t n_submitted;
	uint64_t n_seen;                /* ends that the other mover has told, ... */
	uint64_t seen_ns;               /* and when */
	uint64_t n_told;
};

struct proxy {
	struct cei_backend_ops        ops;      /* first: a backend's ops lead to the proxy */
	const struct cei_backend_ops *under;
	uint64_t                      late_ns;  /* reap() tells an end that much later */
	int                           is_reversed; /* pieces of a copy, and posts of a post */
	int                           is_early; /* reap() counts a submit at once, which is made
						 * with the next one only */
	struct proxy_lane             lanes[PROXY_LANES];       /* by index in the engine */
};

/* Fills a proxy that changes nothing yet; it lives longer than its backends. */
void proxy_init(struct proxy *proxy, const struct cei_backend_ops *under);

#endif /* CEI_PROXY_H */
