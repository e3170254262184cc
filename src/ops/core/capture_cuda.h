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
 * So a run that comes again can be a graph of our own: see replays.h.
 */

#include <stdint.h>

#include "ops/core/run.h"

struct cei_capture;

/* The executor is open, and the workspace's own `done` is there. */
int  cei_capture_open(ceov_workspace *workspace, struct cei_capture **ret_capture);

/* Nothing of it runs any more. NULL is allowed. */
void cei_capture_close(struct cei_capture *capture);

/* Where the number of the run stands, in GPU memory. */
uint64_t *cei_capture_epoch(const struct cei_capture *capture);

/* Queues the run on its stream, the legacy one too; as a graph that was made of it before,
 * if it comes again. One thread at a time; half is set. */
int  cei_capture_run(struct cei_capture *capture, const struct cei_run *run);

/* The op is not what it was when it ran: graphs of its runs go, behind those that are under
 * way. capture may be NULL. */
void cei_capture_forget(struct cei_capture *capture, const ceov_op *op);

/* How many graphs it holds. */
uint32_t cei_capture_n_graphs(const struct cei_capture *capture);

#endif /* CEI_CAPTURE_CUDA_H */
