/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_LAUNCH_H
#define CEI_LAUNCH_H

/* One run of a plan. */

#include <stdint.h>

#include "base/list.h"
#include "ce_engine/chunk.h"
#include "ce_engine/parking.h"
#include "ce_engine/plan.h"
#include "ce_engine/tickets.h"

/* A failed launch whose chunks do not come back from their lanes within this time
 * is given up: its targets are uncertain. */
#define CEI_DRAIN_NS UINT64_C(5000000000)

struct cei_engine;

struct cei_launch {
	struct cei_list         link;   /* engine's launches, its held ones, or the plan's idle
					 * ones */
	struct ceov_plan       *plan;
	struct cei_ticket_slot *slot;
	uint64_t                number;         /* of the ticket */
	uint64_t                sequence;       /* counts the plan's launches */
	uint64_t                base;
	uint64_t                deadline_ns;    /* point in time */
	uint64_t                listed_pass;    /* expiry: the pass in which it came into the
						 * engine's list */
	uint64_t                armed_ns;       /* trace: when it was taken up */
	uint64_t                hold_until_ns;  /* doorbell: 0, or how long one transfer
						 * may keep others back */
	const void             *producer;       /* NULL: source_ready is polled */
	const void             *after;          /* stream that it follows, or NULL ... */
	void                   *event;          /* ... with the point on it; the record
						 * keeps it for its next launch */
	int                     has_followed;   /* lanes: the lane waits for it already */
	uint64_t                floating;       /* address of the plan's floating buffer;
						 * 0: it has none */
	uint32_t                gate;           /* lane it is gated on, or CEOV_NOBODY */
	struct cei_list         gate_link;      /* in the router's unpassed ones */
	uint32_t                next_step;      /* the first that is still armed */
	uint32_t                next_open;      /* staging: all before it that take ways of two
						 * legs are done */
	uint32_t                n_parked;       /* parking: transfers parked, ... */
	uint32_t                n_blocked;      /* ... those whose source is ready, or has no
						 * mark, for their targets */
	int                     error;          /* the first, ... */
	uint32_t                blamed;         /* ... and the rank to blame, or CEOV_NOBODY */
	uint32_t                n_open;         /* chunks neither done nor dropped */
	struct cei_chunk        chunks[];       /* of the plan's cuts; behind them, a watch for
						 * each of its n_watches */
};

/* What a record takes. */
static inline size_t cei_launch_bytes(const struct ceov_plan *plan)
{
	return sizeof(struct cei_launch) + plan->program.n_chunks * sizeof(struct cei_chunk) +
		plan->waits.n_watches * sizeof(struct cei_watch);
}

/* Zeroes in a new record. */
static inline struct cei_watch *cei_launch_watches(struct cei_launch *launch)
{
	return (struct cei_watch *)(void *)&launch->chunks[launch->plan->program.n_chunks];
}

/* ticket.c: what cei_door_here has for handles that were checked. */
int  cei_launch_enqueue(struct ceov_plan *plan, const struct ceov_launch *launch,
			ceov_ticket *ret_ticket);
int  cei_ticket_wait(ceov_context *context, ceov_ticket ticket, uint64_t timeout_ns,
		     int *ret_result);
int  cei_ticket_abort(ceov_context *context, ceov_ticket ticket);

/* Engine's thread: ends the launch with a failure whose error, native_code and rank are
 * filled: raises it once, drops what does not move yet, and aborts every signal of the plan
 * and so the plan's other launches. Transfer and chunk are added from chunk, and the mark
 * from counter, both of which may be NULL. The failure's text may say why, in a few words, in
 * place of the error's name. */
void cei_launch_fail(struct cei_engine *engine, struct cei_launch *launch,
		     const struct cei_chunk *chunk, const struct cei_counter *counter,
		     struct ceov_failure *failure);

/* Engine's thread: all chunks are done or dropped. Publishes the result and gives
 * the record back to the plan. */
void cei_launch_retire(struct cei_engine *engine, struct cei_launch *launch);

/* Engine's thread: whether a signal of its plan was aborted; fills the failure. */
int cei_launch_find_abort(const struct cei_launch *launch, struct ceov_failure *failure);

/* Engine's thread: of one that has failed, aborts its plan's signals again, since lanes and
 * raisers may have written over the poison. */
void cei_launch_poison(const struct cei_launch *launch);

/* The transfer that the launch is stuck at: the first chunk that is not done, or NULL. */
struct cei_chunk *cei_launch_stuck_at(struct cei_launch *launch);

/* Engine's thread, when it stops: ends every launch as aborted. */
void cei_launches_abort(struct cei_engine *engine);

#endif /* CEI_LAUNCH_H */
