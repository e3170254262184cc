/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Wakes one thread that sleeps at a file descriptor. */

#include "net/bell.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/report.h"

int cei_bell_init(struct cei_bell *bell, struct cei_report *report)
{
	memset(bell, 0, sizeof(*bell));
	bell->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (bell->fd < 0)
		return cei_raise(report, CEOV_ERR_SYSTEM, errno,
				 "net: no descriptor to wake a thread with: %s; raise the "
				 "limit of open files (ulimit -n)", strerror(errno));
	return 0;
}

void cei_bell_fini(struct cei_bell *bell)
{
	if (bell->fd >= 0)
		close(bell->fd);
	bell->fd = -1;
}

void cei_bell_ring(struct cei_bell *bell)
{
	/* seq_cst, both, against cei_bell_may_sleep(): either the thread sees this ring, or it is
	 * seen asleep here */
	atomic_fetch_add(&bell->n_rings, 1);
	if (atomic_load(&bell->is_asleep))
		cei_ring_eventfd(bell->fd);
}

uint32_t cei_bell_count(struct cei_bell *bell)
{
	/* acquire: pairs with cei_bell_ring(); what was announced before is found after */
	return atomic_load_explicit(&bell->n_rings, memory_order_acquire);
}

int cei_bell_may_sleep(struct cei_bell *bell, uint32_t seen)
{
	/* seq_cst, both: see cei_bell_ring() */
	atomic_store(&bell->is_asleep, 1);
	if (atomic_load(&bell->n_rings) == seen)
		return 1;
	cei_bell_awake(bell);
	return 0;
}

void cei_bell_awake(struct cei_bell *bell)
{
	uint64_t count;

	/* relaxed: a ring that still sees the thread asleep makes it wake up once in vain */
	atomic_store_explicit(&bell->is_asleep, 0, memory_order_relaxed);
	while (read(bell->fd, &count, sizeof(count)) > 0)
		;
}
