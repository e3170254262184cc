/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_ROTATION_H
#define CEI_ROTATION_H

/* Shared by the templates: checks, the cut into pieces, and the rotated order. */

#include <stdint.h>

#include "ce_engine/plan.h"

/* One template's arguments in a common form, filled by each template. */
struct cei_fan {
	ceov_plan          *plan;
	const char         *name;               /* of the template, for messages */
	uint64_t            bytes;              /* of a shard or block */
	uint32_t            n_pieces;
	ceov_buffer        *source;
	uint64_t            source_offset_bytes;/* of the own shard (all-gather), or of block 0
						 * (all-to-all) */
	uint64_t            source_step_bytes;  /* from one target to the next: 0 (all-gather), or
						 * a block (all-to-all) */
	uint32_t            ready_step;         /* the same for the index of the ready counter */
	ceov_buffer *const *targets;
	uint64_t            target_offset_bytes;/* of shard or block 0 */
	ceov_signal        *ready;
	ceov_signal *const *arrived;
	ceov_signal *const *free;
};

/* Checks the plan, and the struct that the caller filled, before a fan is filled from it. */
int cei_fan_check_struct(const struct cei_fan *fan, const void *from, size_t known_bytes);

/* Adds a transfer for every piece to every target, piece by piece, the targets rotated so
 * that the first is the rank behind the plan's; declares the expected marks. Refuses before
 * it adds anything. Call cei_fan_check_struct() first. */
int cei_fan_add(const struct cei_fan *fan);

#endif /* CEI_ROTATION_H */
