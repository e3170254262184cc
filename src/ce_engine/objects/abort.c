/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Aborts signals together with those of plans in flight that share one with them. */

#include "ce_engine/objects/abort.h"

#include <time.h>

#include "ce_engine/objects/context.h"
#include "ce_engine/objects/plan.h"
#include "ce_engine/objects/signal.h"

/* for the context's lock */
#define LOCK_NS 100000000L

#define SECOND_NS 1000000000L

void cei_abort_plan(ceov_plan *plan, const struct cei_abort *abort)
{
	plan->run.is_struck = 1;
	plan->run.n_struck += cei_signals_raise_abort(plan->signals, plan->program.n_signals,
						      abort->error, abort->rank);
}

/* Whether launches of the plan are in flight that an aborted signal ends. The signals of a plan
 * that has none in flight are not looked at: another thread may be adding some. */
static int is_hit(const ceov_plan *plan)
{
	uint32_t rank;

	return plan->object.door->plan.is_busy(plan) &&
	       cei_signals_blame(plan->signals, plan->program.n_signals, &rank) != 0;
}

/* Returns how many plans it has found. */
static uint32_t spread(ceov_context *context, const struct cei_abort *abort)
{
	struct cei_list *node;
	ceov_plan *plan;
	uint32_t n = 0;

	for (node = context->plans.next; node != &context->plans; node = node->next) {
		plan = CEI_OWNER(node, struct ceov_plan, object.link);
		if (plan->run.is_struck || !is_hit(plan))
			continue;
		cei_abort_plan(plan, abort);
		n++;
	}
	return n;
}

/* Other nodes hear of an abort once, although it may be repeated here. */
static void poison(ceov_signal *const *signals, uint32_t n, uint32_t n_first,
		   const struct cei_abort *abort)
{
	cei_signals_poison(signals, n);
	if (n_first && !abort->is_everywhere)
		cei_signals_tell(signals, n, abort->error, abort->rank);
}

void cei_abort_end(ceov_context *context, const struct cei_abort *abort)
{
	struct cei_list *node;
	ceov_plan *plan;

	while (spread(context, abort))
		;                       /* each time one plan more at least: at most all */
	for (node = context->plans.next; node != &context->plans; node = node->next) {
		plan = CEI_OWNER(node, struct ceov_plan, object.link);
		if (!plan->run.is_struck)
			continue;
		poison(plan->signals, plan->program.n_signals, plan->run.n_struck, abort);
		plan->run.is_struck = 0;
		plan->run.n_struck = 0;
	}
}

void cei_abort_signals(ceov_context *context, ceov_signal *const *signals, uint32_t n,
		       const struct cei_abort *abort)
{
	uint32_t n_first = cei_signals_raise_abort(signals, n, abort->error, abort->rank);

	cei_abort_end(context, abort);
	poison(signals, n, n_first, abort);
}

/* Returns whether the thread has got the lock. */
static int lock(ceov_context *context)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);  /* the clock of pthread_mutex_timedlock() */
	until.tv_nsec += LOCK_NS;
	if (until.tv_nsec >= SECOND_NS) {
		until.tv_sec++;
		until.tv_nsec -= SECOND_NS;
	}
	return !pthread_mutex_timedlock(&context->lock, &until);
}

static void abort_alone(ceov_signal *const *signals, uint32_t n, const struct cei_abort *abort)
{
	poison(signals, n, cei_signals_raise_abort(signals, n, abort->error, abort->rank), abort);
}

void cei_abort_unlocked(ceov_signal *const *signals, uint32_t n, int error, uint32_t rank)
{
	const struct cei_abort abort = { error, rank, 0 };
	struct cei_report_hold hold;
	ceov_context *context;

	if (!n)
		return;
	context = signals[0]->object.context;
	cei_report_hold_begin(&context->report, &hold);
	if (lock(context)) {
		cei_abort_signals(context, signals, n, &abort);
		pthread_mutex_unlock(&context->lock);
	} else {
		abort_alone(signals, n, &abort);
	}
	cei_report_hold_end(&context->report, &hold);
}
