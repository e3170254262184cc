/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The jobs of one lane, and start-time fair queueing of the flows that share it. */

#include "ce_engine/sched/lineup.h"

#include <stdlib.h>

#include <ceoverlap/ceoverlap.h>

/* --- shares of the lane ----------------------------------------------------- */

void cei_shares_begin(const struct cei_shares *shares, uint64_t *start)
{
	if (*start < shares->clock)
		*start = shares->clock;
}

void cei_shares_serve(struct cei_shares *shares, uint64_t *start,
		      const struct cei_shares_use *use)
{
	if (shares->floor > use->credit && *start < shares->floor - use->credit)
		*start = shares->floor - use->credit;
	if (use->is_urgent && *start > shares->clock + use->credit)
		return;
	if (!use->is_urgent && shares->clock < *start)
		shares->clock = *start;
	*start += use->service;
	if (*start > use->credit && shares->floor < *start - use->credit)
		shares->floor = *start - use->credit;
}

int cei_shares_hold(struct cei_shares *shares, uint64_t takes_ns, uint64_t now_ns)
{
	uint64_t used = shares->hold_until_ns > now_ns ? shares->hold_until_ns - now_ns : 0;

	if (shares->held_since_ns)
		used += (now_ns - shares->held_since_ns) * CEI_SHARES_HOLD_PART;
	shares->held_most_ns = takes_ns * CEI_SHARES_HOLD_MOST;
	if (used >= shares->held_most_ns * CEI_SHARES_HOLD_PART)
		return 0;
	if (!shares->held_since_ns)
		shares->held_since_ns = now_ns;
	return 1;
}

void cei_shares_go_on(struct cei_shares *shares, uint64_t now_ns)
{
	uint64_t held = now_ns - shares->held_since_ns;

	if (!shares->held_since_ns)
		return;
	shares->held_since_ns = 0;
	if (held > shares->held_most_ns)        /* meanwhile the job was dropped */
		held = shares->held_most_ns;
	if (shares->hold_until_ns < now_ns)
		shares->hold_until_ns = now_ns;
	shares->hold_until_ns += held * CEI_SHARES_HOLD_PART;
}

/* --- creating and freeing ------------------------------------------------ */

static void init_waiting(struct cei_waiting *waiting, struct cei_lineup *lineup, uint32_t slot)
{
	uint32_t i;

	cei_list_init(&waiting->link);
	waiting->lineup = lineup;
	waiting->client = slot;
	for (i = 0; i < CEI_LINEUP_ORDERED; i++)
		cei_list_init(&waiting->ordered[i]);
	lineup->waiting[slot] = waiting;
}

struct cei_lineup *cei_lineup_create(void)
{
	struct cei_lineup *lineup = calloc(1, sizeof(*lineup));

	if (!lineup)
		return NULL;
	cei_list_init(&lineup->clients);
	cei_list_init(&lineup->moving);
	init_waiting(&lineup->own, lineup, 0);
	return lineup;
}

void cei_lineup_destroy(struct cei_lineup *lineup)
{
	uint32_t i;

	for (i = 1; lineup && i < CEI_FLOWS_SLOTS; i++)
		free(lineup->waiting[i]);
	free(lineup);
}

int cei_lineup_admit(struct cei_lineup *lineup, uint32_t slot)
{
	struct cei_waiting *waiting;

	if (lineup->waiting[slot])
		return 0;
	waiting = calloc(1, sizeof(*waiting));
	if (!waiting)
		return CEOV_ERR_NO_MEMORY;
	init_waiting(waiting, lineup, slot);
	return 0;
}

/* --- jobs that wait -------------------------------------------------------- */

static struct cei_queue *queue_of(struct cei_waiting *waiting, const struct cei_job *job)
{
	return &waiting->free[cei_job_flow_class(job)][job->class];
}

/* The client begins to wait, or waits because of its limit: its flows save up nothing. */
static void begin(struct cei_waiting *waiting)
{
	uint32_t i;

	for (i = 0; i < CEI_FLOW_CLASSES; i++)
		cei_shares_begin(&waiting->lineup->shares, &waiting->start[i]);
}

void cei_lineup_add(struct cei_lineup *lineup, struct cei_job *job)
{
	struct cei_waiting *waiting;
	struct cei_queue *queue;
	uint64_t *used;

	if (job->client >= CEI_FLOWS_SLOTS || !lineup->waiting[job->client])
		job->client = 0;
	waiting = lineup->waiting[job->client];
	if (!waiting->n_jobs++) {
		cei_list_append(&lineup->clients, &waiting->link);
		begin(waiting);
	}
	if (job->class == CEI_JOB_ORDERED) {
		cei_list_append(&waiting->ordered[job->urgency], &job->node);
		return;
	}
	queue = queue_of(waiting, job);
	used = &waiting->is_used[cei_job_flow_class(job)];
	if (!(*used >> job->class & 1))
		cei_list_init(&queue->jobs);
	cei_list_append(&queue->jobs, &job->node);
	queue->bytes += job->bytes;
	*used |= UINT64_C(1) << job->class;
}

void cei_lineup_remove(struct cei_lineup *lineup, struct cei_job *job)
{
	struct cei_waiting *waiting = lineup->waiting[job->client];
	struct cei_queue *queue;

	cei_list_remove(&job->node);
	if (!--waiting->n_jobs)
		cei_list_remove(&waiting->link);
	if (job->class == CEI_JOB_ORDERED) {
		waiting->first[job->urgency] = (struct cei_patience){ 0 };
		return;
	}
	queue = queue_of(waiting, job);
	queue->bytes -= job->bytes;
	queue->first = (struct cei_patience){ 0 };
	if (cei_list_is_empty(&queue->jobs))
		waiting->is_used[cei_job_flow_class(job)] &= ~(UINT64_C(1) << job->class);
}

/* --- flows in turn ---------------------------------------------------------- */

static int has_jobs(const struct cei_waiting *waiting, enum cei_flow_class class)
{
	const struct cei_list *ordered = waiting->ordered;

	if (waiting->is_used[class])
		return 1;
	if (class == CEI_FLOW_BACKGROUND)
		return !cei_list_is_empty(&ordered[CEOV_URGENCY_BACKGROUND]);
	return !cei_list_is_empty(&ordered[CEOV_URGENCY_URGENT]) ||
		!cei_list_is_empty(&ordered[CEOV_URGENCY_NORMAL]);
}

/* Puts an entry behind those that start earlier or at the same time. */
static void insert(struct cei_lineup_flow *entries, uint32_t n, const struct cei_lineup_flow *entry)
{
	for (; n && entries[n - 1].start > entry->start; n--)
		entries[n] = entries[n - 1];
	entries[n] = *entry;
}

/* Inserts the client's flows into n entries; returns how many there are now. */
static uint32_t insert_client(struct cei_waiting *waiting, struct cei_lineup_flow *entries,
			      uint32_t n)
{
	struct cei_lineup_flow entry = { .waiting = waiting };
	uint32_t class;

	for (class = 0; class < CEI_FLOW_CLASSES; class++) {
		if (!has_jobs(waiting, class))
			continue;
		entry.class = class;
		if (entry.start < waiting->start[class])        /* else behind its normal flow */
			entry.start = waiting->start[class];
		insert(entries, n++, &entry);
	}
	return n;
}

uint32_t cei_lineup_flows(struct cei_lineup *lineup, const struct cei_flows *flows,
			  uint64_t now_ns, struct cei_lineup_flow *ret_entries)
{
	const struct cei_list *node;
	struct cei_waiting *waiting;
	uint32_t n = 0;

	for (node = lineup->clients.next; node != &lineup->clients; node = node->next) {
		waiting = CEI_OWNER(node, struct cei_waiting, link);
		if (cei_flows_may_go(flows, waiting->client, now_ns))
			n = insert_client(waiting, ret_entries, n);
		else
			begin(waiting);
	}
	return n;
}

/* --- jobs that move -------------------------------------------------------- */

void cei_lineup_move(struct cei_lineup *lineup, struct cei_job *job)
{
	cei_list_append(&lineup->moving, &job->node);
	lineup->n_moving++;
	lineup->moving_ns += job->takes_ns;
	if (job->urgency != CEOV_URGENCY_BACKGROUND)
		return;
	lineup->n_background++;
	lineup->background_bytes += job->bytes;
}

void cei_lineup_stop(struct cei_lineup *lineup, struct cei_job *job)
{
	cei_list_remove(&job->node);
	lineup->n_moving--;
	lineup->moving_ns -= job->takes_ns;
	if (job->urgency != CEOV_URGENCY_BACKGROUND)
		return;
	lineup->n_background--;
	lineup->background_bytes -= job->bytes;
}

int cei_lineup_has_room(const struct cei_lineup *lineup, const struct cei_job *job)
{
	if (job->urgency != CEOV_URGENCY_BACKGROUND || !lineup->n_background)
		return 1;
	return lineup->n_background < CEI_LINEUP_BACKGROUND &&
		lineup->background_bytes + job->bytes <= CEI_LINEUP_BACKGROUND_BYTES;
}
