/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BENCH_WORLD_H
#define BENCH_WORLD_H

/* What a run of the bench consists of, for the files that start its ranks and report. */

#include <stdatomic.h>

#include "tools/bench/bench.h"
#include "tools/bench/children.h"
#include "tools/common/port.h"
#include "tools/bench/overlap/overlap.h"

/* Memory that all ranks share. Of a run whose ranks a launcher started, each process has its own,
 * and that of rank 0 counts. */
struct bench_shared {
	_Atomic uint32_t n_arrived;     /* ranks that have reached the barrier in this round */
	_Atomic uint32_t round;
	_Atomic int      failed;        /* the first failure of any rank */
	uint64_t         deadline_ns;
	char             blob[128];
	_Atomic uint64_t n_wrong[BENCH_MODES];
	double           samples[BENCH_MODES][BENCH_RANKS_MAX][BENCH_SAMPLES_MAX];
	uint32_t         n_rows;
	int              n_bad_rows;
	_Atomic uint64_t n_all_wrong;   /* values, of the whole run; rank 0's memory has those of
					 * all ranks at the end, of a launcher, too */
	struct bench_row rows[BENCH_ROWS_MAX];
	struct bench_overlap_row overlap_rows[OVERLAP_ROWS_MAX];
	_Atomic int      any[2];        /* used by turns: one call of bench_any() takes the first,
					 * the next call the second */
};

struct bench_run {
	const struct bench_options     *options;
	const struct bench_case       **cases;  /* of those that were asked for, those that can
						 * run; room for BENCH_CASES_MAX */
	uint32_t                        n_cases;
	struct bench_shared            *shared;
	uint32_t                        n_ranks;
	uint32_t                        n_gpus; /* 0: ranks are on host memory */
	int                             is_launched;    /* a launcher started the ranks */
	char                            group[96];
	char                            store[PORT_STORE_BYTES];        /* where nodes meet */
	struct bench_children           children;
};

/* The cases that were asked for. */
struct bench_asked {
	const struct bench_case *const *cases;
	uint32_t                        n;
};

/* Runs this process's rank in a group whose processes a launcher started. The run has its options,
 * its GPUs and its own shared memory. Returns the exit status of the program, which is 0 only if
 * all ranks ended well. */
int  bench_launched_run(struct bench_run *run, struct bench_options *options,
			const struct bench_asked *asked, const char *machine);

/* Runs all cases at one rank. Returns 0 or an error, reported. */
int  bench_run_cases(struct bench_run *run, struct bench_rank *rank);

/* Takes those of the cases that can run. Unless is_quiet it says which are left out, and what is in
 * the rows. */
void bench_run_choose(struct bench_run *run, const struct bench_asked *asked, int is_quiet);

/* Prints what the rows are about. */
void bench_run_head(const struct bench_run *run, const char *machine);

/* Says how many values were wrong and what the average bus bandwidths are, as far as these are not
 * the rows of operators, and checks whether anything ran. Returns 0, or EXIT_FAILURE, reported. */
int  bench_run_judge(const struct bench_run *run);

/* Prints the last row that was added. */
void bench_print_row(const struct bench_options *options, const struct bench_shared *shared);

/* Writes the rows to the file that was asked for, and whether these are all: a run that ended
 * early, by its time limit or a failure, leaves those that it had. Returns 0, or -1, reported. */
int  bench_run_json(const struct bench_run *run, const char *machine, int is_complete);

#endif /* BENCH_WORLD_H */
