/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_SM_LANE_H
#define CEI_SM_LANE_H

/*
 * A lane that SMs carry out: the transfers of a run, as copy engines would make them on a lane, by
 * one kernel (cei_sm_lane) on a few SMs. It is for runs whose copies are short: beside its bytes a
 * copy of a copy engine takes some 5 us, and more if it waits for a gate; a kernel goes on at once.
 * This header is plain C.
 *
 * Every block goes through all steps in their order. For each step it awaits the gate, copies every
 * gridDim.x-th chunk of the step's bytes through shared memory, and counts itself when its bytes
 * have been stored. The block that counts last raises the target's counter. So counters rise in the
 * order of steps, and a counter covers the bytes of earlier steps, too.
 *
 * FAILURES If an await fails, nothing more is copied. In a run that is not captured, no counter is
 * raised any more, and a launch behind a failed one copies and raises nothing. In a captured run
 * *epoch is poisoned (begin.h), and the poison is raised at all further targets.
 *
 * All addresses, pitches and sizes are multiples of 16 bytes. The kernel needs sm_90.
 */

#include <stdint.h>

#include <ceoverlap/ceoverlap.h>

#define CEI_SM_LANE_THREADS      96u
/* Blocks come in clusters of two, as those of the GEMM do, so that they leave SMs in pairs. */
#define CEI_SM_LANE_CLUSTER      2u
#define CEI_SM_LANE_CHUNK_BYTES  16384u
#define CEI_SM_LANE_STAGES       8u     /* chunks of a block in flight */
#define CEI_SM_LANE_SHARED_BYTES (CEI_SM_LANE_STAGES * CEI_SM_LANE_CHUNK_BYTES + 1024u)
#define CEI_SM_LANE_BLOCKS_MAX   32u
#define CEI_SM_LANE_NO_GATE      UINT32_MAX

struct cei_sm_lane_step {
	uint64_t  source;               /* an address, or an offset from `floating` */
	uint64_t  target;               /* an address at which this GPU reaches the target */
	uint64_t  row_bytes;
	uint64_t  n_rows;               /* 1, if the rows have no gaps */
	uint64_t  source_pitch_bytes;
	uint64_t  target_pitch_bytes;
	uint64_t *counter;              /* raised when the bytes have arrived; NULL: none */
	uint32_t  gate;                 /* index of a counter of `ready`, or NO_GATE */
	uint32_t  is_floating;
};

struct cei_sm_lane {
	const struct cei_sm_lane_step *steps;   /* in GPU memory */
	uint32_t                 *n_arrived;    /* in GPU memory, [step]: blocks that have counted
						 * themselves; all 0 before and after a launch,
						 * unless a run that is not captured has failed,
						 * behind which nothing is counted */
	uint64_t                  floating;
	struct ceov_device_signal ready;        /* of this rank: the gates */
	uint64_t                  gate_value;
	uint64_t                  value;        /* to which targets' counters rise, if epoch is
						 * NULL */
	const uint64_t           *epoch;        /* captured runs: counters rise to *epoch */
	uint64_t                  timeout_ns;   /* of each await */
	uint32_t                 *status;       /* as in struct cei_gemm_marks */
	uint32_t                 *failed;
	uint32_t                  n_steps;
};

#endif /* CEI_SM_LANE_H */
