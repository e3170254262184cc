/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Monotonic time, and waits until a time. */

#include "base/clock.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S UINT64_C(1000000000)

/* A thread may be put aside between two reads; among this many it is not. */
#define PAIR_READS 8u

uint64_t cei_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static uint64_t real_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

struct cei_clock_pair cei_clock_pair_now(void)
{
	struct cei_clock_pair best = { .within_ns = UINT64_MAX };
	uint64_t before, real, after;
	uint32_t i;

	for (i = 0; i < PAIR_READS; i++) {
		before = cei_now_ns();
		real = real_now_ns();
		after = cei_now_ns();
		if (after - before >= best.within_ns)
			continue;
		best.realtime_ns = real;
		best.monotonic_ns = before + (after - before) / 2;
		best.within_ns = after - before;
	}
	return best;
}

uint64_t cei_deadline(uint64_t timeout_ns)
{
	uint64_t now = cei_now_ns();

	return timeout_ns > CEI_FOREVER - now ? CEI_FOREVER : now + timeout_ns;
}

/* --- polling ----------------------------------------------------------------- */

void cei_backoff_again(struct cei_backoff *backoff)
{
	backoff->n_spins = 0;
	backoff->since_ns = 0;
}

void cei_backoff_reset(struct cei_backoff *backoff)
{
	cei_backoff_again(backoff);
	backoff->sleep_takes_ns = CEI_BACKOFF_SLEEP_TAKES_NS;
}

/* The longest sleep in a wait that has lasted for so long. */
static uint64_t longest(uint64_t waited_ns)
{
	uint64_t most_ns = waited_ns / CEI_BACKOFF_LATE_LONG;

	if (most_ns > CEI_BACKOFF_SLEEP_LONG_NS)
		return CEI_BACKOFF_SLEEP_LONG_NS;
	return most_ns > CEI_BACKOFF_SLEEP_MAX_NS ? most_ns : CEI_BACKOFF_SLEEP_MAX_NS;
}

/* Sleeps for at most limit_ns, which the shortest sleep fits into. */
static void pause_for(struct cei_backoff *backoff, uint64_t now_ns, uint64_t limit_ns)
{
	uint64_t more_ns = limit_ns - backoff->sleep_takes_ns;
	uint64_t sleep_ns = CEI_BACKOFF_SLEEP_MIN_NS + more_ns;
	uint64_t most_ns = longest(now_ns - backoff->since_ns);
	struct timespec pause = { 0 };
	uint64_t took_ns;

	if (sleep_ns > most_ns)
		sleep_ns = most_ns;
	pause.tv_nsec = (long)sleep_ns;
	if (nanosleep(&pause, NULL))
		return;                 /* a signal has ended it: it shows nothing */
	took_ns = cei_now_ns() - now_ns;
	more_ns = sleep_ns - CEI_BACKOFF_SLEEP_MIN_NS;
	/* A mean, so that one sleep that the scheduler prolonged does not count for long. */
	backoff->sleep_takes_ns = (3 * backoff->sleep_takes_ns +
				   (took_ns > more_ns ? took_ns - more_ns : 0)) / 4;
}

static int spin(struct cei_backoff *backoff)
{
	uint64_t before_ns;

	if (backoff->n_spins == CEI_BACKOFF_SPINS)
		return 0;
	if (++backoff->n_spins % CEI_BACKOFF_SPINS_A_YIELD) {
		cei_relax();
		return 1;
	}
	before_ns = cei_now_ns();
	sched_yield();
	if (cei_now_ns() - before_ns > CEI_BACKOFF_YIELD_LONG_NS)
		backoff->n_spins = CEI_BACKOFF_SPINS;
	return 1;
}

void cei_backoff_yield(struct cei_backoff *backoff)
{
	if (!spin(backoff))
		sched_yield();
}

void cei_backoff_step(struct cei_backoff *backoff)
{
	uint64_t now_ns, limit_ns;

	if (spin(backoff))
		return;
	now_ns = cei_now_ns();
	if (!backoff->since_ns)
		backoff->since_ns = now_ns;
	limit_ns = (now_ns - backoff->since_ns) / CEI_BACKOFF_LATE;
	if (limit_ns < backoff->sleep_takes_ns)
		sched_yield();
	else
		pause_for(backoff, now_ns, limit_ns);
}

/* --- words ------------------------------------------------------------------- */

static void wait_on(const _Atomic uint32_t *word, uint32_t seen, uint64_t deadline_ns, int command)
{
	struct timespec left;
	uint64_t now = 0;

	if (deadline_ns != CEI_FOREVER) {
		now = cei_now_ns();
		if (now >= deadline_ns)
			return;
		left.tv_sec = (time_t)((deadline_ns - now) / NS_PER_S);
		left.tv_nsec = (long)((deadline_ns - now) % NS_PER_S);
	}
	/* EAGAIN, EINTR and ETIMEDOUT all mean that the caller has to look at the word again. */
	syscall(SYS_futex, (const uint32_t *)word, command, seen,
		deadline_ns == CEI_FOREVER ? NULL : &left, NULL, 0);
}

void cei_futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t deadline_ns)
{
	wait_on(word, seen, deadline_ns, FUTEX_WAIT_PRIVATE);
}

void cei_futex_wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, (uint32_t *)word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void cei_futex_wait_shared(const _Atomic uint32_t *word, uint32_t seen, uint64_t deadline_ns)
{
	wait_on(word, seen, deadline_ns, FUTEX_WAIT);
}

void cei_futex_wake_shared(const _Atomic uint32_t *word)
{
	syscall(SYS_futex, (const uint32_t *)word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* --- condition variables ------------------------------------------------------- */

int cei_condition_init(pthread_cond_t *condition)
{
	pthread_condattr_t monotonic;
	int error = pthread_condattr_init(&monotonic);

	if (error)
		return error;
	error = pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	if (!error)
		error = pthread_cond_init(condition, &monotonic);
	pthread_condattr_destroy(&monotonic);
	return error;
}

int cei_condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock, uint64_t until_ns)
{
	struct timespec until = { .tv_sec = (time_t)(until_ns / NS_PER_S),
				  .tv_nsec = (long)(until_ns % NS_PER_S) };

	if (until_ns == CEI_FOREVER)
		return pthread_cond_wait(condition, lock);
	return pthread_cond_timedwait(condition, lock, &until);
}

/* --- eventfds ------------------------------------------------------------------ */

void cei_ring_eventfd(int fd)
{
	uint64_t one = 1;
	ssize_t n;

	do
		n = write(fd, &one, sizeof(one));
	while (n < 0 && errno == EINTR);
}
