/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Opens and leaves the peers, and takes the actions of their machine. */

#include "ipc/peers/peers_private.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"

/* How long a farewell waits for processes that do not take it. */
#define LEAVE_NS UINT64_C(3000000000)

/* How long a call that has ended waits for carriers without room. */
#define FLUSH_NS UINT64_C(1000000000)

const struct cei_roster *cei_peers_roster(const struct cei_peers *peers)
{
	return peers->config.roster;
}

static int is_near(const struct cei_peers *peers, uint32_t process)
{
	const struct cei_roster *roster = peers->config.roster;

	return roster->node_of[process] == roster->node_of[roster->own];
}

static const struct cei_carrier *carrier_to(const struct cei_peers *peers, uint32_t process)
{
	return is_near(peers, process) ? peers->config.near : peers->config.far;
}

const char *cei_peers_end_of(const struct cei_peers *peers, uint32_t rank, int has_departed)
{
	if (has_departed)
		return "has closed its context";
	return is_near(peers, peers->config.roster->process_of[rank]) ?
		"is lost: its process has ended" : "is lost: the log says why";
}

/* --- actions -------------------------------------------------------------------------- */

/* Whether it tells the layer above something, which takes locks there. */
static int is_upward(const struct cei_group_action *action)
{
	return action->what == CEI_GROUP_PEER_GONE || action->what == CEI_GROUP_ABORTED ||
		action->what == CEI_GROUP_RENEWED;
}

static void tell_gone(const struct cei_peers *peers, const struct cei_group_action *action)
{
	const struct cei_roster *roster = peers->config.roster;
	uint32_t process = action->process, rank;

	if (!action->has_departed && !is_near(peers, process))
		cei_log(peers->config.report, CEI_LOG_WARN, "network: process %u, which holds rank "
			"%u on node %u, is lost: %s", process, roster->first_rank[process],
			roster->node_of[process], action->why);
	for (rank = 0; rank < roster->n_ranks; rank++)
		if (roster->process_of[rank] == process)
			peers->config.events->gone(peers->config.events_arg, rank,
						   action->has_departed);
}

/* Without the lock: what is called takes other ones, or calls the peers. */
static void tell(const struct cei_peers *peers, const struct cei_group_action *action)
{
	const struct cei_peers_events *events = peers->config.events;
	const struct cei_carrier *carrier;

	switch (action->what) {
	case CEI_GROUP_GIVE_UP:
		carrier = carrier_to(peers, action->process);
		carrier->ops->give_up(carrier->state, action->process, action->why);
		break;
	case CEI_GROUP_PEER_GONE:
		tell_gone(peers, action);
		break;
	case CEI_GROUP_ABORTED:
		events->aborted(peers->config.events_arg, &action->message.abort);
		break;
	case CEI_GROUP_RENEWED:
		events->renewed(peers->config.events_arg, action->process, action->id,
				action->use);
		break;
	default:
		break;
	}
}

static void send(struct cei_peers *peers, const struct cei_group_action *action)
{
	const struct cei_carrier *carrier = carrier_to(peers, action->process);
	int native_code = 0, r;

	r = carrier->ops->send(carrier->state, action->process, &action->message,
			       action->fds.n ? &action->fds : NULL, &native_code);
	cei_group_sent(peers->machine, r, native_code);
}

void cei_peers_close_fds(const struct cei_group_fds *fds, uint32_t first)
{
	uint32_t i;

	for (i = first; i < fds->n; i++)
		close(fds->fds[i]);
}

/* Takes one action. The lock is released while something is told. */
static void act(struct cei_peers *peers)
{
	const struct cei_group_action *action = &peers->action;

	switch (action->what) {
	case CEI_GROUP_SEND:
		send(peers, action);
		return;
	case CEI_GROUP_ENDED:
		pthread_cond_broadcast(&peers->changed);
		return;
	case CEI_GROUP_CLOSE:
		cei_peers_close_fds(&action->fds, 0);
		return;
	default:
		break;
	}
	peers->is_telling = 1;
	pthread_mutex_unlock(&peers->lock);
	tell(peers, action);
	pthread_mutex_lock(&peers->lock);
	peers->is_telling = 0;
	if (peers->has_left)
		pthread_cond_broadcast(&peers->changed);
	cei_peers_tick(peers);
}

void cei_peers_take(struct cei_peers *peers, int holds_none)
{
	while (!peers->is_telling && !peers->has_left) {
		if (!peers->has_action && cei_group_next(peers->machine, &peers->action))
			return;
		peers->has_action = 1;
		if (is_upward(&peers->action) && !holds_none)
			return;
		act(peers);
		peers->has_action = 0;
	}
}

/* --- going in and out -------------------------------------------------------------------- */

void cei_peers_tick(struct cei_peers *peers)
{
	/* relaxed: a hint, which the machine looks at again and again */
	cei_group_await_users(peers->machine, atomic_load_explicit(&peers->n_waits,
								   memory_order_relaxed) > 0);
	cei_group_time(peers->machine, cei_now_ns());
	(void)cei_group_reserve(peers->machine);        /* calls say what they lack */
}

void cei_peers_enter(struct cei_peers *peers)
{
	pthread_mutex_lock(&peers->lock);
	cei_peers_tick(peers);
}

void cei_peers_exit(struct cei_peers *peers, int holds_none)
{
	cei_peers_take(peers, holds_none);
	cei_peers_wake_if_due(peers);
	pthread_mutex_unlock(&peers->lock);
}

/* The caller may make no progress behind the call, and others wait for what it has said: the last
 * turn has the rail send what the one before has given to it. */
static void flush(struct cei_peers *peers, uint64_t deadline_ns)
{
	uint64_t until_ns = cei_deadline(FLUSH_NS);
	uint32_t n_unsent;

	if (deadline_ns < until_ns)
		until_ns = deadline_ns;
	do {
		(void)cei_peers_turn(peers);
		pthread_mutex_lock(&peers->lock);
		n_unsent = cei_group_n_unsent(peers->machine);
		pthread_mutex_unlock(&peers->lock);
	} while (n_unsent && cei_now_ns() < until_ns);
	(void)cei_peers_turn(peers);
}

/* Without the lock. It naps, but does not poll: a rail without a thread has to be turned, and
 * another thread of this process may end the call. */
static void progress(struct cei_peers *peers, struct cei_backoff *backoff)
{
	if (cei_peers_turn(peers))
		cei_backoff_again(backoff);
	else
		cei_backoff_step(backoff);
}

/* The thread tells the machine the time, but it may be held up by the layer above. */
void cei_peers_await(struct cei_peers *peers, const struct cei_group_call *call)
{
	struct cei_backoff backoff;

	cei_backoff_reset(&backoff);
	for (;;) {
		cei_peers_take(peers, 1);
		if (call->is_ended)
			break;
		cei_peers_wake_if_due(peers);
		if (peers->config.progress_by_caller) {
			pthread_mutex_unlock(&peers->lock);
			progress(peers, &backoff);
			pthread_mutex_lock(&peers->lock);
		} else {
			cei_condition_wait(&peers->changed, &peers->lock, call->deadline_ns);
		}
		cei_peers_tick(peers);
	}
	cei_peers_exit(peers, 1);
	if (peers->config.progress_by_caller)
		flush(peers, call->deadline_ns);
}

/* --- events of carriers --------------------------------------------------------------------- */

/* Whether there still is somebody whom events concern; then they go in. */
static int enter_event(struct cei_peers *peers)
{
	pthread_mutex_lock(&peers->lock);
	if (peers->has_left) {
		pthread_mutex_unlock(&peers->lock);
		return 0;
	}
	cei_peers_tick(peers);
	return 1;
}

void cei_peers_received(struct cei_peers *peers, uint32_t process,
			const struct cei_group_message *message, struct cei_group_fds *fds)
{
	int is_heard = enter_event(peers);

	if (is_heard)
		cei_group_received(peers->machine, process, message, fds);
	if (fds)                                /* before a call that it ends returns */
		cei_peers_close_fds(fds, 0);
	if (is_heard)
		cei_peers_exit(peers, 1);
}

void cei_peers_ready(struct cei_peers *peers, uint32_t process)
{
	if (!enter_event(peers))
		return;
	cei_group_ready(peers->machine, process);
	cei_peers_exit(peers, 1);
}

void cei_peers_down(struct cei_peers *peers, uint32_t process, const char *why, int is_refusal)
{
	if (!enter_event(peers))
		return;
	cei_group_down(peers->machine, process, why, is_refusal);
	cei_peers_exit(peers, 1);
}

void cei_peers_quiet(struct cei_peers *peers, uint32_t process)
{
	if (!enter_event(peers))
		return;
	cei_group_quiet(peers->machine, process);
	cei_peers_exit(peers, 1);
}

/* --- opening and leaving --------------------------------------------------------------------- */

static int make_machine(struct cei_peers *peers)
{
	const struct cei_peers_config *config = &peers->config;
	struct cei_group_config machine = {
		.roster = config->roster,
		.now_ns = cei_now_ns(),
		.timeout_ns = config->timeout_ns,
	};

	if (config->near)
		machine.near = config->near->promises;
	if (config->far)
		machine.far = config->far->promises;
	return cei_group_make(&machine, &peers->machine);
}

/* Returns an errno. */
static int init_locks(struct cei_peers *peers)
{
	int error = cei_condition_init(&peers->changed);

	if (error)
		return error;
	error = pthread_mutex_init(&peers->lock, NULL);
	if (error)
		pthread_cond_destroy(&peers->changed);
	peers->has_lock = !error;
	return error;
}

static int build(struct cei_peers *peers)
{
	const struct cei_carrier *near = peers->config.near;
	struct cei_report *report = peers->config.report;
	int error;

	peers->fds = calloc(1 + (near ? near->n_fds_max : 0), sizeof(*peers->fds));
	if (!peers->fds || make_machine(peers))
		return cei_raise(report, CEOV_ERR_NO_MEMORY, 0, "no memory for a group of %u "
				 "processes", peers->config.roster->n_processes);
	error = init_locks(peers);
	if (!error)
		error = cei_peers_start(peers);
	return error ? cei_raise(report, CEOV_ERR_SYSTEM, error, "no thread for messages of the "
				 "group's processes: %s", strerror(error)) : 0;
}

int cei_peers_open(const struct cei_peers_config *config, struct cei_peers **ret_peers)
{
	struct cei_peers *peers = calloc(1, sizeof(*peers));
	int r;

	if (!peers)
		return cei_raise(config->report, CEOV_ERR_NO_MEMORY, 0,
				 "no memory for the group's processes");
	peers->config = *config;
	peers->wake_fd = -1;
	r = build(peers);
	if (r) {
		peers->has_left = 1;
		cei_peers_free(peers);
		return r;
	}
	*ret_peers = peers;
	return 0;
}

void cei_peers_leave(struct cei_peers *peers)
{
	struct cei_group_call call = { .deadline_ns = cei_deadline(LEAVE_NS) };

	if (!peers || peers->has_left)
		return;
	cei_peers_enter(peers);
	cei_group_leave(peers->machine, &call);
	cei_peers_await(peers, &call);
	pthread_mutex_lock(&peers->lock);
	peers->has_left = 1;
	while (peers->is_telling)
		pthread_cond_wait(&peers->changed, &peers->lock);
	pthread_mutex_unlock(&peers->lock);
	cei_peers_stop(peers);
}

/* Closes the descriptors of exports that the farewell has withdrawn. */
static void give_back(struct cei_peers *peers)
{
	struct cei_group_action action;

	while (!cei_group_next(peers->machine, &action)) {
		if (action.what == CEI_GROUP_CLOSE)
			cei_peers_close_fds(&action.fds, 0);
		else if (action.what == CEI_GROUP_SEND)
			cei_group_sent(peers->machine, CEOV_ERR_PEER_LOST, 0);
	}
}

void cei_peers_free(struct cei_peers *peers)
{
	if (!peers)
		return;
	cei_peers_leave(peers);
	if (peers->machine)
		give_back(peers);
	cei_group_free(peers->machine);
	if (peers->wake_fd >= 0)
		close(peers->wake_fd);
	if (peers->has_lock) {
		pthread_mutex_destroy(&peers->lock);
		pthread_cond_destroy(&peers->changed);
	}
	free(peers->fds);
	free(peers);
}
