/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_TRAINING_RIG_H
#define CEI_TRAINING_RIG_H

/*
 * Training with sharded parameters on host ranks: gathers on one stream, sums on another,
 * and a third that computes, waits for both and is waited for. A rank is a host thread that
 * queues steps and launches, its streams and its engine. Host ranks have no streams, so
 * lists of small steps play them.
 */

#include <stdatomic.h>

#include "ce_engine/context.h"
#include "ce_engine/engine.h"
#include "ce_engine/plan.h"
#include "fake_event.h"
#include "testing.h"

#define RANKS_MAX  4u
#define LAYERS_MAX 6u
#define PARTS      3u                   /* of a gathered shard */
#define SLOTS      3u                   /* slots that shards are gathered from */
#define AHEAD      (SLOTS - 1)
#define HALVES     2u
#define OPS        2u                   /* operators that sum: the last layer has one of its own */
#define FLIGHTS    16u                  /* sums queued at once */

enum { COMPUTE, GATHER, SUM, STREAMS };

enum step_kind {
	SPEND,                          /* value: how many turns it takes */
	FILL,                           /* word = value */
	CHECK,                          /* the word must be value */
	RAISE,
	AWAIT,
	FOLLOW,                         /* waits until stream `index` has done `value` steps */
	REACH,                          /* reaches a launch's event */
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
	uint64_t     n_planned;         /* planned in the host's program so far */
};

enum action_kind { QUEUE, LAUNCH, HOLD };

/* The host's next action: queue a step, launch, or wait for a launch's end. */
struct action {
	enum action_kind kind;
	uint32_t         stream;        /* QUEUE, LAUNCH; STREAMS: it follows no stream */
	struct step      step;
	ceov_plan       *plan;
	uint64_t         base;
	uint64_t         launch;        /* HOLD: the rank's launch of that number */
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
	uint64_t        n_launches;     /* planned */
	uint64_t        n_launched;
	uint64_t        n_wrong;        /* words of other runs, and failed calls */

	uint64_t        n_gathers;      /* planned */
	uint64_t        n_sums;
	uint64_t        sum_launch[FLIGHTS];    /* numbers of the latest launches of sums */
	ceov_buffer    *slots[SLOTS];
	ceov_buffer    *gathered[LAYERS_MAX];
	ceov_buffer    *sources[HALVES];
	ceov_buffer    *scratch;        /* [HALVES][n_ranks] parts */
	ceov_signal    *ready;          /* of gathers: [n_ranks] */
	ceov_signal    *arrived;
	ceov_signal    *start;          /* of sums */
	ceov_signal    *sent;
	ceov_signal    *landed[HALVES]; /* [n_ranks] */
	ceov_plan      *gathers[SLOTS][LAYERS_MAX];
	ceov_plan      *sums[OPS][HALVES];
	ceov_buffer    *inbox;          /* parts that are never read, ... */
	ceov_plan      *others;         /* ... sent by a plan without order */
};

struct world {
	uint32_t               n_ranks;
	uint32_t               n_layers;
	uint32_t               n_steps;
	int                    reshards;        /* gathers again for backward */
	uint64_t               part_bytes;
	uint64_t               host_weight;     /* percentage of turns in which hosts act */
	uint64_t               lane_pause;      /* percentage of turns in which lanes pause */
	uint32_t               urgency;         /* of others */
	ceov_context          *context;
	struct cei_backend_ops ops;             /* the host's, with streams */
	struct rank            ranks[RANKS_MAX];
	_Atomic uint64_t       n_moved;         /* steps and actions of all ranks so far */
	_Atomic uint32_t       n_finished;
	_Atomic uint32_t       is_stuck;
};

/* A world chosen by the random number, with its programs, before the first step. Asserts
 * success. The caller has set CEOVERLAP_MACHINE. */
void training_open(struct world *world, uint64_t random);
void training_close(struct world *world);

#endif /* CEI_TRAINING_RIG_H */
