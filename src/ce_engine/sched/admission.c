/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Decides which launches may begin, and on which gated lanes. */

#include "ce_engine/sched/admission.h"

int cei_admission_init(struct cei_admission *admission, struct cei_backend *backend,
		       struct cei_expiry *expiry)
{
	uint32_t i;

	admission->backend = backend;
	admission->expiry = expiry;
	for (i = 0; i < CEI_LANES_GATED; i++)
		cei_list_init(&admission->line[i]);
	return cei_ring_init(&admission->inbox, CEI_INBOX_CELLS);
}

void cei_admission_fini(struct cei_admission *admission)
{
	cei_ring_fini(&admission->inbox);
}

/* --- gated lanes --------------------------------------------------------- */

/* The gated lane that serves the producer or is free, or CEOV_NOBODY. */
static uint32_t lane_for(const struct cei_admission *admission, const void *producer)
{
	uint32_t i, free_lane = CEOV_NOBODY;

	for (i = CEI_LANES_GATED; i-- > 0;) {
		if (!admission->n_launches[i])
			free_lane = i;
		else if (admission->producer[i] == producer)
			return i;
	}
	return free_lane;
}

/* The stream whose work raises the marks, or precedes the point, that the launch's lane would wait
 * for. NULL: there is none; the launch is polled. */
static const void *chain_of(const struct cei_launch *launch)
{
	if (launch->after)
		return launch->after;
	return launch->plan->triggers.is_gateable ? launch->producer : NULL;
}

/* Whether both would be gated on one lane, that of their stream. They must go on it in the order of
 * their launches: the later one makes it wait for a point of the stream, or for a mark, that may
 * itself wait for the earlier one. */
static int shares_lane(const struct cei_launch *launch, const struct cei_launch *other)
{
	return chain_of(launch) && chain_of(launch) == chain_of(other);
}

static uint32_t gate_for(const struct cei_admission *admission, const struct cei_launch *launch)
{
	uint32_t lane;

	if (!chain_of(launch))
		return CEOV_NOBODY;
	lane = lane_for(admission, chain_of(launch));
	return lane == CEOV_NOBODY ? CEOV_NOBODY : CEI_LANES_GATED_FIRST + lane;
}

/* Assigns the gated lane to the launch. A held launch gets it, too, so that no other launch takes
 * the lane before it. */
static void take_lane(struct cei_admission *admission, struct cei_launch *launch, uint32_t gate)
{
	uint32_t i = gate - CEI_LANES_GATED_FIRST;

	if (launch->gate == gate)
		return;
	launch->gate = gate;
	admission->producer[i] = chain_of(launch);
	admission->n_launches[i]++;
}

/* Whether the lane may be left waiting for marks that could be polled as well. Launches of
 * a plan stay together: one that went the other way would be held for the ones before. */
static int may_gate(struct cei_admission *admission, const struct ceov_plan *plan)
{
	if (plan->run.n_admitted)
		return plan->run.gate != CEOV_NOBODY;
	return cei_backend_waits_left(admission->backend) > 0;
}

/* --- admitting launches -------------------------------------------------- */

/* Whether a held launch, before `end` in the list, would be gated on the same lane. */
static int is_behind_held(const struct cei_admission *admission,
			  const struct cei_launch *launch, const struct cei_list *end)
{
	struct cei_list *node;

	for (node = admission->expiry->held.next; node != end; node = node->next)
		if (shares_lane(launch, CEI_OWNER(node, struct cei_launch, link)))
			return 1;
	return 0;
}

/* Lets the launch in, if it may go: not behind one that shares its lane and is held before
 * `end`, not past an earlier launch of its plan that is held or goes the other way, and not
 * without a gated lane where it needs one. */
static int lets_in(struct cei_admission *admission, struct cei_launch *launch,
		   const struct cei_list *end)
{
	struct ceov_plan *plan = launch->plan;
	int is_behind = is_behind_held(admission, launch, end);
	int needs_lane = launch->after || !plan->triggers.is_pollable;
	uint32_t gate = launch->gate;

	if (gate == CEOV_NOBODY && !is_behind && !admission->is_short &&
	    (needs_lane || may_gate(admission, plan)))
		gate = gate_for(admission, launch);
	/* Two ways at once could raise a plan's marks out of order. Polling is always
	 * as good as a gate; the reverse must wait. */
	if (plan->run.n_admitted && plan->run.gate == CEOV_NOBODY && !needs_lane)
		gate = CEOV_NOBODY;
	if (gate == CEOV_NOBODY && needs_lane) {
		admission->is_short |= !is_behind;
		return 0;
	}
	if (needs_lane)
		take_lane(admission, launch, gate);
	if (plan->run.n_held || (plan->run.n_admitted && plan->run.gate != gate))
		return 0;
	plan->run.n_admitted++;
	plan->run.gate = gate;
	if (gate == CEOV_NOBODY)
		return 1;
	take_lane(admission, launch, gate);
	launch->gate_line = &admission->line[gate - CEI_LANES_GATED_FIRST];
	cei_list_append(launch->gate_line, &launch->gate_link);
	return 1;
}

void cei_admission_begin(struct cei_admission *admission)
{
	struct cei_list *held = &admission->expiry->held;
	struct cei_list *node;

	admission->is_short = 0;
	admission->next_held = held->next;
	for (node = held->next; node != held; node = node->next)
		CEI_OWNER(node, struct cei_launch, link)->plan->run.n_held = 0;
}

struct cei_launch *cei_admission_next(struct cei_admission *admission)
{
	struct cei_list *held = &admission->expiry->held;
	struct cei_launch *launch;

	while (admission->next_held != held) {
		launch = CEI_OWNER(admission->next_held, struct cei_launch, link);
		admission->next_held = admission->next_held->next;
		if (lets_in(admission, launch, &launch->link))
			return launch;
		launch->plan->run.n_held = 1;
	}
	while ((launch = cei_ring_take(&admission->inbox))) {
		if (lets_in(admission, launch, held))
			return launch;
		launch->plan->run.n_held = 1;
		cei_expiry_put(admission->expiry, launch, held);
	}
	return NULL;
}

void cei_admission_leave(struct cei_admission *admission, struct cei_launch *launch)
{
	launch->plan->run.n_admitted--;
	cei_list_remove(&launch->gate_link);
	if (launch->gate != CEOV_NOBODY)
		admission->n_launches[launch->gate - CEI_LANES_GATED_FIRST]--;
}
