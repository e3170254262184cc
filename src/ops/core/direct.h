/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_OPS_DIRECT_H
#define CEI_OPS_DIRECT_H

/*
 * Runs in a direct mode: ranks of one node store to each other's scratch by themselves, without
 * plans, the engine, or copy engines (kernels/direct.h). A kind fills what is sent where; this file
 * adds addresses, counters and the number of the run.
 */

#include "ops/compute/direct.h"
#include "ops/core/run.h"

/* An all-reduce in one step sends all to all, and needs scratch for the operands of all ranks.
 * Larger ones would take more of it than all other modes. */
#define CEI_DIRECT_ONE_SHOT_MAX (UINT64_C(1) << 20)

/* Fills what this rank and another one exchange if each sends its whole operand of n_bytes. */
void cei_direct_span_whole(uint64_t n_bytes, uint32_t own, uint32_t rank,
			   struct cei_direct_span *span);

/* For the build() of an op whose mode is direct. Raises CEOV_ERR_INVALID if this rank cannot store
 * to the scratch of all others. */
int  cei_direct_build(ceov_op *op);

/* Fills a zeroed job for a run, but for is_sum, dtype, scale, source, target, spans, and, where
 * sums are gathered, gathers and gather_at. */
void cei_direct_job(const struct cei_run *run, struct cei_direct_job *ret_job);

#endif /* CEI_OPS_DIRECT_H */
