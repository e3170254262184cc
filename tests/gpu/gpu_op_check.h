/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_GPU_OP_CHECK_H
#define CEI_GPU_OP_CHECK_H

/* What gpu_op_data.c and gpu_op_a2a.c share: operands that are generated again, and comparison with
 * a reference that a kernel computes. */

#include "gpu_op_rig.h"

struct gpu_operand {                    /* one rank's operand, or a part of it */
	uint32_t rank;
	uint32_t which;                 /* 0: A or source; 1 + i: B of product i */
	uint64_t first;
	uint64_t n;
};

struct gpu_op_check {
	const struct gpu_op_data *data;
	uint64_t number;
	uint64_t used_bytes;            /* bytes of the arena that were in use before the check */
	void    *a;                     /* memory where operands of any rank are generated again */
	void    *b;
	void    *part;                  /* as large as both */
	double  *sum;
	float   *slack;
};

/* Generates an operand, or a part of it, at p. */
void gpu_op_fill(const struct gpu_op_data *data, enum gpu_stream stream, void *p,
		 const struct gpu_operand *operand, uint64_t number);

/* Computes the product of check->a, which has n_rows rows, and check->b. adds 0: sets the sum; 1:
 * adds to it. */
void gpu_op_refer(const struct gpu_op_check *check, uint64_t n_rows, uint64_t n, int adds);

/* Asserts that n results at x differ from the sum by no more than the slack. */
void gpu_op_check_near(const struct gpu_op_check *check, const void *x, uint64_t n,
		       const char *what);

/* gpu_op_data_run() and gpu_op_data_check() for products with an all-to-all. */
int  gpu_op_a2a_run(const struct gpu_op_data *data, ceov_op *op, void *stream);
void gpu_op_a2a_check(const struct gpu_op_check *check);

#endif /* CEI_GPU_OP_CHECK_H */
