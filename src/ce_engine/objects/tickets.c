/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Slots of launches in flight, and results of those that have ended. */

#include "ce_engine/objects/tickets.h"

#include <ceoverlap/ceoverlap.h>

#include "base/clock.h"

void cei_tickets_init(struct cei_tickets *tickets)
{
	pthread_mutex_init(&tickets->lock, NULL);
}

void cei_tickets_fini(struct cei_tickets *tickets)
{
	pthread_mutex_destroy(&tickets->lock);
}

/* --- beginning ----------------------------------------------------------- */

static struct cei_ticket_slot *slot_of(struct cei_tickets *tickets, uint64_t number)
{
	return &tickets->slots[number % CEI_TICKETS];
}

static int is_taken(struct cei_ticket_slot *slot)
{
	/* acquire: pairs with end() */
	return atomic_load_explicit(&slot->turn, memory_order_acquire) & 1;
}

/* Gives a free slot to a launch. With the lock held. */
static void hand_over(struct cei_ticket_slot *slot, uint64_t number, struct ceov_plan *plan)
{
	/* relaxed, both: a free slot is written only with the lock held */
	uint64_t before = atomic_load_explicit(&slot->number, memory_order_relaxed);
	uint32_t turn = atomic_load_explicit(&slot->turn, memory_order_relaxed);

	if (before)
		slot->before = before;
	/* seq_cst: pairs with look(): who reads the old number after the result has read
	 * the old launch's result */
	atomic_store(&slot->number, 0);
	slot->plan = plan;
	/* release: who sees the new turn does not see the old number; see has_ended() */
	atomic_store_explicit(&slot->turn, turn + 1, memory_order_release);
	/* release: pairs with look()'s acquire of the number */
	atomic_store_explicit(&slot->number, number, memory_order_release);
}

int cei_tickets_take(struct cei_tickets *tickets, struct ceov_plan *plan,
		     uint64_t *ret_number, struct cei_ticket_slot **ret_slot)
{
	uint64_t number, end;

	pthread_mutex_lock(&tickets->lock);
	number = tickets->last + 1;
	end = number + CEI_TICKETS;
	while (number != end && is_taken(slot_of(tickets, number)))
		number++;
	if (number != end) {
		tickets->last = number;
		hand_over(slot_of(tickets, number), number, plan);
		*ret_number = number;
		*ret_slot = slot_of(tickets, number);
	}
	pthread_mutex_unlock(&tickets->lock);
	return number != end ? 0 : CEOV_FULL;
}

/* --- ending -------------------------------------------------------------- */

/* Ends the launch in a slot. Until the turn becomes even, only the caller uses the slot. */
static void end(struct cei_ticket_slot *slot)
{
	uint32_t turn = atomic_load_explicit(&slot->turn, memory_order_relaxed);

	/* seq_cst: pairs with sleep_until(), which counts itself as a waiter and then reads
	 * the turn: one of the two sees the other. Also the release for all acquires of the
	 * turn. */
	atomic_store(&slot->turn, turn + 1);
	if (atomic_load(&slot->n_waiters))
		cei_futex_wake(&slot->turn);
}

void cei_tickets_give_back(struct cei_tickets *tickets, struct cei_ticket_slot *slot)
{
	pthread_mutex_lock(&tickets->lock);
	atomic_store(&slot->number, 0);
	end(slot);
	pthread_mutex_unlock(&tickets->lock);
}

static void remember(struct cei_tickets *tickets, uint64_t number, int result)
{
	struct cei_failed_launch *failed;

	pthread_mutex_lock(&tickets->lock);
	failed = &tickets->failed[tickets->n_failed++ % CEI_FAILURES_MAX];
	if (failed->number > tickets->forgotten)
		tickets->forgotten = failed->number;
	failed->number = number;
	failed->result = result;
	pthread_mutex_unlock(&tickets->lock);
}

void cei_tickets_publish(struct cei_tickets *tickets, struct cei_ticket_slot *slot,
			 int result)
{
	/* before the slot can be reused. relaxed: no other thread writes it until then */
	if (result)
		remember(tickets, atomic_load_explicit(&slot->number, memory_order_relaxed),
			 result);
	atomic_store(&slot->result, result);
	end(slot);
}

/* --- reading results ----------------------------------------------------- */

/* Returns the result of a failure that is kept, or 0. The caller holds the lock. */
static int find_failure(const struct cei_tickets *tickets, uint64_t number)
{
	uint64_t i, n = tickets->n_failed;

	if (n > CEI_FAILURES_MAX)
		n = CEI_FAILURES_MAX;
	for (i = 0; i < n; i++)
		if (tickets->failed[i].number == number)
			return tickets->failed[i].result;
	return 0;
}

/* Finds the result of a launch that is no longer in its slot. The caller holds the lock. A number
 * above the slot's previous one was skipped or given back. Numbers skipped longer ago cannot be
 * told from successful launches. */
static int look_back(struct cei_tickets *tickets, uint64_t number, int *ret_result)
{
	int result;

	if (!number || number > tickets->last || number > slot_of(tickets, number)->before)
		return CEOV_ERR_INVALID;
	result = find_failure(tickets, number);
	if (!result && number <= tickets->forgotten)
		return CEOV_NONE;
	*ret_result = result;
	return 0;
}

/* Reads a launch's result from its slot: 0, and CEOV_PENDING or the result. CEOV_NONE: the slot
 * belongs to another launch. */
static int look(struct cei_ticket_slot *slot, uint64_t number, int *ret_result)
{
	uint32_t turn;
	int result;

	/* acquire: pairs with hand_over() */
	if (!number || atomic_load_explicit(&slot->number, memory_order_acquire) != number)
		return CEOV_NONE;
	/* acquire: pairs with end() */
	turn = atomic_load_explicit(&slot->turn, memory_order_acquire);
	result = atomic_load(&slot->result);
	/* seq_cst: against hand_over(), see there */
	if (atomic_load(&slot->number) != number)
		return CEOV_NONE;
	*ret_result = turn & 1 ? CEOV_PENDING : result;
	return 0;
}

/* Whether the launch has ended; if not, *ret_turn is the value to sleep on. */
static int has_ended(struct cei_ticket_slot *slot, uint64_t number, uint32_t *ret_turn)
{
	/* seq_cst: pairs with end(). The turn is read first: if it belongs to a newer
	 * launch, the number has changed. */
	*ret_turn = atomic_load(&slot->turn);
	return !(*ret_turn & 1) || atomic_load(&slot->number) != number;
}

static void sleep_until(struct cei_ticket_slot *slot, uint64_t number, uint64_t deadline)
{
	uint32_t turn;

	atomic_fetch_add(&slot->n_waiters, 1);
	while (!has_ended(slot, number, &turn) && cei_now_ns() < deadline)
		cei_futex_wait(&slot->turn, turn, deadline);
	atomic_fetch_sub(&slot->n_waiters, 1);
}

/* Waking up may take hundreds of microseconds after a sleep of milliseconds (measured in a
 * virtual machine), so the thread polls for a while before it sleeps. */
static void wait_until(struct cei_ticket_slot *slot, uint64_t number, uint64_t deadline)
{
	uint64_t now = cei_now_ns(), sleep_at = cei_deadline(CEI_BACKOFF_YIELD_NS);
	struct cei_backoff backoff;
	uint32_t turn;

	cei_backoff_reset(&backoff);
	while (now < sleep_at && now < deadline) {
		if (has_ended(slot, number, &turn))
			return;
		cei_backoff_step(&backoff);
		now = cei_now_ns();
	}
	if (now < deadline)
		sleep_until(slot, number, deadline);
}

int cei_tickets_wait(struct cei_tickets *tickets, uint64_t number, uint64_t timeout_ns,
		     int *ret_result)
{
	struct cei_ticket_slot *slot = slot_of(tickets, number);
	int r;

	if (number && timeout_ns)
		wait_until(slot, number, cei_deadline(timeout_ns));
	if (!look(slot, number, ret_result))
		return 0;
	pthread_mutex_lock(&tickets->lock);
	r = look(slot, number, ret_result);     /* it may have been launched just now */
	if (r)
		r = look_back(tickets, number, ret_result);
	pthread_mutex_unlock(&tickets->lock);
	return r;
}

struct ceov_plan *cei_tickets_plan(struct cei_tickets *tickets, uint64_t number)
{
	struct cei_ticket_slot *slot = slot_of(tickets, number);
	struct ceov_plan *plan = NULL;
	int result;

	pthread_mutex_lock(&tickets->lock);
	if (!look(slot, number, &result) && result == CEOV_PENDING)
		plan = slot->plan;
	pthread_mutex_unlock(&tickets->lock);
	return plan;
}
