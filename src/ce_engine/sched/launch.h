/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_LAUNCH_H
#define CEI_LAUNCH_H

/*
 * One run of a plan, and its chunks, the records that walk through the engine. Each stage
 * makes one step, on the engine's thread:
 *
 *   ARMED --doorbell--> READY --scheduler--> PICKED --lanes--> MOVING --completion--> DONE
 *     |                   |                    |                 |
 *     +-------------------+--------------------+-----------------+--> DROPPED (its
 *                                                       launch failed, or its lane)
 *
 * While ARMED the first chunk of a transfer stands for all of its chunks; it may be parked
 * (parking.h), where the doorbell does not look at it. A chunk whose path has two legs
 * (staging.h) goes from MOVING back to READY once, for the second.
 */

#include <stdint.h>

#include "base/list.h"
#include "ce_engine/objects/plan.h"
#include "ce_engine/objects/tickets.h"
#include "ce_engine/sched/queues.h"

/* A failed launch whose chunks do not come back from their lanes within this time
 * is given up: its targets are uncertain. */
#define CEI_DRAIN_NS UINT64_C(5000000000)

enum cei_chunk_state {
	CEI_CHUNK_ARMED,
	CEI_CHUNK_READY,
	CEI_CHUNK_PICKED,
	CEI_CHUNK_MOVING,
	CEI_CHUNK_DONE,
	CEI_CHUNK_DROPPED,
};

#define CEI_PATH_DIRECT UINT32_MAX      /* a cut's: no path of two legs */
#define CEI_NO_SLOT     UINT16_MAX

struct cei_path {                               /* of two legs: see staging.h */
	uint32_t             via;               /* place in the machine */
	uint32_t             lanes[2];          /* of the engine, that move each leg */
	struct cei_backend  *owner;             /* of the slots' memory */
	enum ceov_place_kind kind;              /* of that memory */
	uint64_t             memory;
	struct cei_list      waiting;           /* engine: READY chunks without a slot */
	uint32_t             n_free;            /* engine */
	uint16_t             free[CEI_ROUTE_SLOTS];
};

struct cei_chunk {
	struct cei_list      link;      /* in the list of the stage that has it */
	struct cei_launch   *launch;
	struct cei_path     *path;      /* from READY on; NULL: it goes in one copy */
	uint32_t             index;     /* in the plan's cuts */
	uint16_t             state;     /* enum cei_chunk_state */
	uint8_t              leg;       /* 0 or 1: of its path */
	uint8_t              parked;    /* while ARMED: enum cei_parked */
	uint16_t             slot;      /* staging slot that it holds, or CEI_NO_SLOT */
	uint16_t             awaited;   /* first chunk of a transfer, while ARMED, where there is a
					 * trace: the mark that was seen missing last, one of enum
					 * cei_awaited */
	uint32_t             trace;     /* its record, where there is a trace */
	uint64_t             sequence;  /* from MOVING on: number of the lane's submit that has
					 * it */
	struct cei_job       job;       /* what the scheduler knows of the chunk, and its lane */
};

enum cei_parked {                       /* what an ARMED chunk waits for */
	CEI_AWAKE,                      /* nothing: it is not parked */
	CEI_PARKED_SOURCE,              /* its source_ready counter */
	CEI_PARKED_TARGET,              /* its target_free counter */
	CEI_PARKED_BEHIND,              /* the end of a transfer of its launch */
	CEI_PARKED_TURN,                /* all transfers before it in the launch */
};

enum cei_awaited {
	CEI_AWAITED_NONE,
	CEI_AWAITED_SOURCE,             /* source_ready */
	CEI_AWAITED_TARGET,             /* target_free */
	CEI_AWAITED_ALSO,               /* this and more: the transfer's first mark of `also`, the
					 * second, ...; the last number is for all that follow */
};

struct cei_watch {                      /* a counter that something is parked at */
	struct cei_list    link;        /* in the parking's list, while n_parked is not 0 */
	struct cei_launch *launch;
	uint32_t           index;       /* in the plan's waits */
	uint32_t           next;        /* waiters before this one are not parked */
	uint32_t           n_parked;
};

struct cei_launch {
	struct cei_list         link;   /* in one of the expiry's lists, or the plan's idle
					 * ones */
	struct ceov_plan       *plan;
	struct cei_ticket_slot *slot;           /* NULL: its context has ceov_context.ended */
	uint64_t                number;         /* of the ticket */
	uint64_t                sequence;       /* counts the plan's launches */
	uint64_t                base;
	uint64_t                deadline_ns;    /* point in time */
	uint64_t                listed_pass;    /* expiry: number of the pass during which it was
						 * put into its list */
	uint64_t                armed_ns;       /* trace: when it was taken up */
	uint64_t                hold_until_ns;  /* doorbell: until when its transfers wait for each
						 * other's targets; 0: they have not begun to */
	const void             *producer;       /* NULL: source_ready is polled */
	const void             *after;          /* stream that it follows, or NULL ... */
	void                   *event;          /* ... and an event at the point on it; the record
						 * keeps the event for its next launch */
	int                     has_followed;   /* lanes: the lane was told already to wait for the
						 * event */
	uint64_t                floating;       /* address of the plan's floating buffer;
						 * 0: it has none */
	uint32_t                gate;           /* lane it is gated on, or CEOV_NOBODY */
	struct cei_list         gate_link;      /* in that lane's list of launches, ... */
	struct cei_list        *gate_line;      /* ... cei_admission.line; NULL: it has no gated
						 * lane */
	uint32_t                next_step;      /* the first transfer that is still armed */
	uint32_t                next_open;      /* staging: all before it that take paths of two
						 * legs are done */
	uint32_t                n_parked;       /* parking: transfers parked, ... */
	uint32_t                n_blocked;      /* ... and among them those parked for target_free,
						 * whose source is ready */
	int                     error;          /* the launch's first error, or 0, ... */
	uint32_t                blamed;         /* ... and the rank to blame, or CEOV_NOBODY */
	uint32_t                n_open;         /* chunks neither done nor dropped */
	struct cei_chunk        chunks[];       /* one for each of the plan's cuts; behind them in
						 * memory a struct cei_watch for each of the plan's
						 * n_watches */
};

/* Returns the size of a launch record of the plan, with its chunks and watches. */
static inline size_t cei_launch_bytes(const struct ceov_plan *plan)
{
	return sizeof(struct cei_launch) + plan->program.n_chunks * sizeof(struct cei_chunk) +
		plan->waits.n_watches * sizeof(struct cei_watch);
}

/* Returns the launch's watches, which stand behind its chunks. In a new record they are zeroed. */
static inline struct cei_watch *cei_launch_watches(struct cei_launch *launch)
{
	return (struct cei_watch *)(void *)&launch->chunks[launch->plan->program.n_chunks];
}

static inline const struct cei_cut *cei_chunk_cut(const struct cei_chunk *chunk)
{
	return &chunk->launch->plan->cuts[chunk->index];
}

static inline const struct cei_step *cei_chunk_step(const struct cei_chunk *chunk)
{
	return &chunk->launch->plan->steps[cei_chunk_cut(chunk)->step];
}

/* The first chunk of a transfer, which stands for all of them while they are ARMED. */
static inline struct cei_chunk *cei_launch_first(struct cei_launch *launch, uint32_t step)
{
	return &launch->chunks[launch->plan->steps[step].first_chunk];
}

/* The last chunk of a transfer, which raises its mark. */
static inline struct cei_chunk *cei_launch_last(struct cei_launch *launch, uint32_t step)
{
	return cei_launch_first(launch, step) + launch->plan->steps[step].n_chunks - 1;
}

/* Whether the lane of the admitted launch, not the doorbell, waits for its source_ready marks. */
static inline int cei_launch_lane_waits(const struct cei_launch *launch)
{
	return launch->gate != CEOV_NOBODY && launch->producer &&
		launch->plan->triggers.is_gateable;
}

/* A reason, found by a stage, to end a launch early. */
struct cei_ending {
	struct cei_launch        *launch;
	int                       is_held;      /* it is not admitted yet */
	const struct cei_chunk   *chunk;        /* the chunk where it was found, or NULL */
	const struct cei_counter *counter;      /* the counter that was aborted or not reached, or
						 * that would fall; or NULL */
	struct ceov_failure       failure;      /* error, native_code and rank; the text may say
						 * why, in a few words, in place of the
						 * error's name */
};

#endif /* CEI_LAUNCH_H */
