/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BENCH_SERVER_H
#define BENCH_SERVER_H

/* The ceoverlapd that commands of the bench measure: one that they start and end, or one that runs
 * already. */

#include <stdint.h>
#include <sys/types.h>

struct bench_server {
	const char *program;            /* the daemon's; NULL: beside this one, else in PATH */
	const char *socket;             /* of a daemon that runs already; NULL: one is started */
	char        path[120];          /* of the socket */
	pid_t       pid;                /* of the daemon; 0: it was not started here */
};

struct bench_server_memory {            /* of a process, in KiB, as the kernel counts pages */
	uint64_t own;                   /* anonymous */
	uint64_t files;                 /* of memory files that it has mapped and touched */
};

/* Starts the daemon with a socket in the folder, and waits until it listens. With `socket` it only
 * takes that path. Returns 0, or -1, reported. */
int  bench_server_start(struct bench_server *server, const char *folder);

/* Ends in order the daemon that was started. *ret_cpu_s: the processor time that it has used; 0 if
 * none was started. Returns 0, or -1, reported: it did not end well. */
int  bench_server_end(const struct bench_server *server, double *ret_cpu_s);

/* What a process takes; zeros if that cannot be read. */
struct bench_server_memory bench_server_look(pid_t pid);

#endif /* BENCH_SERVER_H */
