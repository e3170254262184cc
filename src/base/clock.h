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
 * cei_backoff_again() after a look that found something. cei_backoff_step() first spins, then
 * yields, then sleeps. A sleep is at most the CEI_BACKOFF_LATE-th part of the time waited so far,
 * so that what comes meanwhile is noticed late by no more than this part. How long the shortest
 * sleep takes differs from 6 us to more than 100 us between machines and threads; so it is
 * measured with each sleep, and until the first one it counts as CEI_BACKOFF_SLEEP_TAKES_NS: a
 * first wait is yielded through for 10 ms. In a wait of up to 200 ms a sleep is
 * CEI_BACKOFF_SLEEP_MAX_NS at most; in a longer one it may be the CEI_BACKOFF_LATE_LONG-th part of
 * the time waited so far, up to CEI_BACKOFF_SLEEP_LONG_NS, so that a thread which waits for seconds
 * takes little of a processor. Between spins it yields now and then: that costs little
 * where nobody else wants the processor, and where somebody does, it often is who is waited for.
 * A yield that takes longer than CEI_BACKOFF_YIELD_LONG_NS ends the spins: with a low priority on
 * a busy processor each may take a third of a second.
 */
#define CEI_BACKOFF_SPINS           256u
#define CEI_BACKOFF_SPINS_A_YIELD   16u
#define CEI_BACKOFF_YIELD_LONG_NS   UINT64_C(1000000)
#define CEI_BACKOFF_LATE            64u
#define CEI_BACKOFF_SLEEP_MIN_NS    UINT64_C(5000)
#define CEI_BACKOFF_SLEEP_MAX_NS    UINT64_C(50000)
#define CEI_BACKOFF_SLEEP_LONG_NS   UINT64_C(1000000)
#define CEI_BACKOFF_LATE_LONG       4096u
#define CEI_BACKOFF_SLEEP_TAKES_NS  UINT64_C(156250)    /* 10 ms / CEI_BACKOFF_LATE */

struct cei_backoff {
	uint32_t n_spins;
	uint64_t since_ns;              /* time since which it yields; 0: it still spins */
	uint64_t sleep_takes_ns;        /* the shortest sleep, from its call to its return */
};

/* How long a wait is yielded through at least before the thread sleeps for the first time. */
#define CEI_BACKOFF_YIELD_NS        (CEI_BACKOFF_LATE * CEI_BACKOFF_SLEEP_TAKES_NS)

/* A worker thread that can be woken spins and yields for this long before it sleeps, because waking
 * it takes 50 us or more. */
#define CEI_SLEEP_AFTER_NS UINT64_C(300000)

void cei_backoff_reset(struct cei_backoff *backoff);

/* The next wait of the same thread: keeps what was measured. */
void cei_backoff_again(struct cei_backoff *backoff);

void cei_backoff_step(struct cei_backoff *backoff);

/* A step of a thread that must not sleep: spins, then yields. */
void cei_backoff_yield(struct cei_backoff *backoff);

static inline void cei_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ __volatile__("yield" ::: "memory");
#endif
}

#endif /* CEI_CLOCK_H */
