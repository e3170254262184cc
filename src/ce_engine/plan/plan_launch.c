/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* ceov_launch, ceov_wait, ceov_abort: the application's side of launches. */

#include "ce_engine/plan/plan_launch.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/ranges.h"
#include "base/sized.h"
#include "ce_engine/engine/engine.h"
#include "ce_engine/objects/abort.h"
#include "ce_engine/objects/buffer.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/plan.h"
#include "ce_engine/objects/signal.h"
#include "ce_engine/plan/plan_builder.h"
#include "ce_engine/sched/launch.h"

/* --- launch -------------------------------------------------------------- */

/* Takes the caller's struct, or zeroes if there is none. */
static int take_launch(ceov_plan *plan, const struct ceov_launch *from,
		       struct ceov_launch *ret_launch)
{
	int r = 0;

	if (from)
		r = cei_sized_check(&plan->object.context->report, from,
				    offsetof(struct ceov_launch, floating),
				    sizeof(*ret_launch), "ceov_launch: launch");
	if (!r)
		cei_sized_take(ret_launch, from, sizeof(*ret_launch));
	return r;
}

static int check_floating(ceov_plan *plan, uint64_t address)
{
	struct cei_report *report = &plan->object.context->report;
	const struct cei_program *program = &plan->program;
	uint64_t size_bytes;

	if (program->floating == CEI_PROGRAM_NONE && !address)
		return 0;
	if (program->floating == CEI_PROGRAM_NONE)
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "ceov_launch: floating names an address, but the plan has no "
				 "floating buffer");
	if (!address)
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "ceov_launch: the plan has a floating buffer; name its "
				 "address in floating");
	size_bytes = program->buffers[program->floating].size_bytes;
	if (address + size_bytes < address)
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "ceov_launch: floating: the range of %" PRIu64 " bytes wraps",
				 size_bytes);
	return 0;
}

static int check_launch(ceov_plan *plan, const struct ceov_launch *launch)
{
	struct cei_report *report = &plan->object.context->report;
	int r;

	if (plan->builder)
		return cei_raise(report, CEOV_ERR_STATE, 0,
				 "ceov_launch: the plan is not committed");
	r = check_floating(plan, (uint64_t)(uintptr_t)launch->floating);
	if (r)
		return r;
	if (launch->after_stream && plan->triggers.leaves_node != CEOV_NOBODY)
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "ceov_launch: transfer %u of the plan goes to rank %u, which is "
				 "on another node, so its engine polls: name no after_stream, and "
				 "let the stream raise a mark that the transfer waits for",
				 plan->triggers.leaves_node,
				 cei_program_target_rank(&plan->program,
							 plan->triggers.leaves_node));
	if (launch->after_stream && !plan->triggers.is_direct)
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "ceov_launch: a transfer of the plan has no direct path, so "
				 "its engine polls: name no after_stream");
	if (!launch->producer_stream && !plan->triggers.is_pollable)
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "ceov_launch: source_ready marks of this plan cannot be "
				 "polled; name producer_stream");
	return 0;
}

int cei_plan_check_base(const ceov_plan *plan, uint64_t base, const char *call,
			struct cei_report_hold *hold)
{
	struct cei_report *report = &plan->object.context->report;
	int is_large = base >= CEOV_VALUE_LIMIT - plan->triggers.largest_value;

	if (!is_large && base >= plan->run.last_base)
		return 0;
	cei_report_hold_begin(report, hold);
	if (is_large)
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "%s: base %" PRIu64 " and the plan's values come to "
				 "CEOV_VALUE_LIMIT", call, base);
	return cei_raise(report, CEOV_ERR_INVALID, 0,
			 "%s: base falls from %" PRIu64 " to %" PRIu64, call,
			 plan->run.last_base, base);
}

int cei_plan_check_parties(ceov_plan *plan, const char *call)
{
	ceov_context *context = plan->object.context;
	struct ceov_failure failure;
	uint32_t i, rank;
	int r = 0;

	for (i = 0; !r && i < plan->program.n_signals; i++)
		r = cei_signal_check_abort(plan->signals[i], call);
	if (r)
		return r;
	for (i = 0; i < plan->program.n_buffers; i++) {
		rank = plan->buffers[i]->rank;
		if (!cei_context_is_lost(context, rank))
			continue;
		failure = cei_failure(CEOV_ERR_PEER_LOST, 0);
		failure.rank = rank;
		return cei_raise_failure(&context->report, &failure,
					 "%s: the plan names a buffer of rank %u, which has "
					 "gone", call, rank);
	}
	return 0;
}

/* Returns a record for one launch, or NULL. The caller holds the plan's lock. */
static struct cei_launch *take_record(ceov_plan *plan)
{
	struct cei_list *node = cei_list_take(&plan->run.idle);
	struct cei_launch *record;

	if (node)
		return CEI_OWNER(node, struct cei_launch, link);
	record = calloc(1, cei_launch_bytes(plan));
	if (record)
		cei_list_init(&record->link);
	return record;
}

static void fill_record(struct cei_launch *record, ceov_plan *plan,
			const struct ceov_launch *launch)
{
	uint64_t timeout = plan->object.context->deadline_ns;
	uint32_t i;

	if (launch->deadline_ns)
		timeout = launch->deadline_ns;
	record->plan = plan;
	record->sequence = plan->run.n_launches;
	record->base = launch->base;
	record->deadline_ns = cei_deadline(timeout);
	record->producer = launch->producer_stream;
	record->gate = CEOV_NOBODY;
	cei_list_init(&record->gate_link);
	record->gate_line = NULL;
	record->next_step = 0;
	record->next_open = 0;
	record->after = launch->after_stream;
	record->has_followed = 0;
	record->floating = (uint64_t)(uintptr_t)launch->floating;
	record->hold_until_ns = 0;
	record->n_parked = 0;
	record->n_blocked = 0;
	record->error = 0;
	record->blamed = CEOV_NOBODY;
	record->n_open = plan->program.n_chunks;
	for (i = 0; i < plan->program.n_chunks; i++) {
		cei_list_init(&record->chunks[i].link);
		record->chunks[i].launch = record;
		record->chunks[i].index = i;
		record->chunks[i].state = CEI_CHUNK_ARMED;
		record->chunks[i].path = NULL;
		record->chunks[i].sequence = 0;
		record->chunks[i].leg = 0;
		record->chunks[i].parked = CEI_AWAKE;
		record->chunks[i].slot = CEI_NO_SLOT;
		record->chunks[i].awaited = CEI_AWAITED_NONE;
	}
}

/* Records an event at the point of the stream that the launch follows. */
static int mark_stream(ceov_plan *plan, struct cei_launch *record, void *stream)
{
	struct cei_backend *backend = plan->object.context->backends[plan->member];
	int r = 0;

	if (!backend->ops->event_open)
		return cei_raise(cei_object_report(&plan->object), CEOV_ERR_INVALID, 0,
				 "ceov_launch: rank %u is on the host, which has no streams: name "
				 "no after_stream", plan->program.rank);
	if (!record->event)
		r = backend->ops->event_open(backend, &record->event);
	return r ? r : backend->ops->event_record(backend, record->event, stream);
}

/* Gives the record the number in *number or, if that is 0, one of the context's tickets, and puts
 * it into the engine's inbox. */
static int submit(ceov_plan *plan, struct cei_launch *record, uint64_t *number)
{
	ceov_context *context = plan->object.context;
	int r = 0;

	record->slot = NULL;
	if (!*number)
		r = cei_tickets_take(&context->tickets, plan, number, &record->slot);
	if (r)
		return r;
	record->number = *number;
	r = cei_engine_submit(context->engines[plan->member], record);
	if (r && record->slot)
		cei_tickets_give_back(&context->tickets, record->slot);
	return r;
}

/* Puts a launch into the engine's inbox. The caller holds the plan's lock, so that launches are
 * there in the order of `sequence`. Begins `hold` if log lines may be written. *number: as in
 * submit(). */
static int enqueue(ceov_plan *plan, const struct ceov_launch *launch,
		   struct cei_report_hold *hold, uint64_t *number)
{
	ceov_context *context = plan->object.context;
	struct cei_launch *record;
	int r = 0;

	if (plan->run.n_in_flight == CEI_PLAN_LAUNCHES_MAX)
		return CEOV_FULL;
	record = take_record(plan);
	if (!record || launch->after_stream)
		cei_report_hold_begin(&context->report, hold);
	if (!record)
		return cei_raise(&context->report, CEOV_ERR_NO_MEMORY, 0,
				 "ceov_launch: no memory for %u chunks", plan->program.n_chunks);
	fill_record(record, plan, launch);
	if (launch->after_stream)
		r = mark_stream(plan, record, launch->after_stream);
	if (!r)
		r = submit(plan, record, number);
	if (r) {
		cei_list_append(&plan->run.idle, &record->link);
		return r;
	}
	cei_context_await(context, plan->waits.n_watches != 0);
	plan->run.n_in_flight++;
	plan->run.n_launches++;
	plan->run.last_base = launch->base;
	return 0;
}

/* Asks for the marks of other nodes that the launch waits for: of each counter the largest. */
static void ask_far(const struct ceov_plan *plan, uint64_t base)
{
	const struct cei_waits *waits = &plan->waits;
	const struct cei_counter *counter;
	uint32_t i;

	if (!plan->object.context->site.network)
		return;
	for (i = 0; i < waits->n_watches; i++) {
		counter = waits->waiters[waits->watch_at[i + 1] - 1].counter;
		cei_signal_ask(counter->signal, counter->index, base + counter->value);
	}
	for (i = 0; i < plan->n_also; i++) {
		counter = &plan->also[i].counter;
		cei_signal_ask(counter->signal, counter->index, base + counter->value);
	}
}

int cei_launch_enqueue(struct ceov_plan *plan, const struct ceov_launch *launch,
		       ceov_ticket *ret_ticket)
{
	struct cei_report_hold hold;
	uint64_t number = 0;
	int r;

	hold.is_open = 0;
	pthread_mutex_lock(&plan->lock);
	r = cei_plan_check_base(plan, launch->base, "ceov_launch", &hold);
	if (!r)
		r = enqueue(plan, launch, &hold, &number);
	pthread_mutex_unlock(&plan->lock);
	cei_report_hold_end(&plan->object.context->report, &hold);
	if (r)
		return r;
	ask_far(plan, launch->base);
	*ret_ticket = (ceov_ticket){ number };
	return 0;
}

int cei_launch_numbered(struct ceov_plan *plan, const struct ceov_launch *launch, uint64_t number)
{
	struct cei_report_hold hold;
	int r;

	if (launch->base >= CEOV_VALUE_LIMIT - plan->triggers.largest_value)
		return CEOV_ERR_INVALID;
	hold.is_open = 0;
	pthread_mutex_lock(&plan->lock);
	r = enqueue(plan, launch, &hold, &number);
	pthread_mutex_unlock(&plan->lock);
	cei_report_hold_end(&plan->object.context->report, &hold);
	return r;
}

static int launch_in_range(ceov_plan *plan, const struct ceov_launch *launch,
			   ceov_ticket *ret_ticket)
{
	ceov_context *context = plan->object.context;
	int r;

	cei_range_begin(context->site.ranges, "ceov_launch", plan->program.n_transfers);
	r = context->door->launch(plan, launch, ret_ticket);
	cei_range_end(context->site.ranges);
	return r;
}

int ceov_launch(ceov_plan *plan, const struct ceov_launch *from, ceov_ticket *ret_ticket)
{
	struct ceov_launch launch;
	ceov_ticket ticket = { 0 };
	int r = cei_object_check(plan, &cei_plan_type, "ceov_launch");

	if (!r)
		r = take_launch(plan, from, &launch);
	if (!r)
		r = check_launch(plan, &launch);
	if (!r)
		r = cei_plan_check_parties(plan, "ceov_launch");
	if (!r)
		r = launch_in_range(plan, &launch, &ticket);
	if (!r && ret_ticket)
		*ret_ticket = ticket;
	return r;
}

/* --- wait ---------------------------------------------------------------- */

static int refuse_ticket(ceov_context *context, ceov_ticket ticket, int why)
{
	if (why == CEOV_NONE)
		return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
				 "ticket %" PRIu64 ": whether that launch went well is not "
				 "known any more: more than %u later ones have failed since",
				 ticket.number, CEI_FAILURES_MAX);
	return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
			 "ticket %" PRIu64 " was never issued", ticket.number);
}

int cei_ticket_wait(ceov_context *context, ceov_ticket ticket, uint64_t timeout_ns,
		    int *ret_result)
{
	return cei_tickets_wait(&context->tickets, ticket.number, timeout_ns, ret_result);
}

int ceov_wait(ceov_context *context, ceov_ticket ticket, uint64_t timeout_ns)
{
	int result = 0;
	int r = cei_context_check(context, "ceov_wait");

	if (r)
		return r;
	r = context->door->wait(context, ticket, timeout_ns, &result);
	return r ? refuse_ticket(context, ticket, r) : result;
}

/* --- abort --------------------------------------------------------------- */

/* Takes the context's lock, so that the plan is not released, and holds back log lines
 * meanwhile. */
int cei_ticket_abort(ceov_context *context, ceov_ticket ticket)
{
	const struct cei_abort abort = { CEOV_ERR_ABORTED, CEOV_NOBODY };
	struct cei_report_hold hold;
	ceov_plan *plan;

	cei_report_hold_begin(&context->report, &hold);
	pthread_mutex_lock(&context->lock);
	plan = cei_tickets_plan(&context->tickets, ticket.number);
	/* A launch that ends has left its plan before its ticket says so. */
	if (plan && plan->object.state == CEI_OBJECT_DEAD)
		plan = NULL;
	if (plan) {
		cei_abort_plan(plan, &abort);
		cei_abort_end(context, 0);
	}
	pthread_mutex_unlock(&context->lock);
	cei_report_hold_end(&context->report, &hold);
	return plan ? 0 : CEOV_NONE;
}

int ceov_abort(ceov_context *context, ceov_ticket ticket)
{
	int result, r = cei_context_check(context, "ceov_abort");

	if (!r)
		r = context->door->abort(context, ticket);
	if (r != CEOV_NONE)
		return r;
	r = context->door->wait(context, ticket, 0, &result);
	return r == CEOV_ERR_INVALID ? refuse_ticket(context, ticket, r) : CEOV_NONE;
}
