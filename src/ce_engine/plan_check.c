/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * What commit refuses for this context's sake: stale memory. What it refuses of any program
 * is in program_check.c, program_triggers.c, plan_order.c and plan_overlap.c; here it is
 * asked, and what else launches go by is noted.
 */

#include "ce_engine/buffer.h"
#include "ce_engine/context.h"
#include "ce_engine/plan.h"
#include "ce_engine/signal.h"
#include "ce_engine/plan_order.h"

static struct cei_report *report_of(const struct ceov_plan *plan)
{
	return &plan->object.context->report;
}

/* --- stale memory -------------------------------------------------------- */

static int check_stale(const struct ceov_plan *plan)
{
	struct cei_region *region;
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < plan->program.n_buffers; i++) {
		region = plan->buffers[i]->region;
		if (region->origin == CEI_REGION_ADOPTED)
			r = cei_share_for(region->kind)->check(region);
	}
	return r;
}

/* --- triggers ------------------------------------------------------------ */

static int check_triggers(struct ceov_plan *plan)
{
	struct cei_triggers triggers;
	int r = cei_program_check_triggers(&plan->program, report_of(plan), &triggers);

	if (r)
		return r;
	plan->is_gateable = triggers.is_gateable;
	plan->why_polled = triggers.why_polled;
	plan->is_pollable = triggers.is_pollable;
	plan->largest_value = triggers.largest_value;
	return 0;
}

/* A lane that waits for a mark which a transfer behind it raises waits for ever. */
static int check_gates(struct ceov_plan *plan, const struct cei_order *order)
{
	uint32_t i;

	for (i = 0; plan->is_gateable && i < plan->program.n_transfers; i++) {
		if (order->before[2 * i] == CEOV_NOBODY)
			continue;
		plan->why_polled = "the plan itself raises a source_ready mark";
		plan->is_gateable = 0;
		if (!plan->is_pollable)
			return cei_raise(report_of(plan), CEOV_ERR_INVALID, 0,
					 "transfer %u: source_ready is raised by the plan "
					 "and cannot be polled (its signal is in a GPU and "
					 "not host visible)", i);
	}
	return 0;
}

/* Whether more than marks orders the transfers: a template's walk, one that raises behind
 * all that stand before it, or a counter that several raise. */
static int keeps_order(const struct ceov_plan *plan, const struct cei_order *order)
{
	uint32_t i;

	for (i = 0; i < plan->program.n_transfers; i++)
		if (!plan->program.transfers[i].row_bytes)
			return 1;
	return plan->program.has_template || order->raises_again;
}

/* What does all in the order of the plan would wait for ever there. */
static uint32_t waits_ahead(const struct ceov_plan *plan, const struct cei_order *order)
{
	uint32_t i, k;

	for (i = 0; i < plan->program.n_transfers; i++)
		for (k = 0; k < 2; k++)
			if (order->before[2 * i + k] != CEOV_NOBODY &&
			    order->before[2 * i + k] > i)
				return i;
	return CEOV_NOBODY;
}

int cei_plan_check(struct ceov_plan *plan)
{
	struct cei_order order;
	int r = check_stale(plan);

	if (!r)
		r = check_triggers(plan);
	if (r)
		return r;
	r = cei_order_init(&order, &plan->program, report_of(plan));
	if (!r)
		r = check_gates(plan, &order);
	if (!r)
		r = cei_overlap_check(&order);
	if (!r)
		plan->keeps_order |= keeps_order(plan, &order);
	if (!r)
		plan->waits_ahead = waits_ahead(plan, &order);
	if (!r && cei_waits_init(&plan->waits, plan, &order))
		r = cei_order_no_memory(&order);
	cei_order_fini(&order);
	return r;
}
