/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* ceov_plan_explain(): the plan as a whole; program_explain.c has its transfers. */

#include <stdarg.h>
#include <stdio.h>

#include "base/write.h"
#include "ce_engine/context.h"
#include "ce_engine/engine.h"
#include "ce_engine/plan.h"
#include "ce_engine/program_explain.h"

#define LINE_BYTES 512

static const char *trigger_of(const struct ceov_plan *plan)
{
	if (!plan->triggers.is_gateable)
		return "polled";
	return plan->triggers.is_pollable ? "gated where the launch names its producer, else polled"
		: "gated";
}

/* One line. */
static int __attribute__((format(printf, 3, 4)))
say(const struct ceov_plan *plan, int fd, const char *format, ...)
{
	char line[LINE_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	return cei_write(&plan->object.context->report, fd, line, "ceov_plan_explain");
}

/* Waiting streams hold hardware queues that kernels need, see backend/waits.h. */
static int explain_waits(const struct ceov_plan *plan, int fd)
{
	ceov_context *context = plan->object.context;
	struct cei_backend *backend = context->engines[plan->member].backend;
	uint32_t n;

	if (!plan->triggers.is_gateable || !plan->triggers.is_pollable ||
	    !(backend->ops->caps & CEI_CAP_DEVICE))
		return 0;
	n = backend->ops->waits_left(backend);
	if (n)
		return say(plan, fd, "%u more streams of GPU %u can be left waiting; beyond "
			   "that launches of this plan are polled and not gated\n", n,
			   backend->place.index);
	return say(plan, fd, "as many streams of GPU %u wait as may: launches of this plan are "
		   "polled and not gated\n", backend->place.index);
}

int cei_plan_explain(const struct ceov_plan *plan, int fd)
{
	const struct cei_program *program = &plan->program;
	const char *names[CEI_MOVERS_OWN_MAX];
	const struct cei_engine *engine;
	struct cei_explain explain;
	uint32_t i;
	int r = say(plan, fd, "plan of rank %u: %u transfers, %u chunks, %s%s\n", program->rank,
		program->n_transfers, program->n_chunks, plan->triggers.is_gateable ? "can be gated"
		: "always polled: ", plan->triggers.is_gateable ? "" : plan->triggers.why_polled);
	if (!r)
		r = explain_waits(plan, fd);
	engine = &plan->object.context->engines[plan->member];
	for (i = 0; i < engine->movers.n_own; i++)
		names[i] = engine->movers.mover[i].backend.ops->name;
	explain = (struct cei_explain){ program, engine->topology->machine,
					names, trigger_of(plan),
					&plan->object.context->report, fd };
	for (i = 0; !r && i < program->n_transfers; i++)
		r = cei_explain_transfer(&explain, i);
	return r;
}

int ceov_plan_explain(const ceov_plan *plan, int fd)
{
	int r = cei_object_check(plan, &cei_plan_type, "ceov_plan_explain");

	if (r)
		return r;
	if (plan->builder)
		return cei_raise(&plan->object.context->report, CEOV_ERR_STATE, 0,
				 "ceov_plan_explain: the plan is not committed");
	return plan->object.door->plan.explain(plan, fd);
}
