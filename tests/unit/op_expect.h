/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_OP_EXPECT_H
#define CEI_OP_EXPECT_H

/* What op_rig.c and op_a2a.c share: operands that are generated again, and comparison with
 * expected results. */

#include "op_rig.h"

struct op_sum {                         /* an expected result */
	double value;
	double magnitude;               /* magnitude to which rounding errors are relative */
};

/* Generate a rank's A, or source, and the B of its product i; the caller frees them. */
void *op_make_a(const struct op_case *one, uint32_t rank, uint64_t seed);
void *op_make_b(const struct op_case *one, uint32_t rank, uint64_t seed, uint32_t i);

/* Returns number i of an operand or result. */
float op_number(const struct op_case *one, const void *numbers, uint64_t i);

/* Asserts that a result is right up to one rounding to nearest for each partial sum that is sent
 * and for the result, and up to fp32 summation. */
void op_check_number(const struct op_case *one, struct op_sum expected, const void *results,
		     uint64_t i);

/* op_data_run() and op_data_check() for products with an all-to-all. */
int  op_a2a_run(const struct op_case *one, ceov_op *op, const struct op_data *data);
void op_a2a_check(const struct op_case *one, uint32_t rank, uint64_t seed,
		       const struct op_data *data);

#endif /* CEI_OP_EXPECT_H */
