/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Chooses which job goes next. Knows no engine, no plan and no clock. */

#include "ce_engine/sched/queues.h"

#include <string.h>

#include <ceoverlap/ceoverlap.h>

/* --- creating and freeing ------------------------------------------------ */

int cei_queues_init(struct cei_queues *queues, struct cei_ports *ports, uint32_t n_lanes,
		    uint32_t credit)
{
	queues->ports = ports;
	queues->credit = credit;
	return cei_queues_make_room(queues, n_lanes);
}

int cei_queues_make_room(struct cei_queues *queues, uint32_t n_lanes)
{
	for (; queues->n_lanes < n_lanes; queues->n_lanes++) {
		queues->lanes[queues->n_lanes] = cei_lineup_create();
		if (!queues->lanes[queues->n_lanes])
			return CEOV_ERR_NO_MEMORY;
	}
	return 0;
}

void cei_queues_fini(struct cei_queues *queues)
{
	while (queues->n_lanes)
		cei_lineup_destroy(queues->lanes[--queues->n_lanes]);
	memset(queues, 0, sizeof(*queues));
}

/* --- adding jobs ---------------------------------------------------------- */

/* The link's index in the table of links; where that is full, it shares another link's. */
static uint8_t class_of(struct cei_queues *queues, const struct cei_machine_link *link)
{
	uint32_t begin = (uint32_t)((uintptr_t)link / sizeof(*link) % CEI_LINEUP_LINKS);
	uint32_t i, at;

	for (i = 0; i < CEI_LINEUP_LINKS; i++) {
		at = (begin + i) % CEI_LINEUP_LINKS;
		if (!queues->links[at])
			queues->links[at] = link;
		if (queues->links[at] == link)
			return (uint8_t)at;
	}
	return (uint8_t)begin;
}

/* Whether the job waits in its link's queue, to go when its ports are free, and not in an ordered
 * queue. Urgent jobs are few and small: they go at once, whatever the ports. */
static int is_free(const struct cei_queues *queues, const struct cei_job *job)
{
	return queues->ports && job->link && !job->keeps_order &&
		job->urgency != CEOV_URGENCY_URGENT;
}

void cei_queues_add(struct cei_queues *queues, struct cei_job *job)
{
	int is_ordered = !is_free(queues, job);

	cei_lane_set_add(&queues->has_waiting, job->lane);
	job->state = CEI_JOB_WAITING;
	job->class = is_ordered ? CEI_JOB_ORDERED : class_of(queues, job->link);
	cei_lineup_add(queues->lanes[job->lane], job);
	if (!is_ordered)
		cei_ports_wait(queues->ports, job->link, job->bytes);
}

/* --- taking jobs out of the queues ---------------------------------------- */

static void unqueue(struct cei_queues *queues, struct cei_job *job)
{
	cei_lineup_remove(queues->lanes[job->lane], job);
	if (job->class != CEI_JOB_ORDERED)
		cei_ports_unwait(queues->ports, job->link, job->bytes);
}

/* When a job begins that is given to the lane now. */
static uint64_t start_on(const struct cei_lineup *lineup, uint64_t now_ns)
{
	uint64_t start = lineup->begun_ns + lineup->moving_ns;

	if (!lineup->n_moving)
		return now_ns + CEI_QUEUES_ISSUE_NS;
	return start > now_ns ? start : now_ns;
}

static struct cei_job *move(struct cei_queues *queues, struct cei_job *job, uint64_t start_ns,
			    uint64_t ends_ns)
{
	struct cei_lineup *lineup = queues->lanes[job->lane];

	unqueue(queues, job);
	job->state = CEI_JOB_MOVING;
	job->takes_ns = job->link ? cei_machine_link_ns(job->link, job->bytes) : 0;
	job->ends_ns = ends_ns;
	if (!lineup->n_moving)
		lineup->begun_ns = start_ns;
	cei_lane_set_add(&queues->has_moving, job->lane);
	cei_lineup_move(lineup, job);
	return job;
}

/* Dispatches a job whatever its ports; its ports, if known, are reserved so that others see
 * it. */
static struct cei_job *move_at_once(struct cei_queues *queues, struct cei_job *job,
				    uint64_t now_ns)
{
	struct cei_ports_ask ask = { .link = job->link };
	uint64_t ends = 0;

	ask.start_ns = start_on(queues->lanes[job->lane], now_ns);
	if (queues->ports && job->link && !cei_ports_are_quiet(queues->ports)) {
		ask.takes_ns = cei_machine_link_ns(job->link, job->bytes);
		ends = cei_ports_book(queues->ports, &ask);
	}
	return move(queues, job, ask.start_ns, ends);
}

enum fit {                              /* how well a job's ports suit it */
	FIT_BUSY,
	FIT_SOON,                       /* busy, but worth waiting for */
	FIT_FREE,
	FIT_DUE,                        /* it has waited too long, and goes even if its
					 * ports are busy */
};

struct choice {
	uint64_t        now_ns;
	uint64_t        start_ns;       /* when the chosen job would begin */
	int             may_go;         /* the lane wants work; else only oldest_ns is computed */
	uint64_t        oldest_ns;      /* since when the longest waiting queue head waits */
	struct cei_job *job;            /* the best job so far whose ports are free, or NULL */
	enum fit        fit;
	uint64_t        weight_ns;
};

/* Whether a job is better than the best so far. */
static int is_better(const struct choice *choice, const struct cei_job *job, uint64_t weight_ns)
{
	if (!choice->job || weight_ns > choice->weight_ns)
		return 1;
	return weight_ns == choice->weight_ns && job->turn < choice->job->turn;
}

/* The latest time at which ports should be free for a job that begins at start_ns. */
static uint64_t free_by(uint64_t start_ns, uint64_t takes_ns)
{
	uint64_t part = takes_ns / CEI_QUEUES_MEET_PART;

	return start_ns + (part > CEI_QUEUES_MEET_NS ? part : CEI_QUEUES_MEET_NS);
}

static enum fit fit_of(struct cei_queues *queues, const struct cei_job *job,
		       const struct choice *choice, struct cei_patience *first)
{
	uint64_t takes = cei_machine_link_ns(job->link, job->bytes);
	uint64_t patience = CEI_QUEUES_PATIENCE * takes;

	if (!first->since_ns)
		first->since_ns = choice->now_ns;
	if (patience < CEI_QUEUES_PATIENCE_NS)
		patience = CEI_QUEUES_PATIENCE_NS;
	if (choice->now_ns - first->since_ns > patience)
		return FIT_DUE;
	if (cei_ports_are_free(queues->ports, job->link, free_by(choice->start_ns, takes)))
		return FIT_FREE;
	return cei_ports_are_free(queues->ports, job->link, choice->start_ns +
				  takes / CEI_QUEUES_HOLD_PART) ? FIT_SOON : FIT_BUSY;
}

static void look_at(struct cei_queues *queues, struct cei_queue *queue, struct choice *choice)
{
	struct cei_job *job = cei_job_first(&queue->jobs);
	uint64_t weight;
	enum fit fit;

	queues->n_looks++;
	if (job->ready_ns < choice->oldest_ns)
		choice->oldest_ns = job->ready_ns;
	if (!choice->may_go || choice->fit == FIT_DUE ||
	    !cei_lineup_has_room(queues->lanes[job->lane], job))
		return;
	fit = fit_of(queues, job, choice, &queue->first);
	weight = cei_ports_weight_ns(queues->ports, job->link) +
		cei_machine_link_ns(job->link, queue->bytes) / CEI_QUEUES_SPREAD;
	if (fit == FIT_BUSY || (fit != FIT_DUE && !is_better(choice, job, weight)))
		return;
	choice->job = job;
	choice->fit = fit;
	choice->weight_ns = weight;
}

/* Whether jobs wait for one link only here, and no other engine waits for its ports. */
static int is_alone(const struct cei_queues *queues, const struct cei_waiting *waiting,
		    uint32_t index)
{
	uint64_t used = waiting->is_used[index];
	const struct cei_queue *queue;

	if (used & (used - 1))
		return 0;
	queue = &waiting->free[index][__builtin_ctzll(used)];
	return cei_ports_wait_is(queues->ports, cei_job_first(&queue->jobs)->link, queue->bytes);
}

/* Whether a lane whose next job would begin at start_ns should get it now. */
static int wants_work(const struct cei_queues *queues, const struct cei_waiting *waiting,
		      uint32_t index, const struct choice *choice)
{
	uint64_t ahead = choice->start_ns - choice->now_ns;

	if (ahead <= CEI_QUEUES_AHEAD_NS)
		return 1;
	return ahead <= CEI_QUEUES_ALONE_NS && is_alone(queues, waiting, index);
}

static struct choice choose(struct cei_queues *queues, struct cei_waiting *waiting,
			    uint32_t index, uint64_t now_ns)
{
	struct choice choice = { .now_ns = now_ns, .oldest_ns = UINT64_MAX };
	uint64_t used = waiting->is_used[index];

	if (!used)
		return choice;
	choice.start_ns = start_on(waiting->lineup, now_ns);
	choice.may_go = wants_work(queues, waiting, index, &choice);
	for (; used; used &= used - 1)
		look_at(queues, &waiting->free[index][__builtin_ctzll(used)], &choice);
	return choice;
}

/* Dispatches the chosen job; NULL: waiting is better, or another engine reserved the ports
 * first. */
static struct cei_job *move_free(struct cei_queues *queues, const struct choice *choice)
{
	struct cei_job *job = choice->job;
	struct cei_ports_ask ask = { .link = job->link };
	uint64_t ends;

	if (choice->fit == FIT_DUE)
		return move_at_once(queues, job, choice->now_ns);
	if (choice->fit != FIT_FREE)
		return NULL;
	ask.start_ns = choice->start_ns;
	ask.takes_ns = cei_machine_link_ns(job->link, job->bytes);
	ask.by_ns = free_by(ask.start_ns, ask.takes_ns);
	if (cei_ports_take(queues->ports, &ask, &ends))
		return NULL;
	return move(queues, job, choice->start_ns, ends);
}

/* Dispatches the first job of an ordered queue; NULL: it has to wait. */
static struct cei_job *move_ordered(struct cei_queues *queues, struct cei_waiting *waiting,
				    struct cei_job *job, uint64_t now_ns)
{
	struct choice choice = { .now_ns = now_ns, .job = job };

	if (job->urgency != CEOV_URGENCY_BACKGROUND || !queues->ports || !job->link)
		return move_at_once(queues, job, now_ns);
	choice.start_ns = start_on(waiting->lineup, now_ns);
	if (choice.start_ns - now_ns > CEI_QUEUES_AHEAD_NS)
		return NULL;
	choice.fit = fit_of(queues, job, &choice, &waiting->first[job->urgency]);
	return move_free(queues, &choice);
}

static struct cei_job *take_urgency(struct cei_queues *queues, struct cei_waiting *waiting,
				    uint32_t urgency, uint64_t now_ns)
{
	struct cei_job *ordered = cei_job_first(&waiting->ordered[urgency]);
	struct cei_job *job = NULL;
	struct choice choice;

	if (ordered && !cei_lineup_has_room(waiting->lineup, ordered))
		ordered = NULL;
	if (urgency == CEOV_URGENCY_URGENT)
		return ordered ? move_at_once(queues, ordered, now_ns) : NULL;
	choice = choose(queues, waiting, urgency == CEOV_URGENCY_BACKGROUND, now_ns);
	if (ordered && ordered->ready_ns <= choice.oldest_ns)
		return move_ordered(queues, waiting, ordered, now_ns);
	if (choice.job)
		job = move_free(queues, &choice);
	if (!job && ordered && ordered->ready_ns - choice.oldest_ns <= CEI_QUEUES_OVERTAKE_NS)
		return move_ordered(queues, waiting, ordered, now_ns);
	return job;
}

/* The oldest job is overdue: extends its reservation, so that others do not begin on its
 * ports yet. */
static void settle_late(struct cei_queues *queues, struct cei_lineup *lineup, uint64_t now_ns)
{
	struct cei_job *job = cei_job_first(&lineup->moving);

	if (lineup->begun_ns + job->takes_ns >= now_ns)
		return;
	lineup->begun_ns = now_ns + CEI_QUEUES_LATE_NS - job->takes_ns;
	if (!job->ends_ns)
		return;
	cei_ports_move(queues->ports, job->link, job->ends_ns, now_ns + CEI_QUEUES_LATE_NS);
	job->ends_ns = now_ns + CEI_QUEUES_LATE_NS;
}

void cei_queues_settle(struct cei_queues *queues, uint64_t now_ns)
{
	const struct cei_lane_set *moving = &queues->has_moving;
	uint32_t lane;

	if (!queues->ports)
		return;
	for (lane = cei_lane_set_next(moving, 0); lane != CEI_NO_LANE;
	     lane = cei_lane_set_next(moving, lane + 1))
		settle_late(queues, queues->lanes[lane], now_ns);
}

struct cei_job *cei_queues_take(struct cei_queues *queues, uint32_t lane, uint64_t now_ns)
{
	struct cei_lineup *lineup = queues->lanes[lane];
	struct cei_job *job;

	if (cei_list_is_empty(&lineup->clients)) {
		cei_lane_set_remove(&queues->has_waiting, lane);
		return NULL;
	}
	if (lineup->n_moving >= queues->credit)
		return NULL;
	job = take_urgency(queues, &lineup->own, CEOV_URGENCY_URGENT, now_ns);
	if (!job)
		job = take_urgency(queues, &lineup->own, CEOV_URGENCY_NORMAL, now_ns);
	if (!job)
		job = take_urgency(queues, &lineup->own, CEOV_URGENCY_BACKGROUND, now_ns);
	return job;
}

/* --- removing jobs ---------------------------------------------------------- */

/* The lane's next job begins now, so its end and its reservations can be corrected. */
static void settle_next(struct cei_queues *queues, struct cei_lineup *lineup, uint64_t now_ns)
{
	struct cei_job *job = cei_job_first(&lineup->moving);

	lineup->begun_ns = now_ns;
	if (!job || !job->ends_ns)
		return;
	cei_ports_move(queues->ports, job->link, job->ends_ns, now_ns + job->takes_ns);
	job->ends_ns = now_ns + job->takes_ns;
}

static void stop_moving(struct cei_queues *queues, struct cei_job *job, uint64_t now_ns)
{
	struct cei_lineup *lineup = queues->lanes[job->lane];
	int was_first = cei_job_first(&lineup->moving) == job;

	cei_lineup_stop(lineup, job);
	if (!lineup->n_moving)
		cei_lane_set_remove(&queues->has_moving, job->lane);
	if (job->ends_ns > now_ns)
		cei_ports_move(queues->ports, job->link, job->ends_ns, now_ns);
	if (was_first)
		settle_next(queues, lineup, now_ns);
}

void cei_queues_leave(struct cei_queues *queues, struct cei_job *job, uint64_t now_ns)
{
	if (job->state == CEI_JOB_WAITING)
		unqueue(queues, job);
	else if (job->state == CEI_JOB_MOVING)
		stop_moving(queues, job, now_ns);
	job->state = CEI_JOB_IDLE;
}
