/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * The thread of the peers, which polls the near carrier's descriptors, has carriers do what they
 * have to, tells the machine the time, and looks at counters that others have asked for. With
 * progress_by_caller there is none: cei_peers_turn() does one such round.
 */

#include <errno.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "ipc/peers/peers_private.h"

#define NS_PER_S UINT64_C(1000000000)

/* Until when the thread may sleep if nothing comes. With the lock. */
static uint64_t due(const struct cei_peers *peers)
{
	const struct cei_carrier *carriers[2] = { peers->config.near, peers->config.far };
	uint64_t due_ns = cei_group_due(peers->machine), carrier_ns;
	uint32_t i;

	for (i = 0; i < 2; i++) {
		if (!carriers[i])
			continue;
		carrier_ns = carriers[i]->ops->due(carriers[i]->state);
		if (carrier_ns < due_ns)
			due_ns = carrier_ns;
	}
	return due_ns;
}

/* --- waking ----------------------------------------------------------------------------- */

/* A wake before the thread has looked again is the same wake. */
void cei_peers_wake(struct cei_peers *peers)
{
	const uint64_t one = 1;

	if (peers->wake_fd < 0)
		return;
	/* acq_rel: pairs with begin_round(): either it sees what was written before, or its
	 * descriptor is written to once more */
	if (!atomic_exchange_explicit(&peers->is_woken, 1, memory_order_acq_rel))
		(void)!write(peers->wake_fd, &one, sizeof(one));
}

void cei_peers_wake_if_due(struct cei_peers *peers)
{
	if (!peers->sleeps_until)
		return;
	if (peers->has_action || cei_group_has_listeners(peers->machine) ||
	    cei_group_due(peers->machine) < peers->sleeps_until)
		cei_peers_wake(peers);
}

/* --- one round --------------------------------------------------------------------------- */

/* Tells the time, and says what is to be said. Returns whether counters have changed. With the
 * lock. */
static int begin_round(struct cei_peers *peers)
{
	int has_changed;

	/* acq_rel: pairs with cei_peers_wake() */
	(void)atomic_exchange_explicit(&peers->is_woken, 0, memory_order_acq_rel);
	cei_peers_tick(peers);
	has_changed = cei_group_look(peers->machine);
	cei_peers_take(peers, 1);
	return has_changed;
}

static uint32_t list_fds(struct cei_peers *peers)
{
	const struct cei_carrier *near = peers->config.near;

	peers->fds[0] = (struct pollfd){ .fd = peers->wake_fd, .events = POLLIN };
	return 1 + (near && near->ops->list_fds ?
		    near->ops->list_fds(near->state, peers->fds + 1) : 0);
}

/* Polls until a time, and has carriers do what they have to. Returns whether they did anything.
 * Without the lock. */
static int poll_until(struct cei_peers *peers, uint32_t n_fds, uint64_t until_ns)
{
	const struct cei_carrier *near = peers->config.near, *far = peers->config.far;
	uint64_t now_ns = until_ns ? cei_now_ns() : 0, wait_ns, woken;
	struct timespec timeout = { 0, 0 };
	int has_worked = 0;

	if (until_ns > now_ns) {
		wait_ns = until_ns - now_ns;
		timeout.tv_sec = (time_t)(wait_ns / NS_PER_S > INT32_MAX ? INT32_MAX :
					  wait_ns / NS_PER_S);
		timeout.tv_nsec = (long)(wait_ns % NS_PER_S);
	}
	if (ppoll(peers->fds, n_fds, until_ns == CEI_FOREVER ? NULL : &timeout, NULL) > 0 &&
	    peers->fds[0].revents)
		(void)!read(peers->wake_fd, &woken, sizeof(woken));
	if (near)
		has_worked |= near->ops->turn(near->state, peers->fds + 1);
	if (far)
		has_worked |= far->ops->turn(far->state, NULL);
	return has_worked;
}

static void *run(void *arg)
{
	struct cei_peers *peers = arg;
	struct cei_backoff backoff;
	int has_changed, has_worked = 0;
	uint32_t n_fds;
	uint64_t until_ns;

	cei_backoff_reset(&backoff);
	pthread_mutex_lock(&peers->lock);
	while (!peers->must_stop) {
		has_changed = begin_round(peers);
		n_fds = list_fds(peers);
		until_ns = cei_group_has_listeners(peers->machine) ? 0 : due(peers);
		peers->sleeps_until = until_ns;
		pthread_mutex_unlock(&peers->lock);
		if (has_changed || has_worked || until_ns)
			cei_backoff_again(&backoff);
		else
			cei_backoff_step(&backoff);
		has_worked = poll_until(peers, n_fds, until_ns);
		pthread_mutex_lock(&peers->lock);
		peers->sleeps_until = 0;
	}
	pthread_mutex_unlock(&peers->lock);
	return NULL;
}

int cei_peers_turn(struct cei_peers *peers)
{
	uint32_t n_fds;
	int has_worked;

	pthread_mutex_lock(&peers->lock);
	if (peers->is_turning || peers->has_left || !peers->config.progress_by_caller) {
		pthread_mutex_unlock(&peers->lock);
		return 0;
	}
	peers->is_turning = 1;
	has_worked = begin_round(peers);
	n_fds = list_fds(peers);
	pthread_mutex_unlock(&peers->lock);
	has_worked |= poll_until(peers, n_fds, 0);
	pthread_mutex_lock(&peers->lock);
	peers->is_turning = 0;
	pthread_mutex_unlock(&peers->lock);
	return has_worked;
}

/* --- starting and stopping ------------------------------------------------------------------ */

int cei_peers_start(struct cei_peers *peers)
{
	sigset_t all, before;
	int error;

	if (peers->config.progress_by_caller)
		return 0;
	peers->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (peers->wake_fd < 0)
		return errno;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&peers->thread, NULL, run, peers);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	peers->has_thread = !error;
	return error;
}

void cei_peers_stop(struct cei_peers *peers)
{
	if (!peers->has_thread)
		return;
	pthread_mutex_lock(&peers->lock);
	peers->must_stop = 1;
	pthread_mutex_unlock(&peers->lock);
	cei_peers_wake(peers);
	pthread_join(peers->thread, NULL);
}
