/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_RUN_H
#define CEI_RUN_H

/*
 * One execution of an op, in this order:
 *
 *   orders the stream behind the last run's stream
 *   raises the start mark
 *   launches the plans of the op's stages
 *   queues the kind's job
 *   marks the stream, for the next run
 *
 * The transfers of a run can also be carried out without the engine (capture_cuda.h). Then,
 * in place of the launches, those of the plans stages[i].plan[half] are queued on a stream,
 * with floating[i]; struct cei_run has all that is needed for that. The rest stays the
 * same.
 */

#include <stdint.h>

#include "ops/core/op.h"

struct cei_run {
	ceov_op    *op;
	void       *stream;             /* NULL on host ranks */
	const void *operands;           /* the public struct of the run call */
	uint32_t    operands_bytes;     /* the size of that struct */
	const void *floating[CEI_OP_STAGES_MAX];        /* address of what each stage sends */
	uint64_t    number;             /* the run's number, from 1; set by cei_run_make() */
	uint32_t    half;               /* its half of scratch; set by cei_run_make() */
};

/* Refuses the NULL stream on GPUs, and the legacy stream unless the workspace is capturable. */
int  cei_op_check_stream(const ceov_op *op, const void *stream);

/* Implements the public run call of that name: checks its arguments and makes a run. On
 * host ranks the run is done on return; on GPUs it is queued. */
int  cei_op_run(ceov_op *op, const char *run_call, const void *operands);

/* Makes the checks of cei_op_run(), and sets the run's fields from its operands. Raises an
 * error if run->op is not an op or belongs to another run call, or the operands are
 * wrong. */
int  cei_run_take(struct cei_run *run, const char *run_call);

/* Makes a run whose arguments were checked. On host ranks it is done on return; on GPUs it
 * is queued. */
int  cei_run_make(struct cei_run *run);

/* Returns the marks of this run for a job. awaited NULL: its tiles start without waiting; ready
 * NULL: finished tiles are not counted at any counter. */
struct cei_job_marks cei_run_marks(const struct cei_run *run, ceov_signal *awaited,
				   ceov_signal *ready);

/* Returns this rank's signal `arrived` of the run's half. */
ceov_signal *cei_run_arrived(const struct cei_run *run);

/* Returns the address of the run's half of this rank's scratch. */
char *cei_run_scratch(const struct cei_run *run);

/* For jobs of several steps: cei_run_await() holds the stream until counters first to first
 * + n - 1 of signal have reached the run's number, and cei_run_raise() raises them to
 * it. */
int  cei_run_await(const struct cei_run *run, ceov_signal *signal, uint32_t first,
		   uint32_t n);
int  cei_run_raise(const struct cei_run *run, ceov_signal *signal, uint32_t first,
		   uint32_t n);

#endif /* CEI_RUN_H */
