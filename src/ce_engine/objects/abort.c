/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Aborts signals together with those of plans in flight that share one with them. */

#include "ce_engine/objects/abort.h"

#include <time.h>

#include "ce_engine/objects/context.h"
#include "ce_engine/objects/plan.h"
#include "ce_engine/objects/signal.h"

/* How long an abort waits for locks, all together: their holders may be held up in the driver by a
 * gate that it opens. */
#define LOCKS_NS 100000000L

#define SECOND_NS 1000000000L

void cei_abort_plan(ceov_plan *plan, const struct cei_abort *abort)
{
	plan->run.struck = *abort;
	plan->run.n_struck += cei_signals_raise_abort(plan->signals, plan->program.n_signals,
						      abort->error, abort->rank);
}

/* Returns until when locks are waited for, by the clock of pthread_mutex_timedlock(). */
static struct timespec locks_until(void)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += LOCKS_NS;
	if (until.tv_nsec >= SECOND_NS) {
		until.tv_sec++;
		until.tv_nsec -= SECOND_NS;
	}
	return until;
}

/* Whether launches of the plan are in flight that an aborted signal ends; *ret_hit says with what,
 * as the plan's engine will find it. The signals of a plan that has none in flight are not looked
 * at: another thread may be adding some. Nor are those of a plan whose lock is not had in time. */
static int is_hit(ceov_plan *plan, const struct timespec *until, struct cei_abort *ret_hit)
{
	ret_hit->error = 0;
	if (pthread_mutex_timedlock(&plan->lock, until))
		return 0;
	if (plan->object.context->door->n_in_flight(plan))
		ret_hit->error = cei_signals_blame(plan->signals, plan->program.n_signals,
						   &ret_hit->rank);
	pthread_mutex_unlock(&plan->lock);
	return ret_hit->error != 0;
}

/* Returns how many plans it has found. */
static uint32_t spread(ceov_context *context, const struct timespec *until)
{
	struct cei_abort hit;
	struct cei_list *node;
	ceov_plan *plan;
	uint32_t n = 0;

	for (node = context->plans.next; node != &context->plans; node = node->next) {
		plan = CEI_OWNER(node, struct ceov_plan, object.link);
		if (plan->run.struck.error || !is_hit(plan, until, &hit))
			continue;
		cei_abort_plan(plan, &hit);
		n++;
	}
	return n;
}

/* n_first: how many of the signals the abort was the first to abort, if other nodes have to hear of
 * it. They hear of an abort once, although it may be repeated here. */
static void poison(ceov_signal *const *signals, uint32_t n, uint32_t n_first,
		   const struct cei_abort *abort)
{
	cei_signals_poison(signals, n);
	if (n_first)
		cei_signals_tell(signals, n, abort->error, abort->rank);
}

void cei_abort_end(ceov_context *context, int is_everywhere)
{
	const struct timespec until = locks_until();
	struct cei_plan_run *run;
	struct cei_list *node;
	ceov_plan *plan;

	while (spread(context, &until))
		;                       /* each time one plan more at least: at most all */
	for (node = context->plans.next; node != &context->plans; node = node->next) {
		plan = CEI_OWNER(node, struct ceov_plan, object.link);
		run = &plan->run;
		if (!run->struck.error)
			continue;
		poison(plan->signals, plan->program.n_signals, is_everywhere ? 0 : run->n_struck,
		       &run->struck);
		run->struck.error = 0;
		run->n_struck = 0;
	}
}

/* Whether several plans may name one of the signals: by its handle or, where it is shared, by
 * another one. Many plans with signals of their own that fail together would else be looked at once
 * for each of them. */
static int others_may_name(ceov_signal *const *signals, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		if (signals[i]->object.n_users > 1 || signals[i]->export_id ||
		    signals[i]->found_use || signals[i]->original || signals[i]->far)
			return 1;
	return 0;
}

void cei_abort_signals(ceov_context *context, ceov_signal *const *signals, uint32_t n,
		       const struct cei_abort *abort)
{
	uint32_t n_first = cei_signals_raise_abort(signals, n, abort->error, abort->rank);

	/* Where all were aborted before, their gates have been opened. */
	if (n_first && others_may_name(signals, n))
		cei_abort_end(context, 0);
	poison(signals, n, n_first, abort);
}

void cei_abort_alone(ceov_signal *const *signals, uint32_t n, int error, uint32_t rank)
{
	const struct cei_abort abort = { error, rank };

	poison(signals, n, cei_signals_raise_abort(signals, n, error, rank), &abort);
}

void cei_abort_unlocked(ceov_signal *const *signals, uint32_t n, int error, uint32_t rank)
{
	const struct cei_abort abort = { error, rank };
	const struct timespec until = locks_until();
	struct cei_report_hold hold;
	ceov_context *context;

	if (!n)
		return;
	context = signals[0]->object.context;
	cei_report_hold_begin(&context->report, &hold);
	if (!pthread_mutex_timedlock(&context->lock, &until)) {
		cei_abort_signals(context, signals, n, &abort);
		pthread_mutex_unlock(&context->lock);
	} else {
		cei_abort_alone(signals, n, error, rank);
	}
	cei_report_hold_end(&context->report, &hold);
}
