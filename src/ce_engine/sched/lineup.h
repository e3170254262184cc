/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_LINEUP_H
#define CEI_LINEUP_H

/*
 * The jobs of one lane: those that wait, for each client in queues of its own, and those that move.
 * A job is what the scheduler must know of a chunk. queues.h decides which of them goes next.
 *
 * Plain data of one engine; time is a parameter.
 */

#include <stdint.h>

#include "base/list.h"
#include "ce_engine/sched/flows.h"
#include "topology/machine.h"

/* --- shares of a lane -------------------------------------------------------- */

/*
 * How flows (flows.h) share one lane: start-time fair queueing. The lane's next job is the first
 * one of the flow that starts least; a flow's start is the service that it has received on the lane
 * so far. The lane's clock is the largest start of a job that went; a flow that begins to wait
 * starts there at least, so it saves up nothing while it asks for nothing. What a flow can catch up
 * with that waited long for other reasons is bounded by a credit, as in flows.h.
 *
 * All lanes of a machine serve their flows in the same order as long as the flow whose turn it is
 * can go. Then copies that keep out of each other's way within a client, such as those of a
 * rotation, do so with several clients, too. So a lane waits for the ports of the flow whose turn
 * it is, but only for a small part of its time, because clients with other patterns never get into
 * step.
 */

/* A lane waits for the flow whose turn it is for one part in HOLD_PART of its time. Unused time
 * adds up to that of HOLD_MOST jobs. With these two all-gathers at 3:1 lose 2 %, and an all-gather
 * beside random copies 1 % more than without any waiting (tests/sim/). */
#define CEI_SHARES_HOLD_PART 16u
#define CEI_SHARES_HOLD_MOST 8u

struct cei_shares {
	uint64_t clock;
	uint64_t floor;                 /* as a port's: see flows.h */
	uint64_t urgent_until_ns;       /* until when urgent time of jobs is used up that cross no
					 * port; see flows.h */
	uint64_t held_since_ns;         /* since when it waits for the flow whose turn it is; 0: it
					 * does not */
	uint64_t held_most_ns;          /* the longest that it may have waited */
	uint64_t hold_until_ns;         /* until when it has used its time to wait */
};

struct cei_shares_use {                 /* a job that goes */
	uint64_t service;
	uint64_t credit;                /* of its flow */
	int      is_urgent;             /* in urgent time: its lead grows up to its credit */
};

/* A flow begins to wait; *start: its start. */
void cei_shares_begin(const struct cei_shares *shares, uint64_t *start);

/* A job of the flow goes. */
void cei_shares_serve(struct cei_shares *shares, uint64_t *start,
		      const struct cei_shares_use *use);

/* The flow whose turn it is should have its ports within the time of its job. Whether the lane
 * waits for it. */
int  cei_shares_hold(struct cei_shares *shares, uint64_t takes_ns, uint64_t now_ns);

/* The lane waits no longer, because a job goes. */
void cei_shares_go_on(struct cei_shares *shares, uint64_t now_ns);

/* --- the jobs of a lane ------------------------------------------------------ */

/* links with queues of their own; further links share queues, and wait for each other */
#define CEI_LINEUP_LINKS 64u

/* Limits of background jobs on a lane: their number, and their bytes together, unless there
 * is only one. */
#define CEI_LINEUP_BACKGROUND       2u
#define CEI_LINEUP_BACKGROUND_BYTES (UINT64_C(32) << 20)

enum cei_job_state { CEI_JOB_IDLE, CEI_JOB_WAITING, CEI_JOB_MOVING };

/* The class of a job that waits in an ordered queue, not in its link's. */
#define CEI_JOB_ORDERED UINT8_MAX

struct cei_job {
	const struct cei_machine_link *link;    /* NULL: its ports are not known */
	uint64_t        bytes;
	uint64_t        gap_bytes;      /* so many bytes longer one row would be that takes as long
					 * as the job's rows (program_cut.h) */
	uint64_t        ready_ns;       /* when it became ready */
	uint16_t        lane;
	uint16_t        turn;           /* tie-breaker among equally good jobs: the least goes
					 * first */
	uint8_t         urgency;        /* enum ceov_urgency */
	uint8_t         direction;      /* enum cei_direction, whose default link predicts the
					 * job's time where its own is not known */
	uint8_t         keeps_order;
	uint8_t         state;          /* queues: enum cei_job_state */
	uint8_t         class;          /* queues: its link's index in `links`, or
					 * CEI_JOB_ORDERED */
	uint16_t        client;         /* slot of who asks (flows.h); 0: the process itself */
	uint16_t        tally;          /* tally: the place of its link */
	uint64_t        chosen_ns;      /* tally: when it was chosen for its lane */
	struct cei_list node;           /* queues: while not IDLE */
	uint64_t        takes_ns;       /* while MOVING: its expected time, ... */
	uint64_t        ends_ns;        /* ... and the end of its port reservation; 0: it has
					 * none */
};

struct cei_patience {                   /* with the first job of a queue */
	uint64_t        since_ns;       /* since when it stands first; 0: not determined yet */
	uint64_t        yields_since_ns;/* since when it leaves free ports to others; 0: it does
					 * not */
};

struct cei_queue {                      /* the jobs of one link */
	struct cei_list jobs;
	uint64_t        bytes;
	struct cei_patience first;
};

#define CEI_LINEUP_ORDERED 3u           /* one queue per urgency */
#define CEI_LINEUP_FREE    2u           /* sets of queues for normal and for background jobs */

struct cei_waiting {                    /* the jobs of one client that wait for one lane */
	struct cei_list    link;        /* in the lane's list of clients, while it has jobs */
	struct cei_lineup *lineup;
	uint32_t           client;      /* slot: see flows.h */
	uint32_t           n_jobs;
	uint64_t           start[CEI_FLOW_CLASSES];     /* see struct cei_shares */
	struct cei_list    ordered[CEI_LINEUP_ORDERED];
	struct cei_patience first[CEI_LINEUP_ORDERED];  /* of the ordered ones */
	uint64_t           is_used[CEI_LINEUP_FREE];    /* bit i: queue i has jobs */
	struct cei_queue   free[CEI_LINEUP_FREE][CEI_LINEUP_LINKS];     /* lists are initialised
									 * at first use */
};

struct cei_lineup {                     /* the jobs of one lane */
	struct cei_list     clients;    /* that have waiting jobs */
	struct cei_shares   shares;
	struct cei_list     moving;     /* oldest first */
	uint32_t            n_moving;
	uint32_t            n_background;       /* background jobs among them, ... */
	uint64_t            background_bytes;
	uint64_t            begun_ns;   /* when the oldest one began, as far as known */
	uint64_t            moving_ns;  /* expected time of all of them */
	struct cei_waiting  own;        /* of slot 0 */
	struct cei_waiting *waiting[CEI_FLOWS_SLOTS];   /* by slot; NULL: there is no room */
};

/* NULL: no memory. There is room for the jobs of slot 0. */
struct cei_lineup *cei_lineup_create(void);

/* NULL is allowed. Jobs are not accessed. */
void cei_lineup_destroy(struct cei_lineup *lineup);

/* Makes room for the jobs of a slot's clients, unless there is. CEOV_ERR_NO_MEMORY, not raised. Any
 * thread, while another one uses the lineup for other slots. */
int  cei_lineup_admit(struct cei_lineup *lineup, uint32_t slot);

/* Adds a job, whose class is known, to the queues of its client. A job whose client has no room
 * becomes one of slot 0. */
void cei_lineup_add(struct cei_lineup *lineup, struct cei_job *job);

/* Takes out a job that waits. */
void cei_lineup_remove(struct cei_lineup *lineup, struct cei_job *job);

/* Adds a job, whose takes_ns is known, behind those that move, or takes one out. */
void cei_lineup_move(struct cei_lineup *lineup, struct cei_job *job);
void cei_lineup_stop(struct cei_lineup *lineup, struct cei_job *job);

/* Whether the lane takes one more job of this urgency and size. */
int  cei_lineup_has_room(const struct cei_lineup *lineup, const struct cei_job *job);

struct cei_lineup_flow {                /* a flow with jobs that wait */
	uint64_t            start;      /* see struct cei_shares */
	struct cei_waiting *waiting;
	enum cei_flow_class class;
};

/* Lists the flows that have waiting jobs and whose limits let them go, the one with the least start
 * first. A client's background jobs come behind its others. ret_entries has room for CEI_FLOWS.
 * Returns how many. */
uint32_t cei_lineup_flows(struct cei_lineup *lineup, const struct cei_flows *flows,
			  uint64_t now_ns, struct cei_lineup_flow *ret_entries);

static inline enum cei_flow_class cei_job_flow_class(const struct cei_job *job)
{
	return job->urgency == CEOV_URGENCY_BACKGROUND ? CEI_FLOW_BACKGROUND : CEI_FLOW_NORMAL;
}

/* The job's bytes as if they were one row that takes as long. */
static inline uint64_t cei_job_row_bytes(const struct cei_job *job)
{
	return job->bytes + job->gap_bytes;
}

/* The first job of a list, or NULL. */
static inline struct cei_job *cei_job_first(const struct cei_list *list)
{
	return cei_list_is_empty(list) ? NULL : CEI_OWNER(list->next, struct cei_job, node);
}

#endif /* CEI_LINEUP_H */
