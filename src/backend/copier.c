/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Lanes that rails copy with, between their slots and memory of GPUs. */

#include "backend/copier.h"

#include <stdlib.h>
#include <string.h>

#include "backend/lane.h"
#include "base/clock.h"

/* How long the copies of a line that broke are awaited. */
#define BREAK_NS UINT64_C(1000000000)

struct line {
	struct cei_lane lane;
	int             error;          /* stays */
};

void cei_copier_init(struct cei_copier *copier, struct cei_site *site)
{
	memset(copier, 0, sizeof(*copier));
	copier->site = site;
	pthread_mutex_init(&copier->lock, NULL);
}

void cei_copier_fini(struct cei_copier *copier)
{
	uint32_t i;

	for (i = 0; i < CEI_MEMBERS_MAX; i++)
		cei_backend_close(&copier->backends[i]);
	pthread_mutex_destroy(&copier->lock);
}

/* The first mover that serves places of this kind and is not for single ranks only. NULL: none. */
static const struct cei_place_ops *mover_for(const struct cei_site *site,
					       enum ceov_place_kind kind)
{
	const struct cei_place_ops *const *at;

	for (at = site->movers; *at; at++)
		if (cei_backend_serves(*at, kind) && !((*at)->caps & CEI_CAP_PEER_LANES))
			return *at;
	return NULL;
}

/* With the lock held. */
static int open_backend(struct cei_copier *copier, uint32_t unit)
{
	struct cei_site *site = copier->site;
	const struct cei_place_ops *ops = NULL;
	struct ceov_place place;

	if (unit < site->n_members) {
		place = site->members[unit].place;
		ops = mover_for(site, place.kind);
	}
	if (!ops)
		return cei_raise(site->report, CEOV_ERR_NO_ROUTE, 0,
				 "net: nothing copies between host memory and memory of member "
				 "%u of this process", unit);
	return cei_backend_open(&copier->backends[unit], ops, site, unit, place);
}

static int backend_of(struct cei_copier *copier, uint32_t unit, struct cei_backend **ret_backend)
{
	int r = 0;

	pthread_mutex_lock(&copier->lock);
	if (unit >= CEI_MEMBERS_MAX || !copier->backends[unit].ops)
		r = open_backend(copier, unit);
	pthread_mutex_unlock(&copier->lock);
	if (!r)
		*ret_backend = &copier->backends[unit];
	return r;
}

static int memory_open(void *arg, uint32_t unit, uint64_t n_bytes, void **ret_memory)
{
	struct cei_backend *backend;
	uint64_t address;
	int r = backend_of(arg, unit, &backend);

	if (!r)
		r = backend->ops->staging_open(backend, CEOV_PLACE_HOST, n_bytes, &address);
	if (!r)
		*ret_memory = (void *)(uintptr_t)address;
	return r;
}

static void memory_close(void *arg, uint32_t unit, void *memory)
{
	struct cei_copier *copier = arg;
	struct cei_backend *backend = &copier->backends[unit];

	backend->ops->staging_close(backend, CEOV_PLACE_HOST, (uint64_t)(uintptr_t)memory);
}

static int bind(void *arg, uint32_t unit)
{
	struct cei_backend *backend;
	int r = backend_of(arg, unit, &backend);

	return !r && backend->ops->bind ? backend->ops->bind(backend) : r;
}

static int landed(void *arg, uint32_t unit)
{
	struct cei_backend *backend;
	int r = backend_of(arg, unit, &backend);

	return !r && backend->ops->landed ? backend->ops->landed(backend) : r;
}

static int line_open(void *arg, uint32_t unit, enum cei_far_line_direction direction,
		     void **ret_line)
{
	struct cei_copier *copier = arg;
	struct cei_backend *backend;
	struct line *line = calloc(1, sizeof(*line));
	int r;

	if (!line)
		return cei_raise(copier->site->report, CEOV_ERR_NO_MEMORY, 0,
				 "net: no memory for a line to a GPU");
	r = backend_of(copier, unit, &backend);
	if (!r)
		r = cei_lane_open(&line->lane, backend, direction == CEI_FAR_LINE_OUT
				  ? CEI_DIRECTION_OUT : CEI_DIRECTION_IN, CEOV_NOBODY, direction);
	if (r)
		free(line);
	else
		*ret_line = line;
	return r;
}

static void line_close(void *arg)
{
	struct line *line = arg;

	cei_lane_close(&line->lane);
	free(line);
}

/* Keeps the error, stops the line's lane, and waits for its copies to end, for BREAK_NS at most.
 * Returns the error that was kept. */
static int break_line(struct line *line, int error)
{
	line->error = error == CEOV_FULL ? cei_raise(line->lane.backend->site->report,
						     CEOV_ERR_STATE, 0, "net: more copies are "
						     "under way to a GPU than its lane takes")
		: error;
	(void)cei_lane_stop(&line->lane, cei_deadline(BREAK_NS));
	return line->error;
}

static int copy(void *arg, uint64_t target, uint64_t source, uint64_t n_bytes)
{
	struct line *line = arg;
	const struct cei_lane_ops *ops = line->lane.ops;
	const struct cei_piece piece = { .source = source, .target = target,
					 .row_bytes = n_bytes, .n_rows = 1 };
	int r = line->error;

	if (r)
		return r;
	r = ops->copy(&line->lane, &piece, 1);
	if (!r)
		r = ops->submit(&line->lane);
	if (r)
		return break_line(line, r);
	line->lane.n_submitted++;
	return 0;
}

static int reap(void *arg, uint64_t *ret_n_ended)
{
	struct line *line = arg;
	const struct cei_lane_ops *ops = line->lane.ops;
	int r = line->error;

	if (r)
		return r;
	if (ops->turn && line->lane.backend->site->progress_by_caller)
		(void)ops->turn(&line->lane);
	r = ops->reap(&line->lane, ret_n_ended);
	return r ? break_line(line, r) : 0;
}

const struct cei_far_copier_ops cei_copier_ops = {
	.memory_open  = memory_open,
	.memory_close = memory_close,
	.bind         = bind,
	.landed       = landed,
	.line_open    = line_open,
	.line_close   = line_close,
	.copy         = copy,
	.reap         = reap,
};
