/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_OPERANDS_H
#define CEI_OPERANDS_H

/* What one run of an op reads and writes, checked before anything of it is queued. */

#include <stdint.h>

#include "ops/core/op.h"

/* An A, a B and a C of each product, and the gathered A. */
#define CEI_OPERANDS_MAX (2u + 2u * CEOV_OP_GEMMS_MAX)

struct cei_operand {
	const char *name;               /* as the run's struct has it */
	const void *base;
	uint64_t    n_bytes;            /* 0: neither read nor written, base means nothing */
	int         is_result;          /* it is written */
};

/* INVALID, raised with the operands' names: a base is NULL, is not aligned to 16 bytes or
 * its range ends past the address space, or a result overlaps any other operand. */
int cei_operands_check(const ceov_op *op, const struct cei_operand *operands, uint32_t n);

#endif /* CEI_OPERANDS_H */
