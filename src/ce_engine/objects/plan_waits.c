/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* At commit: lists which transfers wait for what. */

#include "ce_engine/objects/plan_waits.h"

#include <stdlib.h>
#include <string.h>

#include "ce_engine/objects/plan.h"
#include "ce_engine/program/program_order.h"

static const struct cei_counter *mark_of(const struct ceov_plan *plan, uint32_t step,
					 uint32_t mark)
{
	return mark ? &plan->steps[step].target_free : &plan->steps[step].source_ready;
}

static int compare_waiters(const void *left, const void *right)
{
	const struct cei_waiter *a = left, *b = right;

	if (a->counter->seen != b->counter->seen)
		return (uintptr_t)a->counter->seen < (uintptr_t)b->counter->seen ? -1 : 1;
	if (a->counter->value != b->counter->value)
		return a->counter->value < b->counter->value ? -1 : 1;
	return a->step < b->step ? -1 : a->step > b->step;
}

static void list_waiters(struct cei_waits *waits, const struct ceov_plan *plan)
{
	const struct cei_counter *counter;
	struct cei_waiter *waiter;
	uint32_t i, n = 0;

	for (i = 0; i < 2 * plan->program.n_transfers; i++) {
		counter = mark_of(plan, i / 2, i % 2);
		waits->waiter_of[i] = CEOV_NOBODY;
		if (!counter->signal || !counter->seen || waits->before[i] != CEOV_NOBODY)
			continue;
		waits->waiters[n++] = (struct cei_waiter){ counter, i / 2, i % 2, 0 };
	}
	qsort(waits->waiters, n, sizeof(*waits->waiters), compare_waiters);
	for (i = 0; i < n; i++) {
		waiter = &waits->waiters[i];
		if (!i || waiter[-1].counter->seen != waiter->counter->seen)
			waits->watch_at[waits->n_watches++] = i;
		waiter->watch = waits->n_watches - 1;
		waits->waiter_of[2 * waiter->step + waiter->mark] = i;
	}
	waits->watch_at[waits->n_watches] = n;
}

/* Counting sort: counts, adds up, and places each. */
static void list_after(struct cei_waits *waits, uint32_t n_steps)
{
	uint32_t i, before;

	for (i = 0; i < 2 * n_steps; i++)
		if (waits->before[i] != CEOV_NOBODY)
			waits->after_at[waits->before[i]]++;
	for (i = 1; i <= n_steps; i++)
		waits->after_at[i] += waits->after_at[i - 1];
	for (i = 2 * n_steps; i-- > 0;) {
		before = waits->before[i];
		if (before != CEOV_NOBODY)
			waits->after[--waits->after_at[before]] = i / 2;
	}
}

int cei_waits_init(struct cei_waits *waits, const struct ceov_plan *plan,
		   const struct cei_order *order)
{
	size_t n = plan->program.n_transfers;

	waits->before = malloc((2 * n + 1) * sizeof(uint32_t));
	waits->after_at = calloc(n + 1, sizeof(uint32_t));
	waits->after = malloc((2 * n + 1) * sizeof(uint32_t));
	waits->waiters = malloc((2 * n + 1) * sizeof(*waits->waiters));
	waits->waiter_of = malloc((2 * n + 1) * sizeof(uint32_t));
	waits->watch_at = malloc((2 * n + 1) * sizeof(uint32_t));
	if (!waits->before || !waits->after_at || !waits->after || !waits->waiters ||
	    !waits->waiter_of || !waits->watch_at)
		return CEOV_ERR_NO_MEMORY;
	memcpy(waits->before, order->before, 2 * n * sizeof(uint32_t));
	list_waiters(waits, plan);
	list_after(waits, plan->program.n_transfers);
	return 0;
}

void cei_waits_fini(struct cei_waits *waits)
{
	free(waits->before);
	free(waits->after_at);
	free(waits->after);
	free(waits->waiters);
	free(waits->waiter_of);
	free(waits->watch_at);
	memset(waits, 0, sizeof(*waits));
}
