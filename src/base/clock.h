/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CLOCK_H
#define CEI_CLOCK_H

/* Reads the monotonic clock, and has threads wait until a time of it: they poll, or sleep at a word
 * of memory or at a condition variable, where others wake them. */

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#define CEI_FOREVER UINT64_MAX          /* as a time or a deadline: never */

/* Returns the monotonic clock's time in nanoseconds. */
uint64_t cei_now_ns(void);

/* The same moment by two clocks: by that of the day, which counts since 1970, and by the monotonic
 * one. */
struct cei_clock_pair {
	uint64_t realtime_ns;
	uint64_t monotonic_ns;
	uint64_t within_ns;             /* the two were read at most this far from each other */
};

/* Reads both clocks several times, and returns what was read closest to each other. */
struct cei_clock_pair cei_clock_pair_now(void);

/* Returns the time timeout_ns from now, or CEI_FOREVER if that does not fit. */
uint64_t cei_deadline(uint64_t timeout_ns);

/* --- polling ----------------------------------------------------------------- */

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

/* --- words ------------------------------------------------------------------- */

/* By futex(2) a thread sleeps until another one changes a word. The word must be private to the
 * process, but for the functions that say `shared`. */

/* Sleeps as long as *word is `seen`, until woken or until the deadline (a time of cei_now_ns(), or
 * CEI_FOREVER). It may return early without a reason, so the caller must look at the word again. */
void cei_futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t deadline_ns);

/* Wakes every thread that sleeps on the word. Change the word before the call. */
void cei_futex_wake(_Atomic uint32_t *word);

/* The same for a word in memory that processes share; they may have mapped it for reading only. */
void cei_futex_wait_shared(const _Atomic uint32_t *word, uint32_t seen, uint64_t deadline_ns);
void cei_futex_wake_shared(const _Atomic uint32_t *word);

/* --- condition variables ------------------------------------------------------- */

/* Initialises a condition variable for the function below; pthread_cond_destroy() ends it. Returns
 * 0 or an errno. */
int cei_condition_init(pthread_cond_t *condition);

/* Waits as pthread_cond_wait() does, with the lock held, but at most until a time of cei_now_ns();
 * CEI_FOREVER: without an end. Returns 0: it was woken, maybe without a reason; ETIMEDOUT: the time
 * has come, or had come before. */
int cei_condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock, uint64_t until_ns);

/* --- eventfds ------------------------------------------------------------------ */

/* Adds one to an eventfd, which wakes who polls it; a full one has rung already. Any thread. */
void cei_ring_eventfd(int fd);

#endif /* CEI_CLOCK_H */
