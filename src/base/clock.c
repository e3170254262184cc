/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Monotonic time and back-off. */

#include "base/clock.h"

#include <sched.h>
#include <time.h>

#define NS_PER_S UINT64_C(1000000000)

uint64_t cei_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

uint64_t cei_deadline(uint64_t timeout_ns)
{
	uint64_t now = cei_now_ns();

	return timeout_ns > CEI_FOREVER - now ? CEI_FOREVER : now + timeout_ns;
}

void cei_backoff_reset(struct cei_backoff *backoff)
{
	backoff->n_spins = 0;
	backoff->yield_until_ns = 0;
	backoff->sleep_ns = CEI_BACKOFF_SLEEP_MIN_NS;
}

void cei_backoff_step(struct cei_backoff *backoff)
{
	struct timespec pause;

	if (backoff->n_spins < CEI_BACKOFF_SPINS) {
		backoff->n_spins++;
		cei_relax();
		return;
	}
	if (!backoff->yield_until_ns)
		backoff->yield_until_ns = cei_now_ns() + CEI_BACKOFF_YIELD_NS;
	if (cei_now_ns() < backoff->yield_until_ns) {
		sched_yield();
		return;
	}
	pause.tv_sec = 0;
	pause.tv_nsec = (long)backoff->sleep_ns;
	nanosleep(&pause, NULL);
	if (backoff->sleep_ns < CEI_BACKOFF_SLEEP_MAX_NS)
		backoff->sleep_ns *= 2;
}
