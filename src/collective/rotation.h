/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_ROTATION_H
#define CEI_ROTATION_H

/* What templates share: checks, the cut into pieces, and the rotated walk. */

#include <stdint.h>

#include "ce_engine/plan.h"

/* What one template does to one target: filled by the templates. */
struct cei_fan {
	ceov_plan          *plan;
	const char         *name;               /* of the template, for messages */
	uint64_t            bytes;              /* of a shard or block */
	uint32_t            n_pieces;
	ceov_buffer        *source;
	uint64_t            source_offset_bytes;/* of the shard, or of block 0 */
	uint64_t            source_step_bytes;  /* from target to target: 0, or a block */
	uint32_t            ready_step;         /* likewise, in ready counters */
	ceov_buffer *const *targets;
	uint64_t            target_offset_bytes;/* of shard or block 0 */
	ceov_signal        *ready;
	ceov_signal *const *arrived;
	ceov_signal *const *free;
};

/* The plan, and the struct that the caller filled: before the fan is filled from it. */
int cei_fan_check_struct(const struct cei_fan *fan, const void *from, size_t known_bytes);

/* Adds a transfer for every piece to every target, piece by piece, targets rotated
 * from the plan's rank on; declares the marks expected. Refuses before it adds. After
 * cei_fan_check_struct(). */
int cei_fan_add(const struct cei_fan *fan);

#endif /* CEI_ROTATION_H */
