/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_BELL_H
#define CEI_BELL_H

/*
 * Wakes one thread that sleeps at a file descriptor (an eventfd, beside others that it polls).
 * Who gives it work rings; a ring costs a system call only while the thread sleeps. No ring is
 * lost: the thread reads the count of rings before it looks for work, and sleeps only if the
 * count is still the same after it said that it sleeps.
 */

#include <stdatomic.h>
#include <stdint.h>

struct cei_report;

struct cei_bell {
	int              fd;            /* readable when the thread must wake up */
	_Atomic uint32_t n_rings;
	_Atomic uint32_t is_asleep;
};

/* CEOV_ERR_SYSTEM, raised: no descriptor is left. */
int  cei_bell_init(struct cei_bell *bell, struct cei_report *report);
void cei_bell_fini(struct cei_bell *bell);

/* Any thread, after what it announces. */
void cei_bell_ring(struct cei_bell *bell);

/* The thread: the count of rings, before it looks for work. */
uint32_t cei_bell_count(struct cei_bell *bell);

/* The thread: returns whether it may sleep, having found no work since the count was `seen`. If so
 * it polls the descriptor with a timeout, and then calls cei_bell_awake(). */
int  cei_bell_may_sleep(struct cei_bell *bell, uint32_t seen);
void cei_bell_awake(struct cei_bell *bell);

#endif /* CEI_BELL_H */
