/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_RUNNING_H
#define CEI_RUNNING_H

/* What is known of a run while it is made. run.h says how it is made. */

#include <stdint.h>

#include "ops/shape.h"

/* An op has at most A, one B and one C for each product, and the gathered A. */
#define CEI_OPERANDS_MAX (2u + 2u * CEOV_OP_GEMMS_MAX)

struct cei_run {
	ceov_op    *op;
	void       *stream;             /* NULL on host ranks */
	const void *operands;           /* the public struct of the run call */
	uint32_t    operands_bytes;     /* the size of that struct in this library's headers; an
					 * older caller's may be shorter (run_first_bytes in
					 * kind.h) */
	const void *floating[CEI_OP_STAGES_MAX];        /* [stage]: address of what it sends */
	const void *memory[CEI_OPERANDS_MAX];   /* the caller's memory that the run reads and
						 * writes; set by cei_operands_take() */
	uint32_t    n_memory;
	uint64_t    number;             /* of the run, counted from 1, among all runs of the
					 * workspace, or the op's if its kind is local; set by
					 * cei_run_make() */
	uint32_t    half;               /* half of scratch that it uses; set by cei_run_make().
					 * 0 if the kind is local */
};

#endif /* CEI_RUNNING_H */
