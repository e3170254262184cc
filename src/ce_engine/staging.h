/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_STAGING_H
#define CEI_STAGING_H

/*
 * Ways of two legs: through memory in between, which holds a bounded number of slots.
 * A chunk takes a slot, goes into it as its first leg, is seen to be there, goes out of
 * it as its second leg, and gives the slot back; chunks for which there is no slot wait
 * in line. So both legs of a way run at once, for different chunks.
 *
 * Legs may be moved by copy engines of a GPU that is not the engine's own: a helper of the
 * engine's movers, with lanes of the same engine.
 *
 * Ways are made when plans are committed and stay until the engine closes.
 */

#include <stdint.h>

#include "backend/backend.h"
#include "base/list.h"
#include "topology/route.h"

#define CEI_WAY_DIRECT  UINT32_MAX
#define CEI_WAYS_MAX    64u

/* Ways that only make it faster leave the rest to plans to come that have no other. */
#define CEI_WAYS_SPARE  32u

struct cei_chunk;
struct cei_engine;
struct cei_launch;

struct cei_way {
	uint32_t             via;               /* place in the machine */
	uint32_t             lanes[2];          /* of the engine, that move each leg */
	struct cei_backend  *owner;             /* of the slots' memory */
	enum ceov_place_kind kind;              /* of that memory */
	uint64_t             memory;
	struct cei_list      waiting;           /* engine: READY chunks without a slot */
	uint32_t             n_free;            /* engine */
	uint16_t             free[CEI_ROUTE_SLOTS];
};

struct cei_staging {
	uint32_t       n_ways;          /* with the movers' lock; the engine meets a way in
					 * launches of the plans that were committed with it
					 * only, that is, later */
	struct cei_way ways[CEI_WAYS_MAX];
};

/* After the lanes are closed, before the movers. Accepts zeroes. */
void cei_staging_fini(struct cei_staging *staging);

/* A way's two ends and what is between, as a route has it (not a direct one). */
struct cei_staging_ask {
	const struct cei_machine   *machine;
	const struct cei_route_way *way;
	uint32_t                    from;
	uint32_t                    to;
	int                         is_spare;   /* the transfer can do without */
};

/* At commit, any thread: finds or makes the engine's way. CEOV_ERR_NO_ROUTE (not raised):
 * a GPU on it does not reach the memory that it should, or there are as many ways as there
 * may be; other errors are raised. */
int  cei_staging_way(struct cei_engine *engine, const struct cei_staging_ask *ask,
		     uint32_t *ret_way);

/* --- engine's thread ------------------------------------------------------------- */

/* The chunk's way, or NULL: direct, as all chunks of gated launches are. */
const struct cei_way *cei_staging_way_of(const struct cei_engine *engine,
					 const struct cei_chunk *chunk);

/* From the doorbell: to the scheduler, or in line for a slot. What closes a transfer
 * some of whose chunks take ways of two legs is held back until they are done. */
void cei_staging_send(struct cei_engine *engine, struct cei_chunk *chunk);

/* The part of the chunk's piece that its present leg moves. */
struct cei_piece cei_staging_leg(const struct cei_engine *engine,
				 const struct cei_chunk *chunk, const struct cei_piece *piece);

/* A chunk has come off its lane. 1: it goes on with its second leg. 0: it is done; its
 * slot went to the next in line, and what waits for its transfer's last chunk went on. */
int  cei_staging_goes_on(struct cei_engine *engine, struct cei_chunk *chunk);

/* Whether the launch's transfers before this one that take ways of two legs are done. */
int  cei_staging_is_closed(struct cei_launch *launch, uint32_t step);

/* Gives back the slot of a chunk that was dropped. May be repeated. */
void cei_staging_release(struct cei_engine *engine, struct cei_chunk *chunk);

#endif /* CEI_STAGING_H */
