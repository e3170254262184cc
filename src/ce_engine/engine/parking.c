/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Parks armed transfers that the doorbell need not poll. */

#include "ce_engine/engine/parking.h"

/* How many chunks of the list put_back() passes at most, from its end, to find a chunk's place. */
#define STEPS_BACK 64u

void cei_parking_init(struct cei_parking *parking)
{
	cei_list_init(&parking->armed);
	cei_list_init(&parking->watched);
	parking->n_awake = 0;
}

/* --- parking ------------------------------------------------------------------------- */

static void watch(struct cei_parking *parking, struct cei_launch *launch, uint32_t waiter)
{
	const struct cei_waits *waits = &launch->plan->waits;
	struct cei_watch *found = &cei_launch_watches(launch)[waits->waiters[waiter].watch];

	if (!found->n_parked++) {
		found->launch = launch;
		found->index = waits->waiters[waiter].watch;
		found->next = waiter;
		cei_list_append(&parking->watched, &found->link);
	} else if (waiter < found->next) {
		found->next = waiter;
	}
}

static void unwatch(struct cei_launch *launch, uint32_t waiter)
{
	const struct cei_waits *waits = &launch->plan->waits;
	struct cei_watch *found = &cei_launch_watches(launch)[waits->waiters[waiter].watch];

	if (!--found->n_parked)
		cei_list_remove(&found->link);
}

/* What the transfer is to be parked for, so that something sends it back; CEI_AWAKE: it cannot be
 * parked. */
static enum cei_parked place_of(struct cei_launch *launch, uint32_t step,
				enum cei_parked why)
{
	const struct cei_waits *waits = &launch->plan->waits;
	uint32_t at = 2 * step + (why == CEI_PARKED_TARGET);

	if (why == CEI_PARKED_TURN)
		return why;
	if (waits->before[at] == CEOV_NOBODY && waits->waiter_of[at] != CEOV_NOBODY)
		return why;
	if (waits->before[at] == CEOV_NOBODY)   /* only its lane can see the mark */
		return launch->gate == CEOV_NOBODY ? CEI_AWAKE : CEI_PARKED_TURN;
	return cei_launch_last(launch, waits->before[at])->state >= CEI_CHUNK_DONE
		? CEI_AWAKE : CEI_PARKED_BEHIND;
}

void cei_parking_park(struct cei_parking *parking, struct cei_chunk *chunk, enum cei_parked why)
{
	struct cei_launch *launch = chunk->launch;
	const uint32_t *waiter_of = launch->plan->waits.waiter_of;
	uint32_t step = cei_chunk_cut(chunk)->step;
	enum cei_parked place = place_of(launch, step, why);

	if (place == CEI_AWAKE)
		return;
	if (place == CEI_PARKED_SOURCE)
		watch(parking, launch, waiter_of[2 * step]);
	if (place == CEI_PARKED_TARGET) {
		watch(parking, launch, waiter_of[2 * step + 1]);
		launch->n_blocked++;
	}
	chunk->parked = (uint8_t)place;
	launch->n_parked++;
	cei_list_remove(&chunk->link);
	parking->n_awake--;
}

/* --- going back ------------------------------------------------------------------------ */

/* Whether the chunk comes before the other one in the doorbell's list. */
static int is_before(const struct cei_chunk *chunk, const struct cei_chunk *other)
{
	if (chunk->launch != other->launch)
		return chunk->launch->number < other->launch->number;
	return chunk->index < other->index;
}

/* Inserts the chunk in the order of launches and of their plan, passing only a few others: the
 * doorbell passes on transfers with the same source together if they stand together. */
static void put_back(struct cei_list *armed, struct cei_chunk *chunk)
{
	struct cei_list *at = armed;
	uint32_t i;

	for (i = 0; i < STEPS_BACK && at->previous != armed; i++) {
		if (!is_before(chunk, CEI_OWNER(at->previous, struct cei_chunk, link)))
			break;
		at = at->previous;
	}
	cei_list_append(at, &chunk->link);
}

static void wake(struct cei_parking *parking, struct cei_chunk *chunk)
{
	struct cei_launch *launch = chunk->launch;
	const uint32_t *waiter_of = launch->plan->waits.waiter_of;
	uint32_t step = cei_chunk_cut(chunk)->step;

	if (chunk->parked == CEI_PARKED_SOURCE)
		unwatch(launch, waiter_of[2 * step]);
	if (chunk->parked == CEI_PARKED_TARGET) {
		unwatch(launch, waiter_of[2 * step + 1]);
		launch->n_blocked--;
	}
	chunk->parked = CEI_AWAKE;
	launch->n_parked--;
	put_back(&parking->armed, chunk);
	parking->n_awake++;
}

/* Whether the waiter is parked at its counter, and for this mark. */
static int is_parked(const struct cei_chunk *chunk, const struct cei_waiter *waiter)
{
	return chunk->parked == (waiter->mark ? CEI_PARKED_TARGET : CEI_PARKED_SOURCE);
}

/* Sends back the transfers that wait for at most `seen`. Returns how many waiters it looked at. */
static uint32_t wake_reached(struct cei_parking *parking, struct cei_watch *found, uint64_t seen,
			     uint32_t n_most)
{
	struct cei_launch *launch = found->launch;
	const struct cei_waits *waits = &launch->plan->waits;
	uint32_t end = waits->watch_at[found->index + 1], n = 0;
	const struct cei_waiter *waiter;

	for (; found->n_parked && found->next < end && n < n_most; n++) {
		waiter = &waits->waiters[found->next];
		if (seen < launch->base + waiter->counter->value)
			break;
		found->next++;
		if (is_parked(cei_launch_first(launch, waiter->step), waiter))
			wake(parking, cei_launch_first(launch, waiter->step));
	}
	return n;
}

/* Returns the first chunk that is parked at the counter. */
static struct cei_chunk *first_parked(const struct cei_watch *found)
{
	const struct cei_waits *waits = &found->launch->plan->waits;
	uint32_t i = found->next;

	while (!is_parked(cei_launch_first(found->launch, waits->waiters[i].step),
			  &waits->waiters[i]))
		i++;
	return cei_launch_first(found->launch, waits->waiters[i].step);
}

int cei_parking_look(struct cei_parking *parking, struct cei_chunk **ret_chunk,
		     const struct cei_counter **ret_counter)
{
	struct cei_list *watched = &parking->watched;
	struct cei_list *node = watched->next;
	struct cei_watch *found;
	uint64_t seen;
	uint32_t n = 0;

	while (node != watched && n++ < CEI_PARKING_LOOKS) {
		found = CEI_OWNER(node, struct cei_watch, link);
		*ret_counter = found->launch->plan->waits.waiters[found->next].counter;
		/* acquire, twice: as the doorbell's looks, which go on from here */
		seen = atomic_load_explicit((*ret_counter)->seen, memory_order_acquire);
		if (atomic_load_explicit(&(*ret_counter)->header->abort_code,
					 memory_order_acquire)) {
			*ret_chunk = first_parked(found);
			return 1;
		}
		node = node->next;      /* it may be unlinked now */
		n += wake_reached(parking, found, seen, CEI_PARKING_LOOKS - n);
	}
	if (node != watched) {          /* begin there next time */
		cei_list_remove(watched);
		cei_list_append(node, watched);
	}
	return 0;
}

void cei_parking_next(struct cei_parking *parking, struct cei_launch *launch, uint32_t step)
{
	struct cei_chunk *chunk = cei_launch_first(launch, step);

	if (chunk->state == CEI_CHUNK_ARMED &&
	    (chunk->parked == CEI_PARKED_TURN ||
	     (chunk->parked != CEI_AWAKE && launch->gate != CEOV_NOBODY)))
		wake(parking, chunk);
}

void cei_parking_done(struct cei_parking *parking, struct cei_launch *launch, uint32_t step)
{
	const struct cei_waits *waits = &launch->plan->waits;
	struct cei_chunk *chunk;
	uint32_t i;

	for (i = waits->after_at[step]; i < waits->after_at[step + 1]; i++) {
		chunk = cei_launch_first(launch, waits->after[i]);
		if (chunk->parked == CEI_PARKED_BEHIND)
			wake(parking, chunk);
	}
}

void cei_parking_forget(struct cei_launch *launch)
{
	struct cei_watch *watches = cei_launch_watches(launch);
	uint32_t i;

	for (i = 0; launch->n_parked && i < launch->plan->waits.n_watches; i++) {
		if (watches[i].n_parked)
			cei_list_remove(&watches[i].link);
		watches[i].n_parked = 0;
	}
	launch->n_parked = 0;
	launch->n_blocked = 0;
}
