/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_RUN_H
#define CEI_RUN_H

/*
 * One execution of an op:
 *
 * order behind the last run's stream -> raise the start mark -> launches -> the kind's job
 * -> mark the stream
 *
 * This struct is all that another issuer than the engine needs: it takes the transfers of
 * stages[i].plan[half], with floating[i], instead of the launch; the rest is the same.
 */

#include <stdint.h>

#include "ops/core/op.h"

struct cei_run {
	ceov_op    *op;
	void       *stream;             /* NULL on host ranks */
	const void *operands;           /* the public struct of the run call, ... */
	uint32_t    operands_bytes;     /* ... and its size */
	const void *floating[CEI_OP_STAGES_MAX];        /* what each stage sends */
	uint64_t    number;             /* from 1; set by cei_run_make() ... */
	uint32_t    half;               /* ... as this is */
};

/* On GPUs the NULL stream is refused, and the legacy stream where runs are not captured. */
int  cei_op_check_stream(const ceov_op *op, const void *stream);

/* Implements the public run call of that name: checks its arguments and makes a run. On
 * host ranks the run is done on return; on GPUs it is queued. */
int  cei_op_run(ceov_op *op, const char *run_call, const void *operands);

/* The checks of cei_op_run(), which set the run's fields from the operands. op may be
 * anything: raises where it is not an op, belongs to another run call, or has wrong
 * operands. */
int  cei_run_take(struct cei_run *run, const char *run_call);

/* Makes a run whose arguments were checked. On host ranks it is done on return; on GPUs it
 * is queued. */
int  cei_run_make(struct cei_run *run);

/* The marks of this run for a job. awaited, ready: NULL where tiles do not await or arrive. */
struct cei_job_marks cei_run_marks(const struct cei_run *run, ceov_signal *awaited,
				   ceov_signal *ready);

/* This rank's `arrived` in the run's half. */
ceov_signal *cei_run_arrived(const struct cei_run *run);

/* This rank's scratch in the run's half. */
char *cei_run_scratch(const struct cei_run *run);

/* In a sequence: orders the stream behind the marks first to first + n - 1 of signal, which
 * must reach the run's number; the other one raises them to it. */
int  cei_run_await(const struct cei_run *run, ceov_signal *signal, uint32_t first,
		   uint32_t n);
int  cei_run_raise(const struct cei_run *run, ceov_signal *signal, uint32_t first,
		   uint32_t n);

#endif /* CEI_RUN_H */
