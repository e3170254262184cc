/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_ENGINE_H
#define CEI_ENGINE_H

/*
 * One engine per member: the stages, the lanes they fill, and the thread that makes their turns.
 * Stages know their own state and the next stage, not the engine. On the data path engines share
 * nothing but the times of ports (ports.h). Application threads reach an engine by its inbox;
 * commits add lanes and paths that it meets in later launches.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "backend/place.h"
#include "ce_engine/engine/doorbell.h"
#include "ce_engine/engine/fence.h"
#include "ce_engine/engine/launch_source.h"
#include "ce_engine/exec/lanes.h"
#include "ce_engine/exec/movers.h"
#include "ce_engine/exec/staging.h"
#include "ce_engine/sched/admission.h"
#include "ce_engine/sched/expiry.h"
#include "ce_engine/sched/scheduler.h"
#include "topology/topology.h"

/* An engine with nothing armed stays awake this long: the next launch of a loop
 * comes within milliseconds, and waking a thread costs 50 to 150 us (measured
 * in a virtual machine). It takes no processor time after that. */
#define CEI_LINGER_NS UINT64_C(10000000)

struct cei_tally;                       /* ce_engine/sched/tally.h */
struct cei_trace;                       /* ce_engine/sched/trace.h */

struct cei_engine {
	struct cei_site        *site;
	struct cei_topology    *topology;
	struct cei_ports       *ports;          /* of the context, set before open; NULL: no
						 * machine is known */
	struct cei_flows       *flows;          /* likewise; NULL: all work is one client's */
	uint32_t                rank;
	uint32_t                place;          /* of our memory and copy engines in the
						 * machine; CEOV_NOBODY: not known */
	struct cei_movers       movers;
	struct cei_backend     *backend;        /* the first of `movers`, which also reads and
						 * writes small things and works on streams */
	struct cei_trace       *trace;          /* NULL: off */
	struct cei_tally       *tally;          /* set before open; NULL: nothing is counted */
	struct cei_launch_source *source;       /* set before open; NULL there: `threads` */
	struct cei_launch_source threads;       /* threads of this process alone bring launches */
	struct cei_admission    admission;      /* before the stages: lets launches in */
	struct cei_doorbell     doorbell;       /* stage 1 */
	struct cei_scheduler    scheduler;      /* stage 2 */
	struct cei_lanes        lanes;          /* stage 3, and what stage 4, completion, reaps */
	struct cei_staging      staging;        /* paths of two legs, and what they use */
	struct cei_expiry       expiry;         /* launches, their deadlines and aborts */
	struct cei_fence        fence;          /* whether the member's place is lost */

	pthread_t               thread;
	int                     has_thread;
	_Atomic uint32_t        bell;           /* counts rings; the futex that a parked thread
						 * sleeps on, unless its source has another one */
	uint32_t                rung;           /* its value before the last look at the inbox */
	_Atomic uint32_t        is_parked;
	_Atomic uint32_t        must_stop;
	_Atomic uint32_t        has_ended;      /* the thread touches nothing any more */
	uint64_t                stop_by_ns;     /* written before must_stop */
	int                     is_stopped;
};

/* Opens the movers and lanes and, unless the site says progress_by_caller, starts the thread. The
 * engine is zeroed before; after a failure call cei_engine_close(). */
int  cei_engine_open(struct cei_engine *engine, struct cei_site *site,
		     struct cei_topology *topology, uint32_t member);

/* Tells the thread to end the launches in flight as aborted, to give up by stop_by_ns (a
 * point in time) those that do not come back, and to end. Accepts a zeroed engine. */
void cei_engine_ask_stop(struct cei_engine *engine, uint64_t stop_by_ns);

/* Waits until the thread has ended and the lanes are idle; call cei_engine_ask_stop() before. 0:
 * they access no memory any more. CEOV_ERR_TIMEOUT: the thread or lanes did not end by deadline_ns;
 * error lines name them, and all memory that they may access, the engine's included, must stay.
 * Accepts a zeroed engine; may be repeated. */
int  cei_engine_stop(struct cei_engine *engine, uint64_t deadline_ns);

/* Releases all that a stopped engine holds. Accepts a zeroed engine. */
void cei_engine_close(struct cei_engine *engine);

/* Puts the launch into the engine's inbox and wakes the engine. Any thread. CEOV_FULL: the inbox is
 * full. */
int  cei_engine_submit(struct cei_engine *engine, struct cei_launch *launch);

enum cei_turn { CEI_TURN_IDLE, CEI_TURN_WAITING, CEI_TURN_WORKED };

/* One pass of the four stages. IDLE: no launch is in flight. WAITING: some are, and
 * nothing could be done. */
enum cei_turn cei_engine_turn(struct cei_engine *engine);

#endif /* CEI_ENGINE_H */
