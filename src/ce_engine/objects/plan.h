/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PLAN_H
#define CEI_PLAN_H

/*
 * A plan: its program, the handles that the program's numbers stand for, and a builder until
 * commit; then what engines read (steps, cuts, waits). After commit nothing but `run` changes.
 */

#include <pthread.h>
#include <stdint.h>

#include "backend/place.h"
#include "base/lane_set.h"
#include "base/report.h"
#include "ce_engine/objects/abort.h"
#include "ce_engine/objects/object.h"
#include "ce_engine/objects/plan_waits.h"
#include "ce_engine/objects/signal.h"
#include "ce_engine/program/program.h"
#include "topology/route.h"

/* Launches of one plan that may be in flight. */
#define CEI_PLAN_LAUNCHES_MAX 32u

struct cei_plan_builder;                /* ce_engine/plan/plan_builder.h */
struct cei_remote_plan;                 /* ce_engine/remote/remote_private.h */

struct cei_also {                       /* a mark that a transfer awaits beside its target_free */
	uint32_t           step;
	struct cei_counter counter;
};

struct cei_step {                       /* one transfer, as committed */
	struct cei_piece   piece;       /* row_bytes 0: moves nothing, only raises */
	enum cei_direction direction;   /* of its copies; a step that moves nothing has its
					 * predecessor's, ... */
	uint32_t           lane;        /* ... and likewise the engine's lane that makes its direct
					 * copies */
	int                is_routed;   /* some chunks take staged paths; its last chunk moves
					 * nothing and raises `then` when all others are done */
	const struct cei_machine_link *link;    /* the machine's link between its places; NULL: not
						 * known */
	uint16_t           turn;        /* distance of the target in the order of places:
					 * templates rotate by it */
	int                is_floating; /* source addresses of the piece and its cuts are offsets
					 * from the address that a launch gives */
	const _Atomic uint64_t *count;  /* how many rows a launch moves; NULL: all */
	uint32_t           first_chunk;
	uint32_t           n_chunks;
	struct cei_counter source_ready;
	struct cei_counter target_free;
	const struct cei_also *also;    /* n_also of the plan's */
	uint32_t           n_also;
	struct cei_counter then;
};

/* What changes while the plan is launched again and again. Fields marked "lock" are guarded
 * by the plan's; all others belong to its engine's thread while a launch is in flight. */
struct cei_plan_run {
	uint64_t             *turns;            /* one per step: number of the launch whose
						 * transfer may leave the doorbell next, so that
						 * marks rise in order; allocated at commit */
	uint64_t              group;            /* number of the last group of lanes.c that had
						 * chunks of the plan, ... */
	const struct cei_launch *group_launch;  /* ... and the launch of these chunks */
	uint32_t              n_admitted;       /* launches that passed admission and have not
						 * ended, ... */
	uint32_t              gate;             /* ... the lane that gates them, or
						 * CEOV_NOBODY: polled ... */
	uint32_t              n_held;           /* not 0: admission has held a launch of the plan in
						 * this turn; later ones are held behind it */
	uint64_t              expiry_pass[2];   /* number of the expiry pass that has checked the
						 * signals of a launch, and of the one that has
						 * poisoned those of a failed launch */
	struct cei_lane_set   stuck_lanes;      /* lanes that were given up and may still move
						 * chunks of the plan; changed while launches are
						 * in flight */
	struct cei_list       idle;             /* records of launches to be reused; with the
						 * lock */
	uint32_t              n_in_flight;      /* with the lock */
	struct cei_abort      struck;           /* what has set the abort words of its signals and
						 * will poison them; error 0: nothing. With the
						 * context's lock, as the next one */
	uint32_t              n_struck;         /* how many of them it was the first to abort */
	uint64_t              n_launches;       /* launches so far; with the lock */
	uint64_t              last_base;        /* the number that the last launch, or the last
						 * ceov_plan_queue(), added to all marks; 0: the
						 * next may add any. With the lock */
};

struct ceov_plan {
	struct cei_object     object;
	uint32_t              member;           /* index of the program's rank in the site */
	struct cei_plan_builder *builder;       /* NULL: the plan is committed */
	struct cei_program    program;          /* until commit only its head and transfers */
	struct ceov_signal  **signals;          /* by their number in the program; each is
						 * used once by the plan */
	struct ceov_buffer  **buffers;          /* by their number in the program */
	struct cei_also      *also;             /* n_also, in the order of transfers */
	uint32_t              n_also;

	const char           *between_nodes;    /* how the shards of the last all-gather go from
						 * node to node, in words that nobody frees;
						 * NULL: there is none over several nodes */

	const char           *label;            /* whose transfers these are, for traces, in words
						 * that nobody frees: the prefix of an operator's
						 * calls, or a template's name; NULL: the caller's
						 * own */

	struct cei_remote_plan *remote;         /* what a daemon's client keeps of it, from the
						 * commit on; NULL: its context has no daemon. Of a
						 * plan that the daemon carries out only triggers,
						 * lock and run's launches and base of what follows
						 * are used. With the lock */

	/* after commit */
	uint32_t            (*paths)[CEI_ROUTE_PATHS_MAX];      /* [route][i]: index of the
						 * route's i-th path in the engine's staging, or
						 * CEI_PATH_DIRECT */
	struct cei_step      *steps;            /* one for each of the program's transfers */
	struct cei_cut       *cuts;             /* one for each of its chunks */
	uint64_t             *memories;         /* addresses that movers with an address space of
						 * their own gave for the plan's memory; 0: it is
						 * not open. NULL: there are no such movers */
	uint32_t              n_memories;       /* entries of each mover: see plan_bind.c */
	struct cei_triggers   triggers;
	struct cei_waits      waits;
	pthread_mutex_t       lock;             /* guards the fields of `run` that say so */
	struct cei_plan_run   run;
};

#endif /* CEI_PLAN_H */
