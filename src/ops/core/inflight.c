/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Keeps the launches of a workspace's runs while they are in flight, and ends all runs when one of
 * them fails. */

#include "ops/core/workspace.h"

#include "base/clock.h"
#include "ce_engine/objects/abort.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/signal.h"
#include "ce_engine/sched/launch.h"

/* How long a failed launch may need to leave its lanes (CEI_DRAIN_NS, launch.h), and a second for
 * the engine's turns. */
#define DRAIN_NS (CEI_DRAIN_NS + UINT64_C(1000000000))

static struct cei_inflight *oldest(ceov_workspace *workspace)
{
	return &workspace->inflights[workspace->first_flight];
}

/* Returns the error with which one of this rank's signals was aborted, or 0. A launch that fails
 * aborts some of these signals. */
static int aborted(const ceov_workspace *workspace)
{
	uint32_t half;
	int r = cei_signal_aborted(workspace->ready);

	if (!r)
		r = cei_signal_aborted(workspace->sent);
	for (half = 0; !r && half < CEI_OP_HALVES; half++)
		r = cei_signal_aborted(workspace->arrived[half][workspace->rank]);
	return r;
}

/* Returns a launch's result. The context keeps only so many results of failed launches; if this one
 * was dropped, the error is that of the aborted signals. */
static int result_of(ceov_workspace *workspace, ceov_ticket ticket, uint64_t timeout_ns)
{
	ceov_context *context = workspace->object.context;
	int result = 0;

	if (context->door->wait(context, ticket, timeout_ns, &result))
		return aborted(workspace);
	return result;
}

/* Returns the error with which a job ended, or 0. If what it waited for was aborted, the signals
 * may know the cause, such as a lost peer. */
static int job_error(ceov_workspace *workspace)
{
	int r = workspace->executor.ops->status(&workspace->executor);

	return r == CEOV_ERR_ABORTED && aborted(workspace) ? aborted(workspace) : r;
}

/* Returns what ended a run, one of whose launches failed. The engine refuses numbers of rows that
 * kernels leave behind a failure; they have told of it before they left them. */
static int cause_of(ceov_workspace *workspace, int launch_error)
{
	int r = launch_error == CEOV_ERR_INVALID ? job_error(workspace) : 0;

	return r < 0 ? r : launch_error;
}

/* Awaits the launches of one run, and removes those that have ended from `inflight`. CEOV_PENDING:
 * not all ended within timeout_ns; else 0, or the first error. */
static int end_inflight(ceov_workspace *workspace, struct cei_inflight *inflight,
			uint64_t timeout_ns)
{
	int r = 0, result;

	while (inflight->n && r != CEOV_PENDING) {
		result = result_of(workspace, inflight->tickets[inflight->n - 1], timeout_ns);
		if (result != CEOV_PENDING)
			inflight->n--;
		if (!r || result == CEOV_PENDING)
			r = result;
	}
	if (r < 0)
		(void)cei_workspace_fail(workspace, cause_of(workspace, r));
	return r;
}

/* Awaits the launches of the oldest run in flight, and removes the run when they have ended; the
 * workspace keeps their error. CEOV_PENDING: they have not ended within timeout_ns. */
static int end_oldest(ceov_workspace *workspace, uint64_t timeout_ns)
{
	if (end_inflight(workspace, oldest(workspace), timeout_ns) == CEOV_PENDING)
		return CEOV_PENDING;
	workspace->first_flight = (workspace->first_flight + 1) % CEI_OP_RUNS_MAX;
	workspace->n_flights--;
	return 0;
}

/* Waits until the launches of the oldest run in flight have ended, for up to DRAIN_NS longer than
 * the deadline of a launch. After that it raises CEOV_ERR_UNCERTAIN. */
static int wait_for_oldest(ceov_workspace *workspace)
{
	uint64_t timeout = workspace->deadline_ns < CEI_FOREVER - DRAIN_NS
		? workspace->deadline_ns + DRAIN_NS : CEI_FOREVER;

	if (end_oldest(workspace, timeout) != CEOV_PENDING)
		return 0;
	return cei_workspace_fail(workspace, cei_raise(
		cei_object_report(&workspace->object), CEOV_ERR_UNCERTAIN, 0,
		"workspace '%s': rank %u: a launch does not end by its deadline",
		workspace->name, workspace->rank));
}

int cei_workspace_look(ceov_workspace *workspace)
{
	int r;

	while (workspace->n_flights && end_oldest(workspace, 0) != CEOV_PENDING)
		;
	r = job_error(workspace);
	if (r < 0)
		(void)cei_workspace_fail(workspace, r);
	/* acquire: pairs with cei_workspace_fail() */
	return atomic_load_explicit(&workspace->error, memory_order_acquire);
}

int cei_workspace_make_room(ceov_workspace *workspace)
{
	int r = 0;

	while (!r && workspace->n_flights == CEI_OP_RUNS_MAX)
		r = wait_for_oldest(workspace);
	return r;
}

void cei_workspace_add_flight(ceov_workspace *workspace, const struct cei_inflight *inflight)
{
	uint32_t at = (workspace->first_flight + workspace->n_flights) % CEI_OP_RUNS_MAX;

	workspace->inflights[at] = *inflight;
	workspace->n_flights++;
}

int cei_workspace_land(ceov_workspace *workspace)
{
	int r = 0;

	while (!r && workspace->n_flights)
		r = wait_for_oldest(workspace);
	/* acquire: pairs with cei_workspace_fail() */
	return r ? r : atomic_load_explicit(&workspace->error, memory_order_acquire);
}

int cei_workspace_finish(ceov_workspace *workspace)
{
	struct cei_executor *executor = &workspace->executor;
	int r = cei_workspace_land(workspace);

	if (!r)
		r = executor->ops->idle(executor, workspace->deadline_ns);
	return r ? r : cei_workspace_look(workspace);
}

/* --- failure --------------------------------------------------------------- */

/* Lists all signals of the workspace that exist; returns how many there are. */
static uint32_t list_signals(const ceov_workspace *workspace, ceov_signal **ret_signals)
{
	uint32_t n = cei_shared_signals(workspace, ret_signals);

	if (workspace->ready)
		ret_signals[n++] = workspace->ready;
	if (workspace->sent)
		ret_signals[n++] = workspace->sent;
	return n;
}

int cei_workspace_fail(ceov_workspace *workspace, int error)
{
	struct ceov_signal *signals[CEI_SHARED_SIGNALS_MAX + 2];
	uint32_t blamed, n;
	int none = 0;

	/* release: pairs with the acquire of a thread that reads the error and then our report */
	if (!atomic_compare_exchange_strong_explicit(&workspace->error, &none, error,
						     memory_order_release,
						     memory_order_relaxed))
		return error;
	n = list_signals(workspace, signals);
	if (cei_signals_blame(signals, n, &blamed) != error || blamed == CEOV_NOBODY)
		blamed = workspace->rank;
	cei_abort_unlocked(signals, n, error, blamed);
	return error;
}

void cei_workspace_fail_if_aborted(ceov_workspace *workspace)
{
	struct ceov_signal *signals[CEI_SHARED_SIGNALS_MAX + 2];
	uint32_t blamed;
	int error = cei_signals_blame(signals, list_signals(workspace, signals), &blamed);

	if (error)
		(void)cei_workspace_fail(workspace, error);
}

/* Returns whether a thread compares an op before its first run. */
static int is_comparing(ceov_workspace *workspace)
{
	if (pthread_mutex_trylock(&workspace->agree.first))
		return 1;
	pthread_mutex_unlock(&workspace->agree.first);
	return 0;
}

/* --- ceov_close() ---------------------------------------------------------- */

static void abort_runs(ceov_workspace *workspace)
{
	(void)cei_workspace_fail(workspace, cei_raise(
		cei_object_report(&workspace->object), CEOV_ERR_ABORTED, 0,
		"ceov_close: workspace '%s': rank %u: its runs are not done and are aborted",
		workspace->name, workspace->rank));
}

/* Waits for the launches of all runs in flight. CEOV_PENDING: a run has not ended within
 * timeout_ns. */
static int end_inflights(ceov_workspace *workspace, uint64_t timeout_ns)
{
	int r = 0;

	while (!r && workspace->n_flights)
		r = end_oldest(workspace, timeout_ns);
	return r;
}

/* Returns whether runs must be aborted. If all jobs have ended, only copies of launches are left,
 * and these get CEI_CLOSE_NS to end: an abort would fail the run for peers that are still in it. */
static int is_busy(ceov_workspace *workspace)
{
	struct cei_executor *executor = &workspace->executor;

	if (executor->ops->idle(executor, 0) == CEOV_PENDING)
		return 1;
	return end_inflights(workspace, CEI_CLOSE_NS) == CEOV_PENDING;
}

/* Waits until aborted runs have ended; after the abort none of them waits for marks any more. */
static void drain(ceov_workspace *workspace)
{
	struct cei_executor *executor = &workspace->executor;
	int r = end_inflights(workspace, DRAIN_NS);

	if (!r)
		r = executor->ops->idle(executor, DRAIN_NS);
	if (r == CEOV_PENDING)
		cei_log(cei_object_report(&workspace->object), CEI_LOG_WARN,
			"ceov_close: workspace '%s': rank %u: its runs do not end",
			workspace->name, workspace->rank);
}

static void end_comparison(ceov_workspace *workspace)
{
	if (!is_comparing(workspace))
		return;
	abort_runs(workspace);
	pthread_mutex_lock(&workspace->agree.first);
	pthread_mutex_unlock(&workspace->agree.first);
}

void cei_workspace_end(ceov_workspace *workspace)
{
	/* If the lock is taken, a thread is making a run, and that run has to end first. */
	int is_running = pthread_mutex_trylock(&workspace->lock);

	if (is_running) {
		abort_runs(workspace);
		pthread_mutex_lock(&workspace->lock);
	}
	end_comparison(workspace);
	if (is_busy(workspace)) {
		if (!is_running)
			abort_runs(workspace);
		drain(workspace);
	}
	pthread_mutex_unlock(&workspace->lock);
}

/* --- status ---------------------------------------------------------------- */

int ceov_workspace_status(ceov_workspace *workspace)
{
	int r = cei_workspace_check(workspace, "ceov_workspace_status");

	if (r)
		return r;
	/* If another thread holds the lock, it is making a run, and makes this check itself. */
	if (!pthread_mutex_trylock(&workspace->lock)) {
		(void)cei_workspace_look(workspace);
		pthread_mutex_unlock(&workspace->lock);
	}
	/* acquire: pairs with cei_workspace_fail() */
	return atomic_load_explicit(&workspace->error, memory_order_acquire);
}

int ceov_workspace_idle(ceov_workspace *workspace)
{
	int r = cei_workspace_check(workspace, "ceov_workspace_idle");

	if (r)
		return r;
	if (is_comparing(workspace) || pthread_mutex_trylock(&workspace->lock))
		return CEOV_PENDING;            /* another thread is making a run */
	(void)cei_workspace_look(workspace);
	if (workspace->n_flights ||
	    workspace->executor.ops->idle(&workspace->executor, 0) == CEOV_PENDING)
		r = CEOV_PENDING;
	pthread_mutex_unlock(&workspace->lock);
	return r;
}

int ceov_workspace_abort(ceov_workspace *workspace)
{
	int r = cei_workspace_check_connected(workspace, "ceov_workspace_abort");

	if (r)
		return r;
	cei_log(cei_object_report(&workspace->object), CEI_LOG_INFO,
		"workspace '%s': rank %u aborts its runs, at all ranks", workspace->name,
		workspace->rank);
	(void)cei_workspace_fail(workspace, CEOV_ERR_ABORTED);
	return 0;
}
