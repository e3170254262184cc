/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CONDITION_H
#define CEI_CONDITION_H

/* Condition variables that are waited for until a time of the monotonic clock. */

#include <pthread.h>
#include <stdint.h>

/* Initialises a condition variable for the function below; pthread_cond_destroy() ends it. Returns
 * 0 or an errno. */
int cei_condition_init(pthread_cond_t *condition);

/* Waits as pthread_cond_wait() does, with the lock held, but at most until a time of cei_now_ns();
 * CEI_FOREVER: without an end. Returns 0: it was woken, maybe without a reason; ETIMEDOUT: the time
 * has come, or had come before. */
int cei_condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock, uint64_t until_ns);

#endif /* CEI_CONDITION_H */
