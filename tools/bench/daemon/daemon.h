/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BENCH_DAEMON_H
#define BENCH_DAEMON_H

/*
 * ceoverlap-bench daemon: processes that launch at the same daemon, each with one launch in flight.
 *
 *   daemon.c   the command: starts the clients, adds up what they found
 *   client.c   one client: launches, awaits and checks
 */

#include <stdatomic.h>
#include <stdint.h>

#include "tools/bench/bench.h"
#include "tools/bench/server.h"

/* Round trips by their time: bucket i counts those of 2^(i/4) ns and more. */
#define BENCH_DAEMON_BUCKETS 160u

/* Entry point: argv[0] is "daemon". Returns the exit status of the program. */
int bench_daemon_main(int argc, char **argv);

struct bench_daemon_client {            /* what one client found */
	uint64_t n_launches;
	uint64_t n_wrong;               /* launches that brought a wrong byte */
	uint64_t end_ns;
	uint64_t context_kib;           /* that opening its context, a plan included, took of its
					 * own memory */
	uint32_t buckets[BENCH_DAEMON_BUCKETS];
};

struct bench_daemon_shared {            /* memory that all processes have mapped */
	_Atomic uint32_t           n_ready;
	_Atomic int                failed;      /* of bench_children_wait() */
	_Atomic uint64_t           begin_ns;    /* 0: not yet */
	_Atomic uint32_t           n_done;
	struct bench_server_memory empty;       /* the daemon's, without clients, ... */
	struct bench_server_memory ready;       /* ... when all are ready, ... */
	struct bench_server_memory worked;      /* ... and when the first has made its launches */
	struct bench_daemon_client clients[];
};

struct bench_daemon {
	struct bench_options        options;
	uint32_t                    n_clients;
	uint64_t                    n_launches; /* of all clients together */
	uint64_t                    n_bytes;    /* that a launch moves, a multiple of 8 */
	struct bench_server         server;
	struct bench_daemon_shared *shared;
};

/* Runs client `number` to its end. Returns the exit status of its process. */
int  bench_daemon_client(void *bench, uint32_t number);

#endif /* BENCH_DAEMON_H */
