/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BENCH_LAUNCHED_H
#define BENCH_LAUNCHED_H

/*
 * A bench that a launcher started once for each rank: mpirun, srun, torchrun, ceoverlap-run. The
 * ranks share no memory, so they tell each other by counters of signals what ranks that the bench
 * forks itself tell by shared memory. Rank 0 collects and answers.
 *
 * All calls but the first are made by the one thread that runs the rank, and, unless they say
 * otherwise, by all ranks in the same order.
 */

#include <stdint.h>

#include "tools/bench/bench.h"

struct bench_launched;

/* Whether a launcher started this process as one of several, or CEOVERLAP_BOOTSTRAP asks for a
 * group of several processes. */
int  bench_launched_is(void);

/* The number of this process among those of its machine, as far as the launcher tells; else 0. */
uint32_t bench_launched_local_number(void);

/* Shares and finds the signals through an open context that has one rank in this process. */
int  bench_launched_open(ceov_context *context, uint64_t deadline_ns,
			 struct bench_launched **ret_launched);
void bench_launched_close(struct bench_launched *launched);

/* What all ranks have to agree on. *seed becomes that of rank 0. Returns CEOV_ERR_INVALID at a rank
 * whose `arguments`, a number made of its arguments, differs from that of rank 0. */
int  bench_launched_agree(struct bench_launched *launched, uint64_t *seed, uint64_t arguments);

/* Barrier of all ranks. *ret_any: whether any rank passed yes. CEOV_ERR_ABORTED: a rank has
 * failed. */
int  bench_launched_meet(struct bench_launched *launched, int yes, int *ret_any);

/* Tells rank 0 that this rank has failed, and through it all others. Called at any time, by the
 * rank that failed alone. */
void bench_launched_fail(struct bench_launched *launched);

/* Hands rank 0 the samples of all ranks: at rank 0 samples[r] points to where those of rank r are
 * put, at others samples[own] to those of this rank. They come with 7 decimal digits. */
int  bench_launched_collect(struct bench_launched *launched, double *const *samples,
			    uint32_t n_samples);

/* Rank 0 tells all others at the end, when its report is written, whether the run was good. Others
 * wait for that, and a short time alone if anybody has failed. Returns whether it was good. */
int  bench_launched_end(struct bench_launched *launched, int is_good);

#endif /* BENCH_LAUNCHED_H */
