/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Implements fake events, each allocated separately. */

#include "fake_event.h"

#include <stdlib.h>

#include "ce_engine/engine/engine.h"

static int open_event(struct cei_backend *backend, void **ret_event)
{
	(void)backend;
	*ret_event = calloc(1, sizeof(struct fake_event));
	return *ret_event ? 0 : CEOV_ERR_NO_MEMORY;
}

static void close_event(struct cei_backend *backend, void *event)
{
	(void)backend;
	free(event);
}

static int follow(struct cei_lane *lane, void *event)
{
	struct fake_event *fake = event;
	struct cei_await await = { (uintptr_t)&fake->is_reached, 1, &fake->is_aborted };

	return lane->ops->wait(lane, &await);
}

void fake_event_install(struct cei_place_ops *ops, struct cei_lane_ops *lanes,
			int (*record)(struct cei_backend *backend, void *event, void *token))
{
	ops->event_open = open_event;
	ops->event_close = close_event;
	ops->event_record = record;
	*lanes = *ops->lanes;
	lanes->follow = follow;
	ops->lanes = lanes;
}

void fake_table_use(struct cei_engine *engine, const struct cei_place_ops *ops)
{
	uint32_t i;

	engine->backend->ops = ops;
	for (i = 0; i < cei_lanes_n(&engine->lanes); i++)
		engine->lanes.states[i]->lane.ops = ops->lanes;
}
