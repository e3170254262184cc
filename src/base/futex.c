/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Calls futex(2). */

#include "base/futex.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define NS_PER_S UINT64_C(1000000000)

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
