/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_TRAINING_RIG_H
#define CEI_TRAINING_RIG_H

/*
 * Simulates training with sharded parameters on host ranks: all-gathers on one stream, sums of
 * gradients on another, and a third stream that computes and waits for both, which also wait for
 * it. A rank has a host program, which queues steps and launches, its streams and its engine. Host
 * ranks have no streams, so lists of small steps stand for them.
 */

#include <stdatomic.h>

#include "ce_engine/engine/engine.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/plan.h"
#include "fake_event.h"
#include "testing.h"

#define RANKS_MAX  4u
#define LAYERS_MAX 6u
#define PARTS      3u                   /* into which a gathered shard is cut */
#define SLOTS      3u                   /* memory slots from which shards are gathered */
#define AHEAD      (SLOTS - 1)
#define HALVES     2u
#define OPS        2u                   /* operators that sum; the last layer uses one, all other
					 * layers the other */
#define FLIGHTS    16u                  /* most sums in flight at once */

enum { COMPUTE, GATHER, SUM, STREAMS };

enum step_kind {
	SPEND,                          /* takes `value` turns */
	FILL,                           /* sets the word to value */
	CHECK,                          /* the word must hold value */
	RAISE,
	AWAIT,
	FOLLOW,                         /* waits until stream `index` has done `value` steps */
	REACH,                          /* marks a launch's event as reached */
};

struct step {
	enum step_kind kind;
	uint64_t       value;
	uint32_t       index;
	ceov_signal   *signal;
	uint64_t      *word;
	struct fake_event *event;
};

struct stream {
	struct step *steps;
	uint64_t     n_queued;
	uint64_t     n_done;
	uint64_t     n_planned;         /* number of steps that the host's program has for it so
					 * far */
};

enum action_kind { QUEUE, LAUNCH, HOLD };

/* The host's next action: queue a step, launch, or wait for a launch's end. */
struct action {
	enum action_kind kind;
	uint32_t         stream;        /* of QUEUE and LAUNCH; STREAMS: the launch follows no
					 * stream */
	struct step      step;
	ceov_plan       *plan;
	uint64_t         base;
	uint64_t         launch;        /* of HOLD: number of the rank's launch to wait for */
};

struct rank {
	struct world   *world;
	uint32_t        index;
	uint64_t        random;
	struct stream   streams[STREAMS];
	struct action  *actions;
	uint64_t        n_actions;
	uint64_t        n_acted;
	ceov_ticket    *tickets;
	uint64_t        n_launches;     /* launches in the program so far */
	uint64_t        n_launched;
	uint64_t        n_wrong;        /* words of another run that were read, and calls that
					 * failed */

	uint64_t        n_gathers;      /* gathers in the program so far */
	uint64_t        n_sums;
	uint64_t        sum_launch[FLIGHTS];    /* number of the latest launches that sum */
	ceov_buffer    *slots[SLOTS];
	ceov_buffer    *gathered[LAYERS_MAX];
	ceov_buffer    *sources[HALVES];
	ceov_buffer    *scratch;        /* [HALVES][n_ranks] parts */
	ceov_signal    *ready;          /* signals of gathers, [n_ranks] counters */
	ceov_signal    *arrived;
	ceov_signal    *start;          /* signals of sums */
	ceov_signal    *sent;
	ceov_signal    *landed[HALVES]; /* [n_ranks] counters */
	ceov_plan      *gathers[SLOTS][LAYERS_MAX];
	ceov_plan      *sums[OPS][HALVES];
	ceov_buffer    *inbox;          /* memory for parts that are never read */
	ceov_plan      *others;         /* plan that keeps no order and sends those parts */
};

struct world {
	uint32_t               n_ranks;
	uint32_t               n_layers;
	uint32_t               n_steps;
	int                    reshards;        /* whether parameters are gathered again for the
						 * backward pass */
	uint64_t               part_bytes;
	uint64_t               host_weight;     /* percentage of turns in which hosts act */
	uint64_t               lane_pause;      /* percentage of turns in which lanes pause */
	uint32_t               urgency;         /* urgency of the plans in `others` */
	ceov_context          *context;
	struct cei_place_ops ops;               /* the host's table with streams */
	struct cei_lane_ops lanes;
	struct rank            ranks[RANKS_MAX];
	_Atomic uint64_t       n_moved;         /* steps and actions of all ranks so far */
	_Atomic uint32_t       n_finished;
	_Atomic uint32_t       is_stuck;
};

/* Creates a world, chosen by the random number, with the ranks' programs; no step has been taken
 * yet. Asserts success. The caller must have set CEOVERLAP_MACHINE. */
void training_open(struct world *world, uint64_t random);
void training_close(struct world *world);

#endif /* CEI_TRAINING_RIG_H */
