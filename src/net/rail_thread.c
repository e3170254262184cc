/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The thread of a rail. It sleeps when the transport and everybody else have nothing for it, at
 * most 100 ms: libraries below are known to lose a wake-up now and then. */

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/rail_private.h"

#define SLEEP_MAX_MS 100u
#define NS_PER_MS    UINT64_C(1000000)
#define NS_PER_S     UINT64_C(1000000000)
#define CALL_NS      (10 * NS_PER_S)

/* --- calls ----------------------------------------------------------------- */

static void run_calls(struct cei_rail *rail)
{
	struct cei_rail_call *call;
	struct cei_list *at;

	/* relaxed: the bell orders it */
	if (!atomic_load_explicit(&rail->n_calls, memory_order_relaxed))
		return;
	pthread_mutex_lock(&rail->lock);
	while ((at = cei_list_take(&rail->calls))) {
		atomic_fetch_sub_explicit(&rail->n_calls, 1, memory_order_relaxed);
		call = CEI_OWNER(at, struct cei_rail_call, link);
		call->is_begun = 1;
		pthread_mutex_unlock(&rail->lock);
		call->result = call->run(rail, call->arg);
		pthread_mutex_lock(&rail->lock);
		call->is_done = 1;
		pthread_cond_broadcast(&rail->called);
	}
	pthread_mutex_unlock(&rail->lock);
}

/* Waits until the call is done, or the time has passed and it was not begun. What has begun ends:
 * nothing in it blocks. The caller holds the lock. */
static void await_call(struct cei_rail *rail, struct cei_rail_call *call)
{
	uint64_t deadline_ns = cei_deadline(CALL_NS);

	while (!call->is_done) {
		if (call->is_begun)
			pthread_cond_wait(&rail->called, &rail->lock);
		else if (cei_condition_wait(&rail->called, &rail->lock, deadline_ns) ==
			 ETIMEDOUT && !call->is_begun)
			return;
	}
}

static int run_there(struct cei_rail *rail, struct cei_rail_call *call)
{
	pthread_mutex_lock(&rail->lock);
	cei_list_append(&rail->calls, &call->link);
	/* relaxed: the bell orders it */
	atomic_fetch_add_explicit(&rail->n_calls, 1, memory_order_relaxed);
	pthread_mutex_unlock(&rail->lock);
	cei_bell_ring(&rail->bell);

	pthread_mutex_lock(&rail->lock);
	await_call(rail, call);
	if (!call->is_done) {
		cei_list_remove(&call->link);
		atomic_fetch_sub_explicit(&rail->n_calls, 1, memory_order_relaxed);
	}
	pthread_mutex_unlock(&rail->lock);
	if (call->is_done)
		return call->result;
	return cei_raise(rail->nic.config.report, CEOV_ERR_TIMEOUT, 0,
			 "net: the rail's thread does not answer within 10 s; is it stopped in a "
			 "debugger?");
}

int cei_rail_run(struct cei_rail *rail, int (*run)(struct cei_rail *rail, void *arg), void *arg)
{
	struct cei_rail_call call = { .run = run, .arg = arg };

	if (!rail->has_thread || pthread_equal(pthread_self(), rail->thread))
		return run(rail, arg);
	return run_there(rail, &call);
}

/* --- the thread ------------------------------------------------------------ */

static int sleep_ms(const struct cei_rail *rail)
{
	uint64_t due_ns = cei_rail_due(rail), now_ns = cei_now_ns();

	if (due_ns <= now_ns)
		return 0;
	if (due_ns - now_ns >= SLEEP_MAX_MS * NS_PER_MS)
		return SLEEP_MAX_MS;
	return (int)((due_ns - now_ns + NS_PER_MS - 1) / NS_PER_MS);
}

/* Sleeps unless somebody rang since the count was `seen`, or the transport has something. */
static void sleep_now(struct cei_rail *rail, uint32_t seen)
{
	struct cei_transport *transport = &rail->nic.transport;
	struct epoll_event events[2];

	if (!cei_bell_may_sleep(&rail->bell, seen))
		return;
	if (transport->ops->arm(transport)) {
		cei_bell_awake(&rail->bell);
		sched_yield();          /* others may have to run before anything comes */
		return;
	}
	(void)epoll_wait(rail->epoll_fd, events, 2, sleep_ms(rail));
	cei_bell_awake(&rail->bell);
}

static void *rail_main(void *arg)
{
	struct cei_rail *rail = arg;
	uint32_t seen;

	pthread_setname_np(pthread_self(), "ceov-rail");
	while (!rail->must_stop) {
		seen = cei_bell_count(&rail->bell);
		run_calls(rail);
		if (rail->must_stop)
			break;
		if (!cei_rail_turn(rail, cei_now_ns()))
			sleep_now(rail, seen);
		else if (cei_rail_polls(rail))
			sched_yield();  /* others have to run before there is more to do */
	}
	return NULL;
}

static int watch(struct cei_rail *rail, int fd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };

	return epoll_ctl(rail->epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

static int start(struct cei_rail *rail)
{
	sigset_t all, before;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&rail->thread, NULL, rail_main, rail);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return r;
}

int cei_rail_thread_open(struct cei_rail *rail)
{
	struct cei_transport *transport = &rail->nic.transport;
	int r = 0;

	if (rail->nic.config.progress_by_caller)
		return 0;
	rail->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (rail->epoll_fd < 0 || watch(rail, rail->bell.fd) ||
	    watch(rail, transport->ops->fd(transport)))
		r = errno;
	rail->has_thread = 1;           /* before the thread reads it */
	if (!r)
		r = start(rail);
	if (!r)
		return 0;
	rail->has_thread = 0;
	return cei_raise(rail->nic.config.report, CEOV_ERR_SYSTEM, r,
			 "net: the rail's thread cannot be started: %s", strerror(r));
}

static int stop(struct cei_rail *rail, void *arg)
{
	(void)arg;
	rail->must_stop = 1;
	return 0;
}

void cei_rail_thread_close(struct cei_rail *rail)
{
	if (rail->has_thread) {
		if (cei_rail_run(rail, stop, NULL))
			return;         /* raised: it does not answer, and cannot be joined */
		pthread_join(rail->thread, NULL);
		rail->has_thread = 0;
	}
	if (rail->epoll_fd >= 0)
		close(rail->epoll_fd);
	rail->epoll_fd = -1;
}
