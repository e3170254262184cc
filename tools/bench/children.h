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

#include "tools/bench/bench.h"

struct bench_children {
	pid_t       parent;
	pid_t       pids[BENCH_RANKS_MAX];
	uint32_t    n;
	const char *what;               /* what messages call a child: "rank" */
	int         ended_by;           /* the signal that came; 0: none */
	sigset_t    waiting;            /* the signals that are checked for */
	sigset_t    before;             /* this thread's signal mask before */
	char        folder[80];         /* path: in TMPDIR, or in /tmp if that path would be too
					 * long */
};

/* Returns 0, or -1, reported on stderr. Keeps a reference to what. */
int  bench_children_begin(struct bench_children *children, const char *what);

/* Runs run(arg, number) in a child process, whose exit status is run's result. Returns 0, or -1,
 * reported on stderr. */
int  bench_children_start(struct bench_children *children,
			  int (*run)(void *arg, uint32_t number), void *arg);

/* Waits until all children have ended. Sets *failed when one fails; the others then have 20 seconds
 * to end. Kills children that are alive after deadline_ns. Returns EXIT_SUCCESS, or EXIT_FAILURE if
 * a child failed or a signal came. */
int  bench_children_wait(struct bench_children *children, uint64_t deadline_ns,
			 _Atomic int *failed);

/* Removes the folder and its contents. May be repeated, and called in any process. */
void bench_children_remove_folder(const struct bench_children *children);

/* Ends the program by the signal that came, if one did. */
void bench_children_end(struct bench_children *children);

/* Called in a child right after fork: it will end when its parent ends. */
void bench_child_follow(pid_t parent);

#endif /* BENCH_CHILDREN_H */
