/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CAPTURE_CUDA_H
#define CEI_CAPTURE_CUDA_H

/*
 * Runs that a CUDA graph can hold. No engine launches them: the calling thread queues
 * everything on streams, captured or not, and a replay needs no host.
 *
 *   caller's stream   cei_op_begin --+--> the job (GEMM, sum) ----------------+-->
 *   lane                             +--> copies, marks; gates, copies, marks +
 *
 * What is different from a launch, because a graph's constants are fixed:
 *
 *   number    stands in GPU memory; cei_op_begin advances it, kernels read it
 *   marks     are 8-byte copies from there
 *   gates     ready counters: cei_op_begin sets them to 0, the job raises 1, the lane
 *             waits for that. A lane that clears a gate behind its wait would pay for
 *             one more operation a piece
 *   halves    cei_op_begin sees to it that peers are done with the half (begin.h)
 *   sent      the caller's stream joins the lane instead
 *
 * So a run that comes again can be a graph of our own: see graph_cache.h.
 */

#include <stdint.h>

#include "ops/core/run.h"

struct cei_capture;

/* The executor must be open, and the workspace's own `done` signal must exist. */
int  cei_capture_open(ceov_workspace *workspace, struct cei_capture **ret_capture);

/* Its runs must have ended. NULL is allowed. */
void cei_capture_close(struct cei_capture *capture);

/* The word in GPU memory that holds the run's number. */
uint64_t *cei_capture_epoch(const struct cei_capture *capture);

/* Queues the run on its stream, which may be the legacy one; as a cached graph if the run
 * repeats an earlier one. One thread at a time; the run's half is set. */
int  cei_capture_run(struct cei_capture *capture, const struct cei_run *run);

/* Drops the cached graphs of an op that has changed, behind those in flight. capture may be
 * NULL. */
void cei_capture_forget(struct cei_capture *capture, const ceov_op *op);

/* The number of cached graphs. */
uint32_t cei_capture_n_graphs(const struct cei_capture *capture);

#endif /* CEI_CAPTURE_CUDA_H */
