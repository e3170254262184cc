/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Opening and closing of lanes and backends: private state, order of undoing. */

#include "backend/lane.h"

#include <stdlib.h>
#include <string.h>

int cei_lane_open(struct cei_lane *lane, struct cei_backend *backend,
		  enum cei_lane_kind kind, uint32_t index)
{
	int r;

	memset(lane, 0, sizeof(*lane));
	lane->backend = backend;
	lane->kind = kind;
	lane->index = index;
	lane->private = calloc(1, backend->ops->lane_bytes);
	if (!lane->private)
		return cei_raise(backend->site->report, CEOV_ERR_NO_MEMORY, 0,
				 "%s: lane %u: no memory", backend->ops->name, index);
	r = backend->ops->lane_open(lane);
	if (r)
		cei_lane_close(lane);
	return r;
}

void cei_lane_close(struct cei_lane *lane)
{
	if (lane->private)
		lane->backend->ops->lane_close(lane);
	free(lane->private);
	memset(lane, 0, sizeof(*lane));
}

int cei_backend_open(struct cei_backend *backend, const struct cei_backend_ops *ops,
		     struct cei_site *site, uint32_t member, struct ceov_place place)
{
	int r;

	memset(backend, 0, sizeof(*backend));
	backend->ops = ops;
	backend->site = site;
	backend->member = member;
	backend->place = place;
	backend->private = calloc(1, ops->backend_bytes);
	if (!backend->private)
		return cei_raise(site->report, CEOV_ERR_NO_MEMORY, 0,
				 "%s: no memory for the backend", ops->name);
	r = ops->open(backend);
	if (r)
		cei_backend_close(backend);
	return r;
}

void cei_backend_close(struct cei_backend *backend)
{
	if (backend->private)
		backend->ops->close(backend);
	free(backend->private);
	memset(backend, 0, sizeof(*backend));
}
