/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * ceov_plan_queue: a plan as work of a caller's stream. While a stream waits, the driver
 * may hold back all that the process submits later, on any stream (the first launch of a
 * kernel that is not loaded yet does so, and cudaFree()); so nothing that the wait needs
 * is left for later here: what can be refused is refused before the first wait.
 */

#include <inttypes.h>

#include "ce_engine/exec/lower.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/plan.h"
#include "ce_engine/objects/signal.h"
#include "ce_engine/plan/plan_builder.h"
#include "ce_engine/plan/plan_launch.h"
#include "ce_engine/plan/plan_release.h"

static const char call[] = "ceov_plan_queue";

/* --- checks ---------------------------------------------------------------------------- */

/* Raises why a stream cannot wait for the counter; `what` names the mark. */
static int refuse_wait(const struct ceov_plan *plan, uint32_t i, const char *what,
		       const struct cei_counter *counter)
{
	const char *where = "out of reach";

	if (counter->signal->far)
		where = "on another node";
	else if (counter->address)
		where = "in another process' GPU";
	return cei_raise(cei_object_report(&plan->object), CEOV_ERR_NO_ROUTE, 0,
			 "%s: transfer %u: %s: a stream of rank %u cannot wait for counters of "
			 "%s, which are %s: launch the plan, or wait for a signal of the own "
			 "rank", call, i, what, plan->program.rank,
			 cei_signal_text(counter->signal).text, where);
}

static int check_wait(const struct ceov_plan *plan, uint32_t i, const char *what,
		      const struct cei_counter *mark)
{
	if (!mark->signal || (mark->address && cei_signal_frees_streams(mark->signal)))
		return 0;
	return refuse_wait(plan, i, what, mark);
}

static int check_waits(const struct ceov_plan *plan, uint32_t i)
{
	const struct cei_step *step = &plan->steps[i];
	int r = check_wait(plan, i, "source_ready", &step->source_ready);
	uint32_t k;

	if (!r)
		r = check_wait(plan, i, "target_free", &step->target_free);
	for (k = 0; !r && k < step->n_also; k++)
		r = check_wait(plan, i, "free", &step->also[k].counter);
	return r;
}

static int check_step(const struct ceov_plan *plan, uint32_t i)
{
	const struct cei_program *program = &plan->program;

	if (cei_program_leaves_node(program, i))
		return cei_raise(cei_object_report(&plan->object), CEOV_ERR_NO_ROUTE, 0,
				 "%s: transfer %u goes to rank %u, which is on another node, where "
				 "a stream cannot copy to: launch the plan", call, i,
				 cei_program_target_rank(program, i));
	if (!program->transfers[i].has_direct || program->transfers[i].mover)
		return cei_raise(cei_object_report(&plan->object), CEOV_ERR_INVALID, 0,
				 "%s: transfer %u has no direct path: launch the plan", call, i);
	if (program->transfers[i].is_counted)
		return cei_raise(cei_object_report(&plan->object), CEOV_ERR_INVALID, 0,
				 "%s: the rows of transfer %u are counted when its mark is "
				 "reached: launch the plan", call, i);
	return check_waits(plan, i);
}

static int check_steps(const struct ceov_plan *plan)
{
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < plan->program.n_transfers; i++)
		r = check_step(plan, i);
	return r;
}

static int check_plan(const struct ceov_plan *plan)
{
	if (plan->program.floating != CEI_PROGRAM_NONE)
		return cei_raise(cei_object_report(&plan->object), CEOV_ERR_INVALID, 0,
				 "%s: the plan has a floating buffer: launch it", call);
	if (plan->triggers.waits_ahead != CEOV_NOBODY)
		return cei_raise(cei_object_report(&plan->object), CEOV_ERR_INVALID, 0,
				 "%s: transfer %u waits for a mark of one behind it, which a "
				 "stream would never come to: launch the plan, or add them "
				 "the other way round", call, plan->triggers.waits_ahead);
	return check_steps(plan);
}

static int check_base(struct ceov_plan *plan, uint64_t base)
{
	struct cei_report_hold hold = { .is_open = 0 };
	int r, n;

	n = cei_plan_in_flight(plan) != 0;
	pthread_mutex_lock(&plan->lock);
	r = cei_plan_check_base(plan, base, call, &hold);
	pthread_mutex_unlock(&plan->lock);
	cei_report_hold_end(cei_object_report(&plan->object), &hold);
	if (r || !n)
		return r;
	return cei_raise(cei_object_report(&plan->object), CEOV_ERR_STATE, 0,
			 "%s: a launch of the plan is in flight: wait for it", call);
}

static void keep_base(struct ceov_plan *plan, uint64_t base)
{
	pthread_mutex_lock(&plan->lock);
	plan->run.last_base = base;
	pthread_mutex_unlock(&plan->lock);
}

/* Refuses marks that counters exceed already. What the stream raises before this plan is not
 * known. */
static int check_falls(const struct ceov_plan *plan, uint64_t base)
{
	const struct cei_counter *then;
	uint32_t i;

	for (i = 0; i < plan->program.n_transfers; i++) {
		then = &plan->steps[i].then;
		if (then->signal && cei_counter_falls(then, base + then->value))
			return cei_raise(cei_object_report(&plan->object), CEOV_ERR_INVALID, 0,
					 "%s: transfer %u would lower %s to %" PRIu64, call, i,
					 cei_counter_text(then->signal, then->index).text,
					 base + then->value);
	}
	return 0;
}

static int check_queue(struct ceov_plan *plan, void *stream, uint64_t base,
		       struct cei_backend **ret_backend)
{
	int r = cei_object_check(plan, &cei_plan_type, call);

	if (r)
		return r;
	if (plan->builder)
		return cei_raise(cei_object_report(&plan->object), CEOV_ERR_STATE, 0,
				 "%s: the plan is not committed", call);
	r = cei_context_stream(plan->object.context, plan->program.rank, stream, call, ret_backend);
	if (!r)
		r = check_plan(plan);
	if (!r)
		r = check_base(plan, base);
	if (!r)
		r = cei_plan_check_parties(plan, call);
	return r ? r : check_falls(plan, base);
}

int ceov_plan_queue(ceov_plan *plan, void *stream, uint64_t base)
{
	const struct cei_stream_work nothing = { .value_at = 0 };
	struct cei_stream_run run = { .plan = plan, .stream = stream, .base = base };
	int r = check_queue(plan, stream, base, &run.backend);

	/* The backend's own refusals, before the first wait is queued. */
	if (!r)
		r = run.backend->ops->stream_queue(run.backend, stream, &nothing);
	if (r)
		return r;
	keep_base(plan, base);
	return cei_lower_to_stream(&run);
}
