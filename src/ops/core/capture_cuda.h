/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CAPTURE_CUDA_H
#define CEI_CAPTURE_CUDA_H

/*
 * Runs that can be captured in a CUDA graph. The engine does not launch them: the calling
 * thread queues everything on streams, whether these are being captured or not, and a
 * replay needs no host thread.
 *
 *   caller's stream   cei_op_begin --+--> the job (GEMM, sum) ----------------+-->
 *   lane                             +--> copies, marks; gates, copies, marks +
 *
 * A graph's constants are fixed, so such a run differs from a launch in these points:
 *
 *   number    the run's number stands in GPU memory; cei_op_begin advances it, and
 *             kernels read it
 *   marks     are raised by copies of 8 bytes from that number
 *   gates     are the `ready` counters: cei_op_begin sets them to 0, the job raises them
 *             to 1, and the lane waits for that. If lanes cleared gates behind their
 *             waits instead, each piece would cost one more operation
 *   halves    cei_op_begin waits until peers are done with the half (begin.h)
 *   sent      is not used: the caller's stream waits for the lane instead
 *
 * So the library can make a graph of a run itself, for when the run is repeated: see
 * graph_cache.h.
 */

#include <stdint.h>

#include "ops/core/run.h"

struct cei_capture;

/* The executor must be open, and the workspace's own `done` signal must exist. */
int  cei_capture_open(ceov_workspace *workspace, struct cei_capture **ret_capture);

/* Frees the capture, whose runs must have ended. NULL is allowed. */
void cei_capture_close(struct cei_capture *capture);

/* Returns the address of the word in GPU memory that holds the run's number. */
uint64_t *cei_capture_epoch(const struct cei_capture *capture);

/* Queues the run on its stream, which may be the legacy stream: as a cached graph if the
 * run repeats an earlier one. run->half is set. Only one thread at a time may call it. */
int  cei_capture_run(struct cei_capture *capture, const struct cei_run *run);

/* Destroys the cached graphs of an op that changes or goes (NULL: of all ops); their
 * launches in flight still end. capture may be NULL. */
void cei_capture_forget(struct cei_capture *capture, const ceov_op *op);

/* The number of cached graphs. */
uint32_t cei_capture_n_graphs(const struct cei_capture *capture);

#endif /* CEI_CAPTURE_CUDA_H */
