/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef FAKE_EVENT_H
#define FAKE_EVENT_H

/*
 * Fake stream events for host ranks, which have no streams. They stand for the events that a GPU's
 * backend has. The test that plays the streams decides when an event is reached; lanes wait for
 * that.
 */

#include <stdint.h>

#include "backend/lane.h"

struct fake_event {
	_Atomic uint64_t is_reached;    /* release: pairs with the acquire of the lane's wait */
	uint32_t         is_aborted;    /* always 0 */
};

/* Replaces the event functions in a copy of the host's table, and gives it a copy of the lanes'
 * functions that it had. record marks the event as not reached
 * yet, and stores it where the test finds it for the stream of that token. */
void fake_event_install(struct cei_place_ops *ops, struct cei_lane_ops *lanes,
			int (*record)(struct cei_backend *backend, void *event, void *token));

/* Gives an open engine another table in place of its own, also to lanes that are open. */
struct cei_engine;
void fake_table_use(struct cei_engine *engine, const struct cei_place_ops *ops);

#endif /* FAKE_EVENT_H */
