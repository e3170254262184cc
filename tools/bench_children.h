/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BENCH_CHILDREN_H
#define BENCH_CHILDREN_H

/*
 * Processes that the bench starts and answers for, and the folder that they share: none of
 * them outlives the bench, whatever ends it, and the folder goes when they have gone.
 * Between begin and end SIGINT, SIGTERM and SIGHUP wait: those that come end the children
 * first, then the bench, by the same signal.
 */

#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#include "bench.h"

struct bench_children {
	pid_t       parent;
	pid_t       pids[BENCH_RANKS_MAX];
	uint32_t    n;
	const char *what;               /* "rank": for messages, before its number */
	int         ended_by;           /* a signal; 0: none came */
	sigset_t    waiting;            /* what we look for */
	sigset_t    before;             /* this thread's mask */
	char        folder[80];         /* in TMPDIR, or in /tmp where that is too long */
};

/* 0, or -1, told on stderr. what is the caller's. */
int  bench_children_begin(struct bench_children *children, const char *what);

/* Runs run(arg, number) in a process of its own, which ends with its result. 0, or -1,
 * told. */
int  bench_children_start(struct bench_children *children,
			  int (*run)(void *arg, uint32_t number), void *arg);

/* Waits until all have ended. *failed is set when one fails; those that are left then have
 * 20 seconds, and none is alive long after deadline_ns. EXIT_SUCCESS, or EXIT_FAILURE: one
 * failed, or a signal came. */
int  bench_children_wait(struct bench_children *children, uint64_t deadline_ns,
			 _Atomic int *failed);

/* The folder and what lies in it; again where it has gone does nothing. Any process. */
void bench_children_remove_folder(const struct bench_children *children);

/* Ends the program where a signal came. */
void bench_children_end(struct bench_children *children);

/* In a process that was just forked: it ends when the parent ends. */
void bench_child_follow(pid_t parent);

#endif /* BENCH_CHILDREN_H */
