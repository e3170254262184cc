/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* ceov_launch, ceov_wait, ceov_abort: the application's side of launches. */

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/park.h"
#include "base/sized.h"
#include "ce_engine/buffer.h"
#include "ce_engine/context.h"

/* --- launch -------------------------------------------------------------- */

/* All 0 where the caller has none. */
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

	if (!plan->floating && !address)
		return 0;
	if (!plan->floating)
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "ceov_launch: floating names an address, but the plan has no "
				 "floating buffer");
	if (!address)
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "ceov_launch: the plan has a floating buffer; name its "
				 "address in floating");
	if (address + plan->floating->region->size_bytes < address)
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "ceov_launch: floating: the range of %" PRIu64 " bytes wraps",
				 plan->floating->region->size_bytes);
	return 0;
}

static int check_launch(ceov_plan *plan, const struct ceov_launch *launch)
{
	struct cei_report *report = &plan->object.context->report;
	int r;

	if (!plan->is_committed)
		return cei_raise(report, CEOV_ERR_STATE, 0,
				 "ceov_launch: the plan is not committed");
	r = check_floating(plan, (uint64_t)(uintptr_t)launch->floating);
	if (r)
		return r;
	if (launch->after_stream && !plan->is_direct)
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "ceov_launch: a transfer of the plan has no direct way, so "
				 "its engine polls: name no after_stream");
	if (!launch->producer_stream && !plan->is_pollable)
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "ceov_launch: source_ready marks of this plan cannot be "
				 "polled; name producer_stream");
	return 0;
}

int cei_plan_check_base(const ceov_plan *plan, uint64_t base, const char *call)
{
	struct cei_report *report = &plan->object.context->report;

	if (base >= CEOV_VALUE_LIMIT - plan->largest_value)
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "%s: base %" PRIu64 " and the plan's values come to "
				 "CEOV_VALUE_LIMIT", call, base);
	if (base < plan->last_base)
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "%s: base falls from %" PRIu64 " to %" PRIu64, call,
				 plan->last_base, base);
	return 0;
}

int cei_plan_check_parties(ceov_plan *plan, const char *call)
{
	ceov_context *context = plan->object.context;
	struct ceov_failure failure;
	uint32_t i, rank;
	int error;

	for (i = 0; i < plan->n_signals; i++) {
		error = cei_signal_aborted(plan->signals[i]);
		if (error)
			return cei_raise(&context->report, error, 0,
					 "%s: a signal of rank %u was aborted (%s); renew it",
					 call, plan->signals[i]->rank, ceov_strerror(error));
	}
	for (i = 0; i < plan->n_buffers; i++) {
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

/* A record for one launch, or NULL; with the plan's lock held. */
static struct cei_launch *take_record(ceov_plan *plan)
{
	struct cei_list *node = cei_list_take(&plan->idle);
	struct cei_launch *record;

	if (node)
		return CEI_OWNER(node, struct cei_launch, link);
	record = calloc(1, sizeof(*record) +
			plan->n_cuts * sizeof(record->chunks[0]));
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
	record->sequence = plan->n_launches;
	record->base = launch->base;
	record->deadline_ns = cei_deadline(timeout);
	record->producer = launch->producer_stream;
	record->gate = CEOV_NOBODY;
	cei_list_init(&record->gate_link);
	record->next_step = 0;
	record->next_open = 0;
	record->after = launch->after_stream;
	record->has_followed = 0;
	record->floating = (uint64_t)(uintptr_t)launch->floating;
	record->hold_until_ns = 0;
	record->error = 0;
	record->n_open = plan->n_cuts;
	for (i = 0; i < plan->n_cuts; i++) {
		cei_list_init(&record->chunks[i].link);
		record->chunks[i].launch = record;
		record->chunks[i].index = i;
		record->chunks[i].state = CEI_CHUNK_ARMED;
		record->chunks[i].lane = 0;
		record->chunks[i].sequence = 0;
		record->chunks[i].leg = 0;
		record->chunks[i].slot = CEI_NO_SLOT;
	}
}

/* A number and its slot. CEOV_FULL: the slot's old launch is still in flight. */
static int take_ticket(struct cei_tickets *tickets, struct cei_launch *record)
{
	struct cei_ticket_slot *slot;
	uint64_t number;
	int r = 0;

	pthread_mutex_lock(&tickets->lock);
	number = tickets->last + 1;
	slot = &tickets->slots[number % CEI_TICKETS];
	/* acquire: pairs with publish() in launch.c */
	if (atomic_load_explicit(&slot->number, memory_order_relaxed) &&
	    !atomic_load_explicit(&slot->is_done, memory_order_acquire)) {
		r = CEOV_FULL;
	} else {
		tickets->last = number;
		/* seq_cst: against result_of(): who still reads the old number after
		 * the result has read the old result */
		atomic_store(&slot->number, 0);
		atomic_store(&slot->result, 0);
		slot->plan = record->plan;
		atomic_store_explicit(&slot->is_done, 0, memory_order_relaxed);
		/* release: pairs with ceov_wait()'s acquire of the number */
		atomic_store_explicit(&slot->number, number, memory_order_release);
		record->slot = slot;
		record->number = number;
	}
	pthread_mutex_unlock(&tickets->lock);
	return r;
}

static void give_back_ticket(struct cei_launch *record)
{
	atomic_store(&record->slot->result, CEOV_ERR_ABORTED);
	atomic_store(&record->slot->is_done, 1);
}

/* Marks the point of the stream that the launch comes after. */
static int mark_stream(ceov_plan *plan, struct cei_launch *record, void *stream)
{
	struct cei_engine *engine = &plan->object.context->engines[plan->member];
	const struct cei_backend_ops *ops = engine->backend.ops;
	int r = 0;

	if (!stream)
		return 0;
	if (!record->event)
		r = ops->event_open(&engine->backend, &record->event);
	return r ? r : ops->event_record(&engine->backend, record->event, stream);
}

/* With the plan's lock held, so that sequence and inbox have one order. */
static int enqueue(ceov_plan *plan, const struct ceov_launch *launch,
		   ceov_ticket *ret_ticket)
{
	ceov_context *context = plan->object.context;
	struct cei_launch *record;
	int r;

	r = cei_plan_check_base(plan, launch->base, "ceov_launch");
	if (r)
		return r;
	if (plan->n_in_flight == CEI_PLAN_LAUNCHES_MAX)
		return CEOV_FULL;
	record = take_record(plan);
	if (!record)
		return cei_raise(&context->report, CEOV_ERR_NO_MEMORY, 0,
				 "ceov_launch: no memory for %u chunks", plan->n_cuts);
	fill_record(record, plan, launch);
	r = mark_stream(plan, record, launch->after_stream);
	if (!r)
		r = take_ticket(&context->tickets, record);
	if (!r) {
		*ret_ticket = (ceov_ticket){ record->number };
		r = cei_engine_submit(&context->engines[plan->member], record);
		if (r)
			give_back_ticket(record);
	}
	if (r) {
		cei_list_append(&plan->idle, &record->link);
		return r;
	}
	plan->n_in_flight++;
	plan->n_launches++;
	plan->last_base = launch->base;
	return 0;
}

int ceov_launch(ceov_plan *plan, const struct ceov_launch *from, ceov_ticket *ret_ticket)
{
	struct ceov_launch launch;
	ceov_ticket ticket = { 0 };
	int r = cei_object_check(plan, CEI_OBJECT_PLAN, "ceov_launch");

	if (!r)
		r = take_launch(plan, from, &launch);
	if (!r)
		r = check_launch(plan, &launch);
	if (!r)
		r = cei_plan_check_parties(plan, "ceov_launch");
	if (r)
		return r;
	pthread_mutex_lock(&plan->lock);
	r = enqueue(plan, &launch, &ticket);
	pthread_mutex_unlock(&plan->lock);
	if (!r && ret_ticket)
		*ret_ticket = ticket;
	return r;
}

/* --- wait ---------------------------------------------------------------- */

/* CEOV_NONE: another launch has the slot, or none ever had. */
static int find_slot(ceov_context *context, ceov_ticket ticket,
		     struct cei_ticket_slot **ret_slot)
{
	struct cei_ticket_slot *slot = &context->tickets.slots[ticket.number % CEI_TICKETS];

	/* acquire: pairs with take_ticket() */
	if (!ticket.number ||
	    atomic_load_explicit(&slot->number, memory_order_acquire) != ticket.number)
		return CEOV_NONE;
	*ret_slot = slot;
	return 0;
}

static int refuse_ticket(ceov_context *context, ceov_ticket ticket)
{
	return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
			 "ticket %" PRIu64 " was never issued, or is older than the last %u "
			 "launches", ticket.number, CEI_TICKETS);
}

static void wait_done(struct cei_ticket_slot *slot, uint64_t deadline)
{
	/* A thread that slept for milliseconds may take hundreds of microseconds to
	 * come back (measured in a virtual machine). */
	uint64_t park_at = cei_now_ns() + CEI_BACKOFF_YIELD_NS;
	struct cei_backoff backoff;

	cei_backoff_reset(&backoff);
	while (cei_now_ns() < park_at) {
		if (atomic_load_explicit(&slot->is_done, memory_order_acquire))
			return;
		cei_backoff_step(&backoff);
	}
	/* seq_cst: against publish() in launch.c, see there */
	atomic_fetch_add(&slot->n_waiters, 1);
	while (!atomic_load(&slot->is_done) && cei_now_ns() < deadline)
		cei_park_wait(&slot->is_done, 0, deadline);
	atomic_fetch_sub(&slot->n_waiters, 1);
}

/* The slot may go to a newer launch at any time once the old one is done. */
static int result_of(ceov_context *context, ceov_ticket ticket,
		     struct cei_ticket_slot *slot)
{
	int result;

	/* acquire: pairs with publish() in launch.c */
	if (!atomic_load_explicit(&slot->is_done, memory_order_acquire))
		return atomic_load(&slot->number) == ticket.number ? CEOV_PENDING
			: find_slot(context, ticket, &slot);
	result = atomic_load(&slot->result);
	/* seq_cst: against take_ticket(), see there */
	if (atomic_load(&slot->number) == ticket.number)
		return result;
	return find_slot(context, ticket, &slot);
}

int cei_ticket_wait(ceov_context *context, ceov_ticket ticket, uint64_t timeout_ns)
{
	struct cei_ticket_slot *slot;
	int r = find_slot(context, ticket, &slot);

	if (r)
		return r;
	if (timeout_ns)
		wait_done(slot, cei_deadline(timeout_ns));
	return result_of(context, ticket, slot);
}

int ceov_wait(ceov_context *context, ceov_ticket ticket, uint64_t timeout_ns)
{
	int r = cei_context_check(context);

	if (r)
		return r;
	r = cei_ticket_wait(context, ticket, timeout_ns);
	return r == CEOV_NONE ? refuse_ticket(context, ticket) : r;
}

/* --- abort --------------------------------------------------------------- */

int ceov_abort(ceov_context *context, ceov_ticket ticket)
{
	struct cei_ticket_slot *slot;
	ceov_plan *plan;
	int r = cei_context_check(context);

	if (!r)
		r = find_slot(context, ticket, &slot);
	if (r)
		return r == CEOV_NONE ? refuse_ticket(context, ticket) : r;
	/* This lock keeps tickets from being reissued, the context's keeps plans. */
	pthread_mutex_lock(&context->lock);
	pthread_mutex_lock(&context->tickets.lock);
	plan = slot->plan;
	if (atomic_load(&slot->number) != ticket.number || atomic_load(&slot->is_done))
		r = CEOV_NONE;
	pthread_mutex_unlock(&context->tickets.lock);
	if (!r)
		cei_signals_abort(plan->signals, plan->n_signals, CEOV_ERR_ABORTED,
				  CEOV_NOBODY);
	pthread_mutex_unlock(&context->lock);
	return r;
}
