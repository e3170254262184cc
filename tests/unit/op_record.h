/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef OP_RECORD_H
#define OP_RECORD_H

/* What an operator's job queues at its executor, for tests of the order. Asserts with Check. */

#include "op_rig.h"

struct op_record {
	char     words[200];    /* "gemm", "copy", "rows" for copies of rows, and for a wait its
				 * first counter and how many, as "4+2": in their order, a space
				 * behind each */
	uint32_t n_sent;        /* marks of what was sent that a product waits for, at most */
};

/* Runs the case once on host ranks with so many bytes of scratch, checks the results, and records
 * what rank 1 queues. One thread at a time. */
void op_record_job(struct op_case *one, uint64_t scratch_bytes, struct op_record *ret_record);

/* Returns the target of transfer i of the op's first stage; CEOV_NOBODY: it moves nothing. */
uint32_t op_record_target(const ceov_op *op, uint32_t i);

#endif /* OP_RECORD_H */
