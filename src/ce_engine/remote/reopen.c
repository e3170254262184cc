/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * ceov_reopen: how the processes of a group go on after a daemon was lost.
 *
 * Signals are shared, so no process may renew its own before all have noticed their losses: a
 * process that notices late would abort them again. And none may decide which signals have to be
 * renewed while others renew theirs. Hence a meeting between the steps.
 */

#include "base/clock.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/signal.h"
#include "ce_engine/plan/plan_release.h"
#include "ce_engine/plan/signal_renew.h"
#include "ce_engine/remote/remote.h"

static int end_launches(ceov_context *context, uint64_t deadline_ns)
{
	struct cei_backoff backoff;

	cei_backoff_reset(&backoff);
	while (cei_plans_are_moving(context)) {
		if (cei_now_ns() >= deadline_ns)
			return cei_raise(&context->report, CEOV_ERR_TIMEOUT, 0,
					 "ceov_reopen: launches of this process have not ended in "
					 "time; abort them, or call again");
		if (context->site.progress_by_caller)
			(void)ceov_turn(context);
		cei_backoff_step(&backoff);
	}
	return 0;
}

static int meet(ceov_context *context, uint64_t deadline_ns)
{
	uint64_t now_ns = cei_now_ns();

	return ceov_barrier(context, deadline_ns > now_ns ? deadline_ns - now_ns : 0);
}

static int keep_quiet(ceov_context *context, uint64_t deadline_ns)
{
	(void)deadline_ns;
	return cei_remote_keep_quiet(context, 1);
}

/* Nobody aborts anything any more but a workspace that fails here, whose signals are of no use
 * afterwards. */
static int fail_uppers(ceov_context *context, uint64_t deadline_ns)
{
	struct cei_object *upper;
	struct cei_list *node;

	(void)deadline_ns;
	for (node = context->uppers.next; node != &context->uppers; node = node->next) {
		upper = CEI_OWNER(node, struct cei_object, link);
		if (upper->type->fail)
			upper->type->fail(upper);
	}
	return 0;
}

static int find_aborted(ceov_context *context, uint64_t deadline_ns)
{
	struct ceov_signal *signal;
	struct cei_list *node;

	(void)deadline_ns;
	for (node = context->signals.next; node != &context->signals; node = node->next) {
		signal = CEI_OWNER(node, struct ceov_signal, object.link);
		signal->is_due = cei_signal_aborted(signal) != 0;
	}
	return 0;
}

static int renew(ceov_context *context, uint64_t deadline_ns)
{
	struct ceov_signal *signal;
	struct cei_list *node;
	int r = 0;

	(void)deadline_ns;
	for (node = context->signals.next; node != &context->signals; node = node->next) {
		signal = CEI_OWNER(node, struct ceov_signal, object.link);
		if (signal->is_due)
			r = cei_signal_renew(signal);
		if (r == CEOV_PENDING)
			return cei_raise(&context->report, CEOV_ERR_STATE, 0,
					 "ceov_reopen: a launch was begun meanwhile");
		if (r)
			return r;
		signal->is_due = 0;
	}
	return 0;
}

static int (*const steps[])(ceov_context *context, uint64_t deadline_ns) = {
	end_launches, cei_remote_leave, keep_quiet, meet, fail_uppers, find_aborted, meet, renew,
	cei_remote_return, meet,
};

#define N_STEPS ((uint32_t)(sizeof(steps) / sizeof(steps[0])))

int ceov_reopen(ceov_context *context, uint64_t timeout_ns)
{
	uint64_t deadline_ns = cei_deadline(timeout_ns);
	int r = cei_context_check(context, "ceov_reopen");

	/* After an error the next call goes on with the step that was not done. */
	while (!r && context->reopen_step < N_STEPS) {
		r = steps[context->reopen_step](context, deadline_ns);
		context->reopen_step += !r;
	}
	if (r)
		return r;
	context->reopen_step = 0;
	if (!cei_remote_keep_quiet(context, 0))
		return 0;
	return cei_raise(&context->report, CEOV_ERR_DAEMON_LOST, 0, "ceov_reopen: the next daemon "
			 "has gone, too; all processes of the group call again");
}
