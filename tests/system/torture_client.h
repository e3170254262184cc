/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef TORTURE_CLIENT_H
#define TORTURE_CLIENT_H

/*
 * A client of a daemon under torture: a process with one rank of a group of two. Both send to each
 * other by the daemon, and check each byte, until they are told that the daemon or the other one is
 * lost. After the daemon's loss they go on with the next one (ceov_reopen()).
 */

#include <stdatomic.h>
#include <stdint.h>

#define TORTURE_PAIR 2u                 /* processes of a group */

struct torture_client {                 /* in memory that all processes share; zeroed before */
	_Atomic uint64_t n_passes;      /* transfers that were checked */
	_Atomic uint32_t n_reopened;    /* daemons after the first */
	_Atomic uint64_t lost_ns;       /* when it was told that the daemon was lost, ... */
	_Atomic uint64_t gone_ns;       /* ... and when that the other process was; 0: not yet */
	_Atomic uint32_t may_leave;     /* the controller's word, after gone_ns */
	_Atomic uint32_t must_end;      /* both leave by themselves soon */
	_Atomic uint64_t end;           /* rank 0's: passes after which both leave; 0: not yet */
	char             fault[300];    /* what went wrong, written before it ends with 1 */
};

struct torture_task {
	struct torture_client *own;     /* the other one's is beside it, rank 0's first */
	const char            *group;   /* path of the socket at which the two meet */
	const char            *daemon;
	uint32_t               rank;    /* 0 or 1 */
	uint64_t               seed;    /* of the data; the same of both */
	uint64_t               n_bytes; /* of the rank's memory, all of which the daemon maps and
					 * touches */
	int                    gpu;     /* whose memory that is; -1: host memory */
};

/* Runs the client; ends the process: 0, it was told of the other one's end and has left nothing. */
_Noreturn void torture_client_run(const struct torture_task *task);

#endif /* TORTURE_CLIENT_H */
