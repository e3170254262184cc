/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Chooses which job goes next. Knows no engine, no plan and no clock. */

#include "ce_engine/sched/queues.h"

#include <stdlib.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

/* --- creating and freeing ------------------------------------------------ */

/* Makes room on a new lane for all clients that have room on the others. */
static int admit_all(const struct cei_queues *queues, struct cei_lineup *lineup)
{
	uint32_t i;
	int r = 0;

	for (i = 1; !r && i < CEI_FLOWS_SLOTS; i++)
		if (queues->admitted[i / 64] >> i % 64 & 1)
			r = cei_lineup_admit(lineup, i);
	return r;
}

int cei_queues_init(struct cei_queues *queues, struct cei_ports *ports, uint32_t n_lanes,
		    uint32_t credit)
{
	queues->ports = ports;
	queues->credit = credit;
	return cei_queues_make_room(queues, n_lanes);
}

void cei_queues_share(struct cei_queues *queues, struct cei_flows *flows)
{
	queues->flows = flows;
}

int cei_queues_make_room(struct cei_queues *queues, uint32_t n_lanes)
{
	struct cei_lineup *lineup;

	for (; queues->n_lanes < n_lanes; queues->n_lanes++) {
		lineup = cei_lineup_create();
		if (!lineup)
			return CEOV_ERR_NO_MEMORY;
		if (admit_all(queues, lineup)) {
			cei_lineup_destroy(lineup);
			return CEOV_ERR_NO_MEMORY;
		}
		queues->lanes[queues->n_lanes] = lineup;
	}
	return 0;
}

int cei_queues_admit(struct cei_queues *queues, uint32_t slot)
{
	uint32_t i;

	for (i = 0; i < queues->n_lanes; i++)
		if (cei_lineup_admit(queues->lanes[i], slot))
			return CEOV_ERR_NO_MEMORY;
	queues->admitted[slot / 64] |= UINT64_C(1) << slot % 64;
	return 0;
}

void cei_queues_fini(struct cei_queues *queues)
{
	while (queues->n_lanes)
		cei_lineup_destroy(queues->lanes[--queues->n_lanes]);
	memset(queues, 0, sizeof(*queues));
}

/* --- what jobs take ------------------------------------------------------- */

/* How long the job should take on its lane. */
static uint64_t takes_ns_of(const struct cei_job *job)
{
	const struct cei_machine_link *link = job->link;

	if (!link)
		link = cei_link_default((enum cei_direction)job->direction);
	return cei_machine_link_ns(link, cei_job_row_bytes(job));
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

static uint32_t flow_of(const struct cei_job *job)
{
	return job->client * CEI_FLOW_CLASSES + cei_job_flow_class(job);
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
	if (queues->flows && job->link)
		cei_flows_wait(queues->flows, job->link, flow_of(job));
}

/* --- taking jobs out of the queues ---------------------------------------- */

static void unqueue(struct cei_queues *queues, struct cei_job *job)
{
	cei_lineup_remove(queues->lanes[job->lane], job);
	if (job->class != CEI_JOB_ORDERED)
		cei_ports_unwait(queues->ports, job->link, job->bytes);
	if (queues->flows && job->link)
		cei_flows_unwait(queues->flows, job->link, flow_of(job));
}

/* When a job begins that is given to the lane now. */
static uint64_t start_on(const struct cei_lineup *lineup, uint64_t now_ns)
{
	uint64_t start = lineup->begun_ns + lineup->moving_ns;

	if (!lineup->n_moving)
		return now_ns + CEI_QUEUES_ISSUE_NS;
	return start > now_ns ? start : now_ns;
}

/* Puts a job that goes on the account of its flow, which then stands last among those of equal
 * rights. */
static void serve(struct cei_queues *queues, const struct cei_job *job)
{
	struct cei_waiting *waiting = queues->lanes[job->lane]->waiting[job->client];
	const struct cei_decision *decision = &queues->decision;
	struct cei_flows_use use = { job->link, flow_of(job), decision->is_urgent,
				     job->takes_ns, decision->now_ns };
	struct cei_shares_use share = { .is_urgent = decision->is_urgent };

	share.service = cei_flows_service(queues->flows, use.flow, use.takes_ns);
	share.credit = cei_flows_service(queues->flows, use.flow, CEI_FLOWS_CREDIT_NS);
	cei_shares_serve(&waiting->lineup->shares,
			 &waiting->start[use.flow % CEI_FLOW_CLASSES], &share);
	cei_shares_go_on(&waiting->lineup->shares, decision->now_ns);
	cei_flows_charge(queues->flows, job->client, cei_job_row_bytes(job), decision->now_ns);
	if (job->link)
		cei_flows_serve(queues->flows, &use);
	cei_list_remove(&waiting->link);
	cei_list_append(&waiting->lineup->clients, &waiting->link);
}

static struct cei_job *move(struct cei_queues *queues, struct cei_job *job, uint64_t start_ns,
			    uint64_t ends_ns)
{
	struct cei_lineup *lineup = queues->lanes[job->lane];

	job->takes_ns = takes_ns_of(job);
	job->ends_ns = ends_ns;
	if (queues->flows)
		serve(queues, job);
	unqueue(queues, job);
	job->state = CEI_JOB_MOVING;
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
	const struct cei_decision *decision = &queues->decision;
	struct cei_ports_ask ask = { .link = job->link };
	uint64_t ends = 0;

	ask.start_ns = start_on(queues->lanes[job->lane], now_ns);
	if (queues->ports && job->link && !decision->is_urgent &&
	    (decision->is_shared || !cei_ports_are_quiet(queues->ports))) {
		ask.takes_ns = takes_ns_of(job);
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

/* Whether a job leaves its ports, which are free, to other flows that wait for them. */
static int yields(const struct cei_queues *queues, const struct cei_job *job,
		  struct cei_patience *first, uint64_t takes_ns)
{
	uint64_t now = queues->decision.now_ns;
	uint32_t flow = flow_of(job);

	if (!queues->decision.is_shared ||
	    cei_flows_lead(queues->flows, job->link, flow, now) <=
	    CEI_QUEUES_LEAD * cei_flows_service(queues->flows, flow, takes_ns)) {
		first->yields_since_ns = 0;
		return 0;
	}
	if (!first->yields_since_ns)
		first->yields_since_ns = now;
	return now - first->yields_since_ns <= takes_ns / CEI_QUEUES_YIELD_PART;
}

/* How long a job's ports may be busy so that it is worth waiting for. Of several clients, all lanes
 * keep to the same order for longer. */
static uint64_t soon_ns(const struct cei_queues *queues, const struct cei_job *job,
			uint64_t takes_ns)
{
	if (queues->decision.is_shared && job->class == CEI_JOB_ORDERED)
		return takes_ns;
	return takes_ns / CEI_QUEUES_HOLD_PART;
}

static enum fit fit_of(struct cei_queues *queues, const struct cei_job *job,
		       const struct choice *choice, struct cei_patience *first)
{
	uint64_t takes = takes_ns_of(job);
	uint64_t patience = CEI_QUEUES_PATIENCE * takes;

	if (!first->since_ns)
		first->since_ns = choice->now_ns;
	if (patience < CEI_QUEUES_PATIENCE_NS)
		patience = CEI_QUEUES_PATIENCE_NS;
	if (choice->now_ns - first->since_ns > patience)
		return FIT_DUE;
	if (cei_ports_are_free(queues->ports, job->link, free_by(choice->start_ns, takes)))
		return yields(queues, job, first, takes) ? FIT_BUSY : FIT_FREE;
	first->yields_since_ns = 0;
	return cei_ports_are_free(queues->ports, job->link, choice->start_ns +
				  soon_ns(queues, job, takes)) ? FIT_SOON : FIT_BUSY;
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

	if (used & (used - 1) || queues->decision.is_shared)
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
	ask.takes_ns = takes_ns_of(job);
	if (choice->fit != FIT_BUSY)
		queues->decision.soon_ns = ask.takes_ns;
	if (choice->fit != FIT_FREE)
		return NULL;
	ask.start_ns = choice->start_ns;
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
	int is_shared = queues->decision.is_shared, is_known = queues->ports && job->link;

	if (!is_shared && (!is_known || job->urgency != CEOV_URGENCY_BACKGROUND))
		return move_at_once(queues, job, now_ns);
	choice.start_ns = start_on(waiting->lineup, now_ns);
	if (choice.start_ns - now_ns > CEI_QUEUES_AHEAD_NS)
		return NULL;
	if (!is_known)
		return move_at_once(queues, job, now_ns);
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
		return ordered ? move_ordered(queues, waiting, ordered, now_ns) : NULL;
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

/* Normal jobs, and urgent ones before them. */
static struct cei_job *take_normal(struct cei_queues *queues, struct cei_waiting *waiting,
				   uint64_t now_ns)
{
	struct cei_job *job = take_urgency(queues, waiting, CEOV_URGENCY_URGENT, now_ns);

	return job ? job : take_urgency(queues, waiting, CEOV_URGENCY_NORMAL, now_ns);
}

/* --- between several clients ------------------------------------------------ */

/* Takes the client's first urgent job if there is urgent time for it. */
static struct cei_job *take_urgent(struct cei_queues *queues, const struct cei_waiting *waiting,
				   uint64_t now_ns)
{
	struct cei_job *job = cei_job_first(&waiting->ordered[CEOV_URGENCY_URGENT]);

	if (!job || !cei_flows_use_urgent(queues->flows, job->link,
					  &waiting->lineup->shares.urgent_until_ns,
					  takes_ns_of(job), now_ns))
		return NULL;
	queues->decision.is_urgent = 1;
	job = move_at_once(queues, job, now_ns);
	queues->decision.is_urgent = 0;
	return job;
}

static struct cei_job *take_in_turn(struct cei_queues *queues, struct cei_lineup *lineup,
				    uint64_t now_ns)
{
	struct cei_lineup_flow entries[CEI_FLOWS];
	uint32_t i, n = cei_lineup_flows(lineup, queues->flows, now_ns, entries);
	uint64_t *soon_ns = &queues->decision.soon_ns;
	struct cei_job *job = NULL;

	for (i = 0; !job && i < n; i++)
		if (entries[i].class == CEI_FLOW_NORMAL)
			job = take_urgent(queues, entries[i].waiting, now_ns);
	*soon_ns = 0;
	for (i = 0; !job && i < n; i++) {
		if (entries[i].class == CEI_FLOW_NORMAL)
			job = take_normal(queues, entries[i].waiting, now_ns);
		else
			job = take_urgency(queues, entries[i].waiting, CEOV_URGENCY_BACKGROUND,
					   now_ns);
		if (!job && *soon_ns && cei_shares_hold(&lineup->shares, *soon_ns, now_ns))
			break;
	}
	return job;
}

/* Whether the lane's jobs go in the turns of their clients. */
static int is_shared(const struct cei_queues *queues, const struct cei_lineup *lineup)
{
	return cei_flows_are_shared(queues->flows) ||
		lineup->clients.next != lineup->clients.previous;
}

struct cei_job *cei_queues_take(struct cei_queues *queues, uint32_t lane, uint64_t now_ns)
{
	struct cei_lineup *lineup = queues->lanes[lane];
	struct cei_waiting *waiting;
	struct cei_job *job;

	if (cei_list_is_empty(&lineup->clients)) {
		cei_lane_set_remove(&queues->has_waiting, lane);
		return NULL;
	}
	if (lineup->n_moving >= queues->credit)
		return NULL;
	waiting = CEI_OWNER(lineup->clients.next, struct cei_waiting, link);
	if (queues->flows) {
		queues->decision.now_ns = now_ns;
		queues->decision.is_shared = is_shared(queues, lineup);
		if (queues->decision.is_shared)
			return take_in_turn(queues, lineup, now_ns);
		if (!cei_flows_may_go(queues->flows, waiting->client, now_ns))
			return NULL;
	}
	job = take_normal(queues, waiting, now_ns);
	return job ? job : take_urgency(queues, waiting, CEOV_URGENCY_BACKGROUND, now_ns);
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
	if (queues->flows)
		cei_flows_count(queues->flows, job->link, job->client, job->urgency, job->bytes);
}

void cei_queues_leave(struct cei_queues *queues, struct cei_job *job, uint64_t now_ns)
{
	if (job->state == CEI_JOB_WAITING)
		unqueue(queues, job);
	else if (job->state == CEI_JOB_MOVING)
		stop_moving(queues, job, now_ns);
	job->state = CEI_JOB_IDLE;
}
