/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BENCH_SHARE_H
#define BENCH_SHARE_H

/*
 * ceoverlap-bench share: how a few processes that send large blocks share what moves them, without
 * a daemon and with one.
 *
 *   share.c     the command: a run without a daemon, in which each process has engines of its
 *               own, and a run with one
 *   process.c   one process: its phases, which all processes go through together
 *   pair.c      two ranks of a process, and the plan that sends a block from one to the other
 *   report.c    what was found, as text and as JSON
 *
 * The phases of a run: each sender alone, the urgent process alone, all of them together.
 */

#include <stdatomic.h>
#include <stdint.h>

#include "tools/bench/bench.h"
#include "tools/bench/server.h"

#define BENCH_SHARE_SENDERS_MAX   16u
#define BENCH_SHARE_PROCESSES_MAX (BENCH_SHARE_SENDERS_MAX + 1)
#define BENCH_SHARE_PHASES_MAX    (BENCH_SHARE_PROCESSES_MAX + 1)
#define BENCH_SHARE_FLIGHT_MAX    16u
#define BENCH_SHARE_TIMES_MAX     65536u

/* Before the time that counts all send for this part of it, so that copies are under way at its
 * begin as at its end. */
#define BENCH_SHARE_LEAD          10u

enum bench_share_when { BENCH_SHARE_ALONE, BENCH_SHARE_TOGETHER, BENCH_SHARE_WHENS };

struct bench_share_found {              /* what one process found, alone or together */
	uint64_t n_blocks;              /* that arrived in the time that counts */
	uint64_t n_wrong;               /* words of the last block */
	uint64_t n_missed;              /* urgent launches that were not made, since the one before
					 * was still in flight */
};

struct bench_share_phase {
	_Atomic uint32_t n_ready;       /* processes that have come to it */
	_Atomic uint64_t begin_ns;      /* 0: not all have come */
};

struct bench_share_run {                /* memory that all processes of a run have mapped */
	_Atomic int              failed;        /* the first failure of any process */
	struct bench_share_phase phases[BENCH_SHARE_PHASES_MAX];
	struct bench_share_found found[BENCH_SHARE_PROCESSES_MAX][BENCH_SHARE_WHENS];
	uint64_t                 times_ns[BENCH_SHARE_WHENS][BENCH_SHARE_TIMES_MAX];
					/* of the urgent process: n_blocks times from a launch
					 * to the arrival of its block */
};

struct bench_share {
	struct bench_options    options;
	uint32_t                n_senders;
	uint64_t                n_bytes;        /* of a sender's block, a multiple of 8 */
	uint32_t                n_in_flight;    /* launches of a sender */
	double                  seconds;        /* the time that counts, of each phase */
	uint64_t                urgent_bytes;   /* of an urgent block; 0: no urgent process */
	uint64_t                every_us;       /* from one urgent launch to the next */
	struct ceov_place       from, to;
	int                     explains;       /* prints how sender 0's plan is carried out */
	struct bench_server     server;
	uint64_t                deadline_ns;    /* of the run under way */
	int                     has_daemon;     /* the run under way has one */
	struct bench_share_run *run;            /* the run under way */
	struct bench_share_run *runs[2];        /* without a daemon, and with one */
	char                    machine[256];
};

/* Entry point: argv[0] is "share". Returns the exit status of the program. */
int bench_share_main(int argc, char **argv);

/* Senders are processes 0 to n_senders - 1, and the urgent process comes behind them. Phase i is
 * that in which process i is alone; in the last one all are together. */
static inline uint32_t bench_share_n_processes(const struct bench_share *share)
{
	return share->n_senders + (share->urgent_bytes != 0);
}

/* Runs a process to its end. Returns its exit status, which is 0 also if data was wrong. */
int  bench_share_process(void *share, uint32_t number);

/* Prints both runs, and writes them as JSON if that was asked for. Returns 0, or -1, reported. */
int  bench_share_report(const struct bench_share *share);

#endif /* BENCH_SHARE_H */
