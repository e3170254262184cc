/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CLOCK_H
#define CEI_CLOCK_H

/* Reads the monotonic clock, and paces threads that wait by polling. */

#include <stdint.h>

#define CEI_FOREVER UINT64_MAX          /* as a time or a deadline: never */

/* Returns the monotonic clock's time in nanoseconds. */
uint64_t cei_now_ns(void);

/* Returns the time timeout_ns from now, or CEI_FOREVER if that does not fit. */
uint64_t cei_deadline(uint64_t timeout_ns);

/*
 * A thread that polls calls cei_backoff_step() after each look that found nothing, and
 * cei_backoff_reset() after a look that found something. cei_backoff_step() first spins, then
 * yields, then sleeps, longer each time up to CEI_BACKOFF_SLEEP_MAX_NS.
 */
#define CEI_BACKOFF_SPINS         256u
#define CEI_BACKOFF_YIELD_NS      UINT64_C(10000000)
#define CEI_BACKOFF_SLEEP_MIN_NS  UINT64_C(5000)
#define CEI_BACKOFF_SLEEP_MAX_NS  UINT64_C(50000)

struct cei_backoff {
	uint32_t n_spins;
	uint64_t yield_until_ns;        /* time at which it begins to sleep; 0: it still spins */
	uint64_t sleep_ns;
};

/* A worker thread that can be woken spins and yields for this long before it sleeps, because waking
 * it takes 50 us or more. */
#define CEI_SLEEP_AFTER_NS UINT64_C(300000)

void cei_backoff_reset(struct cei_backoff *backoff);
void cei_backoff_step(struct cei_backoff *backoff);

static inline void cei_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ __volatile__("yield" ::: "memory");
#endif
}

#endif /* CEI_CLOCK_H */
