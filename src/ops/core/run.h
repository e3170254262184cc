/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_RUN_H
#define CEI_RUN_H

/*
 * One execution of an op:
 *
 *   order behind the last run's stream -> raise the start mark -> launches -> the kind's
 *   job -> mark the stream
 *
 * This struct is all that an issuer other than the engine has to know: it takes the
 * steps of phases[i].plan[half] with floating[i] in place of the launch, and leaves the
 * rest as it is.
 */

#include <stdint.h>

#include "ops/core/op.h"

struct cei_run {
	ceov_op    *op;
	void       *stream;             /* NULL: the host */
	const void *operands;           /* the public struct of the op's kind, ... */
	uint32_t    operands_bytes;     /* ... so long */
	const void *floating[CEI_OP_PHASES_MAX];        /* what each phase sends */
	uint64_t    number;             /* from 1; set by cei_run_make() ... */
	uint32_t    half;               /* ... as this is */
};

/* On GPUs the NULL stream is refused, and the legacy one where runs are not captured. */
int  cei_op_check_stream(const ceov_op *op, const void *stream);

/* The public run call of that name: checks what it is given and makes a run of it. On host
 * ranks the run is done on return; on GPUs it is queued. */
int  cei_op_run(ceov_op *op, const char *run_call, const void *operands);

/* Of that, the checks, which set what the operands say of the run. op may be anything:
 * raises where it is no op, has another run call or operands are not right. */
int  cei_run_take(struct cei_run *run, const char *run_call);

/* The caller has checked what it was given. On host ranks the run is done on return;
 * on GPUs it is queued. */
int  cei_run_make(struct cei_run *run);

/* For jobs: the marks of this run. awaited, ready: NULL where tiles do not. */
struct cei_job_marks cei_run_marks(const struct cei_run *run, ceov_signal *awaited,
				   ceov_signal *ready);

/* The own rank's arrived in this run's half. */
ceov_signal *cei_run_arrived(const struct cei_run *run);

/* Base of this run's half of the own scratch. */
char *cei_run_scratch(const struct cei_run *run);

/* In a sequence: comes after the marks first to first + n - 1 of signal have reached
 * the run's number; or raises them to it. */
int  cei_run_await(const struct cei_run *run, ceov_signal *signal, uint32_t first,
		   uint32_t n);
int  cei_run_raise(const struct cei_run *run, ceov_signal *signal, uint32_t first,
		   uint32_t n);

#endif /* CEI_RUN_H */
