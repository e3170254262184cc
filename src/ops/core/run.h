/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_RUN_H
#define CEI_RUN_H

/*
 * One execution of an op. A run takes these steps, in this order:
 *
 *   orders the stream behind the last run's stream
 *   raises the start mark
 *   launches the plans of the op's stages
 *   queues the job of the op's kind
 *   marks the stream, so that the next run can follow it
 *
 * A run that can be captured does without the engine (capture_cuda.h). In place of the third step
 * it queues the transfers of the plans stages[i].plan[half] on a stream, with the address
 * floating[i]; struct cei_run has all that is needed for that. The other steps are the same.
 *
 * A run of a local kind, captured or not, has only the first step, the job and the last step.
 */

#include <stdint.h>

#include "ops/core/op.h"
#include "ops/core/running.h"

/* Refuses the NULL stream on GPUs, and the legacy stream unless the workspace is capturable. */
int  cei_op_check_stream(const ceov_op *op, const void *stream);

/* Implements the public run call with the given name: checks its arguments and makes a run. On host
 * ranks the run has ended when this returns; on GPUs it is queued. */
int  cei_op_run(ceov_op *op, const char *run_call, const void *operands);

/* Makes the checks of cei_op_run() and sets the run's fields from its operands. Raises an error if
 * run->op is not an op, if it belongs to another run call, or if the operands are wrong. */
int  cei_run_take(struct cei_run *run, const char *run_call);

/* Makes a run whose arguments were checked. On host ranks it has ended when this returns; on GPUs
 * it is queued. */
int  cei_run_make(struct cei_run *run);

/* Returns the marks for a job of this run. If awaited is NULL, its tiles start without waiting; if
 * ready is NULL, finished tiles are not counted. */
struct cei_job_marks cei_run_marks(const struct cei_run *run, ceov_signal *awaited,
				   ceov_signal *ready);

/* Returns this rank's signal `arrived` for the half that the run uses. */
ceov_signal *cei_run_arrived(const struct cei_run *run);

/* Returns the address of the half of this rank's scratch that the run uses. */
char *cei_run_scratch(const struct cei_run *run);

/* Makes the stream wait until the run's operand was sent, and until all peers from which nothing
 * comes have begun the run: for jobs that do not end with a product or a sum, which wait for that
 * themselves. Captured runs need no such wait, because their stream waits for the lane. */
int  cei_run_await_sent(const struct cei_run *run);

/* For jobs of several steps. cei_run_await() makes the stream wait until counters first to
 * first + n - 1 of signal have reached the run's number. cei_run_raise() raises a counter from the
 * stream to the run's number. */
int  cei_run_await(const struct cei_run *run, ceov_signal *signal, uint32_t first,
		   uint32_t n);
int  cei_run_raise(const struct cei_run *run, ceov_signal *signal, uint32_t index);

#endif /* CEI_RUN_H */
