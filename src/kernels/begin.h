/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_BEGIN_H
#define CEI_BEGIN_H

/*
 * Parameters of the kernels with which captured runs begin, and with which streams wait for
 * counters and raise them. A CUDA graph is replayed with the same parameters each time. So its runs
 * count themselves: the number of the run is a word in GPU memory. This header is plain C.
 *
 *   cei_op_begin (struct cei_op_begin)                       one block of 64 threads
 *   cei_op_await (struct cei_op_await)                       one block, one thread
 *   cei_op_raise (struct cei_op_raise)                       one block, one thread
 *
 * cei_op_raise raises counters behind the kernels before it. cei_op_await holds a stream until
 * counters have reached the number of the run, or until a timeout. cei_op_begin begins run
 * e = *epoch + 1 of its rank. It:
 *
 *   closes the rank's gates: sets them to 0 (nobody raises or awaits one between runs)
 *   tells each peer, in peer_done, that this rank has finished e - 1 runs
 *   awaits, for each peer r: counter r of done >= e - 1, so that r has begun run e, too
 *   sets last_use[half] = e, then *epoch = e
 *
 * If an await fails, here or in another kernel of the run, *epoch is poisoned: set to
 * CEOV_VALUE_LIMIT for good. Then no later run waits, peers are told the poison in place of e - 1,
 * and whoever awaits the value of *epoch finds the poison.
 *
 * WHY RANKS BEGIN A RUN TOGETHER
 * In a run each rank sends to one peer after another, and begins with another one than the other
 * ranks do. As long as ranks are in step, each receives from one peer at a time. Where they are
 * not, two ranks send to the same third one and share its link, while another one's is idle. On 8
 * H200, ranks that had only to be less than two runs apart, for scratch to be free, took up to a
 * fifth longer (docs/internals/operators.md).
 *
 * WHY SCRATCH IS FREE
 * What run e sends may go to scratch that earlier runs used. A peer has ended these when it begins
 * run e: since work on one stream goes in order, a rank that executes cei_op_begin has ended all
 * earlier runs, and it raises its counter by a release that comes after all reads of these runs.
 * All that run e sends is queued behind this kernel, whose await acquires that counter. So no byte
 * of run e arrives where a peer still reads bytes of an earlier run.
 *
 * WHY RANKS DO NOT WAIT FOR EACH OTHER IN A CIRCLE A rank tells its peers before it waits, and it
 * waits only for what they tell before they wait in the same run.
 */

#include <stdint.h>

#include <ceoverlap/ceoverlap.h>

#define CEI_BEGIN_RANKS_MAX 64u
#define CEI_BEGIN_THREADS   64u

struct cei_op_begin {
	uint64_t *epoch;                /* GPU memory: number of runs that this rank has begun,
					 * or the poison; 0 at first */
	uint64_t *gates;                /* n_gates words in GPU memory */
	uint32_t  n_gates;
	uint32_t  reserved_too;
	uint64_t *last_use;             /* 2 words in GPU memory: the last run that used each
					 * half; 0: none. Runs of direct.h look at them */
	uint32_t  half;                 /* 0 or 1: the half of scratch that this run uses at all
					 * ranks */
	uint32_t  n_ranks;
	uint32_t  own;
	uint32_t  reserved;
	uint64_t *peer_done[CEI_BEGIN_RANKS_MAX];       /* [rank]: this rank's counter in the
							 * rank's `done`; own: NULL */
	struct ceov_device_signal done; /* this rank's signal `done`: counter r is the number of
					 * runs that rank r has finished */
	uint64_t  timeout_ns;           /* of each await; they run concurrently */
	uint32_t *status;               /* 0, or the enum ceov_device_result of a failed await;
					 * may be host memory */
};

/* Parameters of cei_op_await: awaits counters index to index + n - 1 of signal. Each must reach
 * value, plus *epoch if epoch is not NULL. If an await fails, *epoch is poisoned as described
 * above. If an earlier kernel has set *failed, this one waits only briefly (marks.cuh). */
struct cei_op_await {
	struct ceov_device_signal signal;
	uint32_t                  index;
	uint32_t                  n;
	uint64_t                 *epoch;
	uint64_t                  value;
	uint64_t                  timeout_ns;   /* of each counter */
	uint32_t                 *status;
	uint32_t                 *failed;       /* word in GPU memory that a failed await sets to
						 * non-zero; or NULL */
};

/* Parameters of cei_op_raise: raises counters index to index + n - 1 of signal to value. Behind a
 * failure it raises nothing if epoch is NULL, and does raise them otherwise; struct cei_gemm_marks
 * (gemm.h) says why. */
struct cei_op_raise {
	struct ceov_device_signal signal;
	uint32_t                  index;
	uint32_t                  n;
	uint64_t                  value;
	const uint64_t           *epoch;
	const uint32_t           *failed;       /* word in GPU memory, not 0: a wait has failed */
};

#endif /* CEI_BEGIN_H */
