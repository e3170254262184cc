/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_OPERANDS_H
#define CEI_OPERANDS_H

/* Checks the memory that one run of an op reads and writes, before anything is queued. */

#include <stdint.h>

#include "ops/core/run.h"

struct cei_operand {
	const char *name;               /* the field's name in the run's public struct */
	const void *base;
	uint64_t    n_bytes;            /* 0: the operand is not used, and base is ignored */
	int         is_result;          /* 1: the run writes it */
};

/* Takes the memory of a run from its operands, at most CEI_OPERANDS_MAX. Raises CEOV_ERR_INVALID
 * with the operand's name if a base is NULL or not aligned to 16 bytes, a range ends past the
 * address space, or a result overlaps any other operand. */
int cei_operands_take(struct cei_run *run, const struct cei_operand *operands, uint32_t n);

#endif /* CEI_OPERANDS_H */
