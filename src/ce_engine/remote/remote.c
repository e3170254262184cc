/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Plans that a daemon carries out, and which ones it cannot. */

#include "ce_engine/remote/remote_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/write.h"
#include "ce_engine/objects/abort.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/plan/plan_builder.h"
#include "ce_engine/plan/plan_commit.h"
#include "ce_engine/plan/plan_explain.h"
#include "ce_engine/plan/plan_launch.h"

/* Tickets of launches by the daemon have this bit; those of this process never come so far. */
#define REMOTE_BIT (UINT64_C(1) << 63)

#define WORDS_NS UINT64_C(100000000)

/* --- what the daemon can reach ---------------------------------------------- */

static int is_on_gpu(const struct ceov_plan *plan)
{
	const struct cei_site *site = &plan->object.context->site;

	return site->members[plan->member].place.kind == CEOV_PLACE_GPU;
}

const char *cei_remote_why_here(const struct ceov_plan *plan)
{
	if (plan->object.context->remote->rings[plan->member] == CEI_REMOTE_NO_RING)
		return "its rank is on a GPU that the daemon does not serve";
	return cei_remote_cannot(plan);
}

static int check_strict(const struct ceov_plan *plan, const char *call, const char *why)
{
	if (!plan->object.context->remote->is_strict)
		return 0;
	return cei_raise(&plan->object.context->report, CEOV_ERR_NO_ROUTE, 0,
			 "%s: the daemon cannot carry out the plan: %s; CEOVERLAP_DAEMON_STRICT "
			 "asks to refuse it", call, why);
}

static void count_kept(ceov_context *context)
{
	struct cei_remote *remote = context->remote;
	/* relaxed: a number for displays */
	uint64_t n = 1 + atomic_fetch_add_explicit(&remote->n_stayed, 1, memory_order_relaxed);

	if (remote->link)               /* else the next daemon hears of it with the next one */
		cei_service_tell_stayed(remote->link, n);
}

/* --- committing -------------------------------------------------------------- */

/* Whether there is a link to ask on. Raises CEOV_ERR_DAEMON_LOST. */
static int check_link(ceov_context *context, const char *call)
{
	if (context->remote->link)
		return 0;
	return cei_raise(&context->report, CEOV_ERR_DAEMON_LOST, 0, "%s: the daemon has gone, and "
			 "no other one has taken its place; all processes of the group call "
			 "ceov_reopen() to go on", call);
}

/* What follows streams of the caller is queued by this process: launches with after_stream,
 * ceov_plan_queue(), captured graphs. So a plan of a rank on a GPU is committed here, too. */
static int commit_also_here(const struct cei_remote_plan *record)
{
	int r;

	cei_plan_unprepare(record->plan);
	r = cei_plan_commit(record->plan);
	if (r)
		cei_service_drop(record->plan->object.context->remote->link, record->handle);
	return r;
}

static int commit_there(struct cei_remote_plan *record)
{
	struct ceov_plan *plan = record->plan;
	int r = check_link(plan->object.context, "ceov_plan_commit");

	if (!r)
		r = cei_plan_prepare(plan);
	if (r)
		return r;
	r = cei_remote_send(record);
	if (r)
		cei_plan_unprepare(plan);
	if (!r && is_on_gpu(plan))
		r = commit_also_here(record);
	return r;
}

static int commit_here(struct ceov_plan *plan, const char *why)
{
	int r = check_strict(plan, "ceov_plan_commit", why);

	return r ? r : cei_plan_commit(plan);
}

static void enter(struct cei_remote_plan *record)
{
	struct ceov_plan *plan = record->plan;
	ceov_context *context = plan->object.context;

	pthread_mutex_lock(&context->lock);
	cei_list_append(&context->remote->plans, &record->link);
	pthread_mutex_lock(&plan->lock);        /* an abort may look at the plan */
	plan->remote = record;
	pthread_mutex_unlock(&plan->lock);
	pthread_mutex_unlock(&context->lock);
}

static int commit(struct ceov_plan *plan)
{
	struct cei_remote_plan *record = calloc(1, sizeof(*record));
	int r;

	if (!record)
		return cei_raise(&plan->object.context->report, CEOV_ERR_NO_MEMORY, 0,
				 "ceov_plan_commit: no memory");
	record->plan = plan;
	record->why_here = cei_remote_why_here(plan);
	r = record->why_here ? commit_here(plan, record->why_here) : commit_there(record);
	if (r) {
		free(record);
		return r;
	}
	enter(record);
	if (record->why_here)
		count_kept(plan->object.context);
	else
		cei_plan_end_builder(plan);
	return 0;
}

static int explain(const struct ceov_plan *plan, int fd)
{
	ceov_context *context = plan->object.context;
	static const char head[] = "carried out by the daemon:\n";
	uint8_t text[4096];
	ssize_t n = 0;
	int file, r;

	if (plan->remote->why_here)
		return cei_plan_explain_kept(plan, fd, plan->remote->why_here);
	r = check_link(context, "ceov_plan_explain");
	if (!r)
		r = cei_service_explain(context->remote->link, plan->remote->handle, &file);
	if (r)
		return r;
	r = cei_write_all(fd, (const uint8_t *)head, sizeof(head) - 1);
	while (!r && (n = read(file, text, sizeof(text))) > 0)
		r = cei_write_all(fd, text, (uint64_t)n);
	close(file);
	if (!r && n >= 0)
		return 0;
	return cei_raise(&context->report, CEOV_ERR_SYSTEM, r ? r : errno,
			 "ceov_plan_explain: writing the text: %s", strerror(r ? r : errno));
}

/* --- launches ---------------------------------------------------------------- */

static int is_pending(ceov_context *context, uint64_t number)
{
	int result;

	return number && !cei_service_wait(&context->remote->launcher, number, 0, &result) &&
	       result == CEOV_PENDING;
}

/* How many launches of the plan the daemon has in flight; counts up to `most`. With the plan's lock
 * held. */
static uint32_t n_there(const struct ceov_plan *plan, uint32_t most)
{
	uint32_t i, n = 0;

	for (i = 0; plan->remote && n < most && i < CEI_PLAN_LAUNCHES_MAX; i++)
		n += is_pending(plan->object.context, plan->remote->recent[i]) ? 1 : 0;
	return n;
}

/* With the plan's lock held. */
static int put(struct ceov_plan *plan, const struct ceov_launch *launch, uint64_t *ret_number)
{
	ceov_context *context = plan->object.context;
	uint64_t *place = &plan->remote->recent[plan->remote->n_launches % CEI_PLAN_LAUNCHES_MAX];
	struct cei_service_launch ask = {
		.slot = plan->remote->handle.slot,
		.generation = plan->remote->handle.generation,
		.base = launch->base,
		.deadline_ns = launch->deadline_ns,
	};
	int r;

	if (is_pending(context, *place))
		return CEOV_FULL;
	r = cei_service_put(&context->remote->launcher, context->remote->rings[plan->member], &ask);
	if (r)
		return r;
	*place = *ret_number = ask.number;
	plan->remote->n_launches++;
	plan->run.last_base = launch->base;
	return 0;
}

/* Launches of a plan end in their order, so that marks rise, only within one engine. CEOV_NONE:
 * this process carries out the launch; CEOV_FULL: it would have to, but the daemon has not ended
 * earlier ones yet. 0: the daemon carries it out. */
static int choose_side(struct ceov_plan *plan, const struct ceov_launch *launch)
{
	int r;

	pthread_mutex_lock(&plan->lock);
	if (launch->after_stream)
		r = n_there(plan, 1) ? CEOV_FULL : CEOV_NONE;
	else
		r = plan->run.n_in_flight ? CEOV_NONE : 0;
	pthread_mutex_unlock(&plan->lock);
	return r;
}

static int launch_plan(struct ceov_plan *plan, const struct ceov_launch *launch,
			ceov_ticket *ret_ticket)
{
	struct cei_report *report = &plan->object.context->report;
	struct cei_report_hold hold;
	uint64_t number;
	int r;

	if (plan->remote->why_here)
		return cei_launch_enqueue(plan, launch, ret_ticket);
	if (launch->after_stream && !is_on_gpu(plan))
		return cei_raise(report, CEOV_ERR_INVALID, 0, "ceov_launch: rank %u is on the "
				 "host: name no after_stream", plan->program.rank);
	if (is_on_gpu(plan)) {
		r = choose_side(plan, launch);
		if (r)
			return r == CEOV_NONE ? cei_launch_enqueue(plan, launch, ret_ticket) : r;
	}
	hold.is_open = 0;
	pthread_mutex_lock(&plan->lock);
	r = cei_plan_check_base(plan, launch->base, "ceov_launch", &hold);
	if (!r)
		r = put(plan, launch, &number);
	pthread_mutex_unlock(&plan->lock);
	cei_report_hold_end(report, &hold);
	if (r == CEOV_ERR_DAEMON_LOST)
		return cei_raise(report, r, 0, "ceov_launch: the daemon has gone; all "
				 "processes of the group call ceov_reopen() to go on");
	if (!r)
		*ret_ticket = (ceov_ticket){ number | REMOTE_BIT };
	return r;
}

static uint32_t n_in_flight(const struct ceov_plan *plan)
{
	return n_there(plan, CEI_PLAN_LAUNCHES_MAX) + plan->run.n_in_flight;    /* and here */
}

/* The daemon's words about a launch that has failed come by its socket, somewhat later than the
 * result, which is in shared memory. Waits for them, since whoever sees the result asks for them
 * next, but not for long: an earlier call may have taken them. Once that was so, nobody waits until
 * the daemon has said something again. */
static void await_words(ceov_context *context, uint64_t timeout_ns)
{
	uint64_t deadline_ns = cei_deadline(timeout_ns < WORDS_NS ? timeout_ns : WORDS_NS);
	struct cei_backoff backoff;

	cei_backoff_reset(&backoff);
	while (!cei_report_has(&context->report)) {
		/* relaxed, both here: a hint of how long to wait */
		if (atomic_load_explicit(&context->remote->is_silent, memory_order_relaxed))
			return;
		if (cei_now_ns() >= deadline_ns) {
			atomic_store_explicit(&context->remote->is_silent, 1, memory_order_relaxed);
			return;
		}
		cei_backoff_step(&backoff);
	}
}

/* A call that only checks waits for no words. */
static int wait_there(ceov_context *context, ceov_ticket ticket, uint64_t timeout_ns,
		      int *ret_result)
{
	int r;

	if (!(ticket.number & REMOTE_BIT))
		return cei_ticket_wait(context, ticket, timeout_ns, ret_result);
	r = cei_service_wait(&context->remote->launcher, ticket.number & ~REMOTE_BIT, timeout_ns,
			     ret_result);
	if (!r && timeout_ns && *ret_result < 0 && *ret_result != CEOV_ERR_ABORTED)
		await_words(context, timeout_ns);
	return r;
}

/* The plan of a launch in flight, or NULL. With the context's lock held. */
static struct ceov_plan *plan_of(ceov_context *context, uint64_t number)
{
	struct cei_list *plans = &context->remote->plans, *node;
	const struct cei_remote_plan *record;
	struct ceov_plan *found = NULL;
	uint32_t i;

	for (node = plans->next; !found && node != plans; node = node->next) {
		record = CEI_OWNER(node, struct cei_remote_plan, link);
		pthread_mutex_lock(&record->plan->lock);
		for (i = 0; i < CEI_PLAN_LAUNCHES_MAX; i++)
			if (record->recent[i] == number)
				found = record->plan;
		pthread_mutex_unlock(&record->plan->lock);
	}
	return found && is_pending(context, number) ? found : NULL;
}

/* The daemon's engine sees the abort words in shared memory. */
static int abort_there(ceov_context *context, ceov_ticket ticket)
{
	const struct cei_abort abort = { CEOV_ERR_ABORTED, CEOV_NOBODY };
	struct cei_report_hold hold;
	struct ceov_plan *plan;

	if (!(ticket.number & REMOTE_BIT))
		return cei_ticket_abort(context, ticket);
	cei_report_hold_begin(&context->report, &hold);
	pthread_mutex_lock(&context->lock);
	plan = plan_of(context, ticket.number & ~REMOTE_BIT);
	if (plan) {
		cei_abort_plan(plan, &abort);
		cei_abort_end(context, 0);
	}
	pthread_mutex_unlock(&context->lock);
	cei_report_hold_end(&context->report, &hold);
	return plan ? 0 : CEOV_NONE;
}

/* --- the end of plans -------------------------------------------------------- */

/* A plan of a rank on a GPU was committed here, too. */
int cei_remote_keep_here(struct cei_remote_plan *record, const char *why)
{
	struct ceov_plan *plan = record->plan;
	ceov_context *context = plan->object.context;
	int r = check_strict(plan, "ceov_reopen", why);

	if (!r && !is_on_gpu(plan))
		r = cei_plan_complete(plan);
	if (r)
		return r;
	pthread_mutex_lock(&context->lock);     /* an abort of all may go through the records */
	record->why_here = why;
	pthread_mutex_unlock(&context->lock);
	count_kept(context);
	return 0;
}

static void end(struct ceov_plan *plan)
{
	ceov_context *context = plan->object.context;
	struct cei_remote_plan *record = plan->remote;

	if (!record)                    /* never committed, or cei_remote_close() has released it */
		return;
	if (!record->why_here && context->remote->link)
		cei_service_drop(context->remote->link, record->handle);
	pthread_mutex_lock(&context->lock);
	cei_list_remove(&record->link);
	pthread_mutex_unlock(&context->lock);
	plan->remote = NULL;
	free(record);
}

int cei_remote_has(const struct ceov_plan *plan)
{
	return plan->remote && !plan->remote->why_here;
}

const struct cei_door cei_remote_door = {
	.commit = commit,
	.launch = launch_plan,
	.n_in_flight = n_in_flight,
	.explain = explain,
	.end = end,
	.wait = wait_there,
	.abort = abort_there,
};
