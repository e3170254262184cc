/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Waits for condition variables by the monotonic clock. */

#include "base/condition.h"

#include <time.h>

#include "base/clock.h"

#define NS_PER_S UINT64_C(1000000000)

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
