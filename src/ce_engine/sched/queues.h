/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_QUEUES_H
#define CEI_QUEUES_H

/*
 * The scheduler's decisions over plain data: which of the jobs that wait for a lane goes
 * next, and when. A job is what the scheduler must know of a chunk. Time is a parameter:
 * tests/sim/ simulates whole machines with this code.
 *
 * Jobs of a higher urgency go first. Within one urgency, jobs that keep their order, and
 * those whose ports are not known, go first come first served and are not held back. The
 * others wait in one queue per link:
 *
 * - a job is dispatched when its lane is about to run out of work, so that the choice is
 * late, ...
 * - ... and when all ports of its link are free at its begin;
 * - among several, the one whose busiest port has the most work waiting is chosen, and the
 * lane waits a little for that one;
 * - a link that no other engine contends for gets work further ahead;
 * - a job that was passed over for long is dispatched in any case.
 *
 * Background jobs leave room: see CEI_LINEUP_BACKGROUND. Those that keep their order wait
 * for their ports, too: otherwise engines that urgent jobs brought out of step would
 * collide from then on.
 *
 * Where several clients share the engines (flows.h), each has queues of its own, and their flows go
 * in turn (lineup.h); within a client the rules above hold. Further:
 *
 * - a flow that received more than others which wait for the same port leaves the port to them for
 * a moment, even if they wait for other lanes: see CEI_QUEUES_LEAD;
 * - jobs that keep their order wait for their ports and reserve them, and no lane gets work further
 * ahead, whether its jobs' ports are known or not: so clients do not disturb each other's
 * rotations, and no client has more than one long job queued behind the one that moves;
 * - urgent jobs go before those of all clients and reserve nothing while their ports, or the lane
 * of a job that crosses none, have urgent time left, since they are short and other lanes should
 * not change their order for them; beyond that they go in turn;
 * - a client goes no faster than its limit.
 */

#include <stdint.h>

#include "base/lane_set.h"
#include "ce_engine/sched/flows.h"
#include "ce_engine/sched/lineup.h"
#include "ce_engine/sched/ports.h"

/* A lane gets its next job when its remaining work takes less than this: more than the time
 * to see a completion and to submit. */
#define CEI_QUEUES_AHEAD_NS UINT64_C(12000)

/* The same for a link that no other engine contends for. */
#define CEI_QUEUES_ALONE_NS UINT64_C(1000000)

/* Time from the choice to the first byte on an idle lane. */
#define CEI_QUEUES_ISSUE_NS UINT64_C(4000)

/* Tolerated overlap of two copies on a port: at least MEET_NS, or 1/MEET_PART of the later
 * copy. So a lane does not switch to another link because an engine is a little late, and
 * all engines keep in step: with 2 us, equal copies between 8 GPUs took a round more, and
 * so did long ones without MEET_PART (tests/sim/). */
#define CEI_QUEUES_MEET_NS   UINT64_C(8000)
#define CEI_QUEUES_MEET_PART 32u

/* The best job is worth waiting for while its ports are busy for up to this part of its own
 * time; then the next best job goes instead. Jobs out of turn make others go out of turn,
 * too. */
#define CEI_QUEUES_HOLD_PART 8u

/* The link's own backlog is weighted 1/SPREAD against the busiest port's backlog: so a lane
 * whose own port is the busiest keeps a choice of links for longer. */
#define CEI_QUEUES_SPREAD 8u

/* An overdue copy extends its port reservation by this much. */
#define CEI_QUEUES_LATE_NS  UINT64_C(10000)

/* Anti-starvation: a queue head is dispatched, even on busy ports, after it has waited the
 * time of PATIENCE copies of its kind plus PATIENCE_NS. */
#define CEI_QUEUES_PATIENCE    64u
#define CEI_QUEUES_PATIENCE_NS UINT64_C(5000000)

/* Ordered jobs may overtake jobs that have waited up to this much longer. */
#define CEI_QUEUES_OVERTAKE_NS UINT64_C(1000000)

/* Flows lead at a port by this many of their jobs before they leave it to others, ... */
#define CEI_QUEUES_LEAD 2u

/* ... for this part of the job's time: long enough for the other engine to see that the port is
 * free. Longer waits, when the others cannot go because their other ports are busy, would leave the
 * port idle. */
#define CEI_QUEUES_YIELD_PART 8u

struct cei_decision {                   /* while a job is taken */
	uint64_t            now_ns;
	int                 is_shared;  /* between several clients */
	int                 is_urgent;  /* the job goes in urgent time */
	uint64_t            soon_ns;    /* the time of a job that is worth waiting for; 0: none */
};

struct cei_queues {
	struct cei_ports  *ports;       /* NULL: no link's ports are known */
	uint32_t           credit;      /* most jobs that may be moving on a lane */
	struct cei_lane_set has_waiting;/* lanes for which jobs wait */
	struct cei_lane_set has_moving; /* lanes on which jobs move */
	const struct cei_machine_link *links[CEI_LINEUP_LINKS];
	uint64_t           n_looks;     /* number of jobs ever compared: the cost of decisions */
	struct cei_flows  *flows;       /* NULL: there is one client */
	struct cei_decision decision;
	uint64_t           admitted[CEI_FLOWS_SLOTS / 64 + 1];  /* bit: the slot has room on all
								 * lanes */
	uint32_t           n_lanes;     /* lanes for which there is room; see make_room */
	struct cei_lineup *lanes[CEI_LANES_MAX];
};

/* Makes room for n_lanes. CEOV_ERR_NO_MEMORY, not raised; then call fini. queues must be zeroed
 * before. */
int  cei_queues_init(struct cei_queues *queues, struct cei_ports *ports, uint32_t n_lanes,
		     uint32_t credit);

/* Frees the memory of the lanes' queues; a zeroed struct is allowed. Jobs are not accessed, because
 * they may have been freed: the bytes of jobs that still wait here stay counted at the ports. */
void cei_queues_fini(struct cei_queues *queues);

/* Makes room for the lanes below n_lanes, at most CEI_LANES_MAX; some of them may have it already.
 * Any thread, while others use lanes that have room; callers serialise calls, and use the new lanes
 * in other threads only behind something that orders memory, such as a launch.
 * CEOV_ERR_NO_MEMORY, not raised; the call may be repeated. */
int  cei_queues_make_room(struct cei_queues *queues, uint32_t n_lanes);

/* Several clients may have jobs from now on; flows: those of all engines. Before jobs are added. */
void cei_queues_share(struct cei_queues *queues, struct cei_flows *flows);

/* Makes room for the jobs of a slot's clients on all lanes, those of later calls of make_room
 * included; it may have been made before. Threads and errors as with make_room, and one call of
 * either at a time. */
int  cei_queues_admit(struct cei_queues *queues, uint32_t slot);

/* Adds an IDLE job, filled except for the queues' fields; it waits from now on. A job whose client
 * has no room here becomes one of slot 0. */
void cei_queues_add(struct cei_queues *queues, struct cei_job *job);

/* Chooses the lane's next job, and marks the job as MOVING. NULL: no job may go now. */
struct cei_job *cei_queues_take(struct cei_queues *queues, uint32_t lane, uint64_t now_ns);

/* Call it once per turn before jobs are taken: extends the reservations of overdue jobs. */
void cei_queues_settle(struct cei_queues *queues, uint64_t now_ns);

/* Removes a job in any state, because it is done or dropped; it becomes IDLE. */
void cei_queues_leave(struct cei_queues *queues, struct cei_job *job, uint64_t now_ns);

#endif /* CEI_QUEUES_H */
