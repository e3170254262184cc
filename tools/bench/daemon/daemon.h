/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BENCH_DAEMON_H
#define BENCH_DAEMON_H

/*
 * ceoverlap-bench daemon: processes that launch at the same daemon, each with one launch in flight.
 *
 *   daemon.c   the command: starts the clients, adds up what they found
 *   client.c   one client: launches, awaits and checks
 *   server.c   starts the daemon and ends it
 */

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#include "tools/bench/bench.h"

/* Round trips by their time: bucket i counts those of 2^(i/4) ns and more. */
#define BENCH_DAEMON_BUCKETS 160u

/* Entry point: argv[0] is "daemon". Returns the exit status of the program. */
int bench_daemon_main(int argc, char **argv);

struct bench_daemon_client {            /* what one client found */
	uint64_t n_launches;
	uint64_t n_wrong;               /* launches that brought a wrong byte */
	uint64_t end_ns;
	uint32_t buckets[BENCH_DAEMON_BUCKETS];
};

struct bench_daemon_shared {            /* memory that all processes have mapped */
	_Atomic uint32_t           n_ready;
	_Atomic int                failed;      /* of bench_children_wait() */
	_Atomic uint64_t           begin_ns;    /* 0: not yet */
	struct bench_daemon_client clients[];
};

struct bench_daemon {
	struct bench_options        options;
	uint32_t                    n_clients;
	uint64_t                    n_launches; /* of all clients together */
	uint64_t                    n_bytes;    /* that a launch moves, a multiple of 8 */
	const char                 *program;    /* the daemon's; NULL: beside this one, else in
						 * PATH */
	const char                 *socket;     /* of a daemon that runs already; NULL: one is
						 * started */
	char                        path[120];  /* of the socket */
	struct bench_daemon_shared *shared;
};

/* Runs client `number` to its end. Returns the exit status of its process. */
int  bench_daemon_client(void *bench, uint32_t number);

/* Starts the daemon with a socket in the folder. Returns its process, or -1, reported. */
pid_t bench_daemon_start(struct bench_daemon *bench, const char *folder);

/* Ends it in order. Returns 0, or -1, reported: it did not end well. *ret_cpu_s: the processor time
 * that it has used. */
int  bench_daemon_end(pid_t pid, double *ret_cpu_s);

#endif /* BENCH_DAEMON_H */
