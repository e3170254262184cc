/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DIRECT_SUM_H
#define CEI_DIRECT_SUM_H

/*
 * Reduce-scatter and all-reduce in direct modes. One half of scratch holds:
 *
 *   one-shot all-reduce     the whole operand of each rank, in the order of ranks
 *   all others              as described in reduce.c
 *
 * The sums have the same bits in each mode, and at all ranks: every mode adds in fp32, in the order
 * of ranks, and rounds once.
 */

#include "ops/core/run.h"

/* Returns why the shape is refused in this mode, or NULL. */
const char *cei_direct_sum_fault(const struct cei_op_shape *shape, enum ceov_op_mode mode);

/* Returns how many bytes of a half a one-shot all-reduce needs; 0: its operands are too large. */
uint64_t cei_direct_sum_scratch(const struct cei_op_shape *shape);

/* Returns the most bytes that one rank sends to another one in a step. */
uint64_t cei_direct_sum_span(const struct cei_op_shape *shape, enum ceov_op_mode mode);

/* Returns whether each rank sends something to every other one in a step. */
int cei_direct_sum_all_send(const struct cei_op_shape *shape, enum ceov_op_mode mode);

/* Queues the job of a run. */
int cei_direct_sum_job(const struct cei_run *run);

#endif /* CEI_DIRECT_SUM_H */
