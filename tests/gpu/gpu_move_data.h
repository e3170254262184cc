/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_GPU_MOVE_DATA_H
#define CEI_GPU_MOVE_DATA_H

/* Operands and results of all-gather and all-to-all on GPU ranks, generated on the GPU from a
 * number as in gpu_op_rig.h. Asserts with Check. */

#include <stdint.h>

#include <ceoverlap/ops.h>

#include "gpu_op_rig.h"
#include "unit/move_rig.h"

struct gpu_move_data {                  /* data of one rank */
	struct gpu_op_rank     *rank;
	const struct move_case *one;    /* the case; must outlive this struct */
	char                   *source; /* the operand; in place: a part of target */
	char                   *target; /* the result, with guard words behind it */
};

/* Allocates from the rank's arena, uninitialised. */
struct gpu_move_data gpu_move_data_make(struct gpu_op_rank *rank,
					const struct move_case *one);

/* These functions queue work on a stream. ..._fill_source() generates the operand from the number.
 * ..._fill() first overwrites the target, so that stale results are noticed, then generates the
 * operand, which may lie inside the target. ..._run() queues one run and returns what the public
 * call returned. */
void gpu_move_data_fill_source(const struct gpu_move_data *data, enum gpu_stream stream,
			       uint64_t number);
void gpu_move_data_fill(const struct gpu_move_data *data, enum gpu_stream stream,
			uint64_t number);
int  gpu_move_data_run(const struct gpu_move_data *data, ceov_op *op,
		       enum gpu_stream stream);

/* Fills and runs; asserts that the call succeeds. */
void gpu_move_data_turn(const struct gpu_move_data *data, ceov_op *op,
			enum gpu_stream stream, uint64_t number);

/* Asserts that the result follows from all ranks' operands of that number, and that nothing was
 * written behind it. The stream must be idle. */
void gpu_move_data_check(const struct gpu_move_data *data, enum gpu_stream stream,
			 uint64_t number);

#endif /* CEI_GPU_MOVE_DATA_H */
