/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef FAKE_EVENT_H
#define FAKE_EVENT_H

/*
 * Fake events of streams, for host ranks, which have none: what a backend's events are on
 * GPUs. The test that plays the streams says when one is reached; lanes wait for that.
 */

#include <stdint.h>

#include "backend/backend.h"

struct fake_event {
	_Atomic uint64_t is_reached;    /* release: pairs with the acquire of the lane's wait */
	uint32_t         is_aborted;    /* never */
};

/* Gives a copy of the host's table functions for events. record marks the event of a
 * token's stream as not reached yet, and keeps it where the stream finds it. */
void fake_event_install(struct cei_backend_ops *ops,
			int (*record)(struct cei_backend *backend, void *event, void *token));

#endif /* FAKE_EVENT_H */
