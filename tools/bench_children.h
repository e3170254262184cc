/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BENCH_CHILDREN_H
#define BENCH_CHILDREN_H

/*
 * Child processes of the bench and the folder that they share. No child outlives the bench,
 * however it ends, and the folder is removed after them. Between begin and end SIGINT,
 * SIGTERM and SIGHUP are blocked: one that comes ends the children first, then the bench.
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
	const char *what;               /* what a child is, for messages: "rank" */
	int         ended_by;           /* a signal; 0: none came */
	sigset_t    waiting;            /* the signals that are checked for */
	sigset_t    before;             /* this thread's mask */
	char        folder[80];         /* in TMPDIR, or in /tmp where that is too long */
};

/* 0, or -1, reported on stderr. what: kept by reference. */
int  bench_children_begin(struct bench_children *children, const char *what);

/* Runs run(arg, number) in a child process, whose exit status is run's result. 0, or -1,
 * reported on stderr. */
int  bench_children_start(struct bench_children *children,
			  int (*run)(void *arg, uint32_t number), void *arg);

/* Waits until all children have ended. *failed is set when one fails; the others then get
 * 20 seconds. None is alive long after deadline_ns. EXIT_SUCCESS, or EXIT_FAILURE where one
 * failed or a signal came. */
int  bench_children_wait(struct bench_children *children, uint64_t deadline_ns,
			 _Atomic int *failed);

/* Removes the folder and its contents; harmless when repeated. Any process. */
void bench_children_remove_folder(const struct bench_children *children);

/* Ends the program by the signal that came, if one did. */
void bench_children_end(struct bench_children *children);

/* Called in a child right after fork: it will end when its parent ends. */
void bench_child_follow(pid_t parent);

#endif /* BENCH_CHILDREN_H */
