/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_OPS_SM_LANE_H
#define CEI_OPS_SM_LANE_H

/*
 * Ops whose transfers SMs make: products in CEOV_MODE_DIRECT. The plans of the op's stages say what
 * goes where, but neither the engine nor a copy engine carries them out. A kernel on a stream of
 * the executor does (kernels/sm_lane.h), in runs of capturable and of other workspaces alike:
 *
 *   caller's stream   --+--> the product, on the other SMs ---+-->
 *   the lane            +--> copies and marks, on a few SMs --+
 *
 * Since the stream waits for the lane, no counters of `sent` are used.
 */

#include "ops/core/run.h"

/* The function `built` of a kind that has_sm_lane: makes lists of steps from the plans of the op's
 * stages, if its mode is direct. On failure cei_sm_lane_fini() frees what was made. */
int  cei_sm_lane_build(ceov_op *op);

/* Frees the lists; there may be none. */
void cei_sm_lane_fini(ceov_op *op);

/* For the job of such an op: queues the transfers of the run, and beside them what compute() queues
 * on the run's stream. Behind both it calls finish(), unless it is NULL, for what awaits arrivals
 * behind the product: queued before the transfers it could stand before them in a queue of the
 * hardware. */
int  cei_sm_lane_run(const struct cei_run *run, int (*compute)(const struct cei_run *run),
		     int (*finish)(const struct cei_run *run));

#endif /* CEI_OPS_SM_LANE_H */
