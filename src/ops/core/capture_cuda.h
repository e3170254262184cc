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
 * A graph's constants are fixed, so a run that can be captured differs from one that the engine
 * launches in these points:
 *
 *   number    the run's number is a word in GPU memory; cei_op_begin increments it, and
 *             kernels read it
 *   marks     a mark is raised by a copy of that 8-byte word to the counter
 *   gates     the `ready` counters are gates: cei_op_begin sets them to 0, the job raises
 *             them to 1, and the lane waits for that. If the lane cleared a gate behind
 *             its wait instead, each piece would cost one more operation
 *   halves    cei_op_begin waits until all peers begin the same run, so that all scratch is
 *             free (begin.h)
 *   sent      counters of `sent` are not used: the caller's stream waits for the lane
 *             instead
 *
 * A run in a direct mode (kernels/direct.h) is one kernel on the caller's stream: it has no
 * transfers, and begins without cei_op_begin. If SMs make an op's transfers (sm_lane.h), their
 * kernel takes the place of copies, gates and marks on the lane.
 *
 * Because nothing else changes between runs, the library can itself make a graph of a run that is
 * repeated: see graph_cache.h.
 */

#include <stdint.h>

#include "ops/compute/direct.h"
#include "ops/core/running.h"
#include "ops/core/workspace.h"

struct cei_capture;

/* Prepares a workspace, which is connected, for runs that can be captured. May wait for all kernels
 * of the GPU. */
int  cei_capture_open(ceov_workspace *workspace, struct cei_capture **ret_capture);

/* Frees the capture, whose runs must have ended. NULL is allowed. */
void cei_capture_close(struct cei_capture *capture);

/* Returns the address of the word in GPU memory that holds the run's number. */
uint64_t *cei_capture_epoch(const struct cei_capture *capture);

/* Returns the words with which a run in a direct mode counts itself. */
struct cei_direct_words cei_capture_words(const struct cei_capture *capture);

/* Queues the run on its stream, which may be the legacy stream. If the run repeats an earlier one,
 * a cached graph is launched instead. run->half must be set. Only one thread at a time may call
 * it. */
int  cei_capture_run(struct cei_capture *capture, const struct cei_run *run);

/* Destroys the cached graphs of an op that changes or is released. Launches of these graphs that
 * are in flight still end. capture may be NULL. */
void cei_capture_forget(struct cei_capture *capture, const ceov_op *op);

/* The number of cached graphs. */
uint32_t cei_capture_n_graphs(const struct cei_capture *capture);

#endif /* CEI_CAPTURE_CUDA_H */
