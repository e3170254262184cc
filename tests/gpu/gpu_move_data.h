/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_GPU_MOVE_DATA_H
#define CEI_GPU_MOVE_DATA_H

/* Operands and results of all-gather and all-to-all on GPU ranks: made there from numbers,
 * as gpu_op_rig.h has it. Asserts with Check. */

#include <stdint.h>

#include <ceoverlap/ops.h>

#include "gpu_op_rig.h"
#include "unit/move_rig.h"

struct gpu_move_data {                  /* of one rank */
	struct gpu_op_rank     *rank;
	const struct move_case *one;    /* outlives it */
	char                   *source; /* in place: a part of target */
	char                   *target; /* guarded */
};

/* From the rank's arena. Contents: none. */
struct gpu_move_data gpu_move_data_make(struct gpu_op_rank *rank,
					const struct move_case *one);

/* Queue: the operand of that number; rubbish where the result will be, then the operand,
 * which may be there; the run, with the public call's result. */
void gpu_move_data_fill_source(const struct gpu_move_data *data, enum gpu_stream stream,
			       uint64_t number);
void gpu_move_data_fill(const struct gpu_move_data *data, enum gpu_stream stream,
			uint64_t number);
int  gpu_move_data_run(const struct gpu_move_data *data, ceov_op *op,
		       enum gpu_stream stream);

/* Fills and runs; the call's result must be 0. */
void gpu_move_data_turn(const struct gpu_move_data *data, ceov_op *op,
			enum gpu_stream stream, uint64_t number);

/* When the stream is idle: the result is that of all ranks' operands of that number, and
 * nothing was written behind it. */
void gpu_move_data_check(const struct gpu_move_data *data, enum gpu_stream stream,
			 uint64_t number);

#endif /* CEI_GPU_MOVE_DATA_H */
