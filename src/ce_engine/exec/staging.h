/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_STAGING_H
#define CEI_STAGING_H

/*
 * Paths of two legs: through memory in between, which holds a bounded number of slots.
 * A chunk takes a slot, goes into it as its first leg, is seen to be there, goes out of
 * it as its second leg, and gives the slot back; chunks for which there is no slot wait
 * in line. So both legs of a path run at once, for different chunks.
 *
 * The copy engines of another GPU than the engine's own may carry out a leg. The engine opens a
 * helper backend for that GPU then (movers.h), and owns the lanes on it.
 *
 * Paths are made when plans are committed and stay until the engine closes.
 */

#include <stdint.h>

#include "backend/place.h"
#include "ce_engine/sched/launch.h"
#include "topology/topology.h"

#define CEI_PATHS_MAX   64u

/* Paths that only make it faster leave the rest to plans to come that have no other. */
#define CEI_PATHS_SPARE 32u

struct cei_lanes;
struct cei_movers;
struct cei_scheduler;
struct cei_trace;

struct cei_staging {
	struct cei_movers    *movers;   /* the engine's, as all up to `trace`, filled by it */
	struct cei_backend   *backend;  /* the first of the movers */
	struct cei_lanes     *lanes;
	struct cei_topology  *topology;
	uint32_t              place;    /* of its copy engines; CEOV_NOBODY: not known */
	struct cei_scheduler *scheduler;
	struct cei_trace     *trace;    /* NULL: off */
	uint32_t              n_paths;  /* with the movers' lock; the engine meets a path in
					 * launches of the plans that were committed with it
					 * only, that is, later */
	struct cei_path       paths[CEI_PATHS_MAX];
};

/* After the lanes are closed, before the movers. Accepts zeroes. */
void cei_staging_fini(struct cei_staging *staging);

/* A path's two ends and what is between, as a route has it (not a direct one). */
struct cei_staging_ask {
	const struct cei_machine    *machine;
	const struct cei_route_path *path;
	uint32_t                     from;
	uint32_t                     to;
	int                          is_spare;  /* the transfer can do without */
};

/* At commit, any thread: finds or makes the engine's path. CEOV_ERR_NO_ROUTE (not raised):
 * a GPU on it does not reach the memory that it should, or there are as many paths as there
 * may be; other errors are raised. */
int  cei_staging_path(struct cei_staging *staging, const struct cei_staging_ask *ask,
		      uint32_t *ret_path);

/* --- engine's thread ------------------------------------------------------------- */

/* From the doorbell, a READY chunk of a transfer some of whose chunks take paths of two legs:
 * to the scheduler, or in line for a slot. The one that closes the transfer is held back until
 * the others are done. */
void cei_staging_send(struct cei_staging *staging, struct cei_chunk *chunk);

/* Call it when a lane has finished a chunk of a transfer with paths of two legs. 1: the chunk was
 * queued for its second leg. 0: it needs no further leg. Then its slot, if it had one, was given
 * to the next chunk in line or became free; and if it was the last chunk that the transfer's
 * closing chunk waited for, the closing chunk was queued. */
int  cei_staging_goes_on(struct cei_staging *staging, struct cei_chunk *chunk);

/* Whether the launch's transfers before this one that take paths of two legs are done. */
int  cei_staging_is_closed(struct cei_launch *launch, uint32_t step);

/* Gives back the slot of a chunk that was dropped. May be repeated. */
void cei_staging_release(struct cei_staging *staging, struct cei_chunk *chunk);

#endif /* CEI_STAGING_H */
