/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Connects to a daemon, notices its loss, and goes on with the next one. */

#include "ce_engine/remote/remote_private.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "ce_engine/objects/abort.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/signal.h"

/* --- loss ---------------------------------------------------------------------- */

static void launch_failed(void *arg, const struct ceov_failure *failed)
{
	struct ceov_failure failure = *failed;
	ceov_context *context = arg;

	(void)cei_raise_failure(&context->report, &failure, "%s", failed->text);
	/* relaxed: see await_words() in remote.c */
	atomic_store_explicit(&context->remote->is_silent, 0, memory_order_relaxed);
}

/* The marks of launches that were in flight will not be raised: whoever waits for them is
 * released. With the context's lock held. */
static void abort_all(ceov_context *context)
{
	const struct cei_abort abort = { CEOV_ERR_DAEMON_LOST, CEOV_NOBODY };
	struct cei_list *plans = &context->remote->plans, *node;
	const struct cei_remote_plan *record;

	for (node = plans->next; node != plans; node = node->next) {
		record = CEI_OWNER(node, struct cei_remote_plan, link);
		if (!record->why_here)
			cei_abort_plan(record->plan, &abort);
	}
	cei_abort_end(context, 0);
}

static void daemon_lost(void *arg)
{
	struct cei_report_hold hold;
	ceov_context *context = arg;

	cei_report_hold_begin(&context->report, &hold);
	(void)cei_raise(&context->report, CEOV_ERR_DAEMON_LOST, 0,
			"the daemon at %s has gone; its launches have failed, and their signals "
			"are aborted; all processes of the group call ceov_reopen() to go on with "
			"the next daemon", context->remote->path);
	pthread_mutex_lock(&context->lock);
	if (!context->remote->is_quiet)
		abort_all(context);
	pthread_mutex_unlock(&context->lock);
	cei_report_hold_end(&context->report, &hold);
}

/* --- opening ----------------------------------------------------------------- */

/* Members that the daemon serves have rings, in their order. */
static void number_rings(ceov_context *context)
{
	uint32_t serves = cei_service_link_welcome(context->remote->link)->serves, i, n = 0;

	for (i = 0; i < context->site.n_members; i++)
		context->remote->rings[i] = serves >> i & 1 ? n++ : CEI_REMOTE_NO_RING;
}

static int connect_to(ceov_context *context, uint64_t deadline_ns)
{
	struct cei_remote *remote = context->remote;
	struct cei_service_link_config config = {
		.report = &context->report,
		.path = remote->path,
		.launcher = &remote->launcher,
		.deadline_ns = deadline_ns,
		.timeout_ns = context->deadline_ns,
		.failed = launch_failed,
		.lost = daemon_lost,
		.arg = context,
	};

	int r;

	cei_remote_hello(context, &config.hello);
	r = cei_service_link_open(&config, &remote->link);
	if (!r)
		number_rings(context);
	return r;
}

int cei_remote_open(ceov_context *context, const char *path, uint64_t deadline_ns)
{
	const char *strict = secure_getenv("CEOVERLAP_DAEMON_STRICT");
	struct cei_remote *remote;
	int r;

	if (context->site.progress_by_caller)
		return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
				 "ceov_open: a daemon moves the data by itself: do not ask for "
				 "progress_by_caller");
	remote = calloc(1, sizeof(*remote));
	context->remote = remote;
	if (remote) {
		cei_list_init(&remote->plans);
		remote->path = strdup(path);
	}
	if (!remote || !remote->path)
		return cei_raise(&context->report, CEOV_ERR_NO_MEMORY, 0,
				 "ceov_open: no memory for a daemon's client");
	remote->is_strict = strict && !strcmp(strict, "1");
	cei_service_launcher_init(&remote->launcher);
	r = connect_to(context, deadline_ns);
	if (r)
		return r;
	context->site.keeps_files = 1;
	context->door = &cei_remote_door;
	return 0;
}

/* Aborts, which look at plans until these are gone, then no longer ask the link. */
static void forget_plans(ceov_context *context)
{
	struct cei_remote_plan *record;
	struct cei_list *node;

	pthread_mutex_lock(&context->lock);
	while ((node = cei_list_take(&context->remote->plans))) {
		record = CEI_OWNER(node, struct cei_remote_plan, link);
		pthread_mutex_lock(&record->plan->lock);
		record->plan->remote = NULL;
		pthread_mutex_unlock(&record->plan->lock);
		free(record);
	}
	pthread_mutex_unlock(&context->lock);
}

void cei_remote_close(ceov_context *context)
{
	struct cei_remote *remote = context->remote;

	if (!remote)
		return;
	forget_plans(context);
	cei_service_link_close(remote->link, cei_deadline(context->deadline_ns));
	remote->link = NULL;
	if (remote->path)
		cei_service_launcher_fini(&remote->launcher);
	free(remote->path);
	free(remote);
	context->remote = NULL;
}

/* --- going on ---------------------------------------------------------------- */

int cei_remote_leave(ceov_context *context, uint64_t deadline_ns)
{
	struct cei_remote *remote = context->remote;
	int r = remote && remote->link ? cei_service_link_await_loss(remote->link, deadline_ns)
		: CEOV_NONE;

	if (r == CEOV_PENDING)
		return cei_raise(&context->report, CEOV_ERR_TIMEOUT, 0,
				 "ceov_reopen: the daemon at %s dies, and has not ended yet",
				 remote->path);
	if (r == CEOV_NONE)
		return 0;
	cei_service_link_close(remote->link, 0);
	remote->link = NULL;
	return 0;
}

static int commit_again(struct cei_remote_plan *record)
{
	const char *why = cei_remote_why_here(record->plan);

	return why ? cei_remote_keep_here(record, why) : cei_remote_send(record);
}

/* Has the daemon commit the plans that an earlier one had. */
static int commit_all_again(struct cei_remote *remote)
{
	struct cei_remote_plan *record;
	struct cei_list *node;
	int r = 0;

	for (node = remote->plans.next; !r && node != &remote->plans; node = node->next) {
		record = CEI_OWNER(node, struct cei_remote_plan, link);
		if (!record->why_here)
			r = commit_again(record);
	}
	return r;
}

/* CEOV_ERR_SYSTEM and CEOV_ERR_DAEMON_LOST: nobody listened any more, or the daemon has gone. */
static int connect_again(ceov_context *context)
{
	struct cei_remote *remote = context->remote;
	uint64_t deadline_ns = cei_deadline(context->deadline_ns);
	int r = connect_to(context, deadline_ns);

	if (!r)
		r = commit_all_again(remote);
	if (r) {
		cei_service_link_close(remote->link, deadline_ns);
		remote->link = NULL;
	}
	return r;
}

int cei_remote_return(ceov_context *context, uint64_t deadline_ns)
{
	struct cei_remote *remote = context->remote;
	int r = cei_remote_leave(context, deadline_ns);
	struct cei_backoff backoff;

	if (r || !remote || remote->link)
		return r;
	cei_backoff_reset(&backoff);
	/* Who listens may be the old daemon, whose listening socket can be the last to close. */
	for (;;) {
		r = cei_service_link_await_daemon(&context->report, remote->path, deadline_ns);
		if (!r)
			r = connect_again(context);
		if ((r != CEOV_ERR_SYSTEM && r != CEOV_ERR_DAEMON_LOST) ||
		    cei_now_ns() >= deadline_ns)
			return r;
		cei_backoff_step(&backoff);
	}
}

int cei_remote_is_connected(const ceov_context *context)
{
	const struct cei_remote *remote = context->remote;

	return remote && remote->link && !cei_service_link_is_lost(remote->link);
}

int cei_remote_keep_quiet(ceov_context *context, int is_quiet)
{
	struct cei_remote *remote = context->remote;
	int is_lost;

	if (!remote)
		return 0;
	pthread_mutex_lock(&context->lock);
	remote->is_quiet = is_quiet;
	/* daemon_lost() sees is_quiet 0 or, called before, is made up for here */
	is_lost = !is_quiet && !cei_remote_is_connected(context);
	/* one process hears of a daemon's death before another one that calls ceov_reopen() with
	 * it: its signals, too, are to be aborted before all have met */
	if (is_quiet || is_lost)
		abort_all(context);
	pthread_mutex_unlock(&context->lock);
	return is_lost;
}
