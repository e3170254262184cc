/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_COMPUTE_SM_LANE_H
#define CEI_COMPUTE_SM_LANE_H

/* A lane that SMs carry out (kernels/sm_lane.h), as a job of an executor. */

#include <stdint.h>

#include "kernels/sm_lane.h"
#include "ops/compute/executor.h"

struct cei_sm_lane_job {
	const struct cei_sm_lane_step *steps;   /* where jobs can read them (hold()) */
	uint32_t            *n_arrived;         /* likewise, [n_steps], 0 at first */
	uint32_t             n_steps;
	uint32_t             n_blocks;          /* how many SMs to use */
	const void          *floating;          /* what the offsets of floating steps begin at */
	struct cei_job_marks marks;             /* ready has the gates; awaited and sent are
						 * unused */
};

/* Lanes of an executor. It has one stream for them; runs follow each other, so do their lanes. */
struct cei_sm_lane_ops {
	/* Makes the lane, unless it is there. It is made when the first op needs it, because
	 * streams that nobody uses still share the hardware's queues with others. The
	 * caller sees to it that there is one call at a time. */
	int (*open)(struct cei_executor *executor);

	/* begin() orders the lane behind the work that is on the stream now; end() orders the
	 * stream behind what the lane has carried out. Between them the executor refuses kernels
	 * that wait for peers on so many SMs that the lane would not find n_blocks of them. */
	int (*begin)(struct cei_executor *executor, void *stream, uint32_t n_blocks);
	int (*end)(struct cei_executor *executor, void *stream);

	/* Queues a job on the lane. */
	int (*carry)(struct cei_executor *executor, const struct cei_sm_lane_job *job);
};

#endif /* CEI_COMPUTE_SM_LANE_H */
