/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Points in memory of their own. */

#include "point.h"

#include <stdlib.h>

static int open_point(struct cei_backend *backend, void **ret_event)
{
	(void)backend;
	*ret_event = calloc(1, sizeof(struct point));
	return *ret_event ? 0 : CEOV_ERR_NO_MEMORY;
}

static void close_point(struct cei_backend *backend, void *event)
{
	(void)backend;
	free(event);
}

static int follow(struct cei_lane *lane, void *event)
{
	struct point *point = event;
	struct cei_await await = { (uintptr_t)&point->is_reached, 1, &point->is_aborted };

	return lane->backend->ops->wait(lane, &await);
}

void point_install(struct cei_backend_ops *ops,
		   int (*record)(struct cei_backend *backend, void *event, void *token))
{
	ops->event_open = open_point;
	ops->event_close = close_point;
	ops->event_record = record;
	ops->follow = follow;
}
