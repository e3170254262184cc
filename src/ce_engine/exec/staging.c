/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Paths of two legs: making them, and the steps that chunks take on them. */

#include "ce_engine/exec/staging.h"

#include <string.h>

#include "backend/lane.h"
#include "ce_engine/exec/lanes.h"
#include "ce_engine/exec/movers.h"
#include "ce_engine/sched/scheduler.h"
#include "ce_engine/sched/trace.h"

void cei_staging_fini(struct cei_staging *staging)
{
	struct cei_path *path;
	uint32_t i;

	for (i = 0; i < staging->n_paths; i++) {
		path = &staging->paths[i];
		path->owner->ops->staging_close(path->owner, path->kind, path->memory);
	}
	staging->n_paths = 0;
}

/* --- making paths ------------------------------------------------------------- */

/* As backends name places. Where host ranks stand in for a machine, all is host memory. */
static struct ceov_place backend_place(const struct cei_staging *staging,
				       const struct cei_machine *machine, uint32_t place)
{
	struct ceov_place found = { CEOV_PLACE_HOST, 0 };

	if (staging->backend->ops->caps & CEI_CAP_DEVICE && cei_machine_is_gpu(machine, place)) {
		found.kind = CEOV_PLACE_GPU;
		found.index = place;
	}
	return found;
}

/* One leg of a path that is being made. */
struct leg {
	const struct cei_machine *machine;
	uint32_t                  place;        /* whose copy engines move */
	uint32_t                  from;
	uint32_t                  to;
	int                       is_spare;
};

static int reach(struct cei_backend *backend, struct ceov_place place)
{
	return backend->ops->reach ? backend->ops->reach(backend, place) : 0;
}

/* The lane that moves the leg, and its backend; both ends are in its reach then. */
static int open_leg(struct cei_staging *staging, const struct leg *leg, uint32_t *ret_lane,
		    struct cei_backend **ret_backend)
{
	enum cei_direction direction = cei_direction_lane(
		cei_machine_direction(leg->machine, leg->from, leg->to));
	struct cei_backend *backend = staging->backend;
	int r = 0;

	if (leg->place != staging->place)
		r = cei_movers_helper(staging->movers, leg->place,
				      backend_place(staging, leg->machine, leg->place),
				      leg->is_spare ? CEI_HELPERS_SPARE : CEI_HELPERS_MAX,
				      &backend);
	if (!r)
		r = cei_lanes_take(staging->lanes, backend, direction, CEOV_NOBODY, ret_lane);
	if (!r)
		r = reach(backend, backend_place(staging, leg->machine, leg->from));
	if (!r)
		r = reach(backend, backend_place(staging, leg->machine, leg->to));
	*ret_backend = backend;
	return r;
}

static int is_same(const struct cei_path *a, const struct cei_path *b)
{
	return a->via == b->via && a->lanes[0] == b->lanes[0] && a->lanes[1] == b->lanes[1];
}

static int open_slots(struct cei_path *path)
{
	uint16_t i;
	int r = path->owner->ops->staging_open(path->owner, path->kind,
					       CEI_ROUTE_SLOTS * CEI_ROUTE_SLOT_BYTES,
					       &path->memory);

	if (r)
		return r;
	cei_list_init(&path->waiting);
	for (i = 0; i < CEI_ROUTE_SLOTS; i++)
		path->free[path->n_free++] = i;
	return 0;
}

static int make_path(struct cei_staging *staging, const struct cei_staging_ask *ask,
		     uint32_t *ret_path)
{
	uint32_t via = ask->path->via;
	struct leg first = { ask->machine, ask->path->engines[0], ask->from, via, ask->is_spare };
	struct leg second = { ask->machine, ask->path->engines[1], via, ask->to, ask->is_spare };
	struct cei_backend *backends[2];
	struct cei_memory_hold *hold;
	struct cei_path path;
	int r;

	memset(&path, 0, sizeof(path));
	path.via = via;
	r = open_leg(staging, &first, &path.lanes[0], &backends[0]);
	if (!r)
		r = open_leg(staging, &second, &path.lanes[1], &backends[1]);
	if (r)
		return r;
	for (*ret_path = 0; *ret_path < staging->n_paths; ++*ret_path)
		if (is_same(&path, &staging->paths[*ret_path]))
			return 0;
	if (staging->n_paths >= (ask->is_spare ? CEI_PATHS_SPARE : CEI_PATHS_MAX))
		return CEOV_ERR_NO_ROUTE;
	/* A GPU in between moves the second leg itself; host memory is anybody's. */
	path.owner = backends[1];
	path.kind = backend_place(staging, ask->machine, via).kind;
	hold = cei_topology_hold_memory(staging->topology, via);
	r = open_slots(&path);
	cei_topology_release_memory(hold);
	if (r)
		return r;
	staging->paths[staging->n_paths] = path;
	cei_list_init(&staging->paths[staging->n_paths].waiting);
	staging->n_paths++;
	return 0;
}

int cei_staging_path(struct cei_staging *staging, const struct cei_staging_ask *ask,
		     uint32_t *ret_path)
{
	struct cei_report_hold hold;
	int r;

	cei_report_hold_begin(staging->backend->site->report, &hold);
	pthread_mutex_lock(&staging->movers->lock);
	r = make_path(staging, ask, ret_path);
	pthread_mutex_unlock(&staging->movers->lock);
	cei_report_hold_end(staging->backend->site->report, &hold);
	return r;
}

/* --- chunks on paths ------------------------------------------------------------- */

/* The chunk that closes the transfer of a chunk, where others take paths of two legs. */
static struct cei_chunk *closer_of(const struct cei_chunk *chunk)
{
	if (!cei_chunk_step(chunk)->is_routed || chunk->launch->gate != CEOV_NOBODY)
		return NULL;
	return cei_launch_last(chunk->launch, cei_chunk_cut(chunk)->step);
}

void cei_staging_send(struct cei_staging *staging, struct cei_chunk *chunk)
{
	uint32_t index = cei_chunk_cut(chunk)->path;

	if (chunk == closer_of(chunk)) {
		chunk->sequence = cei_chunk_step(chunk)->n_chunks - 1;
		return;
	}
	if (index != CEI_PATH_DIRECT) {
		chunk->path = &staging->paths[index];
		if (!chunk->path->n_free) {
			cei_list_append(&chunk->path->waiting, &chunk->link);
			return;
		}
		chunk->slot = chunk->path->free[--chunk->path->n_free];
	}
	cei_scheduler_add(staging->scheduler, chunk);
}

void cei_staging_release(struct cei_staging *staging, struct cei_chunk *chunk)
{
	struct cei_chunk *next;
	struct cei_path *path = chunk->path;

	if (chunk->slot == CEI_NO_SLOT)
		return;
	if (cei_list_is_empty(&path->waiting)) {
		path->free[path->n_free++] = chunk->slot;
	} else {
		next = CEI_OWNER(cei_list_take(&path->waiting), struct cei_chunk, link);
		next->slot = chunk->slot;
		cei_scheduler_add(staging->scheduler, next);
	}
	chunk->slot = CEI_NO_SLOT;
}

/* The chunk is done: so may all be that the closing one waits for. */
static void count_down(struct cei_staging *staging, struct cei_chunk *chunk)
{
	struct cei_chunk *closer = closer_of(chunk);

	if (!closer || closer == chunk || closer->state != CEI_CHUNK_READY)
		return;                 /* of a launch that failed it was dropped */
	if (!--closer->sequence)
		cei_scheduler_add(staging->scheduler, closer);
}

int cei_staging_is_closed(struct cei_launch *launch, uint32_t step)
{
	const struct cei_chunk *closer;

	for (; launch->next_open < step; launch->next_open++) {
		closer = closer_of(cei_launch_first(launch, launch->next_open));
		if (closer && closer->state < CEI_CHUNK_DONE)
			return 0;
	}
	return 1;
}

int cei_staging_goes_on(struct cei_staging *staging, struct cei_chunk *chunk)
{
	if (chunk->path && !chunk->leg && !chunk->launch->error) {
		chunk->leg = 1;
		chunk->state = CEI_CHUNK_READY;
		cei_trace_stage(staging->trace, chunk, CEI_TRACE_READY);
		cei_scheduler_add(staging->scheduler, chunk);
		return 1;
	}
	cei_staging_release(staging, chunk);
	count_down(staging, chunk);
	return 0;
}
